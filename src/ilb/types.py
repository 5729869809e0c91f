"""The small nouns that everything shares: encoders, reward models, and what happens in a round."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

Context = Float[Array, " d"]
"""One context."""

Values = Float[Array, " K"]
"""A number for each action."""

Allowed = Bool[Array, " K"]
"""Which actions may be chosen."""


@runtime_checkable
class Encoder(Protocol):
    """f: one context to one encoding."""

    def __call__(self, context: Float[Array, " d"], /) -> Float[Array, " n"]:
        """Encode one context."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """mu: one latent state to the expected reward of every action."""

    def __call__(self, z: Float[Array, " n"], /) -> Float[Array, " K"]:
        """Give the K expected rewards."""
        ...


class Step(NamedTuple):
    """One round, and one row of the logs: the same noun.

    `time` counts the rounds of the instance from 0, for beliefs about a state that moves: rewards may come late.
    """

    context: Float[Array, " d"]
    action: Int[Array, ""]
    reward: Float[Array, ""]
    time: Int[Array, ""] | None = None


class Choice(NamedTuple):
    """The action a policy takes, and the K values of which it is the largest."""

    action: Int[Array, ""]
    values: Float[Array, " K"]


@runtime_checkable
class Report(Protocol):
    """Called as long work goes on: after a chunk of training steps, or of instances played."""

    def __call__(self, done: int, total: int, value: float, /) -> None:
        """Show that `done` of `total` is done, and what it comes to so far (a loss, a regret)."""
        ...


def silent(done: int, total: int, value: float) -> None:
    """Report nothing."""


def as_float32(numbers: Any) -> Float[Array, "..."]:
    """Make an array of numbers that NumPy has; to convert them, JAX would compile a program for each shape."""
    return jnp.asarray(np.asarray(numbers, np.float32), np.float32)


def as_real(numbers: Any) -> Float[Array, "..."]:
    """Make an array of the usual type, also from integers: equal worlds and policies then share their compilations."""
    if not isinstance(numbers, Array):
        numbers = np.asarray(numbers, jnp.result_type(float))  # by JAX, a program would be compiled for each shape
    return jnp.asarray(numbers, float)
