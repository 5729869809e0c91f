"""Measurements and their targets: as commands, as tables on the console, and as files in docs/results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from ilb.version import __version__

RESULTS = Path(__file__).parents[1] / "docs" / "results"
LEFT = ("setting", "model", "policy", "library", "table", "method")


@dataclass(frozen=True)
class Target:
    """A measured value and its bound."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def bound(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


Rows: TypeAlias = list[dict[str, Any]]
Measured: TypeAlias = tuple[Rows, list[Target]]
Measure: TypeAlias = Callable[[Callable[[str], None]], Measured]


def run_stage(
    stage: str, command: str, parts: Mapping[str, Measure], figures: Mapping[str, Callable[[Rows], None]]
) -> None:
    """Run the command that measures the parts of a stage, and draws the figures of those that have one."""

    def main(
        only: Annotated[str | None, typer.Option(help="One part instead of all.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
        record: Annotated[bool, typer.Option(help="Write the results into docs/results.")] = False,
    ) -> None:
        if only not in (None, *parts):
            raise typer.BadParameter(f"--only must be one of {', '.join(parts)}; got {only!r}.")
        notes, out = Console(stderr=True), Console()
        measured: dict[str, Rows] = {}
        targets: list[Target] = []
        for part in parts if only is None else [only]:
            measured[part], reached = parts[part](lambda text: notes.print(f"· {text}", highlight=False))
            targets += reached
            if record:
                how = f"make {command} ARGS='--only {part} --record'"
                kept = {"version": __version__, "command": how, part: measured[part], "targets": _verdicts(reached)}
                (RESULTS / f"{stage}-{part}.json").write_text(json.dumps(kept, indent=1) + "\n")
                if part in figures:
                    figures[part](measured[part])
        if as_json:
            out.print_json(json.dumps({"version": __version__, **measured, "targets": _verdicts(targets)}))
            return
        for part, rows in measured.items():
            out.print(table_of(part, rows))
        out.print(table_of_targets(targets))

    main.__doc__ = f"Measure the {stage} stage ({', '.join(parts)}), print, and say which figures were reached."
    typer.run(main)


def _verdicts(targets: list[Target]) -> Rows:
    return [{**asdict(target), "met": target.met} for target in targets]


def table_of(title: str, rows: Rows) -> Table:
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
