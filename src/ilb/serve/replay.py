"""Replay: everything that can be computed from the log is computed again and compared, to the last bit.

States of people, counts, and every decision that a model made: randomness is a function of seed, person and number, so
the log and the models are enough. Another kind of processor may round differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ilb.errors import IlbError
from ilb.live.decision import Decision
from ilb.serve.deciding import numbers_of
from ilb.serve.events import SERVICE, Event, Kind, tally_all
from ilb.serve.names import ActionNames
from ilb.serve.people import ServedModel, walk
from ilb.serve.store.store import AbstractStore, Head

SHOWN = 10
"""Findings that are told one by one."""


@dataclass
class Report:
    """What was compared, and what is not as the log says."""

    people: int = 0
    events: int = 0
    replayed: int = 0
    by_fallback: int = 0
    without_model: int = 0
    states: int = 0
    wrong_states: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.wrong and not self.wrong_states

    def lines(self) -> Iterator[str]:
        """Say it in words, without labels of people."""
        yield f"{self.events} events of {self.people} people read"
        yield (
            f"{self.replayed} decisions replayed bit for bit; {self.by_fallback} were the fallback's, "
            f"{self.without_model} those of models that are not here"
        )
        yield f"{self.states} saved states compared; {len(self.wrong_states)} differ and are computed again when needed"
        yield from self.wrong[:SHOWN]
        if self.wrong:
            yield f"WRONG: {len(self.wrong)} findings"


def models_of(store: AbstractStore, served: ServedModel | None) -> dict[str, ServedModel]:
    """Find the models that have decided, as far as they are still where the log says: by fingerprint."""
    found = {} if served is None else {served.fingerprint: served}
    for event in store.events_of(SERVICE):
        body = event.body
        if event.kind == Kind.MODEL and body["fingerprint"] not in found:
            try:
                loaded = ServedModel.load(Path(body["source"]), body["policy"], seed=body["seed"])
            except (IlbError, OSError):
                continue
            if loaded.fingerprint == body["fingerprint"]:
                found[loaded.fingerprint] = loaded
    return found


def verify(store: AbstractStore, models: Mapping[str, ServedModel], people: Iterable[str] | None = None) -> Report:
    """Replay these people, or everybody and the counts; saved states that are wrong are thrown away."""
    report = Report()
    for person in _everybody(store) if people is None else people:
        _verify_person(store, models, person, report)
    if people is None:
        counted = {name: value for name, value in store.counts().items() if name != "people"}
        if counted != tally_all(store.log()):
            report.wrong.append("the counts are not the sum over the log")
        report.wrong += _torn(store)
    if report.wrong_states:
        store.forget_states()
    return report


def _everybody(store: AbstractStore) -> Iterator[str]:
    last = ""
    while rows := store.people(after=last, limit=1000):
        yield from (row.person for row in rows)
        last = rows[-1].person


def _torn(store: AbstractStore) -> list[str]:
    """Look for outcomes without their decision, and for positions that do not grow."""
    decided: set[str | None] = set()
    wrong = []
    last = 0
    for event in store.log():
        if event.position <= last:
            wrong.append(f"position {event.position} of the log comes behind {last}")
        last = event.position
        if event.kind == Kind.DECISION:
            decided.add(event.decision)
        elif event.decision is not None and event.decision not in decided:
            wrong.append(f"position {event.position} of the log is about a decision that is not there")
    return wrong


def _verify_person(store: AbstractStore, models: Mapping[str, ServedModel], person: str, report: Report) -> None:
    # In this order, because a server may write meanwhile: a state is not behind the head, and events are cut off there.
    saved = store.states([person]).get(person)
    head = store.heads([person]).get(person)
    if head is None:
        return  # erased since the list was read
    events = [event for event in store.events_of(person) if event.number <= head.events]
    report.people += 1
    report.events += len(events)
    report.wrong += _disorder(events, head)
    answers = [event.body["answer"] for event in events if event.kind == Kind.DECISION]
    report.by_fallback += sum(answer["fallback"] is not None for answer in answers)
    report.without_model += sum(answer["fallback"] is None and answer["model"] not in models for answer in answers)
    needed = {answer["model"] for answer in answers} | ({saved.bandit} if saved is not None else set())
    for fingerprint in sorted(needed & set(models)):
        served = models[fingerprint]
        for event, decision, known in walk(served, person, events):
            if event.kind == Kind.DECISION and event.body["answer"]["model"] == fingerprint:
                _compare(served, event, decision, report)
            if saved is not None and saved.bandit == fingerprint and saved.events == event.number:
                report.states += 1
                if known.saved(served) != saved:
                    report.wrong_states.append(person)


def _disorder(events: list[Event], head: Head) -> Iterator[str]:
    if [event.number for event in events] != list(range(1, len(events) + 1)):
        yield f"the events of a person are not numbered 1 to {len(events)}"
    if any(later.position <= earlier.position for earlier, later in pairwise(events)):
        yield "the events of a person are not in the order of the log"
    if head[:2] != (len(events), sum(event.kind == Kind.DECISION for event in events)):
        yield "how far a person has come is not what the log says"


def _compare(served: ServedModel, event: Event, decision: Decision | None, report: Report) -> None:
    """Compare a decision with the stored one, if it was the model that made it."""
    answer = event.body["answer"]
    if answer["fallback"] is not None:
        return
    if decision is None or any(answer[name] != value for name, value in told_of(decision, served.names).items()):
        report.wrong.append(f"the decision at position {event.position} of the log comes out differently")
    else:
        report.replayed += 1


def told_of(decision: Decision, names: ActionNames) -> dict[str, Any]:
    """Give what an answer tells of the model's decision in every mode."""
    numbers = numbers_of(decision, names)
    return {name: value for name, value in numbers.items() if name not in ("action", "propensity")}
