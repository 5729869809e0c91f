r"""One linear reward model for each action, by least squares on mean encodings (Alg. 1, offline line 2; thm:reward).

Rows of one instance with the same action share their mean encoding, so all sums are over *cells* (instance, action).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ilb.errors import FitError, RareActionWarning
from ilb.logs import Logs
from ilb.model import LinearReward

RARE_FACTOR = 5
"""An action with fewer rewards than this times its coefficients, or seen in fewer instances than twice its
coefficients, is rare: it borrows strength from the other actions."""

PRIOR_ROWS = 10
"""Weight, in rows, of the pooled reward variance in the variance of one action."""


class Cells(NamedTuple):
    """Rewards by (instance, action): how many, their mean, and their squared deviations from it."""

    instance: Int[np.ndarray, " cells"]
    action: Int[np.ndarray, " cells"]
    rows: Int[np.ndarray, " cells"]
    mean: Float[np.ndarray, " cells"]
    deviation: Float[np.ndarray, " cells"]


def reward_cells(logs: Logs) -> Cells:
    """Sum the logged rewards by instance and action; rows without an action or a reward are left out."""
    seen = (logs.action >= 0) & np.isfinite(logs.reward)
    if not np.any(seen):
        raise FitError(
            f"no row has both an action (column {logs.schema.action!r}) and a reward (column {logs.schema.reward!r}), "
            "so no reward model can be learned. Check the names of the columns."
        )
    code = logs.instance[seen].astype(np.int64) * logs.actions + logs.action[seen]
    cells, index, count = np.unique(code, return_inverse=True, return_counts=True)
    reward = logs.reward[seen].astype(np.float64)
    mean = np.bincount(index, weights=reward) / count
    deviation = np.bincount(index, weights=(reward - mean[index]) ** 2)
    return Cells(cells // logs.actions, cells % logs.actions, count, mean, deviation)


class RewardFit(NamedTuple):
    """The reward model and the variances around it."""

    reward: LinearReward
    reward_variance: Float[np.ndarray, " K"]
    leftover_variance: float


def fit_linear_reward(
    mean_encodings: Float[np.ndarray, "I n"],
    cells: Cells,
    labels: Sequence[Any],
    encoding_covariance: Float[np.ndarray, "n n"] | None = None,
    lengths: Int[np.ndarray, " I"] | None = None,
) -> RewardFit:
    """Regress the rewards of each action on mean encodings, with an intercept; shrink and warn where an action is rare.

    A mean encoding of `lengths[i]` rows has sampling covariance `encoding_covariance` / T_i; the part of the residuals
    that this explains is not counted as leftover variance. Left out, mean encodings are taken as exact.
    """
    actions, dim = len(labels), mean_encodings.shape[1]
    features = np.concatenate([mean_encodings, np.ones((len(mean_encodings), 1))], axis=1)[cells.instance]
    groups = [np.flatnonzero(cells.action == a) for a in range(actions)]
    totals = np.array([cells.rows[g].sum() for g in groups])
    rare = (totals < RARE_FACTOR * (dim + 1)) | (np.array([len(g) for g in groups]) < 2 * (dim + 1))
    variance = _reward_variance(cells, groups)

    grams = np.stack([(features[g] * cells.rows[g, None]).T @ features[g] for g in groups])
    moments = np.stack([features[g].T @ (cells.rows[g] * cells.mean[g]) for g in groups])
    coefficients = np.zeros((actions, dim + 1))
    for common in np.flatnonzero(~rare):
        coefficients[common] = np.linalg.lstsq(grams[common], moments[common], rcond=None)[0]
    prior_mean, prior_covariance = _prior(coefficients[~rare], cells, features)
    prior_precision = np.linalg.inv(prior_covariance)
    if np.any(rare):
        _warn_rare(labels, totals, rare, dim)
    for scarce in np.flatnonzero(rare):
        precision = prior_precision + grams[scarce] / variance[scarce]
        moment = prior_precision @ prior_mean + moments[scarce] / variance[scarce]
        coefficients[scarce] = np.linalg.solve(precision, moment)

    blur = np.zeros(len(cells.rows))
    if encoding_covariance is not None and lengths is not None:
        theta = coefficients[:, :dim]
        blur = np.einsum("ai,ij,aj->a", theta, encoding_covariance, theta)[cells.action] / lengths[cells.instance]
    residual = cells.mean - np.sum(features * coefficients[cells.action], axis=1)
    leftover = _leftover_variance(cells, residual, variance, blur, parameters=int((~rare).sum()) * (dim + 1))

    covariance = np.zeros((actions, dim + 1, dim + 1))
    for a, g in enumerate(groups):
        if rare[a]:
            covariance[a] = np.linalg.inv(prior_precision + grams[a] / variance[a])
        else:
            inverse = np.linalg.pinv(grams[a])
            spread = cells.rows[g] * variance[a] + cells.rows[g] ** 2 * (leftover + blur[g])
            covariance[a] = inverse @ ((features[g] * spread[:, None]).T @ features[g]) @ inverse
    reward = LinearReward(
        jnp.asarray(coefficients[:, :dim], jnp.float32),
        jnp.asarray(coefficients[:, dim], jnp.float32),
        jnp.asarray(covariance, jnp.float32),
    )
    return RewardFit(reward, variance, leftover)


def _reward_variance(cells: Cells, groups: Sequence[np.ndarray]) -> Float[np.ndarray, " K"]:
    """Pool deviations within cells, which no error of the model can touch; actions share strength."""
    freedom = np.array([(cells.rows[g] - 1).sum() for g in groups])
    deviation = np.array([cells.deviation[g].sum() for g in groups])
    if freedom.sum() > 0:
        pooled = float(deviation.sum() / freedom.sum())
    else:  # no action was ever repeated in an instance: all that can be said is the spread around each action's mean
        pooled = float(np.mean([np.var(cells.mean[g]) for g in groups if len(g)]))
    pooled = max(pooled, 1e-12)
    return np.asarray((deviation + PRIOR_ROWS * pooled) / (freedom + PRIOR_ROWS))


def _leftover_variance(
    cells: Cells,
    residual: Float[np.ndarray, " cells"],
    variance: Float[np.ndarray, " K"],
    blur: Float[np.ndarray, " cells"],
    parameters: int,
) -> float:
    """Find by moments what of the cells' residuals neither reward noise nor the noise of mean encodings explains."""
    expected = variance[cells.action] / cells.rows + blur
    weight = 1 / expected
    inflation = len(residual) / max(len(residual) - parameters, 1)
    excess = np.sum(weight * (inflation * residual**2 - expected)) / np.sum(weight)
    return max(float(excess), 0.0)


def _prior(
    coefficients: Float[np.ndarray, "well n+1"], cells: Cells, features: Float[np.ndarray, "cells n+1"]
) -> tuple[np.ndarray, np.ndarray]:
    """Take the spread of coefficients over the actions that have enough rows as the prior for those that have not."""
    dim = features.shape[1]
    scale = np.maximum(np.mean(features**2, axis=0), 1e-12)
    spread = max(float(np.var(cells.mean)), 1e-12)
    if len(coefficients) < 2:
        mean = np.zeros(dim)
        mean[-1] = np.average(cells.mean, weights=cells.rows)
        return mean, np.diag(spread / scale)
    mean = coefficients.mean(axis=0)
    variances = coefficients.var(axis=0, ddof=1)
    return mean, np.diag(np.maximum(variances, 1e-3 * spread / scale))


def _warn_rare(labels: Sequence[Any], rows: np.ndarray, rare: np.ndarray, dim: int) -> None:
    listed = ", ".join(f"{labels[a]!r} ({rows[a]} rows)" for a in np.flatnonzero(rare)[:5])
    more = f" and {rare.sum() - 5} more" if rare.sum() > 5 else ""
    warnings.warn(
        f"{rare.sum()} of {len(labels)} actions have too few rewards for {dim + 1} coefficients of their own: "
        f"{listed}{more}. They are shrunk towards the other actions; drop them, merge them, or collect more rows.",
        RareActionWarning,
        stacklevel=4,
    )
