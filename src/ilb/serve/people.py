"""What a model knows of a person: a cache of the person's events, and the one way in which it is computed from them.

Folding events one by one, or from a saved state on, or all at once gives the same numbers to the last bit: the same
compiled calls in the same order. A correction goes back to the start, with the corrected reward in the old one's place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ilb.errors import DecisionError, IlbError
from ilb.live.bandit import LiveBandit
from ilb.live.decision import Decision
from ilb.live.instance import LiveInstance
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.serve.events import Event, Kind, write_json
from ilb.serve.names import ActionNames
from ilb.serve.problems import ProblemError
from ilb.serve.store.store import AbstractStore, Head, SavedState

LONG = 200
"""Events behind a saved state from which on it is saved anew at once."""


class ServedModel:
    """A model with the policy that decides by it, its labels, and where it came from.

    `noise` is the variance of single rewards around their mean, by the text of the action.
    """

    def __init__(
        self, bandit: LiveBandit, policy: str, source: str, noise: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        self.bandit = bandit
        self.policy = policy
        self.source = source
        self.noise = noise
        self.schema = bandit.schema
        self.names = ActionNames.of(bandit.schema)
        self.fingerprint = bandit.fingerprint

    @classmethod
    def load(cls, path: Path, policy: str | None = None, *, seed: int = 0) -> ServedModel:
        """Read a saved model and bind a policy to it."""
        model = LatentModel.load(path)
        bandit = LiveBandit.on(model, policy, seed=seed)
        usual = Ingredients.on(model, actions=len(bandit.schema.actions), context_dim=bandit.schema.width).usual_policy
        labels, variances = bandit.schema.actions, np.asarray(model.noise.reward_variance).tolist()
        noise = dict(zip(map(str, labels), variances, strict=True))
        return cls(bandit, policy or usual, str(path.resolve()), noise)

    def warm_up(self) -> None:
        """Compile what decisions need: decide and learn once for somebody who does not exist."""
        nobody = self.bandit.start("")
        nobody.learn(nobody.decide(self.usual_context), 0.0)

    @property
    def usual_context(self) -> dict[str, Any]:
        """A context from the middle of the logs."""
        context = {}
        for column in self.schema.context:
            (value,) = column.decode(np.zeros((1, len(column.names)), np.float32))
            context[column.name] = float(f"{value:.3g}") if isinstance(value, float) else value
        return context

    def described(self) -> dict[str, Any]:
        """Say what it is, as the log keeps it: enough to serve the fallback, and to read the log, without the model."""
        return {
            "fingerprint": self.fingerprint,
            "policy": self.policy,
            "seed": self.bandit.seed,
            "source": self.source,
            "schema": self.schema.to_json(),
        }


class Known:
    """What a model knows of a person after `events` events; `waiting` has its numbers of decisions, by their ids."""

    def __init__(self, live: LiveInstance, began: str, events: int = 0, waiting: dict[str, int] | None = None) -> None:
        self.live = live
        self.began = began
        self.events = events
        self.waiting = dict(waiting or {})

    def decide(self, decision: str, context: dict[str, Any], allowed: Any, forbidden: Any) -> Decision:
        """Take in a context and decide; the decision waits for its reward under its id."""
        made = self.live.decide(context, allowed=allowed, forbidden=forbidden)
        self.waiting[decision] = made.number
        return made

    def saved(self, served: ServedModel) -> SavedState:
        text = write_json({"began": self.began, "waiting": self.waiting, "live": self.live.to_json()})
        return SavedState(self.events, served.fingerprint, text)


def read_known(served: ServedModel, saved: SavedState) -> Known:
    """Read a saved state; raises `DecisionError` if it is of another model, or damaged."""
    if saved.bandit != served.fingerprint:
        raise DecisionError("the state was saved with another model.")
    try:
        stored = json.loads(saved.text)
        live, began = served.bandit.restore(stored["live"]), str(stored["began"])
        waiting = {str(decision): int(number) for decision, number in stored["waiting"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecisionError("the saved state is damaged.") from error
    return Known(live, began, saved.events, waiting)


def fold(served: ServedModel, person: str, events: Sequence[Event]) -> Known:
    """Compute what a model knows of a person from all events."""
    began = events[0].at if events else ""
    known = Known(served.bandit.start(person), began)
    go_on(served, known, events, _corrected(events))
    return known


def catch_up(served: ServedModel, store: AbstractStore, person: str, head: Head, known: Known | None) -> Known:
    """Bring what is known of a person to the head of the log, from memory, from the saved state, or from the start."""
    if known is not None and (known.began != head.began or known.events > head.events):
        known = None
    if known is None:
        known = _restored(served, store, person, head)
    if known.events == head.events:
        return known
    tail = [event for event in store.events_of(person, known.events) if event.number <= head.events]
    if any(event.kind == Kind.CORRECTION for event in tail):
        tail = [event for event in store.events_of(person) if event.number <= head.events]
        known = fold(served, person, tail)
    else:
        go_on(served, known, tail, {})
    if len(tail) > LONG:  # if this took longer than there is time, the next one need not begin again
        store.save_states({person: known.saved(served)}, {person: head.began})
    return known


def _restored(served: ServedModel, store: AbstractStore, person: str, head: Head) -> Known:
    saved = store.states([person]).get(person) if head.events else None
    if saved is not None and saved.events <= head.events:
        try:
            known = read_known(served, saved)
        except DecisionError:
            pass  # the log has everything that was in it
        else:
            if known.began == head.began:
                return known
    return Known(served.bandit.start(person), head.began)


def walk(served: ServedModel, person: str, events: Sequence[Event]) -> Iterator[tuple[Event, Decision | None, Known]]:
    """Go through a person's events: each with what the model decides there, if it does, and what it then knows."""
    known = fold(served, person, [])
    known.began = events[0].at if events else ""
    for index, event in enumerate(events):
        if event.kind == Kind.CORRECTION:
            known, decision = fold(served, person, events[: index + 1]), None
        else:
            decision = step(served, known, event, {})
        yield event, decision, known


def go_on(served: ServedModel, known: Known, events: Sequence[Event], corrected: dict[str, dict[str, Any]]) -> None:
    """Take in further events."""
    for event in events:
        step(served, known, event, corrected)


def step(served: ServedModel, known: Known, event: Event, corrected: dict[str, dict[str, Any]]) -> Decision | None:
    """Take in one event; what the model can't take in (a column that it does not know) is passed over."""
    decision = None
    try:
        decision = _STEPS[Kind(event.kind)](served, known, event, corrected)
    except (IlbError, ProblemError):
        known.waiting.pop(str(event.decision), None)
    known.events = event.number
    return decision


def request_of(event: Event) -> dict[str, Any]:
    """Give what a decision was asked with."""
    request: dict[str, Any] = event.body["request"]
    return request


def labels_of(served: ServedModel, names: list[Any] | None) -> list[Any] | None:
    """Translate names of actions to labels, without those that this model does not know."""
    return None if names is None else [label for name in names if (label := served.names.find(name)) is not None]


def _corrected(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    """Find the last correction of each decision."""
    return {str(event.decision): event.body for event in events if event.kind == Kind.CORRECTION}


Corrections = dict[str, dict[str, Any]]


def _decided(served: ServedModel, known: Known, event: Event, corrected: Corrections) -> Decision:
    del corrected
    request = request_of(event)
    allowed, forbidden = (labels_of(served, request.get(name)) for name in ("allowed", "forbidden"))
    if not set(served.schema.actions if allowed is None else allowed) - set(forbidden or ()):
        allowed = forbidden = None  # this model could have chosen none of these, but the context is known all the same
    return known.decide(str(event.decision), request["context"], allowed, forbidden)


def _outcome(served: ServedModel, known: Known, event: Event, corrected: Corrections) -> None:
    number = known.waiting.pop(str(event.decision), None)
    if number is None:  # the model has not taken in its context
        return
    told = corrected.get(str(event.decision), event.body)
    done = served.names.find(told["action"])
    if done is None:  # an action of another model: nothing can be learned of it here
        known.live.forget(number)
    else:
        known.live.learn(number, told["reward"], action=done)


def _void(served: ServedModel, known: Known, event: Event, corrected: Corrections) -> None:
    del served, corrected
    number = known.waiting.pop(str(event.decision), None)
    if number is not None:
        known.live.forget(number)


def _observed(served: ServedModel, known: Known, event: Event, corrected: Corrections) -> None:
    del served, corrected
    known.live.observe(request_of(event)["context"])


def _nothing(served: ServedModel, known: Known, event: Event, corrected: Corrections) -> None:
    """Pass over a correction: it has gone into the outcome that it corrects."""
    del served, known, event, corrected


_STEPS: dict[Kind, Callable[[ServedModel, Known, Event, Corrections], Decision | None]] = {
    Kind.DECISION: _decided,
    Kind.OUTCOME: _outcome,
    Kind.CORRECTION: _nothing,
    Kind.VOID: _void,
    Kind.OBSERVATION: _observed,
    Kind.ERASURE: _nothing,
    Kind.MODEL: _nothing,
}
