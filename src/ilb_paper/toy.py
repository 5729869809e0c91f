"""The toy world whose contexts never change within an instance (app:synthetic_stationary)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments import AbstractDescription, Plan, parameter
from ilb.environments.environment import AbstractEnvironment
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder
from ilb.streams import Stream
from ilb.types import as_real
from ilb_paper.settings import AbstractSetting, shrink

CONTEXT_MEAN = 0.5
CONTEXT_VARIANCE = 0.1
CONTEXT_COVARIANCE = 0.05
"""The entries of mu and of Sigma on and off its diagonal, as printed."""

THETA_RANGE = (0.3, 0.8)
"""The interval of every coefficient, as printed."""

NO_NOISE = 1e-6
"""What the oracle says of the variance of contexts around themselves: beliefs invert it, so it can't be zero."""


class StationaryWorld(AbstractEnvironment):
    r"""Rewards $\theta_a^\top X_i + \epsilon$ of a context $X_i \sim N(\mu, \Sigma)$ that is drawn once.

    An instance is its context: all rounds of a run show the same one, so nothing but rewards is learned from a second
    round, and a contextual bandit has no more to go by than one without contexts.
    """

    theta: Float[Array, "K d"]
    context_mean: Float[Array, " d"]
    context_factor: Float[Array, "d d"]
    reward_std: Float[Array, ""] = eqx.field(converter=as_real, default=0.25)

    def sample_instance(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.context_mean + self.context_factor @ jr.normal(key, self.context_mean.shape)

    def emit(self, key: PRNGKeyArray, instance: Float[Array, " d"]) -> Float[Array, " d"]:
        """Show the context of the instance, the same in every round."""
        del key
        return instance

    def mean_rewards(self, instance: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.theta @ instance

    def sample_rewards(self, key: PRNGKeyArray, instance: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.theta @ instance + self.reward_std * jr.normal(key, (self.theta.shape[0],))

    def latent_state(self, instance: Float[Array, " d"]) -> Float[Array, " d"]:
        """Give the context, which is all there is to an instance."""
        return instance

    def oracle(self) -> LatentModel:
        """Give the true model: contexts are latent states, and rewards are linear in them."""
        actions, dim = self.theta.shape
        noise = NoiseLevels(
            encoding_covariance=NO_NOISE * jnp.eye(dim),
            population_mean=self.context_mean,
            population_covariance=self.context_factor @ self.context_factor.T,
            reward_variance=jnp.full(actions, self.reward_std**2),
            leftover_variance=jnp.asarray(0.0),
        )
        return LatentModel(IdentityEncoder(), LinearReward.known(self.theta, jnp.zeros(actions)), noise)


@dataclass(frozen=True)
class Stationary(AbstractDescription):
    """The toy world, whose coefficients a seed draws; the defaults are those of the paper's figure.

    The paper prints N(0, 0.25) for the noise of rewards; as in the released code, 0.25 is its standard deviation.

    >>> world = Stationary().draw()
    >>> context = world.sample_instance(jr.key(1))
    >>> bool(jnp.all(world.emit(jr.key(2), context) == world.emit(jr.key(3), context)))
    True
    """

    actions: int = parameter(10, "Number K of actions.", least=1)
    latent_dim: int = parameter(5, "Columns of a context.", least=1)
    reward_std: float = parameter(0.25, "Standard deviation of reward noise.")

    def draw(self, seed: int = 0) -> StationaryWorld:
        low, high = THETA_RANGE
        spread = CONTEXT_VARIANCE - CONTEXT_COVARIANCE
        covariance = spread * np.eye(self.latent_dim) + CONTEXT_COVARIANCE
        return StationaryWorld(
            theta=jr.uniform(Stream.WORLD.key(seed), (self.actions, self.latent_dim), minval=low, maxval=high),
            context_mean=jnp.full(self.latent_dim, CONTEXT_MEAN),
            context_factor=jnp.asarray(np.linalg.cholesky(covariance), jnp.float32),
            reward_std=as_real(self.reward_std),
        )


PLAN = Plan(instances=500, length=1, test_instances=10)


@dataclass(frozen=True)
class StationarySetting(AbstractSetting):
    """The toy as the paper plays it: 500 logged rows for the warm start."""

    kind: ClassVar[str] = "Stationary"
    constant_columns: ClassVar[bool] = True
    warm_ridge: ClassVar[float] = 0.5  # as released
    world: Stationary = Stationary()
    plan: Plan = PLAN

    @property
    def layers(self) -> int:
        return 2

    @property
    def latent_dim(self) -> int:
        return self.world.latent_dim

    @property
    def actions(self) -> int:
        return self.world.actions

    @property
    def reward_std(self) -> float:
        return self.world.reward_std

    def contexts(self) -> StationarySetting:
        """Nothing is learned from contexts here."""
        return self.offline()

    def shrunk(self, factor: float) -> StationarySetting:
        return replace(self, plan=shrink(self.plan, factor, instances=50))
