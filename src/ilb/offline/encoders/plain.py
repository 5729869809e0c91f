"""Encodings that need no training: none at all, and the contexts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ilb.logs import Logs
from ilb.networks import Affine, NoEncoder
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.scaling import FLAT, MOST_AXES, ROUNDING, correlation_axes, measure_columns, standardise
from ilb.offline.training import Keys, LossCurve
from ilb.types import Encoder, Report, as_float32, silent


@dataclass(frozen=True)
class NoEncoding(EncoderRecipe):
    """No encoder: contexts say nothing of who a person is, and only rewards do."""

    @property
    def needs_columns(self) -> bool:
        return False

    @property
    def is_trained(self) -> bool:
        return False

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        del keys, latent_dim, report
        return [_untrained(NoEncoder()) for _ in logs]


@dataclass(frozen=True)
class PlainContexts(EncoderRecipe):
    """The contexts as their own encoding, standardised; of more than `most` columns, their principal axes.

    Nothing moves anybody in directions that never vary in the logs (`standardise`).
    """

    most: int = 16

    @property
    def needs_columns(self) -> bool:
        return False

    @property
    def is_trained(self) -> bool:
        return False

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        del keys, latent_dim, report
        return [_untrained(self._axes(table)) for table in logs]

    def _axes(self, logs: Logs) -> Affine:
        if logs.width <= self.most:
            return standardise(logs.context)
        mean, scale = measure_columns(logs.context, ROUNDING)
        variances, axes = correlation_axes(logs.context, scale, max(self.most, MOST_AXES))
        # As many coordinates whoever is fitted on; those that never vary are zero.
        varying = np.where(variances > FLAT * variances.max(), axes, 0.0)
        matrix = varying[:, : -self.most - 1 : -1] / scale[:, None]
        return Affine(as_float32(matrix), as_float32(-mean @ matrix))


def _untrained(encoder: Encoder) -> TrainedEncoder:
    return TrainedEncoder(encoder, LossCurve(*np.zeros((3, 0))), 0, False)
