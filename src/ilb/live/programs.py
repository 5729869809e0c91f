"""A policy bound to labels: the compiled calls behind live decisions, and what they are given.

Policy and state travel as one vector each, because dispatching costs microseconds for every array.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, UInt32

from ilb.errors import DecisionError, LogsWarning
from ilb.logs import Schema
from ilb.logs.labels import encode_label
from ilb.logs.messages import warn
from ilb.online.policy import PROPENSITY_POINTS, AbstractPolicy, probability_best
from ilb.types import Step

FAR = 10.0
"""Standard deviations from the mean of the logs beyond which a value is taken for a slip."""


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
    """Lay the arrays of a tree end to end, as float32.

    >>> pack({"a": jnp.arange(2), "b": jnp.ones((1, 2))}).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves] or [jnp.zeros(0)])


def unpack(packing: Packing, vector: Float[Array | np.ndarray, " size"]) -> PyTree:
    """Take a vector apart again.

    >>> tree = {"a": jnp.arange(2), "b": jnp.ones((1, 2))}
    >>> unpack(packing_of(tree), pack(tree))["a"].tolist()
    [0, 1]
    """
    leaves, first = [], 0
    for shape, kind in zip(packing.shapes, packing.types, strict=True):
        last = first + int(np.prod(shape))
        leaves.append(vector[first:last].reshape(shape).astype(kind))
        first = last
    return jax.tree.unflatten(packing.structure, leaves)


Vector = Float[Array, " _"]


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
            pack(rewards.outlook()),
        ]
        return pack(state), jnp.concatenate(numbers)

    def learn(
        policy_vector: Vector, state_vector: Vector, context: Float[Array, " d"], outcome: Float[Array, "3"]
    ) -> Vector:
        policy: AbstractPolicy = unpack(policy_packing, policy_vector)
        step = Step(context, outcome[0].astype(jnp.int32), outcome[1], outcome[2].astype(jnp.int32))
        return pack(policy.learn(unpack(state_packing, state_vector), step))

    return Programs(jax.jit(decide), jax.jit(jax.vmap(decide, in_axes=(None, 0, 0, 0, 0))), jax.jit(learn))


class BoundPolicy:
    """A policy and the labels of a schema, with all that one compiled call needs besides the state of an instance.

    `fingerprint` tells apart what must not be mixed, as sums of encodings mean nothing to another fit: it is made of
    columns, labels, the layout of a state, and all numbers of the policy.
    """

    def __init__(self, policy: AbstractPolicy, schema: Schema, seed: int) -> None:
        start = policy.init()
        self.schema = schema
        self.seed = seed
        self.start = pack(start)
        self.vector = pack(policy)
        self.says = policy.says
        nowhere = jnp.zeros(schema.width)
        self.outlook = packing_of(eqx.filter_eval_shape(lambda: policy.rewards(start, nowhere).outlook()))
        self.programs = compile_programs(packing_of(policy), packing_of(start))
        layout = json.dumps([schema.to_json(), packing_of(start).shapes], sort_keys=True)
        self.fingerprint = hashlib.sha256(layout.encode() + np.asarray(self.vector).tobytes()).hexdigest()[:16]
        self._everything = np.ones(len(schema.actions), dtype=bool)
        self._scaled = any(getattr(column, "mean", 0) != 0 for column in schema.context)

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

    def warn_if_far(self, row: Float[np.ndarray, " d"]) -> None:
        """Warn of values that are nowhere near those the model was fitted on: mostly a slip of the keyboard."""
        if self._scaled and np.abs(row).max() > FAR:
            worst = int(np.abs(row).argmax())
            warn(
                f"column {self.schema.names[worst]!r} is {abs(row[worst]):.0f} standard deviations from its mean in "
                "the logs, where the encoder knows nothing. Check it; if it is wrong, restore an earlier saved state.",
                LogsWarning,
            )
