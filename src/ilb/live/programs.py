"""A policy bound to labels: the compiled calls behind live decisions, and what they are given.

Policy and state travel as one vector each, because dispatching costs microseconds for every array. Live instances count
in float64, whatever the simulation does: sums over years of rewards around a million have digits left for what differs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache, wraps
from typing import Any, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt32

from ilb.errors import DecisionError
from ilb.live.slips import UsualRewards, way_of
from ilb.logs import Schema
from ilb.logs.labels import encode_label
from ilb.online.policy import PROPENSITY_POINTS, AbstractPolicy, probability_best
from ilb.types import Step, as_real

REFUSED = -1
"""Stands for the action of a decision that is none: a number behind it, or of the new state, is not finite."""


class Packing(NamedTuple):
    """How a tree is laid out in a vector; hashable, and equal for trees of equal structure."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[Any, ...]


def packing_of(tree: PyTree) -> Packing:
    """Find the layout of a tree of arrays."""
    leaves, structure = jax.tree.flatten(tree)
    shapes, types = tuple(map(np.shape, leaves)), tuple(map(jnp.result_type, leaves))
    return Packing(structure, shapes, types)


def pack(tree: PyTree) -> Float[Array, " size"]:
    """Lay the arrays of a tree end to end, as numbers of the usual type.

    >>> pack({"a": jnp.arange(2), "b": jnp.ones((1, 2))}).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([jnp.ravel(leaf).astype(float) for leaf in leaves] or [jnp.zeros(0)])


def _laid_out(tree: PyTree) -> Float[np.ndarray, " size"]:
    """Do what `pack` does with arrays that are there."""
    leaves = [np.ravel(np.asarray(leaf)).astype(np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([np.zeros(0), *leaves])


def unpack(packing: Packing, vector: Float[Array | np.ndarray, " size"]) -> PyTree:
    """Take a vector apart again.

    >>> tree = {"a": jnp.arange(2), "b": jnp.ones((1, 2))}
    >>> unpack(packing_of(tree), pack(tree))["a"].tolist()
    [0, 1]
    """
    leaves, first = [], 0
    for shape, kind in zip(packing.shapes, packing.types, strict=True):
        last = first + math.prod(shape)
        leaves.append(vector[first:last].reshape(shape).astype(kind, copy=False))
        first = last
    return jax.tree.unflatten(packing.structure, leaves)


Vector = Float[Array | np.ndarray, " _"]

Call = TypeVar("Call", bound=Callable[..., Any])


def in_float64(call: Call) -> Call:
    """Make the usual type float64 while the call runs, in this thread alone."""

    @wraps(call)
    def widened(*arguments: Any) -> Any:
        with jax.enable_x64():
            return call(*arguments)

    return cast("Call", widened)


def widen(tree: PyTree) -> PyTree:
    """Make all real numbers of a tree those of the usual type.

    >>> in_float64(widen)({"a": np.float32(0.5), "b": 3})["a"].dtype
    dtype('float64')
    """
    return jax.tree.map(lambda leaf: as_real(np.asarray(leaf)) if eqx.is_inexact_array_like(leaf) else leaf, tree)


def instance_stream(seed: int, label: Hashable) -> tuple[int, int]:
    """Give the two words that the randomness of an instance starts from; the same on every machine."""
    text = json.dumps([seed, encode_label(label)], sort_keys=True)
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def decision_key(randomness: UInt32[Array, "3"]) -> PRNGKeyArray:
    """Make the key of one decision from seed, instance and number."""
    return jr.fold_in(jr.fold_in(jr.key(randomness[0]), randomness[1]), randomness[2])


class Programs(NamedTuple):
    """The compiled calls of a policy: they depend on the shapes of its arrays, not on their values.

    `decide` gives the new state, and the action (or `REFUSED`) before all numbers of the decision; `learn` gives the
    new state.
    """

    decide: Callable[..., tuple[Vector, Vector]]
    decide_many: Callable[..., tuple[Array, Array]]
    learn: Callable[..., Vector]


@lru_cache
def compile_programs(policy_packing: Packing, state_packing: Packing) -> Programs:
    """Make the calls of policies and states with these layouts; they compile when first used."""

    def decide(
        policy_vector: Vector,
        state_vector: Vector,
        randomness: UInt32[Array, "3"],
        context: Float[Array, " d"],
        allowed: Bool[Array, " K"],
    ) -> tuple[Vector, Vector]:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        context = context.astype(float)
        key_draw, key_propensity = jr.split(decision_key(randomness))
        state, choice = policy.decide(key_draw, unpack(state_packing, state_vector), context, allowed)
        rewards = policy.rewards(state, context)
        propensities = policy.propensities(key_propensity, state, context, allowed)
        # An action that was drawn can't have been impossible: its own draw counts as one more point.
        counted = PROPENSITY_POINTS * propensities + jax.nn.one_hot(choice.action, len(allowed))
        propensities = jnp.where(propensities[choice.action] > 0, propensities, counted / (PROPENSITY_POINTS + 1))
        after = pack(state)
        numbers = pack(
            [rewards.mean(), rewards.std(), probability_best(rewards, allowed), propensities, rewards.outlook()]
        )
        is_finite = jnp.all(jnp.isfinite(after)) & jnp.all(jnp.isfinite(numbers))
        return after, pack([jnp.where(is_finite, choice.action, REFUSED), numbers])

    def learn(
        policy_vector: Vector, state_vector: Vector, context: Float[Array, " d"], outcome: Float[Array, "3"]
    ) -> Vector:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        action, reward, number = outcome
        step = Step(context.astype(float), action.astype(jnp.int32), reward, number.astype(jnp.int32))
        return pack(policy.learn(unpack(state_packing, state_vector), step))

    many = jax.vmap(decide, in_axes=(None, 0, 0, 0, 0))
    return Programs(*(in_float64(jax.jit(call)) for call in (decide, many, learn)))


@lru_cache
def layout_of_outlook(policy_packing: Packing, state_packing: Packing, width: int) -> Packing:
    """Find the layout of what `decide` says last; to trace a belief takes longer than to decide, so it is done once."""

    def look(policy_vector: Vector, state_vector: Vector, context: Float[Array, " d"]) -> PyTree:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        return policy.rewards(unpack(state_packing, state_vector), context).outlook()

    sizes = (sum(int(np.prod(shape)) for shape in packing.shapes) for packing in (policy_packing, state_packing))
    return packing_of(eqx.filter_eval_shape(look, *(as_real(np.zeros(size)) for size in (*sizes, width))))


def structure_of(node: Any) -> Any:
    """Say what a tree is made of: the names of its classes, their static words and numbers, the shapes of its arrays.

    >>> from ilb.online.policy import Greedy, UpperConfidence
    >>> structure_of((Greedy(), UpperConfidence(2.0)))
    ['tuple', {}, ['Greedy', {}], ['UpperConfidence', {}, 'float32[]']]
    """
    parts = jax.tree_util.default_registry.flatten_one_level(node)
    if parts is None:
        return f"{jnp.result_type(node)}{list(np.shape(node))}"
    static = [field.name for field in fields(node) if field.metadata.get("static")] if is_dataclass(node) else []
    plain = {name: getattr(node, name) for name in static if isinstance(getattr(node, name), str | int | float)}
    return [type(node).__name__, plain, *map(structure_of, parts[0])]


class BoundPolicy:
    """A policy and the labels of a schema, with all that one compiled call needs besides the state of an instance.

    `fingerprint` tells apart what must not be mixed, as sums of encodings mean nothing to another fit: it is made of
    columns, labels, the layout of a state, what the policy is made of, and all its numbers.
    """

    @in_float64
    def __init__(
        self, policy: AbstractPolicy, schema: Schema, seed: int, usual: UsualRewards | None, far: str = "warn"
    ) -> None:
        policy = widen(policy)
        start = policy.init()
        self.schema = schema
        self.seed = seed
        self.usual = usual
        self.tell_far = way_of(far)
        # By NumPy, which compiles nothing: a program that decides once shall start quickly.
        self.start, self.vector = _laid_out(start), as_real(_laid_out(policy))
        self.says = policy.says
        self.packings = packing_of(policy), packing_of(start)
        self.programs = compile_programs(*self.packings)
        layout = json.dumps([schema.to_json(), structure_of(start), structure_of(policy)], sort_keys=True)
        self.fingerprint = hashlib.sha256(layout.encode() + np.asarray(self.vector).tobytes()).hexdigest()[:16]
        self._everything = np.ones(len(schema.actions), dtype=bool)

    @cached_property
    def outlook(self) -> Packing:
        """How the belief behind a decision is laid out; it is traced for that, which takes as long as all else here."""
        with jax.enable_x64():
            return layout_of_outlook(*self.packings, self.schema.width)

    def _listed(self, labels: Any) -> list[Hashable]:
        """Give labels as a list; a lone label is meant as one, not as its letters."""
        alone = isinstance(labels, str | bytes) or not isinstance(labels, Iterable)
        if alone or (isinstance(labels, Hashable) and labels in self.schema.action_positions):
            return [labels]
        return list(labels)

    def mask(
        self, allowed: Iterable[Hashable] | Hashable | None, forbidden: Iterable[Hashable] | Hashable | None
    ) -> Bool[np.ndarray, " K"]:
        """Turn labels of allowed or forbidden actions into a mask."""
        if allowed is None and forbidden is None:
            return self._everything
        allowed, forbidden = (None if labels is None else self._listed(labels) for labels in (allowed, forbidden))
        mask = np.zeros_like(self._everything) if allowed is not None else self._everything.copy()
        mask[[self.schema.action_index(label) for label in allowed or ()]] = True
        mask[[self.schema.action_index(label) for label in forbidden or ()]] = False
        if not mask.any():
            raise DecisionError(f"no action is left: {len(mask)} are known, and all of them are ruled out.")
        return mask
