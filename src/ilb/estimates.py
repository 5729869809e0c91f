"""Estimate: a number with its standard error and what it rests on; the one summary that all tables share."""

from __future__ import annotations

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
