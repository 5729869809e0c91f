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
from ilb.online.cholesky import cholesky, solve_lower
from ilb.online.policy import AbstractBelief, BeliefPolicy, IndependentRewards, Thompson, UpperConfidence
from ilb.types import Context, Step, as_real


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
    noise_std: Float[Array, ""] = eqx.field(converter=as_real)
    inflation: Float[Array, ""] = eqx.field(converter=as_real)

    def init(self) -> LinearSums:
        return LinearSums(jnp.zeros_like(self.prior_precision), jnp.zeros_like(self.prior_moment))

    def learn(self, state: LinearSums, step: Step) -> LinearSums:
        taken = jax.nn.one_hot(step.action, state.moment.shape[0])
        return LinearSums(
            state.precision + taken[:, None, None] * jnp.outer(step.context, step.context)[None],
            state.moment + jnp.outer(taken, step.reward * step.context),
        )

    def rewards(self, state: LinearSums, context: Context) -> IndependentRewards:
        r"""Believe $x^\top A_a^{-1} b_a$, with variance $\nu^2 \sigma^2 x^\top A_a^{-1} x$, in this context."""
        factor = jax.vmap(cholesky)(self.prior_precision + state.precision)
        half_context = jax.vmap(solve_lower, in_axes=(0, None))(factor, context)
        half_moment = jax.vmap(solve_lower)(factor, self.prior_moment + state.moment)
        return IndependentRewards(
            jnp.sum(half_context * half_moment, axis=1),
            self.inflation * self.noise_std * jnp.sqrt(jnp.sum(half_context**2, axis=1)),
        )


def linear_belief(regression: ContextRegression, noise_std: ArrayLike, inflation: ArrayLike = 1.0) -> LinearBelief:
    """Start from what a regression on logs, or on none, believes."""
    return LinearBelief(regression.precision, regression.moment, as_real(noise_std), as_real(inflation))


def lin_ucb(
    actions: int, context_dim: int, noise_std: ArrayLike, delta: float = 0.1, ridge: float = 1.0
) -> BeliefPolicy:
    r"""LinUCB with disjoint models (Li et al. 2010, Algorithm 1), on the current context.

    The width $\alpha = 1 + \sqrt{\ln(2 / \delta) / 2}$ is theirs; here it counts in units of `noise_std`.
    """
    belief = linear_belief(ContextRegression.on_no_rows(actions, context_dim, ridge), noise_std)
    return BeliefPolicy(belief, UpperConfidence(as_real(1 + math.sqrt(math.log(2 / delta) / 2))))


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
    return warm_lin_ts(ContextRegression.on_no_rows(actions, context_dim, ridge), noise_std, inflation)


def warm_lin_ts(regression: ContextRegression, noise_std: ArrayLike, inflation: ArrayLike = 1.0) -> BeliefPolicy:
    """Linear Thompson sampling whose prior is the posterior of the same model on the logs (Oetomo et al. 2023)."""
    return BeliefPolicy(linear_belief(regression, noise_std, inflation), Thompson())
