"""How fast one live decision is, with labels and named fields, beside other libraries in the same run."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Measured, Rows, Target
from benchmarks.peers import measure
from ilb import fit
from ilb.environments import Specification, Synthetic
from ilb.live.bandit import LiveBandit
from ilb.models.latent import LatentModel
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.rewards.linear import LinearRewardRecipe

ROUNDS = 1000
CROWD, REPEATS = 1000, 15
"""People who are decided for at once, and how often."""
POLICIES = ("CPG", "FPG-TS (released)", "Calibrated", "Calibrated-TS", "Adaptive")
PEERS_PYTHON = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"


def measure_live(say: Callable[[str], None]) -> Measured:
    """Time decide + learn for one instance, and the same of the peers."""
    model = fit(
        Specification(Synthetic()).record().training.logs,
        latent_dim=5,
        recipe=TiedRecipe(),
        reward=LinearRewardRecipe(),
    )
    assert model.schema is not None
    peers = _peers(say)
    rows: Rows = []
    sizes = []
    names = [column.name for column in model.schema.context]
    for name in POLICIES:
        say(f"ilb {name}")
        anna = LiveBandit.on(model, name).start("anna")

        def one_round(context: np.ndarray, reward: float) -> None:
            decision = anna.decide(dict(zip(names, context.tolist(), strict=True)))  # noqa: B023
            anna.learn(decision, reward)  # noqa: B023

        rows.append({"library": f"ilb {name}", **measure(one_round, ROUNDS)})
        sizes.append(len(anna.to_json()))
    say(f"ilb Adaptive, {CROWD} people at once")
    crowd = measure_crowd(model)
    slowest = max(row["p50_us"] for row in rows)
    rows += [crowd, *peers]
    targets = [
        Target("live: p50 of decide + learn in microseconds, slowest policy", slowest, at_most=600),
        Target(f"live: p50 of a decision among {CROWD} in microseconds", crowd["p50_us"], at_most=80),
        Target("live: bytes of a saved instance, n = 5, K = 20", max(sizes), at_most=4000),
    ]
    targets += [
        Target(f"live: p50 of {row['library']} over ours", row["p50_us"] / slowest, at_least=1)
        for row in peers
        if "p50_us" in row
    ]
    return rows, targets


def measure_crowd(model: LatentModel) -> dict[str, Any]:
    """Time one decision of many that are made at once, by the default policy, for people who have had some rounds."""
    assert model.schema is not None
    bandit = LiveBandit.on(model)
    people = [bandit.start(number) for number in range(CROWD)]
    rng = np.random.default_rng(0)
    waited, used = [], []
    for _ in range(REPEATS + 1):
        contexts = [
            dict(zip([column.name for column in model.schema.context], row, strict=True))
            for row in rng.normal(size=(CROWD, model.schema.width)).tolist()
        ]
        began, worked = time.perf_counter(), time.process_time()
        decisions = bandit.decide_many(people, contexts)
        waited.append(1e6 * (time.perf_counter() - began) / CROWD)
        used.append(1e6 * (time.process_time() - worked) / CROWD)
        for person, decision, reward in zip(people, decisions, rng.normal(size=CROWD).tolist(), strict=True):
            person.learn(decision, reward)
    p5, p50, p95 = np.percentile(waited[1:], [5, 50, 95]).round(1).tolist()  # the first one compiles
    name = f"ilb Adaptive, a decision among {CROWD}"
    return {"library": name, "p5_us": p5, "p50_us": p50, "p95_us": p95, "cpu_us": round(float(np.median(used[1:])), 1)}


def _peers(say: Callable[[str], None]) -> Rows:
    if not PEERS_PYTHON.exists():
        say("peers are not installed: run `make bench-online`, which makes .venv-peers for them")
        return []
    say("peers")
    command = [str(PEERS_PYTHON), "-m", "benchmarks.peers", str(ROUNDS)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    found: Rows = json.loads(output.splitlines()[-1])
    return found
