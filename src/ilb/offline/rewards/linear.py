r"""One linear reward model for each action, by least squares on mean encodings (Alg. 1, offline line 2; thm:reward)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ilb.errors import RareActionWarning
from ilb.logs.messages import counted
from ilb.models.latent import LinearReward
from ilb.offline.rewards.recipe import (
    Cells,
    RewardFit,
    RewardRecipe,
    RewardTask,
    measure_leftover_variance,
    measure_reward_variance,
)
from ilb.offline.scaling import correlation_axes, measure_columns
from ilb.offline.training import Keys
from ilb.types import Report, as_float32, silent

RARE_FACTOR = 5
"""An action with fewer rewards than this times its coefficients, or seen in fewer instances than twice its
coefficients, is rare: it borrows strength from the other actions."""


@dataclass(frozen=True)
class LinearRewardRecipe(RewardRecipe):
    """Least squares for each action on mean encodings (thm:reward): the paper's way, and the default of `fit_many`."""

    def train(self, keys: Keys, tasks: Sequence[RewardTask], report: Report = silent) -> list[RewardFit]:
        del keys, report  # nothing is drawn, and there is nothing to wait for
        return [fit_linear_reward(*task[:5]) for task in tasks]


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
    to_basis, centre = _standard_basis(mean_encodings)
    standard = (mean_encodings - centre) @ to_basis
    features = np.concatenate([standard, np.ones((len(standard), 1))], axis=1)[cells.instance]
    groups = [np.flatnonzero(cells.action == a) for a in range(actions)]
    totals = np.array([cells.rows[g].sum() for g in groups])
    rare = (totals < RARE_FACTOR * (dim + 1)) | (np.array([len(g) for g in groups]) < 2 * (dim + 1))
    if np.any(rare):
        _warn_rare(labels, cells, rare, dim)

    grams = np.stack([(features[g] * cells.rows[g, None]).T @ features[g] for g in groups])
    moments = np.stack([features[g].T @ (cells.rows[g] * cells.mean[g]) for g in groups])
    coefficients = np.zeros((actions, dim + 1))
    for common in np.flatnonzero(~rare):
        coefficients[common] = np.linalg.lstsq(grams[common], moments[common], rcond=None)[0]
    prior_mean, prior_covariance = _prior(coefficients[~rare], cells)
    coefficients[rare] = prior_mean

    # Rare actions have no fit of their own yet, so their residuals say nothing, unless there are no others.
    telling = ~rare[cells.action] | np.all(rare)
    parameters = int((~rare).sum()) * (dim + 1)
    residual = cells.mean - np.sum(features * coefficients[cells.action], axis=1)
    unexplained = float(np.sum(residual[telling] ** 2) / max(telling.sum() - parameters, 1))
    variance = measure_reward_variance(cells, groups, unexplained)
    blur = np.zeros(len(cells.rows))
    if encoding_covariance is not None and lengths is not None:
        theta = coefficients[:, :dim]
        noise = np.einsum("ai,ij,aj->a", theta, to_basis.T @ encoding_covariance @ to_basis, theta)
        blur = noise[cells.action] / lengths[cells.instance]
    leftover = measure_leftover_variance(cells.where(telling), residual[telling], variance, blur[telling], parameters)

    spread = variance[cells.action] / cells.rows + leftover + blur  # of the mean reward of a cell around the model
    prior_precision = np.linalg.inv(prior_covariance)
    covariance = np.zeros((actions, dim + 1, dim + 1))
    for a, g in enumerate(groups):
        if rare[a]:
            weighted = features[g] / spread[g, None]
            covariance[a] = np.linalg.inv(prior_precision + weighted.T @ features[g])
            coefficients[a] = covariance[a] @ (prior_precision @ prior_mean + weighted.T @ cells.mean[g])
        else:
            inverse = np.linalg.pinv(grams[a])
            weighted = features[g] * (cells.rows[g] ** 2 * spread[g])[:, None]
            covariance[a] = inverse @ (weighted.T @ features[g]) @ inverse
    back = np.eye(dim + 1)
    back[:dim, :dim] = to_basis
    back[dim, :dim] = -centre @ to_basis
    coefficients, covariance = coefficients @ back.T, back @ covariance @ back.T
    reward = LinearReward(
        as_float32(coefficients[:, :dim]),
        as_float32(coefficients[:, dim]),
        as_float32(covariance),
    )
    return RewardFit(reward, variance, leftover)


def _standard_basis(mean_encodings: Float[np.ndarray, "I n"]) -> tuple[np.ndarray, np.ndarray]:
    """Find the basis in which mean encodings are centred and uncorrelated with variance one.

    Least squares there does not suffer from units or from means far from zero, and the prior of rare actions does not
    depend on the latent basis.
    """
    centre, scale = measure_columns(mean_encodings, 1e-9)  # a constant coordinate is the intercept's
    variances, directions = correlation_axes(mean_encodings, scale, mean_encodings.shape[1])
    kept = variances > 1e-9
    return directions * kept / np.sqrt(np.where(kept, variances, 1.0)) / scale[:, None], centre


def _prior(coefficients: Float[np.ndarray, "well coefficients"], cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Take the spread of coefficients over the actions that have enough rows as the prior for those that have not."""
    slopes = coefficients.shape[1] - 1
    # Few cells may agree by chance while the rewards within them differ.
    within = float(cells.deviation.sum() / max((cells.rows - 1).sum(), 1))
    spread = max(float(np.var(cells.mean)), within, 1e-12)
    if len(coefficients) < 2:
        mean = np.zeros(slopes + 1)
        mean[-1] = np.average(cells.mean, weights=cells.rows)
        return mean, spread * np.eye(slopes + 1)
    variances = np.maximum(coefficients.var(axis=0, ddof=1), 1e-3 * spread)
    # One variance for all slopes: the standard basis is free up to a rotation.
    shared = [float(variances[:-1].mean())] * slopes if slopes else []
    return coefficients.mean(axis=0), np.diag([*shared, variances[-1]])


def _warn_rare(labels: Sequence[Any], cells: Cells, rare: np.ndarray, dim: int) -> None:
    counts = ((labels[int(a)], cells.rows[cells.action == a]) for a in np.flatnonzero(rare)[:5])
    listed = ", ".join(f"{label!r} ({rows.sum()} rows of {counted(len(rows), 'instance')})" for label, rows in counts)
    more = f" and {rare.sum() - 5} more" if rare.sum() > 5 else ""
    warnings.warn(
        f"{rare.sum()} of {len(labels)} actions have too few rewards, or rewards of too few instances, for {dim + 1} "
        f"coefficients of their own: {listed}{more}. They are shrunk towards the other actions; drop them, merge them, "
        f"or collect more (at least {RARE_FACTOR * (dim + 1)} rows of {2 * (dim + 1)} instances).",
        RareActionWarning,
        stacklevel=4,
    )
