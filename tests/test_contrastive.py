"""Mean-contrastive learning against what theory says it computes."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ilb.environments import UniformLogging, draw_world, record
from ilb.errors import FitError
from ilb.logs import Logs
from ilb.networks import Affine, ComposedEncoder, MaxoutMLP, padded_size, random_maxout_mlp
from ilb.offline.encoders.tied import (
    Batch,
    TiedContrast,
    TiedParams,
    TiedRecipe,
    _canonical,
    contrastive_losses,
    draw_batch,
    pad_histories,
)
from ilb.offline.encodings import encode_contexts, instance_means, measure_scatter
from ilb.offline.scaling import fit_whitening
from ilb.offline.scores import align
from ilb.offline.training import CosineAdam, Schedule


def contexts_only(contexts: np.ndarray, instance: Any = None) -> Logs:
    """Logs of which only the contexts matter."""
    shape = contexts.shape[:-1]
    return Logs.from_arrays(contexts, np.full(shape, -1), np.full(shape, np.nan), instance, actions=2)


def test_the_loss_is_the_gaussian_posterior_of_the_true_instance_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    encodings = rng.normal(size=(4, 5, 3)).astype(np.float32)
    fresh = np.ones((4, 5), bool)
    fresh[1, 3:] = False
    mean, precision = np.array([0.3, -0.2, 0.1]), np.array([0.5, 1.0, 2.0])
    batch = Batch(jnp.zeros((4, 5, 1)), jnp.asarray(fresh), ~jnp.eye(4, dtype=bool))
    losses = contrastive_losses(jnp.asarray(encodings), batch, jnp.asarray(mean), jnp.asarray(precision))
    for c in range(4):
        for row in np.flatnonzero(fresh[c]):
            log_densities = []
            for rival in range(4):
                support = [r for r in np.flatnonzero(fresh[rival]) if r != row]
                posterior = precision + len(support)
                centre = (encodings[rival, support].sum(axis=0) + precision * mean) / posterior
                density = multivariate_normal(centre, np.diag(1 + 1 / posterior))
                log_densities.append(density.logpdf(encodings[c, row]))
            expected = np.logaddexp.reduce(log_densities) - log_densities[c]
            assert losses[c, row] == pytest.approx(expected, abs=1e-4)


def test_the_truth_is_where_the_loss_is_lowest() -> None:
    """With contexts that are z plus unit noise, f(x) = x and the true population minimise the expected loss."""
    rng = np.random.default_rng(1)
    population_std = 1.5
    latents = population_std * rng.normal(size=(4000, 2))
    contexts = (latents[:, None] + rng.normal(size=(4000, 6, 2))).astype(np.float32)
    histories = pad_histories(contexts.reshape(-1, 2), np.full(4000, 6))
    keys = jr.split(jr.key(0), 200)

    @jax.jit
    def loss(scale: float, mean: Array, log_precision: Array) -> Array:
        params = TiedParams(MaxoutMLP((), Affine(scale * jnp.eye(2), jnp.zeros(2))), mean, log_precision)
        return jax.lax.map(lambda key: TiedContrast(16, 6)(params, histories, key), keys).mean()

    truth = (1.0, jnp.zeros(2), jnp.full(2, np.log(1 / population_std**2)))
    gradients = jax.grad(loss, argnums=(0, 1, 2))(*truth)
    # The curvature tells how far the minimum can be from a point with this slope.
    curvature = jax.hessian(loss, argnums=0)(*truth)
    assert abs(float(gradients[0] / curvature)) < 0.02
    precision_curvature = jax.hessian(lambda shift: loss(truth[0], truth[1], truth[2] + shift))(0.0)
    assert abs(float(gradients[2].sum() / precision_curvature)) < 0.1
    best = float(loss(*truth))
    for scale, shift, log_precision in [
        (0.8, 0.0, 0.0),
        (1.2, 0.0, 0.0),
        (1.0, 1.0, 0.0),
        (1.0, 0.0, 1.5),
        (1.0, 0.0, -3.0),
    ]:
        assert float(loss(scale, truth[1] + shift, truth[2] + log_precision)) > best


def test_the_numbers_of_the_recipes_are_those_that_were_measured() -> None:
    """Recorded results were made with these: a change of any is a change of numbers."""
    default, deep = TiedRecipe(), TiedRecipe.deep()
    for recipe, layers, steps in ((default, 3, 1200), (deep, 4, 3000)):
        assert (recipe.layers, recipe.width, recipe.instances_per_batch, recipe.rows_per_instance) == (
            layers,
            4,
            32,
            32,
        )
        assert (recipe.validation_share, recipe.ample_rows) == (0.1, 10_000)
        assert recipe.training == Schedule(steps=steps, optimiser=CosineAdam(0.03), score_every=100)


def test_histories_are_laid_out_end_to_end_and_padded_with_nothing() -> None:
    context = np.arange(12, dtype=np.float32).reshape(6, 2)
    histories = pad_histories(context, np.array([1, 3, 2]), (40, 9))
    rows, instances = padded_size(40), padded_size(9)
    assert (histories.context.shape, histories.start.shape, int(histories.instances)) == ((rows, 2), (instances,), 3)
    np.testing.assert_array_equal(histories.start[:3], [0, 1, 4])
    np.testing.assert_array_equal(histories.length, [1, 3, 2] + [0] * (instances - 3))
    np.testing.assert_array_equal(histories.context[:6], context)
    assert not histories.context[6:].any()
    assert pad_histories(context, np.array([1, 3, 2])).context.shape[0] == padded_size(6)


@pytest.mark.parametrize(
    ("instances", "rows", "held"), [(14, 5, 0), (16, 5, 2), (40, 5, 4), (40, 250, 0), (40, 249, 4)]
)
def test_instances_are_held_out_unless_there_are_very_few_or_ample_rows(instances: int, rows: Any, held: Any) -> None:
    assert TiedRecipe()._held_out(contexts_only(np.zeros((instances, rows, 1)))) == held


@pytest.mark.parametrize(
    ("instances", "rows", "batch"),
    [(500, 100, (32, 32)), (500, 32, (32, 32)), (500, 8, (128, 8)), (500, 2, (500, 2)), (20, 8, (20, 8))],
)
def test_a_batch_has_the_same_number_of_rows_whatever_the_length_of_histories(
    instances: int, rows: Any, batch: Any
) -> None:
    loss = TiedRecipe()._loss([contexts_only(np.zeros((instances, rows, 1)))])
    assert (loss.instances, loss.rows) == batch


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=2, max_size=50).map(np.array), seed=st.integers(0, 1000))
def test_an_episode_holds_each_row_of_each_instance_at_most_once(lengths: np.ndarray, seed: int) -> None:
    owner = np.repeat(np.arange(len(lengths)), lengths)
    marked = np.stack([np.arange(lengths.sum()), owner], axis=1).astype(np.float32)
    batch = draw_batch(jr.key(seed), pad_histories(marked, lengths, (2048, 64)), 8, 8)
    rows = np.asarray(batch.context[..., 0])[np.asarray(batch.fresh)]
    assert len(set(rows.tolist())) == len(rows) > 0
    owners = np.asarray(batch.context[:, 0, 1])
    assert np.all(np.asarray(batch.context[..., 1]) == owners[:, None])
    rival = np.asarray(batch.rival)
    for c in range(8):
        named = owners[rival[c]]
        assert owners[c] not in named
        assert len(set(named.tolist())) == len(named)
        assert set(named.tolist()) == set(owners.tolist()) - {owners[c]}


def test_every_row_is_drawn_equally_often_within_its_instance() -> None:
    lengths = np.array([3, 10, 7])
    marked = np.arange(20, dtype=np.float32)[:, None]
    histories = pad_histories(marked, lengths)
    batches = jax.vmap(lambda key: draw_batch(key, histories, 2, 2))(jr.split(jr.key(0), 20_000))
    counts = np.bincount(np.asarray(batches.context).astype(int).ravel(), minlength=20)
    for first, last in [(0, 3), (3, 13), (13, 20)]:
        expected = 80_000 / 3 / (last - first)
        # Five binomial standard deviations for twenty cells.
        assert np.all(np.abs(counts[first:last] - expected) < 5 * np.sqrt(expected))


def test_by_length_every_row_is_drawn_equally_often_whoever_it_belongs_to() -> None:
    lengths = np.array([3, 10, 7])
    histories = pad_histories(np.arange(20, dtype=np.float32)[:, None], lengths, (100, 20))
    batches = jax.vmap(lambda key: draw_batch(key, histories, 2, 2, by_length=True))(jr.split(jr.key(0), 20_000))
    counts = np.bincount(np.asarray(batches.context).astype(int).ravel(), minlength=20)
    np.testing.assert_array_less(np.abs(counts - 4000), 5 * np.sqrt(4000))


@pytest.mark.parametrize(("lengths", "unequal"), [([[4, 4], [7, 7]], False), ([[4, 4], [4, 3]], True)])
def test_instances_are_drawn_by_length_where_lengths_differ_within_a_table(
    lengths: list[list[int]], unequal: bool
) -> None:
    world = draw_world(jr.key(0), latent_dim=2, actions=2)
    logs = [record(jr.key(1), world, UniformLogging(2), 2, np.array(each)).logs for each in lengths]
    assert TiedRecipe()._loss(logs).by_length is unequal


def test_short_histories_beside_long_ones_do_no_harm() -> None:
    """Were people drawn with equal chances, their two rows would be learned by heart, and 0.80 of z be explained."""
    world = draw_world(jr.key(0), latent_dim=2, actions=2)
    lengths = np.repeat([2, 200], [100, 20])
    logs = record(jr.key(1), world, UniformLogging(2), 120, lengths).logs
    test = record(jr.key(2), world, UniformLogging(2), 1000, 50)
    recipe = TiedRecipe(ample_rows=0, training=Schedule(600, CosineAdam(0.03), score_every=600))

    def explained(logs: Logs) -> float:
        encoder = recipe.train(jr.split(jr.key(0), 1), [logs], 2)[0].encoder
        means = instance_means(encode_contexts(encoder, test.logs.context), test.logs.starts)
        error = test.latents - align(means, test.latents)(means)
        return float(1 - np.sum(error**2) / np.sum((test.latents - test.latents.mean(axis=0)) ** 2))

    assert explained(logs) > explained(logs.select(lengths > 2)) - 0.01


def test_a_linear_emission_is_encoded_as_by_linear_discriminant_analysis() -> None:
    """Linear and Gaussian: LDA is optimal, so the encoder must agree with it up to an affine map."""
    rng = np.random.default_rng(2)
    latents = rng.normal(size=(150, 2))
    states = latents[:, None] + rng.normal(size=(150, 60, 2))
    contexts = states @ rng.normal(size=(2, 4)) + 0.3 * rng.normal(size=(150, 60, 4))
    logs = contexts_only(contexts)
    recipe = TiedRecipe(layers=2, training=Schedule(600, CosineAdam(0.02), score_every=300))
    encoder = recipe.train(jr.split(jr.key(0), 1), [logs], 2)[0].encoder
    encodings = encode_contexts(encoder, logs.context)
    discriminants = LinearDiscriminantAnalysis(n_components=2, solver="eigen").fit_transform(
        logs.context, logs.instance
    )
    aligned = align(encodings, discriminants)(encodings)
    unexplained = np.sum((aligned - discriminants) ** 2) / np.sum((discriminants - discriminants.mean(axis=0)) ** 2)
    assert unexplained < 0.01


def test_the_encoder_comes_out_in_its_canonical_basis() -> None:
    world = draw_world(jr.key(0), latent_dim=3, actions=2)
    logs = record(jr.key(1), world, UniformLogging(2), 60, 40).logs
    recipe = TiedRecipe(layers=2, training=Schedule(60, score_every=60))
    encoder = recipe.train(jr.split(jr.key(0), 1), [logs], 3)[0].encoder
    scatter = measure_scatter(encode_contexts(encoder, logs.context), logs.starts)
    np.testing.assert_allclose(scatter.encoding_covariance, np.eye(3), atol=1e-3)
    np.testing.assert_allclose(scatter.population_mean, 0, atol=1e-3)
    variances = np.diag(scatter.population_covariance)
    np.testing.assert_allclose(scatter.population_covariance, np.diag(variances), atol=1e-3)
    assert np.all(np.diff(variances) <= 0)


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_weight_of_each_canonical_coordinate_is_positive(seed: int) -> None:
    """The basis is free up to signs; this fixes them, whatever the network."""
    rng = np.random.default_rng(seed)
    logs = contexts_only(rng.normal(size=(40, 1, 3)) + rng.normal(size=(40, 30, 3)))
    whitening, network = fit_whitening(logs.context), random_maxout_mlp(jr.key(seed), 3, [6], 3)
    raw, turned = (
        encode_contexts(encoder, logs.context)
        for encoder in (ComposedEncoder(whitening, network), _canonical(whitening, network, logs))
    )
    matrix = np.linalg.lstsq(raw - raw.mean(axis=0), turned - turned.mean(axis=0))[0]
    assert all(column[np.abs(column).argmax()] > 0 for column in matrix.T)


def test_short_and_unequal_histories_are_learned_from() -> None:
    """Histories of 1 to 9 rows; the encoder still beats least squares on the mean context by far."""
    world = draw_world(jr.key(3), latent_dim=3, actions=4)
    lengths = np.random.default_rng(0).integers(1, 10, size=1000)
    training = record(jr.key(1), world, UniformLogging(4), 1000, lengths)
    test = record(jr.key(2), world, UniformLogging(4), 300, 40)
    recipe = TiedRecipe(layers=3, training=Schedule(400, CosineAdam(0.03), score_every=200))
    encoder = recipe.train(jr.split(jr.key(0), 1), [training.logs], 3)[0].encoder

    def unexplained(values: np.ndarray) -> float:
        means = instance_means(values, test.logs.starts)
        return np.sum((align(means, test.latents)(means) - test.latents) ** 2) / np.sum(test.latents**2)

    learned = unexplained(encode_contexts(encoder, test.logs.context))
    oracle = unexplained(encode_contexts(world.oracle().encoder, test.logs.context))
    plain = unexplained(test.logs.context)
    assert learned < oracle + 0.25 * (plain - oracle)


def test_instances_with_a_single_row_each_can_not_be_learned_from() -> None:
    logs = contexts_only(np.random.default_rng(0).normal(size=(20, 1, 3)))
    with pytest.raises(FitError, match="single row"):
        TiedRecipe().train(jr.split(jr.key(0), 1), [logs], 2)
