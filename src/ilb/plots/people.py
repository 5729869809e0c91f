"""Figures of people: a map of all of them, and what is believed of one as time goes by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ilb.plots.style import BLUE, BROWN, GREEN, GREY, INDIGO, ORANGE, PURPLE, RED, SIZES, SKY, WINE, YELLOW

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BROWN, INDIGO, YELLOW, WINE)
"""Of the first actions; all others are grey."""

MOST_LINES = 6
"""Actions that a figure of one person shows: more can't be told apart."""


def plot_people(
    places: Float[np.ndarray, "people 2"],
    best: Int[np.ndarray, " people"],
    actions: Sequence[Any],
    axes: tuple[str, str],
    title: str = "",
) -> Figure:
    """Draw people as points, coloured by the action that is best for them; the most frequent actions have colours."""
    counts = np.bincount(best, minlength=len(actions))
    ranked = [int(action) for action in np.argsort(-counts, kind="stable") if counts[action]]
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        axis = figure.add_subplot()
        for action in ranked[: len(COLOURS)]:
            some = places[best == action]
            label = _plain(f"{actions[action]} ({counts[action]:,})")
            axis.scatter(
                some[:, 0], some[:, 1], s=14, alpha=0.75, linewidths=0, color=COLOURS[ranked.index(action)], label=label
            )
        rest = np.isin(best, ranked[len(COLOURS) :])
        if rest.any():
            label = f"others ({np.count_nonzero(rest):,})"
            axis.scatter(places[rest, 0], places[rest, 1], s=14, alpha=0.5, linewidths=0, color=GREY, label=label)
        axis.set(xlabel=_plain(axes[0]), ylabel=_plain(axes[1]), title=_plain(title))
        figure.legend(loc="outside right center", frameon=False, title="best action (people)")
    return figure


def plot_belief(
    means: Float[np.ndarray, "rounds K"],
    low: Float[np.ndarray, "rounds K"],
    high: Float[np.ndarray, "rounds K"],
    actions: Sequence[Any],
    taken: Sequence[tuple[int, int, float]] = (),
    title: str = "",
) -> Figure:
    """Draw what is expected of each action after 0, 1, 2, … rows of a person, with bands, and rewards as they came.

    `taken` has a row, an action and a reward each. Where there are many actions, those that are best at the end, and
    those that were taken most, are shown.
    """
    rounds = np.arange(len(means))
    counts = np.bincount([action for _, action, _ in taken], minlength=len(actions))
    wanted = [*np.argsort(-means[-1], kind="stable").tolist(), *np.argsort(-counts, kind="stable").tolist()]
    best, often = wanted[: MOST_LINES - 2], wanted[len(actions) :]
    shown = list(dict.fromkeys([*best, *often, *wanted]))[: min(MOST_LINES, len(actions))]
    with mpl.rc_context(SIZES):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axis = figure.add_subplot()
        for place, action in enumerate(shown):
            colour = COLOURS[place % len(COLOURS)]
            axis.plot(rounds, means[:, action], color=colour, linewidth=1.8, label=_plain(str(actions[action])))
            axis.fill_between(rounds, low[:, action], high[:, action], color=colour, alpha=0.12, linewidth=0)
            came = [(row, reward) for row, one, reward in taken if one == action]
            axis.scatter([row for row, _ in came], [reward for _, reward in came], s=16, color=colour, zorder=3)
        axis.set(xlabel="rows seen", ylabel="expected reward", title=_plain(title))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside right center", frameon=False, title="action")
    return figure


def _plain(text: str) -> str:
    """Keep labels from being read as formulas, or as to be left out of the legend."""
    return f"\u200b{text}".replace("$", r"\$") if text.startswith("_") else text.replace("$", r"\$")
