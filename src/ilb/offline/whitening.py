"""PCA whitening of contexts, fitted on the training rows (the first step of the encoder)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ilb.networks import Affine

VARIANCE_FLOOR = 1e-3
"""Directions (of columns scaled to variance 1) with less than this share of the largest variance are not blown up to
variance 1: rare categories and collinear columns would otherwise turn into outliers or amplified rounding errors."""


def fit_whitening(contexts: Float[np.ndarray, "rows d"]) -> Affine:
    """Find the map that gives the rows mean zero and (where there is variance) unit covariance.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3)) * [1.0, 5.0, 0.2] + 7.0
    >>> whitened = np.asarray(rows @ fit_whitening(rows).matrix + fit_whitening(rows).shift)
    >>> bool(np.allclose(np.cov(whitened.T), np.eye(3), atol=0.01))
    True
    """
    mean, std = contexts.mean(axis=0, dtype=np.float64), contexts.std(axis=0, dtype=np.float64)
    # A column that varies by no more than the rounding of float32 is constant, and is left out.
    scale = np.where(std > np.finfo(np.float32).eps * np.abs(mean), std, np.inf)
    correlation = np.atleast_2d(np.cov(contexts, rowvar=False, bias=True)) / np.outer(scale, scale)
    variances, directions = np.linalg.eigh(correlation)
    matrix = directions / np.sqrt(np.maximum(variances, VARIANCE_FLOOR * max(variances[-1], 1.0))) / scale[:, None]
    return Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(-mean @ matrix, jnp.float32))
