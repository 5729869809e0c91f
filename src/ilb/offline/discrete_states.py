"""Discrete latent states from logs, for mTS and mUCB: by clustering mean encodings, or by clustering rewards."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.baselines import DiscreteStates
from ilb.models.latent import LatentModel
from ilb.offline.encodings import encode_contexts, instance_means
from ilb.offline.rewards.recipe import reward_cells
from ilb.seeds import as_seed

RESTARTS = 8
"""Starts of a mixture; the best is kept. One start in a few ends with two states in one."""

STEPS = 500
"""At most this many steps of EM for each start."""

TOLERANCE = 1e-7
"""EM has converged when a step gains less than this for each logged reward."""

SMALLEST_SPREAD = 1e-3
"""Variance added to each state, as a share of the population's: a state may consist of one instance."""


def fit_states_on_encodings(model: LatentModel, logs: Logs, states: int, seed: int) -> DiscreteStates:
    """Fit a Gaussian mixture to the instances' mean encodings; a state pays what the model predicts at its centre.

    The variance of a reward given the state includes how far the instances of a state are from its centre.
    """
    from sklearn.mixture import GaussianMixture  # slow to import, and few need it

    _check(logs, states)
    encodings = instance_means(encode_contexts(model.encoder, logs.context), logs.starts)
    shift, scale = encodings.mean(axis=0), np.maximum(encodings.std(axis=0), np.finfo(np.float32).tiny)
    standard = (encodings - shift) / scale
    mixture = GaussianMixture(
        states, reg_covar=SMALLEST_SPREAD, n_init=RESTARTS, max_iter=STEPS, random_state=as_seed(seed)
    )
    mixture.fit(standard)
    centres = mixture.means_ * scale + shift

    def predict(z: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows K"]:
        return np.asarray(jax.vmap(model.encoded_reward)(jnp.asarray(z, jnp.float32)), np.float64)

    mean_rewards, own = predict(centres), predict(encodings)
    shares = mixture.predict_proba(standard).T
    within = sum(share @ (own - row) ** 2 for share, row in zip(shares, mean_rewards, strict=True)) / len(own)
    noise = np.asarray(model.noise.reward_variance) + float(model.noise.leftover_variance)
    return _as_states(mixture.weights_, mean_rewards, noise + within)


class RewardTable(NamedTuple):
    """Logged rewards by instance and action: how many, their sum and the sum of their squares; none is missing."""

    rows: Float[np.ndarray, "I K"]
    total: Float[np.ndarray, "I K"]
    square: Float[np.ndarray, "I K"]


class Mixture(NamedTuple):
    """Weights of the states, what each pays for each action, and the variance that all rewards share."""

    weights: Float[np.ndarray, " S"]
    means: Float[np.ndarray, "S K"]
    variance: float


class MeanPrior(NamedTuple):
    """What is known of a state's rewards before any is seen: how each action pays, and how much instances differ."""

    mean: Float[np.ndarray, " K"]
    variance: float


class Climb(NamedTuple):
    """Where EM ended, and the objective after each of its steps, the start first."""

    mixture: Mixture
    objective: Float[np.ndarray, " steps"]


def fit_states_on_rewards(logs: Logs, states: int, seed: int) -> DiscreteStates:
    """Fit a mixture to the logged rewards: an instance is in one of `states`, which fixes its K mean rewards.

    An instance counts by the actions that it took; those it never took are missing and need no filling in.
    """
    _check(logs, states)
    table = tabulate_rewards(logs)
    rng = np.random.default_rng(as_seed(seed))
    climbs = [climb(table, mean_prior(table), _start(rng, table, states)) for _ in range(RESTARTS)]
    best = max(climbs, key=lambda one: float(one.objective[-1])).mixture
    return _as_states(best.weights, best.means, np.full(logs.actions, best.variance))


def tabulate_rewards(logs: Logs) -> RewardTable:
    """Sum the logged rewards by instance and action."""
    cells = reward_cells(logs)
    table = RewardTable(*np.zeros((3, logs.instances, logs.actions)))
    place = (cells.instance, cells.action)
    table.rows[place] = cells.rows
    table.total[place] = cells.rows * cells.mean
    table.square[place] = cells.deviation + cells.rows * cells.mean**2
    return table


def mean_prior(table: RewardTable) -> MeanPrior:
    """Take the spread of instances around each action's mean as the spread of states around it.

    It decides what a state pays for an action that none of its instances took, and is outweighed by a few rewards.
    """
    mean = table.total.sum(axis=0) / np.maximum(table.rows.sum(axis=0), 1)
    mean = np.where(table.rows.sum(axis=0) > 0, mean, table.total.sum() / table.rows.sum())
    seen = table.rows > 0
    distance = (table.total / np.maximum(table.rows, 1) - mean)[seen]
    return MeanPrior(mean, max(float(np.mean(distance**2)), _smallest_variance(table)))


def climb(table: RewardTable, prior: MeanPrior, mixture: Mixture) -> Climb:
    """Take steps of EM until they gain nothing; none of them lowers the objective."""
    objective = [evaluate(table, prior, mixture)]
    for _ in range(STEPS):
        mixture = _step(table, prior, mixture)
        objective.append(evaluate(table, prior, mixture))
        if objective[-1] - objective[-2] < TOLERANCE * table.rows.sum():
            break
    return Climb(mixture, np.array(objective))


def evaluate(table: RewardTable, prior: MeanPrior, mixture: Mixture) -> float:
    """Give the log-likelihood of the rewards, plus the log-density of the states under the prior (up to a constant)."""
    log_prior = np.log(mixture.weights).sum() - np.sum((mixture.means - prior.mean) ** 2) / (2 * prior.variance)
    return float(logsumexp(_joint(table, mixture), axis=1).sum() + log_prior)


def _joint(table: RewardTable, mixture: Mixture) -> Float[np.ndarray, "I S"]:
    """Give the log-probability of each state together with the rewards of each instance."""
    rows = table.rows.sum(axis=1, keepdims=True)
    log_likelihood = -0.5 * (_squares(table, mixture) / mixture.variance + rows * np.log(2 * np.pi * mixture.variance))
    return np.asarray(np.log(mixture.weights) + log_likelihood)


def _squares(table: RewardTable, mixture: Mixture) -> Float[np.ndarray, "I S"]:
    """Sum the squared distances of each instance's rewards from what each state pays."""
    means = mixture.means.T
    return np.asarray(table.square.sum(axis=1, keepdims=True) - 2 * table.total @ means + table.rows @ means**2)


def _step(table: RewardTable, prior: MeanPrior, mixture: Mixture) -> Mixture:
    """Take one step: who is in which state, then weights, means and variance, each given the others."""
    joint = _joint(table, mixture)
    share = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    # One instance more for each state keeps all weights positive.
    weights = (share.sum(axis=0) + 1) / (len(share) + len(mixture.weights))
    precision = share.T @ table.rows / mixture.variance + 1 / prior.variance
    means = (share.T @ table.total / mixture.variance + prior.mean / prior.variance) / precision
    moved = Mixture(weights, means, mixture.variance)
    variance = float(np.sum(share * _squares(table, moved)) / table.rows.sum())
    return moved._replace(variance=max(variance, _smallest_variance(table)))


def _smallest_variance(table: RewardTable) -> float:
    """Keep the likelihood bounded where rewards have no noise at all."""
    rows = table.rows.sum()
    spread = table.square.sum() / rows - (table.total.sum() / rows) ** 2
    return max(1e-6 * float(spread), 1e-12)


def _start(rng: np.random.Generator, table: RewardTable, states: int) -> Mixture:
    """Start from instances that are far from each other: each is drawn by how badly those before it explain it."""
    prior = mean_prior(table)
    variance = max(float(_within(table)), _smallest_variance(table))
    precision = table.rows / variance + 1 / prior.variance
    means = (table.total / variance + prior.mean / prior.variance) / precision
    chosen = [int(rng.integers(len(means)))]
    own = np.sum(table.square - table.total**2 / np.maximum(table.rows, 1), axis=1)
    for _ in range(states - 1):
        mixture = Mixture(np.ones(len(chosen)), means[chosen], variance)
        excess = np.maximum(_squares(table, mixture).min(axis=1) - own, 0)
        excess[chosen] = 0
        some = excess if excess.sum() > 0 else np.ones(len(means))
        chosen.append(int(rng.choice(len(means), p=some / some.sum())))
    return Mixture(np.full(states, 1 / states), means[chosen], variance)


def _within(table: RewardTable) -> float:
    """Measure the variance of rewards within instances and actions; where nothing was repeated, around the actions."""
    freedom = np.maximum(table.rows - 1, 0).sum()
    if freedom > 0:
        return float(np.sum(table.square - table.total**2 / np.maximum(table.rows, 1)) / freedom)
    return mean_prior(table).variance


def _check(logs: Logs, states: int) -> None:
    if not 1 <= states <= logs.instances:
        raise FitError(
            f"states must be between 1 and the number of instances, which is {logs.instances}; got states={states}."
        )


def _as_states(
    weights: Float[np.ndarray, " S"], mean_rewards: Float[np.ndarray, "S K"], reward_variance: Float[np.ndarray, " K"]
) -> DiscreteStates:
    return DiscreteStates(*(jnp.asarray(part, jnp.float32) for part in (weights, mean_rewards, reward_variance)))
