"""Named random streams: everything that is drawn from a seed has a stream of its own, so that no two draws share keys.

The numbers are part of every result: a new stream gets a new number, and none is ever changed.
"""

from __future__ import annotations

from enum import IntEnum

import jax.random as jr
from jaxtyping import PRNGKeyArray


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

    def key(self, seed: int) -> PRNGKeyArray:
        """Begin this stream for a seed.

        >>> bool((jr.key_data(Stream.WORLD.key(0)) != jr.key_data(Stream.FIT.key(0))).any())
        True
        """
        return self.of(jr.key(seed))

    def of(self, key: PRNGKeyArray) -> PRNGKeyArray:
        """Begin this stream for a key that other streams share."""
        return jr.fold_in(key, int(self))
