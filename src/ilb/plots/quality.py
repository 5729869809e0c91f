"""Figures of how good a model is: whether its intervals hold, and what more people would bring."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from ilb.plots.style import BLACK, BLUE, GREY, SIZES


def plot_calibration(
    levels: Float[np.ndarray, " levels"],
    held: Float[np.ndarray, " levels"],
    errors: Float[np.ndarray, " levels"],
    title: str = "",
) -> Figure:
    """Draw how often intervals held the reward against how often they say they do; on the line, both agree."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(4.4, 4.2), layout="constrained")
        axis = figure.add_subplot()
        axis.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1.2)
        axis.errorbar(levels, held, yerr=2 * np.nan_to_num(errors), color=BLUE, marker="o", markersize=4, linewidth=1.4)
        axis.set(xlim=(0, 1), ylim=(0, 1), title=title)
        axis.set(xlabel="interval says", ylabel="share of rewards inside")
    return figure


def plot_learning_curve(
    people: Int[np.ndarray, " sizes"],
    scores: Float[np.ndarray, " sizes"],
    errors: Float[np.ndarray, " sizes"],
    reference: float | None = None,
    title: str = "",
) -> Figure:
    """Draw R² of the next reward of held-out people against how many others were learned from."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axis = figure.add_subplot()
        axis.errorbar(people, scores, yerr=np.nan_to_num(errors), color=BLUE, marker="o", markersize=4, linewidth=1.6)
        if reference is not None:
            axis.axhline(reference, color=BLACK, linestyle=":", linewidth=1.2)
            axis.annotate(
                "own level", (float(people[0]), reference), xytext=(0, 3), textcoords="offset points", fontsize=8
            )
        axis.set(xscale="log", xlabel="people to learn from", ylabel="R² of the next reward", title=title)
        axis.set_xticks(people, labels=[f"{count:,}" for count in people])
        axis.minorticks_off()
    return figure
