"""Baselines that doubt the model or do without: each index a second way, and what it is for."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from ilb.logs import Logs
from ilb.models.baselines import RewardPopulation, RewardScale
from ilb.offline.baselines import LogFits, fit_reward_population
from ilb.offline.rewards.recipe import Cells
from ilb.online.arms import mab_centred
from ilb.online.evidence import RewardSums
from ilb.online.hierarchical import HierarchicalBelief, hierarchical_ts
from ilb.online.policy import AbstractPolicy
from ilb.simulation import Rounds, play

NO_CONTEXT = jnp.zeros(2)


def regret_of(
    policy: AbstractPolicy, means: np.ndarray, horizon: int, contexts: np.ndarray | None = None, noise_std: float = 1.0
) -> np.ndarray:
    """Play people with these mean rewards; give the mean cumulative regret by round."""
    people, actions = means.shape
    rng = np.random.default_rng(9)
    rewards = means[None] + noise_std * rng.normal(size=(horizon, people, actions))
    seen = np.zeros((horizon, people, 2)) if contexts is None else contexts
    rounds = Rounds(*(jnp.asarray(part, jnp.float32) for part in (seen, rewards, means[None])))
    played = jax.jit(jax.vmap(lambda key, drawn: play(key, policy, drawn), in_axes=(0, 1)))(
        jr.split(jr.key(0), people), rounds
    )
    return np.cumsum(np.asarray(played.regret).mean(axis=0))


# Hierarchical Thompson sampling


def population_of(level: float) -> RewardPopulation:
    rng = np.random.default_rng(0)
    parts = (rng.normal(size=4), rng.uniform(0.01, 0.1, 4), level, rng.uniform(0.2, 1, 4), rng.uniform(0.5, 2, 4))
    return RewardPopulation(*(jnp.asarray(part, jnp.float32) for part in parts))


@pytest.mark.parametrize("level", [0.0, 0.7])
def test_the_hierarchical_belief_is_the_joint_gaussian_conditioned_on_every_reward(level: float) -> None:
    known = population_of(level)
    mean, mean_variance, _, effect, noise = (np.asarray(part, np.float64) for part in known)
    rng = np.random.default_rng(1)
    actions = np.array([0, 0, 2, 1, 2, 2, 0])
    rewards = rng.normal(size=7)
    # Rewards and mean rewards are jointly normal: condition the latter on the former, one reward at a time in a row.
    prior = level + np.diag(mean_variance + effect)
    shown = np.eye(4)[actions]
    among = shown @ prior @ shown.T + np.diag(noise[actions])
    slope = np.linalg.solve(among, shown @ prior).T
    expected = mean + slope @ (rewards - mean[actions])
    covariance = prior - slope @ shown @ prior
    pulls = np.bincount(actions, minlength=4)
    state = RewardSums(jnp.asarray(pulls, jnp.float32), jnp.asarray(np.bincount(actions, rewards, 4), jnp.float32))
    believed = HierarchicalBelief(known).rewards(state, NO_CONTEXT)
    np.testing.assert_allclose(believed.mean(), expected, atol=1e-5)
    np.testing.assert_allclose(believed.std(), np.sqrt(np.diag(covariance)), atol=1e-5)
    drawn = np.asarray(jax.vmap(believed.draw)(jr.split(jr.key(0), 40_000)))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.04)


def test_the_spread_of_mean_rewards_is_found_in_logs() -> None:
    rng = np.random.default_rng(2)
    people, actions, rows = 3000, 4, 6
    mean, effect, noise = (
        np.array([0.0, 1.0, -2.0, 5.0]),
        np.array([0.1, 0.5, 1.0, 2.0]),
        np.array([0.5, 1.0, 2.0, 0.2]),
    )
    truth = mean + 0.8 * rng.normal(size=(people, 1)) + np.sqrt(effect) * rng.normal(size=(people, actions))
    taken = rng.integers(0, actions, (people, rows))
    rewards = np.take_along_axis(truth, taken, 1) + np.sqrt(noise[taken]) * rng.normal(size=taken.shape)
    logs = Logs.from_arrays(np.zeros((people, rows, 0)), taken, rewards, actions=actions)
    found = LogFits(lambda: logs).reward_population
    np.testing.assert_allclose(found.mean, mean, atol=0.1)
    np.testing.assert_allclose(found.level_variance, 0.64, atol=0.06)
    np.testing.assert_allclose(found.effect_variance, effect, atol=0.15)
    np.testing.assert_allclose(found.reward_variance, noise, rtol=0.1)
    np.testing.assert_allclose(found.mean_variance, (0.64 + effect + noise / 2) / people, rtol=0.5)


def test_an_action_that_nobody_was_given_is_taken_for_one_like_the_others() -> None:
    cells = Cells(
        np.array([0, 0, 1, 1]),
        np.array([0, 1, 0, 1]),
        np.array([4, 4, 4, 4]),
        np.array([1.0, 3.0, 3.0, 5.0]),
        np.zeros(4),
    )
    found = fit_reward_population(cells, np.full(3, 0.1))
    assert found.mean.tolist() == [2.0, 4.0, 3.0]
    assert float(found.level_variance) == pytest.approx(1.0)
    assert float(found.mean_variance[2]) == pytest.approx(1.0 + float(found.mean_variance[0]))
    assert np.all(np.isfinite(np.concatenate([np.ravel(part) for part in found])))


def test_the_hierarchy_is_better_than_separate_actions_where_people_differ_in_their_level() -> None:
    """Rewards of one action tell how high those of the others will be, and logs which are good for most."""
    rng = np.random.default_rng(3)
    means = np.linspace(0, 2, 8) + 2 * rng.normal(size=(128, 1)) + 0.5 * rng.normal(size=(128, 8))
    population = RewardPopulation(
        *(
            jnp.asarray(part, jnp.float32)
            for part in (np.linspace(0, 2, 8), np.zeros(8), 4.0, np.full(8, 0.25), np.ones(8))
        )
    )
    hierarchy = regret_of(hierarchical_ts(population), means, 100)
    apart = regret_of(mab_centred(RewardScale(1.0, 4.8), jnp.ones(8)), means, 100)
    assert hierarchy[-1] < 0.5 * apart[-1]
