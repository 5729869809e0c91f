"""How often stated intervals hold, and how often what is "best with probability 0.7" is best: `make bench-coverage`.

A world is drawn for each seed and a model fitted to its logs with the defaults of `fit`. New people are played by the
adaptive policy; after 0, 1, 5, … rounds the true mean reward of every action is held against what is believed of it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import typer
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray
from rich.console import Console
from rich.progress import track

from benchmarks.measuring import RESULTS, Rows, Target, table_of_targets
from ilb.environments import AbstractDescription, AbstractEnvironment, Adcb, FewTypes, Plan, Synthetic, perturb
from ilb.environments.perturbed import AbstractPerturbation
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.offline.encoders.plain import NoEncoding
from ilb.offline.fit import fit
from ilb.online.adaptive import adaptive
from ilb.online.policy import AbstractPolicy, probability_best
from ilb.simulation import Rounds, draw_rounds, play_keys
from ilb.streams import Stream, round_key
from ilb.types import Step
from ilb.version import __version__

STANDARD = Synthetic()
LOGGED = Plan(test_instances=0)
AFTER = (0, 1, 5, 20, 100, 500, 2000)
LEVELS = (0.5, 0.8, 0.95)
BINS = np.linspace(0, 1, 11)
FIRST_SEED = 3000


def _without_encoder(logs: Logs) -> LatentModel:
    return fit(logs, recipe=NoEncoding())


def _with_rare_actions(logs: Logs) -> LatentModel:
    """Keep one in twenty of the rows with the first five actions."""
    table = logs.to_frame("pyarrow")
    kept = np.random.default_rng(0).random(logs.rows) < np.where(logs.action < 5, 0.05, 1.0)
    return fit(Logs.from_frame(table.filter(pyarrow.array(kept)), schema=logs.schema))


@dataclass(frozen=True)
class Setting:
    """A world and what is always different in it, its logs, and how the model is learned from them."""

    name: str
    world: AbstractDescription = STANDARD
    plan: Plan = LOGGED
    always: tuple[AbstractPerturbation, ...] = ()
    learn: Callable[[Logs], LatentModel] = fit


SETTINGS = (
    Setting("standard"),
    Setting("T = 20", plan=Plan(length=20, test_instances=0)),
    Setting("T = 5", plan=Plan(instances=400, length=5, test_instances=0)),
    Setting("rare actions", learn=_with_rare_actions),
    Setting("rewards only", learn=_without_encoder),
    Setting("five types", always=(FewTypes(5),)),
    Setting("ADCB", Adcb()),
)


class Believed(NamedTuple):
    """Of every action: where the truth lies in what is believed, from 0 to 1; the stated chance to be best; the truth.

    Time comes first, then people.
    """

    place: Float[Array, "*batch K"]
    best_with: Float[Array, "*batch K"]
    is_best: Float[Array, "*batch K"]


@eqx.filter_jit
def follow(key: PRNGKeyArray, policy: AbstractPolicy, rounds: Rounds, numbers: Int[Array, " people"]) -> Believed:
    """Play people, and look at what is believed after each number of rounds; time comes first."""
    everything = jnp.ones(rounds.rewards.shape[-1], dtype=bool)

    def person(number: Int[Array, ""], drawn: Rounds) -> Believed:
        key_decisions = play_keys(key, number).decisions

        def one_round(t: Int[Array, ""], state: Any) -> Any:
            state, choice = policy.decide(round_key(key_decisions, t), state, drawn.contexts[t], everything)
            reward = drawn.rewards[t, choice.action]
            return policy.learn(state, Step(drawn.contexts[t], choice.action, reward, t))

        def look(state: Any, context: Float[Array, " d"]) -> Believed:
            rewards, truth = policy.rewards(state, context), drawn.mean_rewards[0]
            outlook = rewards.outlook()
            place = jnp.sum(outlook.weights * norm.cdf((truth[None] - outlook.means) / outlook.stds), axis=0)
            return Believed(place, probability_best(rewards, everything), (truth == truth.max()).astype(float))

        state, before, seen = policy.init(), 0, []
        for after in AFTER:
            state = jax.lax.fori_loop(before, after, one_round, state)
            seen.append(look(state, drawn.contexts[max(after - 1, 0)]))
            before = after
        stacked: Believed = jax.tree.map(lambda *parts: jnp.stack(parts), *seen)
        return stacked

    believed: Believed = jax.vmap(person, in_axes=(0, 1), out_axes=1)(numbers, rounds)
    return believed


def measure(setting: Setting, seeds: list[int], people: int) -> Believed:
    found = []
    for seed in seeds:
        world: AbstractEnvironment = perturb(Stream.PERTURBATION.key(seed), setting.world.draw(seed), setting.always)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = setting.learn(setting.plan.record(seed, world).training.logs).on_raw_contexts()
        key, numbers = Stream.PLAYING.key(seed), jnp.arange(people)
        rounds = eqx.filter_jit(draw_rounds)(key, world, numbers, AFTER[-1])
        found.append(follow(key, adaptive(model), rounds, numbers))
    return Believed(*(jnp.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))


def summarise(setting: str, worlds: int, believed: Believed) -> Rows:
    """Average over actions and people; the standard error is over people, and does not know that worlds differ."""
    rows: Rows = []
    for number, place in zip(AFTER, np.asarray(believed.place), strict=True):
        row: dict[str, Any] = {"setting": setting, "after": number, "worlds": worlds, "people": len(place)}
        for level in LEVELS:
            inside = np.mean(np.abs(place - 0.5) <= level / 2, axis=1)
            row[f"in_{level:g}"] = round(float(inside.mean()), 4)
            row[f"in_{level:g}_se"] = round(float(inside.std(ddof=1) / np.sqrt(len(inside))), 4)
        rows.append(row)
    return rows


def reliability(believed: Believed) -> Rows:
    """Of the actions that are best with a stated probability: how many are."""
    stated, true = np.ravel(believed.best_with), np.ravel(believed.is_best)
    rows: Rows = []
    for low, high in pairwise(BINS):
        some = (stated >= low) & (stated <= high if high == 1 else stated < high)
        if some.sum() >= 20:
            rows.append(
                {
                    "stated": round(float(stated[some].mean()), 4),
                    "true": round(float(true[some].mean()), 4),
                    "count": int(some.sum()),
                }
            )
    return rows


def draw_figure(curves: dict[str, Rows]) -> None:
    from matplotlib.figure import Figure

    from ilb.plots.regret import save_figure

    figure = Figure(figsize=(4.6, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
    for name, rows in curves.items():
        axes.plot([row["stated"] for row in rows], [row["true"] for row in rows], marker="o", markersize=3, label=name)
    axes.set(xlabel="stated probability that an action is best", ylabel="share of them that is best")
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, RESULTS / "reliability.png")


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Settings; all without any.")] = None,
    worlds: Annotated[int, typer.Option(help="Worlds for each setting.")] = 2,
    people: Annotated[int, typer.Option(help="People in each world.")] = 150,
    record: Annotated[bool, typer.Option(help="Write the results into docs/results.")] = False,
) -> None:
    """Measure coverage and reliability."""
    chosen = [setting for setting in SETTINGS if not names or setting.name in names]
    rows: Rows = []
    curves: dict[str, Rows] = {}
    for setting in track(chosen, console=Console(stderr=True)):
        believed = measure(setting, list(range(FIRST_SEED, FIRST_SEED + worlds)), people)
        rows += summarise(setting.name, worlds, believed)
        curves[setting.name] = reliability(believed)
        print(json.dumps(rows[-len(AFTER) :]), flush=True)
    targets = [
        Target(
            f"{row['setting']}, after {row['after']}: off by, at {level:g}",
            abs(row[f"in_{level:g}"] - level),
            at_most=0.02,
        )
        for row in rows
        for level in LEVELS
    ]
    Console().print(table_of_targets(targets))
    if record:
        path = RESULTS / "coverage.json"
        before = json.loads(path.read_text()) if path.exists() else {"coverage": [], "reliability": {}}
        kept = [row for row in before["coverage"] if row["setting"] not in curves]
        curves = {**before["reliability"], **curves}
        result = {"version": __version__, "coverage": kept + rows, "reliability": curves}
        path.write_text(json.dumps(result, indent=1) + "\n")
        draw_figure(curves)


if __name__ == "__main__":
    typer.run(main)
