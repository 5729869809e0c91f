r"""Contextual bandits on the current context: LinUCB and linear Thompson sampling, cold and warm.

Each action has a linear model of its own (disjoint models). The state holds the sums $\sum x x^\top$ and $\sum x r$,
which are solved afresh at every decision. No inverse is carried along, so rewards may come in any order and rounding
errors do not feed on each other. Contexts are taken as they are: for an intercept, one column has to be constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ilb.models.baselines import ContextRegression
from ilb.online.arms import IndependentRewards, mab
from ilb.online.cholesky import cholesky, solve_lower
from ilb.online.rules import AbstractBelief, BeliefPolicy, Thompson, UpperConfidence
from ilb.types import Step


class LinearSums(NamedTuple):
    r"""What the rounds of one instance add to $A_a$ and $b_a$ of each action."""

    precision: Float[Array, "K d d"]
    moment: Float[Array, "K d"]


class LinearBelief(AbstractBelief):
    r"""Bayesian linear regression: $\theta_a \sim N(A_a^{-1} b_a, \nu^2 \sigma^2 A_a^{-1})$ for each action by itself.

    `prior_precision` and `prior_moment` are A and b before the first round; `noise_std` is $\sigma$, `inflation` $\nu$.
    """

    prior_precision: Float[Array, "K d d"]
    prior_moment: Float[Array, "K d"]
    noise_std: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    inflation: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)

    def init(self) -> LinearSums:
        """Know only the prior."""
        return LinearSums(jnp.zeros_like(self.prior_precision), jnp.zeros_like(self.prior_moment))

    def observe(self, state: LinearSums, context: Float[Array, " d"]) -> LinearSums:
        """Remember nothing: a context teaches by its reward alone."""
        del context
        return state

    def learn(self, state: LinearSums, step: Step) -> LinearSums:
        """Add the round to the sums of the action taken."""
        taken = jax.nn.one_hot(step.action, state.moment.shape[0])
        return LinearSums(
            state.precision + taken[:, None, None] * jnp.outer(step.context, step.context),
            state.moment + taken[:, None] * (step.reward * step.context),
        )

    def rewards(self, state: LinearSums, context: Float[Array, " d"]) -> IndependentRewards:
        r"""Believe $x^\top A_a^{-1} b_a$, with variance $\nu^2 \sigma^2 x^\top A_a^{-1} x$, in this context."""
        factor = jax.vmap(cholesky)(self.prior_precision + state.precision)
        half_context = jax.vmap(solve_lower, in_axes=(0, None))(factor, context)
        half_moment = jax.vmap(solve_lower)(factor, self.prior_moment + state.moment)
        return IndependentRewards(
            jnp.sum(half_context * half_moment, axis=1),
            self.inflation * self.noise_std * jnp.sqrt(jnp.sum(half_context**2, axis=1)),
        )


class WidenedBelief(AbstractBelief):
    r"""A linear belief whose standard deviations are widened as in the authors' code (app:synthetic_stationary).

    $\nu_t^2 = \sum_a \ln \det A_a + d \ln(1 + T)$ with T the horizon: the width of a confidence ellipsoid
    (Abbasi-Yadkori et al. 2011), but summed over the actions, so that rewards of one widen the belief about all.
    """

    linear: LinearBelief
    horizon: Float[Array, ""]

    def init(self) -> LinearSums:
        """Know only the prior."""
        return self.linear.init()

    def observe(self, state: LinearSums, context: Float[Array, " d"]) -> LinearSums:
        """Remember nothing: a context teaches by its reward alone."""
        return self.linear.observe(state, context)

    def learn(self, state: LinearSums, step: Step) -> LinearSums:
        """Add the round to the sums of the action taken."""
        return self.linear.learn(state, step)

    def rewards(self, state: LinearSums, context: Float[Array, " d"]) -> IndependentRewards:
        """Believe the same means, with wider standard deviations."""
        factor = jax.vmap(cholesky)(self.linear.prior_precision + state.precision)
        log_determinants = 2 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)))
        # Ridges below one can make the sum of logarithms negative; a widened belief is not narrower than the plain one.
        squared = jnp.maximum(log_determinants + context.shape[0] * jnp.log1p(self.horizon), 1.0)
        believed = self.linear.rewards(state, context)
        return IndependentRewards(believed.means, jnp.sqrt(squared) * believed.stds)


def _belief(regression: ContextRegression, noise_std: ArrayLike, inflation: ArrayLike) -> LinearBelief:
    numbers = (jnp.asarray(number, float) for number in (noise_std, inflation))
    return LinearBelief(regression.precision, regression.moment, *numbers)


def _no_logs(actions: int, context_dim: int, ridge: float) -> ContextRegression:
    return ContextRegression(jnp.tile(ridge * jnp.eye(context_dim), (actions, 1, 1)), jnp.zeros((actions, context_dim)))


def lin_ucb(
    actions: int, context_dim: int, noise_std: ArrayLike, delta: float = 0.1, ridge: float = 1.0
) -> BeliefPolicy:
    r"""LinUCB with disjoint models (Li et al. 2010, Algorithm 1), on the current context.

    The width $\alpha = 1 + \sqrt{\ln(2 / \delta) / 2}$ is theirs; here it counts in units of `noise_std`.
    """
    alpha = jnp.asarray(1 + math.sqrt(math.log(2 / delta) / 2))
    return BeliefPolicy(_belief(_no_logs(actions, context_dim, ridge), noise_std, 1.0), UpperConfidence(alpha))


def lin_ts(
    actions: int, context_dim: int, noise_std: ArrayLike, ridge: float = 1.0, inflation: ArrayLike = 1.0
) -> BeliefPolicy:
    r"""Linear Thompson sampling (Agrawal & Goyal 2013) with disjoint models.

    `inflation` is their $v$ over the noise: 1 samples from the posterior, their proof needs some $\sqrt{9 d \ln t}$.

    >>> import jax.random as jr
    >>> policy = lin_ts(actions=3, context_dim=2, noise_std=0.5)
    >>> state = policy.learn(policy.init(), Step(jnp.array([1.0, 0.0]), jnp.asarray(2), jnp.asarray(4.0)))
    >>> policy.rewards(state, jnp.array([1.0, 1.0])).mean().round(3).tolist()
    [0.0, 0.0, 2.0]
    """
    return warm_lin_ts(_no_logs(actions, context_dim, ridge), noise_std, inflation)


def warm_lin_ts(regression: ContextRegression, noise_std: ArrayLike, inflation: ArrayLike = 1.0) -> BeliefPolicy:
    """Linear Thompson sampling whose prior is the posterior of the same model on the logs (Oetomo et al. 2023)."""
    return BeliefPolicy(_belief(regression, noise_std, inflation), Thompson())


def widened_lin_ts(regression: ContextRegression, noise_std: ArrayLike, horizon: int) -> BeliefPolicy:
    """Linear Thompson sampling as in the authors' toy: draws are widened by the log-determinants of all actions."""
    return BeliefPolicy(WidenedBelief(_belief(regression, noise_std, 1.0), jnp.asarray(horizon, float)), Thompson())


def stationary_policies(
    regression: ContextRegression, noise_std: ArrayLike, horizon: int = 1000, ridge: float = 1.0
) -> dict[str, BeliefPolicy]:
    """Build the policies of app:synthetic_stationary, linear ones as posterior samplers and as released.

    `regression` comes from logged rows, in the paper 500 with ridge 0.5; cold starts have `ridge`, in the paper 1.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> from ilb.offline.baselines import fit_context_regression
    >>> world = draw_world(jr.key(0), actions=10)
    >>> logs = record(jr.key(1), world, UniformLogging(10), instances=500, length=1).logs
    >>> list(stationary_policies(fit_context_regression(logs, ridge=0.5), noise_std=0.25))
    ['MAB', 'LinTS', 'Warm LinTS', 'LinTS (released)', 'Warm LinTS (released)']
    """
    actions, dim = regression.moment.shape
    cold = _no_logs(actions, dim, ridge)
    return {
        "MAB": mab(actions, jnp.asarray(noise_std) ** 2),
        "LinTS": warm_lin_ts(cold, noise_std),
        "Warm LinTS": warm_lin_ts(regression, noise_std),
        "LinTS (released)": widened_lin_ts(cold, noise_std, horizon),
        "Warm LinTS (released)": widened_lin_ts(regression, noise_std, horizon),
    }
