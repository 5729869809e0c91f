"""Worlds whose rewards are not those of the logs: own effects, an action that has changed, an irrelevant model.

Contexts stay as they are; so does instance i, as a draw of the population.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.environments.perturbed import AbstractPerturbation
from ilb.environments.wrappers import AbstractWrapper
from ilb.errors import WorldError
from ilb.models.latent import LatentModel
from ilb.streams import Stream
from ilb.types import as_real


@dataclass(frozen=True)
class OwnEffects(AbstractPerturbation):
    """Give every person an effect of their own for each action, normal with this standard deviation."""

    own_std: float

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> AddedRewards:
        del key
        actions = world.sizes.actions
        return AddedRewards(world, jnp.zeros(actions), jnp.full(actions, self.own_std))


@dataclass(frozen=True)
class ChangedAction(AbstractPerturbation):
    """Let one action, by its number from 0, bring so much more (or less) to everybody than it did in the logs."""

    changed_action: int
    changed_by: float

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> AddedRewards:
        del key
        actions = world.sizes.actions
        if not 0 <= self.changed_action < actions:
            raise WorldError(f"changed_action must be from 0 to {actions - 1}; got {self.changed_action}.")
        added = jnp.zeros(actions).at[self.changed_action].set(self.changed_by)
        return AddedRewards(world, added, jnp.zeros(actions))


@dataclass(frozen=True)
class IrrelevantModel(AbstractPerturbation):
    """Let contexts say nothing of rewards: each action pays as it would pay another person, drawn for it alone."""

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> StrangersRewards:
        del key
        return StrangersRewards(world)


class RewardedInstance(NamedTuple):
    """An instance of the world inside, and what sets its rewards apart."""

    inside: Instance
    rewards: Float[Array, " K"]


class _OtherRewards(AbstractWrapper):
    """A world around another in which an instance carries numbers for its K rewards."""

    def emit(self, key: PRNGKeyArray, instance: RewardedInstance) -> Float[Array, " d"]:
        return self.environment.emit(key, instance.inside)

    def advance(self, key: PRNGKeyArray, instance: RewardedInstance) -> RewardedInstance:
        return instance._replace(inside=self.environment.advance(key, instance.inside))

    def latent_state(self, instance: RewardedInstance) -> Float[Array, " n"]:
        return self.environment.latent_state(instance.inside)


class AddedRewards(_OtherRewards):
    """The world inside, where action a brings `added[a]` more, and an own effect with standard deviation `stds[a]`.

    `oracle()` is that of the world inside: the model of the logs.
    """

    environment: AbstractEnvironment
    added: Float[Array, " K"] = eqx.field(converter=as_real)
    stds: Float[Array, " K"] = eqx.field(converter=as_real)

    def sample_instance(self, key: PRNGKeyArray) -> RewardedInstance:
        effects = self.stds * jr.normal(Stream.OWN_EFFECTS.of(key), self.stds.shape)
        return RewardedInstance(self.environment.sample_instance(key), self.added + effects)

    def mean_rewards(self, instance: RewardedInstance) -> Float[Array, " K"]:
        return self.environment.mean_rewards(instance.inside) + instance.rewards

    def sample_rewards(self, key: PRNGKeyArray, instance: RewardedInstance) -> Float[Array, " K"]:
        return self.environment.sample_rewards(key, instance.inside) + instance.rewards


class StrangersRewards(_OtherRewards):
    """The world inside, where each action pays what it would pay to a stranger, one for each action.

    `oracle()` is that of the world inside, which is of no use here.
    """

    environment: AbstractEnvironment

    def sample_instance(self, key: PRNGKeyArray) -> RewardedInstance:
        actions = self.environment.sizes.actions
        keys = jr.split(Stream.OWN_EFFECTS.of(key), actions)
        rewards = jax.vmap(lambda other: self.environment.mean_rewards(self.environment.sample_instance(other)))(keys)
        return RewardedInstance(self.environment.sample_instance(key), jnp.diagonal(rewards))

    def mean_rewards(self, instance: RewardedInstance) -> Float[Array, " K"]:
        return instance.rewards

    def sample_rewards(self, key: PRNGKeyArray, instance: RewardedInstance) -> Float[Array, " K"]:
        drawn = self.environment.sample_rewards(key, instance.inside)
        return instance.rewards + drawn - self.environment.mean_rewards(instance.inside)

    def oracle(self) -> LatentModel:
        return self.environment.oracle()
