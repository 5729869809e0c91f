"""What is done to contexts before an encoder learns: an affine map, fitted on the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float

from ilb.networks import Affine, scale_columns
from ilb.offline.whitening import fit_whitening


class Scaling(Protocol):
    """A frozen dataclass that finds the affine map to apply to contexts first."""

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        """Find the map on these rows."""
        ...


@dataclass(frozen=True)
class Whitened:
    """Mean zero and unit covariance: `fit_whitening`."""

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        """Find the map on these rows."""
        return fit_whitening(contexts)


@dataclass(frozen=True)
class Standardised:
    """Mean zero and variance one, column by column; correlated columns keep the weight that they have together."""

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        """Find the map on these rows; a constant column becomes zero."""
        mean, std = contexts.mean(axis=0, dtype=np.float64), contexts.std(axis=0, dtype=np.float64)
        scale = np.where(std > np.finfo(np.float32).eps * np.abs(mean), std, np.inf)
        return scale_columns(mean, scale)


@dataclass(frozen=True)
class MinMax:
    """From zero to one, column by column, as the released code treats ADCB: a rare category stays rare.

    Columns have less variance than one then, and the likelihood's deviation should be smaller as well.
    """

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        """Find the map on these rows; a constant column becomes zero."""
        low, high = contexts.min(axis=0).astype(np.float64), contexts.max(axis=0).astype(np.float64)
        span = np.where(high > low, high - low, np.inf)
        return scale_columns(low, span)
