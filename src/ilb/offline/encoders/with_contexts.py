"""WithContexts: any encoder beside the contexts themselves, for worlds in which part of a context never varies.

Columns that are constant within an instance, such as Age, and noise-free combinations of columns tell instances apart
at once. A contrastive encoder then has nothing else to learn, and may miss what the rewards depend on. The contexts are
put beside its encoding, so that the linear reward model starts from no less than least squares on mean contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.networks import SideBySide
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.scaling import Scaling, Standardised
from ilb.offline.training import Keys
from ilb.types import Report, silent


@dataclass(frozen=True)
class WithContexts(EncoderRecipe):
    """The encoding of another recipe with the scaled context as further coordinates: n + d in all, or fewer.

    `encoding_dim` is a dimension of the encoding other than that of the fit: beside the contexts a single one is often
    enough, and every further coordinate costs the reward model precision.
    """

    recipe: EncoderRecipe = field(default_factory=TiedRecipe)
    scaling: Scaling = field(default_factory=Standardised)
    encoding_dim: int | None = None

    def without_cross_fit(self, room: tuple[int, int] = (0, 0)) -> WithContexts:
        return replace(self, recipe=self.recipe.without_cross_fit(room))

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        dim = latent_dim if self.encoding_dim is None else self.encoding_dim
        if dim < 1:
            raise FitError(f"encoding_dim must be at least 1; got {dim}. Without any encoding, see reference_models.")
        encodings = self.recipe.train(keys, logs, dim, report)
        scalings = [self.scaling.fit(table.context) for table in logs]
        return [
            trained._replace(
                encoder=SideBySide(trained.encoder, scaling),
                # Contexts are not learned: they vary within other people as within these.
                inflation=trained.inflation and trained.inflation + (1.0,) * scaling.matrix.shape[1],
            )
            for trained, scaling in zip(encodings, scalings, strict=True)
        ]
