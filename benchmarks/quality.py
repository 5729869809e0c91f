"""How good the encoders are: ten worlds, beside the paper's table and the oracle on the same worlds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measuring import Measured, Rows, Target
from ilb import LatentModel, PaperRecipe, TiedRecipe, fit_many, reference_models, score_model
from ilb.environments import Recorded, Recording, Specification, Synthetic
from ilb.estimates import standard_error
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.scores import FitScores, Truth

WORLDS = 10


@dataclass(frozen=True)
class Setting:
    """A kind of world, what the paper says of it, and what is to be reached."""

    name: str
    world: Synthetic
    share_of_oracle: float
    reward_r2: float | None = None
    paper: tuple[float, float] | None = None


SETTINGS = (
    Setting("L = 2", Synthetic(), 0.985, 0.79, (84, 0.78)),
    Setting("L = 4", Synthetic(layers=4), 0.975, 0.785, (80, 0.75)),
    Setting("d = 7, n = 4, L = 3, K = 35", Synthetic(latent_dim=4, context_dim=7, layers=3, actions=35), 0.95),
)


def measure_quality(say: Callable[[str], None], worlds: int = WORLDS) -> Measured:
    """Fit and score every recipe in every setting; return the rows of a table and the targets with what came."""
    rows: Rows = []
    targets: list[Target] = []
    for setting in SETTINGS:
        recorded = [Specification(setting.world, seed=seed).record() for seed in range(worlds)]
        truths = [_truth(r.test) for r in recorded]
        lines: dict[str, tuple[list[FitScores], float, float]] = {}
        recipes: dict[str, EncoderRecipe] = {
            # As in the paper, the network grows with the emission.
            "ours (tied)": TiedRecipe() if setting.world.layers < 4 else TiedRecipe.deep(),
            "paper's recipe, printed width n": PaperRecipe(layers=setting.world.layers),
            "paper's recipe, released width 2n": PaperRecipe(layers=setting.world.layers, width=2),
        }
        for name, recipe in recipes.items():
            say(f"{setting.name}: {name}")
            models, cold = _timed_fit(recorded, setting, recipe)
            warm = float("nan")
            if isinstance(recipe, TiedRecipe):
                models, warm = _timed_fit(recorded, setting, recipe)
            lines[name] = (_score(models, recorded, truths), cold, warm)
        for name in ("oracle", "mean contexts", "best on average"):
            references = [reference_models(r.training.logs, r.world.oracle().encoder)[name] for r in recorded]
            lines[name] = (_score(references, recorded, truths), float("nan"), float("nan"))
        rows += [_row(setting, name, *line, worlds=worlds) for name, line in lines.items()]
        targets += _targets(setting, {row["model"]: row for row in rows if row["setting"] == setting.name})
    return rows, targets


def _timed_fit(
    recorded: Sequence[Recorded], setting: Setting, recipe: EncoderRecipe
) -> tuple[list[LatentModel], float]:
    began = time.process_time()
    dim = setting.world.latent_dim
    logs = [r.training.logs for r in recorded]
    models = fit_many(logs, latent_dim=dim, recipe=recipe, seeds=range(len(logs)))
    return models, time.process_time() - began


def _truth(recording: Recording) -> Truth:
    return Truth(recording.latents, recording.mean_rewards)


def _score(models: Sequence[LatentModel], recorded: Sequence[Recorded], truths: Sequence[Truth]) -> list[FitScores]:
    return [
        score_model(model, r.test.logs, truth, (r.training.logs, _truth(r.training)))
        for model, r, truth in zip(models, recorded, truths, strict=True)
    ]


def _row(
    setting: Setting, name: str, scores: Sequence[FitScores], cold: float, warm: float, *, worlds: int
) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": setting.name, "model": name, "worlds": worlds}
    for field, scale in (("best_action", 100), ("reward_r2", 1), ("mcc", 1), ("affine_mcc", 1), ("affine_r2", 1)):
        values = np.array([getattr(s, field).value for s in scores if getattr(s, field) is not None])
        if len(values) == len(scores):
            row[field] = scale * float(values.mean())
            row[f"{field}_se"] = scale * float(standard_error(values))
    if np.isfinite(cold):
        row["cpu_seconds_a_seed_with_compiling"] = cold / worlds
    if np.isfinite(warm):
        row["cpu_seconds_a_seed"] = warm / worlds
    return row


def _targets(setting: Setting, rows: dict[str, dict[str, Any]]) -> list[Target]:
    ours, oracle = rows["ours (tied)"], rows["oracle"]
    share = ours["best_action"] / oracle["best_action"]
    targets = [Target(f"{setting.name}: % best, share of the oracle's", share, at_least=setting.share_of_oracle)]
    if setting.reward_r2 is not None:
        targets.append(Target(f"{setting.name}: reward R²", ours["reward_r2"], at_least=setting.reward_r2))
    if setting.paper is not None:
        best, r2 = setting.paper
        for reading in ("paper's recipe, printed width n", "paper's recipe, released width 2n"):
            row = rows[reading]
            targets += [
                Target(
                    f"{setting.name}: {reading}, % best against the paper's {best}",
                    abs(row["best_action"] - best),
                    at_most=4,
                ),
                Target(
                    f"{setting.name}: {reading}, R² against the paper's {r2}", abs(row["reward_r2"] - r2), at_most=0.02
                ),
            ]
    if setting.world.layers == 2:
        targets.append(Target("L = 2: CPU seconds a seed, ten at once", ours["cpu_seconds_a_seed"], at_most=2))
    return targets
