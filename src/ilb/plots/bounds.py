"""Regret of each instance against the bound that the theorem gives it."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ilb.plots.style import BLUE, RED, SIZES

FLOOR = 0.02
"""Regret below this is drawn here, since zero has no place on a log axis."""

Case = tuple[Float[np.ndarray, " I"], Float[np.ndarray, " I"], Float[np.ndarray, " I"]]
"""Gap, regret and bound of every instance."""


def plot_bounds(gap: np.ndarray, regret: np.ndarray, bound: np.ndarray, title: str = "") -> Figure:
    """Draw regret and bound of every instance against the gap between its best and second-best action."""
    return plot_bound_cases({title: (gap, regret, bound)})


def plot_bound_cases(cases: Mapping[str, Case]) -> Figure:
    """Draw the same for several cases, a panel for each."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(3.1 * len(cases) + 2.6, 3.6), layout="constrained")
        axes = figure.subplots(1, len(cases), squeeze=False, sharey=True)[0]
        for axis, (title, (gap, regret, bound)) in zip(axes, cases.items(), strict=True):
            axis.plot(gap, bound, ".", markersize=3, color=RED, label="bound of thm:regret")
            axis.plot(gap, np.maximum(regret, FLOOR), ".", markersize=3, color=BLUE, label="simulated CPG")
            axis.set(xscale="log", yscale="log", xlabel="gap between the two best actions", title=title)
            axis.set_ylim(bottom=FLOOR / 1.5)
            for side in (axis.xaxis, axis.yaxis):
                side.set_major_formatter("{x:g}")
        axes[0].set_ylabel("regret")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, markerscale=4)
    return figure
