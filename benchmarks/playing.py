"""How fast policies play: CPU time of one instance, and decisions a second beside vectorised NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax.random as jr
import numpy as np

from benchmarks.measuring import Measured, Rows, Target
from ilb import fit
from ilb.environments import Specification, Synthetic
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.networks import ComposedEncoder, MaxoutMLP
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.online.roster import build_policy
from ilb.simulation import simulate

BATCH, HORIZON = 1000, 2000
RELEASED_CPU_SECONDS = {"CPG": 2.9, "FPG": 17.0, "FPG (released)": 17.0, "FPG-TS": 37.0, "FPG-TS (released)": 37.0}
"""CPU seconds of one instance of 2000 rounds in the released code, the smaller of the figures seen."""


def measure_playing(say: Callable[[str], None]) -> Measured:
    """Time a batch of 1000 instances after compiling, with the learned encoder."""
    recorded = Specification(Synthetic()).record()
    model = fit(recorded.training.logs, latent_dim=5, recipe=TiedRecipe(), reward=LinearRewardRecipe())
    names = ("CPG", "FPG", "FPG (released)", "FPG-TS", "FPG-TS (released)", "Calibrated", "Adaptive")
    rows: Rows = []
    for name in names:
        say(name)
        policy = build_policy(Ingredients(model), name)
        simulate(jr.key(0), recorded.world, policy, BATCH, HORIZON)
        began, wall = time.process_time(), time.perf_counter()
        simulate(jr.key(1), recorded.world, policy, BATCH, HORIZON)
        used, waited = time.process_time() - began, time.perf_counter() - wall
        rows.append(
            {
                "policy": name,
                "cpu_ms_an_instance": 1000 * used / BATCH,
                "million_decisions_a_cpu_second": BATCH * HORIZON / used / 1e6,
                "million_decisions_a_second": BATCH * HORIZON / waited / 1e6,
            }
        )
        if name in RELEASED_CPU_SECONDS:
            rows[-1]["times_less_than_released"] = RELEASED_CPU_SECONDS[name] / (used / BATCH)
    say("FPG-TS in vectorised NumPy")
    rows.append({"policy": "FPG-TS (released), NumPy", "million_decisions_a_cpu_second": _numpy_speed(model) / 1e6})
    by_name = {row["policy"]: row for row in rows}
    speeds = {name: row["million_decisions_a_cpu_second"] for name, row in by_name.items()}
    targets = [
        Target(
            f"{name}: times less CPU than the released code", by_name[name]["times_less_than_released"], at_least=bound
        )
        for name, bound in (("CPG", 200.0), ("FPG", 1000.0), ("FPG-TS", 1000.0), ("FPG-TS (released)", 1000.0))
    ]
    ratio = speeds["FPG-TS (released)"] / speeds["FPG-TS (released), NumPy"]
    targets.append(Target("FPG-TS (released): decisions a CPU second over NumPy's", ratio, at_least=1))
    ratio = speeds["FPG-TS (released)"] / speeds["Adaptive"]
    targets.append(Target("Adaptive: CPU time of a decision over that of FPG-TS (released)", ratio, at_most=6))
    return rows, targets


def _numpy_speed(model: LatentModel, rounds: int = 200) -> float:
    """Play FPG-TS (released) with NumPy, all instances at once, the encoder and the world's noise included."""
    assert isinstance(model.encoder, ComposedEncoder)
    assert isinstance(model.encoder.second, MaxoutMLP)
    layers = [(np.asarray(h.matrix), np.asarray(h.shift)) for h in model.encoder.second.hidden]
    output = (np.asarray(model.encoder.second.output.matrix), np.asarray(model.encoder.second.output.shift))
    whitening = (np.asarray(model.encoder.first.matrix), np.asarray(model.encoder.first.shift))
    theta, intercept = np.asarray(model.reward.theta), np.asarray(model.reward.intercept)  # type: ignore[attr-defined]
    actions, dim = theta.shape
    outer = theta[:, :, None] * theta[:, None, :]
    rng = np.random.default_rng(0)
    emission = np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)
    z = rng.standard_normal((BATCH, dim), dtype=np.float32)
    everyone = np.arange(BATCH)
    precision = np.zeros((BATCH, dim, dim), np.float32)
    information = np.zeros((BATCH, dim), np.float32)
    began = time.process_time()
    for _ in range(rounds):
        states = z + rng.standard_normal((BATCH, dim), dtype=np.float32)
        contexts = np.where(states > 0, states, np.float32(0.2) * states) @ emission.T
        hidden = contexts @ whitening[0] + whitening[1]
        for matrix, shift in layers:
            both = hidden @ matrix + shift
            hidden = np.maximum(both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :])
        information += hidden @ output[0] + output[1]
        precision += np.eye(dim, dtype=np.float32)
        mean = np.linalg.solve(precision, information[:, :, None])[:, :, 0]
        factor = np.linalg.cholesky(precision)
        noise = rng.standard_normal((BATCH, dim, 1), dtype=np.float32)
        drawn = mean + np.linalg.solve(factor.transpose(0, 2, 1), noise)[:, :, 0]
        chosen = np.argmax(drawn @ theta.T + intercept, axis=1)
        rewards = (z @ theta.T + 0.5 * rng.standard_normal((BATCH, actions), dtype=np.float32))[everyone, chosen]
        precision += outer[chosen]
        information += theta[chosen] * (rewards - intercept[chosen])[:, None]
    return BATCH * rounds / (time.process_time() - began)
