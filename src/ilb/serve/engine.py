"""Engine: the model at work, in a thread of its own and under a deadline. Whatever goes wrong is an answer, too."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as OutOfTimeError
from typing import Any, NamedTuple

from ilb.live.decision import Decision
from ilb.serve.people import Known, ServedModel, catch_up, labels_of
from ilb.serve.store.store import AbstractStore, Head, SavedState

GRACE = 30.0
"""Seconds that decisions wait while the programs of a model are compiled, which happens once, at a start."""

KEPT = 20_000
"""People whose states are kept in memory, about 5 kB each; the others' are read from the store."""


class Question(NamedTuple):
    """A decision to be made: by whom, how far the person's log has come, and what was asked; `at` is now."""

    person: str
    head: Head
    decision: str
    at: str
    context: dict[str, Any]
    allowed: list[Any] | None
    forbidden: list[Any] | None


class Failure(NamedTuple):
    """Why the model did not decide: how bad that is (yellow: by itself it passes; red: someone must look), and what."""

    severity: str
    cause: str


NO_MODEL = Failure("red", "no model is loaded")
TOO_LATE = Failure("yellow", "the model did not answer before the deadline")


class Verdict(NamedTuple):
    """What the model says, and then knows; or why it says nothing."""

    decision: Decision | None = None
    known: Known | None = None
    state: SavedState | None = None
    failure: Failure | None = None


class Engine:
    """Decides for people, one after the other; what it knows of them is kept only once the events are stored.

    One at a time, because a batch of any size rounds differently in the last bits, and every decision is to be
    reproducible from the log; and because on a CPU a batch is hardly quicker.
    """

    def __init__(self, served: ServedModel | None, store: AbstractStore, deadline: float) -> None:
        self.served = served
        self._store = store
        self._deadline = deadline
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ilb-model")
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._guard = threading.Lock()
        self._warming: Future[None] | None = None

    @property
    def is_warm(self) -> bool:
        """Whether nothing is left to be compiled."""
        return self._warming is None or self._warming.done()

    def warm_up(self) -> Future[None] | None:
        """Compile what decisions need, in the thread of the model; those that come meanwhile wait for it."""
        if self.served is not None:
            self._warming = self._thread.submit(self.served.warm_up)
        return self._warming

    def decide(self, questions: Sequence[Question]) -> list[Verdict]:
        """Answer all questions, each for another person, before the deadline; those that are left say so."""
        served = self.served
        if served is None:
            return [Verdict(failure=NO_MODEL)] * len(questions)
        if not questions:
            return []
        if self._warming is not None and not self._warming.done():
            wait([self._warming], GRACE)
        done: list[Verdict] = []
        known = [self.take(question.person) for question in questions]
        work: Future[None] = self._thread.submit(self._work, served, questions, known, done, time.monotonic())
        try:
            work.result(self._deadline)
        except OutOfTimeError:
            work.cancel()
        answered = list(done)  # the thread may still add to it, and what it then knows is nobody's
        return answered + [Verdict(failure=TOO_LATE)] * (len(questions) - len(answered))

    def keep(self, person: str, known: Known) -> None:
        """Remember a person: the event that the state holds is stored."""
        with self._guard:
            self._known[person] = known
            self._known.move_to_end(person)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)

    def forget(self, person: str) -> None:
        """Forget a person; the store has everything."""
        self.take(person)

    def replace(self, served: ServedModel) -> None:
        """Decide by another model from now on; states are computed from the events again, person by person."""
        with self._guard:
            self.served = served
            self._known.clear()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def take(self, person: str) -> Known | None:
        """Take what is known of a person out of memory; `keep` puts it back."""
        with self._guard:
            return self._known.pop(person, None)

    def _work(
        self,
        served: ServedModel,
        questions: Sequence[Question],
        known: Sequence[Known | None],
        done: list[Verdict],
        began: float,
    ) -> None:
        for question, before in zip(questions, known, strict=True):
            if time.monotonic() > began + self._deadline:
                return
            done.append(answer(served, self._store, question, before))


def answer(served: ServedModel, store: AbstractStore, question: Question, before: Known | None) -> Verdict:
    """Decide for one person; an exception, of whatever kind, becomes a failure that is told."""
    try:
        known = catch_up(served, store, question.person, question.head, before)
        allowed, forbidden = labels_of(served, question.allowed), labels_of(served, question.forbidden)
        decision = known.decide(question.decision, question.context, allowed, forbidden)
        known.events = question.head.events + 1
        known.began = question.head.began or question.at
        return Verdict(decision, known, known.saved(served))
    except Exception as error:
        # Only the kind: messages may quote labels and contexts, and causes are shown and logged.
        return Verdict(failure=Failure("red", f"the model failed with {type(error).__name__}"))
