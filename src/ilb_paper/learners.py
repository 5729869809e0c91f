"""Learners: the ways to turn logs into something that decides, by the names that the tables and figures use."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.networks import IdentityEncoder
from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.vae import GaussianLikelihood, VAERecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.fit import complete_model, fit_many, refit_rewards
from ilb.offline.regression import RegressionRecipe, fit_regression_many, score_regression
from ilb.offline.rewards.mlp import MLPRewardRecipe
from ilb.offline.rewards.recipe import LinearRewardRecipe, RewardRecipe
from ilb.offline.scaling import MinMax, Scaling, Standardised, Whitened
from ilb.offline.scores import FitScores, Truth, score_model
from ilb.offline.training import Schedule
from ilb.types import Encoder
from ilb_paper.released import released_vae_recipe
from ilb_paper.settings import Adcb, Recorded, Setting, Synthetic

Fitted = LatentModel | RecurrentRegression

PAPER, PAPER_WIDE, OURS, VAE, REGRESSION = "LVM (paper)", "LVM (released width)", "LVM (ours)", "VAE", "Regression"
VAE_RELEASED, REGRESSION_SORTED = "VAE (released)", "Regression (sorted actions)"
MEAN_CONTEXTS, TRUE_ENCODER = "mean contexts", "true encoder"
PREFIXES: tuple[Literal["full", "all"], ...] = ("full", "all")


@dataclass(frozen=True)
class Learned:
    """What came of learning: one model and its scores for each seed, and the CPU seconds that all took together.

    `prefix_scores` are those of the regression averaged over all prefixes of a history, as its authors report it.
    """

    models: list[Fitted]
    scores: list[FitScores]
    cpu_seconds: float
    prefix_scores: list[FitScores] | None = None


def learn(
    name: str,
    setting: Setting,
    recorded: Sequence[Recorded],
    seeds: Sequence[int],
    effort: float = 1.0,
    encoded: Sequence[Fitted] = (),
) -> Learned:
    """Fit one model for each seed on the logs of its world, and score each on its test logs.

    `effort` below 1 shortens the training by that factor, for a look in passing. `encoded` are models with the encoders
    that the training would give, from `setting.contexts()`; it is left out then.
    """
    logs = [r.training.logs for r in recorded]
    recipe = recipe_of(name, setting, effort)
    began = time.process_time()
    if name in RECURRENT:
        recurrent = fit_regression_many([RECURRENT[name](table) for table in logs], recipe=recipe, seeds=seeds)
        spent = time.process_time() - began
        _refuse_interrupted(recurrent)
        scores, prefix_scores = (
            [score_regression(m, r.test.logs, _truth(r), prefix) for m, r in zip(recurrent, recorded, strict=True)]
            for prefix in PREFIXES
        )
        return Learned(list(recurrent), scores, spent, prefix_scores)
    if name in REFERENCES:
        encoders = [REFERENCES[name](setting, seed) for seed in seeds]
        models = [complete_model(encoder, table) for encoder, table in zip(encoders, logs, strict=True)]
    else:
        reward = reward_of(name, setting, effort)
        latent = [model for model in encoded if isinstance(model, LatentModel)]
        models = (
            refit_rewards(latent, logs, reward=reward, seeds=seeds)
            if latent
            else fit_many(logs, latent_dim=setting.latent_dim, recipe=recipe, reward=reward, seeds=seeds)
        )
    _refuse_interrupted(models)
    spent = time.process_time() - began
    scores = [
        score_model(m, r.test.logs, _truth(r), (r.training.logs, Truth(r.training.latents, r.training.mean_rewards)))
        for m, r in zip(models, recorded, strict=True)
    ]
    return Learned(list(models), scores, spent)


def _refuse_interrupted(models: Sequence[Fitted]) -> None:
    """Pass a Ctrl-C on: what training gives back then is good for a user, but is not the outcome of a task."""
    if any(model.provenance is not None and model.provenance.interrupted for model in models):
        raise KeyboardInterrupt


def recipe_of(name: str, setting: Setting, effort: float) -> Any:
    """Give the recipe of a learner in a setting; references have none."""
    if name in REFERENCES:
        return None
    if name in RECURRENT:
        whole: Any = RegressionRecipe(layers=_layers(setting), scaling=_regression_scaling(setting))
    else:
        whole = ENCODERS[name](setting)
    return _shortened(whole, effort)


def _truth(recorded: Recorded) -> Truth:
    return Truth(recorded.test.latents, recorded.test.mean_rewards)


def _layers(setting: Setting) -> int:
    """As in the paper, networks have as many layers as the emission; those for ADCB have two unless it says more."""
    return setting.layers if isinstance(setting, Synthetic | Adcb) else 2


def _ours(setting: Setting) -> EncoderRecipe:
    tied = TiedRecipe() if _layers(setting) < 4 else TiedRecipe.deep()
    # Part of ADCB's contexts never varies within a patient, and the library warns of it; rewards depend on one number.
    return WithContexts(tied, encoding_dim=1) if isinstance(setting, Adcb) else tied


def _vae(setting: Setting) -> EncoderRecipe:
    if isinstance(setting, Adcb):
        return VAERecipe(layers=_layers(setting), scaling=MinMax(), likelihood=GaussianLikelihood(0.03))
    return VAERecipe(layers=_layers(setting))


def _scaling(setting: Setting) -> Scaling:
    """As in the released code, contexts are whitened, and those of ADCB are scaled to [0, 1]."""
    return MinMax() if isinstance(setting, Adcb) else Whitened()


def _regression_scaling(setting: Setting) -> Scaling:
    return Standardised() if isinstance(setting, Adcb) else Whitened()


ENCODERS: dict[str, Callable[[Setting], EncoderRecipe]] = {
    PAPER: lambda setting: PaperRecipe(layers=_layers(setting), scaling=_scaling(setting)),
    PAPER_WIDE: lambda setting: PaperRecipe(layers=_layers(setting), width=2, scaling=_scaling(setting)),
    OURS: _ours,
    VAE: _vae,
    VAE_RELEASED: lambda setting: released_vae_recipe(_layers(setting)),
}
"""How each learner of the tables gets its encoder."""


def _sorted_by_action(logs: Logs) -> Logs:
    """Put the rows of every instance in the order of their actions, as the released code records them."""
    order = np.lexsort((logs.action, logs.instance))
    return dataclasses.replace(logs, context=logs.context[order], action=logs.action[order], reward=logs.reward[order])


RECURRENT: dict[str, Callable[[Logs], Logs]] = {REGRESSION: lambda logs: logs, REGRESSION_SORTED: _sorted_by_action}
"""The regression of rewards on histories, and what histories it is trained on; it is scored on those as they come."""


def reward_of(name: str, setting: Setting, effort: float) -> RewardRecipe:
    """Rewards that are not linear in z get a network, as in app:nonlinear_reward; ours has a heavier decay."""
    if not isinstance(setting, Synthetic) or setting.reward == "linear":
        return LinearRewardRecipe()
    recipe: RewardRecipe = _shortened(MLPRewardRecipe.decayed() if name == OURS else MLPRewardRecipe(), effort)
    return recipe


REFERENCES: dict[str, Callable[[Setting, int], Encoder]] = {
    MEAN_CONTEXTS: lambda *_: IdentityEncoder(),
    TRUE_ENCODER: lambda setting, seed: setting.oracle(seed).encoder,
}
"""Encoders that nobody has to learn: no network at all, and the limit of any network."""


def _shortened(recipe: Any, effort: float) -> Any:
    """Give a recipe whose trainings have `effort` times the steps."""
    if effort >= 1:
        return recipe
    if isinstance(recipe, WithContexts):
        return dataclasses.replace(recipe, recipe=_shortened(recipe.recipe, effort))
    changed: dict[str, Any] = {
        part.name: dataclasses.replace(
            training,
            steps=max(1, round(training.steps * effort)),
            score_every=max(1, round(training.score_every * effort)),
        )
        for part in dataclasses.fields(recipe)
        if isinstance(training := getattr(recipe, part.name), Schedule)
    }
    if isinstance(recipe, VAERecipe):
        changed["epochs"] = max(1, round(recipe.epochs * effort))
    return dataclasses.replace(recipe, **changed)
