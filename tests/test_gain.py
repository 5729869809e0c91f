"""What would be gained: every estimator against enumeration in a tiny world, controls, refusals, the command."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.cli import run as run_the_program
from ilb.cli.console import results
from ilb.errors import IlbWarning, LogsError
from ilb.logs import Logs
from ilb.models.drift import Drift
from ilb.models.latent import LatentModel
from ilb.networks import NoEncoder
from ilb.offline import training
from ilb.offline.completion import complete_model
from ilb.offline.encoders.plain import NoEncoding
from ilb.offline.encoders.vae import VAERecipe
from ilb.offline.fit import fit, fit_again
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.offline.search import plain_models
from ilb.online.latent import CalibratedBelief
from ilb.online.policy import AbstractPolicy, AbstractRewards, IndependentRewards, choose
from ilb.online.roster import build_policy
from ilb.trust.accounts import Account, of_replays, play_everyone
from ilb.trust.controls import logging_as_target, shuffled_rewards
from ilb.trust.crossfit import Fold, action_effects, by_person, cross_fit
from ilb.trust.crossover import recorded_means, recorded_regret, recorded_values
from ilb.trust.doubly_robust import Matched, lay_out, match
from ilb.trust.evaluation import GAIN_OVER_DONE, Evaluation
from ilb.trust.expectations import Expectations, expect
from ilb.trust.gain import BANDIT, estimate_gain, evaluate, evaluate_fitted
from ilb.trust.propensities import estimate, person_shares, shares_so_far, take_out
from ilb.trust.replay import Person, queue_up, replay
from ilb.trust.resampling import Resampling, difference, mean_of
from ilb.trust.sensitivity import Surprises, least_mean
from ilb.trust.single import BestSingle, Chooser
from ilb.types import Allowed, Choice, Context, Step, Values

CHANCES = np.array([0.7, 0.4])
"""The chance of a reward of 1 for each of two actions, in the tiny world."""


class WinStay(AbstractPolicy):
    """Begin with the first action; stay after a reward of 1, change after a reward of 0."""

    def init(self) -> Int[Array, ""]:
        return jnp.asarray(0)

    def decide(
        self, key: PRNGKeyArray, state: Int[Array, ""], context: Context, allowed: Allowed
    ) -> tuple[Int[Array, ""], Choice]:
        del key, context
        return state, choose(jnp.where(jnp.arange(2) == state, 1.0, 0.0), allowed)

    def learn(self, state: Int[Array, ""], step: Step) -> Int[Array, ""]:
        return jnp.where(step.reward > 0.5, step.action, 1 - step.action)

    def rewards(self, state: Int[Array, ""], context: Context) -> AbstractRewards:
        return IndependentRewards(jnp.zeros(2), jnp.ones(2))

    def propensities(self, key: PRNGKeyArray, state: Int[Array, ""], context: Context, allowed: Allowed) -> Values:
        return jnp.where(jnp.arange(2) == state, 1.0, 0.0)


def true_value(rounds: int) -> float:
    """Follow every sequence of rewards that `WinStay` may meet."""
    total = 0.0
    for rewards in itertools.product([0, 1], repeat=rounds):
        action, chance = 0, 1.0
        for reward in rewards:
            chance *= CHANCES[action] if reward else 1 - CHANCES[action]
            action = action if reward else 1 - action
        total += chance * sum(rewards)
    return total / rounds


def every_history(actions: list[int]) -> tuple[Logs, Float[np.ndarray, " people"]]:
    """Give one person for each sequence of rewards that these actions may have brought, with its probability."""
    outcomes = np.array(list(itertools.product([0, 1], repeat=len(actions))), float)
    chances = CHANCES[np.array(actions)]
    probability = np.where(outcomes == 1, chances, 1 - chances).prod(axis=1)
    taken = np.tile(actions, (len(outcomes), 1))
    return Logs.from_arrays(np.zeros((*outcomes.shape, 0)), taken, outcomes, actions=2), probability


def replayed_value(actions: list[int], rounds: int) -> tuple[Account, float]:
    """Replay every history, with true expectations, and average by probability."""
    logs, probability = every_history(actions)
    half = np.full((logs.instances, 2), 0.5)
    known = Expectations(
        np.tile(CHANCES, (logs.instances, 1)), np.full((logs.instances, 2), 1e-6), np.full(2, 1e-3), half
    )
    people = queue_up(logs, None, known, rounds)
    account = of_replays([replay(jr.key(0), WinStay(), None, people)], rounds)
    return account, float(probability @ account.paid)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_queue_replay_of_every_history_gives_the_true_value(rounds: int) -> None:
    account, value = replayed_value([0, 1, 0, 1, 1, 0], rounds)
    assert account.missing.max() == 0
    np.testing.assert_allclose(value, true_value(rounds), rtol=1e-5)


def test_expectations_stand_in_where_a_queue_is_empty() -> None:
    # With one row of each action the second round of a winner has no reward left, and nothing is learned after it.
    account, value = replayed_value([0, 1], 2)
    np.testing.assert_allclose(np.sort(account.missing), [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(value, true_value(2), rtol=1e-5)


def test_the_next_reward_of_a_dropped_action_is_as_good_as_any() -> None:
    """Whoever logs stays after a good reward and drops an action for good after a bad one: all rewards have mean 0."""
    rng = np.random.default_rng(0)
    reward, action = rng.normal(size=(4000, 6)), np.zeros((4000, 6), int)
    for now in range(1, 6):
        action[:, now] = action[:, now - 1] + ((reward[:, now - 1] < 0) & (action[:, now - 1] < 3))
    logs = Logs.from_arrays(np.zeros((4000, 6, 0)), action, reward, actions=4)
    shape = (logs.instances, 4)
    known = Expectations(np.zeros(shape), np.ones(shape), np.ones(4), np.full(shape, 0.25))
    people = queue_up(logs, None, known, 6)
    drawn_at_random = [queue[: starts[1]].mean() for queue, starts in zip(people.queue, people.starts, strict=True)]
    assert np.mean(drawn_at_random) < -0.25
    for action_taken in range(3):
        tried = np.flatnonzero(people.starts[:, action_taken + 1] > people.starts[:, action_taken])
        first = people.queue[tried, people.starts[tried, action_taken]]
        assert abs(first.mean()) < 4 / np.sqrt(len(first))


def test_nothing_that_was_done_after_a_reward_weighs_it() -> None:
    """Two histories that differ in what follows the third row: what is known until then weighs its reward."""
    rng = np.random.default_rng(0)
    action = np.array([[0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]] * 10)
    logs = Logs.from_arrays(np.zeros((20, 6, 0)), action, rng.normal(size=(20, 6)), actions=2)
    found = shares_so_far(logs).reshape(20, 6)
    np.testing.assert_allclose(found[0, :3], found[1, :3])
    assert found[0, 1] < found[0, 2] < found[0, 3]


@pytest.mark.slow
def test_a_logger_who_drops_what_disappoints_does_not_lower_what_a_policy_is_worth() -> None:
    """All actions are worth nothing, and whoever logs stays after a good reward; some queues end before the play."""
    errors = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        reward, action = rng.normal(size=(200, 15)), rng.integers(3, size=(200, 15))
        for now in range(1, 15):
            action[:, now] = np.where(reward[:, now - 1] > 0, action[:, now - 1], action[:, now])
        logs = Logs.from_arrays(np.zeros((200, 15, 0)), action, reward, actions=3)
        model = complete_model(NoEncoder(), logs, reward=PersonRewardRecipe(hidden=0))
        parts = [Fold.of(logs, np.arange(part, 200, 2), model) for part in range(2)]
        account = of_replays(play_everyone(parts, "Calibrated", 3, seed=seed), 3)
        assert account.missing.mean() > 0.03
        errors.append(account.value(np.ones((1, 200)))[0])
    assert abs(np.mean(errors)) < 3 * 0.042 / np.sqrt(6)  # drawn at random it is -0.11, weighed by all rows -0.035


def growing(seed: int, *, clocked: bool) -> list[Fold]:
    """Rewards of 60 people grow with time, by 3 in 20 rows; both actions are the same, and models know the time."""
    rng = np.random.default_rng(seed)
    time = np.tile(np.arange(20.0), (60, 1))
    reward = 3 * time / 20 + rng.normal(size=(60, 1)) + 0.5 * rng.normal(size=(60, 20))
    logs = Logs.from_arrays(np.zeros((60, 20, 0)), rng.integers(2, size=(60, 20)), reward, actions=2, time=time)
    kind = PersonRewardRecipe(hidden=1, same_level=True, moment="linear" if clocked else "none")
    model = complete_model(NoEncoder(), logs.with_clock() if clocked else logs, reward=kind)
    return [Fold.of(logs, np.arange(part, 60, 2), model) for part in range(2)]


@pytest.fixture(scope="module")
def clocked() -> list[Fold]:
    return growing(0, clocked=True)


def test_nothing_is_gained_or_lost_by_the_time_at_which_decisions_are_made(clocked: list[Fold]) -> None:
    """A policy meets the first contexts of people, in which rewards are lower: so does what it is compared with."""
    said = evaluate_fitted(clocked, policy="Calibrated", horizon=4)
    assert said.horizon.rounds >= 2
    for line in said.lines:
        if line.quantity.startswith("gain"):
            assert abs(line.figure.value) < 0.25, line  # over all contexts it would be -1.2
            assert line.figure.value == pytest.approx(0, abs=4 * line.figure.standard_error)
    assert [control.passed for control in said.controls] == [True, True, True]


def test_regret_in_a_crossover_counts_the_moment_on_both_sides(clocked: list[Fold]) -> None:
    """Both actions are the same, so regret is what the noise of recorded means makes of it, whatever the time."""
    policies = [build_policy(fold.ingredients, "Calibrated") for fold in clocked]
    table = np.concatenate([recorded_means(fold) for fold in clocked])
    noise = np.abs(table[:, 0] - table[:, 1]).mean()
    assert noise < 0.25  # 0.5 times sqrt(2 / 10) times 0.8 is 0.18
    assert recorded_regret(clocked, policies, 4, seed=0).mean() < noise
    values = recorded_values(clocked[0], 4)
    np.testing.assert_allclose(values[:, 3] - values[:, 0], 9 / 20, atol=0.06)


def test_rewards_that_change_with_time_unknown_to_the_model_fail_the_control_of_what_was_done() -> None:
    folds = growing(1, clocked=False)
    assert not logging_as_target(folds, 4, Resampling(60, 0), 0).passed
    flat = [replace(fold, logs=_without_time(fold.logs)) for fold in folds]
    assert logging_as_target(flat, 4, Resampling(60, 0), 0).passed


def _without_time(logs: Logs) -> Logs:
    return replace(logs, reward=(logs.reward - 3 * logs.time / 20).astype(np.float32))


def every_row(chances: list[float], rows: int) -> tuple[Logs, Float[np.ndarray, " people"]]:
    """Give one person for each sequence of actions and rewards of a logger with these chances, with probability."""
    steps = [(a, r, chances[a] * (CHANCES[a] if r else 1 - CHANCES[a])) for a in (0, 1) for r in (0, 1)]
    histories = list(itertools.product(steps, repeat=rows))
    actions, rewards, probability = np.moveaxis(np.array(histories), -1, 0)
    logs = Logs.from_arrays(np.zeros((*actions.shape, 0)), actions.astype(int), rewards, actions=2)
    return logs, probability.prod(axis=1)


def doubly_robust_value(
    chances: list[float], rows: int, rounds: int, expected: Float[np.ndarray, " K"], told: list[float]
) -> float:
    """Estimate `WinStay`'s value on every history at once, with these expectations and these propensities."""
    logs, probability = every_row(chances, rows)
    shape = (logs.instances, 2)
    said = Expectations(np.tile(expected, (shape[0], 1)), np.full(shape, 1e-6), np.ones(2), np.full(shape, 0.5))
    people = lay_out(logs, said, np.array(told)[logs.action], np.zeros(logs.rows))
    matched = match(jr.key(0), WinStay(), None, min(told), people, rounds)
    return float(matched.value(probability[None, :], np.zeros((logs.instances, rounds)), rounds)[0])


@pytest.mark.parametrize(("rows", "rounds"), [(1, 1), (4, 2)])
def test_the_doubly_robust_estimate_of_every_history_is_true_with_wrong_expectations(rows: int, rounds: int) -> None:
    value = doubly_robust_value([0.5, 0.5], rows, rounds, np.array([0.1, 0.9]), [0.5, 0.5])
    np.testing.assert_allclose(value, true_value(rounds), rtol=1e-5)


def test_the_doubly_robust_estimate_is_true_with_wrong_propensities() -> None:
    value = doubly_robust_value([0.3, 0.7], 1, 1, CHANCES, [0.6, 0.4])
    np.testing.assert_allclose(value, true_value(1), rtol=1e-5)
    assert abs(doubly_robust_value([0.3, 0.7], 1, 1, np.array([0.1, 0.9]), [0.6, 0.4]) - true_value(1)) > 0.1


def test_people_who_do_not_come_to_a_decision_count_with_what_is_expected_of_them() -> None:
    """Of three people one never comes; the others exceed what is expected of them by one and by two."""
    matched = Matched(np.array([[3.0], [5.0], [0.0]]), np.array([[1.0], [1.0], [0.0]]))
    expected = np.array([[2.0], [3.0], [10.0]])
    assert matched.value(np.ones((1, 3)), expected, 1)[0] == pytest.approx((2 + 3 + 10) / 3 + 1.5)


def test_one_round_is_what_ten_lines_of_numpy_give() -> None:
    """One row for each person and a policy that always begins with the first action."""
    rng = np.random.default_rng(2)
    people, chances = 300, np.array([0.25, 0.75])
    action = (rng.random(people) < chances[1]).astype(int)
    reward = rng.normal(size=people) + action
    expected = rng.normal(size=(people, 2))
    propensity = chances[action]
    weighted = np.where(action == 0, (reward - expected[:, 0]) / propensity, 0.0)
    doubly_robust = np.mean(expected[:, 0] + weighted)
    inverse_propensity = np.mean(np.where(action == 0, reward / propensity, 0.0))

    logs = Logs.from_arrays(np.zeros((people, 1, 0)), action[:, None], reward[:, None], actions=2)
    for guess, by_hand in ((expected, doubly_robust), (np.zeros((people, 2)), inverse_propensity)):
        said = Expectations(guess, np.full((people, 2), 1e-6), np.ones(2), np.full((people, 2), 0.5))
        rows = lay_out(logs, said, propensity, np.zeros(people))
        matched = match(jr.key(0), WinStay(), None, 0.25, rows, 1)
        np.testing.assert_allclose(matched.value(np.ones((1, people)), np.zeros((people, 1)), 1)[0], by_hand, rtol=1e-4)


def test_shares_of_people_are_drawn_to_those_of_all_as_far_as_people_are_alike() -> None:
    rng = np.random.default_rng(0)
    alike = Logs.from_arrays(np.zeros((60, 40, 0)), rng.integers(4, size=(60, 40)), np.ones((60, 40)), actions=4)
    assert np.abs(person_shares(alike) - 0.25).max() < 0.03
    loyal = np.repeat(rng.integers(4, size=60)[:, None], 40, axis=1)
    unlike = Logs.from_arrays(np.zeros((60, 40, 0)), loyal, np.ones((60, 40)), actions=4)
    assert person_shares(unlike)[np.arange(60), loyal[:, 0]].min() > 0.95


def test_choices_by_the_moment_are_noticed_and_only_then() -> None:
    rng = np.random.default_rng(0)
    context = rng.normal(size=(60, 20, 1))
    chance = 1 / (1 + np.exp(-2 * context[:, :, 0]))
    for truth, by_moment in ((chance, True), (np.full_like(chance, 0.5), False)):
        action = (rng.random((60, 20)) < truth).astype(int)
        found = estimate(Logs.from_arrays(context, action, np.ones((60, 20)), actions=2))
        assert found.by_moment is by_moment
        # The mean context of a person is known to 1 / sqrt(20), which is worth up to 0.11 of a chance of one half.
        logged = np.where(action == 1, truth, 1 - truth).ravel()
        assert np.mean(np.abs(found.logged - logged)) < 0.08


def test_the_least_weighted_mean_is_the_least_of_all_corners() -> None:
    rng = np.random.default_rng(3)
    values, least = rng.normal(size=6), rng.uniform(1, 2, size=6)
    most = least + rng.uniform(0, 3, size=6)
    corners = [np.array(corner) for corner in itertools.product(*zip(least, most, strict=True))]
    assert least_mean(values, least, most) == pytest.approx(min(np.average(values, weights=one) for one in corners))


def test_bounds_hold_the_truth_when_the_moment_decides_in_secret() -> None:
    """Two actions with equal means; one is taken when it is about to do well, with odds up to twice as high."""
    rng = np.random.default_rng(4)
    noise = rng.normal(size=200_000)
    taken = rng.random(200_000) < np.where(
        noise > 0, 2 / 3, 1 / 2
    )  # odds of 2 and of 1: between 1/1.42 and 1.42 of 1.4
    chance = np.full(taken.sum(), taken.mean())
    zeros, all_alike = np.zeros(taken.sum(), int), np.ones((1, 1))
    seen = Surprises(zeros, zeros, chance, noise[taken])
    bias = noise[taken].mean()
    assert bias > 0.05
    low, high = seen.shifts(1.45, all_alike)[:, 0]
    assert low <= -bias <= high
    assert seen.shifts(1.05, all_alike)[0, 0] > -bias


def test_bounds_are_those_of_the_people_who_would_get_the_action() -> None:
    """Most who had it have steady rewards; the policy gives it to the few whose rewards move much."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(100), 20)
    few = person < 10
    surprise = np.where(few, 3.0, 0.1) * rng.normal(size=2000)
    seen = Surprises(person, np.zeros(2000, int), np.full(2000, 0.5), surprise)
    shares = np.where(np.arange(100) < 10, 1.0, 0.0)[:, None]
    alone = Surprises(person[few], np.zeros(200, int), np.full(200, 0.5), surprise[few])
    np.testing.assert_allclose(seen.shifts(2.0, shares), alone.shifts(2.0, np.ones((10, 1))))
    assert (np.abs(seen.shifts(2.0, shares)) > 4 * np.abs(seen.shifts(2.0, np.ones((100, 1))))).all()
    # Nobody who would get it ever did: those who did stand for all.
    others = np.where(np.arange(200) < 100, 0.0, 1.0)[:, None]
    np.testing.assert_allclose(seen.shifts(2.0, others), seen.shifts(2.0, np.ones((200, 1))))


def test_wrong_expectations_are_corrected_by_how_wrong_they_are_seen_to_be() -> None:
    account = Account(*np.array([[1.0, 3.0], [0.0, 0.5], [2.0, 0.0], [2.0, 2.0]]))
    # Two of four seen rewards were above expectation by one each: half a point too little, in a quarter of rounds.
    assert account.value(np.ones((1, 2)))[0] == pytest.approx(2.0 + 0.5 * 0.25)


def test_replays_of_a_person_do_not_depend_on_who_else_is_there() -> None:
    logs, _ = every_history([0, 1, 0, 1])
    known = Expectations(np.zeros((16, 2)), np.ones((16, 2)), np.ones(2), np.full((16, 2), 0.5))
    people = queue_up(logs, None, known, 3)
    whole = replay(jr.key(0), WinStay(), None, people)
    alone = replay(jr.key(0), WinStay(), None, type(people)(*(part[5:8] for part in people)))
    np.testing.assert_array_equal(whole.reward[5:8], alone.reward)


def test_a_surprise_is_the_error_of_what_the_other_rewards_say(small_model: LatentModel, small_logs: Logs) -> None:
    """Leaving one reward out in closed form equals expecting without it."""
    logs = small_logs.select([3])
    row = int(np.flatnonzero(logs.action == 2)[0])
    reward = logs.reward.copy()
    reward[row] = np.nan
    without = Logs(logs.schema, logs.instance_labels, logs.context, logs.instance, logs.action, reward)
    left_out = logs.reward[row] - expect(small_model, without).mean[0, 2]
    all_in = expect(small_model, logs)
    leverage = all_in.std[0, 2] ** 2 / all_in.noise_variance[2]
    np.testing.assert_allclose((logs.reward[row] - all_in.mean[0, 2]) / (1 - leverage), left_out, rtol=2e-3)


def test_what_is_expected_of_a_person_who_changes_is_what_a_live_belief_expects_now(
    small_model: LatentModel, small_logs: Logs
) -> None:
    forgetful, logs = small_model.with_memory(0.8), small_logs.select([5])
    belief = CalibratedBelief(forgetful)
    state = belief.init()
    for context, action, reward in zip(logs.context, logs.action, logs.reward, strict=True):
        state = belief.observe(state, jnp.asarray(context))
        state = belief.learn(state, Step(jnp.asarray(context), jnp.asarray(action), jnp.asarray(reward)))
    np.testing.assert_allclose(expect(forgetful, logs).mean[0], belief.believe(state).mean(), atol=2e-3)
    assert np.abs(expect(forgetful, logs).mean - expect(small_model, logs).mean).max() > 0.02


def test_replays_take_people_who_change_as_they_are_on_average(small_model: LatentModel, small_logs: Logs) -> None:
    changing = Drift(0.5, 0.3, 2.0).apply(small_model)
    staying, drifting = (Fold.of(small_logs, np.arange(20), model) for model in (small_model, changing))
    for one, other in zip(staying.expectations, drifting.expectations, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    # What a bandit without a model takes for noise does not depend on whether the model forgets.
    np.testing.assert_allclose(staying.ingredients.reward_variance, drifting.ingredients.reward_variance, rtol=1e-5)
    assert float(drifting.model.noise.memory) == 0.5


def test_people_who_change_are_not_replayed_without_a_word(folds: list[Fold], evaluation: Evaluation) -> None:
    forgetful = [replace(fold, model=fold.model.with_memory(0.9)) for fold in folds]
    said = estimate_gain(forgetful, policy="Calibrated", horizon=2)
    assert any("people change" in sentence for sentence in said.sentences)
    assert not any("people change" in sentence for sentence in evaluation.sentences)


def test_intervals_over_people_are_those_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(size=400)
    figure = Resampling(400, 0).estimate(mean_of(values))
    error = values.std(ddof=1) / 20
    assert figure.value == pytest.approx(values.mean())
    assert figure.standard_error == pytest.approx(error, rel=0.06)
    np.testing.assert_allclose([figure.low, figure.high], values.mean() + np.array([-1.966, 1.966]) * error, atol=0.01)
    paired = Resampling(400, 0).estimate(difference(mean_of(values + 1), mean_of(values)))
    assert paired.value == pytest.approx(1)
    assert paired.standard_error < 1e-6


def test_effects_of_actions_are_those_of_least_squares_with_a_level_for_each_person() -> None:
    rng = np.random.default_rng(1)
    action, reward = rng.integers(3, size=(6, 7)), rng.normal(size=(6, 7))
    logs = Logs.from_arrays(np.zeros((6, 7, 0)), action, reward, actions=3)
    person = np.repeat(np.arange(6), 7)
    design = np.concatenate([np.eye(6)[person], np.eye(3)[action.ravel()]], axis=1)
    effects = np.linalg.lstsq(design, reward.ravel(), rcond=None)[0][6:]
    np.testing.assert_allclose(action_effects(logs), effects - effects.mean(), atol=1e-5)


def test_scores_are_what_one_more_of_a_person_does_to_the_effects_on_others() -> None:
    """Weighed least squares with a level for each person, where one of them counts a little more."""
    rng = np.random.default_rng(1)
    action, reward = rng.integers(3, size=(12, 7)), rng.normal(size=(12, 7)) + rng.normal(size=(12, 1))
    logs = Logs.from_arrays(np.zeros((12, 7, 0)), action, reward, actions=3)
    model = plain_models(logs)["action mean"]
    parts = [Fold.of(logs, people, model) for people in (np.array([7, 2, 11, 4]), np.array([0, 1, 3, 5, 6, 8, 9, 10]))]
    chooser = BestSingle.of(parts, 1).choosers[0]
    others = parts[1].people
    person, taken = np.repeat(np.arange(8), 7), action[others].ravel()
    design = np.concatenate([np.eye(8)[person], np.eye(3)[taken]], axis=1)

    def effects(counts: Float[np.ndarray, " others"]) -> Float[np.ndarray, " K"]:
        root = np.sqrt(counts)[person]
        found = np.linalg.lstsq(design * root[:, None], reward[others].ravel() * root, rcond=None)[0][8:]
        return np.asarray(found - found.mean())

    np.testing.assert_allclose(chooser.effects, effects(np.ones(8)), atol=1e-5)
    assert not chooser.scores[parts[0].people].any()
    for place, other in enumerate(others):
        more = effects(np.ones(8) + 1e-4 * np.eye(8)[place]) - effects(np.ones(8))
        np.testing.assert_allclose(chooser.scores[other], more / 1e-4, atol=1e-4)


def everybody_tried_everything(table: Float[np.ndarray, "people K"], parts: int) -> BestSingle:
    """Give the best single action where each action's reward is recorded once for everybody: effects are means."""
    people, zeros = len(table), np.zeros(len(table))
    choosers = []
    for part in range(parts):
        held_out = np.arange(part, people, parts)
        others = np.setdiff1d(np.arange(people), held_out)
        centred = table - table.mean(axis=1, keepdims=True)
        effects = centred[others].mean(axis=0)
        scores = np.zeros_like(table)
        scores[others] = (centred[others] - effects) / len(others)
        choosers.append(Chooser(held_out, effects, scores))
    return BestSingle([Account(column, zeros, zeros, zeros) for column in table.T], choosers)


def test_each_draw_of_people_chooses_again_and_is_paid_by_those_held_out() -> None:
    table = np.random.default_rng(0).normal(size=(9, 3))
    single = everybody_tried_everything(table, 3)
    counts = np.random.default_rng(1).multinomial(9, np.full(9, 1 / 9), size=50).astype(float)
    usual, others_chosen = table.mean(axis=0), 0
    for row, value in zip(counts, single.value(counts), strict=True):
        by_hand = 0.0
        for chooser in single.choosers:
            chosen = int(np.argmax(chooser.effects + sum(row[i] * chooser.scores[i] for i in range(9))))
            others_chosen += chosen != np.argmax(chooser.effects)
            by_hand += sum(row[i] * table[i, chosen] for i in chooser.people) / 9
            by_hand -= (usual[chosen] - usual[np.argmax(chooser.effects)]) / 3
        assert value == pytest.approx(by_hand)
    assert others_chosen > 10


def test_intervals_for_the_best_of_equal_actions_hold_the_truth() -> None:
    """Five actions are worth nothing on average: which is best, and what it brings, is luck, and all of it counts."""
    held, held_with_choices_as_they_are = 0, 0
    for seed in range(200):
        table = np.random.default_rng(seed).normal(size=(60, 5))
        single, resampling = everybody_tried_everything(table, 3), Resampling(60, seed)
        held += resampling.estimate(single.value).holds(0.0)
        fixed = [chooser._replace(scores=np.zeros((60, 5))) for chooser in single.choosers]
        held_with_choices_as_they_are += resampling.estimate(replace(single, choosers=fixed).value).holds(0.0)
    assert held >= 200 * 0.95 - 2.6 * np.sqrt(200 * 0.95 * 0.05)
    assert held_with_choices_as_they_are < 200 * 0.95 - 2.6 * np.sqrt(200 * 0.95 * 0.05)


@pytest.fixture(scope="module")
def folds(small_model: LatentModel, small_logs: Logs) -> list[Fold]:
    """The true encoder with rewards measured on everybody; good enough to be played."""
    return [Fold.of(small_logs, np.arange(part, 80, 2), small_model) for part in range(2)]


@pytest.fixture(scope="module")
def evaluation(folds: list[Fold]) -> Evaluation:
    return evaluate_fitted(folds, policy="Calibrated", seed=0)


def test_a_good_policy_gains_over_everything_it_is_compared_with(evaluation: Evaluation) -> None:
    assert evaluation.refusal is None
    gains = [line for line in evaluation.lines if line.quantity.startswith("gain")]
    assert len(gains) >= 3
    assert all(line.figure.low > 0 for line in gains)
    assert evaluation.gain is not None
    assert "would gain" in evaluation.sentences[0]


def test_the_horizon_ends_where_four_in_five_can_be_followed(evaluation: Evaluation) -> None:
    horizon = evaluation.horizon
    assert horizon.followed >= 0.8 > horizon.shares[horizon.rounds]
    assert list(horizon.shares) == sorted(horizon.shares, reverse=True)


def test_what_was_done_is_the_mean_of_the_means_of_people(evaluation: Evaluation, small_logs: Logs) -> None:
    means = [small_logs.reward[small_logs.instance == person].mean() for person in range(small_logs.instances)]
    assert evaluation.figure("value of what was done").value == pytest.approx(np.mean(means), abs=1e-5)


def test_two_estimators_and_their_disagreement_are_the_headline(evaluation: Evaluation) -> None:
    between = evaluation.figure("disagreement of the two", "difference")
    [rounds] = [line.rounds for line in evaluation.lines if line.figure is between]
    said = {line.estimator: line.figure.value for line in evaluation.lines if line.quantity == GAIN_OVER_DONE}
    if rounds == evaluation.horizon.rounds:
        assert between.value == pytest.approx(said["queue replay"] - said["doubly robust"])
    assert abs(between.value) < 4 * between.standard_error
    assert any("Two estimates" in sentence for sentence in evaluation.sentences)


def test_every_run_has_its_three_controls_and_a_good_one_passes_them(evaluation: Evaluation) -> None:
    assert [control.passed for control in evaluation.controls] == [True, True, True]
    assert "All 3 controls passed." in evaluation.sentences


def test_a_replay_that_peeks_fails_the_control_of_shuffled_rewards(
    folds: list[Fold], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues with the best reward first are what a policy can't have: the gain from nothing is noticed."""

    def peek(logs: Logs, moment: Any, expectations: Expectations, horizon: int) -> Person:
        person = queue_up(logs, moment, expectations, horizon)
        for queue, starts in zip(person.queue, person.starts, strict=True):
            for first, last in itertools.pairwise(starts):
                queue[first:last] = np.sort(queue[first:last])[::-1]
        return person

    monkeypatch.setattr("ilb.trust.accounts.queue_up", peek)
    policies = [build_policy(fold.ingredients, "Calibrated") for fold in folds]
    control = shuffled_rewards(folds, policies, 30, 5, Resampling(80, 0), 0)
    assert not control.passed


def test_hidden_reasons_widen_the_gain_and_break_it_at_last(evaluation: Evaluation) -> None:
    sensitivity = evaluation.sensitivity
    assert sensitivity is not None
    widths = [bound.high - bound.low for bound in sensitivity.bounds]
    assert widths == sorted(widths)
    assert evaluation.gain is not None
    assert sensitivity.bounds[0].low < evaluation.gain.low < evaluation.gain.high < sensitivity.bounds[0].high
    assert sensitivity.breaks_at > 1


def test_regret_in_a_complete_crossover_is_that_of_the_recorded_table(
    folds: list[Fold], evaluation: Evaluation
) -> None:
    """Everybody has tried all five actions here: what the best single action loses is counted by hand."""
    lost = []
    for fold in folds:
        for person in range(fold.logs.instances):
            rows = fold.logs.instance == person
            means = [fold.logs.reward[rows & (fold.logs.action == action)].mean() for action in range(5)]
            lost.append(max(means) - means[fold.best_action])
    single = evaluation.figure("regret of the best single action", "crossover")
    assert single.value == pytest.approx(np.mean(lost), abs=1e-4)
    assert 0 <= evaluation.figure("regret of Calibrated", "crossover").value < single.value


def test_a_propensity_is_taken_out_of_the_contexts() -> None:
    context = np.random.default_rng(0).uniform(0.1, 1, size=(4, 3, 2)).astype(np.float32)
    logs = Logs.from_arrays(context, np.zeros((4, 3)), np.ones((4, 3)), names=["pain", "chance"])
    without, chances = take_out(logs, "chance")
    assert without.schema.names == ("pain",)
    np.testing.assert_allclose(chances, context[:, :, 1].ravel(), rtol=1e-5)
    with pytest.raises(LogsError, match="no column 'luck'"):
        take_out(logs, "luck")
    wrong = Logs.from_arrays(context + 1, np.zeros((4, 3)), np.ones((4, 3)), names=["pain", "chance"])
    with pytest.raises(LogsError, match="at most 1; 12 rows"):
        take_out(wrong, "chance")


def test_an_evaluation_is_written_as_a_frame_as_json_and_for_notebooks(evaluation: Evaluation) -> None:
    rows = evaluation.to_frame("pyarrow").to_pylist()
    assert [row["quantity"] for row in rows] == [line.quantity for line in evaluation.lines]
    plain = json.loads(json.dumps(evaluation.to_dict()))
    assert plain["estimates"][0]["value"] == pytest.approx(rows[0]["value"], abs=1e-6)
    assert "queue replay" in str(evaluation)
    assert evaluation.sentences[0] in str(evaluation)
    assert evaluation._repr_html_().startswith("<table>")
    with pytest.raises(KeyError, match="gain over what was done"):
        evaluation.figure("gain over everything")


def test_logs_that_never_tried_what_the_policy_would_do_are_refused() -> None:
    """Each person has one action only, so that nobody's first choice but that one can be seen."""
    rng = np.random.default_rng(0)
    action = np.repeat(rng.integers(4, size=40)[:, None], 6, axis=1)
    logs = Logs.from_arrays(np.zeros((40, 6, 0)), action, action + rng.normal(size=(40, 6)), actions=4)
    model = plain_models(logs)["action mean"]
    refused = evaluate_fitted([Fold.of(logs, np.arange(part, 40, 2), model) for part in range(2)], policy="Calibrated")
    assert refused.refusal is not None
    assert "can't be said from these logs" in refused.refusal
    assert refused.lines == ()
    assert refused.gain is None
    assert str(refused) == refused.refusal


def test_what_a_policy_is_compared_with_is_marked_where_few_people_can_be_followed_with_it() -> None:
    """The second action is best for everybody, and was tried with a third of people only; the policy can't know."""
    rng = np.random.default_rng(0)
    action = np.where(np.arange(60)[:, None] % 3 == 0, rng.integers(2, size=(60, 8)), 0)
    logs = Logs.from_arrays(np.zeros((60, 8, 0)), action, 2.0 * action + rng.normal(size=(60, 8)), actions=2)
    timid = plain_models(replace(logs, reward=-logs.reward))["action mean"]
    folds = [Fold.of(logs, np.arange(part, 60, 2), timid) for part in range(2)]
    said = estimate_gain(folds, policy="Calibrated", horizon=1)
    assert [fold.best_action for fold in folds] == [1, 1]
    followed = {line.quantity: line.followed for line in said.lines if line.estimator == "queue replay"}
    assert followed["value of Calibrated"] == followed["gain over what was done"] == said.horizon.followed > 0.8
    assert followed["gain over the best single action"] == followed["value of the best single action"] < 0.4
    marked = [sentence for sentence in said.sentences if "less sure than its interval says" in sentence]
    assert any("the best single action" in sentence for sentence in marked)
    assert not any("what was done" in sentence for sentence in marked)
    assert said.to_frame("pyarrow").column("followed").to_pylist() == [line.followed for line in said.lines]


def test_too_few_people_are_refused(small_logs: Logs) -> None:
    refused = evaluate(small_logs.select(np.arange(12)))
    assert refused.refusal is not None
    assert "12 people" in refused.refusal


@pytest.mark.parametrize("wrong", [{"folds": 1}, {"folds": 50}, {"horizon": 0}])
def test_what_can_not_be_done_is_said(small_logs: Logs, wrong: dict[str, Any]) -> None:
    with pytest.raises(LogsError, match=next(iter(wrong))):
        evaluate(small_logs, **wrong)


def test_a_training_that_is_interrupted_ends_the_evaluation(small_logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a half-trained model would gain is of no interest, and whoever interrupts does not want to wait."""
    calls, advance = [], training._advance

    def interrupted_once(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return advance(*arguments)

    pinned: Any = {"latent_dim": 1, "recipe": VAERecipe(width=4, neck=4, epochs=40), "reward": LinearRewardRecipe()}
    some = small_logs.select(np.arange(40))
    model = fit(some, **pinned)
    monkeypatch.setattr(training, "_advance", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        evaluate(some, **pinned, folds=2)
    assert len(calls) == 2
    calls.clear()
    with pytest.warns(IlbWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        fit_again(model, [some])
    assert len(calls) == 2


def test_the_command_asks_the_library_and_prints_and_writes_what_it_says(
    small_logs: Logs,
    evaluation: Evaluation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: dict[str, Any] = {}

    def answer(logs: Logs, **options: Any) -> Evaluation:
        asked.update(options, people=logs.instances, columns=logs.schema.names)
        return evaluation

    monkeypatch.setattr("ilb.cli.evaluate.evaluate", answer)
    table, out = tmp_path / "logs.csv", tmp_path / "gain.json"
    small_logs.select(np.arange(24)).write(table)
    columns = ["--instance", "instance", "--time", "time", "--action", "action", "--reward", "reward"]
    options = [
        "--policy",
        "MAB",
        "--folds",
        "3",
        "--horizon",
        "7",
        "--propensity",
        "x2",
        "--recipe",
        "none",
        "--context",
        "x1",
    ]
    call = ["ilb", "evaluate", str(table), *columns, *options, "--out", str(out)]
    monkeypatch.setattr("sys.argv", [*call, "--json"])
    assert run_the_program() == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text()) == evaluation.to_dict()
    assert asked["columns"] == ("x1", "x2")  # the propensity is read, though it is not listed as a context
    wanted = {"people": 24, "policy": "MAB", "folds": 3, "horizon": 7, "propensity": "x2", "choice": None}
    assert {name: asked.get(name) for name in wanted} == wanted
    assert type(asked["recipe"]).__name__ == "NoEncoding"
    monkeypatch.setattr("sys.argv", call)
    for width in (60, 80, 120):
        monkeypatch.setattr(results, "_width", width, raising=False)
        assert run_the_program() == 0
        printed = capsys.readouterr().out
        assert all(sentence in printed for sentence in evaluation.sentences)
        lines = [line.rstrip() for line in printed.splitlines()]
        for quantity, estimator, rounds, reward, interval, _ in evaluation.rows():
            # Numbers are whole at any width, and from 80 columns on each stands in the line of what it is.
            named, above = (quantity, f" {estimator}, {rounds} decision") if width >= 80 else ("", " ")
            assert any(line.startswith(above) for line in lines)
            assert any(named in line and reward in line and interval in line for line in lines), printed


@pytest.mark.slow
def test_a_table_is_evaluated_from_the_fit_to_the_sentence(small_logs: Logs) -> None:
    """Each person is decided for by a model of the others; the last column plays the part of known propensities."""
    some = small_logs.select(np.arange(24))
    chances = np.column_stack([some.context[:, :1], np.full(some.rows, 0.2, np.float32)])
    logs = Logs.from_arrays(chances, some.action, some.reward, some.instance, actions=5, names=["x", "chance"])
    kind: Any = {"recipe": NoEncoding(), "reward": PersonRewardRecipe()}
    said = evaluate(logs, **kind, policy=BANDIT, folds=2, propensity="chance")
    assert said.refusal is None
    assert len(said.models) == 2
    assert {line.quantity for line in said.lines} >= {"gain over what was done", "value of MAB (centred)"}
    assert any("propensities given" in sentence for sentence in said.sentences)


def test_of_very_many_people_some_are_played_and_none_by_a_model_that_has_seen_them(
    small_logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ilb.trust.crossfit.MOST_PEOPLE", 30)
    learned: list[set[Any]] = []

    def fit_on(others: Logs) -> LatentModel:
        learned.append(set(others.instance_labels))
        return plain_models(others)["action mean"]

    played = cross_fit(small_logs, fit_on, folds=2)
    assert [len(fold.people) for fold in played] == [15, 15]
    for seen, fold in zip(learned, played, strict=True):
        assert len(seen) == 40
        assert not seen & set(fold.logs.instance_labels)
    numbers = by_person(played, [fold.people for fold in played])
    np.testing.assert_array_equal(numbers, np.sort(numbers))
