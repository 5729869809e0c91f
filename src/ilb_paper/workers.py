"""Where tasks run: processes on this machine, or a cluster that is there already."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from joblib import parallel_config

from ilb.errors import IlbError

BACKENDS = ("loky", "dask", "ray")
ANSWER_WITHIN = "10s"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


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
def workers(backend: str, jobs: int, cluster: str | None, compiled: Path) -> Iterator[None]:
    """Start workers, or join those of a cluster; each computes on one thread, so that their number changes nothing."""
    require_backend(backend, cluster)
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


def _is_connected() -> bool:
    """Say whether the caller has a client of a Dask cluster."""
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
