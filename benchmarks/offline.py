"""The offline stage against its targets: `make bench`, or `python -m benchmarks.offline --help`."""

from __future__ import annotations

from benchmarks.measuring import RESULTS, run_stage
from benchmarks.plain_fit import measure_plain_fits
from benchmarks.quality import measure_quality
from benchmarks.scaling import measure_scaling, plot_scaling

if __name__ == "__main__":
    run_stage(
        "offline",
        "bench",
        {"quality": measure_quality, "plain-fit": measure_plain_fits, "scaling": measure_scaling},
        {"scaling": lambda rows: plot_scaling(rows, RESULTS / "offline-scaling.png")},
    )
