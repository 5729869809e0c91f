"""Linear bandits on the current context: LinUCB, linear Thompson sampling, and its warm start from logs."""

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

from ilb.errors import DecisionError, FitError
from ilb.live.bandit import LiveBandit
from ilb.logs import Logs
from ilb.models.baselines import ContextRegression
from ilb.models.latent import LatentModel
from ilb.offline.baselines import fit_context_regression
from ilb.online.linear import lin_ts, lin_ucb, warm_lin_ts
from ilb.online.policy import AbstractPolicy
from ilb.types import Choice, Step
from narrowed import known

ACTIONS, DIM = 4, 3
EVERYTHING = jnp.ones(ACTIONS, bool)


def steps_of(rng: np.random.Generator, rounds: int, dim: int = DIM) -> Step:
    return Step(
        jnp.asarray(rng.normal(size=(rounds, dim)), jnp.float32),
        jnp.asarray(rng.integers(0, ACTIONS, rounds)),
        jnp.asarray(rng.normal(size=rounds), jnp.float32),
    )


@jax.jit
def learned(policy: AbstractPolicy, steps: Step) -> Any:
    return jax.lax.scan(lambda state, step: (policy.learn(state, step), None), policy.init(), steps)[0]


@jax.jit
def draws(policy: AbstractPolicy, state: Any, context: Array, allowed: Array) -> tuple[Array, Array]:
    """Decide 4000 times from one state; give the propensities, too."""
    decide = jax.vmap(lambda key: policy.decide(key, state, context, allowed)[1].action)
    return decide(jr.split(jr.key(0), 4000)), policy.propensities(jr.key(1), state, context, allowed)


def closed_form(steps: Step, context: np.ndarray, ridge: float, noise_std: float) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of each action in float64, by one solve over all rows."""
    x, a, r = (np.asarray(part) for part in steps[:3])
    x, r, context = x.astype(float), r.astype(float), np.asarray(context, float)
    means, stds = [], []
    for action in range(ACTIONS):
        rows = x[a == action]
        A = ridge * np.eye(x.shape[1]) + rows.T @ rows
        means.append(context @ np.linalg.solve(A, rows.T @ r[a == action]))
        stds.append(noise_std * math.sqrt(context @ np.linalg.solve(A, context)))
    return np.array(means), np.array(stds)


# Posteriors


@pytest.mark.parametrize("dim", [3, 15], ids=["few columns", "many"])
def test_the_posterior_after_500_steps_is_the_closed_form(dim: int) -> None:
    rng = np.random.default_rng(0)
    steps = steps_of(rng, 500, dim)
    policy = lin_ts(ACTIONS, dim, noise_std=0.5, ridge=2.0)
    state = learned(policy, steps)
    for context in rng.normal(size=(5, dim)).astype(np.float32):
        mean, std = closed_form(steps, context, 2.0, 0.5)
        rewards = policy.rewards(state, jnp.asarray(context))
        np.testing.assert_allclose(rewards.mean(), mean, atol=2e-5)
        np.testing.assert_allclose(rewards.std(), std, rtol=1e-4)


@pytest.mark.parametrize("dim", [DIM, 17], ids=["written out", "by columns"])
def test_nothing_drifts_in_20000_rounds(dim: int) -> None:
    rng = np.random.default_rng(1)
    steps = steps_of(rng, 20_000, dim)
    steps = steps._replace(context=steps.context + 0.5, reward=steps.reward + 2)
    policy = lin_ts(ACTIONS, dim, noise_std=0.25)
    state = learned(policy, steps)
    for context in np.eye(dim, dtype=np.float32):
        mean, std = closed_form(steps, np.asarray(context), 1.0, 0.25)
        rewards = policy.rewards(state, jnp.asarray(context))
        np.testing.assert_allclose(rewards.mean(), mean, atol=1e-4)
        np.testing.assert_allclose(rewards.std(), std, rtol=1e-4)


def test_nothing_drifts_where_the_context_never_changes() -> None:
    """The appendix's example: all weight on one direction, and in float32 the other two are left to the ridge."""
    context = jnp.array([0.5, 0.7, 0.2])
    steps = steps_of(np.random.default_rng(1), 20_000)
    steps = Step(jnp.tile(context, (20_000, 1)), steps.action, steps.reward + 2)
    policy = lin_ts(ACTIONS, DIM, noise_std=0.25)
    rewards = policy.rewards(learned(policy, steps), context)
    mean, std = closed_form(steps, np.asarray(context), 1.0, 0.25)
    np.testing.assert_allclose(rewards.mean(), mean, atol=1e-3)
    np.testing.assert_allclose(rewards.std(), std, rtol=1e-3)


def test_contexts_of_very_different_sizes_leave_beliefs_finite_and_right_where_they_were_seen() -> None:
    """The matrix has a condition number of 1e13, its factor the root of that."""
    rng = np.random.default_rng(3)
    steps = steps_of(rng, 2000)
    steps = steps._replace(context=steps.context * jnp.array([[1e4, 1.0, 1e-2]]))
    policy = lin_ts(ACTIONS, DIM, noise_std=0.25)
    state = learned(policy, steps)
    for context in steps.context[:20]:
        mean, std = closed_form(steps, np.asarray(context), 1.0, 0.25)
        rewards = policy.rewards(state, context)
        np.testing.assert_allclose(rewards.mean(), mean, atol=1e-3)
        np.testing.assert_allclose(rewards.std(), std, rtol=1e-2)


def test_a_regression_that_lost_its_ridge_to_rounding_still_makes_a_policy() -> None:
    x = np.array([3e4, 1.7e4, 0.3e4])
    regression = ContextRegression(
        jnp.asarray(np.tile(np.eye(DIM) + 100 * np.outer(x, x), (ACTIONS, 1, 1)), jnp.float32),
        jnp.asarray(np.tile(100 * 2.0 * x, (ACTIONS, 1)), jnp.float32),
    )
    rewards = warm_lin_ts(regression, 0.5).rewards(warm_lin_ts(regression, 0.5).init(), jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(rewards.mean(), 2.0, rtol=1e-3)
    np.testing.assert_allclose(rewards.std(), 0.5 / 10, rtol=1e-2)


def test_rewards_may_arrive_in_any_order() -> None:
    rng = np.random.default_rng(2)
    steps = steps_of(rng, 300)
    order = rng.permutation(300)
    policy = lin_ts(ACTIONS, DIM, noise_std=0.5)
    states = [learned(policy, some) for some in (steps, jax.tree.map(lambda leaf: leaf[order], steps))]
    for one, other in zip(*states, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_draws_have_the_mean_and_spread_of_the_belief_and_actions_are_independent() -> None:
    policy = lin_ts(ACTIONS, DIM, noise_std=0.5, inflation=2.0)
    steps = steps_of(np.random.default_rng(3), 40)
    rewards = policy.rewards(learned(policy, steps), jnp.ones(DIM))
    mean, std = closed_form(steps, np.ones(DIM), 1.0, 2.0 * 0.5)
    drawn = np.asarray(jax.jit(jax.vmap(rewards.draw))(jr.split(jr.key(0), 20_000)))
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=4 * std.max() / math.sqrt(20_000))
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.03)
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(ACTIONS), atol=0.03)


# LinUCB


def plain_lin_ucb(
    contexts: np.ndarray, rewards: np.ndarray, noise_std: float, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Li et al.'s algorithm as a loop in float64, with explicit inverses."""
    alpha = noise_std * (1 + math.sqrt(math.log(2 / delta) / 2))
    A = [np.eye(contexts.shape[1]) for _ in range(ACTIONS)]
    b = [np.zeros(contexts.shape[1]) for _ in range(ACTIONS)]
    actions, bounds = [], []
    for x, r in zip(contexts, rewards, strict=True):
        inverses = [np.linalg.inv(one) for one in A]
        bound = [
            x @ inverse @ moment + alpha * math.sqrt(x @ inverse @ x)
            for inverse, moment in zip(inverses, b, strict=True)
        ]
        action = int(np.argmax(bound))
        A[action] += np.outer(x, x)
        b[action] += r[action] * x
        actions.append(action)
        bounds.append(bound)
    return np.array(actions), np.array(bounds)


@pytest.mark.parametrize("delta", [0.1, 0.5])
def test_lin_ucb_decides_like_a_plain_loop(delta: float) -> None:
    rng = np.random.default_rng(4)
    contexts = rng.normal(size=(400, DIM)).astype(np.float32)
    rewards = (contexts @ rng.normal(size=(DIM, ACTIONS)) + 0.5 * rng.normal(size=(400, ACTIONS))).astype(np.float32)
    policy = lin_ucb(ACTIONS, DIM, noise_std=0.5, delta=delta)

    @jax.jit
    def play(contexts: Array, rewards: Array) -> tuple[Array, Array]:
        def one(state: Any, row: tuple[Array, Array]) -> tuple[Any, tuple[Array, Array]]:
            context, reward = row
            state, choice = policy.decide(jr.key(0), state, context, EVERYTHING)
            return policy.learn(state, Step(context, choice.action, reward[choice.action])), choice

        return jax.lax.scan(one, policy.init(), (contexts, rewards))[1]

    found = play(jnp.asarray(contexts), jnp.asarray(rewards))
    actions, bounds = plain_lin_ucb(contexts.astype(float), rewards.astype(float), 0.5, delta)
    np.testing.assert_array_equal(found.action, actions)
    np.testing.assert_allclose(found.values, bounds, atol=1e-4)
    assert len(set(actions.tolist())) == ACTIONS


def test_the_width_of_lin_ucb_counts_in_units_of_the_noise() -> None:
    context = jnp.array([3.0, 4.0, 0.0])
    for noise_std in (0.5, 2.0):
        policy = lin_ucb(ACTIONS, DIM, noise_std, delta=0.2, ridge=4.0)
        _, choice = policy.decide(jr.key(0), policy.init(), context, EVERYTHING)
        expected = noise_std * (1 + math.sqrt(math.log(10) / 2)) * 5 / 2
        np.testing.assert_allclose(choice.values, np.full(ACTIONS, expected), rtol=1e-5)


# Warm start


@pytest.fixture(scope="module")
def logs() -> Logs:
    rng = np.random.default_rng(9)
    theta = rng.normal(size=(ACTIONS, DIM))
    contexts, actions = rng.normal(size=(20, 25, DIM)), rng.integers(0, ACTIONS, (20, 25))
    rewards = np.sum(contexts * theta[actions], axis=2) + 0.5 * rng.normal(size=(20, 25))
    return Logs.from_arrays(contexts, actions, rewards, actions=ACTIONS)


def test_a_warm_start_equals_having_seen_the_logged_rows(logs: Logs) -> None:
    warm = warm_lin_ts(fit_context_regression(logs, ridge=3.0), noise_std=0.5)
    cold = lin_ts(ACTIONS, DIM, noise_std=0.5, ridge=3.0)
    rows = Step(jnp.asarray(logs.context), jnp.asarray(logs.action), jnp.asarray(logs.reward))
    more = steps_of(np.random.default_rng(5), 30)
    both = jax.tree.map(lambda *pair: jnp.concatenate(pair), rows, more)
    for context in jnp.eye(DIM):
        one = warm.rewards(learned(warm, more), context)
        other = cold.rewards(learned(cold, both), context)
        np.testing.assert_allclose(one.mean(), other.mean(), atol=1e-4)
        np.testing.assert_allclose(one.std(), other.std(), rtol=1e-3)


def test_rows_without_action_or_reward_are_left_out_of_the_regression(logs: Logs) -> None:
    kept = np.random.default_rng(6).random(logs.rows) < 0.6
    no_action = ~kept & (np.arange(logs.rows) % 2 == 0)
    with_gaps = Logs.from_arrays(
        logs.context,
        np.where(no_action, -1, logs.action),
        np.where(~kept & ~no_action, np.nan, logs.reward),
        instance=logs.instance,
        actions=ACTIONS,
    )
    rows = Logs.from_arrays(
        logs.context[kept], logs.action[kept], logs.reward[kept], instance=logs.instance[kept], actions=ACTIONS
    )
    one, other = fit_context_regression(with_gaps), fit_context_regression(rows)
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-6)
    np.testing.assert_allclose(one.moment, other.moment, rtol=1e-5)


def test_an_action_without_rows_keeps_the_ridge_alone() -> None:
    logs = Logs.from_arrays(np.ones((2, 3, DIM)), np.zeros((2, 3)), np.ones((2, 3)), actions=2)
    regression = fit_context_regression(logs, ridge=2.5)
    np.testing.assert_array_equal(regression.precision[1], 2.5 * np.eye(DIM))
    np.testing.assert_array_equal(regression.moment[1], np.zeros(DIM))


def test_logs_without_rewards_and_ridges_that_are_not_positive_are_refused() -> None:
    logs = Logs.from_arrays(np.ones((1, 2, 1)), [[0, 1]], [[np.nan, np.nan]])
    with pytest.raises(FitError, match="no row has both an action"):
        fit_context_regression(logs)
    with pytest.raises(FitError, match="ridge must be positive"):
        fit_context_regression(logs, ridge=0.0)


# Decisions

POLICIES = {"lin_ucb": lin_ucb(ACTIONS, DIM, 0.5), "lin_ts": lin_ts(ACTIONS, DIM, 0.5)}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("mask", [[True] * 4, [True, False, True, False]], ids=["all", "masked"])
def test_actions_are_drawn_as_often_as_the_propensities_say(name: str, mask: list[bool]) -> None:
    policy, allowed = POLICIES[name], jnp.asarray(mask)
    state, context = learned(policy, steps_of(np.random.default_rng(7), 30)), jnp.array([0.5, -1.0, 1.0])
    drawn, propensities = (np.asarray(part) for part in draws(policy, state, context, allowed))
    shares = np.bincount(drawn, minlength=ACTIONS) / 4000
    assert propensities.sum() == pytest.approx(1, abs=1e-5)
    # 4000 draws against 500 points: a difference has a standard error of at most 0.024.
    np.testing.assert_allclose(shares, propensities, atol=0.06)
    assert np.all(shares[~np.asarray(allowed)] == 0)


@pytest.mark.parametrize("make", [lin_ucb, lin_ts])
def test_the_best_action_of_each_context_is_found_when_rewards_are_linear(make: Callable[..., AbstractPolicy]) -> None:
    """The world these policies are made for: rewards depend on the current context."""
    theta = jnp.asarray(np.random.default_rng(8).normal(size=(ACTIONS, DIM)), jnp.float32)
    policy = make(ACTIONS, DIM, 0.5)

    def play(key: PRNGKeyArray) -> Array:
        def one(state: Any, key: PRNGKeyArray) -> tuple[Any, Array]:
            key_context, key_decide, key_reward = jr.split(key, 3)
            context = jr.normal(key_context, (DIM,))
            state, choice = policy.decide(key_decide, state, context, EVERYTHING)
            reward = theta[choice.action] @ context + 0.5 * jr.normal(key_reward)
            regret = (theta @ context).max() - theta[choice.action] @ context
            return policy.learn(state, Step(context, choice.action, reward)), regret

        return jax.lax.scan(one, policy.init(), jr.split(key, 300))[1]

    regret = np.asarray(jax.jit(jax.vmap(play))(jr.split(jr.key(0), 30)))
    assert regret[:, 250:].mean() < 0.05 * regret[:, :5].mean()


def test_an_instance_that_was_saved_as_sums_is_refused(small_model: LatentModel) -> None:
    """Until states were factors they were sums, of the same policy and in the same order of magnitude."""
    bandit = LiveBandit(lin_ts(5, DIM, 0.5), known(small_model.schema))
    sums = np.tile(np.eye(DIM), (5, 1, 1)), np.zeros((5, DIM))
    layout = json.dumps([known(small_model.schema).to_json(), [part.shape for part in sums]], sort_keys=True)
    policy = np.concatenate([*(part.ravel() for part in sums), [0.5, 1.0]]).astype(np.float32)
    saved = json.loads(bandit.start("anna").to_json())
    saved["bandit"] = hashlib.sha256(layout.encode() + policy.tobytes()).hexdigest()[:16]
    saved["state"] = np.zeros(5 * DIM * (DIM + 1)).tolist()
    with pytest.raises(DecisionError, match="another meaning"):
        bandit.restore(json.dumps(saved))


def test_other_numbers_run_in_the_same_program(logs: Logs) -> None:
    traces: list = []

    @eqx.filter_jit
    def decide(policy: AbstractPolicy) -> tuple[Any, Choice]:
        traces.append(None)
        return policy.decide(jr.key(0), policy.init(), jnp.ones(DIM), EVERYTHING)

    for ridge, noise_std in ((1.0, 0.5), (2.0, 1), (0.5, np.float64(2.0))):
        decide(lin_ts(ACTIONS, DIM, noise_std, ridge, inflation=noise_std))
        decide(warm_lin_ts(fit_context_regression(logs, ridge), noise_std))
    assert len(traces) == 1  # a cold start is a warm start from no logs
