"""Service: one thread that takes whatever waits, decides, commits it in one transaction, and only then answers.

An operation is carried out alone for its person: others for the same person wait for the next turn. So what a decision
is based on is always stored before the decision is, and with several servers on one database the number of the event
tells who was first; the other looks again.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ilb.errors import FileError
from ilb.serve.desk import Desk
from ilb.serve.engine import Engine, Verdict
from ilb.serve.events import SERVICE, Event, Kind, written
from ilb.serve.fallback import UNIFORM
from ilb.serve.names import ActionNames, Scalar
from ilb.serve.operations import AbstractOperation, Answer, Found, Outcome
from ilb.serve.people import ServedModel
from ilb.serve.problems import ProblemError, cannot_store, erased_meanwhile, unknown_decision
from ilb.serve.promotion import Follower, ShadowPlay, last_promoted, load_again, past_actions
from ilb.serve.scrubbing import Scrubber
from ilb.serve.store.store import AbstractStore, Entry, Head, StoreUnavailableError
from ilb.serve.waiting import Line, Waiting

TRIES = 20
"""How often an operation is tried whose person another server was quicker with."""

DEADLINE = 1.0
"""Seconds that the model has for the decisions of one turn."""


class Ready(NamedTuple):
    """An operation of a turn, with what is stored about it."""

    waiting: Waiting
    found: Found


class Erased(NamedTuple):
    """How many events were a person's, and whether no file of the store holds them any more."""

    events: int
    is_overwritten: bool


class Service:
    """Carries out operations: in order for each person, many people in one turn, stored before they are answered."""

    def __init__(
        self,
        store: AbstractStore,
        served: ServedModel | None,
        names: ActionNames,
        *,
        declared: Scalar | None = None,
        deadline: float = DEADLINE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self.engine = Engine(served, store, deadline)
        self.names = names
        self.declared = declared
        self.seed = 0 if served is None else served.bandit.seed
        self.clock = clock
        self.watch: Callable[[Found, Event], None] = _unwatched
        self.turned: Callable[[], None] = _untold
        self.failures: Counter[str] = Counter()
        self.last_failure: dict[str, str] = {}
        self._line = Line()
        self._models = store.heads([SERVICE]).get(SERVICE, Head()).events
        self._past = {**past_actions(store), **names.by_text}
        self._follower = Follower(self._take_up, self._note)
        self.staged: ShadowPlay | None = None
        self.scrubber = Scrubber(store, self._note)
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="ilb-service", daemon=True)
        self._thread.start()

    @property
    def desk(self) -> Desk:
        """By whom and between what decisions are made now."""
        return Desk(self.names, self.declared, self.engine.served, self._past)

    @property
    def noise(self) -> Mapping[str, float]:
        """By how much single rewards vary, by the text of their action, as far as the model says."""
        served = self.engine.served
        return {} if served is None else served.noise

    def describe(self) -> dict[str, Any]:
        """Say what decides between what, from what, and what is done without it."""
        served, staged = self.engine.served, self.staged
        return {
            "fingerprint": None if served is None else served.fingerprint,
            "policy": None if served is None else served.policy,
            "source": None if served is None else served.source,
            "actions": self.names.all,
            "context": [] if served is None else [column.name for column in served.schema.context],
            "fallback": UNIFORM if self.declared is None else self.declared,
            "staged": None if staged is None else staged.report(),
        }

    @property
    def waiting(self) -> int:
        """How many operations wait."""
        return len(self._line)

    def submit(self, operation: AbstractOperation) -> Future[Answer]:
        """Put an operation in the queue; its answer, or `ProblemError`, comes when it is stored."""
        return self._line.submit(operation)

    def erase(self, person: str) -> Erased:
        """Erase a person between two turns, and see to it that no file holds what was erased."""
        with self._turn:
            if person == SERVICE or person not in self.store.heads([person]):
                raise ProblemError(404, "unknown-person", "Nothing is stored under this label, so nothing was erased.")
            events = self.store.erase(person, f"erased-{secrets.token_hex(8)}", written(self.clock()))
            self.engine.forget(person)
            if self.staged is not None:
                self.staged.forget(person)
        return Erased(events, self.scrubber.scrub())

    def record_model(self, served: ServedModel, what: str) -> None:
        """Write down which model is promoted or staged, between two turns."""
        with self._turn:
            self._write_model(served, what)

    def _write_model(self, served: ServedModel, what: str) -> None:
        for _ in range(TRIES):
            head = self.store.heads([SERVICE]).get(SERVICE, Head())
            body = {"what": what, **served.described()}
            event = Event(SERVICE, head.events + 1, Kind.MODEL, written(self.clock()), body)
            if self.store.append([Entry(event, began=head.began)])[0]:
                if what == "promoted" or head.events == self._models:  # else another one's promotion is to be followed
                    self._models = event.number
                return
        raise FileError("other servers write of models all the time; this one found no gap.")

    def stage(self, served: ServedModel) -> None:
        """Play a model in shadow on what comes in from now on, in the place of one that was staged before."""
        with self._turn:
            self._write_model(served, "staged")
            before, self.staged = self.staged, ShadowPlay(served, self.store)
        if before is not None:
            before.close()

    def promote(self) -> ServedModel:
        """Put the staged model in charge, between two turns."""
        with self._turn:
            staged = self.staged
            if staged is None:
                raise ProblemError(409, "nothing-staged", "No model is staged. POST one to /v1/model first.")
            if not self._has_fallback(staged.served):
                raise ProblemError(
                    409,
                    "no-fallback",
                    f"The staged model does not know the declared fallback, {self.declared}. Start the server with "
                    "--fallback uniform or an action of both models, or stage a model that has this one.",
                )
            self._write_model(staged.served, "promoted")
            self._put_in_charge(staged.served)
            self.staged = None
        staged.close()
        return staged.served

    def _has_fallback(self, served: ServedModel) -> bool:
        return self.declared is None or served.names.find(self.declared) is not None

    def _put_in_charge(self, served: ServedModel) -> None:
        self.engine.replace(served)
        self.names = served.names
        self._past = {**self._past, **served.names.by_text}

    def close(self) -> None:
        """Carry out what waits, then stop."""
        self._line.close()
        self.scrubber.close()
        self._thread.join(timeout=30)
        self.engine.close()
        if self.staged is not None:
            self.staged.close()

    def _run(self) -> None:
        while True:
            batch, stop = self._line.take()
            if batch:
                with self._turn:
                    self._carry_out(batch)
                self.turned()
            if stop and not self._line.has_deferred:
                return

    def _carry_out(self, batch: Sequence[Waiting]) -> None:
        """Carry out one turn; no answer is given before all of it is stored."""
        try:
            ready = self._look_up(batch)
            questions = [(one, one.waiting.operation.question(one.found)) for one in ready]
            asked = [(one, question) for one, question in questions if question is not None]
            verdicts = self.engine.decide([question for _, question in asked])
            by_operation = {id(one): verdict for (one, _), verdict in zip(asked, verdicts, strict=True)}
            finished = [(one, self._finish(one, by_operation.get(id(one)))) for one in ready]
            self._store_and_answer([(one, outcome) for one, outcome in finished if outcome is not None])
        except StoreUnavailableError as error:
            self._note("store", str(error))
            for waiting in batch:
                waiting.refuse(cannot_store(f"{error}"))
        except Exception as error:
            self._note("service", type(error).__name__)
            for waiting in batch:
                waiting.refuse(_mistake(error))

    def _take_up(self, number: int) -> bool:
        """Put the model in charge that another server has promoted, up to this event; False if it can't be read."""
        described = last_promoted(self.store)
        served, loaded = self.engine.served, None
        if described is not None and (served is None or served.fingerprint != described["fingerprint"]):
            loaded = load_again(described)
            if loaded is None:
                self._note("model", "another server has promoted a model that can't be read here")
                return False
            if not self._has_fallback(loaded):
                self._note("model", "another server has promoted a model without the fallback that is declared here")
            loaded.warm_up()
        with self._turn:
            if self._models < number:  # else this server has promoted one itself meanwhile
                self._models = number
                if loaded is not None:
                    self._put_in_charge(loaded)
        return True

    def _finish(self, one: Ready, verdict: Verdict | None) -> Outcome | None:
        """Make the event and the answer of one operation; its failure is its own."""
        try:
            return one.waiting.operation.outcome(one.found, verdict)
        except ProblemError as problem:
            one.waiting.refuse(problem)
            return None
        except Exception as error:
            self._note("service", type(error).__name__)
            one.waiting.refuse(_mistake(error))
            return None

    def _look_up(self, batch: Sequence[Waiting]) -> list[Ready]:
        """Read what is stored about each operation; answer those that need nothing new, defer second ones."""
        first = self._one_for_each_person(batch)
        heads = self.store.heads([*first, SERVICE])
        models = heads.get(SERVICE, Head()).events
        if models > self._models:  # another server has written of models
            self._follower.follow(models)
        # Behind the heads: what is read here may be newer than a head, and then the append fails, but never older.
        about = self._about(first.values())
        keys = [(person, one.operation.key) for person, one in first.items() if one.operation.key is not None]
        repeats = self.store.with_keys(keys) if keys else {}
        at, desk, ready = written(self.clock()), self.desk, []
        for person, waiting in first.items():
            operation, head = waiting.operation, heads.get(person, Head())
            repeat = repeats.get((person, operation.key or ""))
            found = Found(person, head, about.get(operation.decision or "", []), repeat, at, desk)
            try:
                if waiting.began and waiting.began != head.began:
                    raise erased_meanwhile()
                answer = operation.settled(found)
            except ProblemError as problem:
                waiting.refuse(problem)
                continue
            except Exception as error:  # its failure is its own
                self._note("service", type(error).__name__)
                waiting.refuse(_mistake(error))
                continue
            if answer is None:
                ready.append(Ready(waiting, found))
            else:
                waiting.acknowledge(answer)
        return ready

    def _one_for_each_person(self, batch: Sequence[Waiting]) -> dict[str, Waiting]:
        """Find whom each operation is about; second ones for a person wait for the next turn."""
        named = {one.operation.decision for one in batch if one.operation.decision is not None}
        whose = self.store.whose(named) if named else {}
        first: dict[str, Waiting] = {}
        for waiting in batch:
            operation = waiting.operation
            person = operation.person if operation.person is not None else whose.get(operation.decision or "")
            if person is None:
                waiting.refuse(unknown_decision())
            elif person in first:
                self._line.defer(waiting)
            else:
                first[person] = waiting
        return first

    def _about(self, batch: Iterable[Waiting]) -> dict[str, list[Event]]:
        ids = {one.operation.decision for one in batch if one.operation.decision is not None}
        return self.store.about(ids) if ids else {}

    def _store_and_answer(self, finished: Sequence[tuple[Ready, Outcome]]) -> None:
        entries = [outcome.entry for _, outcome in finished if outcome.entry is not None]
        stored = iter(self.store.append(entries) if entries else [])
        # From here on it is stored, whatever happens: each is answered, and no failure of one is another's.
        for one, outcome in finished:
            if outcome.entry is None:
                one.waiting.acknowledge(outcome.answer)
            elif next(stored):
                one.waiting.acknowledge(outcome.answer)
                self._settle(one, outcome.entry, outcome.verdict or Verdict())
            elif one.waiting.tries < TRIES:  # another server was quicker: look again
                self._line.defer(
                    one.waiting._replace(tries=one.waiting.tries + 1, began=one.waiting.began or one.found.head.began)
                )
            else:
                one.waiting.refuse(cannot_store("other servers write for this person all the time."))

    def _settle(self, one: Ready, entry: Entry, verdict: Verdict) -> None:
        """Remember, count and play in shadow what was stored and answered."""
        try:
            if verdict.known is not None:
                self.engine.keep(one.found.person, verdict.known)
            if verdict.failure is not None:
                self._note("model", verdict.failure.cause)
            self.watch(one.found, entry.event)
            question = None if self.staged is None else one.waiting.operation.question(one.found)
            if self.staged is not None and question is not None:
                self.staged.play(question, entry.event.body["answer"]["action"])
        except Exception as error:
            self._note("service", type(error).__name__)

    def _note(self, where: str, cause: str) -> None:
        self.last_failure[where] = f"{written(self.clock())}: {cause}"
        self.failures[where] += 1


def _mistake(error: Exception) -> ProblemError:
    return ProblemError(500, "mistake", f"A mistake of the server ({type(error).__name__}). Tell who runs it.")


def _unwatched(found: Found, event: Event) -> None:
    del found, event


def _untold() -> None:
    """Tell nobody that a turn is over."""
