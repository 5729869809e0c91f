"""AbstractEnvironment: the structural causal model as conditional distributions, written for one instance."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.models.latent import LatentModel
from ilb.streams import Stream

Instance = Any
"""What an environment knows of one instance: a pytree of its own choice, such as the latent state."""


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


def follow(environment: AbstractEnvironment, key: PRNGKeyArray, instance: Instance, rounds: int) -> Instance:
    """Give the instance in every round, time first; where the world stands still, a single row stands for all.

    `key` is that of the rounds of the instance, folded with t to give the key of round t.
    """

    def advance(state: Instance, t: Int[Array, ""]) -> tuple[Instance, Instance]:
        return environment.advance(Stream.DRIFT.of(jr.fold_in(key, t)), state), state

    moved, _ = advance(instance, jnp.asarray(0))
    if all(after is before for after, before in zip(jax.tree.leaves(moved), jax.tree.leaves(instance), strict=True)):
        return jax.tree.map(lambda leaf: leaf[None], instance)
    return jax.lax.scan(advance, instance, jnp.arange(rounds))[1]


def at_round(path: Instance, t: Int[Array, ""]) -> Instance:
    """Take one round out of what `follow` gave."""
    return jax.tree.map(lambda leaf: leaf[0 if len(leaf) == 1 else t], path)
