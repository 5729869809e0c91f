"""How fast one live decision is, with labels and named fields, beside other libraries in the same run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measuring import Measured, Rows, Target
from benchmarks.peers import measure
from ilb import fit
from ilb.environments import Specification, Synthetic
from ilb.live.bandit import LiveBandit
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.rewards.linear import LinearRewardRecipe

ROUNDS = 1000
POLICIES = ("CPG", "FPG-TS (released)", "Calibrated", "Calibrated-TS")
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
    rows += peers
    slowest = max(row["p50_us"] for row in rows if row["library"].startswith("ilb"))
    targets = [
        Target("live: p50 of decide + learn in microseconds, slowest policy", slowest, at_most=400),
        Target("live: bytes of a saved instance, n = 5, K = 20", max(sizes), at_most=4000),
    ]
    targets += [
        Target(f"live: p50 of {row['library']} over ours", row["p50_us"] / slowest, at_least=1)
        for row in peers
        if "p50_us" in row
    ]
    return rows, targets


def _peers(say: Callable[[str], None]) -> Rows:
    if not PEERS_PYTHON.exists():
        say("peers are not installed: run `make bench-online`, which makes .venv-peers for them")
        return []
    say("peers")
    command = [str(PEERS_PYTHON), "-m", "benchmarks.peers", str(ROUNDS)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    found: Rows = json.loads(output.splitlines()[-1])
    return found
