"""A world whose contexts are shifted and scaled column by column, as tables are before any learning."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.environments.wrapper import AbstractWrapper
from ilb.model import LatentModel
from ilb.networks import Affine, ComposedEncoder


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
