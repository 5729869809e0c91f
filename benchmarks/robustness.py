"""Every policy where the model is right and where it is wrong: `make bench-robust`.

A world is drawn for each seed and a model fitted with the defaults of `fit` to its logs; then new people are played,
the same for every policy. What is done is kept (`--keep`): a run that was stopped goes on, and more worlds or policies
add to it. Policies that were not played this time stay as they were recorded.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.measuring import RESULTS, Rows, Target, table_of_targets
from ilb.environments import (
    AbstractEnvironment,
    Adcb,
    ChangedAction,
    IrrelevantModel,
    OwnEffects,
    Plan,
    SuddenChanges,
    Synthetic,
    Wandering,
)
from ilb.environments.perturbed import AbstractPerturbation, ContextNoise, OtherNoise, Shift
from ilb.environments.specification import AbstractDescription
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.offline.encoders.plain import NoEncoding
from ilb.offline.fit import complete_model, fit
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.version import __version__

ROUNDS = (20, 100, 500, 1000, 2000)
PAPER = ("CPG", "FPG", "FPG (released)", "FPG-TS", "FPG-TS (released)")
OURS = ("Calibrated", "Adaptive")
SCRATCH = ("MAB", "MAB (centred)")
ROBUST = ("HierTS", "MIN-UCB (model)", "ProBALL-UCB", "Regret balancing")
POLICIES = (*PAPER, *OURS, *SCRATCH, *ROBUST)
FIRST_SEED = 2000
"""Worlds 1000 and 1001 served while the policy was made."""


STANDARD = Synthetic()
LOGGED = Plan(test_instances=0)
SHORT = Plan(instances=400, length=5, test_instances=0)
CONFOUNDED = Plan(confounding=1.0, test_instances=0)


Learn = Callable[[AbstractEnvironment, Logs], LatentModel]


def learn_all(world: AbstractEnvironment, logs: Logs) -> LatentModel:
    """Fit with all defaults."""
    del world
    return fit(logs).on_raw_contexts()


def learn_rewards_alone(world: AbstractEnvironment, logs: Logs) -> LatentModel:
    """Fit without an encoder: nothing is known of a person but their rewards."""
    del world
    return fit(logs, recipe=NoEncoding()).on_raw_contexts()


def know_the_encoder(world: AbstractEnvironment, logs: Logs) -> LatentModel:
    """Take the true encoder, and estimate all else."""
    return complete_model(world.oracle().encoder, logs, reward=PersonRewardRecipe(0))


def know_everything(world: AbstractEnvironment, logs: Logs) -> LatentModel:
    """Take the true model."""
    del logs
    return world.oracle()


@dataclass(frozen=True)
class Setting:
    """A world and its logs, and what is different when policies are played."""

    name: str
    world: AbstractDescription = STANDARD
    plan: Plan = LOGGED
    playing: tuple[AbstractPerturbation, ...] = ()
    always: tuple[AbstractPerturbation, ...] = ()
    learn: Learn = learn_all

    @property
    def logged(self) -> tuple[AbstractDescription, Plan, tuple[AbstractPerturbation, ...], Learn]:
        """What a model is fitted to, and how; settings that share it share the model."""
        return self.world, self.plan, self.always, self.learn


def _adcb(noise: float, rewards: str, context: str = "nine") -> AbstractDescription:
    return Adcb(latent_noise_std=noise, rewards=rewards, context=context)


SETTINGS = (
    Setting("standard"),
    Setting("Laplace noise in play", playing=(OtherNoise("laplace"),)),
    Setting("uniform noise in play", playing=(OtherNoise("uniform"),)),
    Setting("Laplace world", Synthetic(noise="laplace")),
    Setting("uniform world", Synthetic(noise="uniform")),
    *(Setting(f"context noise {std}", playing=(ContextNoise(std),)) for std in (0.25, 0.5, 1.0)),
    *(Setting(f"shift {size:g} by norm", playing=(Shift(size),)) for size in (1.0, 2.0, 4.0)),
    *(Setting(f"shift {size:g} by coordinate", playing=(Shift(size, "coordinate"),)) for size in (1.0, 2.0, 4.0)),
    Setting("K = 10", Synthetic(actions=10)),
    Setting("K = 50", Synthetic(actions=50)),
    Setting("reward std 1", Synthetic(reward_std=1.0)),
    Setting("reward std 2", Synthetic(reward_std=2.0)),
    Setting("L = 4", Synthetic(layers=4)),
    Setting("nonlinear rewards", Synthetic(reward="leaky")),
    *(
        Setting(f"ADCB {noise} {rewards}", _adcb(noise, rewards))
        for noise in (0.02, 0.1)
        for rewards in ("printed", "released")
    ),
    *(
        Setting(f"ADCB 0.1 {rewards}, no Age", _adcb(0.1, rewards, "without_age"))
        for rewards in ("printed", "released")
    ),
    Setting("confounded logging", plan=CONFOUNDED),
    Setting("short logs (T = 5)", plan=SHORT),
    Setting("own effects, sd 0.5", playing=(OwnEffects(0.5),)),
    Setting("irrelevant model", playing=(IrrelevantModel(),)),
    Setting("one action better by 1", playing=(ChangedAction(0, 1.0),)),
    Setting("one action better by 2", playing=(ChangedAction(0, 2.0),)),
    Setting("one action worse by 2", playing=(ChangedAction(0, -2.0),)),
    Setting("people wander", always=(Wandering(0.01),)),
    Setting("people change suddenly", always=(SuddenChanges(0.01),)),
    Setting("people begin to wander", playing=(Wandering(0.01),)),
    Setting("rewards only", learn=learn_rewards_alone),
)
LIMITS = (
    Setting("standard, true encoder", learn=know_the_encoder),
    Setting("standard, true model", learn=know_everything),
)
"""What better encoders, or better everything, would bring in the standard world; not judged."""


def play_model(settings: Sequence[Setting], seed: int, people: int, policies: Sequence[str], keep: Path) -> None:
    """Fit one model, and play all settings that share it, with the policies that have not been."""
    from ilb.environments.perturbed import perturb
    from ilb.offline.baselines import prepare_ingredients
    from ilb.online.roster import build_policy
    from ilb.simulation import simulate
    from ilb.streams import Stream

    warnings.simplefilter("ignore")
    world, plan, always, learn = settings[0].logged
    drawn = perturb(Stream.PERTURBATION.key(seed), world.draw(seed), always)
    logs = plan.record(seed, drawn).training.logs
    given = prepare_ingredients(learn(drawn, logs), logs)
    for setting in settings:
        played = perturb(Stream.PERTURBATION.key(seed), drawn, setting.playing)
        path = _place(keep, setting, seed, people)
        outcome = _played(path)
        for name in policies:
            if name in outcome:
                continue
            history = simulate(Stream.PLAYING.key(seed), played, build_policy(given, name), people, max(ROUNDS))
            regret = history.cumulative_regret()[:, np.array(ROUNDS) - 1]
            outcome[name] = regret.round(4).tolist()
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(outcome))
        draft.rename(path)


def _place(keep: Path, setting: Setting, seed: int, people: int) -> Path:
    slug = "".join(letter if letter.isalnum() else "-" for letter in setting.name)
    return keep / f"{slug}-{seed}-{people}.json"


def _played(path: Path) -> dict[str, Any]:
    """Read what each policy lost in a setting, of those that were played."""
    outcome: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return outcome


def summarise(
    settings: Iterable[Setting], seeds: Iterable[int], people: int, policies: Sequence[str], keep: Path
) -> Rows:
    """Average over all people of all worlds that were played; standard errors are over people."""
    rows: Rows = []
    seeds = list(seeds)
    for setting in settings:
        outcomes = [_played(_place(keep, setting, seed, people)) for seed in seeds]
        for name in policies:
            played = [np.array(outcome[name]) for outcome in outcomes if name in outcome]
            if not played:
                continue
            regret = np.concatenate(played)
            errors = regret.std(axis=0, ddof=1) / np.sqrt(len(regret))
            row: dict[str, Any] = {
                "setting": setting.name,
                "policy": name,
                "worlds": len(played),
                "people": len(regret),
            }
            for number, value, error in zip(ROUNDS, regret.mean(axis=0), errors, strict=True):
                row |= {f"regret_{number}": round(float(value), 3), f"regret_{number}_se": round(float(error), 3)}
            rows.append(row)
    return rows


def beside_recorded(rows: Rows, settings: Iterable[Setting]) -> Rows:
    """Put the rows among those that were recorded, in the usual order; what was not played stays as it was."""
    path = RESULTS / "robustness.json"
    before: Rows = json.loads(path.read_text())["robustness"] if path.exists() else []
    by = {(row["setting"], row["policy"]): row for row in (*before, *rows)}
    return [by[key] for setting in settings for name in POLICIES if (key := (setting.name, name)) in by]


def judge(rows: Rows) -> list[Target]:
    """Hold the adaptive policy against the paper's best, and against a bandit from scratch."""
    by = {(row["setting"], row["policy"]): row for row in rows}
    names = list(dict.fromkeys(row["setting"] for row in rows))
    targets = []
    for number, most in ((20, 1.3), (100, 1.25), (500, 1.25), (2000, 1.25)):
        key = f"regret_{number}"
        level, ratios = 0, []
        for name in names:
            ours, best = by[name, "Adaptive"], min((by[name, policy] for policy in PAPER), key=lambda row: row[key])
            level += ours[key] <= best[key] + np.hypot(ours[f"{key}_se"], best[f"{key}_se"])
            ratios.append(ours[key] / best[key])
        worst = names[int(np.argmax(ratios))]
        if number > 20:
            targets.append(
                Target(
                    f"round {number}: share of settings level with the paper's best", level / len(names), at_least=0.9
                )
            )
        targets.append(Target(f"round {number}: worst ratio to the paper's best ({worst})", max(ratios), at_most=most))
    for name in names:
        ours, scratch = (
            by[name, "Adaptive"],
            min((by[name, policy] for policy in SCRATCH), key=lambda row: row["regret_2000"]),
        )
        ratio = ours["regret_2000"] / scratch["regret_2000"]
        most = 1.5 if "better" in name else 1.2
        if ratio > 0.5 or "better" in name:
            targets.append(Target(f"{name}: round 2000, ratio to a bandit from scratch", ratio, at_most=most))
    for name, most in (("standard", 5.0), ("shift 4 by coordinate", 15.0)):
        if name in names:
            targets.append(Target(f"{name}: regret at round 2000", by[name, "Adaptive"]["regret_2000"], at_most=most))
    return targets


def draw_figure(rows: Rows, path: Path) -> None:
    """Show where each policy breaks: its regret at round 2000 beside the least in the same setting."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    from ilb.plots.regret import save_figure

    names = list(dict.fromkeys(row["setting"] for row in rows))
    value = {(row["setting"], row["policy"]): row["regret_2000"] for row in rows}
    table = np.array([[value[name, policy] for policy in POLICIES] for name in names])
    figure = Figure(figsize=(10, 0.28 * len(names) + 1.6), layout="constrained")
    axes = figure.subplots()
    ratio = table / table.min(axis=1, keepdims=True)
    image = axes.imshow(ratio, norm=LogNorm(1, 30), cmap="YlOrRd", aspect="auto")
    for i, j in np.ndindex(table.shape):
        colour = "white" if ratio[i, j] > 10 else "black"
        text = f"{table[i, j]:.0f}" if table[i, j] >= 10 else f"{table[i, j]:.1f}"
        weight = "bold" if ratio[i, j] == 1 else "normal"
        axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour, fontweight=weight)
    axes.set_xticks(range(len(POLICIES)), POLICIES, rotation=40, ha="left", fontsize=8)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="times the least in the row", fraction=0.03, pad=0.01)
    axes.set_xlabel("mean cumulative regret after 2,000 rounds")
    save_figure(figure, path)


def main(
    only: Annotated[list[str] | None, typer.Argument(help="Settings whose name contains one of these words.")] = None,
    worlds: Annotated[int, typer.Option(help="Worlds of each setting.")] = 10,
    people: Annotated[int, typer.Option(help="New people in each world.")] = 300,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy to play, of all; others stay as recorded."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
    keep: Annotated[Path, typer.Option(help="Where what was played is kept.")] = Path(".bench-robust"),
    record: Annotated[bool, typer.Option(help="Write table and figure into docs/results.")] = False,
) -> None:
    """Play every policy in every setting, print the table, and say which figures were reached."""
    console = Console()
    policies = tuple(policy or POLICIES)
    if unknown := set(policies) - set(POLICIES):
        raise typer.BadParameter(f"there is no policy {', '.join(sorted(unknown))}; there are {', '.join(POLICIES)}.")
    chosen = [s for s in (*SETTINGS, *LIMITS) if not only or any(word in s.name for word in only)]
    seeds = range(FIRST_SEED, FIRST_SEED + worlds)
    missing: dict[tuple[Any, int], list[Setting]] = {}
    for seed in seeds:
        for setting in chosen:
            if set(policies) - set(_played(_place(keep, setting, seed, people))):
                missing.setdefault((setting.logged, seed), []).append(setting)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("models fitted and played", total=len(missing))
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            playing = [
                pool.submit(play_model, settings, seed, people, policies, keep)
                for (_, seed), settings in missing.items()
            ]
            for done in as_completed(playing):
                done.result()
                progress.advance(task)
    rows = summarise(chosen, seeds, people, policies, keep)
    if set(policies) != set(POLICIES):
        rows = beside_recorded(rows, chosen)
    for row in rows:
        figures = " ".join(f"{row[f'regret_{number}']:8.1f}" for number in ROUNDS)
        console.print(
            f"{row['setting']:28} {row['policy']:18} {figures}  ± {row['regret_2000_se']:.1f}", highlight=False
        )
    limits = {setting.name for setting in LIMITS}
    judged = [row for row in rows if row["setting"] not in limits]
    targets = judge(judged) if judged else []
    if targets:
        console.print(table_of_targets(targets))
    if record:
        rows = beside_recorded(rows, (*SETTINGS, *LIMITS))
        targets = judge([row for row in rows if row["setting"] not in limits])
        how = f"make bench-robust ARGS='--worlds {worlds} --people {people} --record'"
        kept = {"version": __version__, "command": how, "rounds": ROUNDS, "robustness": rows}
        kept["targets"] = [
            {"name": t.name, "value": round(t.value, 4), "bound": t.bound, "met": bool(t.met)} for t in targets
        ]
        (RESULTS / "robustness.json").write_text(json.dumps(kept, indent=1) + "\n")
        draw_figure(rows, RESULTS / "robustness.png")


if __name__ == "__main__":
    typer.run(main)
