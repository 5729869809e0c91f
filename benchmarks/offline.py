"""The offline stage against its targets: `make bench`, or `python -m benchmarks.offline --help`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.quality import measure_quality
from benchmarks.scaling import measure_scaling, plot_scaling
from benchmarks.targets import Target
from ilb import __version__

PARTS = ("quality", "scaling")
RESULTS = Path(__file__).parents[1] / "docs" / "results"


def main(
    only: Annotated[str | None, typer.Option(help=f"One of {', '.join(PARTS)} instead of all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    record: Annotated[bool, typer.Option(help="Write the results into docs/results.")] = False,
) -> None:
    """Measure, print, and say which figures were reached."""
    notes, out = Console(stderr=True), Console()
    say = lambda text: notes.print(f"· {text}", highlight=False)  # noqa: E731
    measured: dict[str, Any] = {"version": __version__}
    targets: list[Target] = []
    if only in (None, "quality"):
        measured["quality"], reached = measure_quality(say)
        targets += reached
    if only in (None, "scaling"):
        measured["scaling"], reached = measure_scaling(say)
        targets += reached
    measured["targets"] = [{**asdict(target), "met": target.met} for target in targets]
    if as_json:
        out.print_json(json.dumps(measured))
    else:
        for part in PARTS:
            if part in measured:
                out.print(_table(part, measured[part]))
        out.print(_target_table(targets))
    if record:
        for part in PARTS:
            if part in measured:
                kept = {
                    "version": __version__,
                    "command": f"make bench ARGS='--only {part} --record'",
                    part: measured[part],
                }
                (RESULTS / f"offline-{part}.json").write_text(json.dumps(kept, indent=1) + "\n")
        if "scaling" in measured:
            plot_scaling(measured["scaling"], RESULTS / "offline-scaling.png")


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row if not name.endswith("_se")))
    for name in names:
        table.add_column(name.replace("_", " "), justify="left" if name in ("setting", "model") else "right")
    for row in rows:
        table.add_row(*(_cell(row, name) for name in names))
    return table


def _cell(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return "-"
    if isinstance(value, str | int):
        return f"{value:,}" if isinstance(value, int) else value
    digits = 1 if name in ("best_action", "peak_mb") else 3 if name.endswith(("r2", "mcc")) else 2
    error = row.get(f"{name}_se")
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _target_table(targets: list[Target]) -> Table:
    table = Table(title="targets", title_justify="left")
    for name in ("figure", "measured", "bound", "reached"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for target in targets:
        table.add_row(target.name, f"{target.value:.3f}", target.bound, "yes" if target.met else "[bold red]no[/]")
    return table


if __name__ == "__main__":
    typer.run(main)
