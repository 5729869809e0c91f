"""What every policy of the roster needs from the logs, in one go."""

from __future__ import annotations

import numpy as np

from ilb.logs import Logs
from ilb.model import LatentModel
from ilb.offline.states import fit_states_on_encodings, fit_states_on_rewards
from ilb.offline.warm_start import fit_context_regression
from ilb.priors import Ingredients, RewardScale
from ilb.recurrent import RecurrentRegression

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
