"""`ilb check`: whether a saved model may be trusted on a table."""

from __future__ import annotations

import json
from pathlib import Path

from rich.text import Text

from ilb.cli.console import notes, progress_bar, results, say, visible
from ilb.errors import IlbError
from ilb.files import put_in_place, write_whole
from ilb.logs import Logs
from ilb.logs.tables import fill_table
from ilb.models.latent import LatentModel
from ilb.seeds import as_seed
from ilb.trust.checking import check
from ilb.trust.checks import Checks, Verdict

BROKEN = 3
"""The exit code if a check came out as broken; 0 if all are fine or doubtful, 2 if nothing could be checked."""

STYLES = {Verdict.FINE: "green", Verdict.DOUBTFUL: "bold yellow", Verdict.BROKEN: "bold red"}


def check_table(model_path: Path, logs_path: Path, *, unseen: bool, seed: int, as_json: bool, out: Path | None) -> int:
    """Check a saved model on a table, print what came of it or write it to a file, and give the exit code."""
    seed = as_seed(seed)
    model = LatentModel.load(model_path)
    if model.schema is None:
        raise IlbError(f"{model_path} has no schema, so it does not say which columns of a table to read.")
    logs = Logs.from_frame(logs_path, schema=model.schema)
    with progress_bar("Checking", notes, "check") as report:
        checks = check(model, logs, unseen=unseen, seed=seed, report=report)
    if out is not None:
        _write(checks, out)
    if as_json:
        results.print_json(json.dumps(checks.to_json()))
    else:
        _print(checks)
        if out is not None:
            say(f"wrote {out}")
    return BROKEN if checks.verdict is Verdict.BROKEN else 0


def _print(checks: Checks) -> None:
    styles = {row.question: STYLES[row.verdict] for row in checks}
    for line in str(checks).splitlines():
        style = next((style for question, style in styles.items() if line[2:].startswith(question)), "")
        results.print(Text(visible(line), style=style), soft_wrap=True)


def _write(checks: Checks, out: Path) -> None:
    if out.suffix.lower() == ".json":
        write_whole(out, json.dumps(checks.to_json(), indent=1) + "\n")
        return
    with put_in_place(out) as (draft,):
        fill_table(checks.to_frame("pyarrow"), draft, out.suffix)
