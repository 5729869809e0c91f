"""What no policy can have at once: little regret where nothing has changed, and little where one action became better.

Until it first plays an action, a policy has seen the same in a world where that action became better, and in one where
it did not. Let it play action a at some time with probability p_a where nothing has changed. That costs it p_a times
the gap g_a of the action there. Where a became better by D it loses D - g_a in every round before, so in T rounds at
least (1 - p_a) T (D - g_a) if that is positive. Averaged over which action it is, the least of the second for so much
of the first is a knapsack: actions are worth trying in the order of (D - g_a) / g_a. The bound grants that one play
tells all, that all plays come at once, and that T and D are known.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float

from benchmarks.measuring import Measured
from benchmarks.robustness import FIRST_SEED
from ilb.environments import Synthetic

WORLDS, PEOPLE, ROUNDS = 10, 2000, 2000
PRICES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0)
"""Regret where nothing has changed, all of it."""


def measure_price(say: Callable[[str], None]) -> Measured:
    """Take the people of the standard worlds, and every action that may have become better."""
    rows = []
    for better in (1.0, 2.0):
        say(f"one action better by {better:g}")
        gaps = np.concatenate([_gaps(FIRST_SEED + number) for number in range(WORLDS)])
        for price, least in zip(PRICES, least_regret(gaps, better, ROUNDS, PRICES), strict=True):
            rows.append({"better_by": better, "price": price, "least_regret": float(least)})
    return rows, []


def least_regret(
    gaps: Float[np.ndarray, "people K"], better: float, rounds: int, prices: tuple[float, ...]
) -> Float[np.ndarray, " prices"]:
    """Give the least mean regret where one action, any of K, is better, of who pays so much where none is.

    >>> gaps = np.array([[0.0, 0.5, 1.5]])
    >>> least_regret(gaps, better=1.0, rounds=300, prices=(0.0, 0.25, 0.5)).round(3).tolist()
    [50.0, 25.0, 0.0]
    """
    won = np.maximum(better - gaps, 0.0).ravel() * rounds / gaps.shape[1]
    # The best action is played anyway.
    order = np.argsort(gaps.ravel() / np.maximum(won, 1e-12), kind="stable")
    people = len(gaps)
    paid, left = np.cumsum(gaps.ravel()[order]) / people, (won.sum() - np.cumsum(won[order])) / people
    return np.asarray(np.interp(prices, paid, np.maximum(left, 0.0)))


def _gaps(seed: int) -> Float[np.ndarray, "people K"]:
    world = Synthetic().draw(seed)
    people = jax.vmap(world.sample_instance)(jr.split(jr.key(seed), PEOPLE))
    means = np.asarray(jax.vmap(world.mean_rewards)(people), np.float64)
    return np.asarray(means.max(axis=1, keepdims=True) - means)
