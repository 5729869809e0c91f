"""What every policy of the roster needs from the logs, in one go."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.baselines import ContextRegression, Ingredients, RewardScale
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.offline.discrete_states import fit_states_on_encodings, fit_states_on_rewards


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


STATES = 10
"""Discrete latent states for mTS and mUCB where nothing else is said."""


def prepare_ingredients(
    model: LatentModel,
    logs: Logs,
    *,
    horizon: int = 2000,
    states: int = STATES,
    seed: int = 0,
    recurrent: RecurrentRegression | None = None,
) -> Ingredients:
    """Fit the baselines' share of the logs beside a model that was fitted on them.

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
        fit_context_regression(logs),
        fit_states_on_encodings(model, logs, states, seed),
        fit_states_on_rewards(logs, states, seed),
        measure_rewards(logs),
        horizon,
        recurrent,
    )


def measure_rewards(logs: Logs) -> RewardScale:
    """Measure the rewards that are there."""
    return RewardScale(float(np.nanmean(logs.reward)), float(np.nanvar(logs.reward)))
