r"""What hidden reasons of the moment could do to a gain.

Queue replay takes it that a person's logged rewards of an action are what the action would have brought at any moment.
If actions were chosen for reasons of the moment that move the reward, too, they are not. Let such reasons change the
odds of an action by a factor of $\Gamma$ at most (Tan's marginal sensitivity model): then a row with propensity p
stands for $1 + (1/p - 1) \gamma$ rows with some $\gamma$ between $1 / \Gamma$ and $\Gamma$, and the mean reward of an
action lies between two weighted means, which are found by sorting (Zhao, Small and Bhattacharya, 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq

from ilb.estimates import IntervalEstimate
from ilb.offline.ahead import moment_effects
from ilb.trust.crossfit import Fold
from ilb.trust.propensities import Propensities
from ilb.trust.replay import Replayed

STRENGTHS = (1.25, 1.5, 2.0, 3.0)
"""Factors of the odds that are shown."""

STRONGEST = 20.0


class Bound(NamedTuple):
    """Between what the gain may lie if hidden reasons change odds by this factor; intervals over people included."""

    strength: float
    low: float
    high: float


class Surprises(NamedTuple):
    """For each rewarded row: whose it is, its action and propensity, and its reward less what is expected of both."""

    person: Int[np.ndarray, " rows"]
    action: Int[np.ndarray, " rows"]
    propensity: Float[np.ndarray, " rows"]
    surprise: Float[np.ndarray, " rows"]

    @classmethod
    def of(cls, folds: Sequence[Fold], propensities: Sequence[Propensities]) -> Surprises:
        """Gather them over folds; a reward is held against what all others say."""
        parts, everyone = [], np.sort(np.concatenate([fold.people for fold in folds]))
        for fold, chances in zip(folds, propensities, strict=True):
            logs, said = fold.logs, fold.expectations
            rows = np.flatnonzero(logs.rewarded)
            person, action = logs.instance[rows], logs.action[rows]
            rewards = logs.reward[rows] - moment_effects(fold.expecting.moment, logs)[rows]
            parts.append(
                (
                    np.searchsorted(everyone, fold.people[person]),
                    action,
                    chances.logged[rows],
                    (rewards - said.mean[person, action]) / (1 - said.leverage[person, action]),
                )
            )
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def shifts(self, strength: float, shares: Float[np.ndarray, "people K"]) -> Float[np.ndarray, "2 K"]:
        """Give by how much the mean reward of each action may be lower, and higher, than it looks.

        That is for the people who would get it: `shares` are how often the policy takes each action with each of them.
        """
        shifts = np.zeros((2, shares.shape[1]))
        rows_of = np.bincount(self.person, minlength=len(shares))
        wanted = shares[self.person, self.action] / rows_of[self.person]
        for action in range(shares.shape[1]):
            rows = self.action == action
            if rows.any():
                # Where none of those who would get it ever did, all who did stand for them.
                weight = wanted[rows] if wanted[rows].any() else 1 / rows_of[self.person[rows]]
                surprise, odds = self.surprise[rows], 1 / self.propensity[rows] - 1
                plain = float(np.average(surprise, weights=weight * (1 + odds)))
                least, most = weight * (1 + odds / strength), weight * (1 + odds * strength)
                shifts[0, action] = least_mean(surprise, least, most) - plain
                shifts[1, action] = -least_mean(-surprise, least, most) - plain
        return shifts


def least_mean(
    values: Float[np.ndarray, " rows"], least: Float[np.ndarray, " rows"], most: Float[np.ndarray, " rows"]
) -> float:
    """Give the smallest weighted mean, where each weight lies between two bounds.

    The smallest values have the largest weights, up to some value.

    >>> least_mean(np.array([0.0, 1.0]), np.array([1.0, 1.0]), np.array([3.0, 3.0]))
    0.25
    """
    order = np.argsort(values)
    values, least, most = values[order], least[order], most[order]
    sums = np.concatenate([[0.0], np.cumsum((most - least) * values)]) + (least * values).sum()
    weights = np.concatenate([[0.0], np.cumsum(most - least)]) + least.sum()
    return float(np.min(sums / weights))


class Sensitivity(NamedTuple):
    """Bounds at some strengths, and the strength at which a gain is no longer sure (infinite if none that is tried)."""

    bounds: tuple[Bound, ...]
    breaks_at: float

    def sentence(self) -> str:
        """Say it in words."""
        if self.breaks_at <= 1:
            return "No hidden reasons are needed for the gain to be in doubt: its interval holds zero, or less."
        some = next(bound for bound in self.bounds if bound.strength == 1.5)
        until = f"up to {self.breaks_at:.2f} times" if np.isfinite(self.breaks_at) else f"{STRONGEST:g} times and more"
        return (
            "If actions were chosen for reasons of the moment that also move rewards and are not in the table, the "
            f"gain stays above zero as long as these change the odds of an action {until}; at 1.5 times it lies "
            f"between {some.low:+.3f} and {some.high:+.3f}."
        )


def bound_gain(
    gain: IntervalEstimate, replays: Sequence[Replayed], rounds: int, surprises: Surprises, actions: int
) -> Sensitivity:
    """Bound the gain over what was done: rewards of what was done are facts, those of the policy's actions are not."""
    taken = np.concatenate([played.action[:, :rounds] for played in replays], axis=1)
    shares = np.stack([(taken == action).mean(axis=1) for action in range(actions)], axis=1)
    mix = shares.mean(axis=0)

    def lowest(strength: float) -> float:
        return gain.low + float(surprises.shifts(strength, shares)[0] @ mix)

    bounds = []
    for strength in STRENGTHS:
        lower, higher = surprises.shifts(strength, shares) @ mix
        bounds.append(Bound(strength, gain.low + float(lower), gain.high + float(higher)))
    if gain.low <= 0:
        return Sensitivity(tuple(bounds), 1.0)
    if lowest(STRONGEST) > 0:
        return Sensitivity(tuple(bounds), np.inf)
    return Sensitivity(tuple(bounds), float(brentq(lowest, 1.0, STRONGEST, xtol=1e-3)))
