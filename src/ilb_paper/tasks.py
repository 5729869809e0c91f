"""Tasks: the units of work. A task is a value, and its outcome is a function of that value alone.

Whatever process, machine or order it runs in, the same task gives the same numbers; that is what lets outcomes be kept
under the hash of their task, and a run be interrupted, resumed and spread.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ilb.errors import IlbWarning
from ilb.offline.training import describe_recipe
from ilb.simulation import simulate
from ilb.streams import Stream
from ilb.version import __version__
from ilb_paper.learners import LEARNERS, Fitted, Lesson
from ilb_paper.players import build_player
from ilb_paper.settings import AbstractSetting, describe_setting

CURVE_POINTS = 48
"""Rounds at which the regret of every instance is kept, besides those that tables and claims ask for."""

MARKED_ROUNDS = (10, 20, 40, 50, 100, 200, 500, 1000, 2000)


@dataclass(frozen=True)
class Outcome:
    """What a task leaves behind: a table, models if it fitted any, and what it cost and warned of."""

    table: pa.Table
    models: tuple[Fitted, ...] = ()
    cpu_seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class AbstractTask(ABC):
    """A frozen dataclass that can be run, and says of itself what the store, the runner and the report need to know."""

    setting: AbstractSetting
    kind: ClassVar[str]
    """Part of its hash, and so of every stored outcome: never changed."""
    revision: ClassVar[int]
    """Raised when a change of the code changes numbers: outcomes of another revision are computed anew."""
    is_fit: ClassVar[bool] = False
    """Fits and plays are counted apart."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it does, in a few words."""

    @abstractmethod
    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        """Do the work; `inputs` are the outcomes of `needs`, in that order, and of `shortcut`, if it is there."""

    @abstractmethod
    def weight(self) -> float:
        """Estimate the CPU seconds, for the time left and the order of work."""

    def needs(self) -> tuple[AbstractTask, ...]:
        """Name the tasks whose outcomes this one starts from."""
        return ()

    def shortcut(self) -> AbstractTask | None:
        """Name a task, if there is one, whose outcome saves work without changing this one's."""
        return None

    def earlier(self) -> tuple[AbstractTask, ...]:
        """Name the tasks that come before this one: those it needs, and the shortcut."""
        shortcut = self.shortcut()
        return (*self.needs(), *(() if shortcut is None else (shortcut,)))

    def recipes(self) -> Sequence[Any]:
        """Give what the outcome depends on besides the fields: a changed recipe is another task."""
        return ()

    @property
    def first_seed(self) -> int:
        """The first of its worlds: a run cut short shall have every line, if from fewer worlds."""
        return 0

    @property
    def model_seeds(self) -> tuple[int, ...]:
        return ()

    def load_model(self, directory: Path) -> Fitted:
        raise NotImplementedError(f"{self.title} leaves no model in {directory}")


def content_of(task: AbstractTask) -> dict[str, Any]:
    """Write a task as plain values: what its hash is made of."""
    plain: dict[str, Any] = asdict(task)  # type: ignore[call-overload]
    return {
        "task": task.kind,
        "ilb": __version__,
        "revision": task.revision,
        **plain,
        "setting": repr(task.setting),
        "recipes": [describe_recipe(recipe) for recipe in task.recipes()],
        "needs": [hash_of(need) for need in task.needs()],
    }


@lru_cache(maxsize=4096)
def hash_of(task: AbstractTask) -> str:
    return hashlib.sha256(json.dumps(content_of(task), sort_keys=True).encode()).hexdigest()[:20]


def run_task(task: AbstractTask, inputs: Sequence[Outcome]) -> Outcome:
    """Run a task, measure its CPU time, and keep what the library warned of instead of printing it."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IlbWarning)
        outcome = task.run(inputs)
    said = sorted({f"{w.category.__name__}: {w.message}" for w in caught if issubclass(w.category, IlbWarning)})
    return Outcome(outcome.table, outcome.models, time.process_time() - began, tuple(said))


@dataclass(frozen=True)
class FitTask(AbstractTask):
    """Learn one model for each seed, all at once, and score them on unseen instances."""

    kind: ClassVar[str] = "FitTask"
    revision: ClassVar[int] = 2
    is_fit: ClassVar[bool] = True

    setting: AbstractSetting
    learner: str
    seeds: tuple[int, ...]
    effort: float = 1.0

    @property
    def title(self) -> str:
        return f"fit {self.learner}"

    def shortcut(self) -> FitTask | None:
        """The fit of the same encoder to the same contexts with other rewards."""
        if not LEARNERS[self.learner].learns_encoders:
            return None
        same = replace(self, setting=self.setting.contexts())
        return same if same != self else None

    def recipes(self) -> Sequence[Any]:
        return LEARNERS[self.learner].recipes(self.setting, self.effort)

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        """Record, fit, score; with an encoder to start from, only rewards are fitted."""
        recorded = [self.setting.record(seed) for seed in self.seeds]
        encoded = inputs[0].models if inputs else ()
        learned = LEARNERS[self.learner].fit(Lesson(self.setting, recorded, self.seeds, self.effort, encoded))
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
        seconds = LEARNERS[self.learner].seconds
        return (8 + seconds * len(self.seeds) * self.effort) * (1.0 if self.setting.layers < 4 else 1.6)

    @property
    def first_seed(self) -> int:
        return min(self.seeds)

    @property
    def model_seeds(self) -> tuple[int, ...]:
        return self.seeds

    def load_model(self, directory: Path) -> Fitted:
        return LEARNERS[self.learner].load(directory)


@dataclass(frozen=True)
class PlayTask(AbstractTask):
    """Play one policy on one model, in the worlds of some seeds; every policy meets the same instances there."""

    kind: ClassVar[str] = "PlayTask"
    revision: ClassVar[int] = 3

    setting: AbstractSetting
    policy: str
    model: str
    seeds: tuple[int, ...]
    instances: int
    horizon: int
    effort: float = 1.0
    fit_seeds: tuple[int, ...] = field(default=())

    @property
    def title(self) -> str:
        return f"play {self.policy} on {self.model}" if self.model not in ("", self.policy) else f"play {self.policy}"

    def needs(self) -> tuple[AbstractTask, ...]:
        if self.model not in LEARNERS:
            return ()
        return (FitTask(self.setting.offline(), self.model, self.fit_seeds or self.seeds, self.effort),)

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        fitted = dict(zip(self.fit_seeds or self.seeds, inputs[0].models, strict=True)) if inputs else {}
        rounds = kept_rounds(self.horizon)
        pieces = []
        for seed in self.seeds:
            policy = build_player(self.policy, self.model, self.setting, seed, fitted.get(seed), self.horizon)
            playground = self.setting.playground(seed)
            history = simulate(Stream.PLAYING.key(seed), playground, policy, self.instances, self.horizon)
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
        return 1 + len(self.seeds) * self.instances * self.horizon * 1.5e-6

    @property
    def first_seed(self) -> int:
        return min(self.seeds)


def kept_rounds(horizon: int) -> np.ndarray:
    """Choose the rounds at which regret is kept: evenly on a log scale, and the marked ones."""
    spread = np.geomspace(1, horizon, CURVE_POINTS).round().astype(int)
    return np.unique([*spread, *(mark for mark in MARKED_ROUNDS if mark <= horizon), horizon])
