"""The toy world whose contexts never change within an instance (app:synthetic_stationary)."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment
from ilb.errors import WorldError
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder
from ilb.types import as_real

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


def draw_stationary_world(
    key: PRNGKeyArray, actions: int = 10, context_dim: int = 5, reward_std: float = 0.25
) -> StationaryWorld:
    """Draw the coefficients of a world; the defaults are those of the paper's figure.

    The paper prints N(0, 0.25) for the noise of rewards; as in the released code, 0.25 is its standard deviation.

    >>> world = draw_stationary_world(jr.key(0))
    >>> context = world.sample_instance(jr.key(1))
    >>> bool(jnp.all(world.emit(jr.key(2), context) == world.emit(jr.key(3), context)))
    True
    """
    if min(actions, context_dim) < 1:
        raise WorldError(
            f"a world has at least one action and one context column; got actions={actions} and "
            f"context_dim={context_dim}."
        )
    low, high = THETA_RANGE
    spread = CONTEXT_VARIANCE - CONTEXT_COVARIANCE
    covariance = spread * np.eye(context_dim) + CONTEXT_COVARIANCE
    return StationaryWorld(
        theta=jr.uniform(key, (actions, context_dim), minval=low, maxval=high),
        context_mean=jnp.full(context_dim, CONTEXT_MEAN),
        context_factor=jnp.asarray(np.linalg.cholesky(covariance), jnp.float32),
        reward_std=as_real(reward_std),
    )
