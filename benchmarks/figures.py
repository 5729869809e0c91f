"""Play all lines of a figure at the paper's size: `make bench-figure ARGS='LABEL STORE'`.

That is one world and 200 instances. STORE is where `ilb reproduce LABEL` has left its fits; what is measured is playing
alone, in one process that has compiled nothing before.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.measuring import Target, table_of_targets
from ilb.threads import compute_on_one_thread
from ilb_paper.catalogue import EXPERIMENTS
from ilb_paper.experiment import RegretFigure
from ilb_paper.results import Results, Size
from ilb_paper.store import Store

FIGURES = {label: figure for label, figure in EXPERIMENTS.items() if isinstance(figure, RegretFigure)}


def main(
    label: Annotated[str, typer.Argument(help=f"One of {', '.join(FIGURES)}.")],
    store: Annotated[Path, typer.Argument(help="Directory of a reproduction at full size.")],
) -> None:
    """Measure, and say whether the target was reached."""
    compute_on_one_thread()  # as in the workers of `ilb reproduce`
    if label not in FIGURES:
        raise typer.BadParameter(f"no regret figure has the label {label!r}; there are {', '.join(FIGURES)}.")
    figure, results = FIGURES[label], Results(Store(store), Size())
    if any(need not in results.store for task in figure.tasks(results) for need in task.needs()):
        raise typer.BadParameter(f"{store} lacks fits of {label}. Run: ilb reproduce {label} --out {store}")
    began, lines = time.process_time(), 0
    for panel in figure.panels:
        for player in figure.players:
            whole = results.play_tasks(panel.setting, player, figure.horizon)[0]
            fits = [results.store.get(need) for need in whole.needs()]
            replace(whole, seeds=whole.seeds[:1]).run(fits)
            lines += 1
    minutes = (time.process_time() - began) / 60
    Console().print(table_of_targets([Target(f"{label}: CPU minutes to play {lines} lines", minutes, at_most=6.0)]))


if __name__ == "__main__":
    typer.run(main)
