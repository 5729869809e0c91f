"""One conformance suite over every policy of the roster."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from ilb.errors import DecisionError
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.fit import complete_model
from ilb.online.roster import build_policies
from ilb.simulation import instance_keys, simulate
from ilb.types import Step

TRACED: list[str] = []
"""A word for each program made of a round."""


def one_round(policy, state, key, context, allowed, reward):
    TRACED.append(type(policy).__name__)
    state, choice = policy.decide(key, state, context, allowed)
    return policy.learn(state, Step(context, choice.action, reward)), choice


STEP = jax.jit(one_round)


@pytest.fixture(scope="module")
def rounds():
    """Ten contexts and rewards."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(10, 3)).astype(np.float32), rng.normal(size=10).astype(np.float32)


KEY = jr.key(3)


@pytest.fixture(scope="module")
def played(small_world):
    """Play each policy once: 64 instances, 150 rounds."""
    histories = {}

    def play(policy):
        if id(policy) not in histories:
            histories[id(policy)] = simulate(KEY, small_world, policy, instances=64, horizon=150)
        return histories[id(policy)]

    return play


def play_out(policy, rounds, allowed):
    """Play ten rounds one call at a time."""
    state, actions = policy.init(), []
    for t, (context, reward) in enumerate(zip(*rounds, strict=True)):
        state, choice = STEP(policy, state, jr.key(t), context, allowed, reward)
        actions.append(int(choice.action))
    return state, actions


def test_an_action_is_the_largest_of_its_values(policy, rounds, everything):
    _, choice = policy.decide(jr.key(0), policy.init(), jnp.asarray(rounds[0][0]), jnp.asarray(everything))
    assert choice.values.shape == (5,)
    assert np.all(np.isfinite(choice.values))
    assert int(choice.action) == int(jnp.argmax(choice.values))


def test_a_forbidden_action_is_never_taken(policy, rounds):
    allowed = np.array([False, True, False, True, False])
    state, actions = play_out(policy, rounds, allowed)
    assert set(actions) <= {1, 3}
    shares = policy.propensities(jr.key(0), state, jnp.asarray(rounds[0][0]), jnp.asarray(allowed))
    assert np.all(np.asarray(shares)[[0, 2, 4]] == 0)
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)


def test_the_same_keys_give_the_same_actions(policy, rounds, everything):
    assert play_out(policy, rounds, everything)[1] == play_out(policy, rounds, everything)[1]


def test_propensities_sum_to_one_and_match_frequencies(policy, rounds, everything):
    state, _ = play_out(policy, rounds, everything)
    context = jnp.asarray(rounds[0][0])
    draws = 4000
    choose = jax.jit(jax.vmap(lambda key: policy.decide(key, state, context, jnp.asarray(everything))[1].action))
    seen = np.bincount(np.asarray(choose(jr.split(jr.key(5), draws))), minlength=5) / draws
    after, _ = policy.decide(jr.key(0), state, context, jnp.asarray(everything))
    shares = np.asarray(policy.propensities(jr.key(1), after, context, jnp.asarray(everything)))
    assert shares.sum() == pytest.approx(1, abs=1e-5)
    # 500 points and 4000 draws: five standard deviations of their difference are below 0.12.
    assert np.abs(shares - seen).max() < 0.12


def test_beliefs_have_finite_means_and_spreads_that_draws_agree_with(policy, rounds, everything):
    context = jnp.asarray(rounds[0][0])
    state, _ = policy.decide(jr.key(0), policy.init(), context, jnp.asarray(everything))
    rewards = policy.rewards(state, context)
    draws = np.asarray(jax.jit(jax.vmap(rewards.draw))(jr.split(jr.key(2), 8000)))
    spread = np.asarray(rewards.std())
    assert np.all(spread >= 0)
    np.testing.assert_allclose(draws.mean(axis=0), rewards.mean(), atol=float(6 * spread.max() / np.sqrt(8000) + 1e-4))
    np.testing.assert_allclose(draws.std(axis=0), spread, atol=float(0.06 * spread.max() + 1e-4))


def test_separate_calls_equal_the_scanned_rollout(policy, small_world, played):
    """Round by round with separate calls, against one compiled program."""
    key, horizon = KEY, 12
    history = played(policy)
    keys = instance_keys(key, jnp.asarray(2))
    instance = small_world.sample_instance(keys.instance)
    state, actions = policy.init(), []
    decide = jax.jit(lambda policy, *arguments: policy.decide(*arguments))
    learn = jax.jit(lambda policy, *arguments: policy.learn(*arguments))
    for t in range(horizon):
        key_context, key_reward = jr.split(jr.fold_in(keys.rounds, t))
        context = small_world.emit(key_context, instance)
        state, choice = decide(policy, jr.fold_in(keys.decisions, t), state, context, jnp.ones(5, bool))
        reward = small_world.sample_rewards(key_reward, instance)[choice.action]
        state = learn(policy, state, Step(context, choice.action, reward))
        actions.append(int(choice.action))
    assert actions == history.actions[2, :horizon].tolist()


@pytest.fixture(scope="module")
def refitted_roster(small_world, small_logs, small_network):
    """Every policy, built from the same logs in another order."""
    other_logs = small_logs.select(np.arange(79, -1, -1))
    refitted = complete_model(small_world.oracle().encoder, other_logs)
    network = jax.tree.map(lambda leaf: 2 * leaf, small_network)
    return build_policies(prepare_ingredients(refitted, other_logs, horizon=300, states=6, seed=1, recurrent=network))


def test_a_refit_does_not_recompile(policy, refitted_roster, rounds, everything, request):
    """Another model with the same shapes runs in the program that was compiled for the first."""
    other = refitted_roster[request.node.callspec.params["policy"]]
    context, reward = (part[0] for part in rounds)
    STEP(policy, policy.init(), jr.key(0), context, everything, reward)
    traced = len(TRACED)
    assert traced > 0
    STEP(other, other.init(), jr.key(0), context, everything, reward)
    assert len(TRACED) == traced


def test_an_unknown_name_is_answered_with_the_known_ones(ingredients):
    with pytest.raises(DecisionError, match="no policy is named 'UCB1'; there are CPG"):
        build_policies(ingredients, ["CPG", "UCB1"])


def test_it_learns_unless_it_is_uniform(policy, played, request):
    """In its last rounds it takes a best action more often than chance does."""
    share = played(policy).optimal_share(100).value
    if request.node.callspec.params["policy"] == "Uniform":
        assert share == pytest.approx(0.2, abs=0.05)
    else:
        assert share > 0.3
