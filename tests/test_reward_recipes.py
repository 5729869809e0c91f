"""One conformance suite over every reward recipe."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from ilb.errors import RareActionWarning
from ilb.logs import Logs
from ilb.offline.rewards import REWARD_RECIPES
from ilb.offline.rewards.mlp import MLPRewardRecipe
from ilb.offline.rewards.recipe import RewardFit, RewardRecipe, RewardRows, RewardTask, reward_cells
from ilb.offline.training import Adam, Schedule

INSTANCES, LENGTH, ACTIONS = 300, 12, 3
THETA = np.array([[1.0, 0.5], [-0.7, 0.8], [0.3, -1.0]])
REWARD_STD = 0.5
QUICK = MLPRewardRecipe(hidden=(16,), training=Schedule(800, Adam(1e-2, 1e-4), score_every=100, patience=4))
# Smaller versions of the recipes that take long; others are tested as they are.
SMALL = {
    "mlp": QUICK,
    "mlp-decayed": replace(QUICK, training=replace(QUICK.training, optimiser=Adam(1e-2, 1e-2))),
}


@pytest.fixture(params=REWARD_RECIPES, scope="module")
def recipe(request: pytest.FixtureRequest) -> RewardRecipe:
    whole = REWARD_RECIPES[request.param]()
    small = SMALL.get(request.param, whole)
    assert type(small) is type(whole)
    return small


def task_of(seed: int, scale: float = 1.0, without: int | None = None) -> RewardTask:
    """Exact latent states as mean encodings, and linear rewards times `scale` plus noise."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(INSTANCES, 2))
    action = rng.integers(ACTIONS, size=(INSTANCES, LENGTH))
    reward = np.take_along_axis(z @ THETA.T, action, axis=1) + REWARD_STD * rng.normal(size=action.shape)
    action = np.where(action == without, -1, action)
    logs = Logs.from_arrays(np.zeros((*action.shape, 1)), action, scale * reward, actions=ACTIONS)
    lengths = np.full(INSTANCES, LENGTH)
    return RewardTask(z, reward_cells(logs), "abc", 1e-9 * np.eye(2), lengths, RewardRows.of(logs))


def values(fitted: RewardFit, z: np.ndarray) -> np.ndarray:
    """Give the rewards of people of whom nothing but z is known: average in what only rewards show."""
    if fitted.population is not None:
        average = fitted.population.mean[z.shape[1] :]
        z = np.concatenate([z, np.broadcast_to(average, (len(z), len(average)))], axis=1)
    return np.asarray(jax.vmap(fitted.reward)(jnp.asarray(z, jnp.float32)))


NEW = np.random.default_rng(9).normal(size=(500, 2))


@pytest.fixture(scope="module")
def fits(recipe: RewardRecipe) -> list[RewardFit]:
    """Two tasks, of which the second is in other units, learned together."""
    return recipe.train(jr.split(jr.key(0)), [task_of(0), task_of(1, scale=100.0)])


def test_it_recovers_expected_rewards_in_any_units(fits: list[RewardFit]) -> None:
    for fitted, scale in zip(fits, (1.0, 100.0), strict=True):
        error = values(fitted, NEW) / scale - NEW @ THETA.T
        assert np.mean(error**2) < 0.03 * np.mean((NEW @ THETA.T) ** 2)


def test_it_measures_the_noise_of_rewards(fits: list[RewardFit]) -> None:
    # 1200 rewards of each action, one in each of 300 cells is spent on its mean.
    error = REWARD_STD**2 * np.sqrt(2 / 900)
    for fitted, scale in zip(fits, (1.0, 100.0), strict=True):
        assert np.all(np.abs(np.asarray(fitted.reward_variance) / scale**2 - REWARD_STD**2) < 4 * error)
        assert 0 <= fitted.leftover_variance / scale**2 < 0.1


@pytest.mark.parametrize("scale", [1e-4, 1e8])
def test_units_of_rewards_are_only_units(recipe: RewardRecipe, fits: list[RewardFit], scale: float) -> None:
    scaled = recipe.train(jr.split(jr.key(0))[:1], [task_of(0, scale)])[0]
    np.testing.assert_allclose(values(scaled, NEW) / scale, values(fits[0], NEW), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(scaled.reward_variance / scale**2, fits[0].reward_variance, rtol=1e-2)
    np.testing.assert_allclose(scaled.leftover_variance / scale**2, fits[0].leftover_variance, atol=1e-2)


def test_tasks_learned_together_are_those_learned_alone(recipe: RewardRecipe, fits: list[RewardFit]) -> None:
    alone = recipe.train(jr.split(jr.key(0))[:1], [task_of(0)])[0]
    np.testing.assert_allclose(values(alone, NEW), values(fits[0], NEW), rtol=1e-2, atol=1e-2)


def test_an_action_without_any_reward_is_warned_of_and_gets_a_finite_one(recipe: RewardRecipe) -> None:
    with pytest.warns(RareActionWarning, match="1 of 3 actions"):
        fitted = recipe.train(jr.split(jr.key(0))[:1], [task_of(0, without=1)])[0]
    assert np.all(np.isfinite(values(fitted, NEW)))
    assert np.all(np.isfinite(fitted.reward_variance))
