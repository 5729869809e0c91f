"""Results: how large a reproduction is, and what its stored tables say, by setting, player and learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ilb.errors import IlbError
from ilb.estimates import Estimate, standard_error
from ilb_paper.learners import LEARNERS, PAPER, PAPER_WIDE
from ilb_paper.players import Player
from ilb_paper.settings import AbstractSetting
from ilb_paper.store import NotRunError, Store
from ilb_paper.tasks import FitTask, PlayTask

WORLDS, INSTANCES, HORIZON = 10, 200, 2000
BLOCK = 5
"""Seeds that are fitted, or played, at once."""
MOST_SEED = 30_000
"""Tables keep seeds in two bytes."""


@dataclass(frozen=True)
class Size:
    """What `--scale` stands for.

    Tables have ten fits for each row, as in the paper. Figures have 200 new instances in each of the same ten worlds,
    each with its own fit, where the paper has one fit and 200 or 1000 instances. Below 0.2, logs, training
    and horizon shrink as well: such a run shows that everything works and says nothing about the paper.

    `first_seed` other than 0 gives other worlds, to see whether what was found in the first ones is found again.
    """

    scale: float = 1.0
    first_seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise IlbError(f"--scale must be above 0 and at most 1 (the paper's size); got {self.scale}.")
        if not 0 <= self.first_seed <= MOST_SEED:
            raise IlbError(f"--first-seed must be between 0 and {MOST_SEED:,}; got {self.first_seed}.")

    @property
    def seeds(self) -> range:
        """The seeds of the worlds, each with a fit of its own: the same for tables and figures."""
        return range(self.first_seed, self.first_seed + max(1, round(WORLDS * self.scale)))

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.seeds[first : first + BLOCK]) for first in range(0, len(self.seeds), BLOCK))

    @property
    def instances(self) -> int:
        return max(3, round(INSTANCES * self.scale))

    def horizon(self, full: int = HORIZON) -> int:
        return max(12, round(full * self.effort))

    @property
    def effort(self) -> float:
        """The share of training, logs and horizon that is left."""
        return min(1.0, 5 * self.scale)


class RegretCurve(NamedTuple):
    """Cumulative regret at some rounds."""

    rounds: Int[np.ndarray, " rounds"]
    mean: Float[np.ndarray, " rounds"]
    standard_error: Float[np.ndarray, " rounds"]
    median: Float[np.ndarray, " rounds"]


def clustered_error(
    values: Float[np.ndarray, "worlds instances *rest"],
) -> tuple[Float[np.ndarray, "*rest"], Float[np.ndarray, "*rest"]]:
    """Give the standard error of the mean where instances share their world, and its degrees of freedom.

    The error is the larger of that over instances and that over worlds: few worlds say little of their own spread, and
    taking them as independent instances would say too much. A single world leaves no degrees of freedom: its error is
    that over instances, which is good for a band and decides nothing about other worlds.
    """
    worlds, instances = values.shape[:2]
    over_instances = standard_error(values.reshape(worlds * instances, *values.shape[2:]))
    if worlds < 2:
        return over_instances, np.zeros(over_instances.shape)
    over_worlds = standard_error(values.mean(axis=1, dtype=np.float64))
    freedom = np.where(over_worlds > over_instances, worlds - 1.0, worlds * instances - 1.0)
    return np.asarray(np.maximum(over_instances, over_worlds)), freedom


@dataclass
class Results:
    """The outcomes of a reproduction of one size; asking for one that was not run raises a `NotRunError`.

    `instead` puts one learner in the place of another in every question.
    """

    store: Store
    size: Size
    instead: Mapping[str, str] = field(default_factory=dict)
    _kept: dict[PlayTask, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def at_released_width(self) -> Results:
        """Give the same results with the encoder of the released code, of width 2n, instead of the printed n."""
        return replace(self, instead={PAPER: PAPER_WIDE})

    def learner(self, name: str) -> str:
        """Name the learner that is asked in the place of this one."""
        return self.instead.get(name, name)

    def player(self, player: Player) -> Player:
        return player._replace(model=self.learner(player.model))

    def play_tasks(self, setting: AbstractSetting, player: Player, horizon: int = HORIZON) -> list[PlayTask]:
        """Name the tasks that play a player in a setting at this size: one for each block of seeds."""
        policy, model = self.player(player)
        learned, shrunk = model in LEARNERS, setting.shrunk(self.size.effort)
        return [
            PlayTask(
                shrunk,
                policy,
                model,
                block,
                self.size.instances,
                self.size.horizon(horizon),
                self.size.effort if learned else 1.0,
                block if learned else (),
            )
            for block in self.size.blocks
        ]

    def is_played(self, setting: AbstractSetting, player: Player, horizon: int = HORIZON) -> bool:
        """Say whether a player was played in a setting, in the first block of worlds at least."""
        return self.play_tasks(setting, player, horizon)[0] in self.store

    def fit_tasks(self, setting: AbstractSetting, learner: str, effort: float = 1.0) -> list[FitTask]:
        """Name the tasks that fit a learner, with a share of its training: one for each block of seeds."""
        shrunk = setting.offline().shrunk(self.size.effort)
        return [FitTask(shrunk, self.learner(learner), block, self.size.effort * effort) for block in self.size.blocks]

    def regret(
        self, setting: AbstractSetting, player: Player, horizon: int = HORIZON
    ) -> tuple[Int[np.ndarray, " rounds"], Float[np.ndarray, "worlds instances rounds"]]:
        """Give the cumulative regret of every instance at the rounds that were kept, in the worlds played so far."""
        done = list(takewhile(self.store.__contains__, self.play_tasks(setting, player, horizon)))
        if not done:
            raise NotRunError(f"{player} in {setting} was not played at this size.")
        pieces = [self._read(task) for task in done]
        return pieces[0][0], np.concatenate([values for _, values in pieces])

    def _read(self, task: PlayTask) -> tuple[np.ndarray, np.ndarray]:
        if task not in self._kept:
            table = self.store.table(task)
            rounds = np.unique(table["round"].to_numpy())
            values = table["regret"].to_numpy().reshape(len(task.seeds), task.instances, len(rounds))
            self._kept[task] = (rounds, values)
        return self._kept[task]

    def curve(self, setting: AbstractSetting, player: Player, horizon: int = HORIZON) -> RegretCurve:
        rounds, values = self.regret(setting, player, horizon)
        mean = values.mean(axis=(0, 1), dtype=np.float64)
        return RegretCurve(rounds, mean, clustered_error(values)[0], np.median(values, axis=(0, 1)))

    def regret_at(self, setting: AbstractSetting, player: Player, at: float, horizon: int = HORIZON) -> np.ndarray:
        """Give the regret of every instance up to a share `at` of the horizon: 1 is its end."""
        rounds, values = self.regret(setting, player, horizon)
        wanted = max(1, round(at * rounds[-1]))
        return np.asarray(values[..., np.abs(rounds - wanted).argmin()])

    def scores(
        self, setting: AbstractSetting, learner: str, metric: str, effort: float = 1.0
    ) -> Float[np.ndarray, " seeds"]:
        """Give a score of every fit of a learner that is stored, by seed; blocks of seeds come in order."""
        done = list(takewhile(self.store.__contains__, self.fit_tasks(setting, learner, effort)))
        if not done:
            raise NotRunError(f"{learner} in {setting} was not fitted at this size.")
        tables = [self.store.table(task)[metric] for task in done]
        return np.concatenate([column.to_numpy(zero_copy_only=False).astype(float) for column in tables])

    def score(self, setting: AbstractSetting, learner: str, metric: str) -> Estimate:
        """Average a score over fits, with the standard error over them (over test instances if there is one fit)."""
        values = self.scores(setting, learner, metric)
        if len(values) > 1:
            return Estimate.of(values)
        return Estimate(float(values[0]), float(self.scores(setting, learner, f"{metric}_se")[0]), 1)


def common_worlds(*values: np.ndarray) -> list[np.ndarray]:
    """Keep the worlds that all have, so that they can be paired while a run is under way."""
    common = min(map(len, values))
    return [one[:common] for one in values]
