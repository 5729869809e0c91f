"""The online stage against its targets: `make bench-online`, or `python -m benchmarks.online --help`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.live import measure_live
from benchmarks.playing import measure_playing
from benchmarks.regret import draw_bounds, measure_regret
from benchmarks.tables import RESULTS, table_of, table_of_targets
from benchmarks.targets import Target
from ilb import __version__

PARTS = {"regret": measure_regret, "playing": measure_playing, "live": measure_live}


def main(
    only: Annotated[str | None, typer.Option(help=f"One of {', '.join(PARTS)} instead of all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    record: Annotated[bool, typer.Option(help="Write the results into docs/results.")] = False,
) -> None:
    """Measure, print, and say which figures were reached."""
    notes, out = Console(stderr=True), Console()
    measured: dict[str, Any] = {"version": __version__}
    targets: list[Target] = []
    for part, measure in PARTS.items():
        if only not in (None, part):
            continue
        measured[part], reached = measure(lambda text: notes.print(f"· {text}", highlight=False))
        targets += reached
        if record:
            command = f"make bench-online ARGS='--only {part} --record'"
            verdicts = [{**asdict(target), "met": target.met} for target in reached]
            kept = {"version": __version__, "command": command, part: measured[part], "targets": verdicts}
            (RESULTS / f"online-{part}.json").write_text(json.dumps(kept, indent=1) + "\n")
            if part == "regret":
                draw_bounds(RESULTS / "regret-bound.png")
    measured["targets"] = [{**asdict(target), "met": target.met} for target in targets]
    if as_json:
        out.print_json(json.dumps(measured))
        return
    for part in PARTS:
        if part in measured:
            out.print(table_of(part, measured[part]))
    out.print(table_of_targets(targets))


if __name__ == "__main__":
    typer.run(main)
