"""Instances held out of training, to stop by or to keep the best parameters."""

from __future__ import annotations

import jax.random as jr
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from ilb.logs import Logs


def draw_held_out(key: PRNGKeyArray, instances: int, number: int) -> Bool[np.ndarray, " I"]:
    """Mark so many instances, any with the same chance.

    >>> int(draw_held_out(jr.key(0), 10, 3).sum())
    3
    """
    held = np.zeros(instances, dtype=bool)
    held[np.asarray(jr.permutation(key, instances))[:number]] = True
    return held


def hold_out(key: PRNGKeyArray, logs: Logs, number: int) -> tuple[Logs, Logs]:
    """Split logs by instance into those to train on and so many others."""
    held = draw_held_out(key, logs.instances, number)
    return logs.select(np.flatnonzero(~held)), logs.select(np.flatnonzero(held))
