"""Worlds in which people do not stay as they are: states that wander, and sudden changes.

Both leave the population as it is: at any time, people are distributed as at the first round. What a person was k
rounds ago has the correlation (1 - rate)^k with what they are now.
"""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.environments.perturbed import AbstractPerturbation
from ilb.environments.wrappers import AbstractWrapper
from ilb.errors import WorldError
from ilb.types import as_real


@dataclass(frozen=True)
class Wandering(AbstractPerturbation):
    """Let the numbers of a person wander: each round they forget this share of what sets them apart."""

    wandering_rate: float

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> WanderingWorld:
        del key
        return WanderingWorld(world, _as_rate("wandering_rate", self.wandering_rate))


@dataclass(frozen=True)
class SuddenChanges(AbstractPerturbation):
    """Let a person turn into somebody else, drawn from the population, with this probability in each round."""

    change_rate: float

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> SuddenlyChangingWorld:
        del key
        return SuddenlyChangingWorld(world, _as_rate("change_rate", self.change_rate))


class WanderingWorld(AbstractWrapper):
    r"""The world inside, where $z_{t+1} = (1 - q) z_t + q b + \sqrt{q (1 - q)} (b' - b'')$ with new draws b.

    This keeps mean and variance of the population, whatever they are, and its shape where that is normal. What is not
    a real number (a category) stays as it is.
    """

    environment: AbstractEnvironment
    rate: Float[Array, ""] = eqx.field(converter=as_real)

    def advance(self, key: PRNGKeyArray, instance: Instance) -> Instance:
        key_inside, key = jr.split(key)
        instance = self.environment.advance(key_inside, instance)
        towards, up, down = (self.environment.sample_instance(each) for each in jr.split(key, 3))
        kept, new = 1 - self.rate, jnp.sqrt(self.rate * (1 - self.rate))

        def move(now: Array, mean: Array, up: Array, down: Array) -> Array:
            return kept * now + self.rate * mean + new * (up - down) if eqx.is_inexact_array(now) else now

        return jax.tree.map(move, instance, towards, up, down)


class SuddenlyChangingWorld(AbstractWrapper):
    """The world inside, where in each round a person is drawn anew with probability `rate`."""

    environment: AbstractEnvironment
    rate: Float[Array, ""] = eqx.field(converter=as_real)

    def advance(self, key: PRNGKeyArray, instance: Instance) -> Instance:
        key_inside, key_change, key_other = jr.split(key, 3)
        instance = self.environment.advance(key_inside, instance)
        other = self.environment.sample_instance(key_other)
        changed = jr.bernoulli(key_change, self.rate)
        return jax.tree.map(lambda new, old: jnp.where(changed, new, old), other, instance)


def _as_rate(name: str, rate: float) -> Float[Array, ""]:
    if not 0 <= rate <= 1:
        raise WorldError(f"{name} is a share, from 0 (nobody changes) to 1; got {rate}.")
    return as_real(rate)
