"""Affine maps to numbers around zero of about one, in which networks learn; they are folded into them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32
from scipy.linalg import eigh

from ilb.logs import Logs
from ilb.networks import Affine, scale_columns
from ilb.types import as_float32

VARIANCE_FLOOR = 1e-3
"""Directions (of columns scaled to variance 1) with less than this share of the largest variance are not blown up to
variance 1: rare categories and collinear columns would otherwise turn into outliers or amplified rounding errors."""


ROUNDING = float(np.finfo(np.float32).eps)
"""A context column that varies by no more than this share of its mean is constant but for the rounding of float32."""


def measure_columns(rows: Float[np.ndarray, "rows d"], rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """Give the mean of each column and its standard deviation; that of a constant is infinite, so it scales to zero."""
    mean, std = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    return mean, np.where(std > rounding * np.abs(mean), std, np.inf)


MOST_AXES = 256
"""Of more columns than this, only so many principal axes are whitened: networks need no more, and time would grow with
the third power of the columns."""


def correlation_axes(
    rows: Float[np.ndarray, "rows d"], scale: Float[np.ndarray, " d"], most: int
) -> tuple[Float[np.ndarray, " axes"], Float[np.ndarray, "d axes"]]:
    """Give the variances along the principal axes of the columns divided by `scale`, ascending, and the axes.

    Of more than `most` columns these are the `most` widest axes; where rows are too few to show so many, the others
    are zero.
    """
    count, width = rows.shape
    if width <= most or count >= width:
        correlation = np.atleast_2d(np.cov(rows, rowvar=False, bias=True)) / np.outer(scale, scale)
        if width <= most:
            variances, directions = np.linalg.eigh(correlation)
            return variances, directions
        variances, directions = eigh(correlation, subset_by_index=[width - most, width - 1])
        return variances, directions
    # A table wider than it is long: as many axes as rows at most, and no square of the columns.
    centred = (rows - rows.mean(axis=0, dtype=np.float64)) / scale / np.sqrt(count)
    values, axes = np.linalg.svd(centred, full_matrices=False)[1:]
    found = min(most, len(values))
    variances, directions = np.zeros(most), np.zeros((width, most))
    variances[most - found :], directions[:, most - found :] = values[:found][::-1] ** 2, axes[:found][::-1].T
    return variances, directions


FLAT = 1e-6
"""Directions with less variance than this, where columns have variance one, never vary, but for rounding."""


def standardise(contexts: Float[np.ndarray, "rows d"]) -> Affine:
    """Find the map that gives each column mean zero and variance one, and that leaves nothing where rows never are.

    Some directions never vary: indicators of a category sum to one, a column is another one in other units. No row says
    what it would mean to leave these for elsewhere, so whoever does, by a category that nobody had, is taken for the
    nearest that rows may be. Rows like those of the logs are their own nearest. Of more than `MOST_AXES` columns such
    directions are not looked for.

    >>> sex = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> scaled = standardise(sex)
    >>> (np.array([[1.0, 0.0], [0.0, 0.0]]) @ np.asarray(scaled.matrix) + np.asarray(scaled.shift)).round(2).tolist()
    [[1.0, -1.0], [0.0, 0.0]]
    """
    mean, scale = measure_columns(contexts, ROUNDING)
    matrix = np.diag(1 / scale)
    if contexts.shape[1] <= MOST_AXES:
        variances, axes = correlation_axes(contexts, scale, MOST_AXES)
        varying = axes[:, variances > FLAT]
        if varying.shape[1] < np.isfinite(scale).sum():
            matrix = matrix @ varying @ varying.T * np.isfinite(scale)  # a constant stays one, without rounding
    return Affine(as_float32(matrix), as_float32(-mean @ matrix))


def fit_whitening(contexts: Float[np.ndarray, "rows d"]) -> Affine:
    """Find the map that gives the rows mean zero and (where there is variance) unit covariance.

    Of more than `MOST_AXES` columns, it maps to the widest principal axes.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3)) * [1.0, 5.0, 0.2] + 7.0
    >>> whitening = fit_whitening(rows)
    >>> whitened = rows @ np.asarray(whitening.matrix) + np.asarray(whitening.shift)
    >>> bool(np.allclose(np.cov(whitened.T), np.eye(3), atol=0.01))
    True
    """
    mean, scale = measure_columns(contexts, ROUNDING)
    variances, directions = correlation_axes(contexts, scale, MOST_AXES)
    # What never varied says nothing; blown up, a category that nobody had would be far from everybody.
    directions = np.where(variances > FLAT, directions, 0.0)
    matrix = directions / np.sqrt(np.maximum(variances, VARIANCE_FLOOR * max(variances[-1], 1.0))) / scale[:, None]
    return Affine(as_float32(matrix), as_float32(-mean @ matrix))


def apply_scaling(scaling: Affine, logs: Logs) -> Float32[np.ndarray, "rows d"]:
    """Scale the contexts of logs, outside of any compiled program."""
    return np.asarray(logs.context @ np.asarray(scaling.matrix) + np.asarray(scaling.shift), dtype=np.float32)


class Units(NamedTuple):
    """The units a network of rewards is trained in: scaled inputs, and rewards less their centre, by their spread."""

    inputs: Affine
    centre: float
    spread: float

    def rewards(self, actions: int) -> Affine:
        """Give the map from standardised rewards back to those of the table."""
        identity = np.eye(actions, dtype=np.float32)
        return Affine(jnp.asarray(self.spread * identity), jnp.full(actions, self.centre, jnp.float32))


@runtime_checkable
class Scaling(Protocol):
    """A frozen dataclass that finds the affine map to apply to contexts first."""

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        """Find the map on these rows."""
        ...


@dataclass(frozen=True)
class Whitened:
    """Mean zero and unit covariance: `fit_whitening`."""

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        return fit_whitening(contexts)


@dataclass(frozen=True)
class Standardised:
    """Mean zero and variance one, column by column; correlated columns keep the weight that they have together.

    In directions that never vary it says nothing: `standardise`.
    """

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        return standardise(contexts)


@dataclass(frozen=True)
class WidestAxes:
    """Standardised columns; of more than `most`, their widest principal axes."""

    most: int = 16

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        if contexts.shape[1] <= self.most:
            return standardise(contexts)
        mean, scale = measure_columns(contexts, ROUNDING)
        variances, axes = correlation_axes(contexts, scale, max(self.most, MOST_AXES))
        # As many coordinates whoever is fitted on; those that never vary are zero.
        varying = np.where(variances > FLAT * variances.max(), axes, 0.0)
        matrix = varying[:, : -self.most - 1 : -1] / scale[:, None]
        return Affine(as_float32(matrix), as_float32(-mean @ matrix))


@dataclass(frozen=True)
class MinMax:
    """From zero to one, column by column, as the released code treats ADCB: a rare category stays rare.

    Columns have less variance than one then, and the likelihood's deviation should be smaller as well.
    """

    def fit(self, contexts: Float[np.ndarray, "rows d"]) -> Affine:
        low, high = contexts.min(axis=0).astype(np.float64), contexts.max(axis=0).astype(np.float64)
        span = np.where(high > low, high - low, np.inf)
        return scale_columns(low, span)
