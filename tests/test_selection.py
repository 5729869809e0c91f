"""fit chooses by itself: what is told apart, what is simplest, what is said, and what pins a choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax.random as jr
import numpy as np
import pyarrow as pa
import pytest

from ilb import FitError, LiveBandit, Logs, fit
from ilb.environments import UniformLogging, draw_world, record
from ilb.errors import IlbWarning
from ilb.models.latent import LatentModel
from ilb.networks import NoEncoder
from ilb.offline.ahead import Foresight, Predictions, lead, predict_ahead, score_ahead
from ilb.offline.choice import Candidate, ModelChoice, Trial, make_folds
from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.encoders.plain import NoEncoding, PlainContexts
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.vae import VAERecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.fit import choose_model, complete_model, fit_again, fit_candidate
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.mlp import MLPRewardRecipe
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.offline.search import plain_models
from ilb.offline.training import CosineAdam, Schedule
from narrowed import known

RNG = np.random.default_rng


def crossover(people: int = 60, actions: int = 8, loading: float = 1.0, seed: int = 0) -> Logs:
    """Everybody tries everything once; one trait of a person moves half of the actions up and the other half down."""
    rng = RNG(seed)
    trait = rng.normal(size=(people, 1))
    slopes = loading * np.where(np.arange(actions) % 2, 1.0, -1.0)
    reward = trait * slopes + 0.5 * rng.normal(size=(people, actions))
    order = np.argsort(rng.random((people, actions)), axis=1)
    return Logs.from_arrays(np.zeros((people, actions, 0)), order, np.take_along_axis(reward, order, axis=1))


@pytest.fixture(scope="module")
def crossover_model() -> LatentModel:
    return fit(crossover())


def chosen(model: LatentModel) -> str:
    [name] = [row["candidate"] for row in known(model.provenance).choice if row["chosen"]]
    return str(name)


def test_what_only_rewards_show_is_found_without_any_context(crossover_model: LatentModel) -> None:
    assert "hidden" in chosen(crossover_model)
    test = crossover(seed=1)
    ours = predict_ahead(crossover_model, test)
    for plain in plain_models(crossover()).values():
        ahead = lead(ours, predict_ahead(plain, test))
        assert ahead.value > 2 * ahead.standard_error
    assert score_ahead(ours).r_squared.value > 0.4


def test_where_there_is_nothing_to_find_a_plain_reference_is_taken_and_said_to_be_enough() -> None:
    model = fit(crossover(loading=0.0))
    assert chosen(model) in ("action mean", "own level")
    assert "as good here as anything" in known(model.provenance).notes[0]


def test_an_own_level_is_found_where_that_is_all_there_is() -> None:
    rng = RNG(3)
    action = rng.integers(0, 3, (80, 12))
    reward = rng.normal(size=(80, 1)) + np.array([0.0, 1.0, 2.0])[action] + 0.5 * rng.normal(size=(80, 12))
    assert chosen(fit(Logs.from_arrays(np.zeros((80, 12, 0)), action, reward))) == "own level"


def test_few_people_need_not_prove_that_they_differ() -> None:
    rng = RNG(2)
    action = rng.integers(0, 2, (9, 6))
    reward = 0.5 * rng.normal(size=(9, 1)) + action + rng.normal(size=(9, 6))
    choice = choose_model(Logs.from_arrays(np.zeros((9, 6, 0)), action, reward))
    trials = {one.candidate.name: one for one in choice.trials}
    ahead = trials["own level"].lead_over(trials["action mean"])
    assert 0 < ahead.value < ahead.standard_error  # within one standard error, a simpler one would be taken
    assert choice.candidate.name == "own level"


def test_a_trend_in_time_is_found_and_a_decision_asks_for_the_time() -> None:
    rng = RNG(4)
    action = rng.integers(0, 2, (60, 15))
    time = np.tile(np.arange(15.0), (60, 1))
    reward = 0.3 * time + rng.normal(size=(60, 1)) + action + 0.5 * rng.normal(size=(60, 15))
    logs = Logs.from_arrays(np.zeros((60, 15, 0)), action, reward, time=time)
    model = fit(logs)
    assert "time" in chosen(model)
    assert known(model.schema).clocked
    person = LiveBandit.on(model).start("new")
    early, late = (max(person.decide({"time": when}).expected_reward.values()) for when in (0, 14))
    assert late - early == pytest.approx(0.3 * 14, abs=0.4)
    with pytest.warns(IlbWarning, match="time"):
        person.decide({})


def test_an_encoder_is_taken_where_contexts_tell_who_a_person_is() -> None:
    world = draw_world(jr.key(0), latent_dim=2, actions=4)
    logs = record(jr.key(1), world, UniformLogging(4), instances=40, length=10).logs
    quick = TiedRecipe(training=Schedule(steps=300, optimiser=CosineAdam(0.03), score_every=100))
    model = fit(logs, recipe=quick)
    assert model.encoded_dim == 2
    rows = {row["candidate"]: row for row in known(model.provenance).choice}
    assert rows[chosen(model)]["log_likelihood"] > rows["own level"]["log_likelihood"] + 0.05


def test_each_choice_can_be_pinned() -> None:
    world = draw_world(jr.key(0), latent_dim=2, actions=3)
    logs = record(jr.key(1), world, UniformLogging(3), instances=30, length=10).logs
    by_reward = fit(logs, recipe=PlainContexts(), reward=LinearRewardRecipe())
    assert known(by_reward.provenance).recipe["name"] == "PlainContexts"
    assert known(by_reward.provenance).recipe["reward"]["name"] == "LinearRewardRecipe"
    by_recipe = fit(logs, recipe=NoEncoding())
    assert by_recipe.encoded_dim == 0
    with pytest.raises(FitError, match="latent_dim"):
        fit(logs, latent_dim=3)


@pytest.mark.filterwarnings("ignore::ilb.errors.IdentifiabilityWarning")
def test_no_encoder_is_trained_on_contexts_that_never_vary_within_people() -> None:
    rng, people = RNG(3), 60
    kind = rng.normal(size=(people, 2))
    action = rng.integers(2, size=(people, 6))
    reward = np.where(action == 1, kind[:, :1], 0.0) + 0.3 * rng.normal(size=(people, 6))
    logs = Logs.from_arrays(np.repeat(kind[:, None], 6, axis=1), action, reward)
    choice = choose_model(logs)
    assert not any("tied" in trial.candidate.name for trial in choice.trials)
    assert any(trial.candidate.name.startswith("contexts") for trial in choice.trials)
    assert choice.chosen.r_squared > 0.7
    moving = np.repeat(kind[:, None], 6, axis=1)
    moving[:, :, 0] += 0.1 * rng.normal(size=(people, 6))
    varied = choose_model(Logs.from_arrays(moving, action, reward))
    assert any("tied" in trial.candidate.name for trial in varied.trials)


def test_a_time_that_is_that_of_the_action_is_no_moment() -> None:
    """Everybody took the actions in one order: what time does and what the action does can't be told apart."""
    rng, people = RNG(4), 30
    who, turn = np.indices((people, 4)).reshape(2, -1)
    got = turn + rng.normal(size=people)[who] + 0.3 * rng.normal(size=len(who))

    def tried(order: np.ndarray) -> list[str]:
        frame = pa.table({"who": who, "turn": turn, "did": order, "got": got})
        logs = Logs.from_frame(frame, instance="who", time="turn", action="did", reward="got")
        return [trial.candidate.name for trial in choose_model(logs).trials]

    assert not any("time" in name for name in tried(turn))
    assert any("time" in name for name in tried((turn + who) % 4))


def test_plain_contexts_are_compared_as_wide_as_they_are_saved() -> None:
    rng = RNG(7)
    person = rng.normal(size=(40, 1))
    context = np.stack([person + 0.1 * rng.normal(size=(40, 8)), rng.normal(size=(40, 8))], axis=2)
    context[rng.random((40, 8)) < 0.2, 1] = np.nan  # one more column says where
    reward = person + 0.3 * rng.normal(size=(40, 8))
    logs = Logs.from_arrays(context, rng.integers(2, size=(40, 8)), reward)
    model = fit(logs, recipe=PlainContexts(), reward=PersonRewardRecipe())
    assert model.encoded_dim == logs.width == 3
    assert known(model.provenance).notes[0].startswith("contexts 3")


def test_contexts_beside_an_encoder_are_compared_as_wide_as_they_are_saved() -> None:
    """Of twenty columns the search compares sixteen axes: those it also takes, if they are the best."""
    rng = RNG(3)
    person = rng.normal(size=(40, 1, 2))
    context = person @ rng.normal(size=(2, 20)) + rng.normal(size=(40, 10, 20))
    action = rng.integers(2, size=(40, 10))
    reward = np.take_along_axis(person, action[..., None], axis=2)[..., 0] + 0.3 * rng.normal(size=(40, 10))
    logs = Logs.from_arrays(context, action, reward)
    choice = choose_model(logs)
    [beside] = [t.candidate for t in choice.trials if t.candidate.name.startswith("tied beside contexts")][-1:]
    model = fit_candidate(logs, replace(choice, candidate=beside))
    assert model.encoded_dim == len(beside.inflation) == beside.latent_dim + 16
    assert fit_again(model, [logs])[0].encoded_dim == model.encoded_dim


def test_without_contexts_a_reward_model_can_be_pinned_and_an_encoder_is_refused() -> None:
    model = fit(crossover(), reward=PersonRewardRecipe(hidden=2))
    assert model.encoded_dim == 0
    assert len(model.noise.population_mean) == 2
    assert fit(crossover(), recipe=NoEncoding()).encoded_dim == 0
    by_least_squares = fit(crossover(), reward=LinearRewardRecipe())
    for policy in ("Calibrated", "CPG", "FPG", "FPG-TS"):
        decision = LiveBandit.on(by_least_squares, policy).start("bo").decide({})
        assert np.isfinite(list(decision.expected_reward.values())).all()
    with pytest.raises(FitError, match="no context column, so the recipe 'tied' has nothing to encode"):
        fit(crossover(), recipe=TiedRecipe())


def test_an_encoder_never_reads_the_time_even_if_that_is_among_the_contexts() -> None:
    rng = RNG(5)
    context, action = rng.normal(size=(30, 6, 2)), rng.integers(0, 2, (30, 6))
    reward = context.sum(axis=2) + rng.normal(size=(30, 6))
    time = np.tile(np.arange(6.0), (30, 1))
    logs = Logs.from_arrays(context, action, reward, time=time).with_clock()
    model = fit(logs, recipe=PlainContexts(), reward=PersonRewardRecipe())
    assert model.encoded_dim == 2
    assert known(model.schema).clocked


def test_hundreds_of_columns_are_a_moment_like_any_other() -> None:
    rng = RNG(6)
    context, action = rng.normal(size=(40, 10, 300)), rng.integers(0, 2, (40, 10))
    factor = rng.normal(size=(40, 10, 1))
    context += 2 * factor * rng.normal(size=300)
    reward = factor[..., 0] + 0.3 * rng.normal(size=(40, 10))
    model = complete_model(
        NoEncoder(), Logs.from_arrays(context, action, reward), reward=PersonRewardRecipe(1, moment="linear")
    )
    test = Logs.from_arrays(context + 0.1, action, reward)
    assert score_ahead(predict_ahead(model, test)).r_squared.value > 0.7


def test_rewards_that_never_vary_leave_a_model_that_can_be_saved(tmp_path: Path) -> None:
    rng = RNG(0)
    logs = Logs.from_arrays(rng.normal(size=(12, 4, 1)), rng.integers(2, size=(12, 4)), np.full((12, 4), 2.0))
    with pytest.warns(IlbWarning, match="all 48 rewards"):
        model = fit(logs, recipe=NoEncoding())
    assert known(model.provenance).choice[0]["r2"] is None
    model.save(tmp_path / "model")
    np.testing.assert_allclose(predict_ahead(LatentModel.load(tmp_path / "model"), logs).mean, 2.0, atol=1e-5)


def test_with_five_people_nothing_is_compared_and_that_is_said() -> None:
    model = fit(crossover(people=5))
    assert "too few people" in known(model.provenance).notes[0]
    assert not known(model.provenance).choice
    decision = LiveBandit.on(model).start("anna").decide({})
    assert all(std > 0.05 for std in decision.reward_std.values())


def test_the_same_seed_gives_the_same_model(crossover_model: LatentModel) -> None:
    again = fit(crossover())
    np.testing.assert_array_equal(again.noise.reward_variance, crossover_model.noise.reward_variance)
    assert known(again.provenance).choice == known(crossover_model.provenance).choice


def test_progress_rises_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    fit(crossover(people=20), report=lambda done, total, value: seen.append((done, total)))
    shares = [done / total for done, total in seen]
    assert shares == sorted(shares)
    assert len(shares) >= 5


def test_nobody_is_learned_from_and_predicted_at_once() -> None:
    logs = crossover(people=40)
    for fold in make_folds(logs, seed=0):
        assert not set(fold.training.instance_labels) & set(fold.held_out.instance_labels)
    held = [label for fold in make_folds(logs, seed=0) for label in fold.held_out.instance_labels]
    assert len(held) == logs.instances
    assert set(held) == set(logs.instance_labels)


def trial(name: str, rank: int, likelihoods: np.ndarray, eligible: bool = True) -> Trial:
    """A candidate with these log-likelihoods of the rewards of as many people."""
    number, std = np.arange(len(likelihoods)), np.exp(-likelihoods - 0.5 * np.log(2 * np.pi))
    candidate = Candidate(name, NoEncoding(), 0, PersonRewardRecipe(), rank=rank)
    predictions = Predictions(number, number, number.astype(float), number.astype(float), std)
    return Trial(candidate, predictions, predictions, eligible)


def test_the_simplest_within_one_standard_error_is_taken() -> None:
    rng = RNG(0)
    best = rng.normal(size=100)
    near, far = best - 0.01 + rng.normal(0, 0.3, 100), best - 0.5 + rng.normal(0, 0.3, 100)
    trials = [trial("far", 0, far), trial("near", 1, near), trial("best", 2, best)]
    assert ModelChoice.of(trials, 1).candidate.name == "near"
    assert ModelChoice.of([*trials[:1], trials[2]], 1).candidate.name == "best"
    assert ModelChoice.of([trials[0], trials[1]._replace(eligible=False), trials[2]], 1).candidate.name == "best"


def test_what_is_surely_beaten_is_not_as_good_as_a_best_that_nobody_is_sure_of() -> None:
    rng = RNG(0)
    plain = rng.normal(size=100)
    better = plain + 0.1 + rng.normal(0, 0.05, 100)  # twenty standard errors
    # Best by one person alone, so that everything is within one standard error of it.
    lucky = better + np.where(np.arange(100) == 7, 40.0, -0.15)
    trials = [trial("plain", 0, plain), trial("better", 1, better), trial("lucky", 2, lucky)]
    ahead = trials[2].lead_over(trials[0])
    assert 0 < ahead.value < ahead.standard_error
    assert ModelChoice.of(trials, 1).candidate.name == "better"


def test_what_a_few_long_tails_make_as_likely_must_be_as_close_too() -> None:
    rng = RNG(0)
    number, reward = np.arange(200), rng.normal(size=200)
    reward[0] = 40.0  # one row, which says nearly all that the log-likelihood says

    def predicting(name: str, rank: int, mean: np.ndarray, std: float) -> Trial:
        candidate = Candidate(name, NoEncoding(), 0, PersonRewardRecipe(), rank=rank)
        predictions = Predictions(number, number, reward, mean, np.full(200, std))
        return Trial(candidate, predictions, predictions, eligible=True)

    known = np.where(number > 0, 0.9 * reward, 0.0)
    simple, close = predicting("simple", 0, np.zeros(200), 3.0), predicting("close", 1, known, 2.0)
    likely, squares = simple.lead_over(close), simple.predictions.squared_error - close.predictions.squared_error
    assert likely.value > 0  # the one row is less of a surprise to who is less sure
    assert close.precision_over(simple).value == pytest.approx(squares.mean() / 2 / close.squared_error)
    assert close.precision_over(simple).value > close.precision_over(simple).standard_error
    assert ModelChoice.of([simple, close], 1).candidate.name == "close"
    as_close = predicting("as close", 0, known, 2.1)
    assert ModelChoice.of([simple, close, as_close], 1).candidate.name == "as close"
    beyond = predicting("exact", 2, reward, 1e6)  # far behind in likelihood: closeness alone is not asked for
    assert ModelChoice.of([simple, close, beyond], 1).candidate.name == "close"


@pytest.mark.parametrize(("explained", "name"), [(0.2, "fine"), (3.0, "plain")])
def test_what_nobody_would_notice_is_less_where_little_can_be_explained(explained: float, name: str) -> None:
    people = 20_000
    parts = np.linalg.qr(RNG(0).normal(size=(people, 3)))[0] * np.sqrt(people)  # uncorrelated, each with variance one
    large, small, noise = parts.T
    reward = explained * large + 0.06 * small + noise

    def predicting(name: str, rank: int, mean: np.ndarray) -> Trial:
        candidate = Candidate(name, NoEncoding(), 0, PersonRewardRecipe(), rank=rank)
        predictions = Predictions(np.arange(people), np.arange(people), reward, mean, np.ones(people))
        return Trial(candidate, predictions, predictions, eligible=True)

    plain = predicting("plain", 0, explained * large)
    fine = predicting("fine", 1, explained * large + 0.06 * small)
    lead = fine.lead_over(plain)  # half of 0.06², beyond doubt
    assert lead.value == pytest.approx(0.0018, rel=1e-3)
    assert lead.value > 3 * lead.standard_error
    # With an R² of 0.04 that is a twelfth of what is explained, with one of 0.9 a six-hundredth.
    assert ModelChoice.of([plain, fine], 1).candidate.name == name


def test_of_what_is_as_good_with_rewards_the_best_without_them_is_taken() -> None:
    rng = RNG(0)
    known, unknown = rng.normal(size=(2, 100))

    def knowing(name: str, rank: int, with_rewards: np.ndarray, without: np.ndarray) -> Trial:
        return trial(name, rank, with_rewards)._replace(from_contexts=trial(name, rank, without).predictions)

    rewards = knowing("rewards", 0, known, unknown)
    contexts = knowing("contexts", 1, known - 0.001, unknown + 0.3 + rng.normal(0, 0.5, 100))
    lead = contexts.lead_from_contexts_over(rewards)
    gains = contexts.from_contexts.log_likelihood - rewards.from_contexts.log_likelihood
    assert lead.value == pytest.approx(gains.mean())
    assert lead.value > 2 * lead.standard_error
    assert ModelChoice.of([rewards, contexts], 1).candidate.name == "contexts"
    assert "better for newcomers" not in ModelChoice.of([rewards, contexts], 1).sentence()
    # One and a half standard errors behind with rewards: not as good, and not surely worse.
    apart = rng.normal(size=100)
    apart = 0.1 * ((apart - apart.mean()) / apart.std(ddof=1) - 0.15)
    a_little = contexts._replace(predictions=trial("", 1, known + apart).predictions)
    lead = rewards.lead_over(a_little)
    assert lead.value / lead.standard_error == pytest.approx(1.5)
    assert ModelChoice.of([rewards, a_little], 1).candidate.name == "contexts"
    assert "better for newcomers" in ModelChoice.of([rewards, a_little], 1).sentence()
    unsure = contexts._replace(from_contexts=trial("", 0, unknown + rng.normal(0, 0.5, 100)).predictions)
    assert ModelChoice.of([rewards, unsure], 1).candidate.name == "rewards"
    behind = contexts._replace(predictions=trial("", 0, known - 0.1).predictions)
    assert ModelChoice.of([rewards, behind], 1).candidate.name == "rewards"


def test_without_rewards_the_last_one_is_predicted_as_if_all_others_were_missing(
    small_model: LatentModel, small_logs: Logs
) -> None:
    last = small_logs.starts[1:] - 1
    alone = np.full_like(small_logs.reward, np.nan)
    alone[last] = small_logs.reward[last]
    expected = predict_ahead(small_model, replace(small_logs, reward=alone))
    unrewarded = Foresight(small_model, small_logs).predict(from_rewards=False)
    for name in ("reward", "mean", "std"):
        np.testing.assert_allclose(getattr(unrewarded, name)[last], getattr(expected, name), rtol=1e-9)
    rewarded = Foresight(small_model, small_logs).predict()
    assert np.abs(rewarded.mean - unrewarded.mean)[last].max() > 1e-3


def test_few_people_are_said_to_tell_little_only_where_they_do() -> None:
    base = RNG(0).normal(size=12)
    reference = trial("plain", 0, base)
    reference = reference._replace(candidate=replace(reference.candidate, reference=True))
    clear, unclear = (trial("mine", 1, base + gain + RNG(1).normal(0, 0.3, 12)) for gain in (1.0, 0.0))
    said, hedged = (ModelChoice(mine.candidate, (reference, mine), 12, 3).sentence() for mine in (clear, unclear))
    assert "better than the best plain reference" in said
    assert "can't tell much" not in said
    assert "not surely better" in hedged
    assert hedged.endswith("12 people can't tell much.")


def test_the_lead_is_a_mean_over_rewards_with_an_error_over_people() -> None:
    person = np.repeat(np.arange(30), 4)
    first, second = RNG(0).normal(size=(2, 120))
    both = [trial("a", 0, values).predictions._replace(person=person) for values in (first, second)]
    ahead = lead(*both)
    assert ahead.value == pytest.approx(np.mean(first - second))
    by_person = (first - second).reshape(30, 4).mean(axis=1)
    assert ahead.standard_error == pytest.approx(by_person.std(ddof=1) / np.sqrt(30))


def test_intervals_follow_the_quantiles_of_held_out_people() -> None:
    rng = RNG(0)
    residuals = rng.exponential(size=4000) - 1
    zeros, ones = np.zeros(4000), np.ones(4000)
    told = Predictions(np.arange(4000), np.arange(4000), residuals, zeros, ones)
    told = told._replace(quantiles=told.residual_quantiles(), reward=rng.exponential(size=4000) - 1)
    for level in (0.5, 0.8, 0.95):
        low, high = told.interval(level)
        assert np.mean((low <= told.reward) & (told.reward <= high)) == pytest.approx(level, abs=0.025)
    normal = told._replace(quantiles=np.zeros(0)).interval(0.95)
    assert normal[1][0] == pytest.approx(1.96, abs=0.01)


def test_choosing_says_what_fit_would_take(crossover_model: LatentModel) -> None:
    choice = choose_model(crossover())
    assert isinstance(choice, ModelChoice)
    assert choice.candidate.name == chosen(crossover_model)
    assert "8 people" not in choice.sentence()
    few = choose_model(crossover(people=20))
    assert isinstance(few, ModelChoice)
    assert "can't tell much" in few.sentence() or "plain reference" in few.sentence()


# What a search asks of recipes


def test_only_recipes_that_repeat_their_training_leave_that_out() -> None:
    room = (500, 20)
    quick = TiedRecipe(layers=2).without_cross_fit(room)
    assert quick == TiedRecipe(layers=2, cross_fit=False, room=room)
    assert WithContexts(TiedRecipe(layers=2)).without_cross_fit(room) == WithContexts(quick)
    for recipe in (PaperRecipe(), VAERecipe(), PlainContexts(), NoEncoding()):
        assert recipe.without_cross_fit(room) is recipe


def test_only_the_person_model_is_hastened() -> None:
    assert PersonRewardRecipe(3).hastened().steps < PersonRewardRecipe(3).steps
    for recipe in (LinearRewardRecipe(), MLPRewardRecipe()):
        assert recipe.hastened() is recipe
