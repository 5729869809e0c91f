"""`ilb report`: a page about a saved model and a table."""

from __future__ import annotations

from pathlib import Path

from ilb.cli.console import notes, progress_bar, say
from ilb.errors import IlbError
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.pages.report import report
from ilb.seeds import as_seed


def report_on_table(
    model_path: Path, logs_path: Path, out: Path, *, without: list[str], seed: int, command: str
) -> None:
    """Report on a saved model and a table, and write the page."""
    seed = as_seed(seed)
    model = LatentModel.load(model_path)
    if model.schema is None:
        raise IlbError(f"{model_path} has no schema, so it does not say which columns of a table to read.")
    logs = Logs.from_frame(logs_path, schema=model.schema)
    with progress_bar("Reporting", notes, "part") as progress:
        made = report(
            model, logs, without=without, source=logs_path.name, command=command, seed=seed, progress=progress
        )
    made.save(out)
    if made.checks is not None:
        say(made.checks.sentence())
    if made.evaluation is not None:
        say(made.evaluation.sentences[0])
        failed = [control.name for control in made.evaluation.controls if not control.passed]
        if failed:
            say(f"A control FAILED ({', '.join(failed)}): do not believe the gain before you know why.")
    say(f"wrote {out}")
