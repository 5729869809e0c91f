"""A pytree of small arrays as one vector, and back: compiled calls with few arguments start faster.

Dispatching a compiled program costs some microseconds for every array it is given. A live decision does little work,
so a policy of twenty arrays and a state of five would spend most of its time there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree


class Packing(NamedTuple):
    """How a tree is laid out in a vector; hashable, and equal for trees of equal structure."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[Any, ...]

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes)


def packing_of(tree: PyTree) -> Packing:
    """Find the layout of a tree of arrays."""
    leaves, structure = jax.tree.flatten(tree)
    shapes, types = tuple(map(jnp.shape, leaves)), tuple(map(jnp.result_type, leaves))
    return Packing(structure, shapes, types)


def pack(tree: PyTree) -> Float[Array, " size"]:
    """Lay the arrays of a tree end to end, as float32.

    >>> pack({"a": jnp.arange(2), "b": jnp.ones((1, 2))}).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves] or [jnp.zeros(0)])


def unpack(packing: Packing, vector: Float[Array, " size"]) -> PyTree:
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
