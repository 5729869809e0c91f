"""What a store of events can do: append in one step what is whole, and read.

All methods may be called from any thread. What `append` has returned from is on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ilb.errors import IlbError
from ilb.serve.events import Event, Kind, agrees, write_json

PAGE = 2000
"""Events that are read at once when the whole log is gone through."""


class StoreUnavailableError(IlbError, OSError):
    """Nothing can be written or read now: the disk is full or failed, or the database does not answer."""


class Head(NamedTuple):
    """How far the log of a person has come: its events, the decisions among them, and when it began.

    Who was erased and comes again begins anew: by `began` the two are told apart.
    """

    events: int = 0
    decisions: int = 0
    began: str = ""


class SavedState(NamedTuple):
    """What a model knows of a person after the first `events` events; `bandit` is the fingerprint of the model."""

    events: int
    bandit: str
    text: str


class Entry(NamedTuple):
    """An event to be appended, and the state that its person has then, where that is known already.

    `began` is that of the head which the event follows; None where it does not matter which. `text` is the body as
    JSON, where it was written already.
    """

    event: Event
    state: SavedState | None = None
    began: str | None = None
    text: str | None = None

    def written_body(self) -> str:
        """The body as JSON."""
        return write_json(self.event.body) if self.text is None else self.text

    def follows(self, head: Head) -> bool:
        """Whether this is the next event of a person who has come as far as `head`."""
        return head.events == self.event.number - 1 and self.began in (None, head.began)


class PersonRow(NamedTuple):
    """A person in a list: how much there is, and from when to when."""

    person: str
    events: int
    decisions: int
    first_at: str
    last_at: str


class AbstractStore(ABC):
    """An append-only log of events, with the states of people and counts as caches of it."""

    address: str

    @abstractmethod
    def append(self, entries: Sequence[Entry]) -> list[bool]:
        """Write all entries, each for another person, in one transaction, and say of each whether it was written.

        False: the person has not come just as far as the entry says, because another server has written for them first
        or has erased them, or the key or the decision is there already. Then nothing of the entry is stored. Raises
        `StoreUnavailableError`, and then nothing of any entry is stored.
        """

    @abstractmethod
    def erase(self, person: str, tombstone: str, at: str) -> int:
        """Take label, contexts, rewards, keys and answers out of a person's events; give the number of events left.

        They stay in the log under the label `tombstone`, with what `tally` counts, and an erasure is appended. `scrub`
        then sees to what the files still hold.
        """

    @abstractmethod
    def scrub(self) -> bool:
        """Overwrite what erasures have left in files; False if somebody still reads it, and it must be tried again."""

    @abstractmethod
    def heads(self, people: Collection[str]) -> dict[str, Head]:
        """How far each of these people has come; who is unknown is left out."""

    @abstractmethod
    def states(self, people: Collection[str]) -> dict[str, SavedState]:
        """The saved states of these people, where there are any."""

    @abstractmethod
    def forget_states(self) -> int:
        """Throw the saved states away; they are computed again when they are needed. Gives their number."""

    @abstractmethod
    def save_states(self, states: Mapping[str, SavedState], began: Mapping[str, str] | None = None) -> None:
        """Replace the saved states of these people, unless there is a newer one.

        Of people who are not known, or who began at another moment than `began` says, nothing is saved: they were
        erased while their states were computed.
        """

    @abstractmethod
    def events_of(self, person: str, after: int = 0) -> list[Event]:
        """The events of a person behind number `after`, in order."""

    @abstractmethod
    def about(self, decisions: Collection[str]) -> dict[str, list[Event]]:
        """The events of each of these decisions, in order, beginning with itself; unknown ones are left out."""

    @abstractmethod
    def whose(self, decisions: Collection[str]) -> dict[str, str]:
        """The person of each of these decisions; unknown ones are left out."""

    @abstractmethod
    def with_keys(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Event]:
        """The events that came with these pairs of person and idempotency key."""

    @abstractmethod
    def page(self, after: int = 0, limit: int = PAGE, kinds: Collection[str] = ()) -> list[Event]:
        """The events behind a position of the log, in order; of these kinds only, if any are given."""

    @abstractmethod
    def newest(self, limit: int, kinds: Collection[str] = ()) -> list[Event]:
        """The last events of the log, the newest first."""

    @abstractmethod
    def people(self, after: str = "", limit: int = 100) -> list[PersonRow]:
        """People by label, those behind a label; erased ones are left out."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """The sum of `tally` over all events, and the number of `people`."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StoreUnavailableError` unless something could be written now."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def log(self, after: int = 0, kinds: Collection[str] = ()) -> Iterator[Event]:
        """Go through the whole log, page by page; readers never hold writers up."""
        while events := self.page(after, PAGE, kinds):
            yield from events
            after = events[-1].position


def erased(event: Event, tombstone: str) -> Event:
    """Give what is left of an event when its person is erased."""
    return replace(event, person=tombstone, key=None, body=_LEFT.get(Kind(event.kind), _nothing)(event.body))


def pending_among(events: Sequence[Event]) -> int:
    """How many decisions of a person wait for their outcome."""
    closed = {event.decision for event in events if event.kind in (Kind.OUTCOME, Kind.VOID)}
    return sum(event.kind == Kind.DECISION and event.decision not in closed for event in events)


def _nothing(body: dict[str, Any]) -> dict[str, Any]:
    del body
    return {}


def _left_of_decision(body: dict[str, Any]) -> dict[str, Any]:
    fallback = body["answer"]["fallback"]
    if fallback is not None:  # its cause may quote a context
        fallback = {"severity": fallback["severity"], "cause": "erased"}
    answer = {"mode": body["answer"]["mode"], "fallback": fallback}
    return {"erased": True, "agrees": agrees(body), "answer": answer}


def _left_of_outcome(body: dict[str, Any]) -> dict[str, Any]:
    return {"erased": True, "told": body.get("told")}


_LEFT = {Kind.DECISION: _left_of_decision, Kind.OUTCOME: _left_of_outcome}
