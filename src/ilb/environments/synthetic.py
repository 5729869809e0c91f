"""The synthetic world of the paper (eq. scm, Section "Environments")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment
from ilb.environments.specification import AbstractDescription, parameter
from ilb.errors import WorldError
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import InverseMixing, LeakyMixing, LeakyReward, random_leaky_mixing
from ilb.streams import Stream
from ilb.types import RewardModel, as_real

SLOPE = 0.2
"""Slope of the leaky ReLUs, as in the released code; the paper does not print one."""


@runtime_checkable
class LatentNoise(Protocol):
    r"""The distribution of $\eta_t$: independent coordinates, mean zero."""

    @property
    def variance(self) -> Float[Array, ""]:
        """The variance of one coordinate."""
        ...

    def sample(self, key: PRNGKeyArray, dim: int) -> Float[Array, " n"]:
        """Draw one vector."""
        ...


class GaussianNoise(eqx.Module):
    """Normal noise with standard deviation `scale`."""

    scale: Float[Array, ""] = eqx.field(converter=as_real, default=1.0)

    @property
    def variance(self) -> Float[Array, ""]:
        return self.scale**2

    def sample(self, key: PRNGKeyArray, dim: int) -> Float[Array, " n"]:
        return self.scale * jr.normal(key, (dim,))


class LaplaceNoise(eqx.Module):
    """Laplace noise of scale `scale`: its variance is 2 scale²."""

    scale: Float[Array, ""] = eqx.field(converter=as_real, default=1.0)

    @property
    def variance(self) -> Float[Array, ""]:
        return 2 * self.scale**2

    def sample(self, key: PRNGKeyArray, dim: int) -> Float[Array, " n"]:
        return self.scale * jr.laplace(key, (dim,))


class UniformNoise(eqx.Module):
    """Uniform noise on an interval of length `scale` around zero: its variance is scale² / 12."""

    scale: Float[Array, ""] = eqx.field(converter=as_real, default=1.0)

    @property
    def variance(self) -> Float[Array, ""]:
        return self.scale**2 / 12

    def sample(self, key: PRNGKeyArray, dim: int) -> Float[Array, " n"]:
        return self.scale * jr.uniform(key, (dim,), minval=-0.5, maxval=0.5)


class SyntheticWorld(AbstractEnvironment):
    """A fixed emission and fixed rewards; instances differ in their latent state only."""

    mixing: LeakyMixing
    reward: RewardModel
    noise: LatentNoise
    latent_dim: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    latent_std: Float[Array, ""] = eqx.field(converter=as_real, default=1.0)
    reward_std: Float[Array, ""] = eqx.field(converter=as_real, default=0.5)

    def sample_instance(self, key: PRNGKeyArray) -> Float[Array, " n"]:
        return self.latent_std * jr.normal(key, (self.latent_dim,))

    def emit(self, key: PRNGKeyArray, instance: Float[Array, " n"]) -> Float[Array, " d"]:
        return self.mixing(instance + self.noise.sample(key, self.latent_dim))

    def mean_rewards(self, instance: Float[Array, " n"]) -> Float[Array, " K"]:
        return self.reward(instance)

    def sample_rewards(self, key: PRNGKeyArray, instance: Float[Array, " n"]) -> Float[Array, " K"]:
        return self.reward(instance) + self.reward_std * jr.normal(key, (self.actions,))

    def latent_state(self, instance: Float[Array, " n"]) -> Float[Array, " n"]:
        return instance

    def oracle(self) -> LatentModel:
        """Give the true model: the inverse emission, the true rewards and the true variances."""
        noise = _true_levels(self.noise.variance, self.latent_std, self.reward_std, self.latent_dim, self.actions)
        return LatentModel(InverseMixing(self.mixing), self.reward, noise)


@eqx.filter_jit
def _true_levels(
    noise_variance: Float[Array, ""], latent_std: Float[Array, ""], reward_std: Float[Array, ""], n: int, actions: int
) -> NoiseLevels:
    return NoiseLevels(
        encoding_covariance=noise_variance * jnp.eye(n),
        population_mean=jnp.zeros(n),
        population_covariance=latent_std**2 * jnp.eye(n),
        reward_variance=jnp.full(actions, reward_std**2),
        leftover_variance=jnp.asarray(0.0),
    )


RewardDraw = Callable[[PRNGKeyArray, int, int], RewardModel]
"""Draws the rewards of a world from a key, the number of actions and the latent dimension."""


def draw_linear_reward(key: PRNGKeyArray, actions: int, latent_dim: int) -> RewardModel:
    """Draw theta from a centred normal and scale each action's to length one."""
    return LinearReward.known(_unit_rows(key, actions, latent_dim), jnp.zeros(actions))


def draw_leaky_reward(key: PRNGKeyArray, actions: int, latent_dim: int) -> RewardModel:
    """Draw a two-layer leaky-ReLU reward: an orthogonal layer, then unit vectors."""
    key_hidden, key_theta = jr.split(key)
    return LeakyReward(
        jr.orthogonal(key_hidden, latent_dim), _unit_rows(key_theta, actions, latent_dim), jnp.asarray(SLOPE)
    )


def _unit_rows(key: PRNGKeyArray, rows: int, columns: int) -> Float[Array, "rows columns"]:
    drawn = jr.normal(key, (rows, columns))
    return jnp.asarray(drawn / jnp.linalg.norm(drawn, axis=1, keepdims=True))


def draw_world(
    key: PRNGKeyArray,
    *,
    latent_dim: int = 5,
    context_dim: int | None = None,
    layers: int = 2,
    actions: int = 20,
    noise: LatentNoise | str | None = None,
    draw_reward: RewardDraw = draw_linear_reward,
    latent_std: ArrayLike = 1.0,
    reward_std: ArrayLike = 0.5,
) -> SyntheticWorld:
    """Draw a world; the defaults are the paper's standard setting.

    >>> import jax.random as jr
    >>> world = draw_world(jr.key(0), latent_dim=4, context_dim=7, layers=3)
    >>> z = world.sample_instance(jr.key(1))
    >>> bool(jnp.allclose(world.mixing.inverse(world.mixing(z)), z, atol=1e-4))
    True
    """
    context_dim = latent_dim if context_dim is None else context_dim
    if context_dim < latent_dim:
        raise WorldError(
            f"the emission must be injective, so the context needs at least as many dimensions as the latent state: "
            f"got context_dim={context_dim} < latent_dim={latent_dim}."
        )
    if layers < 2:
        raise WorldError(f"an emission has at least 2 layers (one nonlinear stage); got layers={layers}.")
    if noise is not None and not isinstance(noise, LatentNoise):
        raise WorldError(
            f"noise must be GaussianNoise(scale), LaplaceNoise(scale), UniformNoise(scale) or another LatentNoise; "
            f"got {noise!r}. By name: Synthetic(noise='laplace')."
        )
    key_mixing, key_reward = jr.split(key)
    return SyntheticWorld(
        mixing=random_leaky_mixing(key_mixing, latent_dim, context_dim, layers, SLOPE),
        reward=draw_reward(key_reward, actions, latent_dim),
        noise=GaussianNoise() if noise is None else noise,
        latent_dim=latent_dim,
        actions=actions,
        latent_std=as_real(latent_std),
        reward_std=as_real(reward_std),
    )


NOISES: dict[str, Callable[[Any], LatentNoise]] = {
    "gaussian": GaussianNoise,
    "laplace": LaplaceNoise,
    "uniform": UniformNoise,
}
REWARDS: dict[str, RewardDraw] = {"linear": draw_linear_reward, "leaky": draw_leaky_reward}


@dataclass(frozen=True)
class Synthetic(AbstractDescription, name="synthetic"):
    """The paper's synthetic world; the defaults are its standard setting."""

    layers: int = parameter(2, "Layers L of the emission.", least=2)
    actions: int = parameter(20, "Number K of actions.", least=1)
    noise: str = parameter("gaussian", "Latent noise", choices=tuple(NOISES))
    noise_scale: float = parameter(1.0, "Its scale (standard deviation, Laplace scale, width).", positive=True)
    reward: str = parameter("linear", "Rewards (leaky: two layers)", choices=tuple(REWARDS))
    reward_std: float = parameter(0.5, "Standard deviation of reward noise.")
    latent_dim: int = parameter(5, "Dimension n of the latent state.", least=1)
    context_dim: int | None = parameter(None, "Dimension d of the context (default n).", least=1)
    latent_std: float = parameter(1.0, "Standard deviation of latent states.", positive=True)

    def check(self) -> None:
        if self.context_dim is not None and self.context_dim < self.latent_dim:
            raise WorldError(f"context_dim must be at least latent_dim={self.latent_dim}; got {self.context_dim}.")

    def draw(self, seed: int = 0) -> SyntheticWorld:
        return draw_world(
            Stream.WORLD.key(seed),
            latent_dim=self.latent_dim,
            context_dim=self.context_dim,
            layers=self.layers,
            actions=self.actions,
            noise=NOISES[self.noise](self.noise_scale),
            draw_reward=REWARDS[self.reward],
            latent_std=self.latent_std,
            reward_std=self.reward_std,
        )
