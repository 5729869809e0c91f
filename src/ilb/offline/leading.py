"""Dimensions read off one wide encoder: its leading coordinates, as they tell people apart who were held out."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ilb.logs import Logs
from ilb.models.latent import canonical_basis
from ilb.networks import Affine
from ilb.offline.choice import Fold
from ilb.offline.encodings import Unseen, encode_contexts, measure_scatter
from ilb.types import Encoder

WIDEST = 8
"""Coordinates of the encoder that dimensions are read off; those that tell people apart by little are dropped."""

SHARES = (0.5, 0.3, 0.1)
"""Coordinates are kept whose variance over people, in units of noise, is at least this share of the widest one's."""


class Leading(eqx.Module):
    """The widest coordinates of an encoding."""

    encoder: Encoder
    basis: Affine

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " n"]:
        return self.basis(self.encoder(context))


def narrowed(encoders: Sequence[Encoder], folds: Sequence[Fold]) -> dict[int, list[Encoder]]:
    """Give the leading coordinates of the encoders of all folds, for each number of them that the shares say."""
    bases, widths = zip(*(_leading(*pair) for pair in zip(encoders, folds, strict=True)), strict=True)
    widths = np.mean(widths, axis=0)
    dims = dict.fromkeys(max(int(np.sum(widths > share * widths[0])), 1) for share in SHARES)
    pairs = list(zip(encoders, bases, strict=True))
    return {
        dim: [Leading(encoder, Affine(basis.matrix[:, :dim], basis.shift[:dim])) for encoder, basis in pairs]
        for dim in dims
    }


def _leading(encoder: Encoder, fold: Fold) -> tuple[Affine, Float[np.ndarray, " n"]]:
    """Find the basis of uncorrelated coordinates, widest first, and how wide they are among held-out people."""
    seen, fresh = (
        measure_scatter(encode_contexts(encoder, table.context), table.starts)
        for table in (fold.training, fold.held_out)
    )
    matrix = canonical_basis(seen.encoding_covariance, seen.population_covariance).matrix[:, ::-1]
    noise, spread = (np.einsum("ij,ik,kj->j", matrix, part, matrix) for part in (fresh[0], fresh[2]))
    basis = Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(-seen.population_mean @ matrix, jnp.float32))
    return basis, spread / np.maximum(noise, 1e-12)


def measure_inflation(encoder: Encoder, fold: Fold) -> float:
    """Measure how many times wider encodings vary within people that the encoder was not trained on."""
    tables = (fold.training, fold.held_out)
    encodings = np.concatenate([encode_contexts(encoder, table.context) for table in tables]).astype(np.float64)
    starts = np.concatenate([fold.training.starts, fold.training.rows + fold.held_out.starts[1:]])
    unseen = np.repeat([False, True], [table.instances for table in tables])
    return Unseen.pooled([Unseen.measure(encodings, starts, unseen)], encodings.shape[1])


def encoded_width(encoder: Encoder, logs: Logs) -> int:
    return int(encode_contexts(encoder, logs.context[:1]).shape[1])
