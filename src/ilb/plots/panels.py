"""A grid of regret curves: a column for each setting, a row for each group of players, one legend for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ilb.plots.style import SIZES, line_of

DIRECT_FLOOR = 0.05
"""Regret below this is not told apart on the log axis: lines begin where they exceed it."""


class Line(NamedTuple):
    """The curve of one player."""

    policy: str
    model: str
    rounds: Int[np.ndarray, " rounds"]
    mean: Float[np.ndarray, " rounds"]
    standard_error: Float[np.ndarray, " rounds"]
    median: Float[np.ndarray, " rounds"]

    def name(self, with_model: bool) -> str:
        """Give the name in the legend."""
        return f"{self.policy}, {self.model}" if with_model and self.model not in ("", self.policy) else self.policy


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
            several = len({line.model for line in row[0] if line.model not in ("", line.policy)}) > 1
            for axis, lines, title in zip(axes, row, grid.columns, strict=True):
                _draw(axis, lines, several)
                if number == 0:
                    axis.set_title(title, fontsize=9.5)
            axes[0].set_ylabel("mean cumulative regret\n(dots: medians)")
            _legend(axes, grid.rows[number])
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


def _draw(axis: Axes, lines: Sequence[Line], several_models: bool) -> None:
    for line in lines:
        look = line_of(line.policy, line.model if several_models else "")
        mean = np.where(line.mean > DIRECT_FLOOR, line.mean, np.nan)
        axis.plot(line.rounds, mean, label=line.name(several_models), linewidth=1.5, **look)
        low, high = (np.maximum(line.mean + sign * line.standard_error, DIRECT_FLOOR) for sign in (-1, 1))
        axis.fill_between(
            line.rounds, low, high, where=high > DIRECT_FLOOR, color=look["color"], alpha=0.15, linewidth=0
        )
    lowest = min((max(float(line.mean[0]), DIRECT_FLOOR) for line in lines), default=DIRECT_FLOOR)
    for line in lines:
        if line.median[-1] >= lowest:  # medians of nearly 0 would stretch the axis by decades
            colour = line_of(line.policy, line.model if several_models else "")["color"]
            axis.plot(line.rounds[-1], line.median[-1], "o", color=colour, markersize=4, clip_on=False, zorder=5)
    horizon = max((int(line.rounds[-1]) for line in lines), default=2)
    axis.set(xscale="log", yscale="log", xlabel="round", xlim=(1, max(horizon, 2)))
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_formatter("{x:g}")
