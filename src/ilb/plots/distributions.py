"""Histograms with their density, expected rewards as lines, and scores against what there is to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from ilb.plots.style import BLUE, ORANGE, SERIES, SIZES

Sweep = Mapping[str, Sequence[tuple[float, float, float]]]
"""For each learner, points (where, value, standard error)."""


def plot_histogram(
    values: Float[np.ndarray, " N"], density: Callable[[np.ndarray], np.ndarray], bins: int, label: str
) -> Figure:
    """Draw a histogram and the density that it was drawn from."""
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
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(3.4 * len(rewards) + 1.6, 3.4), layout="constrained")
        axes = figure.subplots(1, len(rewards), squeeze=False, sharey=True)[0]
        for axis, (title, values) in zip(axes, rewards.items(), strict=True):
            for action in range(values.shape[1]):
                axis.plot(at, values[:, action], label=f"treatment {action}", **SERIES[action % len(SERIES)])
            axis.set(xlabel=label, title=title, xlim=(at[0], at[-1]))
        axes[0].set_ylabel("expected reward")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure


def plot_sweeps(sweeps: Mapping[str, Sweep], label: str) -> Figure:
    """Draw a score against several quantities, a panel for each, with bars of one standard error."""
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(3.0 * len(sweeps) + 1.8, 3.0), layout="constrained")
        axes = figure.subplots(1, len(sweeps), squeeze=False, sharey=True)[0]
        for axis, (name, lines) in zip(axes, sweeps.items(), strict=True):
            for number, (learner, points) in enumerate(lines.items()):
                where, value, error = np.array(points).T
                axis.errorbar(where, value, error, label=learner, marker="o", markersize=3, **SERIES[number])
            axis.set(xscale="log", xlabel=name)
            axis.set_xticks([point[0] for point in points], [f"{point[0]:g}" for point in points])
            axis.minorticks_off()
        axes[0].set_ylabel(label)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    return figure
