"""The engine that plays."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

from ilb import simulation
from ilb.environments import (
    AbstractEnvironment,
    GaussianNoise,
    LaplaceNoise,
    SyntheticWorld,
    UniformLogging,
    draw_world,
    record,
)
from ilb.environments.perturbed import NoisyContexts
from ilb.errors import DecisionError, WorldError
from ilb.history import History
from ilb.models.latent import LatentModel
from ilb.online.arms import uniform
from ilb.online.linear import lin_ts
from ilb.online.policy import (
    AbstractBelief,
    AbstractPolicy,
    BeliefPolicy,
    Greedy,
    IndependentRewards,
    Thompson,
    Uniform,
)
from ilb.online.roster import policy_on
from ilb.simulation import draw_rounds, play_keys, simulate
from ilb.streams import Stream
from ilb.types import Step, as_real


def cpg(model: LatentModel) -> AbstractPolicy:
    return policy_on(model, "CPG")


def test_the_first_instances_do_not_depend_on_how_many_are_played(
    small_world: SyntheticWorld, small_model: LatentModel
) -> None:
    few, many = (simulate(jr.key(0), small_world, cpg(small_model), n, 20) for n in (3, 7))
    np.testing.assert_array_equal(few.actions, many.actions[:3])
    np.testing.assert_allclose(few.regret, many.regret[:3], atol=1e-6)


def test_the_first_rounds_do_not_depend_on_the_horizon(small_world: SyntheticWorld, small_model: LatentModel) -> None:
    short, long = (
        simulate(jr.key(0), small_world, policy_on(small_model, "Calibrated"), 4, horizon) for horizon in (10, 30)
    )
    np.testing.assert_array_equal(short.actions, long.actions[:, :10])


def test_chunks_do_not_change_the_results(small_world: SyntheticWorld, small_model: LatentModel) -> None:
    whole, pieces = (simulate(jr.key(0), small_world, cpg(small_model), 10, 20, chunk=chunk) for chunk in (10, 4))
    np.testing.assert_array_equal(whole.actions, pieces.actions)
    assert pieces.instances == 10


def test_long_or_wide_instances_are_played_a_few_at_a_time(
    small_world: SyntheticWorld, small_model: LatentModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulate(jr.key(0), small_world, cpg(small_model), 10, 20)
    one = draw_rounds(jr.key(0), small_world, jnp.arange(1), 20)
    monkeypatch.setattr(simulation, "MEMORY", 4 * (one.contexts.nbytes + one.rewards.nbytes + one.mean_rewards.nbytes))
    seen = []
    pieces = simulate(jr.key(0), small_world, cpg(small_model), 10, 20, report=lambda *args: seen.append(args[0]))
    np.testing.assert_array_equal(whole.actions, pieces.actions)
    assert seen == [4, 8, 10]
    monkeypatch.setattr(simulation, "MEMORY", 1)
    assert simulate(jr.key(0), small_world, cpg(small_model), 2, 20).instances == 2


@pytest.mark.parametrize("block", [9, 1000])
def test_rounds_are_what_the_world_would_give_one_by_one(
    small_world: SyntheticWorld, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(simulation, "BLOCK", block)
    rounds = draw_rounds(jr.key(3), small_world, jnp.array([4, 2]), 6)
    for column, number in enumerate((4, 2)):
        keys = play_keys(jr.key(3), jnp.asarray(number))
        instance = small_world.sample_instance(keys.instance)
        np.testing.assert_allclose(rounds.mean_rewards[0, column], small_world.mean_rewards(instance), rtol=1e-5)
        for t in range(6):
            key_context, key_reward = jr.split(jr.fold_in(keys.rounds, t))
            np.testing.assert_allclose(rounds.contexts[t, column], small_world.emit(key_context, instance), atol=1e-6)
            rewards = small_world.sample_rewards(key_reward, instance)
            np.testing.assert_allclose(rounds.rewards[t, column], rewards, atol=1e-6)


def test_all_policies_face_the_same_instances(small_world: SyntheticWorld, small_model: LatentModel) -> None:
    """The regret of an action in an instance is the same number, whoever takes it."""
    first, second = (simulate(jr.key(0), small_world, p, 20, 40) for p in (cpg(small_model), uniform(5)))
    for i in range(20):
        by_action = dict(zip(second.actions[i].tolist(), second.regret[i].tolist(), strict=True))
        for action, regret in zip(first.actions[i].tolist(), first.regret[i].tolist(), strict=True):
            assert by_action.get(action, regret) == pytest.approx(regret, abs=1e-6)


def test_regret_is_noise_free_and_zero_where_the_action_is_best(small_world: SyntheticWorld) -> None:
    history = simulate(jr.key(0), small_world, uniform(5), 10, 30)
    for i in range(10):
        instance = small_world.sample_instance(play_keys(jr.key(0), jnp.asarray(i)).instance)
        means = np.asarray(small_world.mean_rewards(instance))
        np.testing.assert_allclose(history.regret[i], means.max() - means[history.actions[i]], atol=1e-6)
        np.testing.assert_array_equal(history.optimal[i], history.actions[i] == means.argmax())


class WalkingWorld(AbstractEnvironment):
    """A latent state that takes a random step after every round, and turns."""

    theta: jax.Array

    def sample_instance(self, key: PRNGKeyArray) -> Any:
        return jr.normal(key, (2,))

    def advance(self, key: PRNGKeyArray, instance: Any) -> Any:
        return jnp.array([-instance[1], instance[0]]) + 0.3 * jr.normal(key, (2,))

    def emit(self, key: PRNGKeyArray, instance: Any) -> Array:
        return instance + 0.1 * jr.normal(key, (2,))

    def mean_rewards(self, instance: Any) -> Array:
        return self.theta @ instance

    def sample_rewards(self, key: PRNGKeyArray, instance: Any) -> Array:
        return self.theta @ instance + 0.2 * jr.normal(key, (4,))

    def latent_state(self, instance: Any) -> Array:
        return instance

    def oracle(self) -> LatentModel:
        raise WorldError("no oracle")


WALKING = WalkingWorld(jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]))


@pytest.mark.parametrize("block", [9, 1000])
@pytest.mark.parametrize("world", [WALKING, NoisyContexts(WALKING, as_real(0.0))], ids=["itself", "wrapped"])
def test_a_state_that_moves_is_judged_by_the_best_action_of_each_round(
    world: AbstractEnvironment, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a loop that keeps the state of one instance and asks the world for everything."""
    monkeypatch.setattr(simulation, "BLOCK", block)
    horizon, policy = 7, lin_ts(4, 2, 0.2)
    history = simulate(jr.key(3), world, policy, 3, horizon)
    for number in range(3):
        keys = play_keys(jr.key(3), jnp.asarray(number))
        now, state = world.sample_instance(keys.instance), policy.init()
        for t in range(horizon):
            key_context, key_reward = jr.split(jr.fold_in(keys.rounds, t))
            context, means = world.emit(key_context, now), np.asarray(world.mean_rewards(now))
            state, choice = policy.decide(jr.fold_in(keys.decisions, t), state, context, jnp.ones(4, bool))
            action = int(choice.action)
            assert action == history.actions[number, t]
            assert history.regret[number, t] == pytest.approx(means.max() - means[action], abs=1e-5)
            assert history.optimal[number, t] == (means.argmax() == action)
            reward = world.sample_rewards(key_reward, now)[action]
            state = policy.learn(state, Step(context, choice.action, reward, jnp.asarray(t)))
            now = world.advance(Stream.DRIFT.of(jr.fold_in(keys.rounds, t)), now)


def test_logs_of_a_state_that_moves_hold_each_round_as_it_was() -> None:
    recording = record(jr.key(4), WALKING, UniformLogging(4), instances=200, length=3)
    contexts = recording.logs.context.reshape(200, 3, 2)
    turned = np.stack([-contexts[:, 0, 1], contexts[:, 0, 0]], axis=1)
    # A step of 0.3 and the noise of two contexts, each 0.1: the standard deviation is 0.33 where the state has 1.
    assert np.std(contexts[:, 1] - turned) == pytest.approx(np.sqrt(0.11), rel=4 / np.sqrt(2 * 400))
    assert np.std(contexts[:, 0] - recording.latents) == pytest.approx(0.1, rel=4 / np.sqrt(2 * 400))


class Clock(AbstractBelief):
    """Believe in the rounds of which a reward has come."""

    def init(self) -> Any:
        return jnp.asarray(-1)

    def observe(self, state: Any, context: Array) -> Any:
        return state

    def learn(self, state: Any, step: Step) -> Any:
        return step.time

    def rewards(self, state: Any, context: Array) -> IndependentRewards:
        return IndependentRewards(jnp.full(5, state, jnp.float32), jnp.ones(5))


def test_a_belief_is_told_the_round_of_a_reward(small_world: SyntheticWorld) -> None:
    met = simulate(jr.key(0), small_world, BeliefPolicy(Clock(), Uniform()), 2, 6, beliefs=True)
    assert met.expected_rewards is not None
    np.testing.assert_array_equal(met.expected_rewards[:, :, 0], [np.arange(-1, 5)] * 2)


class Echo(AbstractBelief):
    """Believe whatever the context says, so that `beliefs` shows the contexts a policy met."""

    def init(self) -> Any:
        return jnp.zeros(())

    def observe(self, state: Any, context: Array) -> Any:
        return state

    def learn(self, state: Any, step: Step) -> Any:
        return state + step.reward

    def rewards(self, state: Any, context: Array) -> IndependentRewards:
        return IndependentRewards(jnp.concatenate([context, jnp.zeros(2)]), jnp.ones(5))


def test_policies_face_the_same_contexts_however_they_draw(small_world: SyntheticWorld) -> None:
    met = [
        simulate(jr.key(7), small_world, BeliefPolicy(Echo(), rule), 6, 9, beliefs=True)
        for rule in (Greedy(), Thompson(), Uniform())
    ]
    assert not np.array_equal(met[0].actions, met[1].actions)
    np.testing.assert_array_equal(met[0].expected_rewards, met[1].expected_rewards)
    np.testing.assert_array_equal(met[0].expected_rewards, met[2].expected_rewards)


TRACED: list[int] = []


class Counted(Echo):
    """Note every time a program is made of it."""

    def observe(self, state: Any, context: Array) -> Any:
        TRACED.append(len(context))
        return state


def test_one_program_of_a_policy_serves_all_worlds_of_one_shape() -> None:
    traced = []
    for noise in (GaussianNoise(), LaplaceNoise()):
        world = draw_world(jr.key(0), latent_dim=3, actions=5, noise=noise)
        simulate(jr.key(1), world, BeliefPolicy(Counted(), Greedy()), 3, 11)
        traced.append(len(TRACED))
    assert 0 < traced[0] == traced[1]
    simulate(jr.key(1), world, BeliefPolicy(Counted(), Greedy()), 3, 12)
    assert len(TRACED) > traced[1]


def test_beliefs_are_kept_when_asked_for(small_world: SyntheticWorld, small_model: LatentModel) -> None:
    history = simulate(jr.key(0), small_world, cpg(small_model), 3, 7, beliefs=True)
    assert history.expected_rewards is not None
    assert history.expected_rewards.shape == (3, 7, 5)
    np.testing.assert_array_equal(history.expected_rewards.argmax(axis=2), history.actions)


def test_progress_is_reported_for_each_chunk(small_world: SyntheticWorld, small_model: LatentModel) -> None:
    seen = []
    simulate(
        jr.key(0),
        small_world,
        cpg(small_model),
        10,
        5,
        chunk=4,
        report=lambda *args: seen.append(args[:2]),
    )
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_the_history_adds_up() -> None:
    rng = np.random.default_rng(0)
    history = History(rng.integers(3, size=(6, 8)), rng.random((6, 8)), rng.random((6, 8)) < 0.5)
    table = history.to_frame(rounds=[1, 5, 8])
    assert table["cumulative_regret"].to_numpy()[2] == pytest.approx(history.regret[0].sum())
    assert len(table) == 18
    totals = history.regret[:, :5].sum(axis=1)
    found = history.regret_at(5)
    assert (found.value, found.standard_error, found.median) == pytest.approx(
        (totals.mean(), totals.std(ddof=1) / np.sqrt(6), np.median(totals))
    )
    assert found.count == 6
    assert str(found) == f"{found.value:.1f} ± {found.standard_error:.1f} (median {found.median:.1f})"


@pytest.mark.parametrize("wrong", [{"instances": 0}, {"horizon": 0}, {"chunk": 0}, {"instances": -1}])
def test_nothing_to_play_is_said(small_world: SyntheticWorld, small_model: LatentModel, wrong: dict[str, Any]) -> None:
    with pytest.raises(DecisionError, match="nothing to play"):
        simulate(jr.key(0), small_world, cpg(small_model), **{"instances": 2, "horizon": 3, **wrong})


def test_rounds_that_were_not_played_have_no_regret() -> None:
    history = History(np.zeros((2, 5), int), np.ones((2, 5)), np.ones((2, 5), bool))
    for wrong in (0, -1, 6):
        with pytest.raises(DecisionError, match="nothing to say of round"):
            history.regret_at(wrong)
        with pytest.raises(DecisionError, match="nothing to say of round"):
            history.to_frame(rounds=[wrong])


def test_rewards_without_noise_are_played_well() -> None:
    """A reward of variance zero must not be taken as infinitely precise."""
    world = draw_world(jr.key(0), latent_dim=3, actions=5, reward_std=0.0)
    history = simulate(jr.key(1), world, policy_on(world.oracle(), "Calibrated"), 20, 100, beliefs=True)
    assert history.expected_rewards is not None
    assert np.all(np.isfinite(history.expected_rewards))
    assert history.optimal_share(50).value > 0.9
