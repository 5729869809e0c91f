"""Checks: every statistic a second time, clean people, broken people, the table of checks and the command."""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import laplace, multivariate_normal, norm, permutation_test, t, uniform

import ilb.cli.console as console_module
from ilb import (
    LatentModel,
    LinearReward,
    LinearRewardRecipe,
    Logs,
    PersonRewardRecipe,
    PlainContexts,
    fit,
    predict_ahead,
)
from ilb.cli import run as run_command
from ilb.errors import FitError, IdentifiabilityWarning, IlbError
from ilb.models.drift import Drift
from ilb.models.latent import canonical_basis
from ilb.networks import NoEncoder
from ilb.offline.completion import complete_model
from ilb.offline.drifts import find_drift
from ilb.offline.encoders import ENCODER_RECIPES, UNTRAINED_RECIPES
from ilb.offline.encodings import measure_scatter
from ilb.offline.fit import fit_again
from ilb.offline.recipes import Recipes
from ilb.offline.rewards import REWARD_RECIPES
from ilb.offline.training import describe_recipe
from ilb.trust import certainty, checking
from ilb.trust.apart import check_fingerprints, check_people_apart, contrastive_gains
from ilb.trust.beliefs import believe
from ilb.trust.certainty import check_intervals, check_probabilities
from ilb.trust.chance import chance_of
from ilb.trust.checking import CHECKS
from ilb.trust.checks import Check, Checks, Verdict
from ilb.trust.choices import check_choices, check_overlap, check_support
from ilb.trust.held_out import HeldOut
from ilb.trust.noise import check_noise, shape_of_noise, spread_of_noise
from ilb.trust.predictions import check_linearity
from ilb.trust.rounds import check_drift, check_later_contexts, effect_of_action, effect_on_next
from ilb.trust.state import check_dimensions, check_reliability


def people(number: int = 90, rows: int = 16, seed: int = 0, **changes: Callable[..., Any]) -> Logs:
    """Two hidden numbers, contexts that show them with noise, three actions at random, and what `changes` makes of it.

    `moment(rng, state)` gives the state shown in each row, `act(rng, state, shown)` the actions, `pay(state, shown)`
    the mean rewards [I, T, K].
    """
    rng = np.random.default_rng(seed)
    state = rng.normal(size=(number, 1, 2))
    shown = state + rng.normal(size=(number, rows, 2))
    if "moment" in changes:
        shown = changes["moment"](rng, state, rows)
    action = rng.integers(3, size=(number, rows))
    if "act" in changes:
        action = changes["act"](rng, state, shown)
    means = np.broadcast_to(state @ np.array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]]), (number, rows, 3))
    if "pay" in changes:
        means = changes["pay"](state, shown)
    reward = np.take_along_axis(means, action[..., None], axis=2)[..., 0] + 0.5 * rng.normal(size=(number, rows))
    return Logs.from_arrays(shown, action, reward)


def fitted(logs: Logs) -> LatentModel:
    return fit(logs, latent_dim=1, recipe=PlainContexts(), reward=PersonRewardRecipe(hidden=0))


def held(logs: Logs) -> HeldOut:
    return HeldOut.of(fitted(logs), logs)


@pytest.fixture(scope="module")
def clean_logs() -> Logs:
    return people()


@pytest.fixture(scope="module")
def clean(clean_logs: Logs) -> HeldOut:
    return held(clean_logs)


@pytest.fixture(scope="module")
def clean_checks(clean: HeldOut) -> Checks:
    return Checks(tuple(ask(clean) for ask in CHECKS), clean.about)


# Fitting again


RECIPES = {**ENCODER_RECIPES, **UNTRAINED_RECIPES}
PAIRS = [*((name, "person") for name in RECIPES), *(("none", reward) for reward in REWARD_RECIPES)]


@pytest.mark.parametrize(("encoder", "reward"), PAIRS)
def test_recipes_come_back_from_what_a_saved_model_says_of_them(encoder: str, reward: str, clean: HeldOut) -> None:
    recipes = Recipes(RECIPES[encoder](), 3, REWARD_RECIPES[reward]())
    described = {**describe_recipe(recipes.encoder), "latent_dim": 3, "reward": describe_recipe(recipes.reward)}
    stored = json.loads(json.dumps(described))  # as in a manifest
    provenance = clean.model.provenance
    assert provenance is not None
    assert Recipes.of(replace(clean.model, provenance=replace(provenance, recipe=stored))) == recipes


def test_a_model_of_unknown_make_is_not_fitted_again_and_says_so(small_model: LatentModel, small_logs: Logs) -> None:
    with pytest.raises(FitError, match="does not say how it was fitted"):
        Recipes.of(small_model)
    looked = HeldOut.of(small_model, small_logs)
    assert not looked.crossed
    assert "as if the model had not seen them" in looked.about


def test_a_direction_that_other_fits_find_in_part_only_does_not_count(
    small_model: LatentModel, small_logs: Logs
) -> None:
    looked, n = HeldOut.of(small_model, small_logs), small_model.encoded_dim
    for last, found in ((0.93, n), (0.85, n - 1)):
        vars(looked)["agreement"] = np.array([[0.97] * (n - 1) + [last]] * 3)  # as if three other fits had been made
        check = check_dimensions(looked)
        assert check.figure == f"{found} of the model's {n} stand out"
        assert check.verdict is (Verdict.FINE if found == n else Verdict.DOUBTFUL)
        assert (f"latent_dim={n - 1}" in check.remedy) is (found < n)


def coefficients(model: LatentModel) -> np.ndarray:
    assert isinstance(model.reward, LinearReward)
    return np.asarray(model.reward.theta)


def test_fitting_again_gives_the_model_that_was_fitted(clean_logs: Logs) -> None:
    model = fit(clean_logs, latent_dim=1, recipe=PlainContexts(), reward=LinearRewardRecipe())
    [again] = fit_again(model, [clean_logs])
    np.testing.assert_array_equal(coefficients(again), coefficients(model))


def test_nobody_is_looked_at_by_a_fit_that_has_seen_them(clean: HeldOut, clean_logs: Logs) -> None:
    assert sorted(np.concatenate([part.people for part in clean.parts])) == list(range(clean_logs.instances))
    for part in clean.parts:
        assert not set(part.people) & set(part.others)
        # Other rewards of theirs would change nothing in the fit that looks at them.
        changed = clean_logs.reward.copy()
        changed[clean.rows_of(part.people)] += 5.0
        [other] = fit_again(clean.model, [replace(clean_logs, reward=changed).select(part.others)])
        np.testing.assert_array_equal(coefficients(other), coefficients(part.model))


def test_predictions_are_those_of_the_fits_in_the_order_of_the_rows(clean: HeldOut, clean_logs: Logs) -> None:
    part = clean.parts[1]
    ahead = predict_ahead(part.model, clean_logs.select(part.people))
    theirs = np.isin(clean.predictions.rows, clean.rows_of(part.people))
    np.testing.assert_allclose(clean.predictions.mean[theirs], ahead.mean)
    assert np.all(np.diff(clean.predictions.rows) > 0)


def test_logs_that_were_read_with_other_scales_are_read_as_the_models_were(clean: HeldOut) -> None:
    others = people(seed=5)
    assert others.schema != clean.model.schema
    assert HeldOut.of(clean.model, others, unseen=True).logs.schema == clean.model.schema


# Statistics, a second time


@pytest.mark.parametrize("memory", [1.0, 0.7])
def test_a_belief_after_some_rows_is_what_predictions_one_step_ahead_rest_on(clean_logs: Logs, memory: float) -> None:
    model = fit(clean_logs, latent_dim=1, recipe=PlainContexts(), reward=PersonRewardRecipe(hidden=1))
    model = model.with_memory(memory)
    ahead = predict_ahead(model, clean_logs)
    for time in (0, 3, 15):
        belief = believe(model, clean_logs, clean_logs.time <= time, clean_logs.time < time)
        rows = np.flatnonzero(clean_logs.time == time)
        action = clean_logs.action[rows]
        everyone = np.arange(len(rows))
        np.testing.assert_allclose(belief.mean[everyone, action], ahead.mean[rows], atol=1e-4)
        loading = belief.loading[everyone, action]
        doubt = np.einsum("ip,ipq,iq->i", loading, belief.state_covariance, loading)
        noise = np.asarray(model.noise.reward_variance)[action]
        std = np.sqrt(doubt + belief.own_variance[everyone, action] + noise)
        np.testing.assert_allclose(std, ahead.std[rows], rtol=1e-4)


def test_how_much_better_an_action_is_follows_from_the_whole_covariance(clean: HeldOut, clean_logs: Logs) -> None:
    seen = np.ones(clean_logs.rows, dtype=bool)
    belief = believe(clean.model, clean_logs, seen, seen & (clean_logs.time < 4))
    mean, variance = belief.difference(np.array([3, 8]), np.array([0, 2]), np.array([1, 0]))
    for number, (person, first, second) in enumerate([(3, 0, 1), (8, 2, 0)]):
        loading = belief.loading[person]
        covariance = loading @ belief.state_covariance[person] @ loading.T + np.diag(belief.own_variance[person])
        weights = np.zeros(3)
        weights[[first, second]] = 1, -1
        assert mean[number] == pytest.approx(weights @ belief.mean[person])
        assert variance[number] == pytest.approx(weights @ covariance @ weights)


def test_the_share_that_intervals_hold_is_counted_by_how_much_was_known(clean: HeldOut, clean_logs: Logs) -> None:
    error = np.abs(clean.predictions.reward - clean.predictions.mean) / clean.predictions.std
    time = clean_logs.time[clean.predictions.rows]
    table = check_intervals(clean).numbers["coverage"]
    assert {(row["level"], row["after"]) for row in table} == {(x, y) for x in (0.5, 0.8, 0.95) for y in (0, 1, 5)}
    for row in table:
        some = (time >= row["after"]) & (time < {0: 1, 1: 5, 5: 20}[row["after"]])
        assert row["held"] == pytest.approx(np.mean(error[some] <= norm.ppf((1 + row["level"]) / 2)), abs=1e-9)


def test_where_two_actions_do_the_same_it_is_half_true_that_one_is_better() -> None:
    """Rewards are 0 or 1, and two in five pairs of means are equal: none of them is a mistake."""
    logs = people(200, 8)
    coarse = replace(logs, reward=(logs.reward > 0).astype(np.float32))
    row = check_probabilities(as_it_is(coarse))
    assert row.verdict is Verdict.FINE, row
    assert row.numbers["true"] > 0.6


def test_the_chance_of_scores_is_that_of_scipys_flipped_samples() -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.2, 0.4):
        scores = rng.laplace(size=(40, 1)) + shift
        ours = chance_of(scores, rng)
        theirs = permutation_test(
            (scores[:, 0],), lambda x: np.abs(np.mean(x)), permutation_type="samples", n_resamples=4999, rng=rng,
            alternative="greater",
        )  # fmt: skip
        assert ours == pytest.approx(theirs.pvalue, abs=0.03)


def test_chances_are_uniform_where_nothing_is_wrong_whatever_the_tails() -> None:
    rng = np.random.default_rng(4)
    chances = np.array([chance_of(rng.standard_t(3, size=(30, 4)), rng) for _ in range(200)])
    assert np.mean(chances < 0.1) == pytest.approx(0.1, abs=0.065)  # three standard errors
    assert np.mean(chances < 0.5) == pytest.approx(0.5, abs=0.11)


def test_the_gain_over_chance_is_that_of_normal_densities_one_by_one() -> None:
    logs = people(12, 4)
    looked = HeldOut.of(fitted(logs), logs, unseen=True)
    gains = []
    for part in looked.parts:
        table = logs.select(part.people)
        encodings = looked.encodings[looked.rows_of(part.people)]
        scatter = measure_scatter(encodings, table.starts)
        basis = canonical_basis(scatter.encoding_covariance, scatter.population_covariance)
        placed = ((encodings - scatter.population_mean) @ basis.matrix).reshape(len(part.people), 4, -1)
        prior = 1 / np.maximum(basis.population_variances, 1e-4)
        for person in range(len(placed)):
            rows = []
            for row in range(4):
                others = np.delete(placed, row, axis=1)
                precision = 3 + prior
                logits = [
                    multivariate_normal.logpdf(
                        placed[person, row], one.sum(axis=0) / precision, np.diag(1 + 1 / precision)
                    )
                    for one in others
                ]
                rows.append(logits[person] - np.logaddexp.reduce(logits) + np.log(len(placed)))
            gains.append(np.mean(rows))
    np.testing.assert_allclose(contrastive_gains(looked, looked.encodings), gains, atol=1e-3)


def test_the_share_that_goes_with_an_action_is_that_of_a_regression_with_a_level_for_each_person() -> None:
    rng = np.random.default_rng(0)
    person, action = np.repeat(np.arange(30), 10), rng.integers(3, size=300)
    values = rng.normal(size=(30, 1))[person] + 0.8 * (action == 1)[:, None] + rng.normal(size=(300, 1))
    share, chance = effect_of_action(action, values, person, rng)
    levels = (person[:, None] == np.arange(30)).astype(float)
    both = np.concatenate([levels, (action[:, None] == np.arange(2)).astype(float)], axis=1)
    left = [values - x @ np.linalg.lstsq(x, values, rcond=None)[0] for x in (levels, both)]
    expected = 1 - np.sum(left[1] ** 2) / (270 - 2) / (np.sum(left[0] ** 2) / 270)
    assert share == pytest.approx(expected, abs=1e-9)
    assert chance < 0.01


def test_an_answer_to_rewards_is_not_taken_for_an_effect_on_them() -> None:
    """The action is 1 after a bad reward, and changes nothing; in four rows, a mean holds what it answers to."""
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(300, 1)) + rng.normal(size=(300, 5))
    action = (np.roll(reward, 1, axis=1) < 0).astype(int)
    person = np.repeat(np.arange(300), 3)
    _, within = effect_of_action(action[:, 1:4].ravel(), reward[:, 2:].reshape(-1, 1), person, rng)
    share, chance = effect_on_next(action[:, 1:4].ravel(), reward[:, 2:].reshape(-1, 1), person, rng)
    assert within < 0.005  # what the mean of all rows would say
    assert chance > 0.05
    assert share < 0.01


def test_what_comes_next_is_held_against_what_comes_later_one_by_one() -> None:
    rng = np.random.default_rng(1)
    person, action = np.repeat(np.arange(40), 6), rng.integers(2, size=240)
    values = rng.normal(size=(40, 1))[person] + 1.0 * (action == 1)[:, None] + rng.normal(size=(240, 1))
    left, taken = [], []
    for one in range(40):
        theirs, did = values[person == one, 0], (action[person == one] == 0).astype(float)
        for row in range(5):
            left.append(np.sqrt((5 - row) / (6 - row)) * (theirs[row] - theirs[row + 1 :].mean()))
            taken.append(did[row] - (did[:row].sum() + (action == 0).mean()) / (row + 1))
    slope = np.dot(taken, left) / np.dot(taken, taken)
    share, chance = effect_on_next(action, values, person, rng)
    assert share == pytest.approx(
        1 - np.sum((left - slope * np.array(taken)) ** 2) / np.sum(np.square(left)) * 200 / 199
    )
    assert share > 0.05
    assert chance < 0.01


def test_the_shape_of_noise_does_not_ask_directions_that_never_vary() -> None:
    rng, person = np.random.default_rng(0), np.repeat(np.arange(40), 5)
    values = rng.normal(size=(200, 2))
    beside = np.c_[values, values.sum(axis=1), np.zeros(200)]  # a sum of the others, and nothing at all
    found, plain = shape_of_noise(beside, person), shape_of_noise(values, person)
    assert abs(found.value - 1) < 4 * found.standard_error
    assert plain.value == pytest.approx(shape_of_noise(np.c_[values, np.zeros(200)], person).value)
    assert shape_of_noise(np.ones((200, 2)), person).count == 0


def test_the_shape_of_noise_is_that_of_its_density() -> None:
    rng, person = np.random.default_rng(0), np.repeat(np.arange(200), 50)
    for density in (norm, laplace, uniform, t(4)):
        values = density.rvs(size=(10_000, 1), random_state=rng)
        sample = np.asarray(density.rvs(size=10**6, random_state=rng))
        size = np.mean(np.abs(sample - sample.mean()))
        found = shape_of_noise(values + 3.0 * person[:, None], person)
        assert found.value == pytest.approx(size / sample.std() * np.sqrt(np.pi / 2), abs=0.015)


def test_the_spread_of_noise_is_the_one_that_people_were_given() -> None:
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(500), 12)
    for spread in (0.0, 0.4):
        size = np.exp(spread * rng.normal(size=500))[person, None]
        found, chance = spread_of_noise(size * rng.standard_t(6, size=(6000, 2)), person, rng)
        assert found == pytest.approx(spread, abs=0.12)
        assert (chance < 0.005) == (spread > 0)


def test_rows_until_known_follow_from_the_variances(clean: HeldOut) -> None:
    numbers = check_reliability(clean).numbers
    scatter = clean.scatter
    variances = canonical_basis(scatter.encoding_covariance, scatter.population_covariance).population_variances[::-1]
    np.testing.assert_allclose(numbers["visits"], 4 / variances, rtol=1e-6)
    rows = numbers["visits"][0]
    assert rows * variances[0] / (1 + rows * variances[0]) == pytest.approx(0.8)


# Clean and broken people


def test_clean_people_are_fine_in_every_respect(clean_checks: Checks) -> None:
    assert clean_checks.verdict is Verdict.FINE, str(clean_checks)
    assert len(clean_checks) == len(CHECKS)
    assert all(not row.remedy for row in clean_checks)


def test_shuffled_people_are_not_told_apart(clean_logs: Logs) -> None:
    order = np.random.default_rng(0).permutation(clean_logs.rows)
    logs = replace(clean_logs, context=clean_logs.context[order])
    assert check_people_apart(held(logs)).verdict is Verdict.BROKEN


def test_people_who_wander_are_found_out() -> None:
    def wander(rng: np.random.Generator, state: np.ndarray, rows: int) -> np.ndarray:
        steps = 0.3 * rng.normal(size=(len(state), rows, 2))
        return state + np.cumsum(steps, axis=1) + rng.normal(size=(len(state), rows, 2))

    row = check_drift(held(people(moment=wander)))
    assert row.verdict is not Verdict.FINE, row
    assert "--time" in row.remedy


def test_a_model_that_forgets_is_not_said_to_take_people_as_always_the_same() -> None:
    def leap(rng: np.random.Generator, state: np.ndarray, rows: int) -> np.ndarray:
        steps = rng.normal(size=(len(state), rows, 2))
        return state + np.cumsum(steps, axis=1) + rng.normal(size=(len(state), rows, 2))

    staying = held(people(moment=leap))
    forgetting = replace(staying, model=staying.model.with_memory(0.6))
    assert check_drift(staying).verdict is Verdict.BROKEN
    row = check_drift(forgetting)
    assert row.verdict is Verdict.DOUBTFUL
    assert "0.6 times" in row.remedy
    assert "always the same" not in row.remedy


def test_who_forgets_at_once_never_knows_a_person(clean: HeldOut) -> None:
    def rounds(memory: float) -> float | None:
        model = clean.model.with_memory(memory)
        return check_reliability(replace(clean, model=model)).numbers["rounds"]

    assert rounds(1.0) is not None
    assert rounds(0.02) is None


@pytest.mark.parametrize("memory", [0.9, 0.7])
def test_who_forgets_needs_more_rows_to_know_a_person_by_contexts(clean: HeldOut, memory: float) -> None:
    staying = check_reliability(clean).numbers["visits"]
    forgetting = check_reliability(replace(clean, model=clean.model.with_memory(memory))).numbers["visits"]
    for count, rounds in zip(staying, forgetting, strict=True):
        if rounds is None:
            assert count >= 1 / (1 - memory)
        else:
            last, full = int(np.floor(rounds)), memory ** np.arange(np.ceil(rounds))
            assert full[:last].sum() - 1e-9 <= count <= full.sum() + 1e-9


def drifting(kept: float, seed: int) -> Logs:
    """A level and a taste for the last action over the first, which forget themselves but for a share `kept`."""
    rng, number, rows = np.random.default_rng(seed), 300, 24
    state = rng.normal(size=(number, rows, 2))
    for row in range(1, rows):
        state[:, row] = kept * state[:, row - 1] + np.sqrt(1 - kept**2) * state[:, row]
    action = rng.integers(3, size=(number, rows))
    reward = state[..., 0] + 0.8 * state[..., 1] * (action - 1) + 0.5 * rng.normal(size=(number, rows))
    return Logs.from_arrays(np.zeros((number, rows, 0)), action, reward)


def test_who_knows_that_people_change_is_not_held_to_what_was_said_long_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Told what is better, long after: nearly anything. As of the end of the first half it was right to be surer."""
    model = complete_model(NoEncoder(), drifting(0.8, 1), reward=PersonRewardRecipe(3))
    changing = find_drift([(model, drifting(0.8, 2))], rounds=50).apply(model)
    logs = drifting(0.8, 0)
    row = check_probabilities(HeldOut.of(changing, logs, unseen=True))
    assert float(changing.noise.memory) < 0.9
    assert row.verdict is Verdict.FINE
    # By hand: one chance for each pair, of the first rewards in the second half; stated as a live person is told.
    stated = []
    for person in range(40):
        mine = logs.select(np.array([person]))
        early = mine.time < 12
        first = {action: int(np.flatnonzero(~early & (mine.action == action))[0]) for action in set(mine.action[12:])}
        for one, other in itertools.pairwise(sorted(first)):
            ages = first[one] - 11, first[other] - 11
            beliefs = [believe(changing, mine, early, early, later=age) for age in ages]
            mean = beliefs[0].mean[0, one] - beliefs[1].mean[0, other]
            spread = sum(
                belief.std[0, action] ** 2 + float(changing.noise.reward_variance[action])
                for belief, action in zip(beliefs, (one, other), strict=True)
            )
            sooner = beliefs[int(np.argmin(ages))].state_covariance[0]
            shared = beliefs[0].loading[0, one] @ sooner @ beliefs[1].loading[0, other]
            spread -= 2 * float(changing.noise.memory) ** abs(ages[0] - ages[1]) * shared
            stated.append(norm.cdf(abs(mean) / np.sqrt(spread)))
    monkeypatch.setattr(certainty, "FORGOTTEN", 1e-12)
    some = check_probabilities(HeldOut.of(changing, logs.select(np.arange(40)), unseen=True))
    assert some.numbers["stated"] == pytest.approx(np.mean(stated), abs=1e-6)


def test_what_is_believed_later_has_faded_as_if_rows_without_anything_had_come() -> None:
    logs = drifting(0.8, 0).select(np.arange(5))
    model = Drift(0.7, 0.5, 2.0).apply(complete_model(NoEncoder(), logs, reward=PersonRewardRecipe(3)))
    early = logs.time < 12
    waited = early | (logs.time == 14)  # a context says nothing here, but three rounds have gone by
    one, other = believe(model, logs, early, early, later=3), believe(model, logs, waited, early)
    for name in ("mean", "std", "state"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)


def test_a_choice_by_the_moment_is_found_out_and_is_worse_where_the_moment_pays() -> None:
    def by_moment(rng: np.random.Generator, state: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return np.argmax(
            shown @ np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]) + rng.gumbel(size=(*shown.shape[:2], 3)), 2
        )

    def by_person(rng: np.random.Generator, state: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return by_moment(rng, state, np.broadcast_to(state, shown.shape))

    def paid(state: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return np.stack([shown[..., 0], -shown[..., 0], shown[..., 1]], axis=2)

    assert check_choices(held(people(act=by_person))).verdict is Verdict.FINE
    assert check_choices(held(people(act=by_moment))).verdict is Verdict.DOUBTFUL
    assert check_choices(held(people(act=by_moment, pay=paid))).verdict is Verdict.BROKEN


def test_actions_that_only_some_kinds_of_people_had_are_named() -> None:
    def by_kind(rng: np.random.Generator, state: np.ndarray, shown: np.ndarray) -> np.ndarray:
        drawn = rng.integers(2, size=shown.shape[:2])
        return np.where(state[..., 0] > 0, drawn, 2 - drawn)

    row = check_overlap(held(people(act=by_kind)))
    assert row.verdict is not Verdict.FINE
    shares = row.numbers["share"]
    assert shares["1"] > 0.5 > max(shares["0"], shares["2"])


def test_the_effective_sample_is_the_harmonic_mean_of_true_propensities() -> None:
    chances = {True: np.array([0.6, 0.2, 0.2]), False: np.array([0.2, 0.2, 0.6])}

    def by_sign(rng: np.random.Generator, state: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return np.stack([rng.choice(3, p=chances[bool(one > 0)], size=shown.shape[1]) for one in state[:, 0, 0]])

    share = check_overlap(held(people(300, act=by_sign))).numbers["share"]
    assert share["0"] == pytest.approx((2 / (1 / 0.6 + 1 / 0.2)) / 0.4, abs=0.12)
    assert share["1"] == pytest.approx(1.0, abs=0.05)


def test_rare_actions_are_named(clean_logs: Logs) -> None:
    action = np.where((clean_logs.action == 2) & (clean_logs.instance > 2), 1, clean_logs.action).astype(np.int32)
    row = check_support(HeldOut.of(fitted(clean_logs), replace(clean_logs, action=action), unseen=True))
    assert row.verdict is not Verdict.FINE
    assert "(2)" in row.sentence


def as_it_is(logs: Logs) -> HeldOut:
    """Nothing of plain contexts is learned by heart, so the fit of everyone will do."""
    return HeldOut.of(fitted(logs), logs, unseen=True)


def test_rewards_that_bend_are_found_out() -> None:
    def bent(state: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return np.broadcast_to((state**2 - 1) @ np.array([[1.0, -1.0, 0.0], [0.0, 0.5, 1.0]]), (*shown.shape[:2], 3))

    row = check_linearity(as_it_is(people(pay=bent)))
    assert row.verdict is not Verdict.FINE
    # Of a quadratic in two numbers nothing else is left than the noise: the gain is all of the expected rewards.
    assert row.numbers["gain"] > 0.4


def test_heavy_tails_and_unequal_noise_are_found_out() -> None:
    def heavy(rng: np.random.Generator, state: np.ndarray, rows: int) -> np.ndarray:
        return state + rng.laplace(size=(len(state), rows, 2))

    def unequal(rng: np.random.Generator, state: np.ndarray, rows: int) -> np.ndarray:
        return state + rng.choice([0.5, 1.5], size=(len(state), 1, 1)) * rng.normal(size=(len(state), rows, 2))

    assert "contexts is not normal" in check_noise(as_it_is(people(moment=heavy))).sentence
    row = check_noise(as_it_is(people(moment=unequal)))
    assert "contexts differs between people" in row.sentence
    assert row.numbers["contexts"]["spread"] == pytest.approx(np.log(3) / 2, abs=0.1)


def test_actions_that_change_the_next_context_are_found_out() -> None:
    logs = people()
    context = logs.context.copy()
    context[1:] += 0.5 * (logs.action[:-1, None] == 1) * (logs.time[1:, None] > 0)
    assert check_later_contexts(as_it_is(logs)).verdict is Verdict.FINE
    row = check_later_contexts(as_it_is(replace(logs, context=context)))
    assert row.verdict is Verdict.BROKEN
    assert "contexts" in row.remedy


def test_actions_that_change_the_next_reward_are_found_out_and_answers_to_rewards_are_not() -> None:
    logs = people(150, 6)
    reward = logs.reward.copy()
    reward[1:] += 0.6 * (logs.action[:-1] == 1) * (logs.time[1:] > 0)
    row = check_later_contexts(as_it_is(replace(logs, reward=reward)))
    assert row.verdict is Verdict.BROKEN
    assert "rewards" in row.remedy
    # Rewards that hardly depend on the action, so that the action of a row may be changed after it: to an answer.
    rng = np.random.default_rng(0)
    level = np.repeat(rng.normal(size=150), 6)
    paid = (level + 0.7 * rng.normal(size=900)).astype(np.float32)
    answer = np.where(logs.time > 0, (np.roll(paid, 1) < 0).astype(np.int32), 2)
    answering = replace(logs, reward=paid, action=answer.astype(np.int32))
    assert check_later_contexts(as_it_is(answering)).numbers["rewards"]["chance"] > 0.05


def test_a_column_that_stands_still_is_a_fingerprint_to_whoever_learns_by_telling_people_apart() -> None:
    def still(rng: np.random.Generator, state: np.ndarray, rows: int) -> np.ndarray:
        own = np.broadcast_to(rng.normal(size=(len(state), 1, 1)), (len(state), rows, 1))
        return np.concatenate([state[..., :1] + rng.normal(size=(len(state), rows, 1)), own], axis=2)

    with pytest.warns(IdentifiabilityWarning):
        logs = people(moment=still)
    plain = as_it_is(logs)
    assert check_fingerprints(plain).verdict is Verdict.FINE  # nothing was learned from it
    by_hand = replace(plain, model=replace(plain.model, provenance=None))
    row = check_fingerprints(by_hand)
    assert row.verdict is Verdict.BROKEN
    assert "--drop x2" in row.remedy
    assert row.numbers["lost_together"] == row.numbers["lost"]["x2"] > 0.5


def test_a_still_column_that_people_share_does_not_drown_what_tells_them_apart(clean: HeldOut) -> None:
    rng, logs = np.random.default_rng(0), clean.logs
    age = rng.integers(12, size=logs.instances)[logs.instance] + 1e-7 * rng.normal(size=logs.rows)
    without = contrastive_gains(clean, clean.encodings).mean()
    assert contrastive_gains(clean, np.column_stack([clean.encodings, age])).mean() > without + 1


def test_fits_have_the_shape_of_residuals_that_others_left(clean: HeldOut, clean_logs: Logs) -> None:
    noise = eqx.tree_at(lambda noise: noise.reward_quantiles, clean.model.noise, jnp.linspace(-2, 2, 200))
    looked = HeldOut.of(replace(clean.model, noise=noise), clean_logs)
    others = [predict_ahead(part.model, clean_logs.select(part.people)) for part in clean.parts[1:]]
    left = np.concatenate([(one.reward - one.mean) / one.std for one in others])
    quantiles = np.quantile(left, (np.arange(200) + 0.5) / 200)
    np.testing.assert_allclose(looked.parts[0].model.noise.reward_quantiles, quantiles, atol=1e-4)
    low, high = np.interp([0.1, 0.9], (np.arange(200) + 0.5) / 200, quantiles)
    ahead = predict_ahead(looked.parts[0].model, clean_logs.select(looked.parts[0].people))
    error = (ahead.reward - ahead.mean) / ahead.std
    theirs = np.isin(looked.predictions.person, looked.parts[0].people)
    assert looked.inside(0.8)[theirs].mean() == pytest.approx(np.mean((low <= error) & (error <= high)), abs=1e-9)


# The table


def test_the_table_is_a_frame_of_any_library(clean_checks: Checks) -> None:
    pandas, polars = clean_checks.to_frame(), clean_checks.to_frame("polars")
    assert isinstance(pandas, pd.DataFrame)
    assert isinstance(polars, pl.DataFrame)
    arrow = clean_checks.to_frame("pyarrow")
    assert list(pandas.columns) == polars.columns == arrow.column_names
    assert pandas.to_dict("records") == polars.to_dicts() == arrow.to_pylist()
    assert list(pandas["verdict"]) == ["fine"] * len(CHECKS)
    with pytest.raises(IlbError, match="another of"):
        clean_checks.to_frame("nonsense")


def test_the_table_is_json_and_is_found_by_name(clean_checks: Checks) -> None:
    read = json.loads(json.dumps(clean_checks.to_json(), allow_nan=False))
    assert [row["name"] for row in read["checks"]] == [row.name for row in clean_checks]
    assert read["checks"][0]["question"] == clean_checks[read["checks"][0]["name"]].question
    with pytest.raises(KeyError, match="there are people apart"):
        clean_checks["nothing"]


def test_what_is_wrong_is_printed_with_its_remedy_and_html_is_escaped() -> None:
    bad = Check("bad", "Is <b> fine?", "1", "2", Verdict.BROKEN, "No & never: '<script>'.", "Drop <b>.")
    checks = Checks((Check("good", "Well?", "0", "1", Verdict.FINE, "Yes."), bad), "Two <people>.")
    assert checks.verdict is Verdict.BROKEN
    assert checks.with_verdict("broken") == (bad,)
    assert str(checks) == repr(checks)
    assert "✗ Is <b> fine? broken: 1 (bar: 2)" in str(checks)
    assert "→ Drop <b>." in str(checks)
    assert str(checks).endswith("Of 2 checks 1 broken (bad).")
    html = checks._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<people>" not in html


# The command


def test_the_command_checks_a_saved_model_and_its_exit_code_tells_of_what_is_broken(
    clean: HeldOut,
    clean_logs: Logs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    clean.model.save("model")
    clean_logs.write("logs.csv")
    order = np.random.default_rng(0).permutation(clean_logs.rows)
    replace(clean_logs, context=clean_logs.context[order]).write("shuffled.csv")
    monkeypatch.setattr(console_module.results, "_width", 200, raising=False)
    monkeypatch.setattr(checking, "CHECKS", asked := (check_people_apart, check_support))

    def ilb(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ilb", *arguments])
        code = run_command()
        printed = capsys.readouterr()
        return code, printed.out if code in (0, 3) else printed.err

    code, printed = ilb("check", "model", "logs.csv", "--unseen", "--out", "checks.csv")
    assert code == 0
    assert "Do contexts tell people apart? fine" in printed
    assert "All 2 checks are fine." in printed
    assert len(pd.read_csv("checks.csv")) == len(asked)
    code, printed = ilb("check", "model", "shuffled.csv", "--unseen", "--json", "--out", "checks.json")
    assert code == 3
    assert json.loads(printed) == json.loads(Path("checks.json").read_text())
    assert json.loads(printed)["verdict"] == "broken"
    code, printed = ilb("check", "model", "logs.csv", "--out", "checks.xls")
    assert (code, "--out must end in" in printed) == (2, True)
