"""What every decision rule is: `init`, `decide`, `learn`, for one instance; batches are made by `vmap`.

Policies and their states are pytrees, so a refitted model runs in the program that was compiled for the one before it.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ilb.types import Choice, Step

State = Any
"""What a policy remembers of one instance: a small pytree of its own choice."""


class AbstractRewards(eqx.Module):
    """What is believed of the K expected rewards of an instance at one moment."""

    @abc.abstractmethod
    def mean(self) -> Float[Array, " K"]:
        """Give the expected values."""

    @abc.abstractmethod
    def std(self) -> Float[Array, " K"]:
        """Give the standard deviations."""

    @property
    @abc.abstractmethod
    def noise_size(self) -> int:
        """The number of standard normal numbers behind one draw."""

    @abc.abstractmethod
    def at(self, noise: Float[Array, " noise"]) -> Float[Array, " K"]:
        """Give the rewards at one point of the joint belief, as a function of standard normal noise."""

    def draw(self, key: PRNGKeyArray) -> Float[Array, " K"]:
        """Draw all K at once from the joint belief."""
        return self.at(jr.normal(key, (self.noise_size,)))


class AbstractPolicy(eqx.Module):
    """A decision rule for one instance."""

    @abc.abstractmethod
    def init(self) -> State:
        """Start an instance."""

    @abc.abstractmethod
    def decide(
        self, key: PRNGKeyArray, state: State, context: Float[Array, " d"], allowed: Bool[Array, " K"]
    ) -> tuple[State, Choice]:
        """Take in a context and choose one of the allowed actions."""

    @abc.abstractmethod
    def learn(self, state: State, step: Step) -> State:
        """Take in a reward: that of the last decision, or of an earlier one."""

    @abc.abstractmethod
    def rewards(self, state: State, context: Float[Array, " d"]) -> AbstractRewards:
        """Say what is believed of the rewards, after `decide` has taken the context in."""

    @abc.abstractmethod
    def propensities(
        self, key: PRNGKeyArray, state: State, context: Float[Array, " d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Give the probability of each action being chosen, after `decide` has taken the context in."""


def choose(values: Float[Array, " K"], allowed: Bool[Array, " K"]) -> Choice:
    """Take the allowed action with the largest value."""
    return Choice(jnp.argmax(jnp.where(allowed, values, -jnp.inf)), values)


def indicate(values: Float[Array, " K"], allowed: Bool[Array, " K"]) -> Float[Array, " K"]:
    """Mark the allowed action with the largest value by 1, all others by 0."""
    return jax.nn.one_hot(choose(values, allowed).action, values.shape[0])
