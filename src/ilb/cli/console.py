"""What the command line prints: results to standard output, everything else to standard error."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ilb.errors import IlbWarning

results = Console()
notes = Console(stderr=True)


def say(text: str) -> None:
    """Print a line of the result."""
    results.print(text, highlight=False, markup=False, soft_wrap=True)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning for a person: no file names, no source line; those of other libraries stay as they are."""
    del file  # always standard error
    if issubclass(category, IlbWarning):
        notes.print(f"[bold yellow]{category.__name__}:[/] {escape(str(message))}", highlight=False)
    else:
        notes.print(warnings.formatwarning(message, category, filename, lineno, line), markup=False)


HEADINGS = {
    "reward_r2": "R² of rewards",
    "potential_r2": "R² expected rewards",
    "best_action": "best action named",
    "affine_r2": "R² of z (affine)",
    "affine_mcc": "MCC of z (affine)",
    "mcc": "MCC of z (ICA)",
}
"""In the order of a table; MCC after ICA comes last, for with Gaussian states even the truth scores low on it."""


def layout_scores(title: str, lines: Mapping[str, Any]) -> Table:
    """Lay out scores: a column for each model, a row for each score that any of them has."""
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for model in lines:
        table.add_column(model, justify="right", no_wrap=True)
    for name, heading in HEADINGS.items():
        scores = [getattr(line, name) for line in lines.values()]
        if any(score is not None for score in scores):
            table.add_row(heading, *(shown_score(name, score) for score in scores))
    return table


def shown_score(name: str, score: Any) -> str:
    """Write a score with its standard error; the share of best actions in per cent."""
    if score is None:
        return "-"
    if name == "best_action":
        return f"{100 * score.value:.1f}±{100 * score.standard_error:.1f} %"
    return f"{score.value:.3f}±{score.standard_error:.3f}"
