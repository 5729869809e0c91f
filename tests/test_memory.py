"""People who change: sums that fade, and how long a memory the logs speak for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pyarrow as pa
import pytest

from ilb.environments import AbstractPerturbation, SuddenChanges, SyntheticWorld, UniformLogging, Wandering, record
from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.calibration import Calibration
from ilb.models.drift import NO_DRIFT, Drift, without_drift
from ilb.models.latent import LatentModel, LinearReward
from ilb.networks import IdentityEncoder, NoEncoder
from ilb.offline import search
from ilb.offline.ahead import predict_ahead
from ilb.offline.choice import some_people
from ilb.offline.drifts import find_drift
from ilb.offline.encoders.plain import NoEncoding, PlainContexts
from ilb.offline.fit import choose_model, complete_model, fit, fit_again
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.online.adaptive import adaptive
from ilb.online.evidence import Evidence
from ilb.online.latent import CalibratedBelief
from ilb.simulation import simulate
from ilb.types import Step


def logs_of(
    world: SyntheticWorld, change: AbstractPerturbation | None, people: int, rounds: int, seed: int = 2
) -> Logs:
    played = world if change is None else change.apply(jr.key(0), world)
    return record(jr.key(seed), played, UniformLogging(5), people, rounds).logs


def test_what_was_seen_k_rounds_ago_counts_memory_to_the_k() -> None:
    rng, memory = np.random.default_rng(0), 0.7
    encodings, rewards, actions = rng.normal(size=(6, 2)), rng.normal(size=6), rng.integers(3, size=6)
    evidence = Evidence.none(2, 3)
    for encoding, action, reward in zip(encodings, actions, rewards, strict=True):
        evidence = evidence.fade(jnp.asarray(memory)).add_encoding(jnp.asarray(encoding, jnp.float32))
        evidence = evidence.add_reward(Step(jnp.zeros(0), jnp.asarray(action), jnp.asarray(reward, jnp.float32)))
    weights = memory ** np.arange(5, -1, -1.0)
    np.testing.assert_allclose(evidence.rounds, weights.sum(), rtol=1e-6)
    np.testing.assert_allclose(evidence.encoding_sum, weights @ encodings, rtol=1e-5)
    taken = actions[:, None] == np.arange(3)
    np.testing.assert_allclose(evidence.rewards.pulls, weights @ taken, rtol=1e-6)
    np.testing.assert_allclose(evidence.rewards.reward_sum, (weights * rewards) @ taken, rtol=1e-5, atol=1e-6)
    means = [np.average(rewards[actions == a], weights=weights[actions == a]) for a in range(3) if np.any(actions == a)]
    np.testing.assert_allclose(np.asarray(evidence.rewards.means())[taken.any(axis=0)], means, rtol=1e-5)
    assert evidence.elapsed == 6


def test_predictions_ahead_forget_as_a_live_person_does(small_model: LatentModel, small_logs: Logs) -> None:
    model, logs = small_model.with_memory(0.8), small_logs.select(np.arange(3))
    predictions = predict_ahead(model, logs)
    belief = CalibratedBelief(model)

    @jax.jit
    def round_of(
        state: Evidence, context: jax.Array, action: jax.Array, reward: jax.Array
    ) -> tuple[Evidence, jax.Array]:
        state = belief.observe(state, context)
        believed = belief.believe(state)
        told = jnp.stack([believed.mean()[action], believed.std()[action]])
        return belief.learn(state, Step(context, action, reward)), told

    for person in range(3):
        state = belief.init()
        for row in np.flatnonzero(logs.instance == person):
            state, (mean, std) = round_of(state, logs.context[row], logs.action[row], logs.reward[row])
            [at] = np.flatnonzero(predictions.rows == row)
            noise = float(belief.reward_variance[logs.action[row]])
            assert predictions.mean[at] == pytest.approx(float(mean), abs=1e-3)
            assert predictions.std[at] == pytest.approx(float(np.sqrt(std**2 + noise)), rel=1e-3)


def test_nothing_is_forgotten_with_a_memory_of_one(small_model: LatentModel, small_logs: Logs) -> None:
    kept = predict_ahead(small_model, small_logs, rounds=10)
    np.testing.assert_array_equal(predict_ahead(small_model.with_memory(1.0), small_logs, rounds=10).mean, kept.mean)


@pytest.mark.parametrize("change", [Wandering(0.05), SuddenChanges(0.05)])
def test_who_forgets_loses_less_where_people_change(
    change: AbstractPerturbation, small_world: SyntheticWorld, small_model: LatentModel
) -> None:
    world = change.apply(jr.key(0), small_world)
    losses = []
    for memory in (0.8, 1.0):
        history = simulate(jr.key(5), world, adaptive(small_model.with_memory(memory)), 64, 150)
        losses.append(history.cumulative_regret()[:, -1])
    difference = losses[1] - losses[0]
    assert difference.mean() > 4 * difference.std() / np.sqrt(len(difference))


def levels_that_drift(kept: float, seed: int) -> Logs:
    """Draw people with a level that forgets itself but for a share `kept` in each round, and two actions."""
    rng, people, rounds = np.random.default_rng(seed), 150, 12
    level = np.empty((people, rounds))
    level[:, 0] = rng.normal(size=people)
    for t in range(1, rounds):
        level[:, t] = kept * level[:, t - 1] + np.sqrt(1 - kept**2) * rng.normal(size=people)
    action = rng.integers(2, size=(people, rounds))
    reward = level + action + NOISE * rng.normal(size=(people, rounds))
    person, time = np.indices((people, rounds))
    table = {"who": person, "t": time, "did": action, "got": reward}
    frame = pa.table({name: values.ravel() for name, values in table.items()})
    return Logs.from_frame(frame, instance="who", time="t", action="did", reward="got")


NOISE = 0.4


def exact_log_likelihood(kept: float, logs: Logs) -> float:
    """Give the mean log-density of a reward under the truth: one dense Gaussian over the rounds of a person."""
    rounds = np.arange(12)
    covariance = kept ** np.abs(rounds[:, None] - rounds) + NOISE**2 * np.eye(12)
    factor = np.linalg.cholesky(covariance)
    residual = (logs.reward - logs.action).reshape(-1, 12).astype(np.float64)
    standard = np.linalg.solve(factor, residual.T)
    return float(np.mean(-0.5 * (standard**2 + np.log(2 * np.pi)) - np.log(np.diag(factor))[:, None]))


def level_model(logs: Logs) -> LatentModel:
    return complete_model(NoEncoder(), logs, reward=PersonRewardRecipe(1, same_level=True))


def test_drifting_levels_are_foreseen_nearly_as_well_as_by_who_knows_how_they_drift() -> None:
    model, others = level_model(levels_that_drift(0.9, 0)), levels_that_drift(0.9, 2)
    staying = float(predict_ahead(model, others).log_likelihood.mean())
    drift = find_drift([(model, levels_that_drift(0.9, 1))], rounds=50)
    found = float(predict_ahead(drift.apply(model), others).log_likelihood.mean())
    forgetting = float(predict_ahead(model.with_memory(drift.memory), others).log_likelihood.mean())
    limit = exact_log_likelihood(0.9, others)
    # To forget alone, with the variances of people who stay, may be worse than to forget nothing.
    assert max(staying, forgetting) < found < limit + 0.01
    assert limit - found < 0.1 * (limit - staying)
    assert drift.noise < 1 < drift.state  # a fit that takes people to stay calls change noise


def test_people_who_stay_have_no_drift_that_anybody_would_notice() -> None:
    model, others = level_model(levels_that_drift(1.0, 0)), levels_that_drift(1.0, 1)
    drift = find_drift([(model, others)], rounds=50)
    staying, found = (predict_ahead(one, others).log_likelihood.mean() for one in (model, drift.apply(model)))
    assert found - staying < 0.002


@pytest.mark.parametrize(
    "off",
    [
        Drift(noise=0.6),
        Drift(noise=0.1),
        Drift(noise=1.8),
        Drift(state=0.3),
        Drift(1.0, 1.5, 0.5),
        Drift(1.0, 5.0, 5.0),
    ],
)
def test_variances_that_are_off_are_no_change(off: Drift) -> None:
    wrong, others = off.apply(level_model(levels_that_drift(1.0, 0))), levels_that_drift(1.0, 1)
    assert find_drift([(wrong, others)], rounds=50) == NO_DRIFT


def test_a_drift_scales_noise_and_what_only_rewards_show_and_can_be_undone(small_logs: Logs) -> None:
    model = complete_model(IdentityEncoder(), small_logs, reward=PersonRewardRecipe(2))
    changed = Drift(0.5, 0.3, 4.0).apply(model)
    assert isinstance(model.reward, LinearReward)
    assert isinstance(changed.reward, LinearReward)
    n = model.encoded_dim
    np.testing.assert_allclose(changed.reward.theta[:, :n], model.reward.theta[:, :n])
    np.testing.assert_allclose(changed.reward.theta[:, n:], 2 * model.reward.theta[:, n:], rtol=1e-6)
    before, after = Calibration.of(model, model.reward), Calibration.of(changed, changed.reward)
    np.testing.assert_allclose(after.reward_variance, 0.3 * before.reward_variance, rtol=1e-5)
    # Deviations of hidden coordinates are twice as wide, and so is what is not known of their loadings.
    shown = before.theta[:, :n] ** 2 @ (1 / before.prior_precision[:n])
    hidden = before.theta[:, n:] ** 2 @ (1 / before.prior_precision[n:])
    np.testing.assert_allclose(after.theta**2 @ (1 / after.prior_precision), shown + 4 * hidden, rtol=1e-5)
    assert "memory=0.5" in repr(changed)
    assert "memory" not in repr(model)
    assert without_drift(model) is model
    back = without_drift(changed)
    for one, other in zip(jax.tree.leaves(back.bare()), jax.tree.leaves(model.bare()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_what_moves_in_encodings_is_noise_or_state_and_their_sum_is_the_same(small_logs: Logs, tmp_path: Path) -> None:
    walk = np.cumsum(np.random.default_rng(0).normal(size=small_logs.context.shape), axis=0).astype(np.float32)
    model = complete_model(IdentityEncoder(), replace(small_logs, context=walk), reward=PersonRewardRecipe(1))
    changed = Drift(0.9, moving=1.0).apply(model)
    n, before, after = model.encoded_dim, model.noise, changed.noise
    shown = slice(n), slice(n)
    np.testing.assert_allclose(
        after.encoding_covariance, before.encoding_covariance - before.moving_covariance, rtol=1e-4
    )
    np.testing.assert_allclose(
        after.encoding_covariance + after.population_covariance[shown],
        before.encoding_covariance + before.population_covariance[shown],
        rtol=1e-4,
    )
    assert np.trace(after.encoding_covariance) < 0.5 * np.trace(before.encoding_covariance)
    changed.save(tmp_path / "model")
    again = LatentModel.load(tmp_path / "model")
    assert Drift.of(again) == pytest.approx(Drift(0.9, moving=1.0))
    for one, other in zip(jax.tree.leaves(without_drift(again).bare()), jax.tree.leaves(model.bare()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    # A model of before has two numbers, and knows nothing of what moves.
    old = replace(model, noise=replace(model.noise, drift=jnp.array([0.5, 2.0]), moving_covariance=jnp.zeros((0, 0))))
    assert Drift.of(old) == Drift(1.0, 0.5, 2.0)
    old.save(tmp_path / "old")
    assert Drift.of(Drift(0.8, 2.0, 0.5, 1.0).apply(old)) == pytest.approx(Drift(0.8, 1.0, 1.0, 1.0))


def test_slow_contexts_are_change_where_rewards_follow_them_and_noise_where_they_do_not() -> None:
    """Contexts wander in both tables; in the second, rewards follow what stays of a person."""
    rng, people, rounds = np.random.default_rng(1), 80, 40
    walk, kept = rng.normal(size=(people, rounds)), 0.9
    for now in range(1, rounds):
        walk[:, now] = kept * walk[:, now - 1] + np.sqrt(1 - kept**2) * walk[:, now]
    staying = rng.normal(size=(people, 1))
    level = np.cumsum(0.4 * rng.normal(size=(people, rounds)), axis=1)
    action = rng.integers(2, size=(people, rounds))
    noise = 0.3 * rng.normal(size=(2, people, rounds))
    found = []
    for state, shown in ((walk, walk), (staying + 0 * walk, staying + walk)):
        reward = (2.0 * action - 1) * state + level * (state is not walk) + noise[0]
        logs = Logs.from_arrays((shown + noise[1])[..., None], action, reward)
        model = complete_model(IdentityEncoder(), logs, reward=PersonRewardRecipe(1, same_level=True))
        found.append(find_drift([(model, logs)], rounds=rounds))
    moving, still = found
    assert moving.moving == 1
    assert moving.memory < 0.95
    assert still.moving == 0


def test_change_is_not_looked_for_where_nobody_had_an_action_twice() -> None:
    rng, people = np.random.default_rng(0), 80
    action = np.concatenate([rng.permutation(4) for _ in range(people)])
    walk = np.cumsum(rng.normal(size=(people, 4)), axis=1).ravel()  # as well an effect of person and action
    person, time = np.indices((people, 4)).reshape(2, -1)
    frame = pa.table({"who": person, "t": time, "did": action, "got": walk + 0.1 * rng.normal(size=4 * people)})
    crossover = Logs.from_frame(frame, instance="who", time="t", action="did", reward="got")
    assert choose_model(crossover).candidate.drift == NO_DRIFT
    again = frame.set_column(2, "did", pa.array(action // 2))  # two actions, each twice
    repeated = Logs.from_frame(again, instance="who", time="t", action="did", reward="got")
    assert choose_model(repeated).candidate.drift != NO_DRIFT


def test_a_state_that_drifts_is_not_taken_for_one_that_only_rewards_show() -> None:
    rng, people, rounds = np.random.default_rng(0), 60, 50
    z = rng.normal(size=(people, 2))
    state = []
    for _ in range(rounds):
        z = 0.98 * z + np.sqrt(1 - 0.98**2) * rng.normal(size=z.shape)
        state.append(z)
    z = np.stack(state, axis=1)
    action = rng.integers(3, size=(people, rounds))
    theta = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])[action]
    reward = np.sum(theta * z, axis=-1) + 0.3 * rng.normal(size=action.shape)
    choice = choose_model(Logs.from_arrays(z + rng.normal(size=z.shape), action, reward), recipe=PlainContexts())
    assert choice.candidate.name.startswith("contexts 2, memory 0.")
    others = [trial for trial in choice.trials if "hidden" in trial.candidate.name]
    elaborate = max(others, key=lambda trial: trial.log_likelihood)  # the best of those that people who stay call for
    assert "memory" in elaborate.candidate.name
    assert choice.chosen.log_likelihood > elaborate.log_likelihood + 0.05


def test_the_search_for_a_drift_tells_how_far_it_is() -> None:
    seen: list[tuple[int, int]] = []
    pairs = [(level_model(levels_that_drift(0.8, 0)), levels_that_drift(0.8, 1))]
    find_drift(pairs, rounds=50, report=lambda done, total, value: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    [total] = {total for _, total in seen}
    assert 20 < len(seen) <= total


def test_progress_goes_on_while_a_drift_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[float] = []
    during: list[float] = []

    def watched(*arguments: Any) -> Drift:
        before = len(reports)
        found = find_drift(*arguments)
        during.extend(reports[before:])
        return found

    monkeypatch.setattr(search, "find_drift", watched)
    choose_model(levels_that_drift(0.8, 0), report=lambda done, total, value: reports.append(done / total))
    assert reports == sorted(reports)
    assert reports[-1] == 1
    assert max(during) - min(during) > 0.1
    assert len(set(during)) >= 8


def test_people_are_drawn_from_all_of_a_table_and_always_the_same() -> None:
    logs = levels_that_drift(0.8, 0)
    some = some_people(logs, 40)
    assert some.instances == 40
    assert list(some.instance_labels) == list(some_people(logs, 40).instance_labels)
    places = np.array([logs.instance_labels.index(label) for label in some.instance_labels])
    assert np.all(np.diff(places) > 0)
    # The mean place of 40 of 150 people drawn at random, within four standard errors.
    assert abs(places.mean() - 74.5) < 4 * np.sqrt((150**2 - 1) / 12 / 40 * (110 / 149))
    assert some_people(logs, 150) is logs


def test_nobody_is_followed_beyond_the_last_reward_that_is_asked_for() -> None:
    """Later rounds change nothing of what was foreseen before them, whether or not they are there."""
    logs = levels_that_drift(0.8, 0)
    model = Drift(0.7, 0.5, 2.0).apply(level_model(logs))
    whole, short = predict_ahead(model, logs), predict_ahead(model, logs, rounds=3)
    kept = np.isin(whole.rows, short.rows)
    assert len(short.rows) == 3 * 150
    np.testing.assert_array_equal(short.mean, whole.mean[kept])
    np.testing.assert_array_equal(short.std, whole.std[kept])


def test_a_fit_keeps_how_people_drift_on_disk_and_when_it_is_made_again(tmp_path: Path) -> None:
    logs = levels_that_drift(0.8, 0)
    model = fit(logs)
    drift = Drift.of(model)
    assert drift.memory < 1
    model.save(tmp_path / "model")
    assert Drift.of(LatentModel.load(tmp_path / "model")) == pytest.approx(drift)
    [again] = fit_again(model, [logs])
    assert Drift.of(again) == pytest.approx(drift)
    np.testing.assert_allclose(again.noise.reward_variance, model.noise.reward_variance, rtol=0.05)


def test_the_logs_tell_whether_people_change(small_world: SyntheticWorld) -> None:
    def memory_of(change: AbstractPerturbation | None) -> float:
        world = small_world if change is None else change.apply(jr.key(0), small_world)
        logs = record(jr.key(2), world, UniformLogging(5), 90, 30).logs
        return choose_model(logs, recipe=NoEncoding(), reward=PersonRewardRecipe()).candidate.drift.memory

    assert memory_of(None) == 1
    assert memory_of(Wandering(0.1)) < 1


def test_a_memory_is_kept_with_the_model_and_is_a_share(small_model: LatentModel, tmp_path: Path) -> None:
    small_model.with_memory(0.9).save(tmp_path / "model")
    assert float(LatentModel.load(tmp_path / "model").noise.memory) == pytest.approx(0.9)
    with pytest.raises(FitError, match=r"memory is more than 0 and at most 1 .* got 1\.2"):
        small_model.with_memory(1.2)
