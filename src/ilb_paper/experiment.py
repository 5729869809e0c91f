"""What an experiment is: a label of the paper, the tasks behind it, how it is shown, and the claims it decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from matplotlib.figure import Figure

from ilb_paper.claims import Claim
from ilb_paper.players import Player
from ilb_paper.results import Results
from ilb_paper.settings import Setting
from ilb_paper.tasks import Task


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


class Experiment(Protocol):
    """One table or figure."""

    @property
    def label(self) -> str:
        """The LaTeX label in the paper, or one of our own."""
        ...

    @property
    def title(self) -> str:
        """What it shows, in a line."""
        ...

    @property
    def claims(self) -> Sequence[Claim]:
        """The sentences of the paper that it decides."""
        ...

    def tasks(self, results: Results) -> list[Task]:
        """Name the tasks behind it at the size of these results."""
        ...

    def show(self, results: Results) -> Exhibit:
        """Draw it from the tables of the tasks that are done."""
        ...


class Panel(NamedTuple):
    """A column of a regret figure: a title and the setting that is played."""

    title: str
    setting: Setting


class Group(NamedTuple):
    """A row of a regret figure: the players that are compared in it."""

    title: str
    players: tuple[Player, ...]


@dataclass(frozen=True)
class RegretFigure:
    """Cumulative regret: a column for each setting, a row for each group of players."""

    label: str
    title: str
    panels: tuple[Panel, ...]
    groups: tuple[Group, ...]
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    horizon: int = 2000
    also: tuple[tuple[Setting, Player], ...] = ()
    """What claims compare with and the figure does not show."""

    @property
    def players(self) -> tuple[Player, ...]:
        """Everyone who plays, once."""
        return tuple(dict.fromkeys(player for group in self.groups for player in group.players))

    def tasks(self, results: Results) -> list[Task]:
        """Play every player in every setting."""
        shown = [(panel.setting, player) for panel in self.panels for player in self.players]
        return [task for place in (*shown, *self.also) for task in results.play_tasks(*place, self.horizon)]

    def show(self, results: Results) -> Exhibit:
        """Draw the curves; write the regret at some rounds below."""
        from ilb_paper.presentation import show_regret

        return show_regret(self, results)


class ScoreRow(NamedTuple):
    """A row of a table of fits: what is fitted where, and the paper's MCC, R² and % best (None where it has none)."""

    setting: Setting
    learner: str
    describe: tuple[str, ...]
    paper: tuple[float | None, float | None, float | None] = (None, None, None)


@dataclass(frozen=True)
class ScoreTable:
    """Scores of fits beside the paper's."""

    label: str
    title: str
    header: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()

    def tasks(self, results: Results) -> list[Task]:
        """Fit every row."""
        return [task for row in self.rows for task in results.fit_tasks(row.setting, row.learner)]

    def show(self, results: Results) -> Exhibit:
        """Write the table."""
        from ilb_paper.presentation import show_scores

        return show_scores(self, results)


@dataclass(frozen=True)
class Drawing:
    """A figure of another kind: its tasks and how it is drawn are given as functions."""

    label: str
    title: str
    plan: Callable[[Results], list[Task]]
    draw: Callable[[Results], Exhibit]
    claims: tuple[Claim, ...] = field(default=())

    def tasks(self, results: Results) -> list[Task]:
        """Ask the plan."""
        return self.plan(results)

    def show(self, results: Results) -> Exhibit:
        """Draw."""
        return self.draw(results)
