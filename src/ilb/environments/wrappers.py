"""AbstractWrapper: a world around another, which it leaves as it is but for what a subclass says anew."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.models.latent import LatentModel
from ilb.networks import Affine, ComposedEncoder


class AbstractWrapper(AbstractEnvironment):
    """Passes everything on to `environment`, keys included: instance i is instance i of the world inside."""

    environment: eqx.AbstractVar[AbstractEnvironment]

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Draw an instance."""
        return self.environment.sample_instance(key)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round."""
        return self.environment.emit(key, instance)

    def mean_rewards(self, instance: Instance) -> Float[Array, " K"]:
        """Give the expected reward of every action."""
        return self.environment.mean_rewards(instance)

    def sample_rewards(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " K"]:
        """Draw the rewards of all K actions."""
        return self.environment.sample_rewards(key, instance)

    def advance(self, key: PRNGKeyArray, instance: Instance) -> Instance:
        return self.environment.advance(key, instance)

    def latent_state(self, instance: Instance) -> Float[Array, " n"]:
        """Give the true latent state."""
        return self.environment.latent_state(instance)

    def oracle(self) -> LatentModel:
        """Give the true model of the world inside."""
        return self.environment.oracle()


class FixedInstance(AbstractWrapper):
    """The world inside, where `sample_instance` always gives `instance`; contexts and rewards stay random."""

    environment: AbstractEnvironment
    instance: Instance

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Give the one instance."""
        del key
        return self.instance


class ScaledContexts(AbstractWrapper):
    """Contexts `(x - low) / span`; everything else is that of the world inside."""

    environment: AbstractEnvironment
    low: Float[Array, " d"] = eqx.field(converter=jnp.asarray)
    span: Float[Array, " d"] = eqx.field(converter=jnp.asarray)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round and scale it."""
        return (self.environment.emit(key, instance) - self.low) / self.span

    def oracle(self) -> LatentModel:
        """Give the true model, which undoes the scaling first."""
        inside = self.environment.oracle()
        undo = Affine(jnp.diag(self.span), self.low)
        return LatentModel(ComposedEncoder(undo, inside.encoder), inside.reward, inside.noise)
