"""The figures of the paper: grids of regret curves, regret beside its bound, distributions, rewards, sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ilb.estimates import Estimate
from ilb.plots.style import BLACK, BLUE, BROWN, GREEN, ORANGE, PURPLE, RED, SIZES, SKY, YELLOW, look_of
from ilb_paper.learners import OURS, PAPER, PAPER_WIDE, VAE, VAE_RELEASED
from ilb_paper.players import ORACLE, Player
from ilb_paper.results import RegretCurve

DIRECT_FLOOR = 0.05
"""Regret below this is not told apart on the log axis: lines begin where they exceed it."""
BOUND_FLOOR = 0.02
"""Beside a bound, regret below this is drawn here, since zero has no place on a log axis."""

RELEASED_COLOURS = {"FPG (released)": SKY, "FPG-TS (released)": YELLOW}
"""Where the line tells the model, the released variants need colours of their own."""

MODEL_LINES: dict[str, Any] = {
    PAPER: "-",
    OURS: (0, (5, 1.2)),
    PAPER_WIDE: (0, (3, 1, 1, 1)),
    VAE: (0, (1, 1)),
    VAE_RELEASED: (0, (1, 2.5)),
    ORACLE: (0, (6, 2, 1, 2)),
}
"""The line of each model: in figures with several models, colour tells the policy and the line tells the model."""

SERIES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "linestyle": line}
    for line, colours in (("-", (BLUE, ORANGE, GREEN, RED)), ("--", (PURPLE, SKY, BLACK, BROWN)))
    for colour in colours
)
"""Looks for lines that are not policies, in order."""


class Line(NamedTuple):
    """The curve of one player."""

    player: Player
    curve: RegretCurve

    def look(self, with_model: bool) -> dict[str, Any]:
        policy, model = self.player
        look = look_of(policy)
        if policy in RELEASED_COLOURS:
            look = {"color": RELEASED_COLOURS[policy], "linestyle": "-"}
        return {**look, "linestyle": MODEL_LINES[model]} if with_model and model in MODEL_LINES else look

    def name(self, with_model: bool) -> str:
        policy, model = self.player
        return f"{policy}, {model}" if with_model and model not in ("", policy) else policy


class PanelGrid(NamedTuple):
    """Lines by row and column, with titles."""

    lines: Sequence[Sequence[Sequence[Line]]]
    columns: Sequence[str]
    rows: Sequence[str]


def plot_panels(grid: PanelGrid) -> Figure:
    """Draw mean cumulative regret with bands of one standard error and a dot for the final median, on log axes."""
    rows, columns = len(grid.rows), len(grid.columns)
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(min(3.1 * columns + 2.4, 13), 3.1 * rows + 0.4), layout="constrained")
        every = figure.subplots(rows, columns, squeeze=False, sharey="row")
        for number, (axes, row) in enumerate(zip(every, grid.lines, strict=True)):
            # Where all stand on one model, the row's title says which.
            players = [line.player for line in row[0]]
            several = len({player.model for player in players if player.model not in ("", player.policy)}) > 1
            for axis, lines, title in zip(axes, row, grid.columns, strict=True):
                _draw_lines(axis, lines, several)
                if number == 0:
                    axis.set_title(title, fontsize=9.5)
            axes[0].set_ylabel("mean cumulative regret\n(dots: medians)")
            _legend(list(axes), grid.rows[number])
        # The layout of many panels takes seconds: it is found once, not again for every file that is written.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def _legend(axes: Sequence[Axes], heading: str) -> None:
    """Put one legend beside a row; as a part of the last panel it takes the same room in every row."""
    named = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    axes[-1].legend(
        named.values(),
        named.keys(),
        loc="center left",
        bbox_to_anchor=(1.04, 0.5),
        borderaxespad=0,
        frameon=False,
        fontsize=8,
        title=heading or None,
    )


def _draw_lines(axis: Axes, lines: Sequence[Line], several_models: bool) -> None:
    lowest = min((max(float(line.curve.mean[0]), DIRECT_FLOOR) for line in lines), default=DIRECT_FLOOR)
    for line in lines:
        rounds, mean, error, median = line.curve
        look = line.look(several_models)
        drawn = np.where(mean > DIRECT_FLOOR, mean, np.nan)
        axis.plot(rounds, drawn, label=line.name(several_models), linewidth=1.5, **look)
        low, high = (np.maximum(mean + sign * error, DIRECT_FLOOR) for sign in (-1, 1))
        axis.fill_between(rounds, low, high, where=high > DIRECT_FLOOR, color=look["color"], alpha=0.15, linewidth=0)
        if median[-1] >= lowest:  # medians of nearly 0 would stretch the axis by decades
            axis.plot(rounds[-1], median[-1], "o", color=look["color"], markersize=4, clip_on=False, zorder=5)
    horizon = max((int(line.curve.rounds[-1]) for line in lines), default=2)
    axis.set(xscale="log", yscale="log", xlabel="round", xlim=(1, max(horizon, 2)))
    _write_plain_numbers(axis)


def _write_plain_numbers(axis: Axes) -> None:
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter("{x:g}")


@contextmanager
def _row_of_panels(
    panels: Mapping[str, Any], width: float, height: float, ylabel: str, **legend: Any
) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Give a figure and the axes of its panels, which share their y axis, and one legend beside them at the end."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = list(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0])
        yield figure, axes
        axes[0].set_ylabel(ylabel)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, **legend)


BoundCase = tuple[Float[np.ndarray, " I"], Float[np.ndarray, " I"], Float[np.ndarray, " I"]]
"""Gap, regret and bound of every instance."""


def plot_bounds(cases: Mapping[str, BoundCase]) -> Figure:
    """Draw regret and bound of every instance against the gap between its two best actions, a panel for each case."""
    with _row_of_panels(cases, 3.1 * len(cases) + 2.6, 3.6, "regret", markerscale=4) as (figure, axes):
        for axis, (title, (gap, regret, bound)) in zip(axes, cases.items(), strict=True):
            axis.plot(gap, bound, ".", markersize=3, color=RED, label="bound of thm:regret")
            axis.plot(gap, np.maximum(regret, BOUND_FLOOR), ".", markersize=3, color=BLUE, label="simulated CPG")
            axis.set(xscale="log", yscale="log", xlabel="gap between the two best actions", title=title)
            axis.set_ylim(bottom=BOUND_FLOOR / 1.5)
            _write_plain_numbers(axis)
    return figure


def plot_histogram(
    values: Float[np.ndarray, " N"], density: Callable[[np.ndarray], np.ndarray], bins: int, label: str
) -> Figure:
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axis = figure.add_subplot()
        axis.hist(values, bins=bins, density=True, color=BLUE, alpha=0.45, label=f"{len(values):,} patients")
        shown = np.linspace(values.min(), values.max(), 300)
        axis.plot(shown, density(shown), color=ORANGE, label="the mixture they are drawn from")
        axis.set(xlabel=label, ylabel="density")
        figure.legend(loc="outside right center", frameon=False)
    return figure


def plot_reward_lines(
    at: Float[np.ndarray, " points"], rewards: Mapping[str, Float[np.ndarray, "points K"]], label: str
) -> Figure:
    """Draw the expected reward of every action, a panel for each set of rewards."""
    with _row_of_panels(rewards, 3.4 * len(rewards) + 1.6, 3.4, "expected reward") as (figure, axes):
        for axis, (title, values) in zip(axes, rewards.items(), strict=True):
            for action in range(values.shape[1]):
                axis.plot(at, values[:, action], label=f"treatment {action}", **SERIES[action % len(SERIES)])
            axis.set(xlabel=label, title=title, xlim=(at[0], at[-1]))
    return figure


Sweep = Mapping[str, Mapping[float, Estimate]]
"""For each learner, its score at each value of what is swept."""


def plot_sweeps(sweeps: Mapping[str, Sweep], label: str) -> Figure:
    """Draw a score against several quantities, a panel for each, with bars of one standard error."""
    with _row_of_panels(sweeps, 3.0 * len(sweeps) + 1.8, 3.0, label) as (figure, axes):
        for axis, (name, lines) in zip(axes, sweeps.items(), strict=True):
            for look, (learner, points) in zip(SERIES, lines.items(), strict=False):
                scores = points.values()
                heights, errors = [s.value for s in scores], [s.standard_error for s in scores]
                axis.errorbar(list(points), heights, errors, label=learner, marker="o", markersize=3, **look)
            axis.set(xscale="log", xlabel=name)
            axis.set_xticks(list(points), [f"{at:g}" for at in points])
            axis.minorticks_off()
    return figure
