"""Standard errors and intervals by drawing people again: they are independent, their rows are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

from ilb.estimates import Estimate, IntervalEstimate

Statistic: TypeAlias = Callable[[Float[np.ndarray, "draws people"]], Float[np.ndarray, " draws"]]
"""A number of people who are counted so often: a row of counts for each draw, a number for each row."""

DRAWS, CELLS = 2000, 20_000_000
"""Draws of people, and the most counts that are kept: with very many people fewer draws say as much."""


class Resampling:
    """The same draws of people for every statistic, so that differences of two are paired."""

    def __init__(self, people: int, seed: int) -> None:
        self.people = people
        draws = int(np.clip(CELLS // people, 200, DRAWS))
        rng = np.random.default_rng([seed, 1])
        self._everyone = np.ones((1, people))
        self._counts = rng.multinomial(people, np.full(people, 1 / people), size=draws).astype(np.float32)

    def estimate(self, statistic: Statistic, level: float = 0.95) -> IntervalEstimate:
        """Give a statistic with its standard error and its interval.

        The interval goes from one percentile of the draws to another, wider for few people as Student's is.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            value, drawn = float(statistic(self._everyone)[0]), statistic(self._counts)
        drawn = drawn[np.isfinite(drawn)]
        if self.people < 2 or len(drawn) < 100 or not np.isfinite(value):
            return IntervalEstimate(Estimate(value, np.nan, self.people), -np.inf, np.inf, level)
        shrunk = self.people / (self.people - 1)
        wider = ndtr(stdtrit(self.people - 1, (1 - level) / 2) * np.sqrt(shrunk))
        low, high = np.quantile(drawn, [wider, 1 - wider])
        error = float(drawn.std(ddof=1) * np.sqrt(shrunk))
        return IntervalEstimate(Estimate(value, error, self.people), float(low), float(high), level)


def mean_of(values: Float[np.ndarray, " people"]) -> Statistic:
    """Average a number over people."""
    return lambda counts: counts @ values / counts.sum(axis=1)


def difference(first: Statistic, second: Statistic) -> Statistic:
    """Subtract one statistic of the same people from another."""
    return lambda counts: first(counts) - second(counts)
