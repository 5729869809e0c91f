"""`minimise`: the only training loop of the project.

The loss draws its own minibatch from the data with the key it is given, so the loop knows nothing of batches, classes
or sequences. A chunk of steps is one compiled loop; between chunks it scores, reports, and can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.streams import Stream
from ilb.types import Report, silent

Tree = TypeVar("Tree")

Keys: TypeAlias = Key[Array, " runs"]
"""One key for each of the runs that train together."""

Loss = Callable[[Any, Any, PRNGKeyArray], Float[Array, ""]]
"""`loss(params, data, key)`: a module-level function or a frozen dataclass, so that equal losses compile once."""

SCORING_DRAWS = 16
"""Minibatches that a validation score averages: the same ones each time, so that scores are comparable."""


@runtime_checkable
class Optimiser(Protocol):
    """Numbers that build an Optax transformation once the number of steps is known."""

    def build(self, steps: int) -> optax.GradientTransformation: ...


@dataclass(frozen=True)
class CosineAdam:
    """Adam with a short linear warm-up and a cosine decay to zero."""

    learning_rate: float = 0.01
    warm_up: float = 0.03
    weight_decay: float = 0.0

    def build(self, steps: int) -> optax.GradientTransformation:
        rise = max(1, round(self.warm_up * steps))
        schedule = optax.warmup_cosine_decay_schedule(0.0, self.learning_rate, rise, max(steps, rise + 1))
        return optax.adamw(schedule, weight_decay=self.weight_decay)


@dataclass(frozen=True)
class Adam:
    """Adam at a constant rate; `weight_decay` is an l2 penalty, added to the gradient before its scale is taken."""

    learning_rate: float = 1e-3
    weight_decay: float = 0.0

    def build(self, steps: int) -> optax.GradientTransformation:
        del steps
        return optax.chain(optax.add_decayed_weights(self.weight_decay), optax.adam(self.learning_rate))


@dataclass(frozen=True)
class MomentumSGD:
    """SGD with momentum and a staircase of exponential decay (app:training, "Training details for LVM")."""

    learning_rate: float = 0.01
    momentum: float = 0.9
    decay: float = 0.1
    decay_every: int = 50_000

    def build(self, steps: int) -> optax.GradientTransformation:
        del steps
        schedule = optax.exponential_decay(self.learning_rate, self.decay_every, self.decay, staircase=True)
        return optax.sgd(schedule, momentum=self.momentum)


@dataclass(frozen=True)
class Schedule:
    """How to minimise: steps, optimiser, weight averaging, and when to score and stop.

    `averaging` is the decay of an exponential moving average of the parameters, which is then what is scored and
    returned (0 turns it off); it warms up as (1 + step) / (10 + step). `patience` is the number of scores without
    improvement on the validation data after which a run stops; None runs all steps, and keeps the best all the same.
    """

    steps: int = 4000
    optimiser: Optimiser = field(default_factory=CosineAdam)
    averaging: float = 0.0
    score_every: int = 200
    patience: int | None = None

    def shortened(self, effort: float) -> Schedule:
        """Take `effort` times the steps, and score as often."""
        steps, score_every = (max(1, round(number * effort)) for number in (self.steps, self.score_every))
        return replace(self, steps=steps, score_every=score_every)


class LossCurve(NamedTuple):
    """Training and validation loss at each score; a leading axis for runs when there are many."""

    step: np.ndarray
    training: np.ndarray
    validation: np.ndarray

    def plain(self) -> dict[str, Any]:
        """Write the curve of one run as lists; scores that were not taken are left out."""
        plain = {"step": self.step.tolist(), "training": [round(float(loss), 6) for loss in self.training]}
        if len(self.validation) and np.all(np.isfinite(self.validation)):
            plain["validation"] = [round(float(loss), 6) for loss in self.validation]
        return plain


class Minimised(NamedTuple):
    """What `minimise` returns: the best parameters, and how they came about."""

    params: Any
    curve: LossCurve
    best_step: np.ndarray | int
    interrupted: bool

    def runs(self) -> list[Minimised]:
        """Take many runs apart."""
        step, training, validation = self.curve
        params = jax.tree.map(np.asarray, self.params)
        return [
            Minimised(
                jax.tree.map(lambda leaf, run=run: jax.device_put(leaf[run]), params),
                LossCurve(step, training[run], validation[run]),
                int(best_step),
                self.interrupted,
            )
            for run, best_step in enumerate(np.atleast_1d(self.best_step))
        ]


class _State(NamedTuple):
    params: PyTree
    optimiser_state: PyTree
    average: PyTree
    best: PyTree
    best_score: Float[Array, ""]
    best_step: Array
    stale: Array


def minimise(
    key: PRNGKeyArray,
    loss: Loss,
    params: PyTree,
    data: PyTree,
    schedule: Schedule,
    *,
    validation: PyTree = None,
    report: Report = silent,
) -> Minimised:
    """Minimise `loss(params, data, key)` over `params`, one run.

    With `validation` data the parameters with the lowest validation loss are returned, otherwise the last ones.
    Ctrl-C ends the run and returns what there is so far, with `interrupted` set; before the first score there is
    nothing, and it is raised.

    >>> import jax.numpy as jnp, jax.random as jr
    >>> def distance(params, data, key): return jnp.sum((params - data) ** 2)
    >>> schedule = Schedule(steps=400, optimiser=CosineAdam(learning_rate=0.1))
    >>> result = minimise(jr.key(0), distance, jnp.zeros(2), jnp.array([1.0, 2.0]), schedule)
    >>> [round(float(x), 2) for x in result.params]
    [1.0, 2.0]
    """
    alone = partial(jax.tree.map, lambda leaf: jnp.asarray(leaf)[None])
    held_out = None if validation is None else alone(validation)
    result = minimise_many(key[None], loss, alone(params), alone(data), schedule, validation=held_out, report=report)
    return result.runs()[0]


def minimise_many(
    keys: Keys,
    loss: Loss,
    params: PyTree,
    data: PyTree,
    schedule: Schedule,
    *,
    validation: PyTree = None,
    report: Report = silent,
    stops: Int[np.ndarray, " runs"] | None = None,
) -> Minimised:
    """Run `minimise` for many keys at once; all leaves of `params`, `data`, `validation` have a run axis first.

    With `stops`, steps at which scores are taken, each run gives the parameters it has after so many steps of the
    schedule, whatever the validation data say (a run of 0 steps is of no interest).
    """
    keys_step, keys_score = jax.vmap(jr.split, out_axes=1)(keys)
    state = _start(params, schedule)
    steps: list[int] = []
    training: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    interrupted = False
    stopped = None
    try:
        for first in range(0, schedule.steps, schedule.score_every):
            last = min(first + schedule.score_every, schedule.steps)
            state, losses, score = _advance(loss, schedule, state, data, validation, keys_step, keys_score, first, last)
            training.append(np.asarray(losses))
            scores.append(np.asarray(score))
            steps.append(last)
            if not np.all(np.isfinite(losses)):
                raise FitError(
                    f"the training loss is not finite after {last} steps. "
                    "Lower the learning rate, or look for extreme values in the contexts."
                )
            report(last, schedule.steps, float(training[-1].mean()))
            if stops is not None:
                stopped = _where_run(stops == last, state.average, state.best if stopped is None else stopped)
                if last >= stops.max():
                    break
            if schedule.patience is not None and bool(jnp.all(state.stale >= schedule.patience)):
                break
    except KeyboardInterrupt:
        if not steps:  # untrained parameters are nothing to return
            raise
        interrupted = True
    runs, scored = len(keys), len(steps)
    curve = LossCurve(
        np.array(steps, dtype=int),
        np.array(training[:scored]).reshape(scored, runs).T,
        np.array(scores[:scored]).reshape(scored, runs).T,
    )
    if stopped is not None and stops is not None:
        return Minimised(stopped, curve, stops, interrupted)
    return Minimised(state.best, curve, np.asarray(state.best_step), interrupted)


def _where_run(chosen: Bool[np.ndarray, " runs"], first: Tree, second: Tree) -> Tree:
    """Take the chosen runs of one tree and the others of another."""
    taken: Tree = jax.tree.map(
        lambda a, b: np.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), np.asarray(a), np.asarray(b)), first, second
    )
    return taken


@partial(jax.jit, static_argnums=1)
def _start(params: PyTree, schedule: Schedule) -> _State:
    def start_one(params: PyTree) -> _State:
        optimiser_state = schedule.optimiser.build(schedule.steps).init(params)
        # Typed like what a step leaves behind: a weakly typed scalar would have the second chunk compiled anew.
        worst, zero = jnp.full((), jnp.inf, jnp.float32), jnp.zeros((), jnp.int32)
        return _State(params, optimiser_state, params, params, worst, zero, zero)

    return jax.vmap(start_one)(params)


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    loss: Loss,
    schedule: Schedule,
    state: _State,
    data: PyTree,
    validation: PyTree,
    keys_step: Keys,
    keys_score: Keys,
    first: int | Int[Array, ""],
    last: int | Int[Array, ""],
) -> tuple[_State, Float[Array, " runs"], Float[Array, " runs"]]:
    """Take the steps first..last of every run in one compiled loop, then score."""
    optimiser = schedule.optimiser.build(schedule.steps)

    def advance_one(
        state: _State, data: PyTree, validation: PyTree, key_step: PRNGKeyArray, key_score: PRNGKeyArray
    ) -> tuple[_State, Array, Array]:
        def step(number: Array, carry: tuple[PyTree, PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, PyTree, Array]:
            params, optimiser_state, average, total = carry
            value, gradient = jax.value_and_grad(loss)(params, data, jr.fold_in(key_step, number))
            updates, optimiser_state = optimiser.update(gradient, optimiser_state, params)
            params = optax.apply_updates(params, updates)
            if schedule.averaging:
                decay = jnp.minimum(schedule.averaging, (1 + number) / (10 + number))
                average = optax.incremental_update(params, average, 1 - decay)
            else:
                average = params
            return params, optimiser_state, average, total + value

        start = (state.params, state.optimiser_state, state.average, jnp.asarray(0.0))
        params, optimiser_state, average, total = jax.lax.fori_loop(first, last, step, start)
        if validation is None:
            score = jnp.asarray(jnp.nan)
            better: Bool[Array, ""] = jnp.asarray(True)
        else:
            draws = jr.split(key_score, SCORING_DRAWS)
            score = jax.lax.map(lambda key: loss(average, validation, key), draws).mean()
            better = score < state.best_score
        if schedule.patience is not None:
            # A run that has stopped stays as it is while others of the batch go on: its result is its own.
            better &= state.stale < schedule.patience
        new = _State(
            params,
            optimiser_state,
            average,
            jax.tree.map(lambda fresh, kept: jnp.where(better, fresh, kept), average, state.best),
            jnp.where(better, score, state.best_score),
            jnp.where(better, last, state.best_step).astype(jnp.int32),
            jnp.where(better, 0, state.stale + 1).astype(jnp.int32),
        )
        return new, total / (last - first), score

    return jax.vmap(advance_one)(state, data, validation, keys_step, keys_score)


def draw_held_out(key: PRNGKeyArray, instances: int, number: int, fold: int = 0) -> Bool[np.ndarray, " I"]:
    """Mark so many instances, any with the same chance; those of another fold are others.

    >>> int(draw_held_out(jr.key(0), 10, 3).sum())
    3
    """
    held = np.zeros(instances, dtype=bool)
    held[np.asarray(jr.permutation(key, instances))[fold * number : (fold + 1) * number]] = True
    return held


def hold_out(key: PRNGKeyArray, logs: Logs, number: int, fold: int = 0) -> tuple[Logs, Logs]:
    """Split logs by instance into those to train on and so many others."""
    held = draw_held_out(key, logs.instances, number, fold)
    return logs.select(~held), logs.select(held)


def hold_out_each(
    keys: Keys, logs: Sequence[Logs], numbers: Sequence[int], fold: int = 0
) -> tuple[list[Logs], list[Logs] | None]:
    """Split the logs of every run; there is validation for all runs, or, if one can spare no instance, for none."""
    parts = [
        hold_out(key, table, number, fold) if number else (table, None)
        for key, table, number in zip(keys, logs, numbers, strict=True)
    ]
    held = [part for _, part in parts if part is not None]
    return [kept for kept, _ in parts], held if len(held) == len(parts) else None


def fit_keys(seeds: Sequence[int]) -> Keys:
    """Give one key for each seed, in a stream that belongs to fits alone."""
    return jnp.stack([Stream.FIT.key(seed) for seed in seeds])


def split_each(keys: Keys, number: int) -> list[Keys]:
    """Split the key of every run into `number` keys: as many arrays of one key a run."""
    return list(jax.vmap(lambda key: jr.split(key, number), out_axes=1)(keys))


def stack(trees: Sequence[Tree]) -> Tree:
    """Stack the trees of many runs along a new leading axis; in NumPy, for nothing need be compiled for that."""
    stacked: Tree = jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *trees)
    return stacked


def pad_rows(rows: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """Fill an array up to `size` rows, so that the arrays of many runs can be stacked."""
    return np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1), constant_values=fill)


def describe_recipe(recipe: Any) -> Any:
    """Write a recipe as plain values, for the provenance of a model."""
    if not is_dataclass(recipe):
        return list(recipe) if isinstance(recipe, tuple) else recipe
    parts = {part.name: describe_recipe(getattr(recipe, part.name)) for part in fields(recipe)}
    return {"name": type(recipe).__name__, **parts}
