"""What an encoder recipe is: a frozen set of numbers with one method, `train`, for any number of encoders at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ilb.logs import Logs
from ilb.networks import Affine
from ilb.offline.training import Curve
from ilb.types import Encoder, Report, silent

Tree = TypeVar("Tree")


class TrainedEncoder(NamedTuple):
    """An encoder and the story of its training."""

    encoder: Encoder
    curve: Curve
    best_step: int
    interrupted: bool


@runtime_checkable
class EncoderRecipe(Protocol):
    """Anything that learns encoders from logs."""

    def train(
        self, keys: PRNGKeyArray, logs: Sequence[Logs], latent_dim: int, report: Report = silent
    ) -> list[TrainedEncoder]:
        """Train one encoder for each key and table of logs, all in one compiled program."""
        ...


def describe_recipe(recipe: object) -> dict[str, Any]:
    """Write a recipe as plain values, for the provenance of a model."""
    plain: dict[str, Any] = _plain(recipe)
    return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "name": type(value).__name__,
            **{part.name: _plain(getattr(value, part.name)) for part in fields(value)},
        }
    return list(value) if isinstance(value, tuple) else value


FIT_STREAM = 1 << 21
"""Folded into the key of every fit: worlds and their logs are often drawn from the same seed, and a network must not
start from the numbers that its world was drawn with."""


def fit_keys(seeds: Sequence[int]) -> PRNGKeyArray:
    """Give one key for each seed, in a stream that belongs to fits alone."""
    return jnp.stack([jr.fold_in(jr.key(seed), FIT_STREAM) for seed in seeds])


def split_each(keys: PRNGKeyArray, number: int) -> list[PRNGKeyArray]:
    """Split the key of every run into `number` keys: as many arrays of one key a run."""
    return list(jax.vmap(lambda key: jr.split(key, number), out_axes=1)(keys))


def stack(trees: Sequence[Tree]) -> Tree:
    """Stack the trees of many runs along a new leading axis; in NumPy, for nothing need be compiled for that."""
    stacked: Tree = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *trees)
    return stacked


def unstack(tree: Tree, runs: int) -> list[Tree]:
    """Take a stack of runs apart again."""
    whole = jax.tree.map(np.asarray, tree)
    return [jax.tree.map(lambda leaf, run=run: jnp.asarray(leaf[run]), whole) for run in range(runs)]


def curve_of_run(curve: Curve, run: int) -> Curve:
    """Pick the curve of one run."""
    return Curve(curve.step, curve.training[run], curve.validation[run])


def whiten(whitening: Affine, logs: Logs) -> np.ndarray:
    """Whiten the contexts of logs, outside of any compiled program."""
    return np.asarray(logs.context @ np.asarray(whitening.matrix) + np.asarray(whitening.shift), dtype=np.float32)
