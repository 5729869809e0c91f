"""What the first page tells: the newest decisions in a few bins, so that one sees what changes.

A page must never hold up what it shows, so there is a bound on what is read, and what was read a moment ago is shown
again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ilb.serve.events import Event, Kind
from ilb.serve.fallback import draw
from ilb.serve.metrics import entropy_of, surprise_of
from ilb.serve.service import Service
from ilb.serve.store.store import AbstractStore
from ilb.serve.stories import story_of_decision

Story = dict[str, Any]

WINDOW = 1000
"""Decisions that are looked at; fewer where there are many actions, each of which has its numbers in every one."""

MOST_NUMBERS = 100_000
BINS = 20
COLOURS = 6
FRESH = 2.0
"""Seconds for which a digest is shown again."""


@dataclass(frozen=True)
class Bin:
    """Some decisions that follow each other, in averages; None where there is nothing to average."""

    first_at: str
    decisions: int
    shares: dict[str, float]
    reward: float | None
    reward_error: float | None
    fallback_expected: float | None
    entropy: float | None
    surprise: float | None
    misfit: float | None


@dataclass(frozen=True)
class Digest:
    """The newest decisions, the newest first; all of them in bins, and as one."""

    stories: list[Story]
    bins: list[Bin]
    whole: Bin | None
    by_fallback: Bin | None
    read_at: float


class Digests:
    """Makes digests, one at a time."""

    def __init__(self, service: Service, reader: AbstractStore) -> None:
        self._service, self._reader = service, reader
        self._guard = threading.Lock()
        self._last: Digest | None = None

    def now(self) -> Digest:
        with self._guard:
            if self._last is None or time.monotonic() > self._last.read_at + FRESH:
                self._last = self._read()
            return self._last

    def _read(self) -> Digest:
        actions = max(len(self._service.names.all), 1)
        stories = newest_stories(self._reader, max(20, min(WINDOW, MOST_NUMBERS // actions)))
        ordered = stories[::-1]
        edges = [len(ordered) * n // BINS for n in range(BINS + 1)]
        bins = [self._bin(ordered[start:end]) for start, end in pairwise(edges) if end > start]
        fallen = [story for story in ordered if story["decision"]["fallback"] is not None]
        return Digest(
            stories,
            bins,
            self._bin(ordered) if ordered else None,
            self._bin(fallen) if fallen else None,
            time.monotonic(),
        )

    def _bin(self, stories: Sequence[Story]) -> Bin:
        shares = Counter(str(story["decision"]["action"]) for story in stories)
        told = [story for story in stories if story["outcome"] is not None]
        rewards = [float(story["outcome"]["reward"]) for story in told]
        answers = [story["decision"] for story in stories]
        fitted = [answer["misfit"] for answer in answers if answer["misfit"] is not None]
        surprises = [surprise for story in told if (surprise := self.surprise(story)) is not None]
        expected = [value for story in told if (value := self.expected_of_fallback(story)) is not None]
        return Bin(
            first_at=answers[0]["decided_at"],
            decisions=len(stories),
            shares={action: n / len(stories) for action, n in shares.items()},
            reward=_mean(rewards),
            reward_error=_error(rewards),
            fallback_expected=_mean(expected),
            entropy=_mean([entropy_of(answer) for answer in answers if answer["propensities"] is not None]),
            surprise=_mean(surprises),
            misfit=_mean(fitted),
        )

    def surprise(self, story: Story) -> float | None:
        """How far the reward of a decision was from what was expected, squared and in standard deviations."""
        outcome = story["outcome"]
        if outcome is None:
            return None
        return surprise_of(story["decision"], outcome["reward"], outcome["action"], self._service.noise)

    def expected_of_fallback(self, story: Story) -> float | None:
        """What the model expected of the declared fallback where it decided itself."""
        expected, request = story["decision"]["expected_reward"], story["request"]
        if not expected:
            return None
        ruled_out = {str(one) for one in request.get("forbidden") or ()}
        left = [name for name in map(str, request.get("allowed") or expected) if name not in ruled_out]
        known = [name for name in left if name in expected]
        if not known:
            return None
        return float(sum(share * expected[name] for name, share in self._shares(known).items()))

    def _shares(self, left: Sequence[str]) -> dict[str, float]:
        declared = self._service.declared
        return draw(None if declared is None else str(declared), left, "", "").propensities


def newest_stories(store: AbstractStore, limit: int) -> list[Story]:
    """Tell the newest decisions, the newest first; erased ones are left out."""
    return stories_of(store, store.newest(limit, [Kind.DECISION]))


def stories_of(store: AbstractStore, decided: Sequence[Event]) -> list[Story]:
    left = [event for event in decided if not event.body.get("erased")]
    about = store.about([str(event.decision) for event in left])
    found = [about.get(str(event.decision), []) for event in left]
    return [story_of_decision(events) for events in found if events and not events[0].body.get("erased")]


def is_pending(story: Story) -> bool:
    return story["outcome"] is None and story["voided"] is None


def colours_of(actions: Sequence[Any], seen: Sequence[str]) -> dict[str, str]:
    """Give the first actions colours of their own, the same on every page; where there are many, those seen most."""
    named = [str(action) for action in actions]
    first = named if len(named) <= COLOURS else [action for action, _ in Counter(seen).most_common(COLOURS)]
    return {action: f"s{place}" for place, action in enumerate(first)}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _error(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
