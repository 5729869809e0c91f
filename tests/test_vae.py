"""The autoencoder against what is known in closed form: probabilistic PCA, Gaussian divergences, held-out instances."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, ArrayLike, PRNGKeyArray
from scipy.linalg import subspace_angles
from scipy.stats import multivariate_normal, norm
from sklearn.decomposition import PCA

from ilb import LatentModel, fit
from ilb.logs import Logs
from ilb.networks import Affine, DenseMLP
from ilb.offline.encoders.vae import (
    ContextRows,
    GaussianLikelihood,
    NegativeELBO,
    VAEParams,
    VAERecipe,
    divergence_from_prior,
    stack_contexts,
)
from ilb.offline.encodings import encode_contexts
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.scaling import MinMax, Scaling, Standardised, Whitened, apply_scaling, fit_whitening
from ilb.offline.training import Adam, CosineAdam, Schedule, hold_out, minimise
from ilb_paper.released import SigmoidSquares, released_vae_recipe
from narrowed import known

STD = 0.5


def linear_map(matrix: np.ndarray, shift: np.ndarray) -> DenseMLP:
    return DenseMLP((), Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(shift, jnp.float32)))


def linear_gaussian_rows(loadings: np.ndarray, count: int, seed: int = 0) -> ContextRows:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, len(loadings))) @ loadings + STD * rng.normal(size=(count, loadings.shape[1]))
    return ContextRows(jnp.asarray(rows, jnp.float32), jnp.asarray(count))


def exact_posterior(loadings: np.ndarray, std: float = STD) -> DenseMLP:
    """The encoder of p(z | x) for orthogonal loadings, whose posterior covariance is diagonal."""
    precision = np.sum(loadings**2, axis=1) / std**2 + 1
    matrix = np.concatenate([loadings.T / std**2 / precision, np.zeros_like(loadings.T)], axis=1)
    return linear_map(matrix, np.concatenate([np.zeros(len(loadings)), -np.log(precision)]))


def rows_of(contexts: ArrayLike) -> set[bytes]:
    return {row.tobytes() for row in np.asarray(contexts)}


@partial(jax.jit, static_argnums=0)
def many_losses(loss: NegativeELBO, params: VAEParams, rows: ContextRows, keys: PRNGKeyArray) -> Array:
    return jax.lax.map(lambda key: loss(params, rows, key), keys)


def expected_loss(params: VAEParams, rows: ContextRows, std: float = STD) -> tuple[float, float]:
    """The mean over many batches, and its standard error."""
    values = many_losses(NegativeELBO(4096, 1.0, GaussianLikelihood(std)), params, rows, jr.split(jr.key(0), 64))
    return float(values.mean()), float(values.std() / 8)


@pytest.fixture(scope="module")
def logs() -> Logs:
    rng = np.random.default_rng(0)
    shape = (80, 60)
    return Logs.from_arrays(rng.normal(size=(*shape, 3)), rng.integers(5, size=shape), rng.normal(size=shape))


@pytest.fixture(scope="module")
def idle(logs: Logs) -> LatentModel:
    """A model whose training changes nothing, so that only the stopping rule acts."""
    return fit(
        logs,
        latent_dim=3,
        recipe=VAERecipe(optimiser=Adam(0.0, 0.0), epochs=50, patience=3),
        reward=LinearRewardRecipe(),
    )


LOADINGS = np.array([[2.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]])


def test_the_divergence_is_what_sampling_says() -> None:
    mean, log_variance = np.array([0.7, -1.2]), np.array([-0.8, 0.4])
    std = np.exp(0.5 * log_variance)
    z = mean + std * np.random.default_rng(0).normal(size=(200_000, 2))
    ratios = (norm(mean, std).logpdf(z) - norm.logpdf(z)).sum(axis=1)
    closed = divergence_from_prior(jnp.asarray(mean), jnp.asarray(log_variance))
    assert float(closed) == pytest.approx(ratios.mean(), abs=4 * ratios.std() / np.sqrt(len(ratios)))


def test_the_bound_is_tight_at_the_exact_posterior_and_only_there() -> None:
    rows = linear_gaussian_rows(LOADINGS, 4096)
    marginal = multivariate_normal(np.zeros(4), LOADINGS.T @ LOADINGS + STD**2 * np.eye(4))
    surprise = -marginal.logpdf(np.asarray(rows.inputs)).mean()
    decoder = linear_map(LOADINGS, np.zeros(4))
    value, error = expected_loss(VAEParams(exact_posterior(LOADINGS), decoder), rows)
    assert value == pytest.approx(surprise, abs=4 * error)
    rng = np.random.default_rng(1)
    for size in (0.3, 1.0):
        wrong = linear_map(size * rng.normal(size=(4, 4)), size * rng.normal(size=4))
        value, error = expected_loss(VAEParams(wrong, decoder), rows)
        assert value > surprise + 4 * error


@pytest.mark.parametrize("beta", [0.0, 0.5, 4.0])
def test_beta_weighs_the_divergence_from_the_prior(beta: float) -> None:
    """All rows are alike, so the divergence of a batch is that of the one context, and the draws of z are the same."""
    context = np.array([1.0, -2.0, 0.5, 3.0])
    rows = ContextRows(jnp.tile(jnp.asarray(context, jnp.float32), (8, 1)), jnp.asarray(8))
    params = VAEParams(exact_posterior(LOADINGS), linear_map(LOADINGS, np.zeros(4)))
    weighed, bare = (
        float(NegativeELBO(64, weight, GaussianLikelihood(STD))(params, rows, jr.key(0))) for weight in (beta, 0.0)
    )
    precision = np.sum(LOADINGS**2, axis=1) / STD**2 + 1
    mean = LOADINGS @ context / STD**2 / precision
    divergence = 0.5 * np.sum(mean**2 + 1 / precision - 1 + np.log(precision))
    assert weighed - bare == pytest.approx(beta * divergence, rel=1e-4, abs=1e-4)


def test_a_recipe_with_a_large_beta_leaves_the_latent_state_unused(logs: Logs) -> None:
    """beta reaches the loss: with a prior that outweighs the contexts, all encodings stay at its mean."""
    used, unused = (
        encode_contexts(
            fit(logs, latent_dim=3, recipe=VAERecipe(beta=beta, epochs=4), reward=LinearRewardRecipe()).encoder,
            logs.context,
        ).std(axis=0)
        for beta in (1.0, 1e4)
    )
    assert np.all(used > 0.5)
    assert np.all(unused < 0.1)


def test_a_linear_autoencoder_finds_the_principal_subspace() -> None:
    """Probabilistic PCA: encoder and decoder span it, and the loss is the likelihood of the closed form."""
    rows = linear_gaussian_rows(LOADINGS, 4096, seed=2)
    rng = np.random.default_rng(3)
    start = VAEParams(
        linear_map(0.3 * rng.normal(size=(4, 4)), np.zeros(4)), linear_map(0.3 * rng.normal(size=(2, 4)), np.zeros(4))
    )
    loss = NegativeELBO(256, 1.0, GaussianLikelihood(STD))
    found = minimise(jr.key(0), loss, start, rows, Schedule(1500, CosineAdam(0.03), score_every=500)).params
    pca = PCA(2).fit(np.asarray(rows.inputs))
    principal = pca.components_.T
    assert np.rad2deg(subspace_angles(np.asarray(found.decoder.output.matrix).T, principal)).max() < 3
    assert np.rad2deg(subspace_angles(np.asarray(found.encoder.output.matrix)[:, :2], principal)).max() < 3
    scales = np.sqrt(pca.explained_variance_ - STD**2)
    cov = (principal * scales**2) @ principal.T + STD**2 * np.eye(4)
    best = -multivariate_normal(pca.mean_, cov).logpdf(np.asarray(rows.inputs)).mean()
    value, error = expected_loss(found, rows)
    assert best - 4 * error < value < best + 0.03


@pytest.mark.parametrize(("std", "unused_is_best"), [(1.0, True), (0.1, False)])
def test_on_white_contexts_unit_noise_switches_the_latent_state_off_and_small_noise_does_not(
    std: float, unused_is_best: bool
) -> None:
    """Every decoder w z has its exact posterior here, so only the strength w of the latent state differs."""
    white = np.random.default_rng(4).normal(size=(4096, 4))
    rows = ContextRows(jnp.asarray((white - white.mean(axis=0)) / white.std(axis=0), jnp.float32), jnp.asarray(4096))

    def loss_at(strength: float) -> float:
        loadings = strength * np.eye(2, 4)
        return expected_loss(VAEParams(exact_posterior(loadings, std), linear_map(loadings, np.zeros(4))), rows, std)[0]

    unused = loss_at(0.0)
    assert all((unused < loss_at(strength)) == unused_is_best for strength in (0.6, 0.9))


def test_no_instance_is_both_trained_on_and_held_out(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the training loop: as sets of rows, since contexts of different instances differ."""

    class Seen(Exception):  # noqa: N818
        pass

    def look(
        keys: PRNGKeyArray,
        loss: Any,
        params: Any,
        data: ContextRows,
        schedule: Any,
        *,
        validation: ContextRows,
        report: Any,
    ) -> None:
        raise Seen([rows_of(part.inputs[0, : part.rows[0]]) for part in (data, validation)])

    monkeypatch.setattr("ilb.offline.encoders.vae.minimise_many", look)
    with pytest.raises(Seen) as seen:
        VAERecipe(validation_share=0.2).train(jr.key(3)[None], [logs], 3)
    kept, held = seen.value.args[0]
    assert (len(kept), len(held)) == (64 * 60, 16 * 60)
    assert not kept & held
    scaling = fit_whitening(logs.context)
    for number in range(logs.instances):
        own = rows_of(apply_scaling(scaling, logs.select([number])))
        assert own <= held or own <= kept


def test_instances_are_held_out_whole_and_in_order(logs: Logs) -> None:
    kept, held = hold_out(jr.key(3), logs, 16)
    assert (kept.instances, held.instances) == (64, 16)
    together = np.concatenate([kept.context, held.context])
    order = np.lexsort(together.T)
    np.testing.assert_array_equal(together[order], logs.context[np.lexsort(logs.context.T)])
    for part in (kept, held):
        first = [int(np.flatnonzero((logs.context == row).all(axis=1))[0]) for row in part.context[part.starts[:-1]]]
        assert first == sorted(first)


def test_padding_is_never_drawn(logs: Logs) -> None:
    scaling = Affine(2 * jnp.eye(3), jnp.ones(3))
    stacked = stack_contexts([scaling], [logs.select([0])], 500)
    assert stacked.inputs.shape == (1, 500, 3)
    assert int(stacked.rows[0]) == 60
    np.testing.assert_allclose(stacked.inputs[0, :60], 2 * logs.context[:60] + 1, rtol=1e-5)
    inputs = linear_gaussian_rows(LOADINGS, 4096).inputs
    poisoned = ContextRows(jnp.asarray(inputs).at[60:].set(jnp.nan), jnp.asarray(60))
    params = VAEParams(exact_posterior(LOADINGS), linear_map(LOADINGS, np.zeros(4)))
    assert np.isfinite(expected_loss(params, poisoned)[0])


def test_training_stops_by_what_is_held_out(logs: Logs, idle: LatentModel) -> None:
    """At rate zero nothing improves after the first epoch, so patience runs out `patience` epochs later."""
    epoch = int(np.ceil(0.9 * logs.rows / 32))
    np.testing.assert_array_equal(known(idle.provenance).curve["step"], epoch * np.arange(1, 5))
    assert np.ptp(known(idle.provenance).curve["validation"]) == 0


def test_weight_decay_is_in_the_gradient_as_the_papers_adam_has_it() -> None:
    """By hand: the first step of Adam is the sign of the gradient, of which the decay is a part."""
    optimiser = Adam(learning_rate=0.1, weight_decay=0.5).build(1)
    params, gradient = jnp.array([2.0, -2.0, 2.0]), jnp.array([0.5, 0.5, -2.0])
    updates, _ = optimiser.update(gradient, optimiser.init(params), params)
    np.testing.assert_allclose(updates, -0.1 * np.sign([1.5, -0.5, -1.0]), rtol=1e-4)


@pytest.mark.parametrize("scaling", [Whitened(), Standardised(), MinMax()])
def test_scalings_do_what_they_say_and_survive_a_constant_column(scaling: Scaling) -> None:
    contexts = np.random.default_rng(0).normal(3.0, [1.0, 20.0, 0.0], size=(500, 3)).astype(np.float32)
    scaling_map = scaling.fit(contexts)
    scaled = contexts @ np.asarray(scaling_map.matrix) + np.asarray(scaling_map.shift)
    assert np.all(np.isfinite(scaled))
    spread = np.sort(np.ptp(scaled, axis=0) if isinstance(scaling, MinMax) else scaled.std(axis=0))
    np.testing.assert_allclose(spread, [0, 1, 1], atol=1e-3)


def test_the_released_loss_is_squares_to_a_sigmoid_and_ignores_the_prior() -> None:
    rng = np.random.default_rng(0)
    context, decoded = rng.normal(size=3), rng.normal(size=3)
    expected = np.sum((context - 1 / (1 + np.exp(-decoded))) ** 2)
    assert float(SigmoidSquares()(jnp.asarray(context), jnp.asarray(decoded))) == pytest.approx(expected, rel=1e-5)
    recipe = released_vae_recipe(4)
    assert (recipe.layers, recipe.neck, recipe.beta) == (4, 1, 0.0)


def test_a_model_with_an_autoencoder_comes_back_from_disk(logs: Logs, idle: LatentModel, tmp_path: Path) -> None:
    idle.save(tmp_path / "model")
    loaded = LatentModel.load(tmp_path / "model")
    for a, b in zip(jax.tree.leaves(idle.bare()), jax.tree.leaves(loaded.bare()), strict=True):
        np.testing.assert_array_equal(a, b)
    assert known(loaded.provenance).recipe["likelihood"] == {"name": "GaussianLikelihood", "std": 0.1}
    np.testing.assert_array_equal(
        encode_contexts(loaded.encoder, logs.context), encode_contexts(idle.encoder, logs.context)
    )
