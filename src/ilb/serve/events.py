"""Event: one thing that happened, as it is written down once and for all. The log of events is the truth.

Whatever else is stored (states of people, counts) can be computed from the log again, and `ilb serve --verify` does so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

SERVICE = ""
"""The label under which the service writes of itself: models staged and promoted."""


class Kind(StrEnum):
    """What can happen."""

    DECISION = "decision"
    OUTCOME = "outcome"
    CORRECTION = "correction"
    VOID = "void"
    OBSERVATION = "observation"
    ERASURE = "erasure"
    MODEL = "model"


class Mode(StrEnum):
    """What is done with a decision.

    A live one is carried out. A shadow one is computed beside what is done today, which may be told now or with the
    outcome. An apprentice is told what is done today, answers with just that, and counts how often it would agree.
    """

    LIVE = "live"
    SHADOW = "shadow"
    APPRENTICE = "apprentice"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a person. `number` counts the person's events from 1, `position` is that in the log.

    `decision` is the id of the decision that it is or is about, `key` the idempotency key it came with.
    """

    person: str
    number: int
    kind: str
    at: str
    body: dict[str, Any]
    decision: str | None = None
    key: str | None = None
    position: int = field(default=0, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Give everything, with the position in the log first."""
        return {
            "position": self.position,
            "person": self.person,
            "number": self.number,
            "kind": self.kind,
            "at": self.at,
            "decision": self.decision,
            "key": self.key,
            "body": self.body,
        }


def write_json(value: Any) -> str:
    """Write JSON in the one way in which it is stored and sent, so that equal values are equal bytes.

    >>> write_json({"b": 0.1, "a": [1, None]})
    '{"b":0.1,"a":[1,null]}'
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def written(moment: datetime) -> str:
    """Write a moment, in UTC and to the microsecond.

    >>> written(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05.000000Z'
    """
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def tally(event: Event) -> Counter[str]:
    """Say what an event adds to the counts; those of a log are the sum over its events.

    Nothing is counted that an erasure takes away.
    """
    return _TALLIES[Kind(event.kind)](event.body)


def tally_all(events: Iterable[Event]) -> dict[str, int]:
    """Count a whole log."""
    total: Counter[str] = Counter()
    for event in events:
        total.update(tally(event))
    return {name: value for name, value in total.items() if value}


def _of_decision(body: dict[str, Any]) -> Counter[str]:
    answer = body["answer"]
    counts = Counter({"decisions": 1, f"decisions:{answer['mode']}": 1, "pending": 1})
    if answer["fallback"] is not None:
        counts["fallbacks"] += 1
    agreed = agrees(body)
    if agreed is not None:
        counts[f"compared:{answer['mode']}"] += 1
        counts[f"agreed:{answer['mode']}"] += int(agreed)
    return counts


def agrees(body: dict[str, Any]) -> bool | None:
    """Say whether the model would have done what was done, from the body of a decision; None if that is not known."""
    if "agrees" in body:  # all that is left of an erased one
        agreed: bool | None = body["agrees"]
        return agreed
    taken, would = body.get("taken"), body["answer"].get("would")
    return None if taken is None or would is None else bool(taken == would)


def _of_outcome(body: dict[str, Any]) -> Counter[str]:
    counts = Counter({"outcomes": 1, "pending": -1})
    if body.get("told") is not None:  # what was done in a shadow decision came with the outcome
        counts["compared:shadow"] += 1
        counts["agreed:shadow"] += int(body["told"]["agrees"])
    return counts


def _of_correction(body: dict[str, Any]) -> Counter[str]:
    del body
    return Counter({"corrections": 1})


def _of_void(body: dict[str, Any]) -> Counter[str]:
    del body
    return Counter({"voids": 1, "pending": -1})


def _of_observation(body: dict[str, Any]) -> Counter[str]:
    del body
    return Counter({"observations": 1})


def _of_erasure(body: dict[str, Any]) -> Counter[str]:
    return Counter({"erasures": 1, "pending": -body["pending"]})


def _of_model(body: dict[str, Any]) -> Counter[str]:
    return Counter({f"models:{body['what']}": 1})


_TALLIES = {
    Kind.DECISION: _of_decision,
    Kind.OUTCOME: _of_outcome,
    Kind.CORRECTION: _of_correction,
    Kind.VOID: _of_void,
    Kind.OBSERVATION: _of_observation,
    Kind.ERASURE: _of_erasure,
    Kind.MODEL: _of_model,
}
