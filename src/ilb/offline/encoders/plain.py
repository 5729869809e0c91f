"""Encodings that need no training: none at all, and the contexts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ilb.logs import Logs
from ilb.networks import NoEncoder
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.scaling import WidestAxes
from ilb.offline.training import Keys, LossCurve
from ilb.types import Encoder, Report, silent


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
        return [_untrained(WidestAxes(self.most).fit(table.context)) for table in logs]


def _untrained(encoder: Encoder) -> TrainedEncoder:
    return TrainedEncoder(encoder, LossCurve(*np.zeros((3, 0))), 0, False)
