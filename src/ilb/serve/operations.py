"""What can be asked of the service, each as one operation: what it needs to know, when it is refused, what it leaves.

An operation sees what is stored (`Found`), may put a question to the model, and then gives an event and an answer. A
repeat gives the stored answer again; what contradicts the log is refused. Nothing here knows of HTTP or of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ilb.serve.desk import Desk, Look
from ilb.serve.engine import Question, Verdict
from ilb.serve.events import Event, Kind, Mode, write_json
from ilb.serve.problems import ProblemError, erased_decision, unknown_decision
from ilb.serve.store.store import Entry, Head


class Answer(NamedTuple):
    """A status and the bytes that go with it."""

    status: int
    text: str


class Found(NamedTuple):
    """What is stored about an operation's person and decision, when it is carried out, and who decides then."""

    person: str
    head: Head
    about: Sequence[Event]
    repeat: Event | None
    at: str
    desk: Desk


class Outcome(NamedTuple):
    """What an operation comes to: an answer, and what is to be stored before it is given."""

    answer: Answer
    entry: Entry | None = None
    verdict: Verdict | None = None


class AbstractOperation(ABC):
    """Something that is asked. `person` is None where the decision tells whom it is about."""

    person: str | None
    decision: str | None
    key: str | None

    @abstractmethod
    def settled(self, found: Found) -> Answer | None:
        """Give the answer that needs nothing new: that of a repeat. Raises `ProblemError` where it is refused."""

    def question(self, found: Found) -> Question | None:
        """Say what the model is asked, if anything."""
        del found
        return None

    @abstractmethod
    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        """Make the event and the answer."""


def same_request(stored: Event, kind: Kind, request: dict[str, Any]) -> Answer:
    """Answer a repeat with the stored bytes; the same key with another request is refused."""
    if stored.kind != kind or _by_text(stored.body.get("request") or {}) != _by_text(request):
        raise ProblemError(
            422,
            "key-reused",
            "This idempotency key came before with another request. Give each new request a key of its own; repeat a "
            "request only as it was.",
        )
    return Answer(200, write_json(stored.body["answer"]))


def _by_text(request: dict[str, Any]) -> dict[str, Any]:
    """Give a request with its actions as texts, as which they can be compared whatever model is in charge."""
    lists = {name: request[name] for name in ("allowed", "forbidden") if request.get(name) is not None}
    taken = {} if request.get("taken") is None else {"taken": str(request["taken"])}
    return {**request, **{name: [str(one) for one in given] for name, given in lists.items()}, **taken}


@dataclass
class Observe(AbstractOperation):
    """A visit at which no choice was open: the context is taken in, nothing is decided."""

    person: str
    key: str
    request: dict[str, Any]
    decision: None = field(default=None, init=False)
    look: Look = field(default=Look(), init=False)

    def settled(self, found: Found) -> Answer | None:
        if found.repeat is not None:
            return same_request(found.repeat, Kind.OBSERVATION, self.request)
        self.look = found.desk.look_at(found.person, self.request["context"])
        return None

    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        del verdict
        number = found.head.events + 1
        answer = {"event": number, "recorded_at": found.at}
        body = {"request": self.request, "answer": answer}
        event = Event(found.person, number, Kind.OBSERVATION, found.at, body, key=self.key)
        return Outcome(Answer(201, write_json(answer)), Entry(event, began=found.head.began))


def decision_of(about: Sequence[Event]) -> Event:
    """Find the decision itself among what is stored of it; raises where there is none, or only a trace of it."""
    if not about:
        raise unknown_decision()
    if about[0].body.get("erased"):
        raise erased_decision()
    return about[0]


def last_of(about: Sequence[Event], *kinds: Kind) -> Event | None:
    """The last event of these kinds."""
    return next((event for event in reversed(about) if event.kind in kinds), None)


@dataclass
class Learn(AbstractOperation):
    """The outcome of a decision: what was really done, if not what was decided, and its reward."""

    decision: str
    reward: float
    action: Any = None
    observed_at: str | None = None
    person: None = field(default=None, init=False)
    key: None = field(default=None, init=False)

    def settled(self, found: Found) -> Answer | None:
        decided = decision_of(found.about)
        if last_of(found.about, Kind.VOID) is not None:
            raise ProblemError(
                409, "voided", "This decision was voided, so it has no outcome. If it was carried out, ask for another."
            )
        told, done = last_of(found.about, Kind.OUTCOME), self._done(decided)
        if told is None:
            if self.action is not None:
                found.desk.done(self.action)
            return None
        if (told.body["reward"], str(told.body["action"])) != (self.reward, str(done)):
            raise ProblemError(
                409,
                "contradiction",
                "This decision has another outcome already. To correct it, PUT the new one with `supersedes`: the "
                "`event` of the outcome that it replaces.",
            )
        return Answer(200, write_json(told.body["answer"]))

    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        del verdict
        decided = decision_of(found.about)
        done = self._done(decided) if self.action is None else found.desk.done(self.action)
        number = found.head.events + 1
        would = decided.body["answer"]["would"]
        told_now = decided.body["answer"]["mode"] == Mode.SHADOW and decided.body.get("taken") is None
        told = {"agrees": done == would} if told_now and would is not None else None
        answer = {
            "decision_id": self.decision,
            "event": number,
            "reward": self.reward,
            "action": done,
            "observed_at": self.observed_at or found.at,
            "recorded_at": found.at,
        }
        body = {"reward": self.reward, "action": done, "told": told, "answer": answer}
        event = Event(found.person, number, Kind.OUTCOME, found.at, body, self.decision)
        return Outcome(Answer(201, write_json(answer)), Entry(event, began=found.head.began))

    def _done(self, decided: Event) -> Any:
        """What was really done: as told now, as told when it was decided, or as decided."""
        answer, taken = decided.body["answer"], decided.body.get("taken")
        if self.action is not None:
            return self.action
        if taken is not None:
            return taken
        if answer["mode"] != Mode.LIVE:
            raise ProblemError(
                422, "what-was-done", "A shadow decision is not carried out: say in `action` what was really done."
            )
        return answer["action"]


@dataclass
class Correct(AbstractOperation):
    """A correction of an outcome: a new event. `supersedes` is the event that it replaces."""

    decision: str
    reward: float
    supersedes: int
    why: str
    action: Any = None
    person: None = field(default=None, init=False)
    key: None = field(default=None, init=False)

    def settled(self, found: Found) -> Answer | None:
        decision_of(found.about)
        current = last_of(found.about, Kind.OUTCOME, Kind.CORRECTION)
        if current is None:
            raise ProblemError(
                409, "no-outcome", "This decision has no outcome that could be corrected. POST one first."
            )
        done = current.body["action"] if self.action is None else self.action
        told = (current.body.get("supersedes"), current.body["reward"], str(current.body["action"]))
        if told == (self.supersedes, self.reward, str(done)):
            return Answer(200, write_json(current.body["answer"]))
        if current.number != self.supersedes:
            raise ProblemError(
                409,
                "superseded",
                f"The outcome in force is event {current.number}, not {self.supersedes}. Look at it, and correct that.",
            )
        if self.action is not None:
            found.desk.done(self.action)
        return None

    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        del verdict
        current = last_of(found.about, Kind.OUTCOME, Kind.CORRECTION)
        assert current is not None
        done = current.body["action"] if self.action is None else found.desk.done(self.action)
        number = found.head.events + 1
        answer = {
            "decision_id": self.decision,
            "event": number,
            "reward": self.reward,
            "action": done,
            "supersedes": self.supersedes,
            "recorded_at": found.at,
        }
        body = {"reward": self.reward, "action": done, "supersedes": self.supersedes, "why": self.why, "answer": answer}
        event = Event(found.person, number, Kind.CORRECTION, found.at, body, self.decision)
        return Outcome(Answer(201, write_json(answer)), Entry(event, began=found.head.began))


@dataclass
class Void(AbstractOperation):
    """A decision that came to nothing: not shown, not carried out, or withdrawn. Nothing is learned from it."""

    decision: str
    why: str
    person: None = field(default=None, init=False)
    key: None = field(default=None, init=False)

    def settled(self, found: Found) -> Answer | None:
        decision_of(found.about)
        voided = last_of(found.about, Kind.VOID)
        if voided is not None:
            return Answer(200, write_json(voided.body["answer"]))
        if last_of(found.about, Kind.OUTCOME) is not None:
            raise ProblemError(
                409, "has-outcome", "This decision has an outcome, so it was carried out. Correct the outcome instead."
            )
        return None

    def outcome(self, found: Found, verdict: Verdict | None) -> Outcome:
        del verdict
        number = found.head.events + 1
        answer = {"decision_id": self.decision, "event": number, "why": self.why, "recorded_at": found.at}
        event = Event(found.person, number, Kind.VOID, found.at, {"why": self.why, "answer": answer}, self.decision)
        return Outcome(Answer(201, write_json(answer)), Entry(event, began=found.head.began))


def parsed(moment: str) -> datetime:
    """Read a moment that `written` wrote."""
    return datetime.fromisoformat(moment)
