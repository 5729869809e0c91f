"""Do checks find what is wrong, and leave alone what is not? `python -m benchmarks.checks` (`make bench-checks`).

Small worlds with two hidden numbers, four contexts that are a nonlinear function of them, four actions: 120 people with
20 rows each. In each setting one assumption is broken, and a check has to say so; in clean worlds none may speak up.
Encoders are trained for a third of the usual steps.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer
from rich.console import Console

from benchmarks.measuring import RESULTS, Rows, Target, table_of, table_of_targets
from ilb import Logs, PersonRewardRecipe, TiedRecipe, fit
from ilb.environments import draw_world
from ilb.errors import IlbWarning
from ilb.streams import Stream
from ilb.trust.apart import check_fingerprints, check_people_apart
from ilb.trust.checking import CHECKS
from ilb.trust.checks import Check, Verdict
from ilb.trust.choices import check_choices, check_overlap
from ilb.trust.held_out import HeldOut
from ilb.trust.noise import check_noise
from ilb.trust.predictions import check_linearity
from ilb.trust.rounds import check_drift, check_later_contexts
from ilb.trust.state import check_dimensions
from ilb.version import __version__

PEOPLE, LENGTH, COLUMNS, ACTIONS = 120, 20, 4, 4
FIRST = 100
"""The number of the first world: bars were set while looking at those before it."""

RECIPE, REWARDS = TiedRecipe().shortened(1 / 3), PersonRewardRecipe(hidden=0)


@dataclass(frozen=True)
class People:
    """What happens by round: states, what is shown of them, what is done; and what each action pays for a state."""

    rng: np.random.Generator
    state: np.ndarray
    noise: np.ndarray
    weights: np.ndarray
    action: np.ndarray

    @property
    def shown(self) -> np.ndarray:
        return np.asarray(self.state + self.noise)

    @classmethod
    def draw(cls, seed: int, dim: int = 2) -> People:
        rng = np.random.default_rng([seed, 77])
        state = np.broadcast_to(rng.normal(size=(PEOPLE, 1, dim)), (PEOPLE, LENGTH, dim))
        weights = rng.normal(size=(dim, ACTIONS))
        action = rng.integers(ACTIONS, size=state.shape[:2])
        return cls(rng, state, rng.normal(size=state.shape), weights / np.linalg.norm(weights, axis=0), action)


@dataclass(frozen=True)
class Setting:
    """A way to be wrong, and the check that has to say so; none for clean worlds."""

    name: str
    caught_by: Callable[[HeldOut], Check] | None
    change: Callable[[People], People] = lambda people: people
    act: Callable[[People], np.ndarray] = lambda people: people.action
    pay: Callable[[People], np.ndarray] = lambda people: people.state @ people.weights
    reward_noise: Callable[[People], np.ndarray] = lambda people: people.rng.normal(size=people.state.shape[:2])
    finish: Callable[[Logs, np.random.Generator], Logs] = lambda logs, _: logs
    world_dim: int = 2
    latent_dim: int = 2

    def draw(self, seed: int) -> Logs:
        people = self.change(People.draw(seed, self.world_dim))
        action = self.act(people)
        means = np.take_along_axis(self.pay(people), action[..., None], axis=2)[..., 0]
        world = draw_world(Stream.WORLD.key(seed), latent_dim=self.world_dim, context_dim=COLUMNS, actions=ACTIONS)
        flat = jnp.asarray(people.shown.reshape(-1, self.world_dim), jnp.float32)
        context = np.asarray(jax.vmap(world.mixing)(flat)).reshape(PEOPLE, LENGTH, COLUMNS)
        logs = Logs.from_arrays(context, action, means + 0.5 * self.reward_noise(people), actions=ACTIONS)
        return self.finish(logs, people.rng)

    def alarms(self, seed: int) -> list[str]:
        """Name the checks that speak up; where one is to be caught only those who should are asked."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IlbWarning)
            logs = self.draw(seed)
            model = fit(logs, latent_dim=self.latent_dim, recipe=RECIPE, reward=REWARDS, seed=seed)
            held = HeldOut.of(model, logs, seed=seed)
            asked = [ask(held) for ask in CHECKS if not self.caught_by or ask is self.caught_by]
        return [row.name for row in asked if row.verdict is not Verdict.FINE]


def _wander(people: People) -> People:
    """Everybody wanders: between the first and the last row by as much as people differ."""
    steps = people.rng.normal(size=people.state.shape) / np.sqrt(LENGTH)
    return replace(people, state=people.state + np.cumsum(steps, axis=1) - steps[:, :1])


def _trend(people: People) -> People:
    """Everybody moves the same way, by as much as people differ."""
    trend = np.zeros_like(people.state)
    trend[..., 0] = np.linspace(0, 1, LENGTH)
    return replace(people, state=people.state + trend)


def _laplace(people: People) -> People:
    return replace(people, noise=people.rng.laplace(size=people.state.shape) / np.sqrt(2))


def _unequal(people: People) -> People:
    """Half of the people are three times as noisy as the other half."""
    size = np.where(people.rng.random((PEOPLE, 1, 1)) < 0.5, 0.5, 1.5)
    return replace(people, noise=size * people.noise)


def _by_moment(people: People) -> np.ndarray:
    """What looks best at the moment is chosen more often."""
    wish = people.shown @ people.weights
    return np.asarray(np.argmax(wish + people.rng.gumbel(size=wish.shape), axis=2))


def _by_kind(people: People) -> np.ndarray:
    """Two actions for one kind of people, two for the other."""
    low = people.rng.integers(ACTIONS // 2, size=people.state.shape[:2])
    return np.asarray(np.where(people.state[..., 0] > 0, low, low + ACTIONS // 2))


def _steered(people: People) -> People:
    """Each action pushes what is shown in the next round, by half of the noise."""
    push = people.rng.normal(size=(ACTIONS, people.state.shape[2]))
    push -= push.mean(axis=0)
    push *= 0.5 / np.sqrt(np.mean(push**2))
    noise = people.noise.copy()
    noise[:, 1:] += push[people.action[:, :-1]]
    return replace(people, noise=noise)


def _shuffled(logs: Logs, rng: np.random.Generator) -> Logs:
    """Rows carry the wrong person."""
    order = rng.permutation(logs.rows)
    shuffled = (logs.context[order], logs.action[order], logs.reward[order], logs.instance)
    return Logs.from_arrays(*shuffled, actions=ACTIONS)


def _with_fingerprint(logs: Logs, rng: np.random.Generator) -> Logs:
    """One column more, which (nearly) never changes within a person."""
    column = rng.normal(size=logs.instances)[logs.instance] + 0.01 * rng.normal(size=logs.rows)
    context = np.concatenate([logs.context, column[:, None]], axis=1)
    return Logs.from_arrays(context, logs.action, logs.reward, logs.instance, actions=ACTIONS)


SETTINGS = (
    Setting("clean", None),
    Setting("clean, three dimensions", None, world_dim=3, latent_dim=3),
    Setting("clean, choices by the person", None, act=lambda p: _by_moment(replace(p, noise=0 * p.noise))),
    Setting("people wander", check_drift, change=_wander),
    Setting("people move together", check_drift, change=_trend),
    Setting("a fingerprint among the columns", check_fingerprints, finish=_with_fingerprint),
    Setting("Laplace noise of contexts", check_noise, change=_laplace),
    Setting(
        "heavy-tailed noise of rewards", check_noise, reward_noise=lambda p: p.rng.standard_t(3, p.state.shape[:2])
    ),
    Setting("unequal noise", check_noise, change=_unequal),
    Setting("choices by the moment, which pays", check_choices, act=_by_moment, pay=lambda p: p.shown @ p.weights),
    Setting("actions change later contexts", check_later_contexts, change=_steered),
    Setting("no overlap", check_overlap, act=_by_kind),
    Setting("shuffled people", check_people_apart, finish=_shuffled),
    Setting("one dimension too many", check_dimensions, latent_dim=3),
    Setting("one dimension too few", check_dimensions, world_dim=3, latent_dim=2),
    Setting("rewards bend", check_linearity, pay=lambda p: (p.state**2 - 1) @ p.weights),
)


def main(
    only: Annotated[list[str] | None, typer.Option(help="Settings whose name begins like this; repeat it.")] = None,
    worlds: Annotated[int, typer.Option(help="Worlds of each broken setting.")] = 10,
    clean: Annotated[int, typer.Option(help="Worlds of each clean setting.")] = 20,
    record: Annotated[
        bool, typer.Option("--record", help="Keep each setting in docs/results when it is done.")
    ] = False,
) -> None:
    """Count how often each violation is caught, and how often clean worlds set something off."""
    out, notes = Console(), Console(stderr=True)
    rows: Rows = []
    for setting in SETTINGS:
        if only and not any(setting.name.startswith(one) for one in only):
            continue
        number, started = worlds if setting.caught_by else clean, time.process_time()
        raised = [setting.alarms(seed) for seed in range(FIRST, FIRST + number)]
        counts = Counter(name for names in raised for name in names)
        row: dict[str, Any] = {
            "setting": setting.name,
            "worlds": number,
            "caught_by": CLEAN if setting.caught_by is None else setting.caught_by.__name__.removeprefix("check_"),
            "spoke_up": sum(map(bool, raised)),
            "which": ", ".join(f"{name} {count}" for name, count in counts.most_common()),
            "cpu_s": round((time.process_time() - started) / number, 1),
        }
        rows.append(row)
        notes.print(f"· {row}", highlight=False, soft_wrap=True)
        if record:
            _record(row)
    out.print(table_of("checks", rows))
    out.print(table_of_targets(_targets(rows)))


CLEAN, FILE = "-", RESULTS / "checks.json"


def _targets(rows: Rows) -> list[Target]:
    broken = [row for row in rows if row["caught_by"] != CLEAN]
    targets = [Target(f"{row['setting']}: caught", row["spoke_up"] / row["worlds"], at_least=0.9) for row in broken]
    cleans = [row for row in rows if row["caught_by"] == CLEAN]
    if cleans:
        share = sum(row["spoke_up"] for row in cleans) / sum(row["worlds"] for row in cleans)
        targets.append(Target("clean tables with any alarm", share, at_most=0.05))
    return targets


def _record(row: dict[str, Any]) -> None:
    """Put a setting's row in the place of the one that was there."""
    kept = json.loads(FILE.read_text())["checks"] if FILE.exists() else []
    rows = {one["setting"]: one for one in (*kept, row)}
    ordered = [rows[setting.name] for setting in SETTINGS if setting.name in rows]
    targets = [{**asdict(target), "met": target.met} for target in _targets(ordered)]
    written = {"version": __version__, "command": "make bench-checks ARGS='--record'", "checks": ordered}
    FILE.write_text(json.dumps({**written, "targets": targets}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
