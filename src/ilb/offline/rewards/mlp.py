"""MLPRewardRecipe: one network for the rewards of all actions (app:nonlinear_reward)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.errors import IlbWarning
from ilb.networks import Affine, LeakyMLP, padded_size, random_leaky_mlp, scale_columns
from ilb.offline.rewards.recipe import (
    RewardFit,
    RewardRecipe,
    RewardTask,
    measure_leftover_variance,
    measure_reward_variance,
    warn_of_unseen_actions,
)
from ilb.offline.scaling import Units, measure_columns
from ilb.offline.training import (
    Adam,
    Keys,
    Minimised,
    Schedule,
    draw_held_out,
    minimise_many,
    pad_rows,
    split_each,
    stack,
)
from ilb.types import Report, silent

Layers = tuple[Affine, ...]


class CellGrid(NamedTuple):
    """Cells as a table of instances and actions; `rows` is zero where there was no reward, and in padding."""

    encoding: Float[Array | np.ndarray, "I n"]
    mean: Float[Array | np.ndarray, "I K"]
    rows: Float[Array | np.ndarray, "I K"]
    instances: Int[Array | np.ndarray, ""]


@dataclass(frozen=True)
class RewardLoss:
    """Mean squared error over rewards, up to their scatter within cells; few instances are taken all at once."""

    slope: float
    batch: int

    def __call__(self, layers: Layers, grid: CellGrid, key: PRNGKeyArray) -> Float[Array, ""]:
        encoding, mean, rows, instances = grid
        if encoding.shape[0] > self.batch:
            drawn = jr.randint(key, (self.batch,), 0, instances)
            encoding, mean, rows = encoding[drawn], mean[drawn], rows[drawn]
        error = jax.vmap(LeakyMLP(layers, jnp.asarray(self.slope)))(jnp.asarray(encoding)) - mean
        return jnp.sum(rows * error**2) / jnp.maximum(jnp.sum(rows), 1)


@dataclass(frozen=True)
class MLPRewardRecipe(RewardRecipe):
    """A leaky-ReLU network of four layers from mean encodings to the K rewards, trained to convergence by Adam.

    The optimiser and its numbers are printed; the widths are those of the released code, and the slope is the usual
    one. Convergence means no better error on the held-out `validation_share` of the instances for `training.patience`
    scores; the best parameters are kept. Actions share the hidden layers, so a rare one borrows from the others, and
    one without any reward is predicted to give the mean reward of all. The printed decay is light for a hundred
    instances: `MLPRewardRecipe.decayed()`.
    """

    hidden: tuple[int, ...] = (10, 20, 40)
    slope: float = 0.01
    batch: int = 512
    validation_share: float = 0.1
    training: Schedule = field(
        default_factory=lambda: Schedule(steps=20_000, optimiser=Adam(1e-3, 1e-4), score_every=100, patience=10)
    )

    @classmethod
    def decayed(cls) -> MLPRewardRecipe:
        """Give the recipe for few instances: a hundred times the printed decay, everything else the same."""
        return cls(training=Schedule(20_000, Adam(weight_decay=1e-2), score_every=100, patience=10))

    def shortened(self, effort: float) -> MLPRewardRecipe:
        """Train with `effort` times the steps, for a look in passing."""
        return replace(self, training=self.training.shortened(effort))

    def train(self, keys: Keys, tasks: Sequence[RewardTask], report: Report = silent) -> list[RewardFit]:
        keys_split, keys_network, keys_step = split_each(keys, 3)
        for task in tasks:
            warn_of_unseen_actions(task)
        units = [_units(task) for task in tasks]
        held_out = [self._hold_out(key, len(task.lengths)) for key, task in zip(keys_split, tasks, strict=True)]
        loss = RewardLoss(self.slope, self.batch)
        training = _stack_grids(tasks, units, [~held for held in held_out])
        validation = _stack_grids(tasks, units, held_out) if all(np.any(held) for held in held_out) else None
        dim, actions = tasks[0].mean_encodings.shape[1], len(tasks[0].labels)
        layers = _start(self, keys_network, dim, actions)
        result = minimise_many(keys_step, loss, layers, training, self.training, validation=validation, report=report)
        slope = jnp.asarray(self.slope, jnp.float32)
        return [
            _complete(LeakyMLP(run.params, slope).between(unit.inputs, unit.rewards(actions)), task, held, run)
            for run, unit, task, held in zip(result.runs(), units, tasks, held_out, strict=True)
        ]

    def _hold_out(self, key: PRNGKeyArray, instances: int) -> Bool[np.ndarray, " I"]:
        number = round(self.validation_share * instances)
        return draw_held_out(key, instances, number if number >= 2 else 0)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _start(recipe: MLPRewardRecipe, keys: Keys, dim: int, actions: int) -> Layers:
    return jax.vmap(lambda key: random_leaky_mlp(key, dim, recipe.hidden, actions, recipe.slope).layers)(keys)


def _units(task: RewardTask) -> Units:
    """Standardise encodings and rewards, so that the printed learning rate and decay mean the same in any units."""
    cells = task.cells
    mean = np.average(cells.mean, weights=cells.rows)
    std = max(float(np.sqrt(np.average((cells.mean - mean) ** 2, weights=cells.rows))), 1e-6 * abs(mean), 1e-12)
    inputs = scale_columns(*measure_columns(task.mean_encodings, 1e-9))
    return Units(inputs, *(float(np.float32(number)) for number in (mean, std)))  # as the network will hold them


def _stack_grids(tasks: Sequence[RewardTask], units: Sequence[Units], kept: Sequence[np.ndarray]) -> CellGrid:
    """Lay out the kept instances of many runs with a common padded size, so that similar sizes share a compilation."""
    size = padded_size(max(int(part.sum()) for part in kept))
    return stack([_grid(*parts, size) for parts in zip(tasks, units, kept, strict=True)])


def _grid(task: RewardTask, units: Units, kept: Bool[np.ndarray, " I"], size: int) -> CellGrid:
    instances, actions, cells = len(kept), len(task.labels), task.cells
    mean, rows = np.zeros((2, instances, actions))
    mean[cells.instance, cells.action] = cells.mean
    rows[cells.instance, cells.action] = cells.rows
    matrix, shift = (np.asarray(part, np.float64) for part in (units.inputs.matrix, units.inputs.shift))
    tables = (task.mean_encodings @ matrix + shift, (mean - units.centre) / units.spread, rows)
    inputs, targets, weights = (pad_rows(table[kept], size).astype(np.float32) for table in tables)
    return CellGrid(inputs, targets, weights, np.asarray(kept.sum(), np.int32))


def _complete(network: LeakyMLP, task: RewardTask, held: np.ndarray, run: Minimised) -> RewardFit:
    """Measure the variances around the network, on held-out instances where there are any: it never saw those."""
    cells, actions = task.cells, len(task.labels)
    values, slopes = _values_and_slopes(network, jnp.asarray(task.mean_encodings, jnp.float32))
    residual = cells.mean - np.asarray(values, np.float64)[cells.instance, cells.action]
    noise = np.einsum("iaj,jk,iak->ia", np.asarray(slopes, np.float64), task.encoding_covariance, slopes)
    blur = noise[cells.instance, cells.action] / task.lengths[cells.instance]
    telling = held[cells.instance] if np.any(held[cells.instance]) else np.ones(len(residual), dtype=bool)
    groups = [np.flatnonzero(cells.action == a) for a in range(actions)]
    variance = measure_reward_variance(cells, groups, float(np.mean(residual[telling] ** 2)))
    leftover = measure_leftover_variance(cells.where(telling), residual[telling], variance, blur[telling], parameters=0)
    note = f"the reward network is that of step {run.best_step}"
    if run.interrupted:
        note = f"the training of rewards was interrupted; the network is that of step {run.best_step}"
        warnings.warn(note, IlbWarning, stacklevel=4)
    return RewardFit(network, variance, leftover, (note,), run.interrupted)


@jax.jit
def _values_and_slopes(network: LeakyMLP, encodings: Float[Array, "I n"]) -> tuple[Array, Array]:
    """Give the rewards of every encoding, and their derivatives by it."""
    return jax.vmap(network)(encodings), jax.vmap(jax.jacfwd(network))(encodings)
