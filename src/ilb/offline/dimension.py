"""Choose the latent dimension by how well held-out instances are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ilb.errors import FitError
from ilb.estimates import standard_error
from ilb.logs import Logs
from ilb.networks import Affine
from ilb.offline.encoders.tied import Batch, TiedParams, TiedRecipe
from ilb.offline.scaling import apply_scaling, fit_whitening
from ilb.offline.training import CosineAdam, Schedule, fit_keys
from ilb.types import Report, silent

HELD_OUT_INSTANCES = 64
HELD_OUT_ROWS = 64
"""At most this many held-out instances and rows of each are scored: all pairs of them are compared."""

QUICK = TiedRecipe(rows_per_instance=16, training=Schedule(steps=1000, optimiser=CosineAdam(0.02), score_every=500))
"""A lighter recipe than the default: dimensions are compared, not used."""


class DimensionChoice(NamedTuple):
    """The curve and the choice: mean held-out log-likelihood of the true instance, for each dimension tried.

    The standard error is that of the difference to the best dimension, over the same held-out instances.
    """

    dims: tuple[int, ...]
    log_likelihood: Float[np.ndarray, " dims"]
    standard_error: Float[np.ndarray, " dims"]
    chosen: int

    @classmethod
    def of(cls, dims: tuple[int, ...], losses: Float[np.ndarray, "dims instances"]) -> DimensionChoice:
        """Take the smallest dimension within one standard error of the best."""
        means = losses.mean(axis=1)
        best = int(means.argmin())
        errors = standard_error((losses - losses[best]).T)
        chosen = next(dim for dim, mean, error in zip(dims, means, errors, strict=True) if mean - means[best] <= error)
        return cls(dims, -means, errors, chosen)

    def sentence(self) -> str:
        listed = ", ".join(f"{dim}: {value:.3f}" for dim, value in zip(self.dims, self.log_likelihood, strict=True))
        return (
            f"latent dimension {self.chosen} chosen by held-out contrastive log-likelihood per context ({listed}): "
            "the smallest within one standard error of the best"
        )


def choose_latent_dim(
    logs: Logs,
    *,
    seed: int,
    candidates: Sequence[int] | None = None,
    held_out_share: float = 0.2,
    recipe: TiedRecipe = QUICK,
    report: Report = silent,
) -> DimensionChoice:
    """Train on most instances for each candidate, score the rest, and take the smallest that does not lose."""
    candidates = range(1, min(logs.width, 10, logs.instances // 2) + 1) if candidates is None else candidates
    if logs.instances < 10:
        raise FitError(
            f"{logs.instances} instances are too few to choose the latent dimension by holding some out (at least 10). "
            "Give latent_dim."
        )
    train, held_out = logs.split_instances((1 - held_out_share, held_out_share), seed=seed)
    batch = _lay_out(fit_whitening(train.context), held_out)
    losses = []
    for number, dim in enumerate(candidates):
        trained = recipe.train_params(fit_keys([seed]), [train], dim)[0]
        by_row = np.asarray(jax.jit(TiedParams.losses)(trained, batch), dtype=np.float64)
        losses.append(np.sum(np.where(batch.fresh, by_row, 0.0), axis=1) / batch.fresh.sum(axis=1))
        report(number + 1, len(candidates), float(losses[-1].mean()))
    return DimensionChoice.of(tuple(candidates), np.stack(losses))


def _lay_out(whitening: Affine, logs: Logs) -> Batch:
    """Make one batch of held-out instances and their first rows; where there are no more, a row is not `fresh`."""
    chosen = np.flatnonzero(logs.lengths >= 2)[:HELD_OUT_INSTANCES]
    if len(chosen) < 2:
        raise FitError("fewer than 2 held-out instances have 2 rows, so dimensions can't be compared. Give latent_dim.")
    offsets = np.arange(min(HELD_OUT_ROWS, logs.lengths[chosen].max()))
    real = offsets < logs.lengths[chosen][:, None]
    index = np.where(real, logs.starts[chosen][:, None] + offsets, 0)
    return Batch(apply_scaling(whitening, logs)[index], real, ~np.eye(len(chosen), dtype=bool))
