"""Two estimators of one gain, with different assumptions: whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ilb.logs.messages import counted
from ilb.online.policy import AbstractPolicy
from ilb.trust.accounts import Account
from ilb.trust.crossfit import Fold, by_person
from ilb.trust.doubly_robust import Matched, match_everyone
from ilb.trust.evaluation import BETWEEN, DISAGREEMENT, DOUBLY, GAIN_OVER_DONE, QUEUE, Line
from ilb.trust.propensities import Propensities
from ilb.trust.replay import Replayed
from ilb.trust.resampling import Resampling, difference

LEAST_FOLLOWED = 0.8
"""The share of people who must be followed to the horizon; with fewer it is shortened."""

RARELY, MOST_RARELY = 0.05, 0.1
"""A propensity that makes a match rare, and the share of decisions that may be so rare: overlap ends there."""

ORDERS = 8
"""Orders of the rows that are gone through."""

PASSING = 0.3
"""The share of logged actions with so small a propensity that a match with them is never passed over."""


class Weighed(NamedTuple):
    """The doubly robust side: what was matched, what is expected of people, how far they come, and what is lacking."""

    matched: Matched | None
    expected: Float[np.ndarray, "people H"]
    rounds: int
    source: str
    lacking: str = ""

    @classmethod
    def of(
        cls,
        folds: Sequence[Fold],
        policies: Sequence[AbstractPolicy],
        propensities: Sequence[Propensities],
        replays: Sequence[Replayed],
        followed: int,
        seed: int,
    ) -> Weighed:
        """Match what the policy would do with what was done, as far as the queues were followed."""
        source, played = propensities[0].source, replays[0].action.shape[1]
        shares = by_person(folds, [fold.expectations.shares for fold in folds])
        means = by_person(folds, [fold.expectations.mean for fold in folds])
        expected = np.mean([np.take_along_axis(means, one.action, axis=1) for one in replays], axis=0)
        rare = np.mean([np.take_along_axis(shares, one.action[:, :followed], axis=1) < RARELY for one in replays])
        if rare > MOST_RARELY:
            lacking = (
                f"{rare:.0%} of what the policy would do was done in fewer than {RARELY:.0%} of the person's rows, so "
                "that too few rows match"
            )
            return cls(None, expected, followed, source, lacking)
        logged = np.concatenate([one.logged[fold.logs.rewarded] for one, fold in zip(propensities, folds, strict=True)])
        matched = match_everyone(
            folds,
            policies,
            [one.logged for one in propensities],
            float(np.quantile(logged, PASSING)),
            played,
            seed=seed,
            repeats=ORDERS,
        )
        enough = np.flatnonzero(matched.reached >= LEAST_FOLLOWED)
        return cls(matched, expected, min(int(enough[-1]) + 1, followed), source)

    def lines(
        self, queue: Account, done: Account, logged: Account, followed: float, resampling: Resampling
    ) -> tuple[Line, ...]:
        """Give the gain over what was done, by both estimators over the same decisions, and their difference.

        Queues are played in the contexts of the first rounds, and `done` is of these; rows that match come with
        contexts of any time, and so does what was `logged`. `followed` is the share of people with a queue so long.
        """
        matched = self.matched
        if matched is None:
            return ()

        def doubly(counts: np.ndarray) -> np.ndarray:
            return np.asarray(matched.value(counts, self.expected, self.rounds) - logged.value(counts))

        by_queue = difference(queue.value, done.value)
        came = float(matched.reached[self.rounds - 1])
        figures = {
            (GAIN_OVER_DONE, DOUBLY): (doubly, came),
            (GAIN_OVER_DONE, QUEUE): (by_queue, followed),
            (DISAGREEMENT, BETWEEN): (difference(by_queue, doubly), min(came, followed)),
        }
        return tuple(
            Line(*name, self.rounds, resampling.estimate(figure), share) for name, (figure, share) in figures.items()
        )

    def sentence(self, lines: Sequence[Line]) -> str:
        """Say whether the two estimators agree."""
        if not lines:
            return f"There is no second estimate: {self.lacking}."
        doubly, queue, between = (line.figure for line in lines)
        agree = between.holds(0.0)
        verdict = "can't be told apart" if agree else "DISAGREE"
        return (
            f"Two estimates of the gain in the first {counted(self.rounds, 'decision')} {verdict}: queue replay says "
            f"{queue.value:+.3f}, doubly robust (propensities {self.source}) {doubly.value:+.3f}; their difference is "
            f"{between.text(sign=True)}." + ("" if agree else " Believe neither before you know why.")
        )
