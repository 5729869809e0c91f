"""Histories taken in at once: what instances would know that had lived through them, for many in few compiled calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64, Int64, Shaped, UInt32

from ilb.errors import DecisionError
from ilb.live.instance import BATCH, LiveInstance
from ilb.live.programs import BoundPolicy, Packing, Vector, decision_key, in_float64, instance_stream, pack, unpack
from ilb.live.saved import Memory, Pending
from ilb.live.slips import LARGEST
from ilb.logs.histories import Histories
from ilb.networks import padded_size
from ilb.online.policy import AbstractPolicy, choose, probability_best
from ilb.types import Step


class Told(NamedTuple):
    """What happened to people, padded to the same number T of rounds: contexts, actions and rewards.

    `seen` and `rewarded` say which contexts are to be taken in, and which rewards.
    """

    context: Float32[np.ndarray, "people T d"]
    action: Int64[np.ndarray, "people T"]
    reward: Float64[np.ndarray, "people T"]
    seen: Bool[np.ndarray, "people T"]
    rewarded: Bool[np.ndarray, "people T"]


class Recalling(NamedTuple):
    """The compiled calls; they depend on the shapes of a policy's arrays, not on their values.

    `recall` turns what was told into states. `believe` gives the numbers of a decision (`ilb.live.programs`) for the
    action that is expected to be best, without taking the context in, and `expect` the expected rewards alone, which
    compiles in half the time.
    """

    recall: Callable[..., Float[Array, "people state"]]
    believe: Callable[..., Float[Array, "people numbers"]]
    expect: Callable[..., Float[Array, "people K"]]


@lru_cache
def compile_recalling(policy_packing: Packing, state_packing: Packing) -> Recalling:
    """Make the calls for policies and states with these layouts; they compile when first used."""

    def recall(
        policy_vector: Vector, start: Vector, every: Bool[Array, " K"], stream: UInt32[Array, "2"], told: Any
    ) -> Vector:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)

        def live(carry: tuple[Vector, Array], one: Any) -> tuple[tuple[Vector, Array], None]:
            before, number = carry
            key, _ = jax.random.split(decision_key(jnp.append(stream, number)))
            context = one.context.astype(float)
            state = policy.take_in(key, unpack(state_packing, before), context, every)
            after = jnp.where(one.seen, pack(state), before)
            step = Step(context, one.action.astype(jnp.int32), one.reward, number.astype(jnp.int32))
            learned = pack(policy.learn(unpack(state_packing, after), step))
            return (jnp.where(one.rewarded, learned, after), number + 1), None

        (state, _), _ = jax.lax.scan(live, (start, jnp.uint32(0)), told)
        return state

    def believe(
        policy_vector: Vector, state: Vector, context: Float[Array, " d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " numbers"]:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        rewards = policy.rewards(unpack(state_packing, state), context.astype(float))
        mean = rewards.mean()
        best = choose(mean, allowed).action
        numbers = [mean, rewards.std(), probability_best(rewards, allowed), jax.nn.one_hot(best, len(mean))]
        return pack([best, *numbers, rewards.outlook()])

    def expect(policy_vector: Vector, state: Vector, context: Float[Array, " d"]) -> Float[Array, " K"]:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        return policy.rewards(unpack(state_packing, state), context.astype(float)).mean()

    return Recalling(
        in_float64(jax.jit(jax.vmap(recall, in_axes=(None, None, None, 0, 0)))),
        in_float64(jax.jit(jax.vmap(believe, in_axes=(None, 0, 0, 0)))),
        in_float64(jax.jit(jax.vmap(expect, in_axes=(None, 0, 0)))),
    )


def batches(lengths: Int64[np.ndarray, " people"]) -> Iterator[Int64[np.ndarray, " some"]]:
    """Give people in groups of similar length, so that little is padded."""
    order = np.argsort(lengths, kind="stable")
    for first in range(0, len(order), BATCH):
        yield order[first : first + BATCH]


def padded(people: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " more"]:
    """Repeat the first until the number is a power of two: few sizes are ever compiled."""
    return np.concatenate([people, np.full(padded_size(len(people)) - len(people), people[0])])


def streams_of(bound: BoundPolicy, labels: Sequence[Any]) -> UInt32[np.ndarray, "people 2"]:
    """Give what the randomness of each person starts from."""
    return np.array([instance_stream(bound.seed, label) for label in labels], np.uint32).reshape(-1, 2)


def recall_states(
    bound: BoundPolicy,
    histories: Histories,
    *,
    seen: Bool[np.ndarray, " N"] | None = None,
    rewarded: Bool[np.ndarray, " N"] | None = None,
) -> Float64[np.ndarray, "people state"]:
    """Take in histories, each from its start; `seen` and `rewarded` leave out contexts and rewards of some rows."""
    _require_rewards(histories)
    starts, streams = histories.starts, streams_of(bound, histories.labels)
    lengths = np.diff(starts)
    states = np.tile(bound.start, (len(lengths), 1))
    recall = compile_recalling(*bound.packings).recall
    rewards = np.where(histories.rewarded, histories.reward.astype(np.float64), 0.0)
    seen = np.ones(len(rewards), bool) if seen is None else seen
    rewarded = histories.rewarded if rewarded is None else rewarded & histories.rewarded
    for people in batches(lengths):
        longest = int(lengths[people].max())
        if not longest:
            continue
        some = padded(people)
        place = np.arange(padded_size(longest))[None]
        there = place < lengths[some, None]
        rows = np.where(there, starts[some, None] + place, 0)
        told = Told(
            histories.context[rows],
            np.maximum(histories.action[rows], 0),
            rewards[rows],
            there & seen[rows],
            there & rewarded[rows],
        )
        every = np.ones(len(bound.schema.actions), bool)
        found = recall(bound.vector, bound.start, every, streams[some], told)
        states[people] = np.asarray(found)[: len(people)]
    return states


def believe_states(
    bound: BoundPolicy,
    states: Float64[np.ndarray, "people state"],
    contexts: Float32[np.ndarray, "people d"],
    allowed: Bool[np.ndarray, "people K"],
) -> Float[np.ndarray, "people numbers"]:
    """Say what is believed in these states and contexts: the numbers of a decision, one row for each person."""
    return _in_batches(compile_recalling(*bound.packings).believe, bound, states, contexts, allowed)


def expect_rewards(
    bound: BoundPolicy, states: Float64[np.ndarray, "people state"], contexts: Float32[np.ndarray, "people d"]
) -> Float[np.ndarray, "people K"]:
    """Give the expected reward of each action in these states and contexts."""
    return _in_batches(compile_recalling(*bound.packings).expect, bound, states, contexts)


def decide_states(
    bound: BoundPolicy,
    states: Float64[np.ndarray, "people state"],
    randomness: UInt32[np.ndarray, "people 3"],
    contexts: Float32[np.ndarray, "people d"],
    allowed: Bool[np.ndarray, "people K"],
) -> Float[np.ndarray, "people numbers"]:
    """Decide in these states: the numbers of a decision, one row for each person."""

    def decide(*inputs: Any) -> Array:
        return bound.programs.decide_many(*inputs)[1]

    return _in_batches(decide, bound, states, randomness, contexts, allowed)


def _in_batches(
    program: Callable[..., Array], bound: BoundPolicy, *inputs: Shaped[np.ndarray, "people ..."]
) -> Float[np.ndarray, "people numbers"]:
    found = []
    for people in batches(np.zeros(len(inputs[0]), np.int64)):
        some = padded(people)
        numbers = program(bound.vector, *(part[some] for part in inputs))
        found.append(np.asarray(numbers, np.float64)[: len(people)])
    return np.concatenate(found)


def recall_instances(bound: BoundPolicy, histories: Histories) -> list[LiveInstance]:
    """Make a live instance of each history; actions whose rewards have not come are its pending decisions."""
    states, starts = recall_states(bound, histories), histories.starts.tolist()
    waiting = (histories.action >= 0) & ~histories.rewarded
    people = []
    for label, state, first, last in zip(histories.labels, states, starts, starts[1:], strict=False):
        pending = {
            int(number): Pending(histories.context[first + number], int(histories.action[first + number]))
            for number in np.flatnonzero(waiting[first:last])
        }
        if not np.all(np.isfinite(state)):
            raise DecisionError(f"what is believed of {label!r} after its history would not be finite. Check the rows.")
        people.append(LiveInstance(bound, Memory(label, state, last - first, pending)))
    return people


def _require_rewards(histories: Histories) -> None:
    large = np.abs(np.where(histories.rewarded, histories.reward, 0.0)) > LARGEST
    if large.any():
        row = int(np.flatnonzero(large)[0])
        raise DecisionError(
            f"a reward must be a number between ±{LARGEST:g}; {histories.labels[histories.person[row]]!r} has "
            f"{histories.reward[row]:g}."
        )
