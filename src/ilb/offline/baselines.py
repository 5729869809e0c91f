"""What the policies of the roster need from logs, each part when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.baselines import (
    AbstractLogFits,
    ContextRegression,
    DiscreteStates,
    Ingredients,
    RewardPopulation,
    RewardScale,
)
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.offline.discrete_states import fit_states_on_encodings, fit_states_on_rewards
from ilb.offline.rewards.recipe import Cells, measure_reward_variance, reward_cells


def fit_context_regression(logs: Logs, ridge: float = 1.0) -> ContextRegression:
    """Regress each action's rewards on the contexts of their rows; rows without an action or a reward are left out.

    >>> logs = Logs.from_arrays([[[1.0], [2.0]]], [[0, 0]], [[3.0, 6.0]], actions=2)
    >>> regression = fit_context_regression(logs)
    >>> regression.precision.ravel().tolist(), regression.moment.ravel().tolist()
    ([6.0, 1.0], [15.0, 0.0])
    """
    if not ridge > 0:
        raise FitError(f"ridge must be positive, or actions without rewards have no prior; got ridge={ridge}.")
    logs.require_any_reward()
    precision = np.tile(ridge * np.eye(logs.width), (logs.actions, 1, 1))
    moment = np.zeros((logs.actions, logs.width))
    for action in range(logs.actions):
        rows = logs.rewarded & (logs.action == action)
        context = logs.context[rows].astype(np.float64)
        precision[action] += context.T @ context
        moment[action] = context.T @ logs.reward[rows].astype(np.float64)
    return ContextRegression(jnp.asarray(precision, jnp.float32), jnp.asarray(moment, jnp.float32))


def fit_reward_population(cells: Cells, reward_variance: Float[np.ndarray, " K"]) -> RewardPopulation:
    """Measure by moments how people's mean rewards are spread; every pair of person and action counts once.

    Deviations from the mean of an action share the level of the person, so products of two of them in one person tell
    its variance; what is left of their squares, beyond level and noise, is the effect of person and action. An action
    that nobody was given is taken for one more like the others.
    """
    rows, actions = np.maximum(cells.rows, 1), len(reward_variance)
    people = np.bincount(cells.action, minlength=actions)
    seen = people > 0

    def by_action(numbers: Float[np.ndarray, " cells"]) -> Float[np.ndarray, " K"]:
        return np.bincount(cells.action, numbers, actions) / np.maximum(people, 1)

    mean = by_action(cells.mean)
    deviation = cells.mean - mean[cells.action]
    sums, squares, counts = (np.bincount(cells.instance, part) for part in (deviation, deviation**2, rows > 0))
    level = max(float(np.sum(sums**2 - squares) / max(np.sum(counts * (counts - 1)), 1)), 0.0)
    spread = by_action(deviation**2) * people / np.maximum(people - 1, 1)
    effect = np.maximum(spread - by_action(1 / rows) * reward_variance - level, 0.0)
    repeated = people > 1
    effect[~repeated] = effect[repeated].mean() if repeated.any() else 0.0
    mean_variance = (level + effect + by_action(1 / rows) * reward_variance) / np.maximum(people, 1)
    mean[~seen], mean_variance[~seen] = mean[seen].mean(), mean[seen].var() + mean_variance[seen].mean()
    numbers = (mean, mean_variance, level, effect, reward_variance)
    return RewardPopulation(*(jnp.asarray(number, jnp.float32) for number in numbers))


STATES = 10
"""Discrete latent states for mTS and mUCB where nothing else is said."""


class LogFits(AbstractLogFits):
    """What baselines learn from the logs that `read` gives, each part fitted when it is first asked for."""

    def __init__(self, read: Callable[[], Logs], *, states: int = STATES, seed: int = 0, ridge: float = 1.0) -> None:
        self._read = read
        self._states = states
        self._seed = seed
        self._ridge = ridge

    @cached_property
    def _logs(self) -> Logs:
        return self._read()

    @cached_property
    def _cells(self) -> Cells:
        return reward_cells(self._logs)

    @cached_property
    def regression(self) -> ContextRegression:
        return fit_context_regression(self._logs, self._ridge)

    @cached_property
    def reward_scale(self) -> RewardScale:
        return RewardScale(float(np.nanmean(self._logs.reward)), float(np.nanvar(self._logs.reward)))

    @cached_property
    def reward_variance(self) -> Float[Array, " K"]:
        groups = [np.flatnonzero(self._cells.action == action) for action in range(self._logs.actions)]
        return jnp.asarray(measure_reward_variance(self._cells, groups, self.reward_scale.variance), jnp.float32)

    @cached_property
    def reward_population(self) -> RewardPopulation:
        return fit_reward_population(self._cells, np.asarray(self.reward_variance, np.float64))

    @cached_property
    def reward_states(self) -> DiscreteStates:
        return fit_states_on_rewards(self._logs, self._states, self._seed)

    def encoding_states(self, model: LatentModel) -> DiscreteStates:
        return fit_states_on_encodings(model, self._logs, self._states, self._seed)


def prepare_ingredients(
    model: LatentModel | None,
    logs: Logs,
    *,
    horizon: int | None = None,
    states: int = STATES,
    seed: int = 0,
    recurrent: RecurrentRegression | None = None,
    reward_variance: ArrayLike | None = None,
) -> Ingredients:
    """Put a model beside the logs it was fitted on, for `build_policies`; baselines are fitted when they are built.

    The network of the regression baseline takes longer than all the rest: it is passed on if `fit_regression` made one.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> from ilb.offline.fit import complete_model
    >>> world = draw_world(jr.key(0), latent_dim=2, actions=3)
    >>> logs = record(jr.key(1), world, UniformLogging(3), instances=40, length=50).logs
    >>> ingredients = prepare_ingredients(complete_model(world.oracle().encoder, logs), logs, states=4)
    >>> ingredients.encoding_states.mean_rewards.shape
    (4, 3)
    """
    return Ingredients(
        model,
        LogFits(lambda: logs, states=states, seed=seed),
        network=recurrent,
        actions=logs.actions,
        context_dim=logs.width,
        reward_variance=reward_variance,
        horizon=horizon,
    )
