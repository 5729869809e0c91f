"""The person model as a whole: what it does not depend on, what a live person is told, what comes back from disk."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.ensemble import HistGradientBoostingRegressor

from ilb.live.bandit import LiveBandit
from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward
from ilb.models.moments import BoostedMoment
from ilb.networks import Affine, IdentityEncoder, NoEncoder
from ilb.offline.ahead import every_effect, moment_effects, predict_ahead
from ilb.offline.fit import complete_model
from ilb.offline.rewards.boosting import Boosting, likelihood_loss, take_trees
from ilb.offline.rewards.person import Moment, PersonRewardRecipe
from ilb.offline.rewards.person_estimator import fit_person_model
from ilb.offline.rewards.person_sums import PersonSums
from ilb.online.roster import policy_on
from ilb.types import Encoder, Step
from narrowed import known

PEOPLE, LENGTH, ACTIONS = 60, 8, 3
LABELS = ("rest", "walk", "run")
FEW_TREES = Boosting(trees=20, depth=3, leaves=8)


def draw_arrays(seed: int = 0, *, length: int = LENGTH, people: int = PEOPLE) -> tuple[np.ndarray, ...]:
    """Contexts show part of the person and matter at the moment; rewards alone show a level and own effects."""
    rng = np.random.default_rng(seed)
    z, level = rng.normal(size=(people, 1, 2)), rng.normal(size=(people, 1))
    context = z + 0.7 * rng.normal(size=(people, length, 2))
    action = rng.integers(ACTIONS, size=(people, length))
    theta = np.array([[1.0, 0.3], [-0.5, 0.8], [0.2, -0.9]])
    slopes = np.array([[0.5, 0.0], [0.0, -0.6], [0.4, 0.4]])
    own = 0.4 * rng.normal(size=(people, ACTIONS))
    reward = np.take_along_axis(z[:, 0] @ theta.T + own, action, axis=1) + level
    reward = reward + np.sum(slopes[action] * context, axis=2) + np.sin(2 * context[..., 0])
    return context, action, reward + 0.5 * rng.normal(size=action.shape)


def logs_with_gaps(seed: int = 0) -> Logs:
    """Some rewards and some actions are missing."""
    context, action, reward = draw_arrays(seed)
    rng = np.random.default_rng(seed + 1)
    reward = np.where(rng.random(reward.shape) < 0.15, np.nan, reward)
    action = np.where(rng.random(action.shape) < 0.1, -1, action)
    return Logs.from_arrays(context, action, reward, actions=LABELS)


def fitted_on(logs: Logs, encoder: Encoder | None = None, **recipe: Any) -> LatentModel:
    return complete_model(encoder or IdentityEncoder(), logs, reward=PersonRewardRecipe(boosting=FEW_TREES, **recipe))


# What a model does not depend on


KINDS: list[dict[str, Any]] = [
    {"hidden": 2},
    {"hidden": 1, "same_level": True, "own_effects": False, "moment": "linear"},
    {"hidden": 2, "moment": "boosted"},
]
NAMES = ["hidden", "level", "boosted"]
KIND = pytest.mark.parametrize("kind", KINDS, ids=NAMES)
# Trees ask for the number of the action, and people are drawn into folds for them by their number.
LINEAR_KIND = pytest.mark.parametrize("kind", KINDS[:2], ids=NAMES[:2])


@KIND
@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e7, -3e7)])
def test_units_of_rewards_are_only_units(kind: dict[str, Any], scale: float, shift: float) -> None:
    context, action, reward = draw_arrays()
    logs, scaled = (Logs.from_arrays(context, action, r, actions=LABELS) for r in (reward, scale * reward + shift))
    plain, other = (predict_ahead(fitted_on(table, **kind), table) for table in (logs, scaled))
    np.testing.assert_allclose((other.mean - shift) / scale, plain.mean, atol=0.01)
    np.testing.assert_allclose(other.std / scale, plain.std, rtol=0.01)


@KIND
def test_units_of_contexts_are_only_units(kind: dict[str, Any]) -> None:
    context, action, reward = draw_arrays()
    logs = Logs.from_arrays(context, action, reward, actions=LABELS)
    scaled = Logs.from_arrays(context * [1000.0, 0.01] + [5000.0, 1.0], action, reward, actions=LABELS)
    plain, other = (predict_ahead(fitted_on(table, **kind), table) for table in (logs, scaled))
    # A value next to the threshold of a tree may fall on its other side, and of two splits that are as good as each
    # other, rounding may take the one or the other.
    far = np.abs(other.mean - plain.mean) > 0.01
    assert far.mean() < 0.05
    np.testing.assert_allclose(other.std, plain.std, rtol=0.01)


@LINEAR_KIND
def test_the_order_of_people_does_not_matter(kind: dict[str, Any]) -> None:
    context, action, reward = draw_arrays()
    order = np.random.default_rng(0).permutation(PEOPLE)
    logs = Logs.from_arrays(context, action, reward, actions=LABELS)
    moved = Logs.from_arrays(context[order], action[order], reward[order], actions=LABELS)
    plain, other = (predict_ahead(fitted_on(table, **kind), table) for table in (logs, moved))
    np.testing.assert_allclose(other.mean.reshape(PEOPLE, LENGTH), plain.mean.reshape(PEOPLE, LENGTH)[order], atol=2e-3)


@LINEAR_KIND
def test_the_order_of_actions_does_not_matter(kind: dict[str, Any]) -> None:
    context, action, reward = draw_arrays()
    order = np.array([2, 0, 1])
    logs = Logs.from_arrays(context, action, reward, actions=LABELS)
    labels = [LABELS[a] for a in np.argsort(order)]
    moved = Logs.from_arrays(context, order[action], reward, actions=labels)
    plain, other = (predict_ahead(fitted_on(table, **kind), table) for table in (logs, moved))
    np.testing.assert_allclose(other.mean, plain.mean, atol=0.02)
    np.testing.assert_allclose(other.std, plain.std, rtol=0.02)


def test_long_histories_without_hidden_coordinates_give_least_squares() -> None:
    context, action, _ = draw_arrays(length=300, people=100)
    theta = np.array([[1.0, 0.3], [-0.5, 0.8], [0.2, -0.9]])
    reward = np.take_along_axis(np.repeat((context.mean(axis=1) @ theta.T)[:, None], 300, axis=1), action[..., None], 2)
    reward = reward[..., 0] + 0.5 * np.random.default_rng(5).normal(size=action.shape)
    logs = Logs.from_arrays(context, action, reward, actions=LABELS)
    plain = complete_model(IdentityEncoder(), logs)
    person = fitted_on(logs, hidden=0, own_effects=False)
    assert isinstance(plain.reward, LinearReward)
    assert isinstance(person.reward, LinearReward)
    np.testing.assert_allclose(person.reward.theta, plain.reward.theta, atol=0.02)
    np.testing.assert_allclose(person.reward.intercept, plain.reward.intercept, atol=0.02)
    np.testing.assert_allclose(person.noise.reward_variance, plain.noise.reward_variance, rtol=0.03)


DEGENERATE: dict[str, Any] = {
    "constant rewards": lambda context, action, reward: (context, action, np.full_like(reward, 5.0)),
    "a constant column": lambda context, action, reward: (context * [1.0, 0.0] + [0.0, 7.0], action, reward),
    "a column twice": lambda context, action, reward: (context[..., [0, 0]], action, reward),
    "contexts that never change": lambda context, action, reward: (
        np.repeat(context[:, :1], LENGTH, 1),
        action,
        reward,
    ),
    "two people": lambda context, action, reward: (context[:2], action[:2], reward[:2]),
    "one row each": lambda context, action, reward: (context[:, :1], action[:, :1], reward[:, :1]),
    "rewards of one person": lambda context, action, reward: (
        context,
        action,
        np.where(np.arange(PEOPLE)[:, None] == 3, reward, np.nan),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("moment", ["linear", "boosted"])
def test_poor_tables_give_finite_predictions(name: str, moment: Moment) -> None:
    logs = Logs.from_arrays(*DEGENERATE[name](*draw_arrays()), actions=LABELS)
    ahead = predict_ahead(fitted_on(logs, hidden=2, moment=moment), logs)
    assert np.all(np.isfinite(ahead.mean))
    assert np.all(np.isfinite(ahead.std) & (ahead.std > 0))
    least, most = ahead.reward.min(), ahead.reward.max()
    room = most - least + 1e-3
    assert np.all((ahead.mean > least - room) & (ahead.mean < most + room))


# What a live person is told


@pytest.mark.parametrize("encoder", [IdentityEncoder(), NoEncoder()], ids=["identity", "none"])
@pytest.mark.parametrize("moment", ["none", "linear", "boosted"])
def test_predictions_ahead_are_what_a_live_person_is_told(encoder: Encoder, moment: Moment) -> None:
    logs = logs_with_gaps()
    model = fitted_on(logs, encoder, hidden=2, moment=moment)
    ahead = predict_ahead(model, logs)
    bandit = LiveBandit.on(model, "Calibrated")
    told: dict[int, tuple[float, float]] = {}
    for i in range(5):
        person = bandit.start(i)
        for row in range(logs.starts[i], logs.starts[i + 1]):
            decision = person.decide(dict(zip(("x1", "x2"), map(float, logs.context[row]), strict=True)))
            if not logs.rewarded[row]:
                person.forget(decision)
                continue
            label = LABELS[logs.action[row]]
            told[row] = decision.expected_reward[label], decision.reward_std[label]
            person.learn(decision, reward=float(logs.reward[row]), action=label)
    among = np.isin(ahead.rows, list(told))
    assert ahead.rows[among].tolist() == list(told)
    assert len(told) < logs.starts[5]
    mean, std = np.array(list(told.values())).T
    np.testing.assert_allclose(ahead.mean[among], mean, atol=2e-4)
    noise = np.asarray(model.noise.reward_variance)[logs.action[ahead.rows[among]]]
    np.testing.assert_allclose(ahead.std[among], np.sqrt(std**2 + noise), rtol=1e-3)


def test_predictions_ahead_may_stop_after_some_rewards_of_each_person() -> None:
    logs = logs_with_gaps()
    model = fitted_on(logs, hidden=1)
    whole, first = predict_ahead(model, logs), predict_ahead(model, logs, rounds=2)
    assert np.bincount(first.person).max() == 2
    np.testing.assert_array_equal(first.mean, whole.mean[np.isin(whole.rows, first.rows)])


def test_later_rows_do_not_change_what_was_predicted_before_them() -> None:
    context, action, reward = draw_arrays()
    model = fitted_on(Logs.from_arrays(context, action, reward, actions=LABELS), hidden=2, moment="linear")
    reward_later, context_later = reward.copy(), context.copy()
    reward_later[:, 5:] += 10.0
    context_later[:, 5:] += 3.0
    changed = Logs.from_arrays(context_later, action, reward_later, actions=LABELS)
    before, after = (
        predict_ahead(model, table).mean.reshape(PEOPLE, LENGTH)
        for table in (Logs.from_arrays(context, action, reward, actions=LABELS), changed)
    )
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert np.all(np.abs(before[:, 6:] - after[:, 6:]).max(axis=1) > 0.5)


def test_predictions_ahead_are_conditionals_of_one_dense_gaussian() -> None:
    """Encodings and rewards of a person are jointly normal; each reward given all that came before it, densely."""
    logs = Logs.from_arrays(*(part[:6] for part in draw_arrays(3)), actions=LABELS)
    model = fitted_on(logs, hidden=1, moment="linear")
    predicted = predict_ahead(model, logs)
    noise, reward = model.noise, model.reward
    assert isinstance(reward, LinearReward)
    mean, population, within, theta, intercept, unsure, variance, own = (
        np.asarray(number, np.float64)
        for number in (
            noise.population_mean,
            noise.population_covariance,
            noise.encoding_covariance,
            reward.theta,
            reward.intercept,
            reward.coefficient_covariance,
            noise.reward_variance,
            noise.leftover_variance,
        )
    )
    phi = np.r_[mean, 1.0]
    second = np.outer(phi, phi) + np.pad(population, (0, 1))
    effects = np.einsum("aij,ij->a", unsure, second) + own  # doubt about coefficients lasts, like an own effect
    moments = np.asarray(jax.vmap(known(model.moment))(jnp.asarray(logs.context)), np.float64)
    for person in range(logs.instances):
        rows = np.arange(logs.starts[person], logs.starts[person + 1])
        action = logs.action[rows]
        # Of (v, own effects): all encodings, then all rewards.
        shows = np.zeros((LENGTH, 2, 3 + ACTIONS))
        shows[:, [0, 1], [0, 1]] = 1
        pays = np.concatenate([theta[action], np.eye(ACTIONS)[action]], axis=1)
        design = np.concatenate([shows.reshape(2 * LENGTH, -1), pays])
        prior = np.block([[population, np.zeros((3, ACTIONS))], [np.zeros((ACTIONS, 3)), np.diag(effects)]])
        spread = design @ prior @ design.T
        spread[: 2 * LENGTH, : 2 * LENGTH] += np.kron(np.eye(LENGTH), within)
        spread[2 * LENGTH :, 2 * LENGTH :] += np.diag(variance[action])
        centre = design @ np.r_[mean, np.zeros(ACTIONS)]
        centre[2 * LENGTH :] += intercept[action] + moments[rows, action]
        seen = np.concatenate([logs.context[rows].ravel(), logs.reward[rows]]).astype(np.float64)
        for t in range(LENGTH):
            past, now = np.r_[: 2 * (t + 1), 2 * LENGTH : 2 * LENGTH + t], 2 * LENGTH + t
            gain = np.linalg.solve(spread[np.ix_(past, past)], spread[past, now])
            assert predicted.mean[rows[t]] == pytest.approx(centre[now] + gain @ (seen - centre)[past], abs=1e-6)
            assert predicted.std[rows[t]] ** 2 == pytest.approx(spread[now, now] - gain @ spread[past, now], rel=1e-6)


def crossover(seed: int = 0, people: int = 80) -> Logs:
    """Everyone tries four of six actions once: nothing is repeated, and there are no contexts."""
    rng = np.random.default_rng(seed)
    action = np.stack([rng.permutation(6)[:4] for _ in range(people)])
    mean = rng.normal(size=(people, 1)) + np.take_along_axis(rng.normal(size=(people, 6)), action, axis=1)
    reward = 6 + np.linspace(-0.5, 0.5, 6)[action] + mean + 0.7 * rng.normal(size=action.shape)
    return Logs.from_arrays(np.zeros((*action.shape, 0)), action, reward, actions=6)


@pytest.mark.parametrize("hidden", [0, 1, 4])
def test_five_bad_rewards_change_the_belief_although_the_logs_repeat_nothing(hidden: int) -> None:
    logs = crossover()
    model = fitted_on(logs, NoEncoder(), hidden=hidden)
    person = LiveBandit.on(model, "Calibrated").start("anna")
    first = decision = person.decide({})
    for _ in range(5):
        person.learn(decision, reward=1.0, action=first.action)
        decision = person.decide({})
    std = float(np.nanstd(logs.reward))
    assert 0.05 * std < first.reward_std[first.action] < 1.5 * std
    fallen = first.expected_reward[first.action] - decision.expected_reward[first.action]
    assert fallen > 0.2 * (first.expected_reward[first.action] - 1.0)
    assert 0.05 * std < decision.reward_std[first.action] < first.reward_std[first.action]


# Trees


def test_levels_are_the_best_linear_predictions_of_a_dense_covariance() -> None:
    """With one action and own levels, what trees are given is sigma^2 V^-1 (reward - intercept - linear moment)."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(40), 5)
    moment = rng.normal(size=(200, 1))
    reward = 2 * rng.normal(size=40)[person] + 0.5 * moment[:, 0] + rng.normal(size=200)
    sums = PersonSums.of_rows(
        person, np.zeros(200, int), reward, moment, 1, np.full(40, 5.0), np.zeros((40, 0)), np.eye(0)
    )
    fitted = fit_person_model(sums, 1, same_level=True, own_effects=False, steps=2000, tolerance=1e-12)
    (loading, intercept, slope), noise = fitted.coefficients[0], fitted.reward_variance[0]
    covariance = loading**2 * (person[:, None] == person) + noise * np.eye(200)
    unexplained = reward - intercept - slope * moment[:, 0]
    expected = noise * np.linalg.solve(covariance, unexplained)
    found = unexplained + intercept - fitted.levels[person]
    np.testing.assert_allclose(found, expected, atol=0.02)  # levels know that the coefficients are estimated
    assert np.std(found) < 0.6 * np.std(unexplained)


def test_trees_find_what_varies_within_people_who_differ_much() -> None:
    rng = np.random.default_rng(1)
    context = rng.normal(size=(150, 6, 1))
    action = np.zeros((150, 6), int)
    step = np.sign(context[..., 0] ** 2 - 0.5)
    reward = 5 * rng.normal(size=(150, 1)) + step + 0.3 * rng.normal(size=(150, 6))
    logs = Logs.from_arrays(context, action, reward)
    trees = replace(FEW_TREES, learning_rate=0.2)
    recipe = PersonRewardRecipe(1, same_level=True, moment="boosted", own_effects=False, boosting=trees)
    moment = complete_model(NoEncoder(), logs, reward=recipe).moment
    effects = moment_effects(moment, logs)
    assert np.corrcoef(effects, step.ravel())[0, 1] > 0.9


def test_every_effect_of_a_moment_is_that_of_the_logged_action_where_it_was_taken() -> None:
    rng = np.random.default_rng(2)
    context, action = rng.normal(size=(30, 8, 2)).astype(np.float32), rng.integers(3, size=(30, 8))
    reward = context[..., 0] * (action - 1) + 0.3 * rng.normal(size=(30, 8))
    logs = Logs.from_arrays(context, action, reward)
    moment = complete_model(NoEncoder(), logs, reward=PersonRewardRecipe(0, moment="linear")).moment
    effects = every_effect(moment, context, 3)
    taken = np.take_along_axis(effects, action[..., None], axis=2)[..., 0]
    np.testing.assert_allclose(taken.ravel(), moment_effects(moment, logs), atol=1e-5)
    slopes = np.polyfit(context[..., 0].ravel(), effects.reshape(-1, 3), 1)[0]
    np.testing.assert_allclose(slopes, [-1, 0, 1], atol=0.15)
    assert not every_effect(None, context, 3).any()


def boosted(seed: int, depth: int) -> tuple[HistGradientBoostingRegressor, BoostedMoment, np.ndarray]:
    """Trees of scikit-learn on columns that take few values, those trees as a moment, and their features."""
    rng = np.random.default_rng(seed)
    features = np.round(rng.normal(size=(800, 3)), 1).astype(np.float32)
    features[:, 2] = rng.integers(ACTIONS, size=800)
    reward = np.sin(2 * features[:, 0]) * features[:, 2] + features[:, 1] + 0.1 * rng.normal(size=800)
    model = HistGradientBoostingRegressor(max_iter=30, max_depth=depth, early_stopping=False, random_state=0)
    trees = take_trees(model.fit(features, reward), depth)
    nothing = Affine(jnp.zeros((2, ACTIONS)), jnp.zeros(ACTIONS))
    shift = nothing.shift + trees.base
    parts = (jnp.asarray(part) for part in trees[:3])
    return model, BoostedMoment(Affine(nothing.matrix, shift), *parts), features


def assert_predicts_the_same(model: HistGradientBoostingRegressor, moment: BoostedMoment, features: np.ndarray) -> None:
    context, action = jnp.asarray(features[:, :2]), features[:, 2].astype(np.int32)
    ours = jax.vmap(moment)(context)[np.arange(len(features)), action]
    np.testing.assert_allclose(ours, model.predict(features), atol=1e-5)
    np.testing.assert_allclose(jax.vmap(moment.of_action)(context, jnp.asarray(action)), ours, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_trees_predict_what_scikit_learn_predicts(depth: int) -> None:
    model, moment, features = boosted(0, depth)
    assert_predicts_the_same(model, moment, features)


def scattered(noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Contexts, actions, rewards and people: a wave, and noise."""
    rng = np.random.default_rng(3)
    context, action = rng.normal(size=(600, 2)), rng.integers(ACTIONS, size=600)
    return context, action, np.sin(2 * context[:, 0]) + noise * rng.normal(size=600), np.arange(600) // 6


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_as_many_trees_are_kept_as_predict_people_left_out_best(noise: float) -> None:
    context, action, reward, person = scattered(noise)
    trees, foreseen = FEW_TREES.fit(context, action, reward, person)
    features = np.c_[context, action].astype(np.float32)
    fold = (np.random.default_rng(0).permutation(100) % 3)[person]
    left_out = np.zeros((FEW_TREES.trees, 600))
    for number in range(FEW_TREES.trees):
        model = HistGradientBoostingRegressor(
            max_iter=number + 1, max_depth=3, max_leaf_nodes=8, early_stopping=False, random_state=0
        )
        for held in (fold == part for part in range(3)):
            left_out[number, held] = model.fit(features[~held], reward[~held]).predict(features[held])
    errors = np.sum((left_out - reward) ** 2, axis=1)
    best = int(np.argmin(errors))
    assert (best == FEW_TREES.trees - 1) == (noise < 1)
    assert len(trees.value) == FEW_TREES.trees
    more = round(1.5 * (best + 1))  # everyone, instead of two in three
    np.testing.assert_array_equal(np.any(trees.value != 0, axis=1), np.arange(FEW_TREES.trees) < more)
    np.testing.assert_allclose(foreseen, left_out[best], atol=1e-6)


def test_the_likelihood_loss_of_trees_is_the_likelihood_of_rewards_of_people_with_levels() -> None:
    rng = np.random.default_rng(4)
    person, (level, noise) = np.repeat(np.arange(5), [1, 2, 3, 4, 5]), (0.8, 0.3)
    covariance = level * (person[:, None] == person) + noise * np.eye(15)
    rewards, predicted, nothing = rng.normal(size=15), rng.normal(size=15), np.zeros(15)
    left = noise * np.linalg.solve(covariance, rewards)
    rows = np.bincount(person)
    told = rows * level / (noise + rows * level)
    density = multivariate_normal(np.zeros(15), covariance)
    gain = density.logpdf(rewards - predicted) - density.logpdf(rewards - nothing)
    assert likelihood_loss(predicted, left, person, told) == pytest.approx(-2 * noise * gain)
    assert likelihood_loss(nothing, left, person, told) == 0


def test_values_on_the_threshold_of_a_tree_go_where_scikit_learn_sends_them() -> None:
    model, moment, features = boosted(1, 4)
    thresholds = np.asarray(moment.threshold)[np.isfinite(moment.threshold) & (np.asarray(moment.column) == 0)]
    assert len(thresholds) > 20
    for nudged in (thresholds, *(np.nextafter(thresholds, np.float32(side)) for side in (-np.inf, np.inf))):
        rows = np.resize(features, (len(nudged), 3)).copy()
        rows[:, 0] = nudged
        assert_predicts_the_same(model, moment, rows)


# Every policy, and files


@pytest.fixture(scope="module")
def whole_model() -> LatentModel:
    """A model with everything: contexts that show, hidden coordinates, trees beside linear effects."""
    return fitted_on(logs_with_gaps(), hidden=2, moment="boosted")


def lived(model: LatentModel, policy: str) -> list[tuple[Any, dict[Any, float]]]:
    person = LiveBandit.on(model, policy).start("anna")
    decisions = []
    for context, reward in zip(([0.3, -1.0], [1.2, 0.1], [-0.4, 0.6], [0.0, 0.0]), (1.0, -2.0, 0.3, 0.9), strict=True):
        decision = person.decide(dict(zip(("x1", "x2"), context, strict=True)))
        decisions.append((decision.action, dict(decision.expected_reward)))
        person.learn(decision, reward=reward)
    return decisions


POLICIES = ["CPG", "FPG", "FPG (released)", "FPG-TS", "FPG-TS (released)", "Calibrated", "Calibrated-TS", "MABPrior"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_model_with_everything_decides_the_same_when_it_comes_back(
    whole_model: LatentModel, policy: str, tmp_path: Path
) -> None:
    whole_model.save(tmp_path)
    decisions = lived(whole_model, policy)
    assert lived(LatentModel.load(tmp_path), policy) == decisions
    assert np.all(np.isfinite([list(values.values()) for _, values in decisions]))


def test_every_part_of_a_model_with_everything_comes_back(whole_model: LatentModel, tmp_path: Path) -> None:
    whole_model.save(tmp_path)
    loaded = LatentModel.load(tmp_path)
    assert bool(eqx.tree_equal(loaded.bare(), whole_model.bare()))
    assert repr(loaded) == "LatentModel(n=2, hidden=2, K=3, moment=BoostedMoment)"


def test_the_paper_s_policies_see_the_moment_and_the_encoding_but_not_what_is_hidden(whole_model: LatentModel) -> None:
    """CPG by hand: rewards at the mean encoding, average in what is hidden, and the effects of the context at hand."""
    contexts = [[0.3, -1.0], [1.2, 0.1], [-0.4, 0.6], [0.0, 0.0]]
    reward = whole_model.reward
    assert isinstance(reward, LinearReward)
    for number, (_, values) in enumerate(lived(whole_model, "CPG")):
        mean = np.mean(contexts[: number + 1], axis=0)
        expected = np.asarray(reward.theta)[:, :2] @ mean + np.asarray(reward.intercept)
        expected = expected + np.asarray(known(whole_model.moment)(jnp.asarray(contexts[number])))
        np.testing.assert_allclose(list(values.values()), expected, atol=1e-4)


@pytest.mark.parametrize("moment", ["linear", "boosted"])
@pytest.mark.parametrize("policy", ["CPG", "FPG", "Calibrated"])
def test_on_raw_contexts_a_model_decides_as_on_scaled_ones(moment: Moment, policy: str) -> None:
    context, action, reward = draw_arrays()
    rows = {"person": np.repeat(np.arange(PEOPLE), LENGTH), "do": action.ravel(), "gain": reward.ravel()}
    rows |= {"x1": 100 + 40 * context[..., 0].ravel(), "x2": context[..., 1].ravel()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logs = Logs.from_frame(pd.DataFrame(rows), instance="person", action="do", reward="gain")
    model = fitted_on(logs, hidden=1, moment=moment)
    raw = np.stack([rows["x1"], rows["x2"]], axis=1)[:4].astype(np.float32)
    plans = []
    for contexts, chosen in ((logs.context[:4], model), (raw, model.on_raw_contexts())):
        belief: Any = policy_on(chosen, policy).belief  # type: ignore[attr-defined]
        state, told = belief.init(), []
        for context_now, taken, gained in zip(contexts, (0, 1, 2, 1), (1.0, -1.0, 0.5, 2.0), strict=True):
            state = belief.observe(state, jnp.asarray(context_now))
            told.append(np.asarray(belief.rewards(state, jnp.asarray(context_now)).mean()))
            state = belief.learn(state, Step(jnp.asarray(context_now), jnp.asarray(taken), jnp.asarray(gained)))
        plans.append(told)
    np.testing.assert_allclose(plans[0], plans[1], atol=1e-3)
