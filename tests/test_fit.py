"""From logs to a whole model: what `fit` writes down, and how many models are learned at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

from ilb import LatentModel, choose_latent_dim, fit, fit_many
from ilb.environments import UniformLogging, draw_world, record
from ilb.logs import Logs
from ilb.models.latent import NoiseLevels
from ilb.networks import Affine
from ilb.offline.dimension import DimensionChoice
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.encodings import encode_contexts, measure_scatter
from ilb.offline.fit import refit_rewards
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.training import CosineAdam, LossCurve, Minimised, Schedule, fit_keys
from ilb.types import Report, silent
from narrowed import known, linear


@dataclass(frozen=True)
class FirstColumns(EncoderRecipe):
    """A recipe that learns nothing: the first columns of a context are its encoding. It remembers what it was asked."""

    asked: list = field(default_factory=list, compare=False)

    def train(
        self, keys: PRNGKeyArray, logs: Sequence[Logs], latent_dim: int, report: Report = silent
    ) -> list[TrainedEncoder]:
        self.asked.append((latent_dim, list(logs)))
        encoder = Affine(jnp.eye(logs[0].width)[:, :latent_dim], jnp.zeros(latent_dim))
        return [TrainedEncoder(encoder, LossCurve(*np.zeros((3, 1))), 0, interrupted=False) for _ in logs]


# Noise levels


INSTANCES, LENGTH, ACTIONS = 1500, 12, 3
W = np.array([[2.0, 0.6], [0.6, 0.5]])  # of one encoding around z
S = np.array([[0.7, -0.3], [-0.3, 1.5]])  # of z over instances
MEAN = np.array([0.4, -1.1])
THETA = np.array([[1.0, 0.5], [-0.7, 0.8], [0.3, -1.0]])
REWARD_STD = np.array([0.4, 0.7, 1.1])
EFFECT_STD = 0.6  # of what z leaves unexplained, by instance and action


@pytest.fixture(scope="module")
def noise() -> NoiseLevels:
    """The noise levels of logs that follow the model to the letter, encoder known."""
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal(MEAN, S, INSTANCES)
    context = z[:, None, :] + rng.multivariate_normal(np.zeros(2), W, (INSTANCES, LENGTH))
    action = rng.integers(ACTIONS, size=(INSTANCES, LENGTH))
    expected = z @ THETA.T + EFFECT_STD * rng.normal(size=(INSTANCES, ACTIONS))
    reward = np.take_along_axis(expected, action, axis=1) + REWARD_STD[action] * rng.normal(size=action.shape)
    return fit(
        Logs.from_arrays(context, action, reward), latent_dim=2, recipe=FirstColumns(), reward=LinearRewardRecipe()
    ).noise


def assert_covariance(found: Array, truth: np.ndarray, spread: np.ndarray, freedom: float) -> None:
    """Within four standard errors: an entry of a Gaussian sample covariance varies by (C_ii C_jj + C_ij²) / freedom."""
    errors = np.sqrt((np.outer(np.diag(spread), np.diag(spread)) + spread**2) / freedom)
    assert np.all(np.abs(np.asarray(found) - truth) < 4 * errors)
    assert np.all(4 * errors < 0.25 * np.sqrt(np.outer(np.diag(truth), np.diag(truth))))  # bounds that say something


def test_a_fit_knows_how_encodings_scatter_within_instances(noise: NoiseLevels) -> None:
    assert_covariance(noise.encoding_covariance, W, W, INSTANCES * (LENGTH - 1))


def test_a_fit_knows_the_population_of_latent_states(noise: NoiseLevels) -> None:
    of_means = S + W / LENGTH  # the covariance of mean encodings, of which W / T is taken off
    assert_covariance(noise.population_covariance, S, of_means, INSTANCES - 1)
    errors = np.sqrt(np.diag(of_means) / INSTANCES)
    assert np.all(np.abs(np.asarray(noise.population_mean) - MEAN) < 4 * errors)


def test_a_fit_knows_the_noise_of_each_actions_rewards(noise: NoiseLevels) -> None:
    # Of the 6000 rewards of an action, one in each cell (instance, action) is spent on the mean of its cell.
    cells = 1 - (1 - 1 / ACTIONS) ** LENGTH
    freedom = INSTANCES * (LENGTH / ACTIONS - cells)
    errors = REWARD_STD**2 * np.sqrt(2 / freedom)
    assert np.all(np.abs(np.asarray(noise.reward_variance) - REWARD_STD**2) < 4 * errors)


@pytest.fixture(scope="module")
def memorised() -> tuple[LatentModel, Logs, Logs]:
    """A model of so few rows that the encoder knows them by heart, its logs, and those of people nobody has seen."""
    world = draw_world(jr.key(0), latent_dim=5, actions=2)
    logs, fresh = (record(jr.key(seed), world, UniformLogging(2), size, 5).logs for seed, size in ((1, 100), (2, 3000)))
    return fit(logs, latent_dim=5, recipe=TiedRecipe(), reward=LinearRewardRecipe()), logs, fresh


def test_the_noise_of_encodings_is_that_of_people_the_encoder_has_not_seen(
    memorised: tuple[LatentModel, Logs, Logs],
) -> None:
    model, logs, fresh = memorised
    seen, unseen = (measure_scatter(encode_contexts(model.encoder, t.context), t.starts) for t in (logs, fresh))
    claimed, truth = np.trace(model.noise.encoding_covariance), np.trace(unseen.encoding_covariance)
    assert np.trace(seen.encoding_covariance) < 0.75 * truth  # else there is nothing to correct
    assert claimed == pytest.approx(truth, rel=0.15)
    population = np.trace(unseen.population_covariance)
    assert np.trace(seen.population_covariance) > 1.3 * population
    assert np.trace(model.noise.population_covariance) == pytest.approx(population, rel=0.25)


def test_rewards_learned_anew_keep_the_noise_of_unseen_people(
    memorised: tuple[LatentModel, Logs, Logs], tmp_path: Path
) -> None:
    model, logs, _ = memorised
    model.save(tmp_path / "model")
    for kept in (model, LatentModel.load(tmp_path / "model")):
        [again] = refit_rewards([kept], [logs], seeds=[0])
        for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
            np.testing.assert_array_equal(one, other)


def test_ample_rows_are_not_trained_on_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows leave no room to overfit, and these fits stay as quick as they were."""
    calls = []
    minimise = TiedRecipe._minimise

    def counted(*arguments: Any, **named: Any) -> Minimised:
        calls.append(1)
        return minimise(*arguments, **named)

    monkeypatch.setattr(TiedRecipe, "_minimise", counted)
    world = draw_world(jr.key(0), latent_dim=2, actions=2)
    logs = record(jr.key(1), world, UniformLogging(2), 40, 10).logs
    quick = Schedule(20, score_every=10)
    for ample in (400, 401):
        calls.clear()
        model = fit(
            logs, latent_dim=2, recipe=TiedRecipe(ample_rows=ample, training=quick), reward=LinearRewardRecipe()
        )
        assert (len(calls) == 1) is (ample == 400)
        assert bool(known(model.provenance).inflation) is (ample == 401)


def test_how_much_wider_unseen_people_vary_is_the_same_in_company() -> None:
    world = draw_world(jr.key(0), latent_dim=2, actions=2)
    tables = [record(jr.key(seed), world, UniformLogging(2), 40, 10).logs for seed in (1, 2)]
    recipe = TiedRecipe(training=Schedule(120, CosineAdam(0.03), score_every=10))
    together = recipe.train(fit_keys([0, 1]), tables, 2)
    assert together[0].best_step != together[1].best_step
    for seed, (table, trained) in enumerate(zip(tables, together, strict=True)):
        alone = recipe.train(fit_keys([seed]), [table], 2)[0]
        assert alone.inflation == pytest.approx(trained.inflation, rel=1e-3)


def test_contexts_beside_an_encoding_vary_as_they_do() -> None:
    world = draw_world(jr.key(0), latent_dim=2, actions=2)
    logs = record(jr.key(1), world, UniformLogging(2), 40, 5).logs
    tied = TiedRecipe(training=Schedule(200, CosineAdam(0.03), score_every=100))
    inflation = WithContexts(tied).train(fit_keys([0]), [logs], 2)[0].inflation
    assert inflation[:2] == tied.train(fit_keys([0]), [logs], 2)[0].inflation
    assert inflation[0] > 1
    assert inflation[2:] == (1.0,) * logs.width


def test_a_fit_knows_what_latent_states_leave_unexplained(noise: NoiseLevels) -> None:
    # Mean encodings z + e shrink the slopes; what theta' z varies by given z + e, less the noise of the slopes' own
    # reading of e, is left over as well. It differs by action, and the fit has one number for all.
    blur = W / LENGTH
    slopes = THETA @ np.linalg.solve(S + blur, S).T
    missed = np.einsum("ai,ij,aj->a", THETA, S - S @ np.linalg.solve(S + blur, S), THETA)
    missed -= np.einsum("ai,ij,aj->a", slopes, blur, slopes)
    leftover = EFFECT_STD**2 + missed
    # Of the mean reward of a cell around the model; the cells of an instance share e, so instances are counted.
    spread = leftover + REWARD_STD**2 / 3 + np.einsum("ai,ij,aj->a", slopes, blur, slopes)
    error = spread.max() * np.sqrt(2 / INSTANCES)
    assert leftover.min() - 4 * error < float(noise.leftover_variance) < leftover.max() + 4 * error
    assert 4 * error < 0.4 * EFFECT_STD**2


# Many at once


def choice_of(dim: int) -> DimensionChoice:
    return DimensionChoice((1, 2, 3), np.zeros(3), np.zeros(3), dim)


def test_each_table_chooses_its_own_dimension_and_those_alike_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = draw_world(jr.key(0), latent_dim=3, actions=2)
    tables = [record(jr.key(seed), world, UniformLogging(2), 30, 10).logs for seed in range(4)]
    seeds, dims = [5, 6, 7, 8], [2, 1, 2, 3]
    chosen = {(id(table), seed): dim for table, seed, dim in zip(tables, seeds, dims, strict=True)}
    monkeypatch.setattr(
        "ilb.offline.fit.choose_latent_dim", lambda logs, *, seed, report: choice_of(chosen[id(logs), seed])
    )
    recipe = FirstColumns()
    models = fit_many(tables, recipe=recipe, seeds=seeds)
    assert [(dim, list(map(id, logs))) for dim, logs in recipe.asked] == [
        (2, [id(tables[0]), id(tables[2])]),
        (1, [id(tables[1])]),
        (3, [id(tables[3])]),
    ]
    assert [len(model.noise.population_mean) for model in models] == dims
    for model, table, seed, dim in zip(models, tables, seeds, dims, strict=True):
        alone = fit(table, latent_dim=dim, recipe=FirstColumns(), seed=seed, reward=LinearRewardRecipe())
        np.testing.assert_array_equal(linear(model.reward).theta, linear(alone.reward).theta)
        assert known(model.provenance).seed == seed
        assert known(model.provenance).recipe["latent_dim"] == dim
        assert known(model.provenance).notes[0].startswith(f"latent dimension {dim} chosen")


def test_without_a_dimension_each_table_is_asked_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One table varies in a line, the other in the plane: no choice made on either is right for both."""
    quick = TiedRecipe(layers=2, training=Schedule(150, CosineAdam(0.03), score_every=150))
    monkeypatch.setattr("ilb.offline.fit.choose_latent_dim", partial(choose_latent_dim, recipe=quick))
    rng = np.random.default_rng(0)
    shape, noise = (60, 20), rng.normal(size=(60, 20, 2))
    rewards = noise[..., 0]
    line, plane = (
        Logs.from_arrays(spread * rng.normal(size=(60, 1, 2)) + noise, rng.integers(2, size=shape), rewards)
        for spread in ([3.0, 0.0], [3.0, 3.0])
    )
    models = fit_many([line, plane], recipe=FirstColumns(), seeds=[0, 0])
    assert [known(model.provenance).recipe["latent_dim"] for model in models] == [1, 2]
