"""Service: one thread that takes whatever waits, decides, commits it in one transaction, and only then answers.

An operation is carried out alone for its person: others for the same person wait for the next turn. So what a decision
is based on is always stored before the decision is, and with several servers on one database the number of the event
tells who was first; the other looks again.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ilb.errors import FileError
from ilb.serve.deciding import Desk
from ilb.serve.engine import Engine, Verdict
from ilb.serve.events import SERVICE, Event, Kind, written
from ilb.serve.fallback import UNIFORM
from ilb.serve.names import ActionNames, Scalar
from ilb.serve.operations import AbstractOperation, Answer, Found, Outcome
from ilb.serve.people import ServedModel
from ilb.serve.problems import ProblemError, cannot_store, unknown_decision
from ilb.serve.promotion import ShadowPlay, last_promoted, load_again
from ilb.serve.store.store import AbstractStore, Entry, Head, StoreUnavailableError

TURN = 64
"""Operations that are carried out in one turn."""

TRIES = 20
"""How often an operation is tried whose person another server was quicker with."""

MOST_WAITING = 2000
"""Operations that wait; beyond that, a server is overrun and says so at once."""

DEADLINE = 1.0
"""Seconds that the model has for the decisions of one turn."""


class Waiting(NamedTuple):
    """An operation and where its answer goes."""

    operation: AbstractOperation
    answer: Future[Answer]
    since: float
    tries: int = 0


class Ready(NamedTuple):
    """An operation of a turn, with what is stored about it."""

    waiting: Waiting
    found: Found


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
        self.failures: Counter[str] = Counter()
        self.last_failure: dict[str, str] = {}
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._deferred: deque[Waiting] = deque()
        self._models = store.heads([SERVICE]).get(SERVICE, Head()).events
        self.staged: ShadowPlay | None = None
        self._turn = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ilb-service", daemon=True)
        self._thread.start()

    @property
    def desk(self) -> Desk:
        served = self.engine.served
        return Desk(
            self.names,
            self.declared,
            None if served is None else served.fingerprint,
            UNIFORM if served is None else served.policy,
        )

    @property
    def noise(self) -> Mapping[str, float]:
        """By how much single rewards vary, by the text of their action, as far as the model says."""
        served = self.engine.served
        return {} if served is None else served.noise

    def describe(self) -> dict[str, Any]:
        """Say what decides between what, from what, and what is done without it."""
        served = self.engine.served
        return {
            "fingerprint": None if served is None else served.fingerprint,
            "policy": None if served is None else served.policy,
            "source": None if served is None else served.source,
            "actions": self.names.all,
            "context": [] if served is None else [column.name for column in served.schema.context],
            "fallback": UNIFORM if self.declared is None else self.declared,
            "staged": None if self.staged is None else self.staged.report(),
        }

    @property
    def waiting(self) -> int:
        """How many operations wait."""
        return self._queue.qsize() + len(self._deferred)

    def submit(self, operation: AbstractOperation) -> Future[Answer]:
        """Put an operation in the queue; its answer, or `ProblemError`, comes when it is stored."""
        answer: Future[Answer] = Future()
        if self._closed:
            answer.set_exception(cannot_store("the server is stopping."))
        elif self._queue.qsize() > MOST_WAITING:
            answer.set_exception(
                ProblemError(429, "overrun", "More requests wait than can be answered soon. Try again.", retry_after=1)
            )
        else:
            self._queue.put(Waiting(operation, answer, time.monotonic()))
        return answer

    def between_turns(self, work: Callable[[], None]) -> None:
        """Do something while this server writes nothing."""
        with self._turn:
            work()

    def erase(self, person: str) -> int:
        """Erase a person between two turns; gives the number of events that were theirs."""
        with self._turn:
            if person == SERVICE or person not in self.store.heads([person]):
                raise ProblemError(404, "unknown-person", "Nothing is stored under this label, so nothing was erased.")
            events = self.store.erase(person, f"erased-{secrets.token_hex(8)}", written(self.clock()))
            self.engine.forget(person)
        return events

    def record_model(self, served: ServedModel, what: str, then: Callable[[ServedModel], None] | None = None) -> None:
        """Write down which model is promoted or staged, and act on that, between two turns."""
        with self._turn:
            for _ in range(TRIES):
                head = self.store.heads([SERVICE]).get(SERVICE, Head())
                body = {"what": what, **served.described()}
                event = Event(SERVICE, head.events + 1, Kind.MODEL, written(self.clock()), body)
                if self.store.append([Entry(event)])[0]:
                    self._models = event.number
                    if then is not None:
                        then(served)
                    return
        raise FileError("other servers write of models all the time; this one found no gap.")

    def stage(self, served: ServedModel) -> None:
        """Play a model in shadow on what comes in from now on, in the place of one that was staged before."""
        self.record_model(served, "staged")
        before, self.staged = self.staged, ShadowPlay(served, self.store)
        if before is not None:
            before.close()

    def promote(self) -> ServedModel:
        """Put the staged model in charge, between two turns."""
        staged = self.staged
        if staged is None:
            raise ProblemError(409, "nothing-staged", "No model is staged. POST one to /v1/model first.")
        self.record_model(staged.served, "promoted", then=self._put_in_charge)
        self.staged = None
        staged.close()
        return staged.served

    def _put_in_charge(self, served: ServedModel) -> None:
        self.engine.replace(served)
        self.names = served.names

    def close(self) -> None:
        """Carry out what waits, then stop."""
        self._closed = True
        self._queue.put(None)
        self._thread.join(timeout=30)
        self.engine.close()
        if self.staged is not None:
            self.staged.close()

    def _run(self) -> None:
        while True:
            batch, stop = self._take()
            if batch:
                with self._turn:
                    self._carry_out(batch)
            if stop and not self._deferred:
                return

    def _take(self) -> tuple[list[Waiting], bool]:
        """Take what waits, in order; wait only if nothing does."""
        batch: list[Waiting] = []
        stop = self._closed and self._queue.empty() and not self._deferred
        while self._deferred and len(batch) < TURN:
            batch.append(self._deferred.popleft())
        while len(batch) < TURN and not stop:
            try:
                one = self._queue.get(block=not batch)
            except queue.Empty:
                break
            if one is None:
                stop = True
            elif one.answer.set_running_or_notify_cancel():  # false: nobody waits for it any more
                batch.append(one)
        return batch, stop

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
                _refuse(waiting, cannot_store(f"{error}"))
        except Exception as error:
            self._note("service", type(error).__name__)
            for waiting in batch:
                _refuse(waiting, _mistake(error))

    def _notice(self, head: Head) -> None:
        """Follow another server that has promoted a model."""
        if head.events > self._models:
            self._models = head.events
            threading.Thread(target=self._follow, name="ilb-follow", daemon=True).start()

    def _follow(self) -> None:
        described = last_promoted(self.store)
        served = self.engine.served
        if described is None or (served is not None and served.fingerprint == described["fingerprint"]):
            return
        loaded = load_again(described)
        if loaded is None:
            self._note("model", "another server has promoted a model that can't be read here")
            return
        loaded.warm_up()
        with self._turn:
            self._put_in_charge(loaded)

    def _finish(self, one: Ready, verdict: Verdict | None) -> Outcome | None:
        """Make the event and the answer of one operation; its failure is its own."""
        try:
            return one.waiting.operation.outcome(one.found, verdict)
        except Exception as error:
            self._note("service", type(error).__name__)
            _refuse(one.waiting, _mistake(error))
            return None

    def _look_up(self, batch: Sequence[Waiting]) -> list[Ready]:
        """Read what is stored about each operation; answer those that need nothing new, defer second ones."""
        ids = {one.operation.decision for one in batch if one.operation.decision is not None}
        about = self.store.about(ids) if ids else {}
        first: dict[str, Waiting] = {}
        for waiting in batch:
            operation = waiting.operation
            events = about.get(operation.decision or "", [])
            person = operation.person if operation.person is not None else events[0].person if events else None
            if person is None:
                _refuse(waiting, unknown_decision())
            elif person in first:
                self._deferred.append(waiting)
            else:
                first[person] = waiting
        heads = self.store.heads([*first, SERVICE])
        self._notice(heads.get(SERVICE, Head()))
        keys = [(person, one.operation.key) for person, one in first.items() if one.operation.key is not None]
        repeats = self.store.with_keys(keys) if keys else {}
        at, ready = written(self.clock()), []
        for person, waiting in first.items():
            operation = waiting.operation
            repeat = repeats.get((person, operation.key or ""))
            found = Found(person, heads.get(person, Head()), about.get(operation.decision or "", []), repeat, at)
            try:
                answer = operation.settled(found)
            except ProblemError as problem:
                _refuse(waiting, problem)
                continue
            if answer is None:
                ready.append(Ready(waiting, found))
            else:
                waiting.answer.set_result(answer)
        return ready

    def _store_and_answer(self, finished: Sequence[tuple[Ready, Outcome]]) -> None:
        entries = [outcome.entry for _, outcome in finished if outcome.entry is not None]
        stored = iter(self.store.append(entries) if entries else [])
        for one, outcome in finished:
            if outcome.entry is None:
                one.waiting.answer.set_result(outcome.answer)
            elif next(stored):
                self._settle(one, outcome.entry, outcome)
            elif one.waiting.tries < TRIES:  # another server was quicker: look again
                self._deferred.append(one.waiting._replace(tries=one.waiting.tries + 1))
            else:
                _refuse(one.waiting, cannot_store("other servers write for this person all the time."))

    def _settle(self, one: Ready, entry: Entry, outcome: Outcome) -> None:
        verdict = outcome.verdict or Verdict()
        if verdict.known is not None:
            self.engine.keep(one.found.person, verdict.known)
        if verdict.failure is not None:
            self._note("model", verdict.failure.cause)
        one.waiting.answer.set_result(outcome.answer)
        self.watch(one.found, entry.event)
        question = one.waiting.operation.question(one.found)
        if self.staged is not None and question is not None:
            self.staged.play(question, entry.event.body["answer"]["action"])

    def _note(self, where: str, cause: str) -> None:
        self.failures[where] += 1
        self.last_failure[where] = f"{written(self.clock())}: {cause}"


def _mistake(error: Exception) -> ProblemError:
    return ProblemError(500, "mistake", f"A mistake of the server ({type(error).__name__}). Tell who runs it.")


def _unwatched(found: Found, event: Event) -> None:
    del found, event


def _refuse(waiting: Waiting, problem: ProblemError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(problem)
