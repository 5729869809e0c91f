"""Named random streams: everything that is drawn from a seed has a stream of its own, so that no two draws share keys.

The numbers are part of every result: a new stream gets a new number, and none is ever changed.

Beside streams, a number is folded into a key only to count: instances, rounds, steps, perturbations.
"""

from __future__ import annotations

from enum import IntEnum

import jax.random as jr
from jaxtyping import ArrayLike, PRNGKeyArray

from ilb.seeds import as_seed


class Stream(IntEnum):
    """What a seed is used for."""

    WORLD = 0
    LOGGING = 1
    TRAINING_LOGS = 2
    TEST_LOGS = 3
    PERTURBATION = 4
    PLAYING = 5
    THEORY = 7
    DEMO = 99
    REWARDS = 1 << 20
    """Of a fit: encoder recipes split the key of the fit, which uses up the small numbers."""
    FIT = 1 << 21
    """Worlds and fits often share a seed, and a network must not start from the numbers its world was drawn with."""
    DRIFT = 1 << 22
    """Of a round: its key is split for the context and the rewards, which uses up the small numbers."""
    OWN_EFFECTS = 1 << 23
    """Of an instance: what sets its rewards apart from those of the world that it is drawn from."""

    def key(self, seed: int) -> PRNGKeyArray:
        """Begin this stream for a seed.

        >>> bool((jr.key_data(Stream.WORLD.key(0)) != jr.key_data(Stream.FIT.key(0))).any())
        True
        """
        return self.of(jr.key(as_seed(seed)))

    def of(self, key: PRNGKeyArray) -> PRNGKeyArray:
        """Begin this stream for a key that other streams share."""
        return jr.fold_in(key, int(self))


def bare_key(seed: int) -> PRNGKeyArray:
    """Give the key of the seed itself, which no stream has: for a sample that nothing else is drawn beside."""
    return jr.key(as_seed(seed))


def instance_keys(key: PRNGKeyArray, number: ArrayLike) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Give two keys of instance `number`, who it is and what happens to it in its rounds; nothing else changes them."""
    key_instance, key_rounds = jr.split(jr.fold_in(key, number))
    return key_instance, key_rounds


def round_key(key_rounds: PRNGKeyArray, t: ArrayLike) -> PRNGKeyArray:
    """Give the key of round t of an instance, for whoever draws there to split."""
    return jr.fold_in(key_rounds, t)
