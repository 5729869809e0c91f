"""The regression baseline: rewards from the history of contexts, with no latent structure (app:training).

The paper trains on prefix after prefix of a history. The network is causal, so one pass over a whole history holds the
predictions of all its prefixes, and all of them are trained at once. The target after x_1 .. x_t is the reward of round
t, for the action of round t. Since expected rewards do not depend on t, all rewards of the instance could be the target
of every prefix: on eight worlds (L = 2 and 4)
that raised the reward R² by 0.004 on average, which is not worth the assumption.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.errors import FitError, IlbWarning
from ilb.estimates import r_squared
from ilb.logs import Logs
from ilb.models.latent import Provenance
from ilb.models.recurrent import RecurrentRegression, random_recurrent_regression
from ilb.offline.scaling import Scaling, Units, Whitened, apply_scaling
from ilb.offline.scores import FitScores, Truth, share_of_best
from ilb.offline.training import (
    CosineAdam,
    Keys,
    Minimised,
    Schedule,
    describe_recipe,
    fit_keys,
    hold_out_each,
    minimise_many,
    pad_rows,
    split_each,
    stack,
)
from ilb.types import Report, silent
from ilb.version import __version__


class RewardedHistories(NamedTuple):
    """Whitened contexts, actions and standardised rewards of many instances, end to end, with padding at the end.

    The action is -1 where it or the reward is missing; instances that are padding have the length 0.
    """

    context: Float[Array | np.ndarray, "rows d"]
    action: Int[Array | np.ndarray, " rows"]
    reward: Float[Array | np.ndarray, " rows"]
    start: Int[Array | np.ndarray, " instances"]
    length: Int[Array | np.ndarray, " instances"]


@dataclass(frozen=True)
class PrefixLoss:
    """Squared error of observed rewards, each predicted from the contexts up to its own round.

    A batch is `batch` instances with their first `rounds` rounds; where there are no more, it is all of them.
    """

    batch: int
    rounds: int

    def __call__(
        self, network: RecurrentRegression, histories: RewardedHistories, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        context, action, reward, start, length = (jnp.asarray(part) for part in histories)
        if length.shape[0] > self.batch:
            # The largest of random numbers: a draw without repetition, that leaves padding for last.
            chosen = jax.lax.top_k(jnp.where(length > 0, jr.uniform(key, length.shape), -1.0), self.batch)[1]
            start, length = start[chosen], length[chosen]
        time = jnp.arange(self.rounds)[None, :]
        # Past the end of an instance stand rows of others: what comes later does not change what came before.
        row = jnp.minimum(start[:, None] + time, len(reward) - 1)
        taken = action[row]
        counts = (time < length[:, None]) & (taken >= 0)
        values = jax.vmap(network.run)(context[row])
        predicted = jnp.take_along_axis(values, jnp.maximum(taken, 0)[..., None], axis=2)[..., 0]
        return jnp.sum(jnp.where(counts, (predicted - reward[row]) ** 2, 0.0)) / jnp.maximum(counts.sum(), 1)


@dataclass(frozen=True)
class RegressionRecipe:
    """How the recurrent regression is trained (app:training, "Details for the regression baseline").

    Printed are 64 hidden features, as many GRU `layers` as the emission has (L = 2 or 4), Adam from the rate 0.01 down,
    weight decay 0.001, and early stopping, here on the `validation_share` of instances that are held out. Two layers
    are the default for any L: at L = 4 they do better than four. The weight decay is decoupled from the gradient
    (AdamW), and the rate falls as a cosine; a batch of 20 instances takes the place of the printed 100.
    """

    layers: int = 2
    hidden: int = 64
    batch: int = 20
    validation_share: float = 0.1
    scaling: Scaling = field(default_factory=Whitened)
    training: Schedule = field(
        default_factory=lambda: Schedule(200, CosineAdam(0.01, weight_decay=1e-3), score_every=25),
    )

    def shortened(self, effort: float) -> RegressionRecipe:
        """Train with `effort` times the steps, for a look in passing."""
        return replace(self, training=self.training.shortened(effort))


def fit_regression(
    logs: Logs, recipe: RegressionRecipe | None = None, *, seed: int = 0, report: Report = silent
) -> RecurrentRegression:
    """Learn to predict the rewards of all actions from the contexts of an instance so far.

    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> world = draw_world(jr.key(0), latent_dim=2, actions=3)
    >>> logs = record(jr.key(1), world, UniformLogging(3), instances=20, length=10).logs
    >>> fit_regression(logs, RegressionRecipe(hidden=4, training=Schedule(steps=2)))
    RecurrentRegression(layers=2, K=3, fitted on 200 rows)
    """
    return fit_regression_many([logs], recipe=recipe, seeds=[seed], report=report)[0]


def fit_regression_many(
    logs: Sequence[Logs],
    *,
    recipe: RegressionRecipe | None = None,
    seeds: Sequence[int],
    report: Report = silent,
) -> list[RecurrentRegression]:
    """Fit one network for each table of logs and seed, all in one compiled program."""
    recipe = recipe or RegressionRecipe()
    if len(logs) != len(seeds) or not logs:
        raise FitError(f"got {len(logs)} tables of logs and {len(seeds)} seeds; expected one seed for each table.")
    if len({(table.width, table.actions) for table in logs}) > 1:
        raise FitError("tables that are fitted together must have the same context columns and actions.")
    for table in logs:
        table.require_any_reward()
    # An instance without rewards teaches nothing, and among the held-out ones it would measure nothing.
    rewarded = [table.select(np.unique(table.instance[table.rewarded])) for table in logs]
    units = [_units(table, recipe.scaling) for table in rewarded]
    result = _minimise(recipe, fit_keys(seeds), rewarded, units, report)
    return [
        RecurrentRegression(
            run.params.after(unit.inputs).layers,
            run.params.heads.then(unit.rewards(table.actions)),
            table.schema,
            _provenance(recipe, run, table, seed),
        )
        for run, unit, table, seed in zip(result.runs(), units, logs, seeds, strict=True)
    ]


def _units(logs: Logs, scaling: Scaling) -> Units:
    reward = logs.reward[logs.rewarded].astype(np.float64)
    return Units(scaling.fit(logs.context), float(reward.mean()), float(reward.std()) or 1.0)


def _minimise(
    recipe: RegressionRecipe, keys: Keys, logs: Sequence[Logs], units: Sequence[Units], report: Report
) -> Minimised:
    keys_split, keys_network, keys_step = split_each(keys, 3)
    numbers = [round(recipe.validation_share * table.instances) for table in logs]
    spared = [number if number < table.instances else 0 for number, table in zip(numbers, logs, strict=True)]
    kept, held = hold_out_each(keys_split, logs, spared)
    training = _stack_histories(units, kept)
    validation = None if held is None else _stack_histories(units, held)
    loss = PrefixLoss(recipe.batch, max(int(table.lengths.max()) for table in logs))
    params = _start(recipe, keys_network, logs[0].width, logs[0].actions)
    return minimise_many(keys_step, loss, params, training, recipe.training, validation=validation, report=report)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _start(recipe: RegressionRecipe, keys: Keys, inputs: int, actions: int) -> RecurrentRegression:
    def start_one(key: PRNGKeyArray) -> RecurrentRegression:
        return random_recurrent_regression(key, inputs, recipe.hidden, recipe.layers, actions)

    return jax.vmap(start_one)(keys)


def _stack_histories(units: Sequence[Units], logs: Sequence[Logs]) -> RewardedHistories:
    rows, instances = max(table.rows for table in logs), max(table.instances for table in logs)
    return stack([_lay_out(unit, table, rows, instances) for unit, table in zip(units, logs, strict=True)])


def _lay_out(unit: Units, logs: Logs, rows: int, instances: int) -> RewardedHistories:
    seen = logs.rewarded
    reward = np.where(seen, (logs.reward - unit.centre) / unit.spread, 0)
    return RewardedHistories(
        pad_rows(apply_scaling(unit.inputs, logs), rows),
        pad_rows(np.where(seen, logs.action, -1), rows, fill=-1).astype(np.int32),
        pad_rows(reward, rows).astype(np.float32),
        pad_rows(logs.starts[:-1], instances).astype(np.int32),
        pad_rows(logs.lengths, instances).astype(np.int32),
    )


def _provenance(recipe: RegressionRecipe, run: Minimised, logs: Logs, seed: int) -> Provenance:
    notes: tuple[str, ...] = ()
    if run.interrupted:
        notes = (f"training was interrupted; the parameters are those of step {run.best_step}",)
        warnings.warn(notes[0], IlbWarning, stacklevel=4)
    return Provenance(
        version=__version__,
        seed=seed,
        recipe=describe_recipe(recipe),
        rows=logs.rows,
        instances=logs.instances,
        curve=run.curve.plain(),
        notes=notes,
        interrupted=run.interrupted,
    )


INSTANCES_AT_ONCE = 256
"""Histories that are run side by side: bounds the memory."""


def predict_prefixes(model: RecurrentRegression, logs: Logs) -> Float[np.ndarray, "rows K"]:
    """Predict the rewards of all actions at each row, from the contexts of its instance up to it."""
    size, rounds = min(INSTANCES_AT_ONCE, logs.instances), int(logs.lengths.max())
    predictions = np.empty((logs.rows, model.actions), np.float32)
    time = np.arange(rounds)
    for first in range(0, logs.instances, size):
        # The last batch is filled up with the last instance, so that one program serves all.
        batch = np.minimum(np.arange(first, first + size), logs.instances - 1)
        row = np.minimum(logs.starts[batch][:, None] + time, logs.rows - 1)
        values = np.asarray(_run_each(model.bare(), jnp.asarray(logs.context[row])))
        present = time < logs.lengths[batch][:, None]
        predictions[row[present]] = values[present]
    return predictions


@eqx.filter_jit
def _run_each(model: RecurrentRegression, contexts: Float[Array, "I T d"]) -> Float[Array, "I T K"]:
    values: Float[Array, "I T K"] = jax.vmap(model.run)(contexts)
    return values


def score_regression(
    model: RecurrentRegression, test: Logs, truth: Truth | None = None, prefix: Literal["full", "all"] = "full"
) -> FitScores:
    """Score a recurrent regression on instances it has not seen.

    With the `prefix` "full" an instance is predicted from all its contexts, as `score_model` does; with "all" each row
    is predicted from the contexts up to it, and scores average over rows. `truth` adds those that need it.
    """
    if prefix not in ("full", "all"):
        raise FitError(f'prefix is {prefix!r}; expected "full" or "all".')
    test.require_any_reward()
    seen = test.rewarded
    estimate = predict_prefixes(model, test).astype(np.float64)
    # One line for each decision that is scored, and the instance it belongs to.
    if prefix == "full":
        owner = np.arange(test.instances)
        estimate = estimate[test.starts[1:] - 1]
        decision = test.instance[seen]
    else:
        owner = test.instance.astype(np.int64)
        decision = np.flatnonzero(seen)
    target, instance = test.reward[seen].astype(np.float64), test.instance[seen]
    scores = FitScores(r_squared(estimate[decision, test.action[seen]], target, instance))
    if truth is None:
        return scores
    potential = truth.mean_rewards[owner].astype(np.float64)
    return scores._replace(
        potential_r2=r_squared(estimate.ravel(), potential.ravel(), np.repeat(owner, estimate.shape[1])),
        best_action=share_of_best(estimate, potential, owner),
    )
