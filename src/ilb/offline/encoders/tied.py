"""TiedRecipe: mean-contrastive learning with tied prototypes, the default encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.latent import canonical_basis
from ilb.networks import Affine, ComposedEncoder, MaxoutMLP, random_maxout_mlp
from ilb.offline.encoders.contrastive import Histories, TiedContrast, TiedParams, pad_histories
from ilb.offline.encoders.recipe import TrainedEncoder, curve_of_run, split_each, stack, unstack, whiten
from ilb.offline.encodings import encode_contexts, measure_scatter
from ilb.offline.scaling import fit_whitening
from ilb.offline.training import CosineAdam, Minimised, Schedule, hold_out, minimise_many
from ilb.types import Report, silent


@dataclass(frozen=True)
class TiedRecipe:
    """Mean-contrastive learning with tied prototypes, Adam and a cosine schedule: better and far cheaper.

    `width` is the width of hidden layers in multiples of the latent dimension. The encoder comes out in a canonical
    basis: noise of covariance one, a centred population with uncorrelated coordinates, the widest first.
    `validation_share` of the instances are held out to keep the best parameters; they are used only when there are
    fewer than `ample_rows` rows, since more rows than that leave these networks no room to overfit. Contexts that are a
    deeper function of the latent state deserve more layers and steps: `TiedRecipe.deep()`.
    """

    layers: int = 3
    width: int = 4
    instances_per_batch: int = 32
    rows_per_instance: int = 32
    validation_share: float = 0.1
    ample_rows: int = 10_000
    training: Schedule = field(
        default_factory=lambda: Schedule(steps=1200, optimiser=CosineAdam(0.03), score_every=100)
    )

    @classmethod
    def deep(cls) -> Self:
        """Give the recipe for deeper emissions: one layer more, and three times the work of the default."""
        return cls(layers=4, training=Schedule(steps=3000, optimiser=CosineAdam(0.03), score_every=100))

    def train(
        self, keys: PRNGKeyArray, logs: Sequence[Logs], latent_dim: int, report: Report = silent
    ) -> list[TrainedEncoder]:
        """Train one encoder for each key and table of logs."""
        whitenings = [fit_whitening(table.context) for table in logs]
        result = self._minimise(keys, logs, whitenings, latent_dim, report)
        return [
            TrainedEncoder(
                _canonical(whitening, params.network, table),
                curve_of_run(result.curve, run),
                int(result.best_step[run]),
                result.interrupted,
            )
            for run, (whitening, params, table) in enumerate(
                zip(whitenings, unstack(result.params, len(logs)), logs, strict=True)
            )
        ]

    def train_params(self, keys: PRNGKeyArray, logs: Sequence[Logs], latent_dim: int) -> list[TiedParams]:
        """Train, and give the parameters of the loss itself, which score held-out instances."""
        whitenings = [fit_whitening(table.context) for table in logs]
        result = self._minimise(keys, logs, whitenings, latent_dim, silent)
        if result.interrupted:  # half-trained parameters must not be compared with whole ones
            raise KeyboardInterrupt
        return unstack(result.params, len(logs))

    def _minimise(
        self,
        keys: PRNGKeyArray,
        logs: Sequence[Logs],
        whitenings: Sequence[Affine],
        latent_dim: int,
        report: Report,
    ) -> Minimised:
        keys_split, keys_network, keys_step = split_each(keys, 3)
        parts = [self._hold_out(key, table) for key, table in zip(keys_split, logs, strict=True)]
        training = stack_histories(whitenings, [train for train, _ in parts])
        validation = None
        if all(held is not None for _, held in parts):
            validation = stack_histories(whitenings, [held for _, held in parts if held is not None])
        params = _start(self, keys_network, logs[0].width, latent_dim)
        loss = self._loss([train for train, _ in parts])
        return minimise_many(keys_step, loss, params, training, self.training, validation=validation, report=report)

    def _hold_out(self, key: PRNGKeyArray, logs: Logs) -> tuple[Logs, Logs | None]:
        held = round(self.validation_share * logs.instances)
        return (logs, None) if held < 2 or logs.rows >= self.ample_rows else hold_out(key, logs, held)

    def _loss(self, logs: Sequence[Logs]) -> TiedContrast:
        """Fit the shape of a batch to the logs: few instances or short histories would only be drawn repeatedly."""
        longest = max(int(table.lengths.max()) for table in logs)
        if longest < 2:
            raise FitError(
                "every instance has a single row, so nothing tells noise from the latent state. "
                "Mean-contrastive learning needs at least two contexts of some instances."
            )
        rows = min(self.rows_per_instance, longest)
        instances = self.instances_per_batch * self.rows_per_instance // rows
        return TiedContrast(min(instances, max(table.instances for table in logs)), rows)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _start(recipe: TiedRecipe, keys: PRNGKeyArray, width: int, latent_dim: int) -> TiedParams:
    """Draw a network for each key; of the population nothing is assumed but that it is as wide as the noise."""

    def start_one(key: PRNGKeyArray) -> TiedParams:
        network = random_maxout_mlp(key, width, [recipe.width * latent_dim] * (recipe.layers - 1), latent_dim)
        return TiedParams(network, jnp.zeros(latent_dim), jnp.zeros(latent_dim))

    return jax.vmap(start_one)(keys)


def stack_histories(whitenings: Sequence[Affine], logs: Sequence[Logs]) -> Histories:
    """Lay out the whitened contexts of many runs with common padded sizes."""
    sizes = (max(table.rows for table in logs), max(table.instances for table in logs))
    return stack(
        [pad_histories(whiten(w, table), table.lengths, sizes) for w, table in zip(whitenings, logs, strict=True)]
    )


def _canonical(whitening: Affine, network: MaxoutMLP, logs: Logs) -> ComposedEncoder:
    """Turn the basis so that noise has covariance one and the population is centred, uncorrelated and ordered."""
    scatter = measure_scatter(encode_contexts(ComposedEncoder(whitening, network), logs.context), logs.starts)
    matrix = canonical_basis(scatter.encoding_covariance, scatter.population_covariance).matrix[:, ::-1]
    signs = np.where(matrix[np.abs(matrix).argmax(axis=0), np.arange(len(matrix))] < 0, -1.0, 1.0)
    matrix = matrix * signs
    shift = -scatter.population_mean @ matrix
    basis = Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(shift, jnp.float32))
    return ComposedEncoder(whitening, network.then(basis))
