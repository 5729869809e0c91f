"""Encodings of logged contexts, and what their scatter says of the latent states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from ilb.models.latent import canonical_basis
from ilb.networks import encode_rows, padded_size
from ilb.types import Encoder

CHUNK = 1 << 16
"""Rows encoded by one compiled call: large enough to be fast, small enough to need little memory."""

PRIOR_FREEDOM = 10
"""Weight, in degrees of freedom, of the guess that encodings vary within unseen people as within seen ones."""

MOST_MOVING = 0.95
"""The largest share of the variance of encodings within people that can be change: some is noise."""


def encode_contexts(encoder: Encoder, contexts: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows n"]:
    """Encode any number of contexts in chunks; short tables are padded, so that few sizes are ever compiled."""
    pieces = []
    for first in range(0, max(len(contexts), 1), CHUNK):
        piece = contexts[first : first + CHUNK]
        padded = np.pad(piece, ((0, min(CHUNK, padded_size(len(piece))) - len(piece)), (0, 0)))
        pieces.append(np.asarray(encode_rows(encoder, jax.device_put(padded)))[: len(piece)])
    return np.concatenate(pieces)


def instance_means(values: Float[np.ndarray, "rows n"], starts: Int[np.ndarray, " starts"]) -> Float[np.ndarray, "I n"]:
    r"""Average over the rows of each instance: $\bar z_i$ of Section "Identifiability of reward model"."""
    sums = np.add.reduceat(values.astype(np.float64), starts[:-1], axis=0)
    return np.asarray(sums / np.diff(starts)[:, None])


class Scatter(NamedTuple):
    """Within-instance covariance W of encodings, and mean and covariance of the latent states behind them.

    `moving_covariance` is the part of W by which encodings of successive rows vary together.
    """

    encoding_covariance: Float[np.ndarray, "n n"]
    population_mean: Float[np.ndarray, " n"]
    population_covariance: Float[np.ndarray, "n n"]
    moving_covariance: Float[np.ndarray, "n n"]


def measure_scatter(
    encodings: Float[np.ndarray, "rows n"],
    starts: Int[np.ndarray, " starts"],
    inflation: float | Sequence[float] = 1.0,
) -> Scatter:
    r"""Split the scatter of encodings into noise and population (one-way analysis of variance).

    The means $\bar z_i$ scatter by $S + W / T_i$; the second term is taken off, and what is left is kept positive
    semi-definite (in the metric of W, so that the result does not depend on the latent basis).

    An encoder that knows these people by heart draws the rows of each together, and people apart: within others
    encodings vary `inflation` times as much (of each coordinate, if there are many). The sum S + W is that of anybody's
    encodings, so what W gains S loses.
    """
    if not encodings.shape[1]:
        return Scatter(np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))
    lengths = np.diff(starts)
    means = instance_means(encodings, starts)
    residuals = encodings - np.repeat(means, lengths, axis=0)
    freedom = max(int(lengths.sum()) - len(lengths), 1)
    within = residuals.T @ residuals / freedom
    # A latent direction without any noise would make W singular and its inverse meaningless. What is added is small in
    # the units of each coordinate, for these may differ by orders of magnitude.
    units = np.maximum(np.diag(within), 1e-6 * encodings.var(axis=0, dtype=np.float64))
    # A coordinate that never varies but by rounding, such as a category that only other people have, has no units to be
    # small in.
    rounding = max(1e-24 * units.max(), np.finfo(np.float32).tiny)
    within += 1e-5 * np.diag(np.where(units > rounding, units, 1.0))
    between = np.atleast_2d(np.cov(means, rowvar=False)) - within * np.mean(1 / lengths)
    wider = np.sqrt(np.broadcast_to(inflation, len(within)))
    learned, within = within, within * np.outer(wider, wider)
    between -= within - learned
    variances, _, back = canonical_basis(within, between)
    moving = _moving(residuals, starts, learned) * np.outer(wider, wider)
    return Scatter(within, means.mean(axis=0), back * np.maximum(variances, 1e-6) @ back.T, moving)


def _moving(
    residuals: Float[np.ndarray, "rows n"], starts: Int[np.ndarray, " starts"], within: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, "n n"]:
    """Take off the covariance within people what a row differs by from the next: noise without what moves slowly.

    No direction has negative variance, nor all of it (in the metric of `within`).
    """
    steps = np.delete(np.diff(residuals, axis=0), starts[1:-1] - 1, axis=0)
    if not len(steps):
        return np.zeros_like(within)
    # Not from `within` itself, which is a little more than residuals show: that is no change.
    slowly = (residuals.T @ residuals - steps.T @ steps / 2) / len(steps)
    shares, _, back = canonical_basis(within, slowly)
    return np.asarray(back * np.clip(shares, 0.0, MOST_MOVING) @ back.T)


class Unseen(NamedTuple):
    """How many times wider encodings vary within people the training has not seen, and what that rests on."""

    ratio: float
    freedom: int

    @classmethod
    def measure(
        cls, encodings: Float[np.ndarray, "rows n"], starts: Int[np.ndarray, " starts"], unseen: Bool[np.ndarray, " I"]
    ) -> Unseen:
        """Compare the covariance within unseen people with that within all, in the metric of the latter."""
        lengths = np.diff(starts)
        residuals = encodings - np.repeat(instance_means(encodings, starts), lengths, axis=0)
        theirs = residuals[np.repeat(unseen, lengths)]
        freedom = len(theirs) - int(unseen.sum())
        if not freedom:
            return cls(1.0, 0)
        # Directions that (nearly) never vary within a person would decide alone how many times wider.
        floor = 1e-3 * np.atleast_2d(np.cov(encodings, rowvar=False))
        everyones = residuals.T @ residuals / (len(residuals) - len(lengths)) + floor
        ratios = np.linalg.pinv(everyones, hermitian=True) @ (theirs.T @ theirs / freedom + floor)
        return cls(float(np.trace(ratios)) / max(int(np.linalg.matrix_rank(everyones, hermitian=True)), 1), freedom)

    @staticmethod
    def pooled(parts: Sequence[Unseen], dim: int) -> float:
        """Average over trainings that left out other people; with few degrees of freedom it stays closer to 1."""
        freedom = sum(part.freedom for part in parts)
        excess = sum(part.freedom * (part.ratio - 1) for part in parts)
        return 1 + max(excess, 0.0) / (freedom + PRIOR_FREEDOM / dim)
