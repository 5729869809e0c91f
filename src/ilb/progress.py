"""A progress bar with the time left, for anything that reports (step, steps, loss)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ilb.types import Report


@contextmanager
def progress_bar(description: str, console: Console | None = None, value: str = "loss") -> Iterator[Report]:
    """Show a bar while the block runs, with what `value` names; a count that starts again begins the bar anew.

    >>> with progress_bar("Training", Console(quiet=True)) as report:
    ...     report(100, 200, 1.5)
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(value + " {task.fields[value]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        task = progress.add_task(description, total=None, value="-")
        last = 0

        def report(done: int, total: int, reached: float) -> None:
            nonlocal last
            if done <= last:
                progress.reset(task)
            last = done
            progress.update(task, completed=done, total=total, value=f"{reached:.3f}")

        yield report
