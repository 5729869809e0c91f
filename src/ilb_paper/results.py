"""Results: what the stored tables say, by setting, player and learner, with standard errors that know their design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ilb_paper.players import Player
from ilb_paper.settings import Setting
from ilb_paper.size import Size
from ilb_paper.store import Store
from ilb_paper.tasks import FitTask, PlayTask


class Estimate(NamedTuple):
    """A mean and its standard error."""

    value: float
    standard_error: float


class Curve(NamedTuple):
    """Cumulative regret at some rounds."""

    rounds: Int[np.ndarray, " rounds"]
    mean: Float[np.ndarray, " rounds"]
    standard_error: Float[np.ndarray, " rounds"]
    median: Float[np.ndarray, " rounds"]


class Clustered(NamedTuple):
    """A mean, its standard error, and the degrees of freedom of that error."""

    mean: np.ndarray
    standard_error: np.ndarray
    freedom: np.ndarray


def clustered(values: Float[np.ndarray, "worlds instances *rest"]) -> Clustered:
    """Give the mean and its standard error where instances of one world share that world.

    The error is the larger of that over instances and that over worlds: few worlds say little of their own spread, and
    taking them as independent instances would say too much. A single world leaves no degrees of freedom: its error is
    that over instances, which is good for a band and decides nothing about other worlds.
    """
    worlds, instances = values.shape[:2]
    mean = values.mean(axis=(0, 1), dtype=np.float64)
    flat = values.reshape(worlds * instances, *values.shape[2:]).astype(np.float64)
    over_instances = flat.std(axis=0, ddof=1) / np.sqrt(len(flat)) if len(flat) > 1 else np.full(mean.shape, np.nan)
    if worlds < 2:
        return Clustered(mean, over_instances, np.zeros(mean.shape))
    many = np.full(mean.shape, float(len(flat) - 1))
    over_worlds = values.mean(axis=1, dtype=np.float64).std(axis=0, ddof=1) / np.sqrt(worlds)
    freedom = np.where(over_worlds > over_instances, worlds - 1.0, many)
    return Clustered(mean, np.maximum(over_instances, over_worlds), freedom)


@dataclass
class Results:
    """The outcomes of a reproduction of one size; asking for one that was not run raises a KeyError."""

    store: Store
    size: Size
    _kept: dict[PlayTask, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def play_tasks(self, setting: Setting, player: Player, horizon: int = 2000) -> list[PlayTask]:
        """Name the tasks that play a player in a setting at this size: one for each block of seeds."""
        learned = player.model not in ("", "oracle")
        return [
            PlayTask(
                setting.shrunk(self.size.effort),
                player.policy,
                player.model,
                block,
                self.size.instances,
                self.size.horizon(horizon),
                self.size.effort if learned else 1.0,
                block if learned else (),
            )
            for block in self.size.blocks
        ]

    def is_played(self, setting: Setting, player: Player, horizon: int = 2000) -> bool:
        """Say whether a player was played in a setting, in the first block of worlds at least."""
        return self.play_tasks(setting, player, horizon)[0] in self.store

    def fit_tasks(self, setting: Setting, learner: str) -> list[FitTask]:
        """Name the tasks that fit a learner for a table: one for each block of seeds."""
        shrunk = setting.offline().shrunk(self.size.effort)
        return [FitTask(shrunk, learner, block, self.size.effort) for block in self.size.blocks]

    def regret(
        self, setting: Setting, player: Player, horizon: int = 2000
    ) -> tuple[Int[np.ndarray, " rounds"], Float[np.ndarray, "worlds instances rounds"]]:
        """Give the cumulative regret of every instance at the rounds that were kept, in the worlds played so far."""
        done = list(takewhile(self.store.__contains__, self.play_tasks(setting, player, horizon)))
        if not done:
            raise KeyError(f"{player} in {setting} was not played at this size.")
        pieces = [self._read(task) for task in done]
        return pieces[0][0], np.concatenate([values for _, values in pieces])

    def _read(self, task: PlayTask) -> tuple[np.ndarray, np.ndarray]:
        if task not in self._kept:
            table = self.store.table(task)
            rounds = np.unique(table["round"].to_numpy())
            values = table["regret"].to_numpy().reshape(len(task.seeds), task.instances, len(rounds))
            self._kept[task] = (rounds, values)
        return self._kept[task]

    def curve(self, setting: Setting, player: Player, horizon: int = 2000) -> Curve:
        """Summarise the regret of a player."""
        rounds, values = self.regret(setting, player, horizon)
        return Curve(rounds, *clustered(values)[:2], np.median(values, axis=(0, 1)))

    def regret_at(self, setting: Setting, player: Player, at: float, horizon: int = 2000) -> np.ndarray:
        """Give the regret of every instance up to a share `at` of the horizon: 1 is its end."""
        rounds, values = self.regret(setting, player, horizon)
        wanted = max(1, round(at * rounds[-1]))
        return np.asarray(values[..., np.abs(rounds - wanted).argmin()])

    def scores(self, setting: Setting, learner: str, metric: str) -> Float[np.ndarray, " seeds"]:
        """Give a score of every fit of a learner that is stored, by seed; blocks of seeds come in order."""
        done = list(takewhile(self.store.__contains__, self.fit_tasks(setting, learner)))
        if not done:
            raise KeyError(f"{learner} in {setting} was not fitted at this size.")
        tables = [self.store.table(task)[metric] for task in done]
        return np.concatenate([column.to_numpy(zero_copy_only=False).astype(float) for column in tables])

    def paired_scores(
        self, metric: str, one: tuple[Setting, str], other: tuple[Setting, str]
    ) -> tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]]:
        """Give a score of two learners, or of one in two settings, for the seeds that both have."""
        first, second = self.scores(*one, metric), self.scores(*other, metric)
        common = min(len(first), len(second))
        return first[:common], second[:common]

    def score(self, setting: Setting, learner: str, metric: str) -> Estimate:
        """Average a score over fits, with the standard error over them (over test instances if there is one fit)."""
        values = self.scores(setting, learner, metric)
        if len(values) > 1:
            return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
        return Estimate(float(values[0]), float(self.scores(setting, learner, f"{metric}_se")[0]))


def common_worlds(*regrets: Float[np.ndarray, "worlds instances"]) -> list[Float[np.ndarray, "worlds instances"]]:
    """Keep the worlds that all were played in, so that they can be paired while a run is under way."""
    common = min(map(len, regrets))
    return [regret[:common] for regret in regrets]


def mean_of(values: Sequence[float]) -> Estimate:
    """Average some independent numbers."""
    array = np.asarray(values, float)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else float("nan")
    return Estimate(float(array.mean()), float(error))
