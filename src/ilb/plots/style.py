"""One look for all figures: colours that colour-blind readers can tell apart, the same for a policy everywhere."""

from __future__ import annotations

from typing import Any

BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, SKY, YELLOW, GREY, BLACK, INDIGO, WINE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#8C564B",
    "#56B4E9",
    "#B8A600",
    "#888888",
    "#000000",
    "#332288",
    "#882255",
)

LOOK: dict[str, tuple[str, str]] = {
    "Adaptive": (BLACK, "-"),
    "Calibrated": (BLACK, "--"),
    "Calibrated-TS": (BLACK, ":"),
    "CPG": (BLUE, "-"),
    "CPG (oracle)": (BLUE, ":"),
    "FPG": (GREEN, "-"),
    "FPG (released)": (GREEN, "--"),
    "FPG-TS": (ORANGE, "-"),
    "FPG-TS (released)": (ORANGE, "--"),
    "MAB": (RED, "-"),
    "MAB (centred)": (RED, "--"),
    "MABPrior": (WINE, "-"),
    "HierTS": (WINE, "--"),
    "MIN-UCB": (WINE, ":"),
    "MIN-UCB (model)": (GREY, "-"),
    "MIN-UCB (wary)": (GREY, "--"),
    "ProBALL-UCB": (YELLOW, "-"),
    "ProBALL-UCB (wary)": (YELLOW, "-."),
    "Regret balancing": (INDIGO, "--"),
    "LinUCB": (PURPLE, "-"),
    "LinTS": (PURPLE, "--"),
    "Warm LinTS": (PURPLE, ":"),
    "LinTS (released)": (YELLOW, "--"),
    "Warm LinTS (released)": (YELLOW, ":"),
    "mTS (encodings)": (SKY, "-"),
    "mTS (rewards)": (SKY, "--"),
    "mUCB (encodings)": (BROWN, "-"),
    "mUCB (rewards)": (BROWN, "--"),
    "Regression": (INDIGO, "-"),
    "Uniform": (GREY, ":"),
}
"""Colour and line of each policy; the same colour is the same family."""

SIZES: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",
    "svg.hashsalt": "ilb",
}


def look_of(policy: str) -> dict[str, Any]:
    """Give the plotting arguments of a policy; unknown ones are grey."""
    colour, line = LOOK.get(policy, (GREY, "-"))
    return {"color": colour, "linestyle": line}
