r"""Contextual bandits on the current context: LinUCB and linear Thompson sampling, cold and warm.

Each action has a linear model of its own (disjoint models): $A_a = \lambda I + \sum x x^\top$ and $b_a = \sum x r$. The
state holds the Cholesky factor of every $A_a$, and $b_a$ in its terms. A reward changes the one factor of its action,
by rotations (a square root information filter), and a decision solves with the factors as they are. The factor of a
matrix is unique, so rewards may come in any order. Contexts are taken as they are: for an intercept, one column has to
be constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ilb.models.baselines import ContextRegression
from ilb.online.cholesky import add_outer, solve_lower
from ilb.online.policy import AbstractBelief, BeliefPolicy, IndependentRewards, Thompson, UpperConfidence
from ilb.types import Context, Step, as_real


class LinearFactors(NamedTuple):
    r"""What is known of each action: $L_a$ with $L_a L_a^\top = A_a$, and below it, as a last row, $L_a^{-1} b_a$.

    One array: a live instance that was saved when the state was two sums has another layout and is refused.
    """

    rows: Float[Array, "K d+1 d"]

    @property
    def factor(self) -> Float[Array, "K d d"]:
        """The lower factors of the precisions."""
        return self.rows[:, :-1]

    @property
    def half_moment(self) -> Float[Array, "K d"]:
        """The moments, solved halfway."""
        return self.rows[:, -1]


class LinearBelief(AbstractBelief):
    r"""Bayesian linear regression: $\theta_a \sim N(A_a^{-1} b_a, \nu^2 \sigma^2 A_a^{-1})$ for each action by itself.

    `prior` is what is known before the first round; `noise_std` is $\sigma$, `inflation` $\nu$.
    """

    prior: LinearFactors
    noise_std: Float[Array, ""] = eqx.field(converter=as_real)
    inflation: Float[Array, ""] = eqx.field(converter=as_real)

    def init(self) -> LinearFactors:
        return self.prior

    def learn(self, state: LinearFactors, step: Step) -> LinearFactors:
        learned = add_outer(state.rows[step.action], jnp.append(step.context, step.reward))
        return LinearFactors(state.rows.at[step.action].set(learned))

    def rewards(self, state: LinearFactors, context: Context) -> IndependentRewards:
        r"""Believe $x^\top A_a^{-1} b_a$, with variance $\nu^2 \sigma^2 x^\top A_a^{-1} x$, in this context."""
        half_context = jax.vmap(solve_lower, in_axes=(0, None))(state.factor, context)
        return IndependentRewards(
            jnp.sum(half_context * state.half_moment, axis=1),
            self.inflation * self.noise_std * jnp.sqrt(jnp.sum(half_context**2, axis=1)),
        )


def linear_belief(regression: ContextRegression, noise_std: ArrayLike, inflation: ArrayLike = 1.0) -> LinearBelief:
    """Start from what a regression on logs, or on none, believes; its matrices are factored here, in float64."""
    factor = _lower_factor(np.asarray(regression.precision, np.float64))
    half_moment = np.linalg.solve(factor, np.asarray(regression.moment, np.float64)[:, :, None])[:, :, 0]
    rows = jnp.asarray(np.concatenate([factor, half_moment[:, None]], axis=1), jnp.float32)
    return LinearBelief(LinearFactors(rows), as_real(noise_std), as_real(inflation))


def _lower_factor(matrices: Float[np.ndarray, "K d d"]) -> Float[np.ndarray, "K d d"]:
    """Factor matrices whose float32 numbers may have lost a ridge that is far smaller than the rest."""
    if not matrices.shape[-1]:
        return matrices
    values, vectors = np.linalg.eigh(matrices)
    values = np.maximum(values, np.finfo(np.float32).eps * values.max(axis=1, keepdims=True))
    factor = np.linalg.qr(np.sqrt(values)[:, :, None] * vectors.swapaxes(1, 2)).R.swapaxes(1, 2)
    return np.asarray(factor * np.sign(np.diagonal(factor, axis1=1, axis2=2))[:, None])


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
