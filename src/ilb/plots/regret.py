"""Cumulative regret against rounds: the figure of the paper."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ilb.estimates import standard_error
from ilb.files import put_in_place
from ilb.history import History
from ilb.plots.style import SIZES, look_of


def plot_regret(histories: Mapping[str, History], title: str = "") -> Figure:
    """Draw mean cumulative regret with bands of one standard error, on log axes; the legend in final order."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(8, 4.6), layout="constrained")
        axis = figure.add_subplot()
        finals = {}
        for name, history in histories.items():
            cumulative = history.cumulative_regret()
            shown = np.unique(np.geomspace(1, history.horizon, 200).round().astype(int)) - 1
            mean = cumulative[:, shown].mean(axis=0)
            error = np.nan_to_num(standard_error(cumulative[:, shown]))
            label = f"{name}  {mean[-1]:,.1f}" if mean[-1] < 100 else f"{name}  {mean[-1]:,.0f}"
            axis.plot(shown + 1, mean, label=label, linewidth=1.6, **look_of(name))
            axis.fill_between(
                shown + 1, mean - error, mean + error, alpha=0.15, linewidth=0, color=look_of(name)["color"]
            )
            finals[label] = mean[-1]
        axis.set(xscale="log", yscale="log", xlabel="round", ylabel="mean cumulative regret", title=title)
        axis.set_xlim(1, max(2, *(history.horizon for history in histories.values())))
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter("{x:g}")
        handles, labels = axis.get_legend_handles_labels()
        order = sorted(range(len(labels)), key=lambda i: -finals[labels[i]])
        figure.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="outside right center",
            frameon=False,
            title="policy, regret at the end",
        )
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the suffix says how (.png, .svg, .pdf)."""
    with mpl.rc_context(SIZES), put_in_place(path) as (draft,):
        figure.savefig(draft, dpi=160, format=path.suffix.removeprefix(".") or None)


def svg_of(figure: Figure) -> str:
    """Give a figure as the text of an SVG element, to put into a page."""
    text = io.StringIO()
    with mpl.rc_context(SIZES):
        figure.savefig(text, format="svg", metadata={"Date": None})
    content = text.getvalue()
    # Six decimals of a point are for nobody's eyes, and a third of a page.
    drawn = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), content)
    return drawn[drawn.index("<svg") :]
