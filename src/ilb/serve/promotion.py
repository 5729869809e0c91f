"""Which model is in charge: staged, played in shadow on what comes in, and promoted without a pause.

The log says who was in charge from when on. States are caches of the log, so a new model computes its own from the
events, person by person, when they are next asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ilb.errors import IlbError
from ilb.logs import Schema
from ilb.serve.engine import Engine, Question, answer
from ilb.serve.events import SERVICE
from ilb.serve.names import ActionNames, Scalar
from ilb.serve.people import ServedModel
from ilb.serve.store.store import AbstractStore

MOST_WAITING = 1000
"""Decisions that wait to be played in shadow; further ones are left out, so that nobody is held up."""

AGAIN = 10.0
"""Seconds after which a model that another server has promoted is looked for again, where it could not be read."""


class InCharge(NamedTuple):
    """The model that decides, if it could be read; the names of actions in any case; and what is to be told."""

    served: ServedModel | None
    names: ActionNames
    is_new: bool
    notes: tuple[str, ...] = ()


def last_promoted(store: AbstractStore) -> dict[str, Any] | None:
    """What the log says of the model in charge."""
    for event in reversed(store.events_of(SERVICE)):
        if event.body.get("what") == "promoted":
            body: dict[str, Any] = event.body
            return body
    return None


def past_actions(store: AbstractStore) -> dict[str, Scalar]:
    """The actions of all models that were ever in charge, by their text, as the log has them."""
    past: dict[str, Scalar] = {}
    for event in store.events_of(SERVICE):
        if event.body.get("what") == "promoted":
            past |= ActionNames.of(Schema.from_json(event.body["schema"])).by_text
    return past


def take_charge(store: AbstractStore, path: Path, policy: str | None, seed: int, *, promote: bool = False) -> InCharge:
    """Find the model to start with: the one that was promoted last, if it is still there, or else the given one.

    Without any that can be read, the fallback decides, if the log says between what.
    """
    before = last_promoted(store)
    try:
        given = ServedModel.load(path, policy, seed=seed)
    except (IlbError, OSError) as error:
        if before is None:
            raise
        kept = load_again(before)
        if kept is not None:
            return InCharge(kept, kept.names, False, (f"{error} The promoted model {kept.source} is in charge.",))
        names = ActionNames.of(Schema.from_json(before["schema"]))
        return InCharge(None, names, False, (f"{error} Until there is a model, the fallback decides.",))
    if before is None or before["fingerprint"] == given.fingerprint or promote:
        return InCharge(given, given.names, before is None or before["fingerprint"] != given.fingerprint)
    kept = load_again(before) if before["source"] != given.source else None
    if kept is None:
        return InCharge(given, given.names, True, ("another model than before is in charge from now on.",))
    note = f"{kept.source} was promoted and stays in charge; --promote puts {given.source} in its place."
    return InCharge(kept, kept.names, False, (note,))


def load_again(described: dict[str, Any]) -> ServedModel | None:
    """Load a model that the log names, if it is still the same."""
    try:
        loaded = ServedModel.load(Path(described["source"]), described["policy"], seed=described["seed"])
    except (IlbError, OSError):
        return None
    return loaded if loaded.fingerprint == described["fingerprint"] else None


class Follower:
    """Follows other servers that promote models, in a thread of its own; what could not be followed is tried again."""

    def __init__(self, take_up: Callable[[int], bool], note: Callable[[str, str], None]) -> None:
        self._take_up = take_up
        self._note = note
        self._is_busy, self._not_before = False, 0.0

    def follow(self, number: int) -> None:
        """Follow up to this event of the service, unless that is under way or has just failed."""
        if not self._is_busy and time.monotonic() >= self._not_before:
            self._is_busy = True
            threading.Thread(target=self._follow, args=(number,), name="ilb-follow", daemon=True).start()

    def _follow(self, number: int) -> None:
        try:
            is_done = self._take_up(number)
        except Exception as error:
            self._note("model", f"another server has promoted a model; taking it up failed: {type(error).__name__}")
            is_done = False
        if not is_done:
            self._not_before = time.monotonic() + AGAIN
        self._is_busy = False


class ShadowPlay:
    """A staged model at work on what comes in, behind the one in charge: what it would do is compared and counted."""

    def __init__(self, served: ServedModel, store: AbstractStore) -> None:
        self.served = served
        self._store = store
        self._states = Engine(served, store, deadline=0.0)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ilb-shadow")
        self._guard = threading.Lock()
        self._waiting = 0
        self._compared = self._agreed = self._failed = self._left_out = 0
        self._gain = 0.0

    def play(self, question: Question, chosen: Any) -> None:
        """Decide what was decided once more, when there is time; `chosen` is what was chosen."""
        with self._guard:
            if self._waiting >= MOST_WAITING:
                self._left_out += 1
                return
            self._waiting += 1
        self._thread.submit(self._play, question, chosen)

    def forget(self, person: str) -> None:
        """Forget a person, now and behind all that still waits to be played."""
        self._states.forget(person)
        self._thread.submit(self._states.forget, person)

    def report(self) -> dict[str, Any]:
        """Say how often both agree, and what the staged model expects to gain where they do not, on average."""
        with self._guard:
            compared = self._compared
            return {
                "fingerprint": self.served.fingerprint,
                "policy": self.served.policy,
                "source": self.served.source,
                "compared": compared,
                "agreed": self._agreed,
                "failed": self._failed,
                "left_out": self._left_out,
                "expected_gain": round(self._gain / compared, 6) if compared else None,
            }

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._states.close()

    def _play(self, question: Question, chosen: Any) -> None:
        verdict = answer(self.served, self._store, question, self._states.take(question.person))
        with self._guard:
            self._waiting -= 1
            if verdict.decision is None or verdict.known is None:
                self._failed += 1
                return
            expected, action = verdict.decision.expected_reward, verdict.decision.action
            self._compared += 1
            self._agreed += int(self.served.names.name(action) == chosen)
            other = self.served.names.find(chosen)
            self._gain += expected[action] - expected[other] if other is not None else 0.0
        self._states.keep(question.person, verdict.known)
