"""What chance alone would do: signs flipped by person, rows shuffled among people.

People are the independent units. Whatever is asked is turned into scores for each person that have mean zero if all is
well; then a score and its negative are equally likely, and flipping the signs of people at random shows what chance
does, whatever the distribution of the scores.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

FLIPS = 1999

ALARM = 0.005
"""The chance at which a check speaks up. There are a dozen of them: together they rarely cry wolf."""


def chance_of(scores: Float[np.ndarray, "I q"], rng: np.random.Generator, *, above: bool = False) -> float:
    """Give the chance of means so far from zero, if flipping the signs of all scores of a person changes nothing.

    The statistic is the sum of squared t-values (over their root mean square) of the columns; with `above`, of one
    column, it is the mean itself.

    >>> rng = np.random.default_rng(0)
    >>> chance_of(rng.normal(size=(50, 3)) + [0, 0, 1], rng) < 0.001
    True
    """
    scores = scores[np.any(scores != 0, axis=1)]
    size = np.sqrt(np.mean(scores**2, axis=0)) if len(scores) else np.zeros(scores.shape[1])
    scores = scores[:, size > 1e-12] / size[size > 1e-12]
    if len(scores) < 2 or not scores.shape[1]:
        return 1.0
    signs = rng.integers(2, size=(FLIPS, len(scores)), dtype=np.int8) * 2.0 - 1.0
    seen, flipped = scores.sum(axis=0), signs @ scores
    if above:
        return float((1 + np.sum(flipped[:, 0] >= seen[0] - 1e-9)) / (1 + FLIPS))
    return float((1 + np.sum(np.sum(flipped**2, axis=1) >= np.sum(seen**2) - 1e-9)) / (1 + FLIPS))


def shown_chance(chance: float) -> str:
    """Write a chance.

    >>> shown_chance(0.0005), shown_chance(0.2134)
    ('p < 0.001', 'p = 0.213')
    """
    return "p < 0.001" if chance < 0.001 else f"p = {chance:.3f}"
