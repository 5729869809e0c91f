"""Worlds as Gymnasium environments: Gymnasium's own checks, and the same episodes computed without Gymnasium."""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import gymnasium
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.env_match import check_environments_match
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from jaxtyping import Array, PRNGKeyArray
from scipy import stats

from ilb.environments import AbstractEnvironment, SyntheticWorld, draw_world
from ilb.environments.gymnasium import BanditEnv, BanditVectorEnv
from ilb.environments.perturbed import DroppedContexts, OtherNoise
from ilb.environments.wrappers import AbstractWrapper
from ilb.errors import WorldError
from ilb.models.latent import LatentModel

ACTIONS, DIM, ENVS, HORIZON = 4, 3, 5, 6
WORLD = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS)
# Without any noise the context tells the latent state, and the reward is its mean.
CLEAR = eqx.tree_at(
    lambda world: world.reward_std,
    OtherNoise("gaussian", 0.0).apply(jr.key(0), WORLD),
    0.0 * WORLD.reward_std,
)


@pytest.fixture
def registered() -> Iterator[str]:
    name = "ilb-test/Synthetic-v0"
    gymnasium.register(
        name,
        entry_point=lambda **options: BanditEnv(WORLD, **options),
        vector_entry_point=lambda **options: BanditVectorEnv(WORLD, **options),
        kwargs={"horizon": HORIZON},
    )
    yield name
    del gymnasium.registry[name]


def rollout(env: BanditEnv, actions: Iterable[int]) -> list[Any]:
    return [env.step(action) for action in actions]


def play_both(calls: list[Callable[[Any], Any]]) -> list[list[Any]]:
    """Give what SyncVectorEnv of BanditEnv and BanditVectorEnv answer to the same calls."""
    sync = SyncVectorEnv([lambda: BanditEnv(WORLD, HORIZON)] * ENVS)
    ours = BanditVectorEnv(WORLD, ENVS, HORIZON)
    return [[call(env) for call in calls] for env in (sync, ours)]


def steps(number: int, seed: int = 0) -> list[Callable[[Any], Any]]:
    rows = np.random.default_rng(seed).integers(ACTIONS, size=(number, ENVS))

    def step(row: np.ndarray) -> Callable[[Any], Any]:
        return lambda env: env.step(row)

    return [step(row) for row in rows]


# One instance


# Contexts are Gaussian before the emission, hence unbounded; the checker warns of that. Other warnings are errors.
@pytest.mark.filterwarnings("ignore:.*A Box observation space m(in|ax)imum value is -?infinity")
def test_gymnasium_finds_no_fault_with_an_environment(registered: str) -> None:
    env = gymnasium.make(registered)
    check_env(env.unwrapped)


def test_spaces_are_those_of_the_world() -> None:
    env = BanditEnv(DroppedContexts(WORLD, jnp.array([0, 2])), HORIZON)
    assert env.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.action_space == gymnasium.spaces.Discrete(ACTIONS)


def test_an_episode_lasts_for_the_horizon_and_is_truncated_not_terminated() -> None:
    env = BanditEnv(WORLD, HORIZON)
    env.reset(seed=1)
    _, _, terminated, truncated, _ = zip(*rollout(env, [0] * HORIZON), strict=True)
    assert not any(terminated)
    assert truncated == (False,) * (HORIZON - 1) + (True,)


def test_contexts_and_rewards_come_from_one_instance_of_the_world() -> None:
    env = BanditEnv(CLEAR, HORIZON)
    context, _ = env.reset(seed=1)
    z = CLEAR.mixing.inverse(jnp.asarray(context))
    means = np.asarray(CLEAR.mean_rewards(z))
    for action in (0, 3, 1):
        context, reward, _, _, info = env.step(action)
        np.testing.assert_allclose(CLEAR.mixing.inverse(jnp.asarray(context)), z, atol=1e-4)
        np.testing.assert_allclose(reward, means[action], atol=1e-4)
        np.testing.assert_allclose(info["mean_reward"], means[action], atol=1e-4)
        np.testing.assert_allclose(info["regret"], means.max() - means[action], atol=1e-4)


class Ageing(AbstractWrapper):
    """A world in which every round moves the latent state by one."""

    environment: AbstractEnvironment

    def advance(self, key: PRNGKeyArray, instance: Any) -> Any:
        return instance + 1


def test_a_state_that_moves_does_so_after_each_step_and_not_beyond_the_episode() -> None:
    env, still = BanditEnv(Ageing(CLEAR), 3), BanditEnv(CLEAR, 3)
    first = CLEAR.mixing.inverse(jnp.asarray(env.reset(seed=1)[0]))
    for age in range(1, 4):
        before = np.asarray(CLEAR.mean_rewards(first + age - 1))
        context, reward, *_, info = env.step(2)
        assert reward == pytest.approx(before[2], abs=1e-4)
        assert info["regret"] == pytest.approx(before.max() - before[2], abs=1e-4)
        np.testing.assert_allclose(CLEAR.mixing.inverse(jnp.asarray(context)), first + age, atol=1e-4)
    still.reset(seed=1)
    np.testing.assert_array_equal(env.reset()[0], still.reset()[0])


def test_rewards_vary_around_their_mean_with_the_noise_of_the_world() -> None:
    envs = BanditVectorEnv(WORLD, ENVS, 1000)
    envs.reset(seed=3)
    outcomes = [envs.step(np.full(ENVS, 2)) for _ in range(400)]
    residuals = np.array([(rewards - infos["mean_reward"]) / 0.5 for _, rewards, _, _, infos in outcomes])
    assert stats.kstest(residuals.ravel(), "norm").pvalue > 1e-4
    assert abs(np.corrcoef(residuals[1:, 0], residuals[:-1, 0])[0, 1]) < 4 / np.sqrt(400)  # fresh in every round


def test_a_seed_starts_a_sequence_of_different_instances_that_can_be_repeated() -> None:
    env, again = BanditEnv(CLEAR, HORIZON), BanditEnv(CLEAR, 2 * HORIZON)
    contexts = [env.reset(seed=5)[0], env.reset()[0], env.reset()[0]]
    rollout(again, []), again.reset(seed=5), rollout(again, [1, 2])  # how an episode is played changes none after it
    np.testing.assert_array_equal(again.reset()[0], contexts[1])
    np.testing.assert_array_equal(again.reset()[0], contexts[2])
    assert len(np.unique(np.stack(contexts), axis=0)) == 3
    assert not np.allclose(env.reset(seed=6)[0], contexts[0])
    assert not np.allclose(BanditEnv(CLEAR, HORIZON).reset()[0], BanditEnv(CLEAR, HORIZON).reset()[0])


def test_actions_do_not_change_contexts_or_the_noise_of_other_actions() -> None:
    def played(actions: Iterable[int]) -> list[Any]:
        env = BanditEnv(WORLD, HORIZON)
        env.reset(seed=2)
        return rollout(env, actions)

    first, second = played([0, 1, 2]), played([3, 1, 0])
    for (context, *_), (other, *_) in zip(first, second, strict=True):
        np.testing.assert_array_equal(context, other)
    assert first[1][1] == second[1][1]
    assert first[0][1] != second[0][1]


def test_steps_that_can_not_be_taken_are_refused() -> None:
    env = BanditEnv(WORLD, 2)
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    for action in (ACTIONS, -1, 0.5):
        with pytest.raises(InvalidAction, match=r"Discrete\(4\)"):
            env.step(action)
    rollout(env, [0, 0])
    with pytest.raises(ResetNeeded, match="after 2 steps"):
        env.step(0)
    with pytest.raises(WorldError, match="horizon must be at least 1"):
        BanditEnv(WORLD, 0)


# Many instances


def test_the_vector_environment_answers_as_a_sync_vector_env_over_several_episodes() -> None:
    calls = [lambda env: env.reset(seed=7), *steps(3 * HORIZON + 2)]
    for theirs, ours in zip(*play_both(calls), strict=True):
        assert data_equivalence(theirs, ours), (theirs, ours)


def test_resets_without_a_seed_with_many_seeds_and_of_some_environments_are_those_of_a_sync_vector_env() -> None:
    some = np.array([True, False, False, True, False])
    calls = [
        lambda env: env.reset(seed=[4, 2, 9, 2, 0]),
        *steps(2),
        lambda env: env.reset(options={"reset_mask": some}),
        *steps(HORIZON),  # environments are now out of step, and end their episodes at different times
        lambda env: env.reset(seed=[1, 2, None, 4, None], options={"reset_mask": some}),
        *steps(HORIZON),
        lambda env: env.reset(),
        *steps(1),
        lambda env: env.reset(seed=3, options={}),
    ]
    for theirs, ours in zip(*play_both(calls), strict=True):
        assert data_equivalence(theirs, ours), (theirs, ours)


def test_gymnasium_finds_that_one_vectorised_environment_matches_its_sync_vector_env() -> None:
    # Gymnasium has no checker for vector environments; this one compares two, but only when they hold one environment.
    sync: Any = SyncVectorEnv([lambda: BanditEnv(WORLD, HORIZON)])
    ours: Any = BanditVectorEnv(WORLD, 1, HORIZON)
    check_environments_match(sync, ours, num_steps=2 * HORIZON)


def test_observations_and_spaces_are_batches_of_those_of_one_environment() -> None:
    envs, sync = BanditVectorEnv(WORLD, ENVS, HORIZON), SyncVectorEnv([lambda: BanditEnv(WORLD, HORIZON)] * ENVS)
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space", "num_envs"):
        assert getattr(envs, name) == getattr(sync, name)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    contexts, _ = envs.reset(seed=0)
    assert contexts in envs.observation_space
    assert envs.step(envs.action_space.sample())[0] in envs.observation_space


def test_what_was_returned_may_be_kept_and_changed() -> None:
    envs = BanditVectorEnv(WORLD, ENVS, HORIZON)
    contexts, _ = envs.reset(seed=0)
    kept = contexts.copy()
    _, rewards, terminated, truncated, infos = envs.step(np.zeros(ENVS, dtype=int))
    np.testing.assert_array_equal(contexts, kept)
    for array in (contexts, rewards, terminated, truncated, *infos.values()):
        array[:] = 1
    again = BanditVectorEnv(WORLD, ENVS, HORIZON)
    again.reset(seed=0)
    again.step(np.zeros(ENVS, dtype=int))
    np.testing.assert_array_equal(envs.step(np.zeros(ENVS, dtype=int))[0], again.step(np.zeros(ENVS, dtype=int))[0])


def test_gymnasium_can_make_and_wrap_the_vector_environment(registered: str) -> None:
    envs = RecordEpisodeStatistics(gymnasium.make_vec(registered, ENVS, vectorization_mode="vector_entry_point"))
    assert isinstance(envs.unwrapped, BanditVectorEnv)
    envs.reset(seed=1)
    rewards = []
    for _ in range(HORIZON):
        _, reward, _, _, infos = envs.step(np.zeros(ENVS, dtype=int))
        rewards.append(reward)
    np.testing.assert_allclose(infos["episode"]["r"], np.sum(rewards, axis=0), rtol=1e-5)
    assert (infos["episode"]["l"] == HORIZON).all()


def test_calls_that_make_no_sense_are_refused_by_the_vector_environment() -> None:
    envs = BanditVectorEnv(WORLD, ENVS, HORIZON)
    with pytest.raises(ResetNeeded):
        envs.step(np.zeros(ENVS, dtype=int))
    with pytest.raises(ResetNeeded, match="must reset all"):
        envs.reset(options={"reset_mask": np.arange(ENVS) == 0})
    with pytest.raises(ValueError, match="5 of them; got 2"):
        envs.reset(seed=[1, 2])
    envs.reset(seed=0)
    for mask in (np.zeros(ENVS, dtype=bool), np.ones(2, dtype=bool), np.ones(ENVS)):
        with pytest.raises(ValueError, match="5 booleans"):
            envs.reset(options={"reset_mask": mask})
    for actions in (np.full(ENVS, ACTIONS), np.zeros(2, dtype=int), np.zeros(ENVS)):
        with pytest.raises(InvalidAction, match=r"5 of Discrete\(4\)"):
            envs.step(actions)
    with pytest.raises(WorldError, match="num_envs"):
        BanditVectorEnv(WORLD, 0, HORIZON)


# Both


TRACES: list = []


class CountingTraces(AbstractEnvironment):
    """A world that notes each time its contexts are traced."""

    world: SyntheticWorld

    def sample_instance(self, key: PRNGKeyArray) -> Any:
        return self.world.sample_instance(key)

    def emit(self, key: PRNGKeyArray, instance: Any) -> Array:
        TRACES.append(1)
        return self.world.emit(key, instance)

    def mean_rewards(self, instance: Any) -> Array:
        return self.world.mean_rewards(instance)

    def sample_rewards(self, key: PRNGKeyArray, instance: Any) -> Array:
        return self.world.sample_rewards(key, instance)

    def latent_state(self, instance: Any) -> Array:
        return instance

    def oracle(self) -> LatentModel:
        return self.world.oracle()


def test_another_world_or_horizon_of_the_same_shape_does_not_compile_again() -> None:
    def traces(seed: int, horizon: int) -> int:
        world = CountingTraces(draw_world(jr.key(seed), latent_dim=DIM, actions=ACTIONS))
        one, many = BanditEnv(world, horizon), BanditVectorEnv(world, ENVS, horizon)
        TRACES.clear()  # looking up the shapes for the spaces is no compilation
        one.reset(seed=0), one.step(0), one.step(1), one.reset()
        many.reset(seed=0), many.step(np.zeros(ENVS, dtype=int)), many.reset()
        return len(TRACES)

    assert traces(0, HORIZON) == 4  # begin and step, for one and for many
    assert traces(1, 2 * HORIZON) == 0


def test_without_gymnasium_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "ilb.environments.gymnasium")
    with pytest.raises(ImportError, match=r"pip install identifiable-latent-bandits\[gym\]"):
        importlib.import_module("ilb.environments.gymnasium")
