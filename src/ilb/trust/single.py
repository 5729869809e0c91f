"""The best single action: what it would bring everybody, and how its choice adds to the doubt.

Each fold takes the action that does best for the people of the others. Where actions are close, it is an accident of
who is in the table which one that is, and these accidents have a part in all folds: people who make an action look good
to one fold are those whom another fold pays with what they, in turn, made look good. Drawing people again with the
choices as they are would miss it, so every draw of people chooses again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ilb.offline.ahead import every_effect
from ilb.trust.accounts import Account, average
from ilb.trust.crossfit import Fold, by_person, cell_sums, within_people
from ilb.trust.replay import LEAST_CHANCE, first_rows


class Chooser(NamedTuple):
    """Chooses for the `people` of one fold (their places among all), by the effects of actions on all others.

    `scores` say by how much each person would change the effects if they were counted once more: to first order, and
    nothing for the fold's own.
    """

    people: Int[np.ndarray, " held_out"]
    effects: Float[np.ndarray, " K"]
    scores: Float[np.ndarray, "people K"]

    def choose(self, counts: Float[np.ndarray, "draws people"]) -> Int[np.ndarray, " draws"]:
        """Name the best action for each row of counts."""
        return np.asarray(np.argmax(self.effects + (counts - 1) @ self.scores, axis=1))


@dataclass(frozen=True, eq=False)
class BestSingle:
    """An account of each action for everybody, and who chooses among them."""

    actions: Sequence[Account]
    choosers: Sequence[Chooser]

    @classmethod
    def of(cls, folds: Sequence[Fold], rounds: int) -> BestSingle:
        """Take what each action would bring everybody in the contexts of their first rounds."""
        columns = zip(*(_every_action(fold, rounds) for fold in folds), strict=True)
        by_action = [by_person(folds, column).T for column in columns]
        return cls([Account(*account) for account in zip(*by_action, strict=True)], _choosers(folds))

    def value(self, counts: Float[np.ndarray, "draws people"]) -> Float[np.ndarray, " draws"]:
        """Average over people what their folds choose, if everybody is counted so often.

        Another choice than that of everybody counted once is another action, worth more or less. That is no error of
        what is said of the chosen one, so it is taken off.
        """
        everybody = np.ones((1, counts.shape[1]))
        worth = np.concatenate([account.value(everybody) for account in self.actions])
        sums, moved = np.zeros((4, len(counts))), np.zeros(len(counts))
        for chooser in self.choosers:
            choice, held_out = chooser.choose(counts), counts[:, chooser.people]
            for action, account in enumerate(self.actions):
                sums += np.where(choice == action, np.stack(account)[:, chooser.people] @ held_out.T, 0.0)
            moved += len(chooser.people) * (worth[choice] - worth[chooser.choose(everybody)])
        return np.asarray(average(Account(*sums), counts.sum(axis=1)) - moved / counts.shape[1])

    @property
    def missing(self) -> float:
        """The share of people who never had the action that their fold has chosen."""
        without = [self.actions[int(np.argmax(one.effects))].missing[one.people] for one in self.choosers]
        return float(np.concatenate(without).mean())


def _every_action(fold: Fold, rounds: int) -> tuple[Float[np.ndarray, "people K"], ...]:
    """Give paid, missing, surprise and weight of each person and action: means of what was logged, or expectations."""
    moment, expectations = fold.expecting.moment, fold.expectations
    pulls, sums = cell_sums(fold.logs, moment)
    mean, seen = sums / np.maximum(pulls, 1), pulls > 0
    never = (1 - expectations.shares) ** pulls.sum(axis=1, keepdims=True)
    weight = seen * never / np.maximum(1 - never, LEAST_CHANCE)
    shown = fold.logs.context[first_rows(fold.logs, rounds)]
    added = every_effect(moment, shown, fold.logs.actions).mean(axis=1)
    paid = np.where(seen, mean, expectations.mean) + added
    return paid, 1.0 - seen, weight * (mean - expectations.mean) / (1 - expectations.leverage), weight


def _choosers(folds: Sequence[Fold]) -> list[Chooser]:
    pulls, sums = (by_person(folds, column) for column in zip(*(cell_sums(fold.logs) for fold in folds), strict=True))
    everybody = np.sort(np.concatenate([fold.people for fold in folds]))
    choosers = []
    for fold in folds:
        people = np.searchsorted(everybody, fold.people)
        others = np.delete(np.arange(len(everybody)), people)
        left = sums - pulls * np.where(np.isfinite(fold.effects), fold.effects, 0.0)
        normal, moments = within_people(pulls[others], left[others])
        scores = np.zeros_like(pulls)
        scores[others] = moments @ np.linalg.pinv(normal)
        choosers.append(Chooser(people, fold.effects, scores))
    return choosers
