"""The regression baseline: the recurrent network, its training, its scores, its policy and its file."""

from pathlib import Path
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from ilb.environments import SyntheticWorld, UniformLogging, record
from ilb.errors import DecisionError, FitError, ModelFileError
from ilb.live.bandit import LiveBandit
from ilb.logs import Logs, NumericColumn, Schema
from ilb.models.latent import LatentModel
from ilb.models.recurrent import GRULayer, RecurrentRegression, random_recurrent_regression
from ilb.networks import Affine
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.regression import (
    PrefixLoss,
    RegressionRecipe,
    RewardedHistories,
    fit_regression,
    fit_regression_many,
    predict_prefixes,
    score_regression,
)
from ilb.offline.scores import Truth
from ilb.offline.training import CosineAdam, Schedule
from ilb.online.recurrent import regression_policy
from ilb.online.roster import ROSTER, build_policies
from ilb.types import Step
from narrowed import known

TINY = RegressionRecipe(layers=1, hidden=3, training=Schedule(4, CosineAdam(0.05), score_every=2))


def random_network(
    seed: int = 0, inputs: int = 3, width: int = 4, layers: int = 2, actions: int = 5
) -> RecurrentRegression:
    """Draw a network whose heads say something, too."""
    network = random_recurrent_regression(jr.key(seed), inputs, width, layers, actions)
    rng = np.random.default_rng(seed)
    heads = (rng.normal(size=(width, actions)), rng.normal(size=actions))
    return type(network)(network.layers, Affine(*(jnp.asarray(part, jnp.float32) for part in heads)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def predict_by_hand(network: RecurrentRegression, contexts: np.ndarray) -> np.ndarray:
    """The equations of a GRU in NumPy, round by round."""
    matrices = [tuple(np.asarray(part, np.float64) for part in jax.tree.leaves(layer)) for layer in network.layers]
    states = [np.zeros(layer.width) for layer in network.layers]
    values = []
    for context in contexts:
        signal = np.asarray(context, np.float64)
        for number, (w, b, v, c) in enumerate(matrices):
            h = states[number]
            (wr, wu, wn), (vr, vu, vn) = np.split(signal @ w + b, 3), np.split(h @ v + c, 3)
            update = sigmoid(wu + vu)
            signal = (1 - update) * np.tanh(wn + sigmoid(wr + vr) * vn) + update * h
            states[number] = signal
        values.append(signal @ np.asarray(network.heads.matrix) + np.asarray(network.heads.shift))
    return np.array(values)


@pytest.fixture(scope="module")
def contexts() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)


def test_one_pass_and_single_steps_agree_with_the_equations_of_a_gru(contexts: np.ndarray) -> None:
    network = random_network()
    expected = predict_by_hand(network, contexts)
    np.testing.assert_allclose(jax.jit(type(network).run)(network, contexts), expected, atol=1e-5)
    observe, state = jax.jit(type(network).observe), network.init_state()
    for context, values in zip(contexts, expected, strict=True):
        state = observe(network, state, context)
        np.testing.assert_allclose(network.values(state), values, atol=1e-5)


def test_the_written_out_derivative_is_that_of_the_single_steps(contexts: np.ndarray) -> None:
    layer = random_network(width=4).layers[0]
    weights = np.random.default_rng(2).normal(size=(12, 4)).astype(np.float32)

    def at_once(layer: GRULayer, xs: Array) -> Array:
        return jnp.sum(weights * layer.run(xs))

    def step_by_step(layer: GRULayer, xs: Array) -> Array:
        def step(hidden: Array, x: Array) -> tuple[Array, Array]:
            hidden = GRULayer.__call__(layer, hidden, x)
            return hidden, hidden

        return jnp.sum(weights * jax.lax.scan(step, jnp.zeros(4), xs)[1])

    ours, theirs = (jax.jit(jax.grad(f, argnums=(0, 1)))(layer, contexts) for f in (at_once, step_by_step))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), ours, theirs)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(ours)) > 0.1


def test_the_loss_is_the_mean_squared_error_of_the_rewards_that_were_seen(contexts: np.ndarray) -> None:
    """Two instances of 5 and 4 rows, one missing action, and padding that is full of nonsense."""
    network = random_network()
    action = np.array([0, 1, 2, -1, 4, 3, 3, 2, 1, 0, 0, 0], np.int32)
    reward = np.where(action < 0, np.nan, np.arange(12) / 7).astype(np.float32)
    histories = RewardedHistories(contexts, action, reward, np.array([0, 5] + 6 * [0]), np.array([5, 4] + 6 * [0]))
    predicted = np.concatenate([predict_by_hand(network, contexts[:5]), predict_by_hand(network, contexts[5:9])])
    errors = [predicted[row, action[row]] - reward[row] for row in range(9) if action[row] >= 0]
    for batch in (2, 8):  # drawn without repetition and without the padding, or simply all
        loss = jax.jit(PrefixLoss(batch, rounds=6))(network, histories, jr.key(1))
        assert float(loss) == pytest.approx(np.mean(np.square(errors)), rel=1e-4)


def test_it_predicts_rewards_better_than_the_average_of_each_action(
    small_world: SyntheticWorld, small_network: RecurrentRegression
) -> None:
    test = record(jr.key(7), small_world, UniformLogging(5), 30, 60)
    scores = score_regression(small_network, test.logs, Truth(test.latents, test.mean_rewards))
    # The average of each action explains none of what differs between instances, which is nearly all there is.
    assert scores.reward_r2.value > 0.3
    assert known(scores.potential_r2).value > 0.4
    assert known(scores.best_action).value > 0.4


Rows: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


def table(context: np.ndarray, action: np.ndarray, reward: np.ndarray) -> Logs:
    """Twelve histories of six rounds; all tables of this shape share one compiled training."""
    return Logs.from_arrays(context, action, reward, actions=2)


@pytest.fixture(scope="module")
def rows() -> Rows:
    rng = np.random.default_rng(5)
    return rng.normal(size=(12, 6, 3)), rng.integers(0, 2, (12, 6)), 3 + rng.normal(size=(12, 6))


def test_runs_do_not_depend_on_the_runs_beside_them_though_sizes_differ(rows: Rows) -> None:
    whole = table(*rows)
    kept = np.arange(6) < np.tile([6, 1, 2, 3, 4, 5], 2)[:, None]
    context, action, reward = (part[kept] for part in rows)
    ragged = Logs.from_arrays(context, action, reward, instance=np.nonzero(kept)[0], actions=2)
    one_way = fit_regression_many([whole, ragged], recipe=TINY, seeds=[3, 4])
    other_way = fit_regression_many([ragged, whole], recipe=TINY, seeds=[4, 3])[::-1]
    for first, second in zip(one_way, other_way, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), first.bare(), second.bare())
    assert [known(network.provenance).rows for network in one_way] == [72, 42]
    assert abs(float(one_way[0].heads.shift[0] - one_way[1].heads.shift[0])) > 1e-3


def test_units_of_contexts_and_rewards_do_not_matter(rows: Rows) -> None:
    """Whitening and standardised rewards are folded into the network, which then speaks the units of the table."""
    context, action, reward = rows
    moved = 100 + context * [1.0, 50.0, 0.02]
    plain, scaled = table(*rows), table(moved, action, 7 + 30 * reward)
    first, second = fit_regression_many([plain, scaled], recipe=TINY, seeds=[0, 0])
    expected = 7 + 30 * predict_prefixes(first, plain)
    np.testing.assert_allclose(predict_prefixes(second, scaled), expected, atol=0.05)
    raw = jax.jit(jax.vmap(second.on_raw_contexts().run))(jnp.asarray(moved, jnp.float32))
    np.testing.assert_allclose(raw.reshape(72, 2), expected, atol=0.3)


def test_an_action_without_rewards_is_expected_to_bring_the_average_reward(rows: Rows) -> None:
    context, action, reward = rows
    logs = table(context, np.zeros_like(action), reward)
    predicted = predict_prefixes(fit_regression_many([logs, logs], recipe=TINY, seeds=[0, 1])[0], logs)
    np.testing.assert_allclose(predicted[:, 1], reward.mean(), rtol=1e-4)
    assert np.ptp(predicted[:, 0]) > 0.01


def test_logs_without_rewards_are_refused() -> None:
    logs = Logs.from_arrays(np.zeros((3, 2, 1)), np.zeros((3, 2)), np.full((3, 2), np.nan), actions=2)
    with pytest.raises(FitError, match="nothing to learn from"):
        fit_regression(logs)
    with pytest.raises(FitError, match="to score against"):
        score_regression(random_network(inputs=1, actions=2), logs)


def test_scores_are_those_of_the_last_prefix_or_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ilb.offline.regression.INSTANCES_AT_ONCE", 2)
    rng = np.random.default_rng(3)
    lengths, network = [4, 1, 3], random_network()
    context, action, reward = rng.normal(size=(8, 3)), rng.integers(0, 5, 8), rng.normal(size=8)
    action[2] = -1
    logs = Logs.from_arrays(context, action, reward, np.repeat([0, 1, 2], lengths), actions=5)
    means = rng.normal(size=(3, 5))
    pieces = np.split(logs.context, np.cumsum(lengths)[:-1])
    by_hand = np.concatenate([predict_by_hand(network, piece) for piece in pieces])
    np.testing.assert_allclose(predict_prefixes(network, logs), by_hand, atol=1e-5)
    seen, last = action >= 0, np.repeat(by_hand[[3, 4, 7]], lengths, axis=0)
    prefixes: list[tuple[Literal["full", "all"], np.ndarray]] = [("full", last), ("all", by_hand)]
    for prefix, used in prefixes:
        scores = score_regression(network, logs, Truth(np.zeros((3, 1)), means), prefix)
        error = (used[np.arange(8), action] - reward)[seen]
        assert scores.reward_r2.value == pytest.approx(1 - np.mean(error**2) / reward[seen].var(), rel=1e-4)
    right = by_hand.argmax(axis=1) == np.repeat(means, lengths, axis=0).argmax(axis=1)
    assert known(scores.best_action).value == pytest.approx(right.mean())


def test_a_round_costs_the_same_however_many_came_before() -> None:
    policy = regression_policy(random_network())
    decide = jax.jit(lambda policy, state, x: policy.decide(jr.key(0), state, x, jnp.ones(5, bool))[0])
    state, shapes = policy.init(), set()
    for t in range(2000):
        state = decide(policy, state, jnp.full(3, t % 3, jnp.float32))
        shapes.add((state.shape, state.dtype, state.weak_type))
    # One program served all rounds, with a state that is as large as it was at first.
    assert decide._cache_size() == 1  # type: ignore[attr-defined]
    assert shapes == {((2, 4), jnp.dtype("float32"), False)}
    assert np.all(np.isfinite(state))


def test_rewards_teach_it_nothing() -> None:
    policy = regression_policy(random_network())
    state, choice = policy.decide(jr.key(0), policy.init(), jnp.ones(3), jnp.ones(5, bool))
    after = policy.learn(state, Step(jnp.ones(3), choice.action, jnp.asarray(100.0)))
    np.testing.assert_array_equal(after, state)


def test_without_a_network_the_policy_is_left_out_or_refused(small_model: LatentModel, small_logs: Logs) -> None:
    bare = prepare_ingredients(small_model, small_logs, states=3)
    assert set(build_policies(bare)) == set(ROSTER) - {"Regression"}
    with pytest.raises(DecisionError, match="Make one with `fit_regression`"):
        build_policies(bare, ["Regression"])


def test_it_decides_live_like_any_model() -> None:
    columns = (NumericColumn("x", mean=1.0, std=2.0, fill=1.0, flagged=False),)
    schema = Schema("who", None, "did", "got", columns, ("a", "b", "c"))
    drawn = random_network(inputs=1, layers=1, actions=3)
    network = type(drawn)(drawn.layers, drawn.heads, schema)
    anna = LiveBandit.on(network).start("anna")
    decision = anna.decide({"x": 3.0})
    state = network.observe(network.init_state(), jnp.asarray([1.0]))
    np.testing.assert_allclose(list(decision.expected_reward.values()), network.values(state), rtol=1e-5)
    assert decision.action == "abc"[int(network.values(state).argmax())]


def test_a_saved_network_comes_back_as_it_was(
    small_network: RecurrentRegression, small_model: LatentModel, tmp_path: Path
) -> None:
    small_network.save(tmp_path / "network")
    loaded = type(small_network).load(tmp_path / "network")
    jax.tree.map(np.testing.assert_array_equal, loaded.bare(), small_network.bare())
    assert loaded.schema == small_network.schema
    assert loaded.provenance == small_network.provenance
    with pytest.raises(ModelFileError, match="its format is not 'ilb-latent-model'"):
        LatentModel.load(tmp_path / "network")
    with pytest.raises(ModelFileError, match="no ILB model of this kind"):
        small_model.save(tmp_path / "network")
