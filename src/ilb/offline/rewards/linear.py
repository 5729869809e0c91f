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

from ilb.errors import RareActionWarning
from ilb.logs import Logs
from ilb.logs.messages import counted
from ilb.models.latent import LinearReward
from ilb.offline.scaling import correlation_axes, measure_columns
from ilb.types import RewardModel

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
    logs.require_any_reward()
    seen = logs.rewarded
    code = logs.instance[seen].astype(np.int64) * logs.actions + logs.action[seen]
    cells, index, count = np.unique(code, return_inverse=True, return_counts=True)
    reward = logs.reward[seen].astype(np.float64)
    mean = np.bincount(index, weights=reward) / count
    deviation = np.bincount(index, weights=(reward - mean[index]) ** 2)
    return Cells(cells // logs.actions, cells % logs.actions, count, mean, deviation)


class RewardFit(NamedTuple):
    """The reward model and the variances around it; `notes` and `interrupted` go into the provenance of the model."""

    reward: RewardModel
    reward_variance: Float[np.ndarray, " K"]
    leftover_variance: float
    notes: tuple[str, ...] = ()
    interrupted: bool = False


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
    common_cells = Cells(*(part[telling] for part in cells))
    leftover = measure_leftover_variance(common_cells, residual[telling], variance, blur[telling], parameters)

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
        jnp.asarray(coefficients[:, :dim], jnp.float32),
        jnp.asarray(coefficients[:, dim], jnp.float32),
        jnp.asarray(covariance, jnp.float32),
    )
    return RewardFit(reward, variance, leftover)


def _standard_basis(mean_encodings: Float[np.ndarray, "I n"]) -> tuple[np.ndarray, np.ndarray]:
    """Find the basis in which mean encodings are centred and uncorrelated with variance one.

    Least squares there does not suffer from units or from means far from zero, and the prior of rare actions does not
    depend on the latent basis.
    """
    centre, scale = measure_columns(mean_encodings, 1e-9)  # a constant coordinate is the intercept's
    variances, directions = correlation_axes(mean_encodings, scale)
    kept = variances > 1e-9
    return directions * kept / np.sqrt(np.where(kept, variances, 1.0)) / scale[:, None], centre


def measure_reward_variance(cells: Cells, groups: Sequence[np.ndarray], unexplained: float) -> Float[np.ndarray, " K"]:
    """Pool deviations within cells, which no error of the model can touch; actions share strength.

    Where no action was ever repeated in an instance, noise and effects of instance x action can't be told apart, and
    all that the model leaves unexplained is taken as noise.
    """
    freedom = np.array([(cells.rows[g] - 1).sum() for g in groups])
    deviation = np.array([cells.deviation[g].sum() for g in groups])
    pooled = max(float(deviation.sum() / freedom.sum()) if freedom.sum() > 0 else unexplained, 1e-12)
    return np.asarray((deviation + PRIOR_ROWS * pooled) / (freedom + PRIOR_ROWS))


def measure_leftover_variance(
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


def _prior(coefficients: Float[np.ndarray, "well n+1"], cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Take the spread of coefficients over the actions that have enough rows as the prior for those that have not."""
    slopes = coefficients.shape[1] - 1
    spread = max(float(np.var(cells.mean)), 1e-12)
    if len(coefficients) < 2:
        mean = np.zeros(slopes + 1)
        mean[-1] = np.average(cells.mean, weights=cells.rows)
        return mean, spread * np.eye(slopes + 1)
    variances = np.maximum(coefficients.var(axis=0, ddof=1), 1e-3 * spread)
    # One variance for all slopes: the standard basis is free up to a rotation.
    return coefficients.mean(axis=0), np.diag([*[variances[:-1].mean()] * slopes, variances[-1]])


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
