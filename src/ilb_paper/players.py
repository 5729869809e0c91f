"""Players: a policy and the model it stands on, as the figures name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr

from ilb.errors import DecisionError
from ilb.models.baselines import DiscreteStates
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.offline.baselines import STATES, fit_context_regression, measure_rewards, prepare_ingredients
from ilb.offline.discrete_states import fit_states_on_encodings
from ilb.online.arms import mab, mab_centred
from ilb.online.discrete import mts, mucb
from ilb.online.linear import lin_ts, lin_ucb, stationary_policies
from ilb.online.policy import AbstractPolicy
from ilb.online.recurrent import regression_policy
from ilb.online.roster import LATENT_POLICIES, ROSTER
from ilb_paper.learners import REGRESSION, Fitted
from ilb_paper.settings import Setting, Stationary

ORACLE = "oracle"
WARM_RIDGE = 0.5
"""The ridge of the warm start in the released toy."""


class Player(NamedTuple):
    """A policy by its name in the roster, and a model: a learner's name, `oracle`, or nothing."""

    policy: str
    model: str = ""

    def __str__(self) -> str:
        if self.model.startswith(self.policy):
            return self.model
        return f"{self.policy}, {self.model}" if self.model else self.policy


def build_player(
    policy: str, model: str, setting: Setting, seed: int, fitted: Fitted | None, horizon: int
) -> AbstractPolicy:
    """Build the policy for the world of one seed."""
    if isinstance(setting, Stationary):
        logged = fit_context_regression(setting.record(seed).training.logs, ridge=WARM_RIDGE)
        return stationary_policies(logged, setting.reward_std, horizon)[policy]
    if policy in MODEL_FREE:
        return MODEL_FREE[policy](setting, seed)
    if policy == REGRESSION:
        if not isinstance(fitted, RecurrentRegression):
            raise DecisionError(f"the policy {REGRESSION!r} plays a recurrent regression; got {fitted!r}.")
        return regression_policy(fitted)
    latent = setting.oracle(seed) if model == ORACLE else fitted
    if not isinstance(latent, LatentModel):
        raise DecisionError(f"the policy {policy!r} needs a latent model; {model!r} gave {latent!r}.")
    latent = latent.bare()
    if policy in LATENT_POLICIES:
        return LATENT_POLICIES[policy](latent)
    logs = setting.record(seed).training.logs
    if policy in STATE_POLICIES:
        return STATE_POLICIES[policy](fit_states_on_encodings(latent, logs, STATES, seed), horizon)
    return ROSTER[policy](prepare_ingredients(latent, logs, horizon=horizon, seed=seed))


def _mab(setting: Setting, seed: int) -> AbstractPolicy:
    del seed
    return mab(setting.actions, jnp.full(setting.actions, setting.reward_std**2))


def _mab_centred(setting: Setting, seed: int) -> AbstractPolicy:
    scale = measure_rewards(setting.record(seed).training.logs)
    return mab_centred(scale, jnp.full(setting.actions, setting.reward_std**2))


def _context_dim(setting: Setting, seed: int) -> int:
    """Ask the world for the shape of a context, without drawing one."""
    world, key = setting.playground(seed), jr.key(0)
    return int(jax.eval_shape(lambda: world.emit(key, world.sample_instance(key))).shape[0])


MODEL_FREE: dict[str, Callable[[Setting, int], AbstractPolicy]] = {
    "MAB": _mab,
    "MAB (centred)": _mab_centred,
    "LinUCB": lambda setting, seed: lin_ucb(setting.actions, _context_dim(setting, seed), setting.reward_std),
    "LinTS": lambda setting, seed: lin_ts(setting.actions, _context_dim(setting, seed), setting.reward_std),
}
"""Policies that need no model; as in the paper, they are told the true noise of rewards.

The prior of MAB is N(0, 1), as in the released code. Where rewards are far from 0 that keeps it from exploring; `MAB
(centred)` has the mean and variance of the logged rewards instead."""

STATE_POLICIES: dict[str, Callable[[DiscreteStates, int], AbstractPolicy]] = {
    "mTS (encodings)": lambda states, _: mts(states),
    "mUCB (encodings)": mucb,
}
"""Policies on discrete states, which are built from these alone: the other ingredients of the roster take longer."""
