"""People and decisions as they are told: events put together for who reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ilb.serve.events import Event, Kind
from ilb.serve.operations import decision_of, last_of
from ilb.serve.problems import unknown_person
from ilb.serve.store.store import AbstractStore, pending_among

SHOWN = 500
"""Decisions of a person that are told; the log has all."""


def story_of_decision(about: Sequence[Event]) -> dict[str, Any]:
    """Tell a decision and what came of it; raises `ProblemError` if there is none."""
    decided = decision_of(about)
    told, voided = last_of(about, Kind.OUTCOME, Kind.CORRECTION), last_of(about, Kind.VOID)
    return {
        "person": decided.person,
        "decision": decided.body["answer"],
        "request": decided.body["request"],
        "outcome": None if told is None else told.body["answer"],
        "corrections": sum(event.kind == Kind.CORRECTION for event in about),
        "voided": None if voided is None else voided.body["why"],
    }


def story_of_person(store: AbstractStore, person: str) -> dict[str, Any]:
    """Tell a person, from the store alone."""
    events = store.events_of(person)
    if not events or any(event.kind == Kind.ERASURE for event in events):
        raise unknown_person()
    about: dict[str, list[Event]] = {}
    for event in events:
        if event.decision is not None:
            about.setdefault(event.decision, []).append(event)
    return {
        "person": person,
        "events": len(events),
        "decisions": len(about),
        "pending": pending_among(events),
        "first_at": events[0].at,
        "last_at": events[-1].at,
        "history": [story_of_decision(one) for one in list(about.values())[-SHOWN:]],
    }
