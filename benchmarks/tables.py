"""Measurements as tables on the console."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.targets import Target

RESULTS = Path(__file__).parents[1] / "docs" / "results"
LEFT = ("setting", "model", "policy", "library")


def table_of(title: str, rows: list[dict[str, Any]]) -> Table:
    """Lay out rows; a field with a companion `…_se` is shown with its standard error."""
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row if not name.endswith("_se")))
    for name in names:
        table.add_column(name.replace("_", " "), justify="left" if name in LEFT else "right")
    for row in rows:
        table.add_row(*(_cell(row, name) for name in names))
    return table


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    if isinstance(value, str | int):
        return f"{value:,}" if isinstance(value, int) else value
    digits = 1 if name in ("best_action", "peak_mb") or abs(value) >= 100 else 3 if name.endswith(("r2", "mcc")) else 2
    error = row.get(f"{name}_se")
    return f"{value:,.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def table_of_targets(targets: list[Target]) -> Table:
    """Lay out what was to be reached and what was."""
    table = Table(title="targets", title_justify="left")
    for name in ("figure", "measured", "bound", "reached"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for target in targets:
        table.add_row(target.name, f"{target.value:,.3f}", target.bound, "yes" if target.met else "[bold red]no[/]")
    return table
