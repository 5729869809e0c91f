"""What every policy promises, for policies of the roster and for any other: a subclass says which policy it is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

from ilb.environments import SyntheticWorld
from ilb.history import History
from ilb.online.policy import AbstractPolicy
from ilb.simulation import play_keys, simulate
from ilb.types import Choice, Step

TRACED: list[str] = []
"""A word for each program made of a round."""


def one_round(
    policy: AbstractPolicy, state: Any, key: PRNGKeyArray, context: Array, allowed: Array, rewards: Array, t: Array
) -> tuple[Any, Choice]:
    TRACED.append(type(policy).__name__)
    state, choice = policy.decide(key, state, context, allowed)
    return policy.learn(state, Step(context, choice.action, rewards[choice.action], t)), choice


class Belief(NamedTuple):
    """What a policy would do after a context, and what it believes: draws have an axis in front."""

    actions: Array
    propensities: Array
    mean: Array
    std: Array
    draws: Array


def look_into(policy: AbstractPolicy, state: Any, context: Array, allowed: Array) -> Belief:
    keys = jr.split(jr.key(5), DRAWS)
    actions = jax.vmap(lambda key: policy.decide(key, state, context, allowed)[1].action)(keys)
    after, _ = policy.decide(jr.key(0), state, context, allowed)
    rewards = policy.rewards(after, context)
    shares = policy.propensities(jr.key(1), after, context, allowed)
    return Belief(actions, shares, rewards.mean(), rewards.std(), jax.vmap(rewards.draw)(keys))


# Two programs for each policy are all that is compiled: operations on their own would take longer than all tests.
STEP, LOOK = jax.jit(one_round), jax.jit(look_into)
EMIT = eqx.filter_jit(
    lambda world, instance, *keys: (world.emit(keys[0], instance), world.sample_rewards(keys[1], instance))
)
DRAWS = 8000
KEY = jr.key(3)
EVERYTHING = np.ones(5, dtype=bool)
RNG = np.random.default_rng(0)
CONTEXTS, REWARDS = RNG.normal(size=(10, 3)).astype(np.float32), RNG.normal(size=(10, 5)).astype(np.float32)
"""Of ten rounds."""


def play_out(policy: AbstractPolicy, allowed: np.ndarray) -> tuple[Any, list[int]]:
    """Play ten rounds one call at a time."""
    state, actions = policy.init(), []
    for t, (context, rewards) in enumerate(zip(CONTEXTS, REWARDS, strict=True)):
        state, choice = STEP(policy, state, jr.key(t), context, allowed, rewards, np.int32(t))
        actions.append(int(choice.action))
    return state, actions


class PolicyConformance:
    """The suite. A subclass has three fixtures, for the small world with three context columns and five actions:

    `policy`, `refitted` (the same policy, built from other numbers), and `least_share` (of best actions, in the end).
    """

    @pytest.fixture(scope="class")
    @classmethod
    def played(cls, small_world: SyntheticWorld) -> Callable[[AbstractPolicy], History]:
        """Play each policy once: 64 instances, 150 rounds."""
        histories = {}

        def play(policy: AbstractPolicy) -> History:
            if id(policy) not in histories:
                histories[id(policy)] = simulate(KEY, small_world, policy, instances=64, horizon=150)
            return histories[id(policy)]

        return play

    def test_an_action_is_the_largest_of_its_values(self, policy: AbstractPolicy) -> None:
        _, choice = STEP(policy, policy.init(), jr.key(0), CONTEXTS[0], EVERYTHING, REWARDS[0], np.int32(0))
        assert choice.values.shape == (5,)
        assert np.all(np.isfinite(choice.values))
        assert int(choice.action) == int(np.argmax(choice.values))

    def test_a_forbidden_action_is_never_taken(self, policy: AbstractPolicy) -> None:
        allowed = np.array([False, True, False, True, False])
        state, actions = play_out(policy, allowed)
        assert set(actions) <= {1, 3}
        shares = np.asarray(LOOK(policy, state, CONTEXTS[0], allowed).propensities)
        assert np.all(shares[[0, 2, 4]] == 0)
        assert shares.sum() == pytest.approx(1, abs=1e-5)

    def test_the_same_keys_give_the_same_actions(self, policy: AbstractPolicy) -> None:
        assert play_out(policy, EVERYTHING)[1] == play_out(policy, EVERYTHING)[1]

    def test_propensities_sum_to_one_and_match_frequencies(self, policy: AbstractPolicy) -> None:
        state, _ = play_out(policy, EVERYTHING)
        look = LOOK(policy, state, CONTEXTS[0], EVERYTHING)
        shares, seen = np.asarray(look.propensities), np.bincount(np.asarray(look.actions), minlength=5) / DRAWS
        assert shares.sum() == pytest.approx(1, abs=1e-5)
        # 500 points and 8000 draws: five standard deviations of their difference are below 0.12.
        assert np.abs(shares - seen).max() < 0.12

    def test_beliefs_have_finite_means_and_spreads_that_draws_agree_with(self, policy: AbstractPolicy) -> None:
        look = LOOK(policy, policy.init(), CONTEXTS[0], EVERYTHING)
        mean, spread, draws = np.asarray(look.mean), np.asarray(look.std), np.asarray(look.draws)
        assert np.all(np.isfinite(mean))
        assert np.all(spread >= 0)
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=float(6 * spread.max() / np.sqrt(DRAWS) + 1e-4))
        np.testing.assert_allclose(draws.std(axis=0), spread, atol=float(0.06 * spread.max() + 1e-4))

    def test_separate_calls_equal_the_scanned_rollout(
        self, policy: AbstractPolicy, small_world: SyntheticWorld, played: Callable[[AbstractPolicy], History]
    ) -> None:
        """Round by round with separate calls, against one compiled program."""
        horizon, history = 12, played(policy)
        keys = play_keys(KEY, jnp.asarray(2))
        instance = small_world.sample_instance(keys.instance)
        state, actions = policy.init(), []
        for t in range(horizon):
            key_context, key_reward = jr.split(jr.fold_in(keys.rounds, t))
            context, rewards = EMIT(small_world, instance, key_context, key_reward)
            key = jr.fold_in(keys.decisions, t)
            state, choice = STEP(policy, state, key, context, EVERYTHING, rewards, np.int32(t))
            actions.append(int(choice.action))
        assert actions == history.actions[2, :horizon].tolist()

    def test_a_refit_does_not_recompile(self, policy: AbstractPolicy, refitted: AbstractPolicy) -> None:
        """Other numbers of the same shapes run in the program that was compiled for the first."""
        rest = jr.key(0), CONTEXTS[0], EVERYTHING, REWARDS[0], np.int32(0)
        STEP(policy, policy.init(), *rest)
        traced = len(TRACED)
        assert traced > 0
        STEP(refitted, refitted.init(), *rest)
        assert len(TRACED) == traced

    def test_it_takes_best_actions_in_its_last_rounds(
        self, policy: AbstractPolicy, played: Callable[[AbstractPolicy], History], least_share: float
    ) -> None:
        """Chance takes one in five."""
        assert played(policy).optimal_share(100).value > least_share
