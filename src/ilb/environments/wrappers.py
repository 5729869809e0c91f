"""AbstractWrapper: a world around another, which it leaves as it is but for what a subclass says anew."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance, Units
from ilb.models.latent import LatentModel
from ilb.networks import Affine, ComposedEncoder
from ilb.types import as_real


class AbstractWrapper(AbstractEnvironment):
    """Passes all that is drawn on to `environment`, keys included: instance i is instance i of the world inside.

    Its table is a plain one, since its contexts need not be those that the world inside knows how to write.
    """

    environment: eqx.AbstractVar[AbstractEnvironment]

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        return self.environment.sample_instance(key)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        return self.environment.emit(key, instance)

    def mean_rewards(self, instance: Instance) -> Float[Array, " K"]:
        return self.environment.mean_rewards(instance)

    def sample_rewards(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " K"]:
        return self.environment.sample_rewards(key, instance)

    def advance(self, key: PRNGKeyArray, instance: Instance) -> Instance:
        return self.environment.advance(key, instance)

    def latent_state(self, instance: Instance) -> Float[Array, " n"]:
        return self.environment.latent_state(instance)

    def oracle(self) -> LatentModel:
        return self.environment.oracle()

    @property
    def column_names(self) -> tuple[str, ...] | None:
        return self.environment.column_names

    @property
    def units(self) -> Units | None:
        return self.environment.units


class FixedInstance(AbstractWrapper):
    """The world inside, where `sample_instance` always gives `instance`; contexts and rewards stay random."""

    environment: AbstractEnvironment
    instance: Instance

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        del key
        return self.instance


class ScaledContexts(AbstractWrapper):
    """Contexts `(x - low) / span`; everything else is that of the world inside."""

    environment: AbstractEnvironment
    low: Float[Array, " d"] = eqx.field(converter=as_real)
    span: Float[Array, " d"] = eqx.field(converter=as_real)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        return (self.environment.emit(key, instance) - self.low) / self.span

    @property
    def units(self) -> Units | None:
        units = self.environment.units
        return units and units._replace(
            context_mean=(units.context_mean - self.low) / self.span, context_std=units.context_std / self.span
        )

    def oracle(self) -> LatentModel:
        """Give the true model, which undoes the scaling first."""
        inside = self.environment.oracle()
        undo = Affine(jnp.diag(self.span), self.low)
        return LatentModel(ComposedEncoder(undo, inside.encoder), inside.reward, inside.noise)
