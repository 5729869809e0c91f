"""What an encoder recipe is: a frozen set of numbers that can `train` any number of encoders at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ilb.logs import Logs
from ilb.offline.training import Keys, LossCurve, Minimised
from ilb.types import Encoder, Report, silent


class TrainedEncoder(NamedTuple):
    """An encoder and the story of its training.

    `inflation` is how many times wider each coordinate varies within people that the training has not seen than within
    those of the logs; empty if the recipe does not measure it.
    """

    encoder: Encoder
    curve: LossCurve
    best_step: int
    interrupted: bool
    inflation: tuple[float, ...] = ()

    @classmethod
    def of(cls, encoder: Encoder, run: Minimised, inflation: tuple[float, ...] = ()) -> TrainedEncoder:
        """Take the encoder that was made of the parameters of a run."""
        return cls(encoder, run.curve, int(run.best_step), run.interrupted, inflation)


@runtime_checkable
class EncoderRecipe(Protocol):
    """Anything that learns encoders from logs. A recipe that inherits from this has to say only how to `train`."""

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        """Train one encoder for each key and table of logs, all in one compiled program."""
        ...

    def without_cross_fit(self, room: tuple[int, int] = (0, 0)) -> EncoderRecipe:
        """Leave out what is repeated only to measure noise: people who are held out elsewhere show it.

        Arrays may have room for so many rows and instances: trainings on parts then share one program.
        """
        del room
        return self

    @property
    def needs_columns(self) -> bool:
        """Tell whether there is nothing to train without any context column."""
        return True

    @property
    def is_trained(self) -> bool:
        """Tell whether there is anything to train, to a latent dimension that can be chosen."""
        return True
