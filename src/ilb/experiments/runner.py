"""The one runner: plan the tasks of some experiments, run those that are not stored yet, keep each outcome as it comes.

Tasks run in the processes of joblib's backend and only return values; this process alone writes. So nothing is lost
with a worker, workers need no disk in common, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from joblib import Parallel, delayed, parallel_config

from ilb.errors import IlbError
from ilb.experiments.experiment import Experiment
from ilb.experiments.results import Results
from ilb.experiments.store import Store
from ilb.experiments.tasks import Outcome, Task, run_task

BACKENDS = ("loky", "dask", "ray")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


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
    with _workers(backend, jobs, cluster, results.store.path / "compiled"):
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


@contextmanager
def _workers(backend: str, jobs: int, cluster: str | None, compiled: Path) -> Iterator[None]:
    """Start workers, or join those of a cluster; each computes on one thread, so that their number changes nothing."""
    if backend not in BACKENDS:
        raise IlbError(f"--backend must be one of {', '.join(BACKENDS)}; got {backend!r}.")
    if ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
    if backend == "loky":
        # Workers that have grown are replaced. That takes nothing with it, for compiled programs are kept in files
        # which all workers share; the warning would only worry.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled.absolute()))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
        with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
            yield
    elif backend == "dask":
        with _dask_client(cluster), parallel_config(backend="dask", n_jobs=-1):
            yield
    else:
        _join_ray(cluster)
        with parallel_config(backend="ray", n_jobs=-1):
            yield


@contextmanager
def _dask_client(cluster: str | None) -> Iterator[None]:
    try:
        from distributed import Client, get_client
    except ImportError as error:
        raise IlbError("--backend dask needs Dask: pip install 'identifiable-latent-bandits[dask]'.") from error
    try:
        get_client()  # the caller is connected already
    except ValueError:
        if cluster is None:
            raise IlbError(
                "--backend dask needs the address of a running scheduler: --cluster tcp://HOST:8786."
            ) from None
        with Client(cluster):  # type: ignore[no-untyped-call]
            yield
    else:
        yield


def _join_ray(cluster: str | None) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise IlbError("--backend ray needs Ray: pip install 'ray[default]'.") from error
    ray.init(address=cluster or "auto", ignore_reinit_error=True)
    register_ray()
