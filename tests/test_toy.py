"""The toy world of constant contexts (app:synthetic_stationary), and what linear bandits come to in it."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from ilb.environments import Recording, UniformLogging, record
from ilb.errors import WorldError
from ilb.models.baselines import ContextRegression
from ilb.offline.baselines import fit_context_regression
from ilb.online.arms import ArmBelief
from ilb.online.linear import lin_ts, lin_ucb
from ilb.online.policy import AbstractBelief
from ilb.online.roster import policy_on
from ilb.simulation import simulate
from ilb.types import Step
from ilb_paper.catalogue.fig_synthetic_contextual import Stationary, StationarySetting
from ilb_paper.players import build_player
from ilb_paper.released import widened_lin_ts

WORLD = Stationary().draw(1000)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(jr.key(1001), WORLD, UniformLogging(10), instances=500, length=1)


@pytest.fixture(scope="module")
def regression(recording: Recording) -> ContextRegression:
    return fit_context_regression(recording.logs, ridge=0.5)


def rounds_of_one_instance(rng: np.random.Generator, rounds: int = 60) -> Step:
    context = np.asarray(WORLD.sample_instance(jr.key(5)))
    return Step(
        jnp.asarray(np.tile(context, (rounds, 1))),
        jnp.asarray(rng.integers(0, 4, rounds)),  # most actions never
        jnp.asarray(rng.normal(1.4, 0.25, rounds), jnp.float32),
    )


@jax.jit
def believed(belief: AbstractBelief, steps: Step) -> tuple[Array, Array]:
    """Means and standard deviations after all steps."""
    state = jax.lax.scan(lambda state, step: (belief.learn(state, step), None), belief.init(), steps)[0]
    rewards = belief.rewards(state, steps.context[0])
    return rewards.mean(), rewards.std()


# The world


def test_coefficients_are_uniform_between_the_printed_bounds() -> None:
    theta = np.asarray(Stationary(actions=4000).draw().theta)
    assert theta.shape == (4000, 5)
    assert 0.3 <= theta.min() < 0.301
    assert 0.799 < theta.max() <= 0.8
    # Of 20,000 draws: four standard errors.
    assert theta.mean() == pytest.approx(0.55, abs=4 * 0.5 / np.sqrt(12 * 20_000))
    assert theta.var() == pytest.approx(0.25 / 12, rel=0.03)


def test_contexts_have_the_printed_mean_and_covariance() -> None:
    contexts = np.asarray(jax.vmap(WORLD.sample_instance)(jr.split(jr.key(2), 40_000)))
    ones = np.ones((5, 5))
    covariance = 0.1 * np.eye(5) + 0.05 * np.triu(ones, 1) + 0.05 * np.tril(ones, -1)
    np.testing.assert_allclose(contexts.mean(axis=0), 0.5, atol=4 * np.sqrt(0.1 / 40_000))
    # The variance of an entry is at most 2 x 0.1^2 / 40,000.
    np.testing.assert_allclose(np.cov(contexts, rowvar=False), covariance, atol=4 * 0.1 * np.sqrt(2 / 40_000))
    np.testing.assert_allclose(WORLD.oracle().noise.population_covariance, covariance, atol=1e-6)


def test_an_instance_shows_one_context_for_ever_and_rewards_scatter_around_its_values() -> None:
    recording = record(jr.key(3), WORLD, UniformLogging(10), instances=20, length=200)
    logs = recording.logs
    context = logs.context.reshape(20, 200, 5)
    np.testing.assert_array_equal(context, np.broadcast_to(context[:, :1], context.shape))
    np.testing.assert_array_equal(context[:, 0], recording.latents)
    expected = (logs.context @ np.asarray(WORLD.theta).T)[np.arange(4000), logs.action]
    residual = logs.reward - expected
    assert residual.std() == pytest.approx(0.25, rel=4 / np.sqrt(2 * 4000))
    assert abs(residual.mean()) < 4 * 0.25 / np.sqrt(4000)


def test_who_knows_the_model_has_no_regret() -> None:
    history = simulate(jr.key(4), WORLD, policy_on(WORLD.oracle(), "CPG"), instances=50, horizon=3)
    assert np.all(history.regret < 1e-5)


@pytest.mark.parametrize("name", ["actions", "latent_dim"])
def test_a_world_without_actions_or_contexts_is_refused(name: str) -> None:
    with pytest.raises(WorldError, match=f"{name} must be an integer, at least 1; got 0"):
        Stationary(**{name: 0})


# Linear bandits in it


@pytest.mark.parametrize("ridge", [0.5, 1.0])
def test_a_linear_bandit_on_a_constant_context_is_one_without_contexts(ridge: float) -> None:
    """Along x the belief is one-dimensional: the prior of action a is N(0, sigma^2 |x|^2 / lambda)."""
    steps = rounds_of_one_instance(np.random.default_rng(0))
    prior_variance = 0.25**2 * jnp.sum(steps.context[0] ** 2) / ridge
    arms = believed(ArmBelief(10, jnp.asarray(0.25**2), jnp.asarray(0.0), prior_variance), steps)
    for policy in (lin_ts(10, 5, 0.25, ridge), lin_ucb(10, 5, 0.25, ridge=ridge)):
        for linear, arm in zip(believed(policy.belief, steps), arms, strict=True):
            np.testing.assert_allclose(linear, arm, rtol=1e-4, atol=1e-5)


def test_released_draws_are_widened_by_the_log_determinants_of_all_actions(regression: ContextRegression) -> None:
    steps = rounds_of_one_instance(np.random.default_rng(1))
    mean, std = believed(widened_lin_ts(regression, 0.25, horizon=1000).belief, steps)
    x, precision = np.asarray(steps.context[0], float), np.asarray(regression.precision, float)
    moment = np.asarray(regression.moment, float)
    for action, reward in zip(np.asarray(steps.action), np.asarray(steps.reward, float), strict=True):
        precision[action] += np.outer(x, x)
        moment[action] += reward * x
    beta = 0.25 * np.sqrt(np.linalg.slogdet(precision)[1].sum() + 5 * np.log(1001))
    np.testing.assert_allclose(
        mean, [x @ np.linalg.solve(A, b) for A, b in zip(precision, moment, strict=True)], rtol=1e-4
    )
    np.testing.assert_allclose(std, [beta * np.sqrt(x @ np.linalg.solve(A, x)) for A in precision], rtol=1e-4)


def test_contexts_do_not_pay_as_released_but_a_warm_start_does_when_draws_are_not_widened() -> None:
    toy, seed = StationarySetting(), 1
    regret = {}
    for name in ("MAB", "Warm LinTS", "Warm LinTS (released)"):
        policy = build_player(name, "", toy, seed, None, horizon=200)
        regret[name] = simulate(jr.key(6), toy.playground(seed), policy, instances=64, horizon=200).regret_at(200)
    best, middle, worst = (regret[name] for name in ("Warm LinTS", "MAB", "Warm LinTS (released)"))
    assert best.value + 3 * best.standard_error < middle.value - 3 * middle.standard_error
    assert middle.value + 3 * middle.standard_error < worst.value - 3 * worst.standard_error


def test_the_warm_start_of_the_toy_has_the_ridge_of_the_released_code() -> None:
    toy = StationarySetting()
    logs = toy.record(3).training.logs
    for name in ("Warm LinTS", "Warm LinTS (released)"):
        player: Any = build_player(name, "", toy, 3, None, horizon=50)
        belief = player.belief
        linear = getattr(belief, "linear", belief)
        for action in range(toy.actions):
            rows = logs.context[logs.action == action]
            factor = np.asarray(linear.prior.factor[action], np.float64)
            np.testing.assert_allclose(factor @ factor.T, 0.5 * np.eye(5) + rows.T @ rows, rtol=1e-5, atol=1e-4)
        assert float(linear.noise_std) == 0.25
