"""`ilb reproduce`: the tables and figures of the paper, with the time left and a report at the end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from joblib.externals.loky import reusable_executor
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ilb.cli.console import layout, notes, results, say, tell, width_of
from ilb.cli.stopping import ignore_signals, interruptible
from ilb.errors import IlbError
from ilb.logs.messages import counted, near
from ilb.threads import compute_on_one_thread
from ilb_paper.catalogue import EXPERIMENTS
from ilb_paper.claims import FEWEST_WORLDS
from ilb_paper.experiment import AbstractExperiment
from ilb_paper.report import Earlier, Judged, cpu_seconds, read_earlier, summarise, untested, write_report
from ilb_paper.results import Results, Size
from ilb_paper.runner import Monitor, plan, require_backend, run
from ilb_paper.store import Store
from ilb_paper.tasks import AbstractTask, Outcome


def choose(labels: Sequence[str]) -> list[AbstractExperiment]:
    unknown = [label for label in labels if label not in EXPERIMENTS and label != "all"]
    if unknown:
        advice = near(unknown[0], [*EXPERIMENTS, "all"])
        raise IlbError(f"no experiment has the label {unknown[0]!r}.{advice} {_known_labels()}")
    if not labels:
        raise IlbError(f"no label was given. {_known_labels()}")
    return [EXPERIMENTS[label] for label in (EXPERIMENTS if "all" in labels else dict.fromkeys(labels))]


def _known_labels() -> str:
    return f"There are {', '.join(EXPERIMENTS)}, or `all`. `ilb reproduce --list` says more."


def list_experiments(labels: Sequence[str], size: Size, out: Path) -> None:
    """Print what there is, what it needs, and how long it takes here."""
    found, chosen, scale = Results(Store(out), size), choose(labels), size.scale
    tasks = {e.label: [task for wave in plan([e], found) for task in wave] for e in chosen}
    rows = [[e.label, e.title, *_needs(tasks[e.label], found), str(len(e.claims))] for e in chosen]
    all_tasks = list(dict.fromkeys(task for some in tasks.values() for task in some))
    claims = sum(len(e.claims) for e in chosen)
    rows.append(["together", "each task once", *_needs(all_tasks, found), str(claims)])
    table = _listed(rows, scale)
    if width_of(table) > results.width:  # titles go below the labels, and are cut where there is no room
        bare = width_of(_listed([[label, *needs] for label, _, *needs in rows], scale))
        room = max(len(row[0]) for row in rows) + max(results.width - bare, 0)
        below = [f"{label}\n{shorten(title, room, placeholder='…')}" for label, title, *_ in rows]
        table = _listed([[first, *row[2:]] for first, row in zip(below, rows, strict=True)], scale)
    results.print(table)
    say(
        "A fit or a play is that of up to five worlds at once. Fits are shared between experiments; CPU minutes are "
        "measured where everything is stored, else a rough estimate (~)."
    )


def _needs(tasks: Sequence[AbstractTask], found: Results) -> list[str]:
    stored = [task for task in tasks if task in found.store]
    left = set(tasks).difference(stored)
    fits = sum(task.is_fit for task in tasks)
    measured = sum(found.store.about(task)["cpu_seconds"] for task in stored)
    seconds = measured + sum(task.weight() for task in left)
    return [
        str(fits),
        str(len(tasks) - fits),
        f"{len(stored)} of {len(tasks)}",
        f"~{seconds / 60:.0f}" if left else f"{seconds / 60:.1f}",
    ]


def _listed(rows: Sequence[Sequence[str]], scale: float) -> Table:
    table = Table(box=SIMPLE_HEAD, title=f"Experiments at scale {scale:g}", title_justify="left")
    numbers = ("fits", "plays", "stored", "CPU min", "claims")
    for name in ("label", "shows")[: len(rows[0]) - len(numbers)]:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*row, end_section=number == len(rows) - 2)
    return table


LINE_EVERY = 60.0
"""Seconds between lines about the progress where there is no terminal to draw a bar in."""


class Lines:
    """Now and then a line about the whole run, for logs."""

    def __init__(self) -> None:
        self.began = self.said = time.monotonic()
        self.done, self.tasks, self.work_done, self.work = 0, 0, 0.0, 1.0

    def started(self, tasks: int, weight: float, stored: int) -> None:
        _say_what_there_is_to_do(tasks, stored)
        self.tasks, self.work = tasks, max(weight, 1e-9)

    def finished(self, task: AbstractTask, outcome: Outcome) -> None:
        self.done += 1
        self.work_done += task.weight()
        now = time.monotonic()
        if now - self.said >= LINE_EVERY or self.done == self.tasks:
            self.said = now
            left = _time_left((now - self.began) * (self.work / self.work_done - 1) / 60)
            say(f"{self.done} of {self.tasks} tasks done{left}. Last: {_in_words(task, outcome)}")


def _say_what_there_is_to_do(tasks: int, stored: int) -> None:
    say(f"{counted(tasks, 'task')} to run, {stored:,} stored before.")


def _time_left(minutes: float) -> str:
    """Say how long it will take.

    >>> [_time_left(minutes) for minutes in (0.0, 0.2, 1.3, 90.0)]
    ['', ', less than a minute left', ', about 1 minute left', ', about 90 minutes left']
    """
    if minutes <= 1e-9:
        return ""
    whole = round(minutes)
    return f", about {counted(whole, 'minute')} left" if whole else ", less than a minute left"


def _in_words(task: AbstractTask, outcome: Outcome) -> str:
    return f"{task.title} ({outcome.cpu_seconds:.0f} CPU s)"


class Display:
    """A bar for the whole run: work done, tasks done, time left."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.bar = progress.add_task("Starting", total=None, done=0, tasks=0)
        self.done = 0

    def started(self, tasks: int, weight: float, stored: int) -> None:
        _say_what_there_is_to_do(tasks, stored)
        self.progress.update(self.bar, total=weight, tasks=tasks)

    def finished(self, task: AbstractTask, outcome: Outcome) -> None:
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
    labels: Sequence[str],
    size: Size,
    *,
    jobs: int | None,
    backend: str,
    cluster: str | None,
    out: Path,
    beside: Path | None = None,
) -> int:
    """Run, report, and give the exit code: 1 if a task failed. Ctrl-C and SIGTERM leave no worker behind."""
    compute_on_one_thread()
    require_backend(backend, cluster)
    experiments = choose(labels)
    earlier = None if beside is None else read_earlier(beside)
    found = Results(Store(out), size)
    with interruptible(signal.SIGTERM):
        try:
            code = _run_and_report(experiments, found, jobs or os.cpu_count() or 1, backend, cluster, earlier)
            _end_workers()
            return code
        except KeyboardInterrupt:
            ignore_signals()
            say(f"Stopped. What is done is kept in {out}; the same command goes on from there.")
            _end_workers()
            raise


def _end_workers() -> None:
    executor = reusable_executor._executor
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)


def _run_and_report(
    experiments: Sequence[AbstractExperiment],
    found: Results,
    jobs: int,
    backend: str,
    cluster: str | None,
    earlier: Earlier | None,
) -> int:
    began, out = time.perf_counter(), found.store.path
    with _display() as display:
        failures = run(experiments, found, jobs=jobs, backend=backend, cluster=cluster, monitor=display)
    judged = write_report(experiments, found, out, failures, earlier)
    for experiment in experiments:
        if experiment.is_printed:
            for shown in experiment.show(found).tables:
                results.print(layout_comparison(*shown))
    results.print(_verdicts(judged))
    missing = untested(experiments, judged)
    for sentence in summarise(judged, missing) if judged or missing else ():
        say(sentence)
    if found.size.scale < 1:
        say(_caution(found.size))
    for failure in failures:
        tell(str(failure), "Failed", "red")
    minutes = (time.perf_counter() - began) / 60
    say(f"{cpu_seconds(experiments, found) / 60:.1f} CPU minutes in all, {minutes:.1f} minutes now.")
    say(f"The report is {out / 'index.html'}.")
    return 1 if failures else 0


def layout_comparison(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Lay out scores of the paper and ours; in a narrow terminal they share a cell, and what matters least goes."""
    table = layout(f"{title}: the paper's numbers and ours", header, rows)
    columns = _paired(header, rows)
    names = list(columns)
    spare = [*(names[: names.index("% best") : -1] if "% best" in names else ()), "MCC"]
    for dropped in range(len(spare) + 1):
        if width_of(table) <= results.width:
            break
        kept = {name: cells for name, cells in columns.items() if name not in spare[:dropped]}
        table = layout(f"{title}: paper / ours", list(kept), zip(*kept.values(), strict=True))
        if dropped:
            table.caption = f"The report has {', '.join(reversed(spare[:dropped]))} as well."
            table.caption_justify = "left"
    return table


def _paired(header: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Put columns such as "R², paper" and "R², ours" into one."""
    columns = {name: [row[number].replace(" ± ", "±") for row in rows] for number, name in enumerate(header)}
    paired = {}
    for name, cells in columns.items():
        score, _, whose = name.rpartition(", ")
        if whose == "paper":
            paired[score] = [" / ".join(pair) for pair in zip(cells, columns[f"{score}, ours"], strict=True)]
        elif whose != "ours":
            paired[name] = cells
    return paired


def _caution(size: Size) -> str:
    if size.effort < 1:
        return f"At scale {size.scale:g} verdicts show that everything works; they say nothing about the paper."
    if len(size.seeds) < FEWEST_WORLDS:
        return f"At scale {size.scale:g} there are {len(size.seeds)} worlds; fewer than {FEWEST_WORLDS} decide nothing."
    return f"At scale {size.scale:g} verdicts rest on fewer worlds and instances, and say less about the paper."


def _verdicts(judged: Sequence[Judged]) -> Table:
    table = Table(box=SIMPLE_HEAD, title="Claims of the paper", title_justify="left")
    for name in ("verdict", "claim", "tested in"):
        table.add_column(name, no_wrap=name != "claim")
    for one in judged:
        table.add_row(one.shown_verdict, one.claim.says, one.label)
    return table
