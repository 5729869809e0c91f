"""The references of benchmarks/real_tables.py, on toy tables; nothing is fetched."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from benchmarks.real_catalogue import Table
from benchmarks.real_references import (
    REFERENCES,
    Components,
    Forecast,
    PersonActions,
    action_means,
    history,
    own_level,
    so_far,
)
from benchmarks.real_tables import OURS, HeldOut, gains, lead, summarise_r2

from ilb.logs import Logs


def toy(seed: int, people: int = 30, rows: int = 6, actions: int = 3) -> Logs:
    rng = np.random.default_rng(seed)
    action = rng.integers(actions, size=(people, rows))
    context = rng.normal(size=(people, rows, 2))
    level = rng.normal(size=(people, 1))
    reward = action + level + context[..., 0] + 0.5 * rng.normal(size=(people, rows))
    time = np.tile(np.arange(rows), (people, 1))
    return Logs.from_arrays(context, action, reward, actions=actions, time=time)


def test_own_level_is_the_shrunken_mean_of_earlier_rewards() -> None:
    train = Logs.from_arrays(np.zeros((2, 2, 0)), [[0, 1], [0, 1]], [[1.0, 5.0], [3.0, 9.0]], actions=2)
    test = Logs.from_arrays(np.zeros((1, 3, 0)), [[1, 0, 0]], [[8.0, 3.0, 2.0]], actions=2)
    forecast = own_level(train, test)
    # Means of actions 2 and 7; residuals -1 and -2, 1 and 2: levels ±1.5, within-person variance (4 * 0.25) / 2 = 0.5,
    # between 1.5² - 0.5 / 2 = 2. After one residual of 1 the level is 2 / 2.5; after 1 and 1 it is 2 * 2 / 4.5.
    np.testing.assert_allclose(forecast.mean, [7.0, 2 + 0.8, 2 + 4 / 4.5])
    np.testing.assert_allclose(forecast.std**2, [0.5 + 2, 0.5 + 1 / 2.5, 0.5 + 1 / 4.5])


def test_what_came_before_counts_only_earlier_rows_of_the_group() -> None:
    count, total = so_far(np.array([1, 0, 1, 1, 0]), np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    np.testing.assert_array_equal(count, [0, 0, 1, 2, 1])
    np.testing.assert_array_equal(total, [0.0, 0.0, 1.0, 5.0, 2.0])


def test_history_is_what_a_loop_over_earlier_rows_finds() -> None:
    logs, means = toy(0), np.array([0.5, 1.0, 2.0])
    found = history(logs, means)
    for row in range(logs.rows):
        past = [i for i in range(row) if logs.instance[i] == logs.instance[row]]
        same = [logs.reward[i] for i in past if logs.action[i] == logs.action[row]]
        above = [logs.reward[i] - means[logs.action[i]] for i in past]
        expected = [
            len(past),
            np.mean(above) if past else np.nan,
            logs.reward[past[-1]] if past else np.nan,
            np.mean(same) if same else np.nan,
        ]
        np.testing.assert_allclose(found[row], expected, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in REFERENCES if name != "mixed model"])
def test_no_reference_looks_at_the_reward_at_hand_or_later_ones(name: str) -> None:
    check_blindness(REFERENCES[name])


def test_the_mixed_model_looks_at_no_later_reward() -> None:
    pytest.importorskip("statsmodels")
    check_blindness(REFERENCES["mixed model"])


def check_blindness(reference: Callable[[Logs, Logs], Forecast]) -> None:
    train, test = toy(1), toy(2, people=5)
    changed = Logs.from_arrays(
        test.context,
        test.action,
        np.where(test.time >= 3, -50.0, test.reward),
        test.instance,
        actions=3,
        time=test.clock,
    )
    before, after = reference(train, test), reference(train, changed)
    known = test.time <= 3
    np.testing.assert_allclose(after.mean[known], before.mean[known], atol=1e-9)
    np.testing.assert_allclose(after.std[known], before.std[known], atol=1e-9)


def test_the_gaussian_over_actions_predicts_by_conditioning() -> None:
    model = PersonActions(np.array([1.0, 2.0]), np.array([[2.0, 1.5], [1.5, 3.0]]), 0.5)
    test = Logs.from_arrays(np.zeros((1, 2, 0)), [[0, 1]], [[4.0, 0.0]], actions=2)
    forecast = model.forecast(test)
    np.testing.assert_allclose(forecast.mean, [1.0, 2.0 + 1.5 / 2.5 * 3.0])
    np.testing.assert_allclose(forecast.std**2, [2.5, 3.5 - 1.5**2 / 2.5])


def test_the_gaussian_over_actions_finds_what_people_were_drawn_from() -> None:
    rng = np.random.default_rng(0)
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])
    effects = rng.multivariate_normal([3.0, -1.0], covariance, size=2000)
    action = np.tile([0, 1, 0, 1], (2000, 1))
    reward = np.take_along_axis(effects, action, axis=1) + 0.5 * rng.normal(size=action.shape)
    model = PersonActions.fit(Logs.from_arrays(np.zeros((2000, 4, 0)), action, reward, actions=2))
    np.testing.assert_allclose(model.mean, [3, -1], atol=0.1)
    np.testing.assert_allclose(model.covariance, covariance, atol=0.15)
    assert model.noise == pytest.approx(0.25, abs=0.02)


def test_components_are_those_of_the_draw() -> None:
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(3000), 4)
    components = Components.of(person, rng.normal(size=3000)[person] + 0.5 * rng.normal(size=12000))
    assert components.between == pytest.approx(1, abs=0.1)
    assert components.within == pytest.approx(0.25, abs=0.02)


def held_out(person: list[str], reward: list[float], ours: list[float], other: list[float]) -> HeldOut:
    ones = np.ones(len(reward))
    forecasts = {OURS: Forecast(np.array(ours), ones), "other": Forecast(np.array(other), ones)}
    return HeldOut(np.array(person, dtype=object), np.array(reward), forecasts, {}, "", "", [], 0.0)


def test_the_lead_is_the_difference_of_pooled_r_squared_with_people_as_units() -> None:
    splits = [
        held_out(["a", "a", "b"], [0.0, 2.0, 4.0], [0.5, 2.0, 3.0], [1.0, 1.0, 3.0]),
        held_out(["b", "c"], [4.0, 0.0], [3.0, 0.0], [2.0, 1.0]),
    ]
    ahead = lead(splits, OURS, "other")
    assert ahead.value == pytest.approx(summarise_r2(splits, OURS) - summarise_r2(splits, "other"))
    # People a, b, c gain 1.75, 0 + 3 and 1 of 4, 4 + 4 and 4 squared deviations.
    left = np.array([1.75, 3, 1]) - 5.75 / 16 * np.array([4, 8, 4])
    assert ahead.standard_error == pytest.approx(np.std(left, ddof=1) * np.sqrt(3) / 16)
    assert ahead.count == 3


def test_a_person_of_two_splits_counts_once_among_the_gains() -> None:
    same = {"person × action": 1.0, "Thompson sampling": 0.0, "hindsight": 3.0}
    plays = [
        {"person": "a", OURS: 2.0, "popularity": 1.0, **same},
        {"person": "a", OURS: 1.0, "popularity": 1.0, **same},
        {"person": "b", OURS: 3.0, "popularity": 2.5, **same},
    ]
    found = gains(plays)
    assert found["people"] == 2
    assert found["gain over popularity"] == pytest.approx(0.5)
    assert found["gain over popularity_se"] == pytest.approx(0.0)


def test_a_crossover_is_told_from_repeated_trials_and_from_contexts_that_move() -> None:
    frame = pd.DataFrame(
        [(person, action, 1.0 * action, person % 2) for person in range(5) for action in range(4)],
        columns=["person", "action", "reward", "sex"],
    )
    moving = frame.assign(sex=np.arange(len(frame)))
    assert Table("complete", "", lambda: frame).crossover
    assert not Table("twice", "", lambda: pd.concat([frame, frame])).crossover
    assert not Table("moving", "", lambda: moving).crossover
    assert not Table("sparse", "", lambda: frame.iloc[::2]).crossover


def test_people_of_a_split_are_either_learned_from_or_held_out() -> None:
    frame = pd.DataFrame({"person": np.repeat(np.arange(10), 2), "action": np.tile([0, 1], 10), "reward": 1.0})
    train, test = Table("toy", "", lambda: frame).split(0)
    assert set(train["person"]) | set(test["person"]) == set(range(10))
    assert len(set(train["person"])) == 7
    assert not set(train["person"]) & set(test["person"])


def test_action_means_of_an_action_nobody_took_are_zero() -> None:
    logs = Logs.from_arrays(np.zeros((2, 1, 0)), [[0], [0]], [[1.0], [3.0]], actions=2)
    np.testing.assert_array_equal(action_means(logs), [2.0, 0.0])
