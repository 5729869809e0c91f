"""What the command line prints: results to standard output, everything else to standard error."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ilb.errors import IlbWarning

results = Console()
notes = Console(stderr=True)


def say(text: str) -> None:
    """Print a line of the result."""
    results.print(text, highlight=False)


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
    "mcc": "MCC (ICA)",
    "affine_mcc": "MCC (affine)",
    "affine_r2": "R² of z (affine)",
    "reward_r2": "R² of rewards",
    "potential_r2": "R² of potential rewards",
    "best_action": "best action found",
}


def layout_scores(title: str, lines: Mapping[str, Any]) -> Table:
    """Lay out scores, a line for each model; columns that nobody has are left out."""
    shown = [name for name in HEADINGS if any(getattr(scores, name) is not None for scores in lines.values())]
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for name in shown:
        table.add_column(HEADINGS[name], justify="right")
    for model, scores in lines.items():
        cells = []
        for name in shown:
            score = getattr(scores, name)
            if score is None:
                cells.append("-")
            elif name == "best_action":
                cells.append(f"{100 * score.value:.1f} ± {100 * score.standard_error:.1f} %")
            else:
                cells.append(f"{score.value:.3f} ± {score.standard_error:.3f}")
        table.add_row(model, *cells)
    return table
