"""People who change: sums that fade, and how long a memory the logs speak for."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from ilb.environments import AbstractPerturbation, SuddenChanges, SyntheticWorld, UniformLogging, Wandering, record
from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.offline.ahead import predict_ahead
from ilb.offline.encoders.plain import NoEncoding
from ilb.offline.fit import choose_model
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


def test_the_logs_tell_whether_people_change(small_world: SyntheticWorld) -> None:
    def memory_of(change: AbstractPerturbation | None) -> float:
        world = small_world if change is None else change.apply(jr.key(0), small_world)
        logs = record(jr.key(2), world, UniformLogging(5), 90, 30).logs
        return choose_model(logs, recipe=NoEncoding(), reward=PersonRewardRecipe()).candidate.memory

    assert memory_of(None) == 1
    assert memory_of(Wandering(0.1)) < 1


def test_a_memory_is_kept_with_the_model_and_is_a_share(small_model: LatentModel, tmp_path: Path) -> None:
    small_model.with_memory(0.9).save(tmp_path / "model")
    assert float(LatentModel.load(tmp_path / "model").noise.memory) == pytest.approx(0.9)
    with pytest.raises(FitError, match=r"memory is more than 0 and at most 1 .* got 1\.2"):
        small_model.with_memory(1.2)
