"""The paper's bounds and FPG's estimator, against the series of the proofs, exact probabilities and simulated play."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jaxtyping import Array, PRNGKeyArray
from scipy import integrate, stats

from ilb.environments import GaussianNoise, SyntheticWorld, draw_world
from ilb.environments.perturbed import ShiftedLatents
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder
from ilb.online.latent import PrintedBelief
from ilb.online.roster import policy_on
from ilb.simulation import simulate
from ilb.theory import (
    cpg_regret_bound,
    cpg_regret_bound_subgaussian,
    cpg_regret_gapless_bound,
    cpg_regret_sum_bound,
    cpg_regret_sum_printed,
    fpg_estimator,
    gaps,
    latent_bandits_revisited_bound,
)
from ilb.types import Step, as_real
from narrowed import linear

MANY = 20_000  # rounds after which the series of a visible gap is summed up
RATIOS = np.geomspace(0.05, 12, 25)  # the gap over the standard deviation of the noise
SLACK = 1e-5  # single precision

instances = st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=8).filter(
    lambda means: np.sort(means)[-1] - np.sort(means)[-2] > 0.01
)
variances, errors, horizons = st.floats(0.01, 4), st.floats(0, 2), st.integers(1, 5000)


def exact_two_action_regret(gap: float, noise_std: float, distance: float, horizon: int) -> float:
    """Give CPG's expected regret with two actions whose thetas are `distance` apart: it errs when the noise says so."""
    rounds = np.arange(1, horizon + 1)
    return gap * stats.norm.sf(gap * np.sqrt(rounds) / (noise_std * distance)).sum()


def union_series(gap: float, largest: float, actions: int, noise_std: float, horizon: int) -> float:
    """Sum eq. reg-bound with exact normal probabilities, round by round."""
    rounds = np.arange(1, horizon + 1)
    return actions * largest * (2 * stats.norm.sf(gap / 2 * np.sqrt(rounds) / noise_std)).sum()


# The algebra


@settings(max_examples=50, deadline=None, derandomize=True)
@given(instances, variances, horizons, errors)
def test_the_bound_is_the_printed_formula_in_both_cases(
    means: list[float], variance: float, horizon: int, error: float
) -> None:
    best, second, *_, worst = [*sorted(means, reverse=True), min(means)]
    gap, largest, K = best - second, best - worst, len(means)
    assume(abs(gap - 2 * error) >= 1e-3)
    if error < gap / 2:
        printed = 8 * K * variance * largest / (gap - 2 * error) ** 2
    else:
        printed = 8 * K * variance * largest / gap**2 + 2 * error * horizon + gap * horizon / 2
    assert float(cpg_regret_bound(jnp.array(means), variance, horizon, error)) == pytest.approx(printed, rel=1e-3)


@pytest.mark.parametrize("ratio", RATIOS)
def test_both_sums_are_their_series_added_up_term_by_term(ratio: float) -> None:
    means, K, rounds = jnp.array([ratio, 0.0, -1.0]), 3, np.arange(1, MANY + 1)
    largest = ratio + 1.0
    printed = K * largest * (2 * np.exp(-rounds * ratio**2 / 4)).sum()
    assert float(cpg_regret_sum_printed(means, 1.0)) == pytest.approx(printed, rel=1e-4, abs=1e-12)
    for horizon in (1, 10, MANY):
        corrected = K * largest * np.exp(-rounds[:horizon] * ratio**2 / 8).sum()
        assert float(cpg_regret_sum_bound(means, 1.0, horizon)) == pytest.approx(corrected, rel=1e-4)


def test_model_error_takes_twice_itself_from_the_gap() -> None:
    means = jnp.array([2.0, 1.0, -1.0])
    shrunk = jnp.array([1.4, 1.0, -1.6])  # the same largest gap, the smallest less 2 x 0.3
    for bound in (cpg_regret_bound, cpg_regret_sum_bound):
        assert float(bound(means, 0.5, 100, 0.3)) == pytest.approx(float(bound(shrunk, 0.5, 100)), rel=1e-4)
    with_error = float(cpg_regret_sum_printed(means, 0.5, 0.3))
    assert with_error == pytest.approx(float(cpg_regret_sum_printed(shrunk, 0.5)), rel=1e-4)


def test_the_second_case_begins_where_error_is_half_the_gap() -> None:
    means = jnp.array([1.0, 0.5, 0.0])
    assert float(cpg_regret_bound(means, 1.0, 100, 0.25)) == 8 * 3 * 1 / 0.25 + 2 * 0.25 * 100 + 0.5 * 100 / 2
    assert float(cpg_regret_bound_subgaussian(means, 1.0, 100, 0.25)) == 16 * 3 / 0.25 + 50 + 50
    assert np.isinf(cpg_regret_sum_bound(means, 1.0, 100, 0.25))
    assert np.isinf(cpg_regret_sum_printed(means, 1.0, 0.25))


def test_equal_actions_cost_nothing_and_tied_best_actions_have_no_finite_bound() -> None:
    for bound in (cpg_regret_bound, cpg_regret_bound_subgaussian, cpg_regret_sum_bound):
        assert float(bound(jnp.ones(3), 1.0, 10)) == 0
        assert np.isinf(bound(jnp.array([1.0, 1.0, 0.0]), 1.0, 10))


def test_one_action_has_no_regret_to_bound() -> None:
    with pytest.raises(ValueError, match="at least two actions"):
        gaps(jnp.array([1.0]))


def test_bounds_of_many_instances_come_by_vmap() -> None:
    means = jr.normal(jr.key(0), (6, 4))
    together = jax.jit(jax.vmap(lambda row: cpg_regret_bound(row, 1.0, 100, 0.1)))(means)
    np.testing.assert_allclose(together, [cpg_regret_bound(row, 1.0, 100, 0.1) for row in means], rtol=1e-5)


def test_the_rival_bound_grows_like_the_root_of_horizon_times_its_logarithm() -> None:
    def bound(horizon: int, **given: float) -> float:
        return float(latent_bandits_revisited_bound(10, horizon, 0.5, **given))

    assert bound(2000) == pytest.approx(30 + 2 * 0.5 * np.sqrt(6 * 10 * 2000 * np.log(2000)), rel=SLACK)
    assert bound(2000, delta=0.1, epsilon=0.2) - bound(2000) == pytest.approx(0.1 * 2000 + 2 * 2000 * 0.2, rel=1e-4)


# What the proof gets right, and what it does not


def test_the_tail_that_the_proof_uses_is_false_for_a_gaussian_and_the_mended_ones_are_true() -> None:
    gamma = np.linspace(0, 8, 801)
    tail = 2 * stats.norm.sf(gamma)
    assert (tail > 2 * np.exp(-(gamma**2)))[gamma > 1.87].all()  # thm:hoef with its Q² the variance
    assert (tail <= np.exp(-(gamma**2) / 2)).all()  # needs no factor 2


@pytest.mark.parametrize("ratio", RATIOS)
def test_the_printed_bound_and_the_mended_sum_are_above_the_exact_union_series(ratio: float) -> None:
    for horizon in (1, 30, MANY):
        exact = union_series(ratio, ratio + 1.0, 3, 1.0, horizon)
        means = jnp.array([ratio, 0.0, -1.0])
        mended = float(cpg_regret_sum_bound(means, 1.0, horizon))
        assert exact * (1 - SLACK) <= mended <= float(cpg_regret_bound(means, 1.0, horizon)) * (1 + SLACK)


def test_the_printed_constant_has_a_factor_two_to_spare() -> None:
    # sum_t P(N² >= t x²) <= integral of it = E[N²] / x²: four, where eight is printed (x is half the gap over sigma).
    integral, _ = integrate.quad(lambda t: 2 * stats.norm.sf(0.3 * np.sqrt(t)), 0, np.inf)
    assert integral == pytest.approx(1 / 0.3**2, rel=1e-6)
    for ratio in RATIOS:
        assert 2 * union_series(ratio, 1.0, 1, 1.0, MANY) <= 8 / ratio**2


def test_regret_can_exceed_the_sum_that_the_proof_prints() -> None:
    gap, opposite = 6.0, 2.0
    regret = exact_two_action_regret(gap, 1.0, opposite, 100)
    means = jnp.array([gap / 2, -gap / 2])
    assert regret > 2 * float(cpg_regret_sum_printed(means, 1.0))
    assert regret < float(cpg_regret_sum_bound(means, 1.0, 100)) < float(cpg_regret_bound(means, 1.0, 100))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(instances, variances, horizons, errors)
def test_the_bounds_are_ordered(means: list[float], variance: float, horizon: int, error: float) -> None:
    given_instance = jnp.array(means), variance, horizon, error
    printed = float(cpg_regret_bound(*given_instance))
    assert printed <= float(cpg_regret_bound_subgaussian(*given_instance))
    if 2 * error < float(gaps(jnp.array(means)).smallest):
        assert float(cpg_regret_sum_bound(*given_instance)) <= printed * (1 + SLACK)
    else:
        # Which proves the second case, whose printed steps do not.
        assert float(cpg_regret_gapless_bound(len(means), variance, horizon, error)) <= printed * (1 + SLACK)


# Against play


def in_state(world: SyntheticWorld, z: Any) -> ShiftedLatents:
    """Make a world of which every instance has latent state z: no spread in the population, and a shift to z."""
    return ShiftedLatents(dataclasses.replace(world, latent_std=jnp.asarray(0.0)), jnp.asarray(z))


HORIZON, RUNS, K = 150, 100, 4  # the same in all tests of play, so that they share one compiled program


def played_regret(world: SyntheticWorld, z: Any, model: LatentModel, seed: int) -> np.ndarray:
    """Give the regret of many runs of one latent state."""
    return simulate(jr.key(seed), in_state(world, z), policy_on(model, "CPG"), RUNS, HORIZON).regret.sum(axis=1)


def standard_error(sample: np.ndarray) -> float:
    return sample.std(ddof=1) / np.sqrt(len(sample))


def test_play_with_two_actions_costs_what_normal_probabilities_say() -> None:
    noise_std = 0.5
    pair = jnp.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
    theta = jnp.concatenate([pair, pair])  # each twice, which changes nothing: ties go to the first
    world = dataclasses.replace(
        draw_world(jr.key(0), latent_dim=3, actions=K, noise=GaussianNoise(as_real(noise_std))),
        reward=LinearReward.known(theta, jnp.zeros(K)),
    )
    for z in ([0.5, 0.1, 0.0], [1.0, 0.0, 1.0]):
        means = np.asarray(pair @ jnp.array(z))
        exact = exact_two_action_regret(np.ptp(means), noise_std, float(np.linalg.norm(pair[0] - pair[1])), HORIZON)
        played = np.concatenate([played_regret(world, z, world.oracle(), seed) for seed in range(10)])
        assert abs(played.mean() - exact) < 4 * standard_error(played)
        assert exact <= float(cpg_regret_sum_bound(means, noise_std**2, HORIZON))


@pytest.mark.parametrize("noise_std", [0.2, 1.0])
def test_cpg_regret_is_below_its_theorem_bound_for_every_instance(noise_std: float) -> None:
    world = draw_world(jr.key(1), latent_dim=3, actions=K, noise=GaussianNoise(as_real(noise_std)))
    oracle = world.oracle()
    for number in range(20):
        z = world.sample_instance(jr.key(number))
        given_instance = world.mean_rewards(z), noise_std**2, HORIZON
        played = played_regret(world, z, oracle, seed=number)
        surely = played.mean() - 4 * standard_error(played)
        assert surely <= float(cpg_regret_sum_bound(*given_instance))
        assert surely <= float(cpg_regret_bound(*given_instance))
        assert surely <= float(cpg_regret_gapless_bound(K, noise_std**2, HORIZON))


def test_cpg_regret_with_a_wrong_model_is_below_the_bound_in_both_cases() -> None:
    noise_std = 0.5
    world = draw_world(jr.key(2), latent_dim=3, actions=K, noise=GaussianNoise(as_real(noise_std)))
    oracle = world.oracle()
    cases = set()
    for number in range(12):
        z = world.sample_instance(jr.key(number))
        means = world.mean_rewards(z)
        for error in (0.1, 0.6):
            # The worst model within the error: it praises every action but the best.
            praise = jnp.where(means == means.max(), -error, error)
            model = LatentModel(oracle.encoder, LinearReward.known(linear(oracle.reward).theta, praise), oracle.noise)
            played = played_regret(world, z, model, seed=number)
            surely = played.mean() - 4 * standard_error(played)
            given_instance = means, noise_std**2, HORIZON, error
            cases.add(2 * error >= float(gaps(means).smallest))
            assert surely <= float(cpg_regret_bound(*given_instance))
            assert surely <= float(cpg_regret_sum_bound(*given_instance))
            assert surely <= float(cpg_regret_gapless_bound(K, noise_std**2, HORIZON, error))
    assert cases == {False, True}


# FPG's estimator


THETA = jnp.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, -1.0, 1.0], [0.2, 0.3, -0.5]])
PULLS = jnp.array([5, 2, 0, 1])
SPREAD = jnp.array([[1.0, 0.4, 0.0], [0.4, 0.8, -0.2], [0.0, -0.2, 0.5]])
REWARD_VARIANCE = jnp.array([0.25, 1.0, 0.5, 2.0])
ROUNDS = 9  # one context more than rewards: the moment of the ninth decision


@partial(jax.jit, static_argnums=0)
def fpg_errors(runs: int, bias: Array) -> Array:
    """Draw by how much FPG's estimate of z is off after fixed pulls, `runs` times, by the code of the policy itself."""
    intercept = jnp.array([0.3, -1.0, 2.0, 0.0])
    levels = NoiseLevels(SPREAD, jnp.zeros(3), jnp.eye(3), REWARD_VARIANCE, jnp.asarray(0.0))
    belief = PrintedBelief(LatentModel(IdentityEncoder(), LinearReward.known(THETA, intercept), levels))
    z, half = jnp.array([1.0, -2.0, 0.5]), jnp.linalg.cholesky(SPREAD)
    actions = jnp.repeat(jnp.arange(4), PULLS, total_repeat_length=ROUNDS - 1)

    def error(key: PRNGKeyArray) -> Array:
        key_contexts, key_rewards = jr.split(key)
        contexts = (z + bias)[None] + jr.normal(key_contexts, (ROUNDS, 3)) @ half.T
        noise = jnp.sqrt(REWARD_VARIANCE[actions]) * jr.normal(key_rewards, (ROUNDS - 1,))
        history = Step(contexts[:-1], actions, (THETA @ z + intercept)[actions] + noise)

        def play_round(state: Any, step: Step) -> tuple[Any, None]:
            return belief.learn(belief.observe(state, step.context), step), None

        state, _ = jax.lax.scan(play_round, belief.init(), history)
        state = belief.observe(state, contexts[-1])
        return belief.believe(state).z - z

    return jax.vmap(error)(jr.split(jr.key(5), runs))


@pytest.mark.parametrize("bias", [[0.0, 0.0, 0.0], [0.5, -1.0, 2.0]], ids=["optimal encoder", "biased encoder"])
def test_fpg_estimates_have_the_mean_and_covariance_of_the_lemma(bias: list[float]) -> None:
    runs = 20_000
    lemma = fpg_estimator(THETA, PULLS, ROUNDS, SPREAD, REWARD_VARIANCE)
    covariance = np.asarray(lemma.covariance, dtype=float)
    off = np.asarray(fpg_errors(runs, jnp.array(bias)), dtype=float)
    scale = np.sqrt(np.diag(covariance))
    assert (np.abs(off.mean(axis=0) - lemma.bias_map @ jnp.array(bias)) < 4 * scale / np.sqrt(runs)).all()
    # The variance of a sample covariance of normals is (C_ii C_jj + C_ij²) / runs.
    spread = np.sqrt((np.outer(scale, scale) ** 2 + covariance**2) / runs)
    assert (np.abs(np.cov(off.T) - covariance) < 4 * spread).all()
    whitened = (off - off.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    assert stats.kstest(whitened.ravel(), "norm").pvalue > 1e-4


def test_without_rewards_fpg_is_the_mean_encoding() -> None:
    lemma = fpg_estimator(THETA, jnp.zeros(4), ROUNDS, SPREAD, REWARD_VARIANCE)
    np.testing.assert_allclose(lemma.bias_map, np.eye(3), atol=1e-6)
    np.testing.assert_allclose(lemma.covariance, SPREAD / ROUNDS, rtol=1e-6)


def test_rewards_take_an_encoders_bias_away_in_the_directions_that_were_played() -> None:
    theta = jnp.concatenate([jnp.eye(3), jnp.zeros((1, 3))])
    lemma = fpg_estimator(theta, jnp.array([99, 0, 4, 50]), 154, SPREAD, REWARD_VARIANCE)
    np.testing.assert_allclose(lemma.bias_map @ jnp.ones(3), [0.01, 1.0, 0.2], rtol=1e-5)
