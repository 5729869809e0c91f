"""Tasks: the units of work. A task is a value, and its outcome is a function of that value alone.

Whatever process, machine or order it runs in, the same task gives the same numbers; that is what lets outcomes be kept
under the hash of their task, and a run be interrupted, resumed and spread.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import jax.random as jr
import numpy as np
import pyarrow as pa

from ilb.errors import IlbWarning
from ilb.offline.training import describe_recipe
from ilb.simulation import simulate
from ilb.version import __version__
from ilb_paper.learners import ENCODERS, Fitted, learn, recipe_of, reward_of
from ilb_paper.players import build_player
from ilb_paper.settings import Setting, describe_setting

CURVE_POINTS = 48
"""Rounds at which the regret of every instance is kept, besides those that tables and claims ask for."""

MARKED_ROUNDS = (10, 20, 40, 50, 100, 200, 500, 1000, 2000)
PLAYING_KEY = 5


@dataclass(frozen=True)
class Outcome:
    """What a task leaves behind: a table, models if it fitted any, and what it cost and warned of."""

    table: pa.Table
    models: tuple[Fitted, ...] = ()
    cpu_seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class Task(Protocol):
    """A frozen value that can be run."""

    revision: ClassVar[int]
    """Raised when a change of the code changes numbers: outcomes of another revision are computed anew."""

    def needs(self) -> tuple[Task, ...]:
        """Name the tasks whose outcomes this one starts from."""
        ...

    def shortcut(self) -> Task | None:
        """Name a task, if there is one, whose outcome saves work without changing this one's."""
        ...

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        """Do the work; `inputs` are the outcomes of `needs`, in that order, and of `shortcut`, if it is there."""
        ...

    def weight(self) -> float:
        """Estimate the CPU seconds, for the time left and the order of work."""
        ...


def content_of(task: Any) -> dict[str, Any]:
    """Write a task as plain values: what its hash is made of."""
    content = {"task": type(task).__name__, "ilb": __version__, "revision": task.revision, **_plain(task)}
    if isinstance(task, FitTask):
        recipes = (factory(task.learner, task.setting, task.effort) for factory in (recipe_of, reward_of))
        content["recipes"] = [describe_recipe(recipe) if recipe is not None else None for recipe in recipes]
    content["needs"] = [hash_of(need) for need in task.needs()]
    return content


def _plain(value: Any) -> Any:
    plain = asdict(value)
    if "setting" in plain:
        plain["setting"] = {"kind": type(value.setting).__name__, **plain["setting"]}
    return plain


def hash_of(task: Any) -> str:
    """Name a task by its content."""
    return _hash_of(task)


@lru_cache(maxsize=4096)
def _hash_of(task: Hashable) -> str:
    return hashlib.sha256(json.dumps(content_of(task), sort_keys=True).encode()).hexdigest()[:20]


def run_task(task: Task, inputs: Sequence[Outcome]) -> Outcome:
    """Run a task, measure its CPU time, and keep what the library warned of instead of printing it."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IlbWarning)
        outcome = task.run(inputs)
    said = sorted({f"{w.category.__name__}: {w.message}" for w in caught if issubclass(w.category, IlbWarning)})
    return Outcome(outcome.table, outcome.models, time.process_time() - began, tuple(said))


@dataclass(frozen=True)
class FitTask:
    """Learn one model for each seed, all at once, and score them on unseen instances."""

    setting: Setting
    learner: str
    seeds: tuple[int, ...]
    effort: float = 1.0
    revision: ClassVar[int] = 2

    def needs(self) -> tuple[Task, ...]:
        """Nothing: logs are recorded on the way."""
        return ()

    def shortcut(self) -> FitTask | None:
        """The fit of the same encoder to the same contexts with other rewards."""
        same = replace(self, setting=self.setting.contexts())
        return same if self.learner in ENCODERS and same != self else None

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        """Record, fit, score; with an encoder to start from, only rewards are fitted."""
        recorded = [self.setting.record(seed) for seed in self.seeds]
        encoded = inputs[0].models if inputs else ()
        learned = learn(self.learner, self.setting, recorded, self.seeds, self.effort, encoded)
        before = inputs[0].table["fit_cpu_seconds"].to_pylist() if inputs else [0.0] * len(self.seeds)
        columns: dict[str, list[Any]] = {
            "setting": [describe_setting(self.setting)] * len(self.seeds),
            "learner": [self.learner] * len(self.seeds),
            "seed": list(self.seeds),
            "fit_cpu_seconds": [seconds + learned.cpu_seconds / len(self.seeds) for seconds in before],
        }
        for name in learned.scores[0]._fields:
            scores = [getattr(line, name) for line in learned.scores]
            columns[name] = [None if score is None else score.value for score in scores]
            columns[f"{name}_se"] = [None if score is None else score.standard_error for score in scores]
        if learned.prefix_scores is not None:
            for name in ("reward_r2", "best_action"):
                columns[f"{name}_prefixes"] = [getattr(line, name).value for line in learned.prefix_scores]
        return Outcome(pa.table(columns), tuple(learned.models))

    def weight(self) -> float:
        """Go by what each learner takes for a seed at full size on one core."""
        if self.shortcut() is not None:
            return 6.0
        seconds = FIT_SECONDS.get(self.learner, 10.0)
        return (8 + seconds * len(self.seeds) * self.effort) * (1.0 if getattr(self.setting, "layers", 2) < 4 else 1.6)


FIT_SECONDS: Mapping[str, float] = {"LVM (ours)": 2.0, "LVM (paper)": 10.0, "VAE": 2.5, "Regression": 9.0}
"""CPU seconds a seed, roughly, for the progress display."""


@dataclass(frozen=True)
class PlayTask:
    """Play one policy on one model, in the worlds of some seeds; every policy meets the same instances there."""

    setting: Setting
    policy: str
    model: str
    seeds: tuple[int, ...]
    instances: int
    horizon: int
    effort: float = 1.0
    fit_seeds: tuple[int, ...] = field(default=())
    revision: ClassVar[int] = 3

    def needs(self) -> tuple[Task, ...]:
        """The fits of the model, if it is learned, and the recurrent net if the policy is that."""
        if self.model in ("", "oracle"):
            return ()
        return (FitTask(self.setting.offline(), self.model, self.fit_seeds or self.seeds, self.effort),)

    def shortcut(self) -> None:
        """None."""

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        """Build the policy for each world and play."""
        fitted = dict(zip(self.fit_seeds or self.seeds, inputs[0].models, strict=True)) if inputs else {}
        rounds = kept_rounds(self.horizon)
        pieces = []
        for seed in self.seeds:
            policy = build_player(self.policy, self.model, self.setting, seed, fitted.get(seed), self.horizon)
            key = jr.fold_in(jr.key(seed), PLAYING_KEY)
            history = simulate(key, self.setting.playground(seed), policy, self.instances, self.horizon)
            regret = history.cumulative_regret()[:, rounds - 1].astype(np.float32)
            pieces.append(
                pa.table(
                    {
                        "seed": np.full(regret.size, seed, np.int16),
                        "instance": np.repeat(np.arange(self.instances, dtype=np.int32), len(rounds)),
                        "round": np.tile(rounds.astype(np.int32), self.instances),
                        "regret": regret.ravel(),
                    }
                )
            )
        table = pa.concat_tables(pieces)
        for name, value in (
            ("model", self.model),
            ("policy", self.policy),
            ("setting", describe_setting(self.setting)),
        ):
            column = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int8), [value])
            table = table.add_column(0, name, column)
        return Outcome(table)

    def weight(self) -> float:
        """Go by rounds, and a second of compiling."""
        return 1 + len(self.seeds) * self.instances * self.horizon * 1.5e-6


def kept_rounds(horizon: int) -> np.ndarray:
    """Choose the rounds at which regret is kept: evenly on a log scale, and the marked ones."""
    spread = np.geomspace(1, horizon, CURVE_POINTS).round().astype(int)
    return np.unique([*spread, *(mark for mark in MARKED_ROUNDS if mark <= horizon), horizon])
