"""The one runner: plan the tasks of some experiments, run those that are not stored yet, keep each outcome as it comes.

Tasks run in the processes of joblib's backend and only return values; this process alone writes. So nothing is lost
with a worker, workers need no disk in common, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from joblib import Parallel, delayed

from ilb_paper.experiment import Experiment
from ilb_paper.results import Results
from ilb_paper.store import Store
from ilb_paper.tasks import Outcome, Task, run_task
from ilb_paper.workers import workers


class Failure(NamedTuple):
    """A task that raised, and what it said."""

    task: Task
    error: str


class Monitor(Protocol):
    """Whoever watches a run."""

    def started(self, tasks: int, weight: float, stored: int) -> None:
        """So many tasks are left to run, so much work is in them, so many were stored before."""
        ...

    def finished(self, task: Task, outcome: Outcome) -> None:
        """A task is done and stored."""
        ...


class Silent:
    """Nobody watches."""

    def started(self, tasks: int, weight: float, stored: int) -> None:
        """Say nothing."""

    def finished(self, task: Task, outcome: Outcome) -> None:
        """Say nothing."""


def plan(experiments: Iterable[Experiment], results: Results) -> list[list[Task]]:
    """Collect the tasks of experiments, each once, in waves: every task comes after those it needs."""
    waves: list[dict[Task, None]] = []

    def place(task: Task) -> int:
        wave = max((place(earlier) + 1 for earlier in _earlier(task)), default=0)
        while len(waves) <= wave:
            waves.append({})
        waves[wave][task] = None
        return wave

    for experiment in experiments:
        for task in experiment.tasks(results):
            place(task)
    return [sorted(wave, key=_urgency) for wave in waves]


def _earlier(task: Task) -> list[Task]:
    shortcut = task.shortcut()
    return [*task.needs(), *([] if shortcut is None else [shortcut])]


def _urgency(task: Task) -> tuple[int, float]:
    """First blocks of seeds come first, so that a run cut short has every line, from fewer worlds; then long tasks."""
    return min(getattr(task, "seeds", (0,))), -task.weight()


def run(
    experiments: Sequence[Experiment],
    results: Results,
    *,
    jobs: int = 1,
    backend: str = "loky",
    cluster: str | None = None,
    monitor: Monitor | None = None,
) -> list[Failure]:
    """Run what is not stored yet; give the tasks that failed, after all others were tried."""
    watcher: Monitor = Silent() if monitor is None else monitor
    waves = plan(experiments, results)
    missing = [[task for task in wave if task not in results.store] for wave in waves]
    left = [task for wave in missing for task in wave]
    stored = sum(map(len, waves)) - len(left)
    watcher.started(len(left), sum(task.weight() for task in left), stored)
    if not left:
        return []
    failures: list[Failure] = []
    with workers(backend, jobs, cluster, results.store.path / "compiled"):
        for wave in missing:
            ready = [task for task in wave if all(need in results.store for need in task.needs())]
            failures += [Failure(task, "a task that it needs failed") for task in wave if task not in ready]
            for number, outcome in _outcomes(ready, results.store):
                if isinstance(outcome, str):
                    failures.append(Failure(ready[number], outcome))
                else:
                    results.store.put(ready[number], outcome)
                    watcher.finished(ready[number], outcome)
    return failures


def _outcomes(tasks: Sequence[Task], store: Store) -> Iterator[tuple[int, Outcome | str]]:
    calls = (
        delayed(_attempt)(number, task, [store.get(earlier) for earlier in _earlier(task) if earlier in store])
        for number, task in enumerate(tasks)
    )
    yield from Parallel(return_as="generator_unordered", batch_size=1)(calls)


def _attempt(number: int, task: Task, inputs: Sequence[Outcome]) -> tuple[int, Outcome | str]:
    """Run a task where a failure must not take the others with it."""
    try:
        return number, run_task(task, inputs)
    except Exception:
        return number, traceback.format_exc()
