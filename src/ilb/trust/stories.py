"""A few people of a table, chosen to be told of, and what is believed of them from row to row."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr

from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.trust.beliefs import believe
from ilb.trust.portrait import Portrait

MOST_TIMES = 40
"""Moments of one history at which the belief is computed."""

LEAST_ROWS = 3
"""Of whoever is told of, where anybody has so many."""


class Story(NamedTuple):
    """One person: what was expected of each action after 0, 1, 2, … rows, and what came.

    `taken` has the number of the row, from 1, the action's and the reward. `ahead` is how probably the action that is
    best in the end is better than the next one.
    """

    person: Hashable
    why: str
    rows: Int[np.ndarray, " times"]
    mean: Float[np.ndarray, "times K"]
    std: Float[np.ndarray, "times K"]
    taken: tuple[tuple[int, int, float], ...]
    ahead: float

    @property
    def first(self) -> int:
        """The best action for somebody of whom nothing is known."""
        return int(self.mean[0].argmax())

    @property
    def last(self) -> int:
        """The best action after everything that was seen."""
        return int(self.mean[-1].argmax())


def tell_stories(model: LatentModel, logs: Logs, portrait: Portrait) -> tuple[Story, ...]:
    """Choose a typical person, one who is clear, one who is unlike most and one who is open, and follow them."""
    logs = model.read(logs)
    return tuple(_follow(model, logs, portrait, person, why) for why, person in choose_people(logs, portrait).items())


def choose_people(logs: Logs, portrait: Portrait) -> dict[str, int]:
    """Choose up to four different people, each for a reason."""
    long_enough = logs.lengths >= min(LEAST_ROWS, int(logs.lengths.max()))
    distance = sum((one.scores**2 for one in portrait.directions), np.zeros(logs.instances))
    behind = portrait.expected.max(axis=1) - portrait.expected[:, portrait.usual]
    wishes = {
        "close to the average": -distance,
        "best served by something else than most": np.where(portrait.best != portrait.usual, behind, -np.inf),
        "a clear case": portrait.sureness + 1e-9 * portrait.lead,
        "still undecided": -portrait.sureness,
    }
    chosen: dict[str, int] = {}
    for why, wish in wishes.items():
        person = _most(wish, long_enough & ~np.isin(np.arange(logs.instances), list(chosen.values())))
        if person is not None:
            chosen[why] = person
    return chosen


def _most(wish: Float[np.ndarray, " I"], allowed: Bool[np.ndarray, " I"]) -> int | None:
    wish = np.where(allowed, wish, -np.inf)
    return int(wish.argmax()) if np.isfinite(wish).any() else None


def _follow(model: LatentModel, logs: Logs, portrait: Portrait, person: int, why: str) -> Story:
    length = int(logs.lengths[person])
    times = np.unique(np.linspace(0, length, min(length + 1, MOST_TIMES)).round().astype(np.int64))
    copies = logs.select(np.full(len(times), person))
    seen = copies.time < times[copies.instance]
    beliefs = believe(model, copies, seen, seen)
    order = np.argsort(-beliefs.mean[-1], kind="stable")
    ahead = 1.0
    if len(order) > 1:
        lead, variance = beliefs.difference(np.array([len(times) - 1]), order[:1], order[1:2])
        ahead = float(ndtr(lead[0] / np.sqrt(max(variance[0], 1e-24))))
    own = logs.select(np.array([person]))
    taken = tuple((int(row) + 1, int(own.action[row]), float(own.reward[row])) for row in np.flatnonzero(own.rewarded))
    return Story(portrait.people[person], why, times, beliefs.mean, beliefs.std, taken, ahead)
