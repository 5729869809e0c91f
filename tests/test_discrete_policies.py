"""Latent bandits with discrete states: mTS and mUCB, and the states that logs give them."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.baselines import DiscreteStates
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder
from ilb.offline.discrete_states import (
    Mixture,
    climb,
    evaluate,
    fit_states_on_encodings,
    fit_states_on_rewards,
    mean_prior,
    tabulate_rewards,
)
from ilb.online.discrete import MixtureRewards, ModelUCB, mts, mucb
from ilb.online.policy import AbstractPolicy
from ilb.types import Choice, Step
from narrowed import linear

# Three states, five actions; the last two actions are the best of no state.
MEANS = np.array([[1.0, 0.0, -0.5, 0.9, -1.0], [0.0, 1.5, 0.2, 1.0, 0.0], [-1.0, 0.2, 0.6, 0.5, -0.2]])
VARIANCE = np.array([0.25, 0.5, 0.25, 1.0, 0.3])
WEIGHTS = np.array([0.5, 0.3, 0.2])
STATES = DiscreteStates(
    jnp.asarray(WEIGHTS, jnp.float32), jnp.asarray(MEANS, jnp.float32), jnp.asarray(VARIANCE, jnp.float32)
)
ACTIONS, HORIZON = 5, 400
EVERYTHING, CONTEXT = jnp.ones(ACTIONS, bool), jnp.zeros(1)

POLICIES = {"mts": mts(STATES), "mucb": mucb(STATES, HORIZON)}


def steps_of(rng: np.random.Generator, rounds: int, true_state: int = 1) -> Step:
    action = rng.integers(0, ACTIONS, rounds)
    reward = MEANS[true_state, action] + np.sqrt(VARIANCE[action]) * rng.normal(size=rounds)
    return Step(jnp.zeros((rounds, 1)), jnp.asarray(action), jnp.asarray(reward, jnp.float32))


@jax.jit
def learned(policy: AbstractPolicy, steps: Step) -> Any:
    return jax.lax.scan(lambda state, step: (policy.learn(state, step), None), policy.init(), steps)[0]


@jax.jit
def play(key: PRNGKeyArray, policy: AbstractPolicy, means: Array, allowed: Array) -> tuple[Array, Any]:
    """Play ten instances with these mean rewards; give the actions and the state after each round."""

    def one(state: Any, key: PRNGKeyArray) -> tuple[Any, tuple[Array, Any]]:
        key_decide, key_reward = jr.split(key)
        state, choice = policy.decide(key_decide, state, CONTEXT, allowed)
        reward = means[choice.action] + 0.5 * jr.normal(key_reward)
        state = policy.learn(state, Step(CONTEXT, choice.action, reward))
        return state, (choice.action, state)

    return jax.vmap(lambda key: jax.lax.scan(one, policy.init(), jr.split(key, HORIZON))[1])(jr.split(key, 10))


@jax.jit
def choices(policy: AbstractPolicy, state: Any, allowed: Array) -> Array:
    """Decide 4000 times from one state."""
    return jax.vmap(lambda key: policy.decide(key, state, CONTEXT, allowed)[1].action)(jr.split(jr.key(1), 4000))


@jax.jit
def believed(policy: AbstractPolicy, state: Any) -> tuple[Array, Array, Array]:
    rewards = policy.rewards(state, CONTEXT)
    assert isinstance(rewards, MixtureRewards)
    return rewards.probabilities(), rewards.mean(), rewards.std()


@jax.jit
def propensities_of(policy: AbstractPolicy, state: Any, allowed: Array) -> Array:
    return policy.propensities(jr.key(2), state, CONTEXT, allowed)


def brute_force_posterior(steps: Step) -> np.ndarray:
    reward, action = np.asarray(steps.reward, float), np.asarray(steps.action)
    likelihood = np.sum(stats.norm.logpdf(reward, MEANS[:, action], np.sqrt(VARIANCE[action])), axis=1)
    log_weights = np.log(WEIGHTS) + likelihood
    return np.exp(log_weights - logsumexp(log_weights))


# mTS


@pytest.mark.parametrize("rounds", [1, 5, 2000])
def test_the_posterior_of_mts_is_that_of_bayes_rule_reward_by_reward(rounds: int) -> None:
    for seed in range(5):
        steps = steps_of(np.random.default_rng(seed), rounds)
        probabilities, mean_rewards, stds = believed(POLICIES["mts"], learned(POLICIES["mts"], steps))
        posterior = brute_force_posterior(steps)
        np.testing.assert_allclose(probabilities, posterior, atol=1e-4)
        mean = posterior @ MEANS
        np.testing.assert_allclose(mean_rewards, mean, atol=1e-3)
        np.testing.assert_allclose(stds**2, posterior @ MEANS**2 - mean**2, atol=1e-3)


def test_before_any_reward_mts_knows_how_common_the_states_are() -> None:
    probabilities, mean_rewards, _ = believed(POLICIES["mts"], POLICIES["mts"].init())
    np.testing.assert_allclose(probabilities, WEIGHTS, atol=1e-6)
    np.testing.assert_allclose(mean_rewards, WEIGHTS @ MEANS, atol=1e-6)


def test_rewards_may_arrive_in_any_order() -> None:
    rng = np.random.default_rng(0)
    steps, order = steps_of(rng, 300), rng.permutation(300)
    one, other = (learned(POLICIES["mts"], some) for some in (steps, jax.tree.map(lambda leaf: leaf[order], steps)))
    for sums in zip(one, other, strict=True):
        np.testing.assert_allclose(*sums, rtol=1e-5)


def test_states_are_drawn_by_their_probabilities() -> None:
    probabilities = np.array([0.1, 0.6, 0.3])
    rewards = MixtureRewards(jnp.log(jnp.asarray(probabilities)) + 5.0, jnp.asarray(MEANS))
    drawn = np.asarray(jax.jit(jax.vmap(rewards.draw))(jr.split(jr.key(0), 10_000)))
    shares = [np.mean(np.all(np.abs(drawn - row) < 1e-6, axis=1)) for row in MEANS]
    np.testing.assert_allclose(shares, probabilities, atol=0.02)
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("possible", [0, 1, 2])
def test_no_noise_draws_an_impossible_state(possible: int) -> None:
    rewards = MixtureRewards(jnp.where(jnp.arange(3) == possible, 0.0, -jnp.inf), jnp.asarray(MEANS, jnp.float32))
    drawn = jax.jit(jax.vmap(rewards.at))(jnp.array([[-8.0], [-0.3], [0.0], [0.3], [8.0]]))
    np.testing.assert_array_equal(drawn, np.tile(np.float32(MEANS[possible]), (5, 1)))


def test_rounding_leaves_no_gap_behind_the_last_possible_state() -> None:
    """Fifty probabilities in float32 sum to a little less than one, or a little more."""
    log_weights = np.log(np.random.default_rng(0).dirichlet(np.ones(50), 200)).astype(np.float32)
    log_weights[:, -1] = -np.inf
    rows = jnp.eye(50)
    drawn = jax.jit(jax.vmap(lambda some: MixtureRewards(some, rows).at(jnp.array([8.0]))))(jnp.asarray(log_weights))
    np.testing.assert_array_equal(np.argmax(drawn, axis=1), np.full(200, 48))


@pytest.mark.parametrize("allowed", [[True] * 5, [False, True, False, True, True]], ids=["all", "masked"])
def test_mts_takes_an_action_as_often_as_the_states_are_true_in_which_it_is_best(allowed: list[bool]) -> None:
    policy, steps = POLICIES["mts"], steps_of(np.random.default_rng(11), 2)
    state, posterior = learned(policy, steps), brute_force_posterior(steps)
    best = np.argmax(np.where(allowed, MEANS, -np.inf), axis=1)
    expected = np.bincount(best, weights=posterior, minlength=ACTIONS)
    assert posterior.max() < 0.9  # else the test says little
    shares = np.bincount(np.asarray(choices(policy, state, jnp.asarray(allowed))), minlength=ACTIONS) / 4000
    propensities = np.asarray(propensities_of(policy, state, jnp.asarray(allowed)))
    np.testing.assert_allclose(shares, expected, atol=0.03)
    np.testing.assert_allclose(propensities, expected, atol=0.06)  # 500 points
    assert propensities.sum() == pytest.approx(1, abs=1e-5)


# mUCB


def plain_mucb(rewards: np.ndarray, sigma: float, horizon: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The algorithm as a loop over rounds; `rewards` are those of all actions in each round."""
    actions, rounds, shortfall = [], np.zeros(3), np.zeros(3)
    for reward in rewards:
        consistent = [s for s in range(3) if shortfall[s] <= sigma * np.sqrt(6 * rounds[s] * np.log(horizon))]
        pairs = itertools.product(consistent or range(3), range(ACTIONS))
        optimist, action = max(pairs, key=lambda pair: MEANS[pair])
        rounds[optimist] += 1
        shortfall[optimist] += MEANS[optimist, action] - reward[action]
        actions.append(action)
    return np.array(actions), rounds, shortfall


@pytest.mark.parametrize("true_means", [*MEANS, MEANS[2] - 3], ids=["first", "second", "third", "none"])
def test_mucb_decides_like_a_plain_loop(true_means: np.ndarray) -> None:
    policy = POLICIES["mucb"]
    rewards = (true_means + 0.5 * np.random.default_rng(1).normal(size=(HORIZON, ACTIONS))).astype(np.float32)

    @jax.jit
    def run(rewards: Array) -> tuple[Any, Array]:
        def one(state: Any, reward: Array) -> tuple[Any, Array]:
            state, choice = policy.decide(jr.key(0), state, CONTEXT, EVERYTHING)
            return policy.learn(state, Step(CONTEXT, choice.action, reward[choice.action])), choice.action

        return jax.lax.scan(one, policy.init(), rewards)

    state, found = run(jnp.asarray(rewards))
    actions, rounds, shortfall = plain_mucb(rewards.astype(float), np.sqrt(VARIANCE.max()), HORIZON)
    np.testing.assert_array_equal(found, actions)
    np.testing.assert_array_equal(state.rounds, rounds)
    np.testing.assert_allclose(state.shortfall, shortfall, atol=1e-2)


def test_mucb_never_plays_an_action_that_is_best_in_no_state() -> None:
    for means in MEANS:
        actions, _ = play(jr.key(3), POLICIES["mucb"], jnp.asarray(means), EVERYTHING)
        assert set(np.unique(actions).tolist()) <= set(MEANS.argmax(axis=1).tolist())


def test_mucb_rules_out_states_that_promise_too_much_and_keeps_the_true_one() -> None:
    policy = POLICIES["mucb"]
    assert isinstance(policy, ModelUCB)
    _, states = play(jr.key(4), policy, jnp.asarray(MEANS[2]), EVERYTHING)
    consistent = np.asarray(jax.jit(jax.vmap(jax.vmap(policy.consistent)))(states))
    assert np.all(consistent[:, :, 2])
    np.testing.assert_array_equal(consistent[:, -1], np.tile([False, False, True], (10, 1)))
    assert np.all(np.diff(consistent.astype(int), axis=1) <= 0)  # what is ruled out stays out
    last = jax.tree.map(lambda leaf: leaf[0, -1], states)
    np.testing.assert_allclose(policy.rewards(last, CONTEXT).mean(), MEANS[2], atol=1e-5)
    np.testing.assert_allclose(policy.rewards(last, CONTEXT).std(), 0, atol=1e-5)


def test_where_no_state_is_consistent_mucb_takes_all() -> None:
    policy = POLICIES["mucb"]
    assert isinstance(policy, ModelUCB)
    state = policy.init()._replace(rounds=jnp.ones(3), shortfall=jnp.full(3, 100.0))
    np.testing.assert_array_equal(policy.consistent(state), [True, True, True])
    _, choice = policy.decide(jr.key(0), state, CONTEXT, EVERYTHING)
    assert int(choice.action) == 1


def test_a_late_reward_is_booked_on_the_state_that_chose_its_action() -> None:
    policy = POLICIES["mucb"]
    state, first = policy.decide(jr.key(0), policy.init(), CONTEXT, EVERYTHING)
    assert int(first.action) == 1
    np.testing.assert_array_equal(state.chosen_by, [0, 1, 2, 1, 1])  # at first, the state that promises most
    masked = EVERYTHING.at[1].set(False)
    gone = state._replace(rounds=state.rounds.at[1].set(1.0), shortfall=state.shortfall.at[1].set(50.0))
    state, second = policy.decide(jr.key(0), gone, CONTEXT, masked.at[0].set(False))
    assert int(second.action) == 3
    np.testing.assert_array_equal(state.chosen_by, [0, 1, 2, 0, 1])  # action 3 now belongs to the first state
    for action, owner in ((int(second.action), 0), (int(first.action), 1)):
        learnt = policy.learn(state, Step(CONTEXT, jnp.asarray(action), jnp.asarray(0.25)))
        changed = np.asarray(learnt.shortfall - state.shortfall)
        np.testing.assert_allclose(changed, np.where(np.arange(3) == owner, MEANS[owner, action] - 0.25, 0), atol=1e-5)
        np.testing.assert_array_equal(learnt.rounds - state.rounds, np.arange(3) == owner)


def test_the_propensities_of_mucb_mark_its_choice() -> None:
    policy, allowed = POLICIES["mucb"], jnp.array([True, False, True, True, True])
    state, choice = policy.decide(jr.key(0), policy.init(), CONTEXT, allowed)
    assert int(choice.action) == int(np.argmax(np.where(allowed, choice.values, -np.inf))) == 0
    np.testing.assert_array_equal(policy.propensities(jr.key(0), state, CONTEXT, allowed), [1, 0, 0, 0, 0])


# Both


@pytest.mark.parametrize("name", POLICIES)
def test_the_best_action_is_found_when_the_world_is_discrete(name: str) -> None:
    for number, means in enumerate(MEANS):
        actions, _ = play(jr.key(number), POLICIES[name], jnp.asarray(means), EVERYTHING)
        assert np.mean(np.asarray(actions)[:, 300:] == means.argmax()) > 0.99


@pytest.mark.parametrize("name", POLICIES)
def test_masked_actions_are_never_played(name: str) -> None:
    allowed = jnp.array([True, False, False, True, True])
    actions, _ = play(jr.key(5), POLICIES[name], jnp.asarray(MEANS[1]), allowed)
    assert set(np.unique(actions).tolist()) <= {0, 3, 4}


def test_other_states_and_horizons_run_in_the_same_program() -> None:
    traces: list = []

    @eqx.filter_jit
    def decide(policy: AbstractPolicy) -> tuple[Any, Choice]:
        traces.append(None)
        return policy.decide(jr.key(0), policy.init(), CONTEXT, EVERYTHING)

    for horizon in (100, 2000.0):
        decide(mucb(jax.tree.map(lambda leaf, scale=horizon: leaf / scale, STATES), horizon))
    assert len(traces) == 1


# States from logged rewards


def discrete_logs(
    rng: np.random.Generator, instances: int = 120, length: int = 12, actions: int = ACTIONS
) -> tuple[Logs, np.ndarray]:
    """Logs of a world in which an instance is in one of three states; and who is in which."""
    state = rng.choice(3, instances, p=WEIGHTS)
    action = rng.integers(0, actions, (instances, length))
    reward = MEANS[state[:, None], action] + 0.5 * rng.normal(size=(instances, length))
    return Logs.from_arrays(np.zeros((instances, length, 1)), action, reward, actions=ACTIONS), state


def matched(found: Array, truth: np.ndarray) -> np.ndarray:
    """Give the order of the found states that brings them closest to the true ones."""
    distance = ((truth[:, None] - np.asarray(found)) ** 2).sum(axis=2)
    return linear_sum_assignment(distance)[1]


def random_mixture(rng: np.random.Generator, states: int) -> Mixture:
    weights = rng.dirichlet(np.ones(states))
    return Mixture(weights, rng.normal(size=(states, ACTIONS)), float(rng.uniform(0.1, 2)))


def test_the_objective_is_the_likelihood_of_the_rows_and_the_prior() -> None:
    rng = np.random.default_rng(2)
    logs, _ = discrete_logs(rng, instances=15)
    table, mixture = tabulate_rewards(logs), random_mixture(rng, 3)
    prior = mean_prior(table)
    reward = logs.reward.astype(float)
    rows = np.asarray(stats.norm.logpdf(reward, mixture.means[:, logs.action], np.sqrt(mixture.variance)))
    joint = np.log(mixture.weights)[:, None] + np.stack([rows[:, logs.instance == i].sum(axis=1) for i in range(15)], 1)
    expected = logsumexp(joint, axis=0).sum() + np.log(mixture.weights).sum()
    expected -= np.sum((mixture.means - prior.mean) ** 2) / (2 * prior.variance)
    assert evaluate(table, prior, mixture) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("length", [1, 3, 12])
def test_no_step_of_em_lowers_the_objective(length: int) -> None:
    rng = np.random.default_rng(3)
    for states in (1, 2, 5):
        table = tabulate_rewards(discrete_logs(rng, length=length)[0])
        objective = climb(table, mean_prior(table), random_mixture(rng, states)).objective
        assert np.all(np.diff(objective) >= -1e-9 * np.abs(objective[:-1]))
        assert objective[-1] > objective[0]


def test_the_end_of_em_can_not_be_improved_by_small_moves() -> None:
    rng = np.random.default_rng(4)
    table = tabulate_rewards(discrete_logs(rng)[0])
    prior = mean_prior(table)
    end = climb(table, prior, random_mixture(rng, 3)).mixture
    top = evaluate(table, prior, end)
    for _ in range(50):
        weights = end.weights * np.exp(0.02 * rng.normal(size=3))
        moved = Mixture(
            weights / weights.sum(),
            end.means + 0.02 * rng.normal(size=end.means.shape),
            end.variance * np.exp(0.02 * rng.normal()),
        )
        assert evaluate(table, prior, moved) < top


@pytest.mark.parametrize("seed", range(5))
def test_planted_states_are_recovered_from_rewards(seed: int) -> None:
    logs, state = discrete_logs(np.random.default_rng(seed), instances=200)
    found = fit_states_on_rewards(logs, 3, seed=seed)
    order = matched(found.mean_rewards, MEANS)
    # A mean has some 200 x 0.2 x 12 / 5 = 96 rewards of std 0.5 behind it, so a standard error of 0.05.
    np.testing.assert_allclose(found.mean_rewards[order], MEANS, atol=0.2)
    np.testing.assert_allclose(found.weights[order], (np.bincount(state) + 1) / 203, atol=0.03)
    np.testing.assert_allclose(found.reward_variance, 0.25, rtol=0.1)


def test_instances_may_have_taken_few_of_the_actions() -> None:
    """Each instance takes two actions only; pairs differ, so the states can be pieced together."""
    rng = np.random.default_rng(6)
    state = rng.choice(3, 600, p=WEIGHTS)
    pair = np.stack([rng.permutation(ACTIONS)[:2] for _ in range(600)])
    action = np.repeat(pair, 8, axis=1)
    reward = MEANS[state[:, None], action] + 0.3 * rng.normal(size=action.shape)
    logs = Logs.from_arrays(np.zeros((*action.shape, 1)), action, reward, actions=ACTIONS)
    found = fit_states_on_rewards(logs, 3, seed=0)
    np.testing.assert_allclose(found.mean_rewards[matched(found.mean_rewards, MEANS)], MEANS, atol=0.2)


def test_an_action_that_nobody_took_is_expected_to_pay_the_average() -> None:
    logs, _ = discrete_logs(np.random.default_rng(7), actions=ACTIONS - 1)
    found = fit_states_on_rewards(logs, 3, seed=0)
    np.testing.assert_allclose(found.mean_rewards[:, -1], np.full(3, logs.reward.mean()), atol=1e-4)


def test_one_state_is_the_mean_of_each_action() -> None:
    logs, _ = discrete_logs(np.random.default_rng(8))
    found = fit_states_on_rewards(logs, 1, seed=0)
    means = [logs.reward[logs.action == a].mean() for a in range(ACTIONS)]
    np.testing.assert_allclose(found.mean_rewards[0], means, atol=0.01)
    residual = logs.reward - np.asarray(means)[logs.action]
    np.testing.assert_allclose(found.reward_variance, np.mean(residual**2), rtol=1e-3)


def test_the_seed_determines_the_states_and_rewards_without_noise_are_no_trouble() -> None:
    state = np.arange(30) % 3
    action = np.tile(np.arange(ACTIONS), (30, 1))
    logs = Logs.from_arrays(np.zeros((30, ACTIONS, 1)), action, MEANS[state], actions=ACTIONS)
    one, other = (fit_states_on_rewards(logs, 3, seed=4) for _ in range(2))
    assert eqx.tree_equal(one, other)
    np.testing.assert_allclose(one.mean_rewards[matched(one.mean_rewards, MEANS)], MEANS, atol=1e-3)
    spare = fit_states_on_rewards(logs, 7, seed=4)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(spare))


@pytest.mark.parametrize("states", [0, 121])
def test_more_states_than_instances_and_none_are_refused(states: int) -> None:
    logs, _ = discrete_logs(np.random.default_rng(9))
    with pytest.raises(FitError, match="between 1 and the number of instances, which is 120"):
        fit_states_on_rewards(logs, states, seed=0)
    with pytest.raises(FitError, match="between 1 and the number of instances, which is 120"):
        fit_states_on_encodings(MODEL, logs, states, seed=0)


# States from encodings

CENTRES = np.array([[2.0, 0.0], [-2.0, 1.0], [0.0, -2.0]])
THETA = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [0.5, 0.5]])
MODEL = LatentModel(
    IdentityEncoder(),
    LinearReward.known(jnp.asarray(THETA, jnp.float32), jnp.array([0.0, 1.0, 0.0, -1.0])),
    NoiseLevels(jnp.eye(2), jnp.zeros(2), jnp.eye(2), jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.asarray(0.05)),
)


def context_logs(rng: np.random.Generator, centres: np.ndarray, length: int = 25) -> Logs:
    contexts = centres[:, None] + 0.5 * rng.normal(size=(len(centres), length, 2))
    return Logs.from_arrays(contexts, np.zeros(contexts.shape[:2]), np.zeros(contexts.shape[:2]), actions=4)


def test_planted_states_are_recovered_from_encodings() -> None:
    rng = np.random.default_rng(10)
    state = rng.choice(3, 150, p=WEIGHTS)
    found = fit_states_on_encodings(MODEL, context_logs(rng, CENTRES[state]), 3, seed=0)
    truth = CENTRES @ THETA.T + np.array([0.0, 1.0, 0.0, -1.0])
    order = matched(found.mean_rewards, truth)
    np.testing.assert_allclose(found.mean_rewards[order], truth, atol=0.1)
    np.testing.assert_allclose(found.weights[order], np.bincount(state) / 150, atol=0.01)
    spread = 0.01 * (THETA**2).sum(axis=1)  # of mean encodings within a state: 0.25 / 25
    np.testing.assert_allclose(found.reward_variance, np.array([0.1, 0.2, 0.3, 0.4]) + 0.05 + spread, atol=0.01)


def test_with_one_state_all_that_varies_between_instances_is_noise() -> None:
    rng = np.random.default_rng(11)
    logs = context_logs(rng, rng.normal(size=(100, 2)))
    found = fit_states_on_encodings(MODEL, logs, 1, seed=0)
    predicted = logs.context.reshape(100, 25, 2).mean(axis=1) @ THETA.T + np.array([0.0, 1.0, 0.0, -1.0])
    np.testing.assert_allclose(found.mean_rewards[0], predicted.mean(axis=0), atol=1e-4)
    expected = np.array([0.1, 0.2, 0.3, 0.4]) + 0.05 + predicted.var(axis=0)
    np.testing.assert_allclose(found.reward_variance, expected, rtol=1e-4)


def test_states_on_encodings_do_not_depend_on_their_scale() -> None:
    rng = np.random.default_rng(12)
    logs = context_logs(rng, CENTRES[rng.choice(3, 60)])
    scaled = Logs.from_arrays(1000 * logs.context + 7, logs.action, logs.reward, instance=logs.instance, actions=4)
    reward = MODEL.reward
    shrunk = eqx.tree_at(
        lambda model: (model.reward.theta, model.reward.intercept),
        MODEL,
        (linear(reward).theta / 1000, linear(reward).intercept - linear(reward).theta @ jnp.full(2, 7 / 1000)),
    )
    one, other = fit_states_on_encodings(MODEL, logs, 3, seed=1), fit_states_on_encodings(shrunk, scaled, 3, seed=1)
    np.testing.assert_allclose(one.mean_rewards, other.mean_rewards, atol=1e-3)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-3)
