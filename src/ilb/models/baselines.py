"""What baselines learn from logs: offline writes it, online reads it, as with the `LatentModel`."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression


class ContextRegression(eqx.Module):
    r"""A ridge regression of rewards on contexts for each action, as sums.

    `precision` is $A_a = \lambda I + X_a^\top X_a$ and `moment` is $b_a = X_a^\top r_a$. The coefficients
    $A_a^{-1} b_a$ have the covariance $\sigma^2 A_a^{-1}$ when rewards have the variance $\sigma^2$.
    """

    precision: Float[Array, "K d d"]
    moment: Float[Array, "K d"]


class DiscreteStates(eqx.Module):
    r"""A latent state that is one of S: $s \sim$ `weights`, $r \mid s, a \sim N(\mu_{s,a}, \sigma_a^2)$."""

    weights: Float[Array, " S"]
    mean_rewards: Float[Array, "S K"]
    reward_variance: Float[Array, " K"]


class RewardScale(NamedTuple):
    """Mean and variance of all logged rewards, whatever the instance and action."""

    mean: float
    variance: float


class Ingredients(NamedTuple):
    """Everything that any policy of the roster is built from: the latent model, and what baselines learn from logs."""

    model: LatentModel
    regression: ContextRegression
    encoding_states: DiscreteStates
    reward_states: DiscreteStates
    reward_scale: RewardScale
    horizon: int
    recurrent: RecurrentRegression | None = None
