"""LiveInstance: contexts come in, decisions go out, rewards come in, late and in any order if need be."""

from __future__ import annotations

import operator
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from jaxtyping import Bool, Float, UInt32

from ilb.errors import DecisionError
from ilb.html import html_block, html_table, html_text
from ilb.live.decision import Decision, explain
from ilb.live.programs import REFUSED, BoundPolicy, Vector, instance_stream, unpack
from ilb.live.saved import Memory, Pending, write_memory
from ilb.live.slips import LARGEST, check_contexts
from ilb.logs.messages import counted
from ilb.networks import padded_size

BATCH = 32
"""Instances that one compiled call takes: the points of all their beliefs are in memory at once, best in the cache."""


class LiveInstance:
    """One instance, safe to share between threads; `LiveBandit.start` and `LiveBandit.restore` make it."""

    def __init__(self, bound: BoundPolicy, memory: Memory) -> None:
        self.label = memory.label
        self._bound = bound
        self._state = memory.state
        self._seen = memory.seen
        self._pending = dict(memory.pending)
        self._lock = threading.RLock()
        self._stream = instance_stream(bound.seed, memory.label)

    @property
    def pending(self) -> tuple[int, ...]:
        """The numbers of the decisions whose rewards have not come."""
        return tuple(self._pending)

    def __repr__(self) -> str:
        return f"LiveInstance({self.label!r}, {self._summary()})"

    def _repr_html_(self) -> str:
        """Show in a notebook how much is known of the instance, and which rewards it waits for."""
        actions = self._bound.schema.actions
        rows = [[number, actions[waiting.action]] for number, waiting in self._pending.items()]
        waiting = html_table(["decision", "action"], rows) if rows else ""
        return html_block(f"{self.label}", html_text(self._summary()), waiting)

    def _summary(self) -> str:
        waiting = len(self._pending)
        rewards = "no reward is waited for" if not waiting else f"{counted(waiting, 'reward')} waited for"
        return f"{counted(self._seen, 'context')} seen, {rewards}"

    def decide(
        self,
        context: Mapping[str, Any],
        *,
        allowed: Iterable[Hashable] | Hashable | None = None,
        forbidden: Iterable[Hashable] | Hashable | None = None,
    ) -> Decision:
        """Take in a context and choose one of the allowed actions (by default, of all)."""
        if not isinstance(context, Mapping):
            raise DecisionError(f"a context is a mapping from columns to values; got {type(context).__name__!r}.")
        bound = self._bound
        row = bound.schema.encode(context)
        check_contexts(bound.schema, row[None], [self.label], bound.tell_far)
        mask = bound.mask(allowed, forbidden)
        with self._lock:
            state, packed = bound.programs.decide(bound.vector, self._state, self._randomness(), row, mask)
            numbers = np.asarray(packed)
            self._require_finite(numbers)
            return self._book(state, numbers, row, mask)

    def observe(self, context: Mapping[str, Any]) -> None:
        """Take in a context without deciding anything: a visit at which no choice was open."""
        with self._lock:
            self.forget(self.decide(context))

    def forget(self, decision: Decision | SupportsIndex) -> None:
        """Stop waiting for the reward of a decision: it was not carried out, or its outcome will never be known."""
        with self._lock:
            number, _ = self._waiting(decision)
            del self._pending[number]

    def learn(
        self, decision: Decision | SupportsIndex, reward: SupportsFloat, *, action: Hashable | None = None
    ) -> None:
        """Take in the reward of a decision, given as itself or by its number.

        `action` is what was really done, where that was something other than the decision. A reward that is
        far from those of its action in the logs is warned of, or refused if the bandit is so (`far`).
        """
        try:
            value = float(reward)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise DecisionError(f"a reward must be a number; got {reward!r}.") from error
        if not abs(value) <= LARGEST:
            raise DecisionError(f"a reward must be a number between ±{LARGEST:g}; got {reward!r}.")
        bound = self._bound
        with self._lock:
            number, waiting = self._waiting(decision)
            done = waiting.action if action is None else bound.schema.action_index(action)
            if bound.usual is not None:
                bound.usual.check(value, done, self.label, waiting.context, bound.tell_far)
            outcome = np.array([done, value, number], dtype=np.float64)
            state = np.asarray(bound.programs.learn(bound.vector, self._state, waiting.context, outcome))
            if not np.isfinite(state).all():
                raise DecisionError(
                    f"with the reward {value:g}, what is known of {self.label!r} would not be finite. Nothing was "
                    f"learned, and decision {number} still waits: check the reward, or forget the decision."
                )
            self._state = state
            del self._pending[number]

    def to_json(self) -> str:
        """Save everything that is known of this instance; `LiveBandit.restore` reads it."""
        with self._lock:
            return write_memory(self._bound, Memory(self.label, self._state, self._seen, self._pending))

    def _waiting(self, decision: Any) -> tuple[int, Pending]:
        """Find an open decision, by itself or by its number, and make sure that it is the one that is meant."""
        if isinstance(decision, Decision):
            if decision.instance != self.label:
                raise DecisionError(f"this decision is for {decision.instance!r}; this instance is {self.label!r}.")
            number = decision.number
        else:
            try:
                number = operator.index(decision)
            except TypeError as error:
                raise DecisionError(f"give a decision or its number; got {decision!r}.") from error
        waiting = self._pending.get(number)
        if waiting is None:
            known = "it already has its reward, or none was due" if 0 <= number < self._seen else "it was never made"
            raise DecisionError(
                f"decision {number} of {self.label!r} waits for no reward: {known}. "
                f"Waiting are {sorted(self._pending)[:10] or 'none'}."
            )
        action = self._bound.schema.actions[waiting.action]
        if isinstance(decision, Decision) and decision.action != action:
            raise DecisionError(
                f"decision {number} of {self.label!r} was for {action!r} here; this one is for {decision.action!r}. "
                "It was made by another bandit, or before an older state was restored."
            )
        return number, waiting

    def _randomness(self) -> UInt32[np.ndarray, "3"]:
        """Give what the next decision's draws are made from: seed, instance and number."""
        return np.array([*self._stream, self._seen], dtype=np.uint32)

    def _require_finite(self, numbers: Float[np.ndarray, " numbers"]) -> None:
        """Refuse a decision whose numbers, or the state it leaves, are not finite."""
        if numbers[0] == REFUSED:
            raise DecisionError(
                f"no decision for {self.label!r}: with this context, what is believed would not be finite. Nothing was "
                "changed. Check the context, and in what units the rewards of the logs are."
            )

    def _book(
        self, state: Vector, numbers: Float[np.ndarray, " numbers"], row: np.ndarray, mask: Bool[np.ndarray, " K"]
    ) -> Decision:
        """Keep the state that a compiled decision left, and put its numbers into words."""
        bound, number, action = self._bound, self._seen, int(numbers[0])
        self._state = state
        self._pending[number] = Pending(row, action)
        self._seen += 1
        summary, outlook = numbers[1 : 1 + 4 * len(mask)], numbers[1 + 4 * len(mask) :]
        return explain(
            bound.schema.actions,
            bound.says,
            self.label,
            number,
            action,
            summary.reshape(4, -1),
            unpack(bound.outlook, outlook),
            mask,
        )


def decide_together(
    bound: BoundPolicy,
    instances: Sequence[LiveInstance],
    rows: Float[np.ndarray, "rows d"],
    mask: Bool[np.ndarray, " K"],
) -> list[Decision]:
    """Decide for different instances of one bandit in few compiled calls."""
    if any(instance._bound is not bound for instance in instances):
        raise DecisionError("an instance belongs to another bandit; decide with the one that started it.")
    check_contexts(bound.schema, rows, [instance.label for instance in instances], bound.tell_far)
    decided: list[tuple[Vector, np.ndarray]] = []
    size = padded_size(min(len(rows), BATCH))  # of every call, so that one program is compiled
    with ExitStack() as held:
        for instance in sorted(instances, key=id):
            held.enter_context(instance._lock)
        for first in range(0, len(rows), BATCH):
            some, contexts = instances[first : first + BATCH], rows[first : first + BATCH]
            padded = [*range(len(some)), *([0] * (size - len(some)))]
            states, packed = bound.programs.decide_many(
                bound.vector,
                np.stack([np.asarray(some[i]._state) for i in padded]),
                np.stack([some[i]._randomness() for i in padded]),
                contexts[padded],
                np.broadcast_to(mask, (len(padded), len(mask))),
            )
            decided += zip(map(np.copy, np.asarray(states)[: len(some)]), np.asarray(packed), strict=False)
        for instance, (_, numbers) in zip(instances, decided, strict=True):
            instance._require_finite(numbers)  # of all of them, before any is changed
        booked = zip(instances, decided, rows, strict=True)
        return [instance._book(state, numbers, row, mask) for instance, (state, numbers), row in booked]
