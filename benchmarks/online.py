"""The online stage against its targets: `make bench-online`, or `python -m benchmarks.online --help`."""

from __future__ import annotations

from benchmarks.live import measure_live
from benchmarks.measuring import RESULTS, run_stage
from benchmarks.playing import measure_playing
from benchmarks.price_of_trying import measure_price
from benchmarks.regret import draw_bounds, measure_regret

if __name__ == "__main__":
    run_stage(
        "online",
        "bench-online",
        {"regret": measure_regret, "price-of-trying": measure_price, "playing": measure_playing, "live": measure_live},
        {"regret": lambda _: draw_bounds(RESULTS / "regret-bound.png")},
    )
