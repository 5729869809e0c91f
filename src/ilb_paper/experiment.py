"""What an experiment is: a label of the paper, the tasks behind it, how it is shown, and the claims it decides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ilb.logs.messages import counted
from ilb_paper.claims import Claim
from ilb_paper.learners import LEARNERS, PAPER, PAPER_WIDE
from ilb_paper.players import AS_RELEASED, Group, Player
from ilb_paper.plots import Line, PanelGrid, plot_panels
from ilb_paper.results import HORIZON, Results
from ilb_paper.settings import AbstractSetting
from ilb_paper.tasks import AbstractTask

SHOWN_ROUNDS = (20, 100, 500, 2000)
METRICS = (("mcc", "MCC", 1.0, 2), ("reward_r2", "R²", 1.0, 3), ("best_action", "% best", 100.0, 1))
JUDGED = (*AS_RELEASED, "MABPrior")
"""Policies that claims speak of: those on the paper's encoder are played with its released width, too."""


class Table(NamedTuple):
    """A table for people: a heading for each column, and text in each cell."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Exhibit(NamedTuple):
    """What an experiment shows: figures by file name, tables, and remarks."""

    figures: Mapping[str, Figure]
    tables: Sequence[Table] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class AbstractExperiment(ABC):
    """One table or figure, by the LaTeX label that it has in the paper, or one of our own."""

    label: str
    title: str
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    horizon: int | None = None
    """Rounds that are played at full size; None where nothing is played for its own sake."""
    shows_parts: ClassVar[bool] = True
    """Whether there is something to show before all of its tasks are done."""
    is_printed: ClassVar[bool] = False
    """Whether its tables are printed on the terminal, too."""
    is_regret: ClassVar[bool] = False
    """Whether it shows regret: its figures get a caption, its long tables are folded."""

    @abstractmethod
    def tasks(self, results: Results) -> list[AbstractTask]:
        """Name the tasks behind it at the size of these results."""

    @abstractmethod
    def show(self, results: Results) -> Exhibit:
        """Draw it from the tables of the tasks that are done."""


class Panel(NamedTuple):
    """A column of a regret figure: a title and the setting that is played."""

    title: str
    setting: AbstractSetting


@dataclass(frozen=True, kw_only=True)
class RegretFigure(AbstractExperiment):
    """Cumulative regret: a column for each setting, a row for each group of players."""

    panels: tuple[Panel, ...]
    groups: tuple[Group, ...]
    horizon: int = HORIZON
    also: tuple[tuple[AbstractSetting, Player], ...] = ()
    """What claims compare with and the figure does not show."""
    is_regret: ClassVar[bool] = True

    @property
    def players(self) -> tuple[Player, ...]:
        return tuple(dict.fromkeys(player for group in self.groups for player in group.players))

    def tasks(self, results: Results) -> list[AbstractTask]:
        """Play every player in every setting; what claims are judged by, with the encoder's released width as well."""
        shown = [*((panel.setting, player) for panel in self.panels for player in self.players), *self.also]
        wide = [
            (setting, Player(player.policy, PAPER_WIDE))
            for setting, player in shown
            if self.claims and player.model == PAPER and player.policy in JUDGED
        ]
        places = dict.fromkeys((*shown, *wide))
        return [task for place in places for task in results.play_tasks(*place, self.horizon)]

    def show(self, results: Results) -> Exhibit:
        """Draw every group of players in every setting, and write mean ± standard error / median below."""
        lines = [
            [
                [
                    Line(player, results.curve(panel.setting, player, self.horizon))
                    for player in self._played(panel.setting, group.players, results)
                ]
                for panel in self.panels
            ]
            for group in self.groups
        ]
        titles = [panel.title for panel in self.panels]
        figure = plot_panels(PanelGrid(lines, titles, [group.title for group in self.groups]))
        tables = [
            Table(f"Cumulative regret, {panel.title}", *self._rows(panel.setting, results)) for panel in self.panels
        ]
        left = sum(task not in results.store for task in self.tasks(results))
        remarks = (*self.remarks, f"Still to come: {counted(left, 'play')}.") if left else self.remarks
        return Exhibit({file_name(self.label): figure}, tables, remarks)

    def _played(self, setting: AbstractSetting, players: Sequence[Player], results: Results) -> list[Player]:
        """Leave out who was not played in a setting yet."""
        return [player for player in players if results.is_played(setting, player, self.horizon)]

    def _rows(self, setting: AbstractSetting, results: Results) -> tuple[list[str], list[list[str]]]:
        horizon = results.size.horizon(self.horizon)
        shown = [r for r in SHOWN_ROUNDS if r < horizon] + [horizon]
        lines: list[tuple[float, list[str]]] = []
        for player in self._played(setting, self.players, results):
            curve = results.curve(setting, player, self.horizon)
            at = (int(np.abs(curve.rounds - r).argmin()) for r in shown)
            cells = [
                f"{_short(curve.mean[i])} ± {_short(curve.standard_error[i])} / {_short(curve.median[i])}" for i in at
            ]
            lines.append((float(curve.mean[-1]), [player.policy, player.model or "-", *cells]))
        header = ["policy", "model", *(f"round {r:,}" for r in shown)]
        return header, [row for _, row in sorted(lines, key=lambda line: line[0])]


def _short(value: np.floating[Any]) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def file_name(label: str) -> str:
    """Turn a LaTeX label into the name of a file.

    >>> file_name("fig:emission_noise")
    'fig-emission-noise'
    """
    return label.replace(":", "-").replace("_", "-").lower()


class ScoreRow(NamedTuple):
    """A row of a table of fits: what is fitted where, and the paper's MCC, R² and % best (None where it has none)."""

    setting: AbstractSetting
    learner: str
    describe: tuple[str, ...]
    paper: tuple[float | None, float | None, int | None] = (None, None, None)


@dataclass(frozen=True, kw_only=True)
class ScoreTable(AbstractExperiment):
    """Scores of fits beside the paper's."""

    header: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    is_printed: ClassVar[bool] = True

    def tasks(self, results: Results) -> list[AbstractTask]:
        return [task for row in self.rows for task in results.fit_tasks(row.setting, row.learner)]

    def show(self, results: Results) -> Exhibit:
        """Write each score of the paper and, beside it, ours with its standard error over fits."""
        header = [*self.header]
        for _, name, _, _ in METRICS:
            header += [f"{name}, paper", f"{name}, ours"]
        header += ["R² of z, affine", "% best, all prefixes", "fits", "CPU s a fit"]
        done = [row for row in self.rows if results.fit_tasks(row.setting, row.learner)[0] in results.store]
        left = len(self.rows) - len(done)
        remarks = (*self.remarks, f"Not fitted yet: {counted(left, 'row')}.") if left else self.remarks
        return Exhibit({}, [Table(self.title, header, [_score_row(row, results) for row in done])], remarks)


def _score_row(row: ScoreRow, results: Results) -> list[str]:
    cells = list(row.describe)
    for (metric, _, factor, digits), paper in zip(METRICS, row.paper, strict=True):
        ours = results.score(row.setting, row.learner, metric)
        cells += ["-" if paper is None else f"{paper:g}", ours.text(digits, factor)]
    cells.append(results.score(row.setting, row.learner, "affine_r2").text())
    by_prefix = LEARNERS[row.learner].scores_prefixes
    prefixes = results.scores(row.setting, row.learner, "best_action_prefixes").mean() if by_prefix else None
    cells.append("-" if prefixes is None else f"{100 * prefixes:.1f}")
    seconds = results.scores(row.setting, row.learner, "fit_cpu_seconds")
    return [*cells, str(len(seconds)), f"{seconds.mean():.1f}"]


@dataclass(frozen=True, kw_only=True)
class Drawing(AbstractExperiment):
    """A figure of another kind: its tasks and how it is drawn are given as functions."""

    plan: Callable[[Results], list[AbstractTask]]
    draw: Callable[[Results], Exhibit]
    shows_parts: ClassVar[bool] = False

    def tasks(self, results: Results) -> list[AbstractTask]:
        return self.plan(results)

    def show(self, results: Results) -> Exhibit:
        return self.draw(results)
