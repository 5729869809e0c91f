"""Do the intervals of `ilb.evaluate` hold the truth? Simulated logs whose true gain is known, again and again.

    make bench-gain ARGS='--repeats 100 --record'

People choose uniformly, or as their latent state says (confounded by person), with 60 or 15 rows each. The truth is
what the very policies that were evaluated, one for each fold, bring new people of the same world in so many rounds:
fifty times as many as are in the logs, so that its own error is a seventh of that of an estimate.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import typer
from rich.console import Console

from benchmarks.measuring import RESULTS, Rows, Target, table_of, table_of_targets
from ilb.environments import ConfoundedLogging, SyntheticWorld, UniformLogging, draw_world, record
from ilb.environments.recording import LoggingRule
from ilb.logs import Logs
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.choice import Candidate, ModelChoice
from ilb.offline.encoders.plain import PlainContexts
from ilb.offline.fit import fit_candidate
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.online.roster import build_policy
from ilb.simulation import play_keys, simulate
from ilb.streams import Stream
from ilb.trust.crossfit import Fold, cross_fit
from ilb.trust.evaluation import Evaluation
from ilb.trust.gain import BANDIT, estimate_gain
from ilb.version import __version__

ACTIONS, LATENT_DIM, FOLDS, NEW_PEOPLE = 5, 3, 3, 10_000
LONGEST = 16
"""Rounds that new people are played for, and the longest horizon: more than are ever followed here."""

CHOICE = ModelChoice(Candidate("contexts", PlainContexts(), LATENT_DIM, PersonRewardRecipe()))
"""One kind of model, so that a fit takes a second; the emission is nonlinear, so it is not quite right."""


@dataclass(frozen=True)
class Setting:
    """How many people with how many rows, and how strongly the person decides what is done (0: not at all)."""

    name: str
    length: int
    strength: float
    people: int = 200

    def logging(self, seed: int) -> LoggingRule:
        if not self.strength:
            return UniformLogging(ACTIONS)
        weights = self.strength * jr.normal(jr.fold_in(Stream.LOGGING.key(seed), 1), (ACTIONS, LATENT_DIM))
        return ConfoundedLogging(weights, jnp.zeros((ACTIONS, LATENT_DIM)))


SETTINGS = (
    Setting("60 rows, uniform", 60, 0.0),
    Setting("60 rows, by person", 60, 0.6),
    Setting("15 rows, uniform", 15, 0.0),
    Setting("15 rows, by person", 15, 0.6),
)


def true_values(
    world: SyntheticWorld, logging: LoggingRule, folds: list[Fold], logs: Logs, policies: list[str], horizons: set[int]
) -> dict[int, dict[str, float]]:
    """Let the policies of all folds, and those who logged, meet the same new people, for each number of rounds."""
    key = Stream.TEST_LOGS.key(0)
    numbers = jnp.arange(NEW_PEOPLE)
    states = jax.vmap(lambda number: world.sample_instance(play_keys(key, number).instance))(numbers)
    means = jax.vmap(world.mean_rewards)(states)
    chances = jax.nn.softmax(jax.vmap(lambda z: logging(z, jnp.zeros(LATENT_DIM)))(states))
    done = float((chances * means).sum(axis=1).mean())
    single = float(np.mean([means[:, fold.best_action].mean() for fold in folds]))
    truth = {rounds: {"what was done": done, "the best single action": single} for rounds in horizons}
    best = float(means.max(axis=1).mean())
    for name in policies:
        regrets = []
        for fold in folds:
            others = logs.select(np.setdiff1d(np.arange(logs.instances), fold.people))
            policy = build_policy(prepare_ingredients(fold.model.on_raw_contexts(), others), name)
            history = simulate(key, world, policy, NEW_PEOPLE, LONGEST)  # one length, one program
            regrets.append(history.regret.mean(axis=0))
        for rounds in horizons:
            truth[rounds][name] = best - float(np.mean(regrets, axis=0)[:rounds].mean())
    return truth


def run(setting: Setting, seed: int, policy: str) -> dict[str, Any]:
    """Evaluate on logs of a world, and hold every number against the truth."""
    world = draw_world(jr.key(seed), latent_dim=LATENT_DIM, context_dim=LATENT_DIM, actions=ACTIONS)
    logging = setting.logging(seed)
    logs = record(Stream.TRAINING_LOGS.key(seed), world, logging, setting.people, setting.length).logs
    folds = cross_fit(logs, lambda others: fit_candidate(others, CHOICE, seed=seed), folds=FOLDS, seed=seed)
    evaluation = estimate_gain(folds, policy=policy, horizon=LONGEST, seed=seed)
    outcome: dict[str, Any] = {"rounds": evaluation.horizon.rounds, "followed": evaluation.horizon.followed}
    if evaluation.refusal is not None:
        return outcome
    horizons = {line.rounds for line in evaluation.lines}
    truth = true_values(world, logging, folds, logs, [policy, BANDIT], horizons)
    return outcome | {"lines": list(_held(evaluation, policy, truth))}


def _held(evaluation: Evaluation, policy: str, truth: dict[int, dict[str, float]]) -> list[dict[str, Any]]:
    held: dict[tuple[str, str], dict[str, Any]] = {}
    for line in evaluation.lines:
        if line.quantity.startswith("regret") or (line.quantity, line.estimator) in held:
            continue  # the second time it is over fewer decisions, for comparison
        kind, _, name = line.quantity.partition(" of " if line.quantity.startswith("value") else " over ")
        known = truth[line.rounds]
        true = 0.0 if not name else known[name] if kind == "value" else known[policy] - known[name]
        held[line.quantity, line.estimator] = {
            "quantity": line.quantity,
            "estimator": line.estimator,
            "rounds": line.rounds,
            "error": line.figure.value - true,
            "standard_error": line.figure.standard_error,
            "width": line.figure.high - line.figure.low,
            "holds": line.figure.holds(true),
        }
    return list(held.values())


def summarise(outcomes: dict[str, list[dict[str, Any]]]) -> Rows:
    """Give bias and coverage of each number in each setting."""
    rows: Rows = []
    for setting, runs in outcomes.items():
        said = [one for one in runs if "lines" in one]
        names = list(dict.fromkeys((line["quantity"], line["estimator"]) for one in said for line in one["lines"]))
        for quantity, estimator in names:
            lines = [
                line
                for one in said
                for line in one["lines"]
                if (line["quantity"], line["estimator"]) == (quantity, estimator)
            ]
            rows.append(
                {
                    "setting": setting,
                    "quantity": quantity,
                    "method": estimator,
                    "runs": len(runs),
                    "said": len(lines),
                    "rounds": float(np.mean([line["rounds"] for line in lines])),
                    "followed": float(np.mean([one["followed"] for one in said])),
                    "bias": float(np.mean([line["error"] for line in lines])),
                    "spread": float(np.std([line["error"] for line in lines])),
                    "standard_error": float(np.mean([line["standard_error"] for line in lines])),
                    "width": float(np.mean([line["width"] for line in lines])),
                    "covered": float(np.mean([line["holds"] for line in lines])),
                }
            )
    return rows


def main(
    only: Annotated[list[str] | None, typer.Argument(help="Settings whose name contains one of these words.")] = None,
    repeats: Annotated[int, typer.Option(help="Worlds of each setting.")] = 100,
    first: Annotated[int, typer.Option(help="The number of the first world.")] = 0,
    policy: Annotated[str, typer.Option(help="The policy that is evaluated.")] = "Adaptive",
    keep: Annotated[Path, typer.Option(help="Where outcomes are kept, so that a stopped run goes on.")] = Path(
        ".bench-gain"
    ),
    record: Annotated[bool, typer.Option(help="Write the table into docs/results.")] = False,
) -> None:
    """Evaluate again and again, and say how often the intervals hold the truth."""
    warnings.simplefilter("ignore")
    console, notes = Console(), Console(stderr=True)
    outcomes: dict[str, list[dict[str, Any]]] = {}
    keep.mkdir(exist_ok=True)
    chosen = [one for one in SETTINGS if not only or any(word in one.name for word in only)]
    for seed in range(first, first + repeats):
        for setting in chosen:
            path = keep / f"{setting.name}-{policy}-{seed}.json".replace(" ", "-")
            if not path.exists():
                path.write_text(json.dumps(run(setting, seed, policy)))
            outcomes.setdefault(setting.name, []).append(json.loads(path.read_text()))
        notes.print(f"· world {seed - first + 1} of {repeats}", highlight=False)
    rows = summarise(outcomes)
    console.print(table_of("gain", rows))
    targets = [
        Target(f"{row['setting']}: {row['quantity']} ({row['method']}), coverage", row["covered"], at_least=0.92)
        for row in rows
        if row["quantity"].startswith("gain")
    ]
    console.print(table_of_targets(targets))
    if record:
        worlds = f"--repeats {repeats}" + (f" --first {first}" if first else "")
        how = f"make bench-gain ARGS='{worlds} --policy {policy} --record'"
        kept: dict[str, Any] = {"version": __version__, "command": how, "policy": policy, "gain": rows}
        kept["targets"] = [
            {"name": one.name, "value": round(one.value, 4), "bound": one.bound, "met": bool(one.met)}
            for one in targets
        ]
        (RESULTS / "gain.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
