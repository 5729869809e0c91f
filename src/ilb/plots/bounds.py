"""Regret of each instance against the bound that the theorem gives it."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ilb.plots.style import BLUE, RED, SIZES


def plot_bounds(
    gap: Float[np.ndarray, " I"], regret: Float[np.ndarray, " I"], bound: Float[np.ndarray, " I"], title: str = ""
) -> Figure:
    """Draw regret and bound of every instance against the gap between its best and second-best action."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axis = figure.add_subplot()
        order = np.argsort(gap)
        axis.plot(gap[order], bound[order], ".", markersize=2.5, color=RED, label="bound of thm:regret")
        floor = 0.02
        axis.plot(gap[order], np.maximum(regret[order], floor), ".", markersize=2.5, color=BLUE, label="simulated CPG")
        axis.set(xscale="log", yscale="log", xlabel="gap between the two best actions", ylabel="regret", title=title)
        axis.set_ylim(bottom=floor / 1.5)
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter("{x:g}")
        axis.legend(frameon=False, markerscale=4)
    return figure
