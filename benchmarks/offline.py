"""The offline stage against its targets: `make bench`, or `python -m benchmarks.offline --help`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.quality import measure_quality
from benchmarks.scaling import measure_scaling, plot_scaling
from benchmarks.tables import RESULTS, table_of, table_of_targets
from benchmarks.targets import Target
from ilb import __version__

PARTS = ("quality", "scaling")


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
                out.print(table_of(part, measured[part]))
        out.print(table_of_targets(targets))
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


if __name__ == "__main__":
    typer.run(main)
