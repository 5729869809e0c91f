"""`ilb reproduce`: the tables and figures of the paper, with the time left and a report at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ilb.cli.console import notes, results, say
from ilb.errors import IlbError
from ilb.experiments.catalogue import EXPERIMENTS
from ilb.experiments.experiment import Experiment, ScoreTable
from ilb.experiments.experiment import Table as Shown
from ilb.experiments.reproduction import Judged, cpu_seconds, write_report
from ilb.experiments.results import Results
from ilb.experiments.runner import Monitor, plan, run
from ilb.experiments.size import Size
from ilb.experiments.store import Store
from ilb.experiments.tasks import Outcome, Task


def choose(labels: Sequence[str]) -> list[Experiment]:
    """Find experiments by label; `all` is all of them."""
    if "all" in labels:
        return list(EXPERIMENTS.values())
    unknown = [label for label in labels if label not in EXPERIMENTS]
    if unknown or not labels:
        what = f"no experiment has the label {unknown[0]!r}" if unknown else "no label was given"
        raise IlbError(f"{what}; there are {', '.join(EXPERIMENTS)}, or `all`. `ilb reproduce --list` says more.")
    return [EXPERIMENTS[label] for label in dict.fromkeys(labels)]


def list_experiments(scale: float, out: Path) -> None:
    """Print what there is, what it needs, and how long it takes here."""
    found = Results(Store(out), Size(scale))
    table = Table(box=SIMPLE_HEAD, title=f"Experiments at scale {scale:g}", title_justify="left")
    for name, justify in (
        ("label", "left"),
        ("shows", "left"),
        ("fits", "right"),
        ("plays", "right"),
        ("stored", "right"),
        ("CPU min", "right"),
        ("claims", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=name == "label")  # type: ignore[arg-type]
    for experiment in EXPERIMENTS.values():
        waves = plan([experiment], found)
        tasks = [task for wave in waves for task in wave]
        stored = [task for task in tasks if task in found.store]
        left = sum(task.weight() for task in tasks if task not in found.store)
        fits = sum(type(task).__name__ == "FitTask" for task in tasks)
        minutes = (cpu_seconds([experiment], found) + left) / 60
        table.add_row(
            experiment.label,
            experiment.title,
            str(fits),
            str(len(tasks) - fits),
            f"{len(stored)} of {len(tasks)}",
            f"{minutes:.1f}" if len(stored) == len(tasks) else f"~{minutes:.0f}",
            str(len(experiment.claims)),
        )
    results.print(table)
    say("Fits are shared between experiments; CPU minutes are measured where everything is stored, else estimated.")


LINE_EVERY = 60.0
"""Seconds between lines about the progress where there is no terminal to draw a bar in."""


class Lines:
    """Now and then a line about the whole run, for logs."""

    def __init__(self) -> None:
        self.began = self.said = time.monotonic()
        self.done, self.tasks, self.work_done, self.work = 0, 0, 0.0, 1.0

    def started(self, tasks: int, weight: float, stored: int) -> None:
        """Say how much there is to do."""
        say(f"{tasks} tasks to run, {stored} stored before.")
        self.tasks, self.work = tasks, max(weight, 1e-9)

    def finished(self, task: Task, outcome: Outcome) -> None:
        """Count the task; say so unless something was said just before."""
        self.done += 1
        self.work_done += task.weight()
        now = time.monotonic()
        if now - self.said >= LINE_EVERY or self.done == self.tasks:
            self.said = now
            left = (now - self.began) * (self.work / self.work_done - 1) / 60
            say(f"{self.done} of {self.tasks} tasks done, about {left:.0f} minutes left. {_in_words(task, outcome)}")


def _in_words(task: Task, outcome: Outcome) -> str:
    name = " ".join(str(getattr(task, part)) for part in ("policy", "learner", "model") if getattr(task, part, ""))
    return f"{type(task).__name__} {name} ({outcome.cpu_seconds:.0f} CPU s)"


class Display:
    """A bar for the whole run: work done, tasks done, time left."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.bar = progress.add_task("Starting", total=None, done=0, tasks=0)
        self.done = 0

    def started(self, tasks: int, weight: float, stored: int) -> None:
        """Show how much there is to do."""
        say(f"{tasks} tasks to run, {stored} stored before.")
        self.progress.update(self.bar, total=weight, tasks=tasks)

    def finished(self, task: Task, outcome: Outcome) -> None:
        """Move the bar by the weight of the task."""
        self.done += 1
        text = f"{_in_words(task, outcome):<55.55}"
        self.progress.update(self.bar, advance=task.weight(), done=self.done, description=text)


@contextmanager
def _display() -> Iterator[Monitor]:
    if not notes.is_terminal:
        yield Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[tasks]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=notes, speed_estimate_period=600) as progress:
        yield Display(progress)


def reproduce(
    labels: Sequence[str], *, scale: float, jobs: int | None, backend: str, cluster: str | None, out: Path
) -> int:
    """Run, report, and give the exit code: 1 if a task failed."""
    began = time.perf_counter()
    experiments = choose(labels)
    found = Results(Store(out), Size(scale))
    try:
        with _display() as display:
            workers = jobs or os.cpu_count() or 1
            failures = run(experiments, found, jobs=workers, backend=backend, cluster=cluster, monitor=display)
    except KeyboardInterrupt:
        say(f"Stopped. What is done is kept in {out}; the same command goes on from there.")
        raise
    judged = write_report(experiments, found, out, failures)
    for experiment in experiments:
        if isinstance(experiment, ScoreTable):
            for shown in experiment.show(found).tables:
                results.print(_laid_out(shown))
    results.print(_verdicts(judged))
    for failure in failures:
        notes.print(f"[bold red]Failed:[/] {escape(str(failure))}", highlight=False)
    minutes = (time.perf_counter() - began) / 60
    say(f"{cpu_seconds(experiments, found) / 60:.1f} CPU minutes in all, {minutes:.1f} minutes now.")
    say(f"The report is {out / 'index.html'}.")
    return 1 if failures else 0


def _laid_out(shown: Shown) -> Table:
    table = Table(box=SIMPLE_HEAD, title=f"{shown.caption}: the paper's numbers and ours", title_justify="left")
    for number, name in enumerate(shown.header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in shown.rows:
        table.add_row(*row)
    return table


def _verdicts(judged: Sequence[Judged]) -> Table:
    table = Table(box=SIMPLE_HEAD, title="Claims of the paper", title_justify="left")
    for name in ("verdict", "claim", "tested in"):
        table.add_column(name, no_wrap=name != "claim")
    for label, claim, judgement in judged:
        table.add_row(judgement.verdict, claim.says, label)
    return table
