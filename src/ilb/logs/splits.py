"""Which instances, or which rows, go into which part of a split."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int64

from ilb.errors import LogsError


def instance_parts(instances: int, fractions: Sequence[float], seed: int) -> list[Int64[np.ndarray, " part"]]:
    """Disjoint random sets of instances, one for each fraction, none empty; each in the order of the logs.

    >>> [len(part) for part in instance_parts(10, (0.8, 0.1, 0.1), seed=0)]
    [8, 1, 1]
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.ndim != 1 or len(shares) == 0 or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise LogsError(f"fractions are {fractions!r}; expected positive numbers with sum 1, such as (0.8, 0.1, 0.1).")
    if instances < len(shares):
        raise LogsError(
            f"can't split {instances} instances into {len(shares)} parts, each with at least one. "
            "Use fewer parts, or add instances."
        )
    sizes = np.maximum(1, np.diff(np.round(np.cumsum([0.0, *shares]) * instances)).astype(np.int64))
    while sizes.sum() > instances:
        sizes[sizes.argmax()] -= 1
    shuffled = np.random.default_rng(seed).permutation(instances)
    return [np.sort(part) for part in np.split(shuffled, np.cumsum(sizes)[:-1])]


def earlier_rows(lengths: Int64[np.ndarray, " I"], fraction: float) -> Bool[np.ndarray, " N"]:
    """The rows in the earlier part: about this fraction of each history, with at least one row on each side if two.

    >>> earlier_rows(np.array([4, 1, 2]), 0.9).astype(int)
    array([1, 1, 1, 0, 1, 1, 0])
    """
    if not 0 < fraction < 1:
        raise LogsError(f"fraction is {fraction!r}; expected a number between 0 and 1, such as 0.8.")
    if not (lengths >= 2).any():
        raise LogsError(
            f"none of the {len(lengths)} instances has 2 rows or more, so time can't split them. "
            "Split by instance instead: split_instances."
        )
    early = np.clip(np.round(lengths * fraction), 1, np.maximum(lengths - 1, 1)).astype(np.int64)
    position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    early_row: Bool[np.ndarray, " N"] = position < np.repeat(early, lengths)
    return early_row
