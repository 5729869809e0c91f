"""The one runner: plan the tasks of some experiments, run those that are not stored yet, keep each outcome as it comes.

Tasks run in the processes of joblib's backend and only return values; this process alone writes. So nothing is lost
with a worker, workers need no disk in common, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from joblib import Parallel, delayed, parallel_config

from ilb.errors import IlbError
from ilb.threads import compute_on_one_thread
from ilb_paper.experiment import AbstractExperiment
from ilb_paper.results import Results
from ilb_paper.store import Store
from ilb_paper.tasks import AbstractTask, Outcome, run_task

BACKENDS = ("loky", "dask", "ray")
ANSWER_WITHIN = "10s"
LOOK_EVERY = 1.0
"""Seconds after which a worker looks whether the process that started it is still there."""


class Failure(NamedTuple):
    """A task that raised, and what it said."""

    task: AbstractTask
    error: str


@runtime_checkable
class Monitor(Protocol):
    """Whoever watches a run."""

    def started(self, tasks: int, weight: float, stored: int) -> None:
        """So many tasks are left to run, so much work is in them, so many were stored before."""

    def finished(self, task: AbstractTask, outcome: Outcome) -> None:
        """A task is done and stored."""


def plan(experiments: Iterable[AbstractExperiment], results: Results) -> list[list[AbstractTask]]:
    """Collect the tasks of experiments, each once, in waves: every task comes after those it needs."""
    waves: list[dict[AbstractTask, None]] = []

    @cache
    def place(task: AbstractTask) -> int:
        wave = max((place(earlier) + 1 for earlier in task.earlier()), default=0)
        while len(waves) <= wave:
            waves.append({})
        waves[wave][task] = None
        return wave

    for experiment in experiments:
        for task in experiment.tasks(results):
            place(task)
    return [sorted(wave, key=_urgency) for wave in waves]


def _urgency(task: AbstractTask) -> tuple[int, float]:
    """First blocks of seeds come first, so that a run cut short has every line, from fewer worlds; then long tasks."""
    return task.first_seed, -task.weight()


def run(
    experiments: Sequence[AbstractExperiment],
    results: Results,
    *,
    jobs: int = 1,
    backend: str = "loky",
    cluster: str | None = None,
    monitor: Monitor | None = None,
) -> list[Failure]:
    """Run what is not stored yet; give the tasks that failed, after all others were tried."""
    waves = plan(experiments, results)
    missing = [[task for task in wave if task not in results.store] for wave in waves]
    left = [task for wave in missing for task in wave]
    stored = sum(map(len, waves)) - len(left)
    if monitor is not None:
        monitor.started(len(left), sum((task.weight() for task in left), 0.0), stored)
    if not left:
        return []
    failures: list[Failure] = []
    jobs = min(jobs, max(map(len, missing)))  # a worker without a task would only take memory
    with _workers(backend, jobs, cluster, results.store.path / "compiled"):
        for wave in missing:
            ready = [task for task in wave if all(need in results.store for need in task.needs())]
            failures += [Failure(task, "a task that it needs failed") for task in wave if task not in ready]
            for number, outcome, error in _attempts(ready, results.store, os.getpid() if backend == "loky" else None):
                if outcome is None:
                    failures.append(Failure(ready[number], error))
                    continue
                results.store.put(ready[number], outcome)
                if monitor is not None:
                    monitor.finished(ready[number], outcome)
    return failures


def _attempts(
    tasks: Sequence[AbstractTask], store: Store, parent: int | None
) -> Iterator[tuple[int, Outcome | None, str]]:
    calls = (
        delayed(_attempt)(parent, number, task, [store.get(earlier) for earlier in task.earlier() if earlier in store])
        for number, task in enumerate(tasks)
    )
    yield from Parallel(return_as="generator_unordered", batch_size=1)(calls)


def _attempt(
    parent: int | None, number: int, task: AbstractTask, inputs: Sequence[Outcome]
) -> tuple[int, Outcome | None, str]:
    """Run a task where a failure must not take the others with it; give its outcome, or none and what it said."""
    if parent is not None and parent != os.getpid():
        _end_with(parent)
    try:
        return number, run_task(task, inputs), ""
    except Exception:
        return number, None, traceback.format_exc()


@lru_cache
def _end_with(parent: int) -> None:
    """Let this process not outlive the one that started it, not even if that is killed: nobody would stop it then."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# Where tasks run: processes on this machine, or a cluster that is there already.


def require_backend(backend: str, cluster: str | None) -> None:
    """Raise unless work can be sent where it shall run: to be asked before anything is said of the work."""
    if backend not in BACKENDS:
        raise IlbError(f"--backend must be one of {', '.join(BACKENDS)}; got {backend!r}.")
    if backend == "loky" and cluster is not None:
        raise IlbError(f"--cluster {cluster} needs --backend dask or --backend ray; without, work runs here.")
    if backend == "dask" and find_spec("distributed") is None:
        raise IlbError("--backend dask needs Dask: pip install 'identifiable-latent-bandits[dask]'.")
    if backend == "dask" and cluster is None and not _is_connected():
        raise IlbError("--backend dask needs the address of a running scheduler: --cluster tcp://HOST:8786.")
    if backend == "ray" and find_spec("ray") is None:
        raise IlbError("--backend ray needs Ray: pip install 'ray[default]'.")


@contextmanager
def _workers(backend: str, jobs: int, cluster: str | None, compiled: Path) -> Iterator[None]:
    """Start workers, or join those of a cluster; each computes on one thread, so that their number changes nothing."""
    require_backend(backend, cluster)
    compute_on_one_thread()
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


def _is_connected() -> bool:
    from distributed import get_client

    try:
        get_client()
    except ValueError:
        return False
    return True


@contextmanager
def _dask_client(cluster: str | None) -> Iterator[None]:
    from distributed import Client

    if cluster is None:
        yield  # the caller is connected
    else:
        try:
            client = Client(cluster, timeout=ANSWER_WITHIN, set_as_default=False)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise IlbError(
                f"no Dask scheduler answers at {cluster} ({error}). Start one with: dask scheduler."
            ) from error
        with client, client.as_current():
            yield


def _join_ray(cluster: str | None) -> None:
    import ray
    from ray.util.joblib import register_ray

    ray.init(address=cluster or "auto", ignore_reinit_error=True)
    register_ray()
