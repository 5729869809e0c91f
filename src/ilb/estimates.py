"""Estimate: a number with its standard error and what it rests on; the one summary that all tables share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


def standard_error(values: Float[np.ndarray, "units ..."]) -> Float[np.ndarray, "..."]:
    """Give the standard error of the mean over the first axis; a single unit leaves it unknown (NaN)."""
    if len(values) < 2:
        return np.full(np.shape(values)[1:], np.nan)
    return np.asarray(np.std(values, axis=0, ddof=1, dtype=np.float64) / np.sqrt(len(values)))


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error, and how many independent units (instances, worlds, fits) it rests on.

    `median` is there where a few units can carry the mean, as with regret.
    """

    value: float
    standard_error: float
    count: int
    median: float | None = None

    @classmethod
    def of(cls, values: Float[np.ndarray, " units"], *, median: bool = False) -> Estimate:
        """Take the mean of independent values.

        >>> print(Estimate.of(np.array([1.0, 2.0, 3.0])))
        2.000 ± 0.577
        """
        middle = float(np.median(values)) if median else None
        return cls(float(np.mean(values, dtype=np.float64)), float(standard_error(values)), len(values), middle)

    def text(self, digits: int = 3, factor: float = 1.0) -> str:
        """Write it with so many digits, times `factor`; an unknown number is a dash, an unknown error is left out."""
        if not np.isfinite(self.value):
            return "-"
        error = f" ± {factor * self.standard_error:.{digits}f}" if np.isfinite(self.standard_error) else ""
        middle = "" if self.median is None else f" (median {factor * self.median:.{digits}f})"
        return f"{factor * self.value:.{digits}f}{error}{middle}"

    def __str__(self) -> str:
        return self.text(1 if self.median is not None else 3)


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate with the interval that holds the truth in a share `level` of repetitions."""

    estimate: Estimate
    low: float
    high: float
    level: float = 0.95

    @property
    def value(self) -> float:
        return self.estimate.value

    @property
    def standard_error(self) -> float:
        return self.estimate.standard_error

    def holds(self, number: float) -> bool:
        """Say whether the interval holds a number."""
        return self.low <= number <= self.high

    def text(self, digits: int = 3, sign: bool = False) -> str:
        """Write it with its interval.

        >>> IntervalEstimate(Estimate(0.5, 0.1, 20), 0.3, 0.7).text(2, sign=True)
        '+0.50 (+0.30 to +0.70)'
        """
        style = f"{'+' if sign else ''}.{digits}f"
        return f"{self.value:{style}} ({self.low:{style}} to {self.high:{style}})"


def jackknife(statistic: Callable[[np.ndarray], float], instances: int) -> Estimate:
    """Compute `statistic(index of instances)` and its standard error by leaving out one instance at a time."""
    everyone = np.arange(instances)
    left_out = [statistic(np.delete(everyone, number)) for number in everyone] if instances > 1 else [np.nan]
    return Estimate(float(statistic(everyone)), _spread(np.array(left_out)), instances)


def jackknife_sums(statistic: Callable[[np.ndarray], np.ndarray], sums: Float[np.ndarray, "I m"]) -> Estimate:
    """Do the same for a statistic of sums over instances, `[..., m] -> [...]`: leaving one out is a subtraction."""
    total = sums.sum(axis=0)
    left_out = statistic(total - sums) if len(sums) > 1 else np.full(1, np.nan)
    return Estimate(float(statistic(total)), _spread(left_out), len(sums))


def _spread(left_out: Float[np.ndarray, " I"]) -> float:
    instances = len(left_out)
    return float(np.sqrt(np.sum((left_out - left_out.mean()) ** 2) * (instances - 1) / instances))


def r_squared(
    estimate: Float[np.ndarray, " values"], target: Float[np.ndarray, " values"], instance: np.ndarray
) -> Estimate:
    """Share of the variance of `target` that `estimate` explains, over all values of all instances."""
    _, group = np.unique(instance, return_inverse=True)
    # Sums for each instance are enough, so leaving one out is a subtraction; centring keeps them well-conditioned.
    centred, error = target - target.mean(), target - estimate
    sums = [np.bincount(group, weights=w) for w in (np.ones_like(centred), centred, centred**2, error**2)]

    def statistic(sums: np.ndarray) -> np.ndarray:
        count, total, squares, errors = np.moveaxis(sums, -1, 0)
        variation = squares - total**2 / count
        return np.asarray(1 - errors / np.where(variation > 1e-12 * squares, variation, np.nan))

    return jackknife_sums(statistic, np.stack(sums, axis=1))
