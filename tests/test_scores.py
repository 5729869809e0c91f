"""Scores of a fit (Table tab:test), each against scikit-learn, a plain loop, or a case where the answer is known."""

import time
from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from ilb.environments import Recording, UniformLogging, draw_world, record
from ilb.errors import FitError
from ilb.estimates import Estimate, jackknife, r_squared
from ilb.logs import Logs
from ilb.offline.fit import complete_model
from ilb.offline.scores import (
    Truth,
    affine_correlation,
    align,
    mean_correlation,
    reference_models,
    score_model,
    share_of_best,
)
from narrowed import known, linear

WORLD = draw_world(jr.key(0), latent_dim=3, actions=4)


@pytest.fixture(scope="module")
def training() -> Recording:
    return record(jr.key(1), WORLD, UniformLogging(4), instances=40, length=30)


@pytest.fixture(scope="module")
def test_set() -> Recording:
    return record(jr.key(2), WORLD, UniformLogging(4), instances=40, length=30)


def truth_of(recording: Recording) -> Truth:
    return Truth(recording.latents, recording.mean_rewards)


def leave_one_out(statistic: Callable[[list[int]], float], instances: int) -> np.ndarray:
    """The jackknife by its definition: (n - 1) / n times the squared deviations of the n values without one."""
    values = [statistic([other for other in range(instances) if other != one]) for one in range(instances)]
    mean = sum(values) / instances
    return np.sqrt((instances - 1) / instances * sum((value - mean) ** 2 for value in values))


# Standard errors


def test_the_jackknife_of_a_mean_is_its_classical_standard_error() -> None:
    values = np.random.default_rng(0).gamma(2.0, size=25)
    score = jackknife(lambda index: float(values[index].mean()), 25)
    np.testing.assert_allclose((score.value, score.standard_error), (values.mean(), values.std(ddof=1) / 5), rtol=1e-12)


def test_a_standard_error_covers_the_spread_over_repeated_test_sets() -> None:
    rng = np.random.default_rng(1)
    instance = np.repeat(np.arange(40), 5)
    scores = []
    for _ in range(200):
        effect = rng.normal(size=40)[instance]  # shared within an instance, so rows are far from independent
        target = effect + 0.3 * rng.normal(size=200)
        scores.append(r_squared(0.5 * effect, target, instance))
    values, errors = np.array([(score.value, score.standard_error) for score in scores]).T
    # The deviation of 200 values is off by 5 %; the jackknife errs on the large side for small samples.
    assert 0.8 < np.sqrt(np.mean(errors**2)) / values.std() < 1.4


def test_a_single_instance_has_a_score_but_no_standard_error() -> None:
    score = share_of_best(np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]]), np.array([0]))
    assert score.value == 1.0
    assert np.isnan(score.standard_error)
    score = r_squared(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]), np.zeros(3))
    np.testing.assert_allclose(score.value, r2_score([1, 2, 4], [1, 2, 3]))
    assert np.isnan(score.standard_error)


def test_scoring_many_instances_takes_time_in_proportion() -> None:
    """Logs of 100,000 instances must be scored too: leaving one out is a subtraction."""
    rng = np.random.default_rng(2)
    instance = np.repeat(np.arange(8_000), 2)
    target = rng.normal(size=16_000)
    begin = time.process_time()
    r_squared(target + 1.0, target, instance)
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize("instances", [2, 7])
def test_a_score_counts_the_instances_it_rests_on(instances: int) -> None:
    by_sums = r_squared(np.arange(2.0 * instances), np.arange(2.0 * instances), np.repeat(np.arange(instances), 2))
    assert by_sums.count == instances
    assert jackknife(lambda index: float(index.sum()), instances).count == instances


# R squared


def test_r_squared_and_its_standard_error_equal_a_slow_leave_one_out() -> None:
    rng = np.random.default_rng(3)
    instance = rng.permutation(np.repeat([3, 7, 8, 20, 21, 40], [1, 2, 5, 9, 3, 4]))  # unsorted, unequal, with gaps
    target = 1000.0 + rng.normal(size=24)
    estimate = target + 0.5 * rng.normal(size=24)
    score = r_squared(estimate, target, instance)
    labels = np.unique(instance)

    def without(index: list[int]) -> float:
        rows = np.isin(instance, labels[index])
        return r2_score(target[rows], estimate[rows])

    np.testing.assert_allclose(score.value, r2_score(target, estimate), rtol=1e-9)
    np.testing.assert_allclose(score.standard_error, leave_one_out(without, 6), rtol=1e-9)


def test_r_squared_has_its_landmarks() -> None:
    target, instance = np.random.default_rng(4).normal(size=30), np.repeat(np.arange(10), 3)
    assert r_squared(target, target, instance) == Estimate(1.0, 0.0, 10)
    np.testing.assert_allclose(r_squared(np.full(30, target.mean()), target, instance).value, 0.0, atol=1e-12)
    assert r_squared(-target, target, instance).value < -1


def test_r_squared_of_rewards_that_never_vary_is_not_a_success() -> None:
    instance = np.repeat(np.arange(3), 2)
    score = r_squared(np.arange(6.0), np.full(6, 2.0), instance)
    assert not score.value > 0


# Best actions


def test_share_of_best_is_counted_by_hand() -> None:
    truth = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [0.0, 5.0, 1.0], [1.0, 0.0, 0.5]])
    estimate = np.array([[0.0, 0.1, 0.2], [9.0, 1.0, 1.0], [4.0, 3.0, 1.0], [-1.0, -2.0, -3.0]])
    score = share_of_best(estimate, truth, np.arange(4))
    assert score.value == 0.75
    np.testing.assert_allclose(score.standard_error, np.std([1, 1, 0, 1], ddof=1) / 2)


# Latent states


@pytest.mark.parametrize("family", ["laplace", "uniform"])
def test_mean_correlation_is_one_for_independent_sources_in_any_order_and_sign(family: str) -> None:
    rng = np.random.default_rng(5)
    latents = getattr(rng, family)(size=(5000, 3)) - (0.5 if family == "uniform" else 0.0)
    encodings = latents[:, [2, 0, 1]] * [-1.0, 2.0, -3.0] + 1.0
    assert mean_correlation(encodings, encodings[:200], latents[:200]).value > 0.99
    mixed = encodings @ rng.normal(size=(3, 3))  # ICA undoes any linear mixing of such sources
    assert mean_correlation(mixed, mixed[:200], latents[:200]).value > 0.99


def test_mean_correlation_of_gaussian_latents_is_below_one_though_the_affine_score_is_one() -> None:
    rng = np.random.default_rng(6)
    latents = rng.normal(size=(2000, 5))
    encodings = latents @ ortho_group.rvs(5, random_state=0)
    held_out = slice(0, 200)
    assert mean_correlation(encodings, encodings[held_out], latents[held_out]).value < 0.95
    aligned = align(encodings, latents)(encodings[held_out])
    np.testing.assert_allclose(affine_correlation(aligned, latents[held_out]).value, 1.0, atol=1e-9)


def test_mean_correlation_matches_each_coordinate_once() -> None:
    """One source twice can't score for two: without matching, the best correlations would both be 1."""
    rng = np.random.default_rng(7)
    latents = rng.laplace(size=(4000, 2))
    encodings = np.stack([latents[:, 0], latents[:, 0] + 1e-2 * rng.laplace(size=4000)], axis=1)
    assert mean_correlation(encodings, encodings[:500], latents[:500]).value < 0.65


def test_mean_correlation_and_its_error_equal_a_slow_leave_one_out() -> None:
    rng = np.random.default_rng(8)
    latents = rng.laplace(size=(3000, 2))
    encodings = latents + 0.3 * rng.normal(size=(3000, 2))
    score = mean_correlation(encodings, encodings[:12], latents[:12])

    # ICA leaves the coordinates as they are here, but for order, sign and a slight rotation.
    def without(index: list[int]) -> float:
        return np.mean([abs(np.corrcoef(encodings[index, j], latents[index, j])[0, 1]) for j in range(2)])

    np.testing.assert_allclose(score.value, without(list(range(12))), atol=0.02)
    np.testing.assert_allclose(score.standard_error, leave_one_out(without, 12), rtol=0.2)


def test_an_encoder_with_a_dead_coordinate_can_be_scored() -> None:
    rng = np.random.default_rng(9)
    latents = rng.laplace(size=(1000, 2))
    encodings = latents * [1.0, 0.0] + 1.0
    score = mean_correlation(encodings, encodings[:100], latents[:100])
    assert 0.4 < score.value < 0.7  # one coordinate is found, the other one is not


def test_alignment_is_exact_for_an_affine_image_and_blind_to_the_basis() -> None:
    rng = np.random.default_rng(10)
    latents, shift = rng.normal(size=(60, 3)), np.array([5.0, -3.0, 0.0])
    image = latents @ rng.normal(size=(3, 3)) + shift
    np.testing.assert_allclose(align(image[:30], latents[:30])(image[30:]), latents[30:], atol=1e-10)
    noisy = latents + 0.3 * rng.normal(size=(60, 3))
    moved = noisy @ rng.normal(size=(3, 3)) + shift
    first, second = (align(one[:30], latents[:30])(one[30:]) for one in (noisy, moved))
    np.testing.assert_allclose(first, second, atol=1e-10)
    np.testing.assert_allclose(first, LinearRegression().fit(noisy[:30], latents[:30]).predict(noisy[30:]), atol=1e-10)


def test_alignment_works_with_more_encodings_than_latent_coordinates() -> None:
    rng = np.random.default_rng(11)
    latents = rng.normal(size=(60, 2))
    image = latents @ rng.normal(size=(2, 5))
    np.testing.assert_allclose(align(image[:30], latents[:30])(image[30:]), latents[30:], atol=1e-10)


def test_affine_correlation_and_its_error_equal_a_slow_leave_one_out() -> None:
    rng = np.random.default_rng(12)
    latents = rng.normal(size=(15, 2))
    aligned = latents + 0.5 * rng.normal(size=(15, 2))
    aligned[:, 1] -= 2 * latents[:, 1]  # a sign that is wrong after alignment counts against the score

    def without(index: list[int]) -> float:
        return np.mean([np.corrcoef(aligned[index, j], latents[index, j])[0, 1] for j in range(2)])

    score = affine_correlation(aligned, latents)
    np.testing.assert_allclose(score.value, without(list(range(15))), rtol=1e-9)
    np.testing.assert_allclose(score.standard_error, leave_one_out(without, 15), rtol=1e-9)


# Models


def invert(contexts: np.ndarray) -> np.ndarray:
    """The inverse of the two-layer emission, in NumPy."""
    turned = contexts @ np.asarray(WORLD.mixing.matrices[0])
    return np.where(turned > 0, turned, turned / 0.2)


def mean_by_instance(values: np.ndarray, logs: Logs) -> np.ndarray:
    return np.array([values[logs.instance == number].mean(axis=0) for number in range(logs.instances)])


def test_scores_of_an_oracle_equal_a_computation_by_brute_force(training: Recording, test_set: Recording) -> None:
    model = complete_model(WORLD.oracle().encoder, training.logs)
    scores = score_model(model, test_set.logs, truth_of(test_set), (training.logs, truth_of(training)))
    logs = test_set.logs
    train_means, means = (mean_by_instance(invert(one.logs.context), one.logs) for one in (training, test_set))
    values = means @ np.asarray(linear(model.reward).theta).T + np.asarray(linear(model.reward).intercept)
    predicted = [values[logs.instance[row], logs.action[row]] for row in range(logs.rows)]
    aligned = LinearRegression().fit(train_means, training.latents).predict(means)
    right = [np.argmax(values[i]) == np.argmax(test_set.mean_rewards[i]) for i in range(40)]
    correlations = [np.corrcoef(aligned[:, j], test_set.latents[:, j])[0, 1] for j in range(3)]
    pooled = "variance_weighted"
    expected = {
        "reward_r2": r2_score(logs.reward, predicted),
        "potential_r2": r2_score(test_set.mean_rewards.ravel(), values.ravel()),
        "best_action": np.mean(right),
        "affine_mcc": np.mean(correlations),
        "affine_r2": r2_score(test_set.latents, aligned, multioutput=pooled),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(scores, name).value, value, atol=1e-4, err_msg=name)
    assert 0.3 < known(scores.mcc).value <= known(scores.affine_mcc).value
    assert all(0 < known(score).standard_error < 0.1 for score in scores)


def test_scores_that_need_the_truth_are_left_out_without_it(training: Recording, test_set: Recording) -> None:
    model = complete_model(WORLD.oracle().encoder, training.logs)
    observed = score_model(model, test_set.logs)
    assert observed[1:] == (None,) * 5
    partial = score_model(model, test_set.logs, truth_of(test_set))
    assert partial[3:] == (None,) * 3
    assert partial.reward_r2 == observed.reward_r2


def test_rows_without_reward_or_action_still_encode_but_are_not_scored(
    training: Recording, test_set: Recording
) -> None:
    model = complete_model(WORLD.oracle().encoder, training.logs)
    rng, logs = np.random.default_rng(13), test_set.logs
    reward = np.where(rng.random(logs.rows) < 0.3, np.nan, logs.reward)
    action = np.where(rng.random(logs.rows) < 0.3, -1, logs.action)
    reward[logs.instance == 5] = np.nan  # an instance without any reward
    gaps = Logs.from_arrays(logs.context, action, reward, instance=logs.instance, actions=4)
    score = score_model(model, gaps).reward_r2
    means = mean_by_instance(invert(logs.context), logs)
    values = means @ np.asarray(linear(model.reward).theta).T + np.asarray(linear(model.reward).intercept)
    seen = (action >= 0) & ~np.isnan(reward)
    expected = r2_score(reward[seen], values[logs.instance[seen], action[seen]])
    np.testing.assert_allclose(score.value, expected, atol=1e-4)


def test_logs_without_any_reward_can_not_be_scored(training: Recording) -> None:
    model = complete_model(WORLD.oracle().encoder, training.logs)
    logs = training.logs
    blank = Logs.from_arrays(logs.context, logs.action, np.full(logs.rows, np.nan), instance=logs.instance, actions=4)
    with pytest.raises(FitError, match="to score against"):
        score_model(model, blank)


def test_reference_lines_are_ordered_as_what_they_know(training: Recording, test_set: Recording) -> None:
    references = reference_models(training.logs, WORLD.oracle().encoder)
    assert list(references) == ["oracle", "mean contexts", "best on average"]
    scores = {name: score_model(model, test_set.logs, truth_of(test_set)) for name, model in references.items()}
    for score in ("reward_r2", "potential_r2"):
        values = [getattr(scores[name], score).value for name in references]
        assert values[0] > values[1] > values[2]
    assert scores["oracle"].reward_r2.value > 0.65  # 0.8 is the limit; the mean of 30 encodings takes 0.03
    assert abs(scores["best on average"].reward_r2.value) < 0.1


def test_the_oracle_is_left_out_where_nobody_knows_it(training: Recording) -> None:
    assert list(reference_models(training.logs)) == ["mean contexts", "best on average"]


def test_best_on_average_predicts_the_mean_of_each_action_for_everybody(
    training: Recording, test_set: Recording
) -> None:
    model = reference_models(training.logs)["best on average"]
    logs = training.logs
    means = [logs.reward[logs.action == action].mean() for action in range(4)]
    for context in test_set.logs.context[:3]:
        np.testing.assert_allclose(model.reward(model.encoder(jnp.asarray(context))), means, atol=1e-5)
    scores = score_model(model, test_set.logs, truth_of(test_set))
    assert known(scores.best_action).value == np.mean(test_set.mean_rewards.argmax(axis=1) == np.argmax(means))


def test_noise_levels_of_every_reference_fit_its_encodings(training: Recording) -> None:
    for name, model in reference_models(training.logs, WORLD.oracle().encoder).items():
        dim = model.encoder(jnp.asarray(training.logs.context[0])).shape[0]
        assert model.noise.population_mean.shape == (dim,), name
        assert model.noise.encoding_covariance.shape == (dim, dim), name


def test_mean_contexts_is_least_squares_on_the_mean_context(training: Recording) -> None:
    model = reference_models(training.logs)["mean contexts"]
    logs = training.logs
    means = mean_by_instance(logs.context, logs)
    for action in range(4):
        rows = logs.action == action
        fitted = LinearRegression().fit(means[logs.instance[rows]], logs.reward[rows])
        np.testing.assert_allclose(linear(model.reward).theta[action], fitted.coef_, atol=1e-3)
        np.testing.assert_allclose(linear(model.reward).intercept[action], fitted.intercept_, atol=1e-3)


def test_an_action_that_was_never_logged_is_predicted_the_overall_mean() -> None:
    rng = np.random.default_rng(14)
    context, action, reward = rng.normal(size=(30, 20, 2)), rng.integers(0, 2, (30, 20)), rng.normal(size=(30, 20))
    logs = Logs.from_arrays(context, action, reward, actions=3)
    model = reference_models(logs)["best on average"]
    assert linear(model.reward).intercept.shape == (3,)
    np.testing.assert_allclose(linear(model.reward).intercept[2], reward.mean(), atol=1e-5)
