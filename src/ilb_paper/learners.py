"""Learners: the ways to turn logs into something that decides, by the names that the tables and figures use."""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ilb.environments import Recorded, Recording
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.networks import IdentityEncoder
from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.vae import GaussianLikelihood, VAERecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.fit import complete_model, fit, fit_many, refit_rewards, require_whole
from ilb.offline.regression import RegressionRecipe, fit_regression_many, score_regression
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.mlp import MLPRewardRecipe
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.offline.scaling import MinMax, Scaling, Standardised, Whitened
from ilb.offline.scores import FitScores, Truth, score_model
from ilb.types import Encoder
from ilb_paper.released import released_vae_recipe
from ilb_paper.settings import AbstractSetting

Fitted = LatentModel | RecurrentRegression

PAPER, PAPER_WIDE, OURS, VAE, REGRESSION = "LVM (paper)", "LVM (released width)", "LVM (ours)", "VAE", "Regression"
VAE_RELEASED, REGRESSION_SORTED = "VAE (released)", "Regression (sorted actions)"
MEAN_CONTEXTS, TRUE_ENCODER = "mean contexts", "true encoder"
PLAIN_FIT = "ilb.fit"


@dataclass(frozen=True)
class Learned:
    """What came of learning: one model and its scores for each seed, and the CPU seconds that all took together.

    `prefix_scores` are those of the regression averaged over all prefixes of a history, as its authors report it.
    """

    models: Sequence[Fitted]
    scores: list[FitScores]
    cpu_seconds: float
    prefix_scores: list[FitScores] | None = None


class Lesson(NamedTuple):
    """What to learn from: logs recorded in the worlds of some seeds of a setting.

    `effort` below 1 shortens the training by that factor, for a look in passing. `encoded` are models with the encoders
    that the training would give, from `setting.contexts()`; it is left out then.
    """

    setting: AbstractSetting
    recorded: Sequence[Recorded]
    seeds: Sequence[int]
    effort: float
    encoded: Sequence[Any] = ()

    @property
    def logs(self) -> list[Logs]:
        return [recorded.training.logs for recorded in self.recorded]


class AbstractLearner(ABC):
    """One way to learn."""

    learns_encoders: ClassVar[bool] = False
    """Whether it learns encoders, which never see a reward: one from logs with the same contexts will do."""
    scores_prefixes: ClassVar[bool] = False
    seconds: float
    """CPU seconds a seed at full size, roughly, for the progress display."""

    def recipes(self, setting: AbstractSetting, effort: float) -> Sequence[Any]:
        del setting, effort
        return ()

    @abstractmethod
    def train(self, lesson: Lesson) -> Sequence[Any]:
        """Give one model for each seed, trained on the logs of its world."""

    def score(self, model: Any, recorded: Recorded, prefix: Literal["full", "all"]) -> FitScores:
        del prefix
        training, test = recorded.training, recorded.test
        return score_model(model, test.logs, _truth(test), (training.logs, _truth(training)))

    def load(self, directory: Path) -> Fitted:
        return LatentModel.load(directory)

    def fit(self, lesson: Lesson) -> Learned:
        """Train, and score each model; the CPU seconds are those of the training."""
        began = time.process_time()
        models = self.train(lesson)
        spent = time.process_time() - began
        require_whole(*models)
        pairs = list(zip(models, lesson.recorded, strict=True))
        scores = [self.score(*pair, "full") for pair in pairs]
        return Learned(
            models, scores, spent, [self.score(*pair, "all") for pair in pairs] if self.scores_prefixes else None
        )


def _truth(recording: Recording) -> Truth:
    return Truth(recording.latents, recording.mean_rewards)


@dataclass(frozen=True)
class LatentLearner(AbstractLearner):
    """Learn an encoder, then rewards on its encodings; rewards that are not linear in z get a network."""

    encoder: Callable[[AbstractSetting, float], EncoderRecipe]
    network: MLPRewardRecipe = field(default_factory=MLPRewardRecipe)
    """For rewards that are not linear, as in app:nonlinear_reward."""
    seconds: float = 10.0
    learns_encoders: ClassVar[bool] = True

    def recipes(self, setting: AbstractSetting, effort: float) -> tuple[EncoderRecipe, RewardRecipe]:
        reward = LinearRewardRecipe() if setting.linear_rewards else self.network.shortened(effort)
        return self.encoder(setting, effort), reward

    def train(self, lesson: Lesson) -> Sequence[LatentModel]:
        recipe, reward = self.recipes(lesson.setting, lesson.effort)
        if lesson.encoded:
            return refit_rewards(lesson.encoded, lesson.logs, reward=reward, seeds=lesson.seeds)
        dim = lesson.setting.latent_dim
        return fit_many(lesson.logs, latent_dim=dim, recipe=recipe, reward=reward, seeds=lesson.seeds)


@dataclass(frozen=True)
class PlainLearner(AbstractLearner):
    """Call `ilb.fit` as a user does, who is told neither the number of latent coordinates nor which recipe to take.

    With less effort nothing is compared: the recipe is given.
    """

    seconds: float = 60.0

    def train(self, lesson: Lesson) -> Sequence[LatentModel]:
        given: dict[str, Any] = {}
        if lesson.effort < 1:
            recipe = _ours(lesson.setting, lesson.effort)
            given = {"latent_dim": lesson.setting.latent_dim, "recipe": recipe, "reward": PersonRewardRecipe()}
        return [fit(logs, seed=seed, **given) for logs, seed in zip(lesson.logs, lesson.seeds, strict=True)]


@dataclass(frozen=True)
class ReferenceLearner(AbstractLearner):
    """Take an encoder that nobody has to learn, and fit rewards on its encodings."""

    encoder: Callable[[AbstractSetting, int], Encoder]
    seconds: float = 10.0

    def train(self, lesson: Lesson) -> Sequence[LatentModel]:
        encoders = (self.encoder(lesson.setting, seed) for seed in lesson.seeds)
        return [complete_model(encoder, logs) for encoder, logs in zip(encoders, lesson.logs, strict=True)]


@dataclass(frozen=True)
class RecurrentLearner(AbstractLearner):
    """Regress rewards on histories; `histories` says what it is trained on, and it is scored on those as they come."""

    histories: Callable[[Logs], Logs]
    seconds: float = 10.0
    scores_prefixes: ClassVar[bool] = True

    def recipes(self, setting: AbstractSetting, effort: float) -> tuple[RegressionRecipe]:
        scaling: Scaling = Standardised() if setting.constant_columns else Whitened()
        return (RegressionRecipe(layers=setting.layers, scaling=scaling).shortened(effort),)

    def train(self, lesson: Lesson) -> Sequence[RecurrentRegression]:
        (recipe,) = self.recipes(lesson.setting, lesson.effort)
        return fit_regression_many([self.histories(logs) for logs in lesson.logs], recipe=recipe, seeds=lesson.seeds)

    def score(self, model: RecurrentRegression, recorded: Recorded, prefix: Literal["full", "all"]) -> FitScores:
        return score_regression(model, recorded.test.logs, _truth(recorded.test), prefix)

    def load(self, directory: Path) -> Fitted:
        return RecurrentRegression.load(directory)


def _paper(setting: AbstractSetting, effort: float, width: int = 1) -> EncoderRecipe:
    """As in the released code, contexts are whitened, and those of ADCB are scaled to [0, 1]."""
    scaling: Scaling = MinMax() if setting.constant_columns else Whitened()
    return PaperRecipe(layers=setting.layers, width=width, scaling=scaling).shortened(effort)


def _ours(setting: AbstractSetting, effort: float) -> EncoderRecipe:
    tied = (TiedRecipe() if setting.layers < 4 else TiedRecipe.deep()).shortened(effort)
    # Where part of a context never varies within a patient, the library warns; rewards of ADCB depend on one number.
    return WithContexts(tied, encoding_dim=1) if setting.constant_columns else tied


def _vae(setting: AbstractSetting, effort: float) -> EncoderRecipe:
    plain = VAERecipe(layers=setting.layers)
    bounded = VAERecipe(layers=setting.layers, scaling=MinMax(), likelihood=GaussianLikelihood(0.03))
    return (bounded if setting.constant_columns else plain).shortened(effort)


def _sorted_by_action(logs: Logs) -> Logs:
    """Put the rows of every instance in the order of their actions, as the released code records them."""
    order = np.lexsort((logs.action, logs.instance))
    return dataclasses.replace(logs, context=logs.context[order], action=logs.action[order], reward=logs.reward[order])


LEARNERS: dict[str, AbstractLearner] = {
    PAPER: LatentLearner(_paper),
    PAPER_WIDE: LatentLearner(lambda setting, effort: _paper(setting, effort, width=2)),
    OURS: LatentLearner(_ours, MLPRewardRecipe.decayed(), seconds=2.0),
    PLAIN_FIT: PlainLearner(),
    VAE: LatentLearner(_vae, seconds=2.5),
    VAE_RELEASED: LatentLearner(lambda setting, effort: released_vae_recipe(setting.layers).shortened(effort)),
    REGRESSION: RecurrentLearner(lambda logs: logs, seconds=9.0),
    REGRESSION_SORTED: RecurrentLearner(_sorted_by_action),
    MEAN_CONTEXTS: ReferenceLearner(lambda *_: IdentityEncoder()),
    TRUE_ENCODER: ReferenceLearner(lambda setting, seed: setting.oracle(seed).encoder),
}
"""Every learner by its name: networks, then no network at all, and the limit of any network."""
