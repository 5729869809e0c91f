"""A network for the rewards of all actions (app:nonlinear_reward), beside least squares, NumPy and scikit-learn."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from ilb.environments import SyntheticWorld, UniformLogging, draw_leaky_reward, draw_world, record
from ilb.errors import DecisionError, IlbWarning, RareActionWarning
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.networks import Affine, IdentityEncoder, LeakyMLP, random_leaky_mlp
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.fit import complete_model, fit
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.mlp import CellGrid, MLPRewardRecipe, RewardLoss, _units
from ilb.offline.rewards.recipe import Cells, RewardFit, RewardRecipe, RewardTask, reward_cells, warn_of_unseen_actions
from ilb.offline.training import Adam, LossCurve, Schedule
from ilb.online.roster import policy_on
from ilb.types import Report, as_real, silent

INSTANCES, LENGTH, DIM, ACTIONS = 400, 24, 2, 3
# One recipe and one size for most tests: they share a compilation.
QUICK = MLPRewardRecipe(hidden=(16, 16), training=Schedule(1000, Adam(5e-3, 1e-4), score_every=100, patience=5))
THETA = np.array([[1.0, 0.5, 0.2], [-0.7, 0.8, 0.0], [0.3, -1.0, -0.4]])


def linear(z: np.ndarray) -> np.ndarray:
    return z @ THETA[:, :2].T + THETA[:, 2]


def bent(z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, z, 0.2 * z) @ THETA[:, :2].T


def task_of(
    rng: np.random.Generator,
    truth: Callable[[np.ndarray], np.ndarray],
    reward_std: float = 0.5,
    effect_std: float = 0.0,
) -> RewardTask:
    """Exact latent states as mean encodings, and rewards of actions drawn uniformly among the first three."""
    z = rng.normal(size=(INSTANCES, DIM))
    action = rng.integers(0, ACTIONS, (INSTANCES, LENGTH))
    means = truth(z) + effect_std * rng.normal(size=(INSTANCES, ACTIONS))
    reward = np.take_along_axis(means, action, axis=1) + reward_std * rng.normal(size=action.shape)
    cells = reward_cells(Logs.from_arrays(np.zeros((*action.shape, 1)), action, reward, actions=ACTIONS))
    return RewardTask(z, cells, range(ACTIONS), 1e-9 * np.eye(DIM), np.full(INSTANCES, LENGTH))


def train(task: RewardTask, recipe: RewardRecipe = QUICK, seed: int = 0, report: Report = silent) -> RewardFit:
    return recipe.train(jr.split(jr.key(seed), 1), [task], report)[0]


def predict(fitted: RewardFit, z: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(fitted.reward)(jnp.asarray(z, jnp.float32)), np.float64)


def unexplained(fitted: RewardFit, truth: Callable[[np.ndarray], np.ndarray], z: np.ndarray) -> float:
    return np.sum((predict(fitted, z) - truth(z)) ** 2) / np.sum((truth(z) - truth(z).mean(axis=0)) ** 2)


NEW = np.random.default_rng(99).normal(size=(1000, DIM))


# What is learned


def test_it_recovers_linear_rewards_about_as_well_as_least_squares() -> None:
    task = task_of(np.random.default_rng(0), linear, effect_std=0.4)
    network, squares = train(task), train(task, LinearRewardRecipe())
    assert unexplained(squares, linear, NEW) < 0.002
    assert unexplained(network, linear, NEW) < 0.02
    np.testing.assert_allclose(network.reward_variance, squares.reward_variance, rtol=1e-6)
    # 0.16 by construction: the error of a mean of 120 squares is 13 %, and the network's own error comes on top.
    assert squares.leftover_variance == pytest.approx(0.16, rel=0.15)
    assert network.leftover_variance == pytest.approx(0.16, rel=0.4)


def test_it_learns_bent_rewards_that_least_squares_can_not() -> None:
    task = task_of(np.random.default_rng(1), bent)
    assert unexplained(train(task, LinearRewardRecipe()), bent, NEW) > 0.1
    assert unexplained(train(task), bent, NEW) < 0.03


def test_it_is_as_good_as_the_network_of_scikit_learn() -> None:
    task = task_of(np.random.default_rng(2), bent, reward_std=0.2)
    means = np.full((INSTANCES, ACTIONS), np.nan)
    means[task.cells.instance, task.cells.action] = task.cells.mean
    full = np.all(np.isfinite(means), axis=1)
    reference = MLPRegressor(
        hidden_layer_sizes=(16, 16), alpha=1e-4, learning_rate_init=5e-3, max_iter=60, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reference.fit(task.mean_encodings[full], means[full])
    theirs = np.mean((reference.predict(NEW) - bent(NEW)) ** 2)
    assert np.mean((predict(train(task), NEW) - bent(NEW)) ** 2) < 1.5 * theirs


def test_units_and_origins_of_encodings_and_rewards_do_not_matter() -> None:
    task = task_of(np.random.default_rng(3), bent)
    scale, shift = np.array([100.0, 0.01]), np.array([-50.0, 3.0])
    cells = task.cells._replace(mean=20 * task.cells.mean + 1000, deviation=400 * task.cells.deviation)
    moved = train(task._replace(mean_encodings=task.mean_encodings * scale + shift, cells=cells))
    expected = 20 * predict(train(task), NEW) + 1000
    # Rounded otherwise, the same training; steps amplify the rounding.
    assert np.std(predict(moved, NEW * scale + shift) - expected) < 0.05 * np.std(expected)


def test_networks_trained_together_are_those_trained_alone() -> None:
    tasks = [task_of(np.random.default_rng(seed), bent) for seed in (4, 5)]
    keys = jr.split(jr.key(7), 2)
    together = QUICK.train(keys, tasks)
    for key, task, one in zip(keys, tasks, together, strict=True):
        alone = QUICK.train(key[None], [task])[0]
        difference = np.std(predict(one, NEW) - predict(alone, NEW))
        assert difference < 0.05 * np.std(predict(alone, NEW))
    assert np.std(predict(together[0], NEW) - predict(together[1], NEW)) > 0.01


# The loss and the network


def test_the_loss_is_the_mean_squared_error_over_rows_up_to_the_scatter_within_cells() -> None:
    rng = np.random.default_rng(6)
    network = random_leaky_mlp(jr.key(0), DIM, (4,), ACTIONS, 0.1)
    network = LeakyMLP(
        (*network.layers[:-1], Affine(jnp.asarray(rng.normal(size=(4, 3)), jnp.float32), jnp.ones(3))), as_real(0.1)
    )
    action, reward = rng.integers(0, ACTIONS, (8, 10)), rng.normal(size=(8, 10))
    cells = reward_cells(Logs.from_arrays(np.zeros((8, 10, 1)), action, reward, actions=ACTIONS))
    z = rng.normal(size=(8, DIM))
    mean, rows = np.zeros((2, 8, ACTIONS))
    mean[cells.instance, cells.action], rows[cells.instance, cells.action] = cells.mean, cells.rows
    grid = CellGrid(
        jnp.asarray(z, jnp.float32), jnp.asarray(mean, jnp.float32), jnp.asarray(rows, jnp.float32), jnp.asarray(8)
    )
    loss = RewardLoss(slope=0.1, batch=8)(network.layers, grid, jr.key(0))
    hidden = z @ np.asarray(network.layers[0].matrix) + np.asarray(network.layers[0].shift)
    values = np.where(hidden > 0, hidden, 0.1 * hidden) @ np.asarray(network.layers[1].matrix) + 1
    errors = np.take_along_axis(values, action, axis=1) - reward
    assert float(loss) == pytest.approx(np.mean(errors**2) - cells.deviation.sum() / 80, rel=1e-4)


def test_a_batch_without_any_reward_costs_nothing() -> None:
    layers = random_leaky_mlp(jr.key(0), DIM, (4,), ACTIONS, 0.1).layers
    grid = CellGrid(np.ones((5, DIM)), np.ones((5, ACTIONS)), np.zeros((5, ACTIONS)), np.asarray(5))
    assert RewardLoss(slope=0.1, batch=8)(layers, grid, jr.key(1)) == 0


def test_large_tables_are_taken_in_batches_of_the_same_expected_loss() -> None:
    rng = np.random.default_rng(7)
    layers = random_leaky_mlp(jr.key(1), DIM, (4,), ACTIONS, 0.01).layers
    z, mean = rng.normal(size=(64, DIM)), rng.normal(size=(64, ACTIONS))
    padding = np.full((64, ACTIONS), 1e3)  # must never be drawn
    tables = (np.concatenate([z, z]), np.concatenate([mean, padding]), np.ones((128, ACTIONS)))
    encoding, rewards, rows = (jnp.asarray(table, jnp.float32) for table in tables)
    grid = CellGrid(encoding, rewards, rows, jnp.asarray(64))
    losses = jax.jit(jax.vmap(lambda key: RewardLoss(0.01, 32)(layers, grid, key)))(jr.split(jr.key(2), 500))
    assert float(losses.mean()) == pytest.approx(np.mean(mean**2), rel=0.03)  # the outputs start at zero


def test_maps_around_a_network_can_be_folded_into_it() -> None:
    rng = np.random.default_rng(8)
    before, last, after = (
        Affine(jnp.asarray(rng.normal(size=(a, b)), jnp.float32), jnp.asarray(rng.normal(size=b), jnp.float32))
        for a, b in ((2, 2), (5, 3), (3, 3))
    )
    network = LeakyMLP((*random_leaky_mlp(jr.key(3), 2, (4, 5), 3, 0.2).layers[:-1], last), as_real(0.2))
    x = jnp.asarray([0.3, -2.0])
    np.testing.assert_allclose(network.between(before, after)(x), after(network(before(x))), rtol=1e-4, atol=1e-5)


def test_weight_decay_is_an_l2_term_of_the_gradient() -> None:
    """Adam's first step is the sign of its gradient: with decay, that of the gradient plus decay times the weight."""
    optimiser = Adam(learning_rate=0.1, weight_decay=0.5).build(10)
    params, gradient = jnp.array([4.0, -4.0, 0.5]), jnp.array([-1.0, 1.0, -1.0])
    updates, _ = optimiser.update(gradient, optimiser.init(params), params)
    np.testing.assert_allclose(updates, -0.1 * np.sign([-1 + 2, 1 - 2, -1 + 0.25]), rtol=1e-4)


# What can go wrong


def test_an_action_without_rewards_is_named_and_gets_the_mean_reward() -> None:
    task = task_of(np.random.default_rng(9), linear)
    kept = task.cells.action != 1
    cells = Cells(*(part[kept] for part in task.cells))
    with pytest.warns(RareActionWarning, match="1 of 3 actions have no reward at all: 1"):
        fitted = train(task._replace(cells=cells))
    np.testing.assert_allclose(predict(fitted, NEW)[:, 1], np.average(cells.mean, weights=cells.rows), atol=1e-4)


def test_an_interrupted_training_gives_a_network_and_says_so() -> None:
    def interrupt(step: int, steps: int, loss: float) -> None:
        raise KeyboardInterrupt

    with pytest.warns(IlbWarning, match="training of rewards was interrupted"):
        fitted = train(task_of(np.random.default_rng(10), linear), report=interrupt)
    assert "interrupted" in fitted.notes[0]
    assert fitted.interrupted
    assert np.all(np.isfinite(predict(fitted, NEW)))


# In a model


@pytest.fixture(scope="module")
def world() -> SyntheticWorld:
    return draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS, draw_reward=draw_leaky_reward)


@pytest.fixture(scope="module")
def logs(world: SyntheticWorld) -> Logs:
    return record(jr.key(1), world, UniformLogging(ACTIONS), INSTANCES, 10).logs


@pytest.fixture(scope="module")
def model(world: SyntheticWorld, logs: Logs) -> LatentModel:
    return complete_model(world.oracle().encoder, logs, reward=QUICK, seed=1)


def test_a_saved_model_predicts_the_same_and_runs_in_the_same_programs(model: LatentModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = LatentModel.load(tmp_path / "model")
    assert isinstance(loaded.reward, LeakyMLP)
    kinds = [[jax.typeof(leaf) for leaf in jax.tree.leaves(one.reward)] for one in (model, loaded)]
    assert kinds[0] == kinds[1]
    assert jax.tree.structure(model.bare()) == jax.tree.structure(loaded.bare())  # type: ignore[operator]
    for one, other in zip(jax.tree.leaves(model), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(one, other)


def test_cpg_acts_on_the_network_at_the_mean_encoding(model: LatentModel) -> None:
    policy = policy_on(model, "CPG")
    contexts = jnp.asarray(np.random.default_rng(11).normal(size=(4, DIM)), jnp.float32)
    state = policy.init()
    for context in contexts:
        state, choice = policy.decide(jr.key(0), state, context, jnp.ones(ACTIONS, bool))
    mean = np.mean([model.encoder(context) for context in contexts], axis=0)
    assert int(choice.action) == int(np.argmax(model.reward(jnp.asarray(mean))))


@pytest.mark.parametrize("name", ["FPG", "FPG (released)", "FPG-TS", "Calibrated", "Calibrated-TS"])
def test_policies_that_need_linear_rewards_say_so(model: LatentModel, name: str) -> None:
    with pytest.raises(DecisionError, match=r"needs a linear reward model; this one is a LeakyMLP\. CPG takes any"):
        policy_on(model, name)


@dataclass(frozen=True)
class NoEncoding(EncoderRecipe):
    """An encoder recipe that learns nothing, and costs nothing."""

    def train(
        self, keys: PRNGKeyArray, logs: Sequence[Logs], latent_dim: int, report: Report = silent
    ) -> list[TrainedEncoder]:
        curve = LossCurve(*np.zeros((3, 1)))
        return [TrainedEncoder(IdentityEncoder(), curve, 0, interrupted=False) for _ in logs]


@pytest.mark.parametrize("reward", [None, QUICK], ids=["default", "network"])
def test_a_fitted_model_says_how_its_rewards_were_learned(logs: Logs, reward: RewardRecipe | None) -> None:
    some = logs.select(np.arange(40)) if reward is None else logs  # few rows for the comparison of models
    provenance = fit(some, latent_dim=DIM, recipe=NoEncoding(), reward=reward).provenance
    assert provenance is not None
    said = provenance.recipe["reward"]
    assert said["name"] == ("PersonRewardRecipe" if reward is None else "MLPRewardRecipe")
    if reward is not None:
        assert said["training"]["optimiser"] == {"name": "Adam", "learning_rate": 5e-3, "weight_decay": 1e-4}
        assert any("reward network is that of step" in note for note in provenance.notes)


def test_the_recipe_for_few_instances_differs_in_its_decay_alone() -> None:
    printed, decayed = MLPRewardRecipe(), MLPRewardRecipe.decayed()
    assert decayed.training.optimiser == Adam(1e-3, 1e-2)
    assert printed.training.optimiser == Adam(1e-3, 1e-4)
    assert (printed.hidden, printed.slope) == (decayed.hidden, decayed.slope)


def test_the_recipe_is_the_printed_one_with_the_widths_of_the_released_code() -> None:
    recipe = MLPRewardRecipe()
    assert (recipe.hidden, recipe.slope, recipe.batch, recipe.validation_share) == ((10, 20, 40), 0.01, 512, 0.1)
    for training in (recipe.training, MLPRewardRecipe.decayed().training):
        assert (training.steps, training.score_every, training.patience) == (20_000, 100, 10)


@pytest.mark.parametrize(("instances", "held"), [(14, 0), (16, 2), (24, 2), (26, 3), (100, 10)])
def test_a_tenth_of_the_instances_is_held_out_and_never_a_single_one(instances: int, held: Any) -> None:
    assert MLPRewardRecipe()._hold_out(jr.key(0), instances).sum() == held


def test_rewards_are_standardised_by_their_rows() -> None:
    rows, mean = np.array([1, 3]), np.array([2.0, 6.0])
    cells = Cells(np.array([0, 1]), np.array([0, 1]), rows, mean, np.zeros(2))
    task = RewardTask(np.array([[0.0], [2.0]]), cells, range(2), np.eye(1), np.array([1, 3]))
    units = _units(task)
    assert (units.centre, units.spread) == pytest.approx((5.0, np.sqrt(3.0)))
    constant = _units(task._replace(cells=cells._replace(mean=np.full(2, 5.0))))
    assert (constant.centre, constant.spread) == pytest.approx((5.0, 5e-6))
    nothing = _units(task._replace(cells=cells._replace(mean=np.zeros(2))))
    assert (nothing.centre, nothing.spread) == pytest.approx((0.0, 1e-12))


@pytest.mark.parametrize(("unseen", "dots"), [(5, False), (6, True)])
def test_no_more_than_five_actions_without_rewards_are_listed(unseen: Any, dots: Any) -> None:
    cells = Cells(np.zeros(1, int), np.zeros(1, int), np.ones(1, int), np.ones(1), np.zeros(1))
    task = RewardTask(np.zeros((1, 1)), cells, [f"drug {a}" for a in range(1 + unseen)], np.eye(1), np.ones(1, int))
    with pytest.warns(RareActionWarning) as caught:
        warn_of_unseen_actions(task)
    text = str(caught[0].message)
    assert text.count("'drug ") == 5
    assert ("'drug 5', ...." in text) == dots
