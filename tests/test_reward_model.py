"""Least squares for each action on mean encodings (thm:reward): coefficients, their errors, variances, rare actions."""

import warnings
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from ilb.environments import GaussianNoise, draw_confounded_logging, draw_world, record
from ilb.errors import FitError, RareActionWarning
from ilb.logs import Logs
from ilb.offline.encodings import encode_contexts, instance_means, measure_scatter
from ilb.offline.rewards.linear import _prior, fit_linear_reward
from ilb.offline.rewards.recipe import (
    Cells,
    RewardFit,
    measure_leftover_variance,
    measure_reward_variance,
    reward_cells,
)
from ilb.types import as_real
from narrowed import linear


class Case(NamedTuple):
    """Latent states, and coefficients (theta, intercept) of each action."""

    z: np.ndarray
    coefficients: np.ndarray

    @property
    def values(self) -> np.ndarray:
        return self.z @ self.coefficients[:, :-1].T + self.coefficients[:, -1]


def draw_case(rng: np.random.Generator, instances: int = 60, dim: int = 2, actions: int = 3) -> Case:
    return Case(rng.normal(size=(instances, dim)), rng.normal(size=(actions, dim + 1)))


def play(
    rng: np.random.Generator, case: Case, action: np.ndarray, reward_std: Any = 0.5, effect_std: float = 0.0
) -> np.ndarray:
    """Rewards of the logged actions [I, T]; `reward_std` may differ between actions."""
    effects = effect_std * rng.normal(size=case.values.shape)
    mean = np.take_along_axis(case.values + effects, action, axis=1)
    return mean + np.broadcast_to(reward_std, len(case.coefficients))[action] * rng.normal(size=action.shape)


def logged(action: np.ndarray, reward: np.ndarray, actions: int) -> Logs:
    return Logs.from_arrays(np.zeros((*action.shape, 1)), action, reward, actions=actions)


def cells_of(action: np.ndarray, reward: np.ndarray, actions: int) -> Cells:
    return reward_cells(logged(action, reward, actions))


def coefficients_of(fitted: RewardFit) -> np.ndarray:
    return np.concatenate(
        [np.asarray(linear(fitted.reward).theta), np.asarray(linear(fitted.reward).intercept)[:, None]], axis=1
    )


def predictions(fitted: RewardFit, encodings: np.ndarray) -> np.ndarray:
    coefficients = coefficients_of(fitted).astype(np.float64)
    return encodings @ coefficients[:, :-1].T + coefficients[:, -1]


# Cells


def test_cells_are_the_sums_over_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    action, reward = rng.integers(0, 3, (6, 10)), rng.normal(size=(6, 10))
    cells = cells_of(action, reward, 4)
    expected = {}
    for instance in range(6):
        for a in range(4):
            values = np.float32(reward[instance][action[instance] == a]).astype(float)
            if len(values):
                expected[instance, a] = (len(values), values.mean(), ((values - values.mean()) ** 2).sum())
    assert list(zip(cells.instance.tolist(), cells.action.tolist(), strict=True)) == sorted(expected)
    found = np.stack([cells.rows, cells.mean, cells.deviation], axis=1)
    np.testing.assert_allclose(found, [expected[cell] for cell in sorted(expected)], atol=1e-12)


def test_rows_without_reward_or_action_are_ignored() -> None:
    rng = np.random.default_rng(1)
    action, reward = rng.integers(0, 3, (20, 10)), rng.normal(size=(20, 10))
    instance = np.repeat(np.arange(20), 10)
    kept = rng.random((20, 10)) < 0.7
    no_reward = ~kept & (rng.random((20, 10)) < 0.5)
    with_gaps = cells_of(
        np.where(kept | no_reward, action, -1), np.where(no_reward, np.nan, reward), 3
    )  # a gap is a missing reward or a missing action
    without = reward_cells(
        Logs.from_arrays(np.zeros((kept.sum(), 1)), action[kept], reward[kept], instance[kept.ravel()], actions=3)
    )
    for one, other in zip(with_gaps, without, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rewarded_rows_have_both_an_action_and_a_reward() -> None:
    logs = Logs.from_arrays(np.zeros((2, 2, 1)), [[0, -1], [1, 0]], [[1.0, 2.0], [np.nan, 0.0]])
    np.testing.assert_array_equal(logs.rewarded, [True, False, False, True])
    logs.require_any_reward()


def test_logs_without_any_reward_are_refused_by_column() -> None:
    with pytest.raises(FitError, match=r"no row has both an action \(column 'action'\) and a reward"):
        cells_of(np.array([[0, -1]]), np.array([[np.nan, 1.0]]), 2)


# Coefficients


@pytest.mark.parametrize("effect_std", [0.0, 1.0])
def test_coefficients_are_those_of_least_squares_on_the_rows(effect_std: float) -> None:
    rng = np.random.default_rng(2)
    case = draw_case(rng)
    action = rng.integers(0, 3, (60, 20))
    reward = play(rng, case, action, effect_std=effect_std)
    fitted = fit_linear_reward(case.z, cells_of(action, reward, 3), range(3))
    instance = np.repeat(np.arange(60), 20)
    for a in range(3):
        rows = action.ravel() == a
        reference = LinearRegression().fit(case.z[instance[rows]], reward.ravel()[rows])
        np.testing.assert_allclose(linear(fitted.reward).theta[a], reference.coef_, atol=1e-5)
        np.testing.assert_allclose(linear(fitted.reward).intercept[a], reference.intercept_, atol=1e-5)


def test_an_affine_change_of_encodings_leaves_predictions_and_variances_unchanged() -> None:
    rng = np.random.default_rng(3)
    case = draw_case(rng)
    action = rng.integers(0, 3, (60, 20))
    cells = cells_of(action, play(rng, case, action, effect_std=0.5), 3)
    matrix, shift, W = rng.normal(size=(2, 2)), np.array([3.0, -2.0]), np.array([[0.5, 0.2], [0.2, 1.0]])
    lengths = np.full(60, 20)
    moved = case.z @ matrix + shift
    first = fit_linear_reward(case.z, cells, range(3), W, lengths)
    second = fit_linear_reward(moved, cells, range(3), matrix.T @ W @ matrix, lengths)
    np.testing.assert_allclose(predictions(first, case.z), predictions(second, moved), atol=1e-4)
    np.testing.assert_allclose(first.reward_variance, second.reward_variance, rtol=1e-10)
    np.testing.assert_allclose(first.leftover_variance, second.leftover_variance, rtol=1e-6)

    def prediction_variances(fitted: RewardFit, encodings: np.ndarray) -> np.ndarray:
        rows = np.concatenate([encodings, np.ones((60, 1))], axis=1)
        return np.einsum("ti,aij,tj->ta", rows, np.asarray(linear(fitted.reward).coefficient_covariance, float), rows)

    np.testing.assert_allclose(prediction_variances(first, case.z), prediction_variances(second, moved), rtol=1e-2)


def test_encodings_far_from_zero_do_not_spoil_the_fit() -> None:
    """An unscaled column such as a year or a pressure: its mean is many thousand standard deviations."""
    rng = np.random.default_rng(4)
    case = draw_case(rng)
    action = rng.integers(0, 3, (60, 20))
    cells = cells_of(action, play(rng, case, action), 3)
    near, far = (fit_linear_reward(case.z + shift, cells, range(3)) for shift in (0.0, 10_000.0))
    # The float32 coefficients alone allow 1e4 * 2^-24 * |theta| of error.
    np.testing.assert_allclose(predictions(near, case.z), predictions(far, case.z + 10_000.0), atol=0.01)
    np.testing.assert_allclose(
        linear(near.reward).standard_errors[:, :2], linear(far.reward).standard_errors[:, :2], rtol=0.01
    )


def test_an_affine_change_of_encodings_leaves_the_shrinkage_of_rare_actions_unchanged() -> None:
    rng = np.random.default_rng(5)
    case = draw_case(rng, actions=6)
    action = rng.integers(0, 5, (60, 20))
    action[:4, 0] = 5
    cells = cells_of(action, play(rng, case, action), 6)
    matrix, shift = rng.normal(size=(2, 2)), np.array([3.0, -2.0])
    moved = case.z @ matrix + shift
    with pytest.warns(RareActionWarning):
        first = fit_linear_reward(case.z, cells, range(6))
    with pytest.warns(RareActionWarning):
        second = fit_linear_reward(moved, cells, range(6))
    np.testing.assert_allclose(predictions(first, case.z)[:, 5], predictions(second, moved)[:, 5], atol=1e-3)


# Standard errors


def replications(
    rng: np.random.Generator,
    number: int,
    reward_std: Any = 0.5,
    effect_std: float = 0.0,
    encoding_std: float = 0.0,
    once: bool = False,
) -> tuple[np.ndarray, np.ndarray, Case]:
    """Estimates and standard errors [number, K, n + 1] for one design, with new noise each time."""
    instances, length, actions = 60, 12, 3
    case = draw_case(rng, instances, 2, actions)
    if once:  # no instance meets the same action twice
        action, length = np.argsort(rng.random((instances, actions)), axis=1), actions
    else:
        action = rng.choice(actions, p=[0.5, 0.3, 0.2], size=(instances, length))
    W, lengths = encoding_std**2 * np.eye(2), np.full(instances, length)
    estimates, errors = [], []
    for _ in range(number):
        encodings = case.z + encoding_std / np.sqrt(length) * rng.normal(size=case.z.shape)
        cells = cells_of(action, play(rng, case, action, reward_std, effect_std), actions)
        fitted = fit_linear_reward(encodings, cells, range(actions), W, lengths)
        estimates.append(coefficients_of(fitted))
        errors.append(np.asarray(linear(fitted.reward).standard_errors))
    return np.array(estimates), np.array(errors), case


@pytest.mark.parametrize(
    "noise",
    [
        {"reward_std": 0.5},
        {"reward_std": np.array([0.3, 0.5, 0.8])},
        {"reward_std": 0.5, "effect_std": 0.5},
        {"reward_std": 0.5, "encoding_std": 1.0},
        {"reward_std": 0.5, "once": True},
    ],
    ids=["plain", "by action", "effects", "noisy encodings", "each action once"],
)
def test_standard_errors_are_the_standard_deviations_over_replications(noise: dict[str, Any]) -> None:
    estimates, errors, _ = replications(np.random.default_rng(6), 200, **noise)
    ratio = np.sqrt(np.mean(errors**2, axis=0)) / estimates.std(axis=0, ddof=1)
    # An empirical standard deviation of 200 draws is off by 5 %; the nine ratios are averaged, and each is bounded.
    assert np.all(np.abs(np.log(ratio)) < 0.2)
    assert abs(np.log(ratio).mean()) < 0.08


def test_coefficients_have_no_bias_when_encodings_are_exact() -> None:
    estimates, errors, case = replications(np.random.default_rng(7), 100, effect_std=0.5)
    z_scores = (estimates - case.coefficients).mean(axis=0) / (errors.mean(axis=0) / np.sqrt(100))
    assert np.all(np.abs(z_scores) < 4)  # nine standard normals


def test_confounded_logging_leaves_the_coefficients_unbiased() -> None:
    """thm:reward: given z the action does not matter, whatever it depended on."""
    deviations, naive = [], []
    for seed in range(12):
        key_world, key_logging, key_record = jr.split(jr.key(seed), 3)
        # Little noise: that of a mean encoding of 30 contexts shrinks the slopes, which is no matter of confounding.
        world = draw_world(key_world, latent_dim=3, actions=4, noise=GaussianNoise(as_real(0.4)))
        logging = draw_confounded_logging(key_logging, world, strength=0.7)
        logs = record(key_record, world, logging, instances=40, length=30).logs
        encodings = encode_contexts(world.oracle().encoder, logs.context).astype(float)
        W = measure_scatter(encodings, logs.starts).encoding_covariance
        mean_encodings = instance_means(encodings, logs.starts)
        fitted = fit_linear_reward(mean_encodings, reward_cells(logs), range(4), W, logs.lengths)
        truth = np.concatenate([np.asarray(linear(world.reward).theta), np.zeros((4, 1))], axis=1)
        deviations.append((coefficients_of(fitted) - truth) / np.asarray(linear(fitted.reward).standard_errors))
        naive.append([logs.reward[logs.action == a].mean() for a in range(4)])
    scores = np.array(deviations)
    assert abs(scores.mean()) < 4 / np.sqrt(scores.size)
    assert abs(scores.std() - 1) < 4 / np.sqrt(2 * scores.size)
    # The mean reward of each action is 0 in the population; in the logs it is far from it, so confounding was at work.
    assert np.std(naive) > 0.2


# Variances


def test_reward_variances_are_recovered_for_each_action_whatever_the_model_misses() -> None:
    rng = np.random.default_rng(8)
    case, stds = draw_case(rng, instances=200), np.array([0.2, 0.5, 1.0])
    action = rng.integers(0, 3, (200, 30))
    fitted = fit_linear_reward(case.z, cells_of(action, play(rng, case, action, stds, effect_std=2.0), 3), range(3))
    freedom = 200 * 9  # about ten rewards in each cell, one spent on its mean
    # Ten rows' weight of the pooled variance (at most 1 for each action) is less than a percent of 1.
    bound = 4 * np.sqrt(2 / freedom) * stds**2 + 10 / freedom
    assert np.all(np.abs(fitted.reward_variance - stds**2) < bound)


def test_reward_variance_does_not_count_what_the_model_explains_when_no_action_is_repeated() -> None:
    rng = np.random.default_rng(9)
    case = draw_case(rng, instances=500)
    action = np.argsort(rng.random((500, 3)), axis=1)
    fitted = fit_linear_reward(case.z, cells_of(action, play(rng, case, action), 3), range(3))
    # Noise and effects can't be told apart here, but their sum can be measured: 500 residuals for each action.
    total = fitted.reward_variance + fitted.leftover_variance
    assert np.all(np.abs(total - 0.25) < 4 * 0.25 * np.sqrt(2 / 500))


def test_without_repeated_actions_all_that_least_squares_leaves_is_taken_as_noise() -> None:
    rng = np.random.default_rng(23)
    case = draw_case(rng, instances=120)
    action = np.arange(120)[:, None] % 3
    reward = play(rng, case, action)
    fitted = fit_linear_reward(case.z, cells_of(action, reward, 3), range(3))
    squares = 0.0
    for a in range(3):
        z, r = case.z[action[:, 0] == a], reward[action == a]
        squares += np.sum((r - LinearRegression().fit(z, r).predict(z)) ** 2)
    np.testing.assert_allclose(fitted.reward_variance, squares / (120 - 9), rtol=1e-4)  # logs hold float32
    assert fitted.leftover_variance == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("effect_variance", [0.0, 0.3])
def test_leftover_variance_is_the_planted_one(effect_variance: float) -> None:
    rng = np.random.default_rng(10)
    case = draw_case(rng, instances=300)
    action = rng.choice(3, p=[0.6, 0.3, 0.1], size=(300, 20))
    cells = cells_of(action, play(rng, case, action, effect_std=np.sqrt(effect_variance)), 3)
    fitted = fit_linear_reward(case.z, cells, range(3))
    spread = effect_variance + 0.25 / cells.rows  # of the mean reward of each cell around the model
    weight = cells.rows / np.sum(cells.rows)
    assert abs(fitted.leftover_variance - effect_variance) < 4 * np.sqrt(np.sum(weight**2 * 2 * spread**2))


def test_leftover_variance_makes_up_for_the_coefficients_that_were_fitted() -> None:
    """With 12 instances and 4 coefficients for each action a third of every residual's square is fitted away."""
    rng = np.random.default_rng(17)
    found, effect_variance, rows = [], 1.0, 5
    action = np.tile(np.repeat(np.arange(3), rows), (12, 1))
    for _ in range(300):
        case = draw_case(rng, instances=12, dim=3)
        cells = cells_of(action, play(rng, case, action, effect_std=np.sqrt(effect_variance)), 3)
        found.append(fit_linear_reward(case.z, cells, range(3)).leftover_variance)
    # 36 cells less 12 coefficients: the deviation of one estimate is about 0.3, so that it is hardly ever clipped at 0.
    bound = 4 * (effect_variance + 0.25 / rows) * np.sqrt(2 / 24) / np.sqrt(300)
    assert abs(np.mean(found) - effect_variance) < bound < 0.1


def test_leftover_variance_of_a_world_without_effects_is_small_on_average() -> None:
    rng = np.random.default_rng(11)
    found = []
    for _ in range(50):
        case = draw_case(rng)
        action = rng.integers(0, 3, (60, 12))
        fitted = fit_linear_reward(case.z, cells_of(action, play(rng, case, action), 3), range(3))
        found.append(fitted.leftover_variance)
    # About 180 cells, each mean with variance 0.25 / 4, so the estimate before clipping at 0 has this deviation.
    deviation = 0.25 / 4 * np.sqrt(2 / 180)
    assert np.mean(found) < 0.4 * deviation + 4 * 0.6 * deviation / np.sqrt(50)
    assert np.mean(np.array(found) == 0.0) > 0.2


@pytest.mark.parametrize("effect_variance", [0.0, 0.2])
def test_noise_of_mean_encodings_is_not_taken_for_leftover_variance(effect_variance: float) -> None:
    rng = np.random.default_rng(12)
    instances, length = 4000, 6
    theta = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, -0.8]])
    case = Case(rng.normal(size=(instances, 2)), np.concatenate([theta, np.zeros((3, 1))], axis=1))
    action = np.tile([0, 0, 1, 1, 2, 2], (instances, 1))
    reward = play(rng, case, action, effect_std=np.sqrt(effect_variance))
    encodings = case.z + rng.normal(size=case.z.shape) / np.sqrt(length)
    fitted = fit_linear_reward(encodings, cells_of(action, reward, 3), range(3), np.eye(2), np.full(instances, length))
    # Noisy regressors also shrink the slopes (by 1 / 7), and what that misses of theta' z is left over: S = 1 here.
    missed = np.mean(np.sum((theta - np.asarray(linear(fitted.reward).theta)) ** 2, axis=1))
    spread = effect_variance + 0.25 / 2 + 1 / length
    assert abs(fitted.leftover_variance - effect_variance - missed) < 4 * np.sqrt(2 / instances) * spread
    assert missed < 0.03  # the noise of the encodings itself would be 1 / 6


# Rare actions


def rare_case(rng: np.random.Generator, rows: int, actions: int = 9) -> tuple[Case, Cells]:
    """Many coefficients around a common mean; the last action is seen in `rows` instances only, once in each."""
    z = rng.normal(size=(80, 2))
    case = Case(z, np.array([1.0, -1.0, 2.0]) + 0.5 * rng.normal(size=(actions, 3)))
    action = rng.integers(0, actions - 1, (80, 40))
    action[:rows, 0] = actions - 1
    return case, cells_of(action, play(rng, case, action), actions)


def fit_quietly(*args: Any) -> RewardFit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RareActionWarning)
        return fit_linear_reward(*args)


def test_a_rare_action_is_named_with_its_rows() -> None:
    case, cells = rare_case(np.random.default_rng(13), rows=4)
    with pytest.warns(
        RareActionWarning,
        match=r"1 of 9 actions have too few rewards, .* for 3 coefficients.*'surgery' \(4 rows of .*\).*shrunk.*drop",
    ):
        fit_linear_reward(case.z, cells, [*"abcdefgh", "surgery"])


def test_a_rare_action_does_not_touch_the_others() -> None:
    rng = np.random.default_rng(14)
    case, cells = rare_case(rng, rows=4)
    common = type(cells)(*(part[cells.action < 8] for part in cells))
    with_rare = fit_quietly(case.z, cells, range(9))
    without = fit_linear_reward(case.z, common, range(8))
    np.testing.assert_allclose(linear(with_rare.reward).theta[:8], linear(without.reward).theta, atol=1e-6)
    np.testing.assert_allclose(
        linear(with_rare.reward).standard_errors[:8], linear(without.reward).standard_errors, rtol=0.05
    )  # pooled variances are shared


def test_a_rare_action_is_shrunk_to_the_others_and_closer_to_the_truth_for_it() -> None:
    rng = np.random.default_rng(15)
    shrunk_error, own_error = [], []
    for _ in range(40):
        case, cells = rare_case(rng, rows=4)
        found = coefficients_of(fit_quietly(case.z, cells, range(9)))
        own = cells.action == 8
        alone = LinearRegression().fit(case.z[cells.instance[own]], cells.mean[own])
        unshrunk = np.array([*alone.coef_, alone.intercept_])
        average = found[:8].mean(axis=0)
        shrunk_error.append(np.sum((found[8] - case.coefficients[8]) ** 2))
        own_error.append(np.sum((unshrunk - case.coefficients[8]) ** 2))
        assert np.linalg.norm(found[8] - average) < np.linalg.norm(unshrunk - average) + 0.1
    assert np.median(shrunk_error) < 0.7 * np.median(own_error)
    assert np.mean(shrunk_error) < 0.5 * np.mean(own_error)


def test_standard_errors_of_a_rare_action_are_calibrated() -> None:
    rng = np.random.default_rng(16)
    z_scores = []
    for _ in range(60):
        case, cells = rare_case(rng, rows=4, actions=17)
        fitted = fit_quietly(case.z, cells, range(17))
        error = coefficients_of(fitted)[16] - case.coefficients[16]
        covariance = np.asarray(linear(fitted.reward).coefficient_covariance[16], float)
        z_scores.append(error @ np.linalg.solve(covariance, error) / 3)
    # Mean of 60 chi-squares over their 3 degrees of freedom has deviation 0.105; the prior itself is estimated.
    assert 1 - 4 * 0.105 < np.mean(z_scores) < 1.25 + 4 * 0.105


def test_an_action_without_any_reward_is_the_average_of_the_others() -> None:
    case, cells = rare_case(np.random.default_rng(17), rows=0)
    with pytest.warns(RareActionWarning, match=r"8 \(0 rows of 0 instances\)"):
        fitted = fit_linear_reward(case.z, cells, range(9))
    found = coefficients_of(fitted)
    np.testing.assert_allclose(found[8], found[:8].mean(axis=0), atol=1e-5)
    # Its uncertainty is the spread over the others; two of seven degrees of freedom are known to a factor of two.
    ratio = np.asarray(linear(fitted.reward).standard_errors[8]) / found[:8].std(axis=0, ddof=1)
    assert np.all((ratio > 0.5) & (ratio < 2))
    assert np.isfinite(fitted.reward_variance[8])


def test_an_action_seen_often_but_in_one_instance_stays_uncertain() -> None:
    """Effects of instance x action do not average out over rows of one instance."""
    rng = np.random.default_rng(18)
    misses, claimed = [], []
    for _ in range(30):
        case = Case(rng.normal(size=(80, 2)), 0.5 * rng.normal(size=(9, 3)))
        action = rng.integers(0, 8, (80, 200))
        action[0] = 8
        reward = play(rng, case, action, effect_std=1.0)
        fitted = fit_quietly(case.z, cells_of(action, reward, 9), range(9))
        row = np.array([*case.z[0], 1.0])
        misses.append(predictions(fitted, case.z[:1])[0, 8] - case.values[0, 8])
        claimed.append(row @ np.asarray(linear(fitted.reward).coefficient_covariance[8], float) @ row)
    # Mean of 30 squares of standard normals: 1 with deviation 0.26.
    assert np.mean(np.square(misses) / claimed) < 1 + 4 * 0.26


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_everything_is_finite_when_all_actions_are_rare(rows: int) -> None:
    rng = np.random.default_rng(19)
    case = draw_case(rng, instances=rows)
    action = rng.integers(0, 3, (rows, 2))
    reward = 5.0 + 0.1 * rng.normal(size=action.shape)
    with pytest.warns(RareActionWarning, match="3 of 3 actions"):
        fitted = fit_linear_reward(case.z, cells_of(action, reward, 3), range(3))
    assert np.all(np.isfinite(coefficients_of(fitted)))
    assert np.all(np.isfinite(linear(fitted.reward).standard_errors))
    assert np.all(fitted.reward_variance > 0)
    assert np.isfinite(fitted.leftover_variance)
    np.testing.assert_allclose(predictions(fitted, case.z), 5.0, atol=1.5)


def test_constant_rewards_are_fitted_without_complaint() -> None:
    rng = np.random.default_rng(20)
    action = rng.integers(0, 2, (30, 10))
    z = rng.normal(size=(30, 2))
    fitted = fit_linear_reward(z, cells_of(action, np.full((30, 10), 3.0), 2), range(2))
    np.testing.assert_allclose(predictions(fitted, z), 3.0, atol=1e-5)
    assert np.all(np.isfinite(linear(fitted.reward).standard_errors))


def test_a_constant_encoding_is_harmless() -> None:
    """A column without variance leaves its coefficient open; predictions are those without it."""
    rng = np.random.default_rng(21)
    case = draw_case(rng)
    action = rng.integers(0, 3, (60, 20))
    cells = cells_of(action, play(rng, case, action), 3)
    padded = np.concatenate([case.z, np.full((60, 1), 2.0)], axis=1)
    first, second = (fit_linear_reward(encodings, cells, range(3)) for encodings in (case.z, padded))
    np.testing.assert_allclose(predictions(first, case.z), predictions(second, padded), atol=1e-4)
    assert np.all(np.isfinite(linear(second.reward).standard_errors))


# By hand


def cells_by_hand(rows: list[int], mean: list[float], deviation: list[float], action: list[int] | None = None) -> Cells:
    actions = np.zeros(len(rows), int) if action is None else np.array(action)
    return Cells(np.arange(len(rows)), actions, np.array(rows), np.array(mean), np.array(deviation))


def test_the_variance_of_an_action_is_shrunk_to_the_pooled_one_by_ten_rows() -> None:
    cells = cells_by_hand([3, 2, 5], [0.0] * 3, [4.0, 1.0, 20.0], action=[0, 0, 1])
    groups = [np.array([0, 1]), np.array([2]), np.array([], int)]
    pooled = 25.0 / 7  # 2 + 1 + 4 degrees of freedom
    expected = [(5 + 10 * pooled) / (3 + 10), (20 + 10 * pooled) / (4 + 10), pooled]
    np.testing.assert_allclose(measure_reward_variance(cells, groups, unexplained=99.0), expected)


def test_without_repeated_actions_noise_is_what_the_model_leaves_unexplained() -> None:
    cells = cells_by_hand([1, 1], [0.0, 1.0], [0.0, 0.0])
    np.testing.assert_allclose(measure_reward_variance(cells, [np.arange(2)], unexplained=0.7), [0.7])
    np.testing.assert_allclose(measure_reward_variance(cells, [np.arange(2)], unexplained=0.0), [1e-12])
    once = cells_by_hand([2, 1], [0.0, 1.0], [0.5, 0.0])
    np.testing.assert_allclose(measure_reward_variance(once, [np.arange(2)], unexplained=0.7), [0.5])


def test_leftover_variance_is_the_weighted_excess_of_squared_residuals() -> None:
    cells = cells_by_hand([2, 4, 1], [0.0] * 3, [0.0] * 3, action=[0, 1, 1])
    residual, variance, blur = np.array([1.0, -2.0, 0.5]), np.array([0.6, 0.8]), np.array([0.1, 0.0, 0.2])
    expected = np.array([0.6 / 2 + 0.1, 0.8 / 4, 0.8 + 0.2])
    for parameters, inflation in ((0, 1.0), (1, 1.5), (3, 3.0)):
        excess = np.average(inflation * np.array([1.0, 4.0, 0.25]) - expected, weights=1 / expected)
        found = measure_leftover_variance(cells, residual, variance, blur, parameters)
        assert found == pytest.approx(excess)
    assert measure_leftover_variance(cells, 0.1 * residual, variance, blur, 0) == 0


def test_the_prior_of_rare_actions_is_the_spread_of_the_others() -> None:
    cells = cells_by_hand([1, 3], [0.0, 4.0], [0.0, 0.0])
    coefficients = np.array([[1.0, 2.0, 5.0], [3.0, 2.0, 9.0]])
    mean, covariance = _prior(coefficients, cells)
    np.testing.assert_allclose(mean, [2.0, 2.0, 7.0])
    floor = 1e-3 * 4.0  # of the variance of rewards, for the slope that does not vary
    np.testing.assert_allclose(covariance, np.diag([(2 + floor) / 2, (2 + floor) / 2, 8.0]))


@pytest.mark.parametrize("known", [0, 1])
def test_without_two_actions_to_compare_the_prior_is_the_mean_reward_and_its_spread(known: Any) -> None:
    cells = cells_by_hand([1, 3], [0.0, 4.0], [0.0, 0.0])
    mean, covariance = _prior(np.ones((known, 3)), cells)
    np.testing.assert_allclose(mean, [0.0, 0.0, 3.0])
    np.testing.assert_allclose(covariance, 4.0 * np.eye(3))
    constant = cells_by_hand([1, 3], [2.0, 2.0], [0.0, 0.0])
    np.testing.assert_allclose(_prior(np.ones((known, 3)), constant)[1], 1e-12 * np.eye(3))


@pytest.mark.parametrize(
    ("rows", "instances", "rare"), [(15, 6, False), (14, 6, True), (20, 5, True), (15, 7, False), (16, 6, False)]
)
def test_an_action_is_rare_below_five_rows_a_coefficient_or_two_instances_a_coefficient(
    rows: Any, instances: int, rare: Any
) -> None:
    """With two latent dimensions there are three coefficients, so 15 rows of 6 instances are just enough."""
    rng = np.random.default_rng(21)
    case = draw_case(rng, instances=40, actions=3)
    often = [(i, a, 4) for i in range(40) for a in (0, 1)]
    seldom = [(i, 2, rows // instances + (i < rows % instances)) for i in range(instances)]
    instance, action, count = np.array(often + seldom).T
    cells = Cells(instance, action, count, case.values[instance, action], np.ones(len(count)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_linear_reward(case.z, cells, range(3))
    assert bool(caught) == rare


@pytest.mark.parametrize(("rare", "more"), [(5, ""), (6, " and 1 more"), (8, " and 3 more")])
def test_no_more_than_five_rare_actions_are_listed(rare: Any, more: Any) -> None:
    rng = np.random.default_rng(22)
    case = draw_case(rng, instances=40, actions=10)
    often = [(i, a, 4) for i in range(40) for a in (0, 1)]
    seldom = [(i, 2 + i, 1) for i in range(rare)]
    instance, action, count = np.array(often + seldom).T
    cells = Cells(instance, action, count, case.values[instance, action], np.ones(len(count)))
    with pytest.warns(RareActionWarning) as caught:
        fit_linear_reward(case.z, cells, [f"drug {a}" for a in range(2 + rare)])
    text = str(caught[0].message)
    assert text.count("rows of 1 instance") == 5
    assert f"{more}. They are shrunk" in text
