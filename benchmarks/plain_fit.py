"""How often a plain `fit`, which is told nothing, names the best action for people it has not seen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measuring import Measured, Rows, Target
from ilb import fit, reference_models, score_model
from ilb.environments import Adcb, Specification, Synthetic
from ilb.environments.specification import AbstractDescription
from ilb.estimates import Estimate
from ilb.offline.scores import Truth

SEEDS = range(40, 46)
"""Worlds that served for no choice of a default, but for one: a model must know something of newcomers."""


@dataclass(frozen=True)
class Setting:
    """A kind of world, and what is to be reached: % best, or the share of what the true encoder has."""

    name: str
    world: AbstractDescription
    at_least: float = 0.0
    share: float = 0.0


SETTINGS = (
    *(
        Setting(f"ADCB, {rewards} rewards, noise {noise}{said}", Adcb(noise, rewards, context), at_least)
        for rewards, at_least in (("printed", 97.0), ("released", 89.0))
        for noise in (0.02, 0.1)
        for context, said in (("nine", ""), ("without_age", ", no Age"))
    ),
    Setting("L = 2", Synthetic(), share=0.99),
    Setting("L = 4", Synthetic(layers=4), share=0.985),
    Setting("d = 7, n = 4, L = 3, K = 35", Synthetic(latent_dim=4, context_dim=7, layers=3, actions=35), share=0.98),
)


def measure_plain_fits(say: Callable[[str], None]) -> Measured:
    """Fit with all defaults, and score whole histories of contexts as the paper does."""
    rows: Rows = []
    targets: list[Target] = []
    for setting in SETTINGS:
        say(setting.name)
        names: dict[str, list[float]] = {"ilb.fit": [], "mean contexts": [], "oracle": []}
        chosen: Counter[str] = Counter()
        seconds = 0.0
        for seed in SEEDS:
            recorded = Specification(setting.world, seed=seed).record()
            logs, test = recorded.training.logs, recorded.test
            began = time.process_time()
            with threadpool_limits(1):
                model = fit(logs, seed=seed)
            seconds += time.process_time() - began
            assert model.provenance is not None
            chosen[next(row["candidate"] for row in model.provenance.choice if row["chosen"])] += 1
            encoder = recorded.world.oracle().encoder if setting.share else None
            models = {**reference_models(logs, encoder), "ilb.fit": model}
            truth = Truth(test.latents, test.mean_rewards)
            for name in names.keys() & models.keys():
                best = score_model(models[name], test.logs, truth).best_action
                assert best is not None
                names[name].append(100 * best.value)
        scores = {name: Estimate.of(np.array(values)) for name, values in names.items() if values}
        for name, score in scores.items():
            row = {"setting": setting.name, "model": name, "best_action": score.value}
            row |= {"best_action_se": score.standard_error, "worlds": len(SEEDS)}
            if name == "ilb.fit":
                row |= {"chosen": "; ".join(f"{one} ({n})" for one, n in chosen.most_common())}
                row |= {"cpu_seconds_a_fit": seconds / len(SEEDS)}
            rows.append(row)
        ours = scores["ilb.fit"].value
        if setting.share:
            said = f"{setting.name}: % best, share of the oracle's"
            targets.append(Target(said, ours / scores["oracle"].value, at_least=setting.share))
        else:
            targets.append(Target(f"{setting.name}: % best", ours, at_least=setting.at_least))
    return rows, targets
