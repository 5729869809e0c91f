"""What every policy promises, for policies of the roster and for any other: a subclass says which policy it is."""

from collections.abc import Callable
from typing import Any

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
    policy: AbstractPolicy, state: Any, key: PRNGKeyArray, context: Array, allowed: Array, reward: Array
) -> tuple[Any, Choice]:
    TRACED.append(type(policy).__name__)
    state, choice = policy.decide(key, state, context, allowed)
    return policy.learn(state, Step(context, choice.action, reward)), choice


STEP = jax.jit(one_round)
KEY = jr.key(3)
EVERYTHING = np.ones(5, dtype=bool)
RNG = np.random.default_rng(0)
ROUNDS = RNG.normal(size=(10, 3)).astype(np.float32), RNG.normal(size=10).astype(np.float32)
"""Ten contexts and rewards."""


def play_out(policy: AbstractPolicy, allowed: np.ndarray) -> tuple[Any, list[int]]:
    """Play ten rounds one call at a time."""
    state, actions = policy.init(), []
    for t, (context, reward) in enumerate(zip(*ROUNDS, strict=True)):
        state, choice = STEP(policy, state, jr.key(t), context, allowed, reward)
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
        _, choice = policy.decide(jr.key(0), policy.init(), jnp.asarray(ROUNDS[0][0]), jnp.asarray(EVERYTHING))
        assert choice.values.shape == (5,)
        assert np.all(np.isfinite(choice.values))
        assert int(choice.action) == int(jnp.argmax(choice.values))

    def test_a_forbidden_action_is_never_taken(self, policy: AbstractPolicy) -> None:
        allowed = np.array([False, True, False, True, False])
        state, actions = play_out(policy, allowed)
        assert set(actions) <= {1, 3}
        shares = policy.propensities(jr.key(0), state, jnp.asarray(ROUNDS[0][0]), jnp.asarray(allowed))
        assert np.all(np.asarray(shares)[[0, 2, 4]] == 0)
        assert float(shares.sum()) == pytest.approx(1, abs=1e-5)

    def test_the_same_keys_give_the_same_actions(self, policy: AbstractPolicy) -> None:
        assert play_out(policy, EVERYTHING)[1] == play_out(policy, EVERYTHING)[1]

    def test_propensities_sum_to_one_and_match_frequencies(self, policy: AbstractPolicy) -> None:
        state, _ = play_out(policy, EVERYTHING)
        context, everything = jnp.asarray(ROUNDS[0][0]), jnp.asarray(EVERYTHING)
        draws = 4000
        choose = jax.jit(jax.vmap(lambda key: policy.decide(key, state, context, everything)[1].action))
        seen = np.bincount(np.asarray(choose(jr.split(jr.key(5), draws))), minlength=5) / draws
        after, _ = policy.decide(jr.key(0), state, context, everything)
        shares = np.asarray(policy.propensities(jr.key(1), after, context, everything))
        assert shares.sum() == pytest.approx(1, abs=1e-5)
        # 500 points and 4000 draws: five standard deviations of their difference are below 0.12.
        assert np.abs(shares - seen).max() < 0.12

    def test_beliefs_have_finite_means_and_spreads_that_draws_agree_with(self, policy: AbstractPolicy) -> None:
        context = jnp.asarray(ROUNDS[0][0])
        state, _ = policy.decide(jr.key(0), policy.init(), context, jnp.asarray(EVERYTHING))
        rewards = policy.rewards(state, context)
        draws = np.asarray(jax.jit(jax.vmap(rewards.draw))(jr.split(jr.key(2), 8000)))
        mean, spread = np.asarray(rewards.mean()), np.asarray(rewards.std())
        assert np.all(np.isfinite(mean))
        assert np.all(spread >= 0)
        np.testing.assert_allclose(draws.mean(axis=0), mean, atol=float(6 * spread.max() / np.sqrt(8000) + 1e-4))
        np.testing.assert_allclose(draws.std(axis=0), spread, atol=float(0.06 * spread.max() + 1e-4))

    def test_separate_calls_equal_the_scanned_rollout(
        self, policy: AbstractPolicy, small_world: SyntheticWorld, played: Callable[[AbstractPolicy], History]
    ) -> None:
        """Round by round with separate calls, against one compiled program."""
        horizon, history = 12, played(policy)
        keys = play_keys(KEY, jnp.asarray(2))
        instance = small_world.sample_instance(keys.instance)
        state, actions = policy.init(), []
        decide = jax.jit(lambda policy, *arguments: policy.decide(*arguments))
        learn = jax.jit(lambda policy, *arguments: policy.learn(*arguments))
        for t in range(horizon):
            key_context, key_reward = jr.split(jr.fold_in(keys.rounds, t))
            context = small_world.emit(key_context, instance)
            state, choice = decide(policy, jr.fold_in(keys.decisions, t), state, context, jnp.asarray(EVERYTHING))
            reward = small_world.sample_rewards(key_reward, instance)[choice.action]
            state = learn(policy, state, Step(context, choice.action, reward, jnp.asarray(t)))
            actions.append(int(choice.action))
        assert actions == history.actions[2, :horizon].tolist()

    def test_a_refit_does_not_recompile(self, policy: AbstractPolicy, refitted: AbstractPolicy) -> None:
        """Other numbers of the same shapes run in the program that was compiled for the first."""
        context, reward = (part[0] for part in ROUNDS)
        STEP(policy, policy.init(), jr.key(0), context, EVERYTHING, reward)
        traced = len(TRACED)
        assert traced > 0
        STEP(refitted, refitted.init(), jr.key(0), context, EVERYTHING, reward)
        assert len(TRACED) == traced

    def test_it_takes_best_actions_in_its_last_rounds(
        self, policy: AbstractPolicy, played: Callable[[AbstractPolicy], History], least_share: float
    ) -> None:
        """Chance takes one in five."""
        assert played(policy).optimal_share(100).value > least_share
