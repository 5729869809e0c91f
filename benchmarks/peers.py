"""One live decision and its update in other bandit libraries: run by their own Python, printed as JSON.

`make bench-online` makes `.venv-peers` for them; this file imports nothing of ilb.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ACTIONS, WIDTH, WARM_UP = 20, 5, 50
Round = Callable[[np.ndarray, float], None]


def _mabwiser(policy: str, alpha: float) -> Round:
    from mabwiser.mab import MAB, LearningPolicy

    bandit = MAB(list(range(ACTIONS)), getattr(LearningPolicy, policy)(alpha=alpha))
    rng = np.random.default_rng(0)
    bandit.fit(rng.integers(ACTIONS, size=200).tolist(), rng.normal(size=200), rng.normal(size=(200, WIDTH)))

    def one_round(context: np.ndarray, reward: float) -> None:
        action = bandit.predict(context[None])
        bandit.partial_fit([action], [reward], context[None])

    return one_round


def mabwiser_lin_ts() -> Round:
    """MABWiser's linear Thompson sampling."""
    return _mabwiser("LinTS", 0.5)


def mabwiser_lin_ucb() -> Round:
    """MABWiser's LinUCB."""
    return _mabwiser("LinUCB", 1.25)


def contextualbandits_lin_ucb() -> Round:
    """Contextualbandits' LinUCB."""
    from contextualbandits.online import LinUCB

    bandit = LinUCB(nchoices=ACTIONS, beta_prior=None)
    rng = np.random.default_rng(0)
    bandit.fit(rng.normal(size=(200, WIDTH)), rng.integers(ACTIONS, size=200), rng.normal(size=200))

    def one_round(context: np.ndarray, reward: float) -> None:
        action = bandit.predict(context[None])
        bandit.partial_fit(context[None], action, np.array([reward]))

    return one_round


def river_lin_ucb() -> Round:
    """River's LinUCBDisjoint."""
    from river import bandit as river_bandit

    policy = river_bandit.LinUCBDisjoint(alpha=1.0, seed=0)
    arms = list(range(ACTIONS))

    def one_round(context: np.ndarray, reward: float) -> None:
        named = {f"x{j}": value for j, value in enumerate(context.tolist())}
        action = policy.pull(arms, context=named)
        policy.update(action, named, reward)

    return one_round


def bayesianbandits_ts() -> Round:
    """Bayesianbandits' Thompson sampling on Bayesian linear regressions."""
    from bayesianbandits import Arm, ContextualAgent, NormalRegressor, ThompsonSampling

    arms = [Arm(a, learner=NormalRegressor(alpha=1.0, beta=4.0)) for a in range(ACTIONS)]
    agent = ContextualAgent(arms, ThompsonSampling(), random_seed=0)

    def one_round(context: np.ndarray, reward: float) -> None:
        agent.pull(context[None])
        agent.update(context[None], np.array([reward]))

    return one_round


PEERS: dict[str, Callable[[], Round]] = {
    "MABWiser LinTS": mabwiser_lin_ts,
    "MABWiser LinUCB": mabwiser_lin_ucb,
    "contextualbandits LinUCB": contextualbandits_lin_ucb,
    "river LinUCBDisjoint": river_lin_ucb,
    "bayesianbandits TS": bayesianbandits_ts,
}


def measure(one_round: Round, rounds: int) -> dict[str, float]:
    """Time each round: percentiles in microseconds."""
    rng = np.random.default_rng(1)
    taken = []
    for context, reward in zip(rng.normal(size=(rounds, WIDTH)), rng.normal(size=rounds), strict=True):
        began = time.perf_counter()
        one_round(context, float(reward))
        taken.append(1e6 * (time.perf_counter() - began))
    low, middle, high = np.percentile(taken[WARM_UP:], [5, 50, 95])
    return {"p5_us": round(float(low), 1), "p50_us": round(float(middle), 1), "p95_us": round(float(high), 1)}


if __name__ == "__main__":
    results: list[dict[str, Any]] = []
    for name, build in PEERS.items():
        try:
            results.append({"library": name, **measure(build(), int(sys.argv[1]))})
        except Exception as error:
            results.append({"library": name, "failed": f"{type(error).__name__}: {error}"})
    print(json.dumps(results))
