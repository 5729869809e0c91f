"""What is counted for Prometheus. No labels of people, and no more series than there are modes, actions and causes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from ilb.serve.events import Event, Kind
from ilb.serve.operations import Found, parsed

DELAYS = (60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600)
LATE = 7 * 24 * 3600
"""Seconds after which an outcome is counted as late."""


class Metrics:
    """The numbers that a server counts from its start on."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        given: dict[str, Any] = {"registry": self.registry}
        self.decisions = Counter("ilb_decisions", "Decisions stored.", ["mode", "action", "fallback"], **given)
        self.outcomes = Counter(
            "ilb_outcomes", "Outcomes: new, late, repeat, conflict, correction, unknown.", ["kind"], **given
        )
        self.delay = Histogram("ilb_outcome_delay_seconds", "From decision to outcome.", buckets=DELAYS, **given)
        self.entropy = Histogram(
            "ilb_propensity_entropy_nats",
            "Entropy of propensities.",
            buckets=(0.001, 0.1, 0.3, 0.7, 1, 1.5, 2, 3),
            **given,
        )
        self.surprise = Histogram(
            "ilb_surprise",
            "Squared distance of rewards from what was expected, in standard deviations; mean 1 where the model fits.",
            buckets=(0.1, 0.5, 1, 2, 4, 9, 25, 100),
            **given,
        )
        self.misfit = Histogram(
            "ilb_misfit",
            "Probability that the model does not fit the person.",
            buckets=(0.1, 0.3, 0.5, 0.7, 0.9),
            **given,
        )
        self.far = Counter("ilb_far_contexts", "Contexts far from those of the logs.", **given)
        self.refused = Counter("ilb_refused_requests", "Requests that were refused.", ["status", "kind"], **given)
        self.seconds = Histogram(
            "ilb_request_seconds",
            "Time to answer.",
            ["route"],
            buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
            **given,
        )
        self.pending = Gauge("ilb_pending", "Decisions that wait for their outcome.", **given)
        self.severity = Gauge("ilb_severity", "0 green, 1 yellow, 2 red.", **given)
        self.model = Info("ilb_model", "The model in charge.", **given)

    def watch(self, found: Found, event: Event, noise: Mapping[str, float]) -> None:
        """Count a stored event; `noise` is by how much single rewards of each action vary."""
        counts = {Kind.DECISION: self._decided, Kind.OUTCOME: self._learned, Kind.CORRECTION: self._corrected}
        counts.get(Kind(event.kind), _nothing)(found, event, noise)

    def _decided(self, found: Found, event: Event, noise: Mapping[str, float]) -> None:
        del found, noise
        answer = event.body["answer"]
        fallback = "none" if answer["fallback"] is None else answer["fallback"]["severity"]
        self.decisions.labels(answer["mode"], str(answer["action"]), fallback).inc()
        self.entropy.observe(entropy_of(answer))
        if answer["misfit"] is not None:
            self.misfit.observe(answer["misfit"])

    def _learned(self, found: Found, event: Event, noise: Mapping[str, float]) -> None:
        answer = found.about[0].body["answer"]
        delay = max(0.0, (parsed(event.at) - parsed(answer["decided_at"])).total_seconds())
        self.outcomes.labels("late" if delay > LATE else "new").inc()
        self.delay.observe(delay)
        surprise = surprise_of(answer, event.body["reward"], event.body["action"], noise)
        if surprise is not None:
            self.surprise.observe(surprise)

    def _corrected(self, found: Found, event: Event, noise: Mapping[str, float]) -> None:
        del found, event, noise
        self.outcomes.labels("correction").inc()

    def text(self) -> bytes:
        """Write everything in the format of Prometheus."""
        return generate_latest(self.registry)


def _nothing(found: Found, event: Event, noise: Mapping[str, float]) -> None:
    del found, event, noise


def entropy_of(answer: dict[str, Any]) -> float:
    """Say how open a decision was: 0 if there was one way, log K if all actions were equally likely.

    >>> entropy_of({"propensities": {"A": 1.0, "B": 0.0}})
    0.0
    """
    shares = [share for share in (answer["propensities"] or {}).values() if 0 < share < 1]
    return sum(-share * math.log(share) for share in shares) if shares else 0.0


def surprise_of(answer: dict[str, Any], reward: float, action: Any, noise: Mapping[str, float]) -> float | None:
    """Square how far a reward was from what was expected, in standard deviations of belief and noise together.

    >>> surprise_of({"expected_reward": {"A": 1.0}, "reward_std": {"A": 1.0}}, 4.0, "A", {"A": 3.0})
    2.25
    """
    expected, std = ((answer.get(name) or {}).get(str(action)) for name in ("expected_reward", "reward_std"))
    variance = (std or 0.0) ** 2 + noise.get(str(action), 0.0)
    return None if expected is None or not variance else float((reward - expected) ** 2 / variance)
