"""What a way to decide brings each person: the value by queue replay, as a statistic of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float

from ilb.offline.ahead import moment_effects
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import ROSTER, Builder, build_policy
from ilb.streams import Stream
from ilb.trust.crossfit import Fold, by_person, cell_sums
from ilb.trust.replay import Replayed, first_rows, queue_up, replay

REPEATS = 4
"""Plays that are averaged: policies may draw what they do, and rewards are imagined where none is left."""


class Account(NamedTuple):
    """For each person: the mean reward of a decision, with expectations where no reward was left to see.

    `missing` is the share of decisions without a reward to see. `surprise` adds up, over the others, by how much
    rewards exceeded what was expected, each with a `weight` for how much it is like those that can't be seen: rarity.
    """

    paid: Float[np.ndarray, " people"]
    missing: Float[np.ndarray, " people"]
    surprise: Float[np.ndarray, " people"]
    weight: Float[np.ndarray, " people"]

    def value(self, counts: Float[np.ndarray, "draws people"]) -> Float[np.ndarray, " draws"]:
        """Average over people; expectations are corrected by how far off they are where that can be seen."""
        return average(Account(*(counts @ column for column in self)), counts.sum(axis=1))


def average(sums: Account, people: Float[np.ndarray, " draws"]) -> Float[np.ndarray, " draws"]:
    """Average accounts that were added up over so many people."""
    off = sums.surprise / np.maximum(sums.weight, 1e-12)
    return np.asarray((sums.paid + off * sums.missing) / people)


def of_replays(replays: Sequence[Replayed], rounds: int) -> Account:
    """Add up the first rounds of each replay, and average the replays."""
    parts = []
    for played in replays:
        observed = played.observed[:, :rounds]
        weight = np.where(observed, played.rarity[:, :rounds], 0.0)
        parts.append(
            Account(
                played.reward[:, :rounds].mean(axis=1),
                1 - observed.mean(axis=1),
                (weight * played.surprise[:, :rounds]).sum(axis=1),
                weight.sum(axis=1),
            )
        )
    return Account(*(np.mean(columns, axis=0) for columns in zip(*parts, strict=True)))


def what_was_done(folds: Sequence[Fold], rounds: int | None = None) -> Account:
    """Give everybody's mean logged reward, as it would have been in the contexts of their first rounds.

    These are the contexts that a policy meets in so many rounds: what the moment adds there, to the actions that were
    taken there, is counted on both sides. Without `rounds`, or without a moment, it is the mean of what was logged.
    """
    parts = []
    for fold in folds:
        moment = None if rounds is None else fold.expecting.moment
        pulls, sums = cell_sums(fold.logs, moment)
        added = moment_effects(moment, fold.logs)[first_rows(fold.logs, rounds or 1)].mean(axis=1)
        parts.append(sums.sum(axis=1) / pulls.sum(axis=1) + added)
    done = by_person(folds, parts)
    return Account(done, np.zeros_like(done), np.zeros_like(done), np.ones_like(done))


def play_everyone(
    folds: Sequence[Fold],
    name: str,
    horizon: int,
    *,
    seed: int,
    repeats: int = REPEATS,
    roster: Mapping[str, Builder] = ROSTER,
) -> list[Replayed]:
    """Let a policy of the roster play everybody, with the model that has not seen them, several times."""
    policies = [build_policy(fold.ingredients, name, roster) for fold in folds]
    return [play_once(folds, policies, horizon, seed=seed, number=number) for number in range(repeats)]


def play_once(
    folds: Sequence[Fold], policies: Sequence[AbstractPolicy], horizon: int, *, seed: int, number: int = 0
) -> Replayed:
    """Play everybody once; the number of the replay tells its draws from others'."""
    parts = []
    for place, (fold, policy) in enumerate(zip(folds, policies, strict=True)):
        people = queue_up(fold.logs, fold.expecting.moment, fold.expectations, horizon)
        key = jr.fold_in(jr.fold_in(Stream.PLAYING.key(seed), number), place)
        parts.append(replay(key, policy, fold.expecting.moment, people))
    return Replayed(*(by_person(folds, column) for column in zip(*parts, strict=True)))


def followed(replays: Sequence[Replayed]) -> Float[np.ndarray, " H"]:
    """Give the share of people whose every reward up to a round could be seen."""
    whole = [np.logical_and.accumulate(played.observed, axis=1).mean(axis=0) for played in replays]
    return np.asarray(np.mean(whole, axis=0))
