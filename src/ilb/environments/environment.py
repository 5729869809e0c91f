"""AbstractEnvironment: the structural causal model as conditional distributions, written for one instance."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.streams import Stream, round_key

Instance = Any
"""What an environment knows of one instance: a pytree of its own choice, such as the latent state."""


class Sizes(NamedTuple):
    """The dimensions n and d of latent states and contexts, and the number K of actions."""

    latent_dim: int
    context_dim: int
    actions: int


class Units(NamedTuple):
    """Means and standard deviations of latent states and contexts over the population."""

    latent_mean: Float[Array, " n"]
    latent_std: Float[Array, " n"]
    context_mean: Float[Array, " d"]
    context_std: Float[Array, " d"]


class AbstractEnvironment(eqx.Module):
    r"""$Z = U$, $X_t = g(Z + \eta_t)$, $R_t = \theta_{A_t}(Z) + \epsilon$ (eq. scm), one draw at a time."""

    @abc.abstractmethod
    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Draw an instance from the population U."""

    @abc.abstractmethod
    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round."""

    @abc.abstractmethod
    def mean_rewards(self, instance: Instance) -> Float[Array, " K"]:
        """Give the expected reward of every action."""

    @abc.abstractmethod
    def sample_rewards(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " K"]:
        """Draw the rewards of all K actions; whoever plays reveals one of them."""

    def advance(self, key: PRNGKeyArray, instance: Instance) -> Instance:
        """Give the instance as it is one round later; a world that stands still gives back what it was given."""
        del key
        return instance

    @abc.abstractmethod
    def latent_state(self, instance: Instance) -> Float[Array, " n"]:
        """Give the true latent state, for scores and for confounded logging."""

    @abc.abstractmethod
    def oracle(self) -> LatentModel:
        """Give the true model, where it is known."""

    @property
    def sizes(self) -> Sizes:
        """What the shapes of draws say, without drawing."""
        instance = jax.eval_shape(self.sample_instance, jr.key(0))
        latent = jax.eval_shape(self.latent_state, instance)
        context = jax.eval_shape(self.emit, jr.key(0), instance)
        rewards = jax.eval_shape(self.mean_rewards, instance)
        return Sizes(latent.shape[0], context.shape[0], rewards.shape[0])

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the numbers in a context; those without are recorded as x1 to xd."""
        return None

    @property
    def units(self) -> Units | None:
        """What confounded logging standardises by, where numbers are far from mean 0 and deviation 1."""
        return None

    def to_frame(self, logs: Logs) -> Any:
        """Write logs of this world as the table that a user would have, a pyarrow Table."""
        return logs.to_frame("pyarrow")


def follow(environment: AbstractEnvironment, key_rounds: PRNGKeyArray, instance: Instance, rounds: int) -> Instance:
    """Give the instance in every round, time first; where the world stands still, a single row stands for all."""

    def advance(state: Instance, t: Int[Array, ""]) -> tuple[Instance, Instance]:
        return environment.advance(Stream.DRIFT.of(round_key(key_rounds, t)), state), state

    moved, _ = advance(instance, jnp.asarray(0))
    if all(after is before for after, before in zip(jax.tree.leaves(moved), jax.tree.leaves(instance), strict=True)):
        return jax.tree.map(lambda leaf: leaf[None], instance)
    return jax.lax.scan(advance, instance, jnp.arange(rounds))[1]


def at_round(path: Instance, t: Int[Array, ""]) -> Instance:
    """Take one round out of what `follow` gave."""
    return jax.tree.map(lambda leaf: leaf[0 if len(leaf) == 1 else t], path)
