"""Decide for real: one object for each instance, labels in and out, rewards when they come.

The compiled programs are the policies of the simulation; nothing here is a second implementation of any of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from ilb.decision import Decision, explain
from ilb.errors import DecisionError
from ilb.labels import encode_label
from ilb.logs import Schema
from ilb.model import LatentModel
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_latent_policy
from ilb.online.rules import PROPENSITY_POINTS, probability_best
from ilb.packing import Packing, pack, packing_of, unpack
from ilb.types import Step

Vector = Float[Array, " size"]


class LiveBandit:
    """A policy bound to the labels of a schema: it starts and restores instances, and decides for many at once.

    Immutable, and safe to share between threads. Randomness is a function of `seed`, the label of the instance and the
    number of the decision alone, so any decision can be made again.

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
        self.seed = seed
        self.everything = np.ones(len(schema.actions), dtype=bool)
        self.nothing_known = pack(policy.init())
        self.packed_policy = pack(policy)
        self.programs = _programs(packing_of(policy), packing_of(policy.init()))

    @classmethod
    def on(cls, model: LatentModel, policy: str = "Calibrated", *, seed: int = 0) -> LiveBandit:
        """Bind a fitted model and the latent policy of this name (see `ilb.online.roster.LATENT_POLICIES`)."""
        if model.schema is None:
            raise DecisionError("the model has no schema, so contexts and actions have no names. Fit it on Logs.")
        return cls(build_latent_policy(model, policy), model.schema, seed=seed)

    def start(self, instance: Hashable) -> LiveInstance:
        """Begin an instance of which nothing is known yet."""
        return LiveInstance(self, instance, self.nothing_known, 0, {})

    def restore(self, text: str) -> LiveInstance:
        """Go on with an instance that `LiveInstance.to_json` saved, as if it had never stopped."""
        from ilb.live_file import read_instance

        return read_instance(self, text)

    def decide_many(
        self, instances: Sequence[LiveInstance], contexts: Any, *, allowed: Collection[Hashable] | None = None
    ) -> list[Decision]:
        """Decide for many instances in one compiled call; `contexts` is a frame or a list of mappings, in order."""
        rows = self.schema.encode(contexts)
        if len(rows) != len(instances):
            raise DecisionError(f"{len(instances)} instances need as many contexts; got {len(rows)}.")
        if len({id(instance) for instance in instances}) != len(instances):
            raise DecisionError("an instance is named twice; decide for its contexts one after the other.")
        if not len(rows):
            return []
        mask = self.mask(allowed, None)
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

    def mask(
        self, allowed: Collection[Hashable] | None, forbidden: Collection[Hashable] | None
    ) -> Bool[np.ndarray, " K"]:
        """Turn labels of allowed or forbidden actions into a mask."""
        if allowed is None and not forbidden:
            return self.everything
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
        self._stream = instance_stream(bandit.seed, label)

    def decide(
        self,
        context: Mapping[str, Any],
        *,
        allowed: Collection[Hashable] | None = None,
        forbidden: Collection[Hashable] | None = None,
    ) -> Decision:
        """Take in a context and choose one of the allowed actions (by default, of all)."""
        bandit = self.bandit
        row = bandit.schema.encode(context)
        mask = bandit.mask(allowed, forbidden)
        state, numbers = bandit.programs.decide(bandit.packed_policy, self.state, self.randomness(), row, mask)
        return self.book(state, np.asarray(numbers), row, mask)

    def observe(self, context: Mapping[str, Any]) -> None:
        """Take in a context without deciding anything: a visit at which no choice was open."""
        self.decide(context)
        del self.pending[self.seen - 1]

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of a decision, given as itself or by its number."""
        number = decision if isinstance(decision, int) else decision.number
        if not isinstance(decision, int) and decision.instance != self.label:
            raise DecisionError(f"this decision is for {decision.instance!r}; this instance is {self.label!r}.")
        waiting = self.pending.get(number)
        if waiting is None:
            known = "it already has its reward, or none was due" if 0 <= number < self.seen else "it was never made"
            raise DecisionError(
                f"decision {number} of {self.label!r} waits for no reward: {known}. "
                f"Waiting are {sorted(self.pending)[:10] or 'none'}."
            )
        if not np.isfinite(reward):
            raise DecisionError(f"the reward of decision {number} of {self.label!r} must be a number; got {reward!r}.")
        outcome = np.array([waiting.action, reward], dtype=np.float32)
        bandit = self.bandit
        self.state = bandit.programs.learn(bandit.packed_policy, self.state, waiting.context, outcome)
        del self.pending[number]

    def to_json(self) -> str:
        """Save everything that is known of this instance; `LiveBandit.restore` reads it."""
        from ilb.live_file import write_instance

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


def instance_stream(seed: int, label: Hashable) -> tuple[int, int]:
    """Give the two words that the randomness of an instance starts from; the same on every machine."""
    text = json.dumps([seed, encode_label(label)], sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def decision_key(randomness: UInt32[Array, "3"]) -> PRNGKeyArray:
    """Make the key of one decision from seed, instance and number."""
    return jr.fold_in(jr.fold_in(jr.key(randomness[0]), randomness[1]), randomness[2])


class Programs(NamedTuple):
    """The compiled calls of a policy: they depend on the shapes of its arrays, not on their values."""

    decide: Callable[..., tuple[Vector, Vector]]
    decide_many: Callable[..., tuple[Array, Array]]
    learn: Callable[..., Vector]


@lru_cache
def _programs(policy_packing: Packing, state_packing: Packing) -> Programs:
    def decide(
        policy_vector: Vector,
        state_vector: Vector,
        randomness: UInt32[Array, "3"],
        context: Float[Array, " d"],
        allowed: Bool[Array, " K"],
    ) -> tuple[Vector, Vector]:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        key_draw, key_propensity = jr.split(decision_key(randomness))
        state, choice = policy.decide(key_draw, unpack(state_packing, state_vector), context, allowed)
        rewards = policy.rewards(state, context)
        propensities = policy.propensities(key_propensity, state, context, allowed)
        # An action that was drawn can't have been impossible: its own draw counts as one more point.
        counted = PROPENSITY_POINTS * propensities + jax.nn.one_hot(choice.action, len(allowed))
        propensities = jnp.where(propensities[choice.action] > 0, propensities, counted / (PROPENSITY_POINTS + 1))
        numbers = [
            choice.action[None].astype(jnp.float32),
            rewards.mean(),
            rewards.std(),
            probability_best(rewards, allowed),
            propensities,
        ]
        return pack(state), jnp.concatenate(numbers)

    def learn(
        policy_vector: Vector, state_vector: Vector, context: Float[Array, " d"], outcome: Float[Array, "2"]
    ) -> Vector:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        step = Step(context, outcome[0].astype(jnp.int32), outcome[1])
        return pack(policy.learn(unpack(state_packing, state_vector), step))

    return Programs(jax.jit(decide), jax.jit(jax.vmap(decide, in_axes=(None, 0, 0, 0, 0))), jax.jit(learn))
