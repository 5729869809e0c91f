"""How many threads compute: the order of sums follows from it, and with it the last digits of every training."""

from __future__ import annotations

import os

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def compute_on_one_thread() -> None:
    """Let results not depend on how many cores there are; to be called before JAX computes anything.

    Products of matrices are summed in an order that follows from the size of JAX's pool of threads, which is that of
    the cores a process may use unless `NPROC` says otherwise. The flags of XLA alone change nothing of it. The kind of
    the processor, and the versions of JAX and NumPy, still matter.
    """
    for name in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    if ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD}".strip()
