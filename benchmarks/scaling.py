"""How cost grows with the size of the logs: CPU time, memory, and the speed of encoding."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Measured, Rows, Target

LENGTH = 20
SIZES = (20_000, 60_000, 200_000, 600_000, 2_000_000)
BASELINE_RUNS = 3


def measure_scaling(say: Callable[[str], None]) -> Measured:
    """Fit logs of 20,000 to 2,000,000 rows, each in a fresh process, and encode a million contexts."""
    rows = []
    for size in SIZES:
        say(f"{size:,} rows of {size // LENGTH:,} instances")
        command = [sys.executable, "-m", "benchmarks.scaling", str(size)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(output.splitlines()[-1]))
    growth = rows[-1]["cpu_seconds"] / rows[0]["cpu_seconds"]
    targets = [
        Target("fit: growth of CPU time from 20,000 to 2,000,000 rows (linear is 100)", growth, at_most=100),
        Target("fit: peak memory in MB, 100,000 instances of 20 rows", rows[-1]["peak_mb"], at_most=2000),
        Target("encode: CPU seconds for a million contexts", rows[-1]["encode_million_cpu_seconds"], at_most=10),
    ]
    return rows, targets


def plot_scaling(rows: Rows, path: Path) -> None:
    """Draw CPU time and peak memory against rows, on log axes, with a linear guide."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    sizes = np.array([row["rows"] for row in rows])
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, field, label in (
        (axes[0], "cpu_seconds", "CPU seconds of a fit"),
        (axes[1], "peak_mb", "peak memory, MB"),
    ):
        values = np.array([row[field] for row in rows])
        axis.loglog(sizes, values, "o-", color="#0072B2", label="measured")
        if field == "cpu_seconds":
            guide = values[0] * sizes / sizes[0]
            axis.loglog(sizes, guide, "--", color="#999999", label="linear in rows")
            axis.set_ylim(values.min() / 2, guide.max() * 1.5)
        else:
            axis.axhline(2000, linestyle="--", color="#D55E00", label="limit 2 GB")
            axis.set_ylim(values.min() / 2, 4000)
        axis.set_xlabel(f"rows ({LENGTH} for each instance)")
        axis.set_ylabel(label)
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _fit_once(size: int) -> dict[str, Any]:
    """Fit logs of `size` rows twice in this process; the second time nothing is compiled."""
    from ilb import LinearRewardRecipe, TiedRecipe, fit
    from ilb.environments import Plan, Specification, Synthetic
    from ilb.offline.encodings import encode_contexts

    plan = Plan(instances=size // LENGTH, length=LENGTH, test_instances=0)
    logs = Specification(Synthetic(), plan).record().training.logs
    fit(logs, latent_dim=5, recipe=TiedRecipe(), reward=LinearRewardRecipe())
    began, wall = time.process_time(), time.perf_counter()
    model = fit(logs, latent_dim=5, recipe=TiedRecipe(), reward=LinearRewardRecipe())
    used, waited = time.process_time() - began, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    million = np.random.default_rng(0).normal(size=(1_000_000, 5)).astype(np.float32)
    encode_contexts(model.encoder, million[:100_000])
    began = time.process_time()
    encode_contexts(model.encoder, million)
    encoding = time.process_time() - began
    return {
        "rows": logs.rows,
        "instances": logs.instances,
        "cpu_seconds": round(used, 3),
        "wall_seconds": round(waited, 3),
        "peak_mb": round(peak, 1),
        "encode_million_cpu_seconds": round(encoding, 3),
    }


if __name__ == "__main__":
    print(json.dumps(_fit_once(int(sys.argv[1]))))
