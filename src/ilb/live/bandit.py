"""Decide for real: one object for each instance, labels in and out, rewards when they come.

The compiled programs are the policies of the simulation; nothing here is a second implementation of any of them.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, UInt32

from ilb.errors import DecisionError, LogsWarning
from ilb.live.decision import Decision, explain
from ilb.live.programs import Vector, compile_programs, fingerprint, instance_stream, pack, packing_of
from ilb.logs import Schema
from ilb.logs.labels import as_label, is_missing
from ilb.logs.messages import warn
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_policy

BATCH = 256
"""Instances that one compiled call of `decide_many` takes: the points of all their beliefs are in memory at once."""

FAR = 10.0
"""Standard deviations from the mean of the logs beyond which a value is taken for a slip."""

LARGEST_REWARD = 1e15
"""Rewards are summed and squared in float32; nothing measured in sensible units comes near this."""


class LiveBandit:
    """A policy bound to the labels of a schema: it starts and restores instances, and decides for many at once.

    Immutable, and safe to share between threads, as instances are. Randomness is a function of `seed`, the label of the
    instance and the number of the decision alone, so the same events lead to the same decisions again.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> from ilb.offline.fit import complete_model
    >>> world = draw_world(jr.key(0), latent_dim=2, actions=3)
    >>> logs = record(jr.key(1), world, UniformLogging(3), instances=40, length=50).logs
    >>> model = complete_model(world.oracle().encoder, logs)
    >>> anna = LiveBandit.on(model).start("anna")
    >>> decision = anna.decide({"x1": 0.3, "x2": -1.2})
    >>> decision.action in model.schema.actions
    True
    >>> anna.learn(decision, reward=1.7)
    """

    def __init__(self, policy: AbstractPolicy, schema: Schema, *, seed: int = 0) -> None:
        self.policy = policy
        self.schema = schema
        self.seed = operator.index(seed)
        self.everything = np.ones(len(schema.actions), dtype=bool)
        self.nothing_known = pack(policy.init())
        self.packed_policy = pack(policy)
        self.programs = compile_programs(packing_of(policy), packing_of(policy.init()))
        self.scaled = any(getattr(column, "mean", 0) != 0 for column in schema.context)
        self.fingerprint = fingerprint(schema, packing_of(policy.init()), self.packed_policy)

    @classmethod
    def on(cls, model: LatentModel | RecurrentRegression, policy: str | None = None, *, seed: int = 0) -> LiveBandit:
        """Bind a fitted model and the policy of this name (see `ilb.online.roster.ROSTER`).

        The default is what a model is best for: the calibrated posterior, or what a recurrent regression predicts.
        """
        schema = model.schema
        if schema is None:
            raise DecisionError("the model has no schema, so contexts and actions have no names. Fit it on Logs.")
        given = Ingredients.on(model, actions=len(schema.actions), context_dim=schema.width)
        return cls(build_policy(given, policy or given.usual_policy), schema, seed=seed)

    def start(self, instance: Hashable) -> LiveInstance:
        """Begin an instance of which nothing is known yet."""
        label = as_label(instance)
        if is_missing(label):
            raise DecisionError(f"an instance needs a name to be told from others by; got {instance!r}.")
        return LiveInstance(self, label, self.nothing_known, 0, {})

    def restore(self, text: str) -> LiveInstance:
        """Go on with an instance that `LiveInstance.to_json` saved, as if it had never stopped."""
        from ilb.live.saved import read_instance

        return read_instance(self, text)

    def decide_many(
        self,
        instances: Sequence[LiveInstance],
        contexts: Any,
        *,
        allowed: Collection[Hashable] | None = None,
        forbidden: Collection[Hashable] | None = None,
    ) -> list[Decision]:
        """Decide for many instances in few compiled calls; `contexts` is a frame or a list of mappings, in order."""
        if isinstance(contexts, Mapping):
            raise DecisionError("contexts must be a frame or a list with a mapping for each instance; got one mapping.")
        rows = self.schema.encode(contexts)
        if len(rows) != len(instances):
            raise DecisionError(f"{len(instances)} instances need as many contexts; got {len(rows)}.")
        if len({id(instance) for instance in instances}) != len(instances):
            raise DecisionError("an instance is named twice; decide for its contexts one after the other.")
        if any(instance.bandit is not self for instance in instances):
            raise DecisionError("an instance belongs to another bandit; decide with the one that started it.")
        mask = self.mask(allowed, forbidden)
        with ExitStack() as held:
            for instance in sorted(instances, key=id):
                held.enter_context(instance.lock)
            return [
                decision
                for first in range(0, len(rows), BATCH)
                for decision in self._decide_batch(instances[first : first + BATCH], rows[first : first + BATCH], mask)
            ]

    def _decide_batch(
        self, instances: Sequence[LiveInstance], rows: np.ndarray, mask: Bool[np.ndarray, " K"]
    ) -> list[Decision]:
        # Padded to a power of two, so that few sizes are ever compiled.
        padded = [*range(len(rows)), *([0] * ((1 << (len(rows) - 1).bit_length()) - len(rows)))]
        states, numbers = self.programs.decide_many(
            self.packed_policy,
            jnp.stack([instances[i].state for i in padded]),
            np.stack([instances[i].randomness() for i in padded]),
            rows[padded],
            np.broadcast_to(mask, (len(padded), len(mask))),
        )
        outlooks = np.asarray(numbers)
        return [
            instance.book(state, outlook, context, mask)
            for instance, state, outlook, context in zip(instances, states, outlooks, rows, strict=False)
        ]

    def warn_if_far(self, row: Float[np.ndarray, " d"]) -> None:
        """Warn of values that are nowhere near those the model was fitted on: mostly a slip of the keyboard."""
        if np.abs(row).max() > FAR and self.scaled:
            worst = int(np.abs(row).argmax())
            warn(
                f"column {self.schema.names[worst]!r} is {abs(row[worst]):.0f} standard deviations from its mean in "
                "the logs, where the encoder knows nothing. Check it; if it is wrong, restore an earlier saved state.",
                LogsWarning,
            )

    def mask(
        self, allowed: Collection[Hashable] | None, forbidden: Collection[Hashable] | None
    ) -> Bool[np.ndarray, " K"]:
        """Turn labels of allowed or forbidden actions into a mask."""
        if allowed is None and not forbidden:
            return self.everything
        # A lone label is meant as one, not as its letters.
        allowed, forbidden = ([labels] if isinstance(labels, str) else labels for labels in (allowed, forbidden))
        mask = np.zeros_like(self.everything) if allowed is not None else self.everything.copy()
        mask[[self.schema.action_index(label) for label in allowed or ()]] = True
        mask[[self.schema.action_index(label) for label in forbidden or ()]] = False
        if not mask.any():
            raise DecisionError(f"no action is left: {len(mask)} are known, and all of them are ruled out.")
        return mask


class Pending(NamedTuple):
    """A decision whose reward has not come yet: all that learning from it needs."""

    context: Float[np.ndarray, " d"]
    action: int


class LiveInstance:
    """One instance: contexts come in, decisions go out, rewards come in, late and in any order if need be."""

    def __init__(
        self, bandit: LiveBandit, label: Hashable, state: Vector, seen: int, pending: dict[int, Pending]
    ) -> None:
        self.bandit = bandit
        self.label = label
        self.state = state
        self.seen = seen
        self.pending = pending
        self.lock = threading.RLock()
        self._stream = instance_stream(bandit.seed, label)

    def decide(
        self,
        context: Mapping[str, Any],
        *,
        allowed: Collection[Hashable] | None = None,
        forbidden: Collection[Hashable] | None = None,
    ) -> Decision:
        """Take in a context and choose one of the allowed actions (by default, of all)."""
        if not isinstance(context, Mapping):
            raise DecisionError(f"a context is a mapping from columns to values; got {type(context).__name__!r}.")
        bandit = self.bandit
        row = bandit.schema.encode(context)
        bandit.warn_if_far(row)
        mask = bandit.mask(allowed, forbidden)
        with self.lock:
            state, numbers = bandit.programs.decide(bandit.packed_policy, self.state, self.randomness(), row, mask)
            return self.book(state, np.asarray(numbers), row, mask)

    def observe(self, context: Mapping[str, Any]) -> None:
        """Take in a context without deciding anything: a visit at which no choice was open."""
        with self.lock:
            self.forget(self.decide(context))

    def forget(self, decision: Decision | int) -> None:
        """Stop waiting for the reward of a decision: it was not carried out, or its outcome will never be known."""
        with self.lock:
            number, _ = self._waiting(decision)
            del self.pending[number]

    def learn(self, decision: Decision | int, reward: float, *, action: Hashable | None = None) -> None:
        """Take in the reward of a decision, given as itself or by its number.

        `action` is what was really done, where that was something other than the decision.
        """
        try:
            value = float(reward)
        except (TypeError, ValueError) as error:
            raise DecisionError(f"a reward must be a number; got {reward!r}.") from error
        if not abs(value) <= LARGEST_REWARD:
            raise DecisionError(f"a reward must be a number between ±{LARGEST_REWARD:g}; got {reward!r}.")
        bandit = self.bandit
        with self.lock:
            number, waiting = self._waiting(decision)
            done = waiting.action if action is None else bandit.schema.action_index(action)
            outcome = np.array([done, value, number], dtype=np.float32)
            self.state = bandit.programs.learn(bandit.packed_policy, self.state, waiting.context, outcome)
            del self.pending[number]

    def _waiting(self, decision: Decision | int) -> tuple[int, Pending]:
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
        waiting = self.pending.get(number)
        if waiting is None:
            known = "it already has its reward, or none was due" if 0 <= number < self.seen else "it was never made"
            raise DecisionError(
                f"decision {number} of {self.label!r} waits for no reward: {known}. "
                f"Waiting are {sorted(self.pending)[:10] or 'none'}."
            )
        action = self.bandit.schema.actions[waiting.action]
        if isinstance(decision, Decision) and decision.action != action:
            raise DecisionError(
                f"decision {number} of {self.label!r} was for {action!r} here; this one is for {decision.action!r}. "
                "It was made by another bandit, or before an older state was restored."
            )
        return number, waiting

    def to_json(self) -> str:
        """Save everything that is known of this instance; `LiveBandit.restore` reads it."""
        from ilb.live.saved import write_instance

        with self.lock:
            return write_instance(self)

    def randomness(self) -> UInt32[np.ndarray, "3"]:
        """Give what the next decision's draws are made from: seed, instance and number."""
        return np.array([*self._stream, self.seen], dtype=np.uint32)

    def book(
        self, state: Vector, numbers: Float[np.ndarray, " 1+4K"], row: np.ndarray, mask: Bool[np.ndarray, " K"]
    ) -> Decision:
        """Keep the state that a compiled decision left, and put its numbers into words."""
        action = int(numbers[0])
        self.state = state
        self.pending[self.seen] = Pending(row, action)
        self.seen += 1
        return explain(self.bandit.schema.actions, self.label, self.seen - 1, action, numbers[1:].reshape(4, -1), mask)
