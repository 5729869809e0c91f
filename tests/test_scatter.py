"""Encodings in chunks, their scatter within and between instances, and the whitening of contexts."""

from itertools import pairwise

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import Array

from ilb.networks import Affine
from ilb.offline import encodings as encodings_module
from ilb.offline.encodings import Unseen, encode_contexts, instance_means, measure_scatter
from ilb.offline.scaling import fit_whitening

W = np.array([[1.0, 0.4], [0.4, 0.5]])
S = np.array([[2.0, -0.6], [-0.6, 0.3]])
MEAN = np.array([3.0, -1.0])


def starts_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)])


def draw_encodings(rng: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
    """Encodings z_i + noise with the planted covariances."""
    z = MEAN + rng.normal(size=(len(lengths), 2)) @ np.linalg.cholesky(S).T
    noise = rng.normal(size=(int(np.sum(lengths)), 2)) @ np.linalg.cholesky(W).T
    return np.repeat(z, lengths, axis=0) + noise


# Means


def test_means_of_instances_equal_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    lengths = np.array([1, 4, 2, 7])
    values = rng.normal(size=(14, 3)).astype(np.float32)
    starts = starts_of(lengths)
    expected = [values[first:last].astype(float).mean(axis=0) for first, last in pairwise(starts)]
    np.testing.assert_allclose(instance_means(values, starts), expected, rtol=1e-12)


def test_means_do_not_lose_digits_far_from_zero() -> None:
    values = np.full((100_000, 1), 1000.1, dtype=np.float32)
    np.testing.assert_allclose(instance_means(values, np.array([0, 100_000])), np.float32(1000.1), rtol=1e-12)


# Scatter


@pytest.mark.parametrize("longest", [2, 12, 60], ids=["short", "unequal", "long"])
def test_scatter_recovers_what_was_planted_with_unequal_lengths(longest: int) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, longest + 1, size=3000)
    found = measure_scatter(draw_encodings(rng, lengths), starts_of(lengths))
    freedom = lengths.sum() - len(lengths)
    between = S + W * np.mean(1 / lengths)

    def deviation(covariance: np.ndarray, number: float) -> np.ndarray:  # of an entry of a sample covariance of normals
        return np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / number)

    assert np.all(np.abs(found.encoding_covariance - W) < 4 * deviation(W, freedom))
    bound = 4 * (deviation(between, 3000) + np.mean(1 / lengths) * deviation(W, freedom))
    assert np.all(np.abs(found.population_covariance - S) < bound)
    assert np.all(np.abs(found.population_mean - MEAN) < 4 * np.sqrt(np.diag(between) / 3000))


def test_the_population_is_corrected_for_the_noise_of_short_histories() -> None:
    """With two rows each the means scatter by S + W / 2, which is far outside the bounds above."""
    rng = np.random.default_rng(2)
    lengths = np.full(3000, 2)
    encodings = draw_encodings(rng, lengths)
    naive = np.cov(instance_means(encodings, starts_of(lengths)), rowvar=False)
    found = measure_scatter(encodings, starts_of(lengths)).population_covariance
    assert np.abs(found - S).max() < 0.3 * np.abs(naive - S).max()


def test_scatter_follows_an_affine_change_of_basis() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 9, size=200)
    encodings, matrix, shift = draw_encodings(rng, lengths), np.array([[1.0, 2.0], [-0.5, 0.3]]), np.array([5.0, -40.0])
    first = measure_scatter(encodings, starts_of(lengths))
    second = measure_scatter(encodings @ matrix + shift, starts_of(lengths))
    for covariance in ("encoding_covariance", "population_covariance"):
        expected = matrix.T @ getattr(first, covariance) @ matrix
        np.testing.assert_allclose(getattr(second, covariance), expected, rtol=1e-3)
    np.testing.assert_allclose(second.population_mean, first.population_mean @ matrix + shift, rtol=1e-9)


def test_clipping_follows_an_affine_change_of_basis() -> None:
    """All instances alike in one direction, so the estimate of their variance there is negative as often as not."""
    matrix = np.array([[1.0, 2.0], [-0.5, 0.3]])
    clipped = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lengths = np.full(50, 3)
        encodings = draw_encodings(rng, lengths)
        encodings[:, 1] = rng.normal(size=150)
        first = measure_scatter(encodings, starts_of(lengths)).population_covariance
        second = measure_scatter(encodings @ matrix, starts_of(lengths)).population_covariance
        np.testing.assert_allclose(second, matrix.T @ first @ matrix, rtol=1e-3, atol=1e-4)
        clipped += np.linalg.eigvalsh(first)[0] < 1e-4
    assert clipped > 3


def test_a_coordinate_in_large_units_does_not_drown_the_others() -> None:
    """Contexts may come unscaled: a platelet count of 250,000 beside a temperature."""
    rng = np.random.default_rng(4)
    lengths = np.full(200, 5)
    encodings = draw_encodings(rng, lengths)
    units = np.array([1e5, 1.0])
    first = measure_scatter(encodings, starts_of(lengths))
    second = measure_scatter(encodings * units, starts_of(lengths))
    for covariance in ("encoding_covariance", "population_covariance"):
        expected = getattr(first, covariance) * np.outer(units, units)
        np.testing.assert_allclose(getattr(second, covariance), expected, rtol=1e-2)


@st.composite
def small_histories(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    lengths = draw(st.lists(st.integers(1, 4), min_size=2, max_size=6))
    dim = draw(st.integers(1, 3))
    numbers = st.floats(-1e3, 1e3, width=32)
    return draw(hnp.arrays(np.float64, (sum(lengths), dim), elements=numbers)), np.array(lengths)


@settings(max_examples=200, deadline=None)
@given(small_histories())
def test_covariances_are_positive_semidefinite_whatever_comes(histories: tuple[np.ndarray, np.ndarray]) -> None:
    values, lengths = histories
    scatter = measure_scatter(values, starts_of(lengths))
    for covariance in (scatter.encoding_covariance, scatter.population_covariance):
        assert np.all(np.isfinite(covariance))
        np.testing.assert_allclose(covariance, covariance.T, rtol=1e-9, atol=1e-9 * np.abs(covariance).max())
        eigenvalues = np.linalg.eigvalsh(covariance)
        assert eigenvalues[0] >= -1e-9 * max(eigenvalues[-1], 0.0)


def test_a_coordinate_that_varies_by_rounding_alone_is_no_noise_free_one() -> None:
    rng = np.random.default_rng(0)
    encodings = np.c_[rng.normal(size=(200, 2)), 1e-16 * rng.normal(size=200)]
    within = measure_scatter(encodings, np.arange(0, 201, 10)).encoding_covariance
    assert within[2, 2] == pytest.approx(1e-5)
    small = measure_scatter(encodings * [1, 1e-8, 0], np.arange(0, 201, 10)).encoding_covariance
    assert small[1, 1] == pytest.approx(1e-16 * within[1, 1])  # small units are units


@pytest.mark.parametrize("kind", ["constant", "one row each", "same within", "collinear"])
def test_degenerate_encodings_have_a_scatter(kind: str) -> None:
    rng = np.random.default_rng(5)
    lengths = np.ones(8, int) if kind == "one row each" else np.full(8, 3)
    values = rng.normal(size=(lengths.sum(), 2))
    if kind == "constant":
        values[:] = 7.0
    elif kind == "same within":
        values = np.repeat(values[:8], 3, axis=0)
    elif kind == "collinear":
        values[:, 1] = 2 * values[:, 0]
    scatter = measure_scatter(values, starts_of(lengths))
    means = instance_means(values, starts_of(lengths))
    np.linalg.cholesky(scatter.encoding_covariance)
    assert np.all(np.isfinite(scatter.population_covariance))
    if kind in ("one row each", "same within"):  # no noise can be seen, so all the spread is the population's
        np.testing.assert_allclose(scatter.population_covariance, np.cov(means, rowvar=False), rtol=1e-4)


# Encoding in chunks


class CountingEncoder(eqx.Module):
    """x -> leaky(x A), in JAX, and how often it was compiled."""

    matrix: jnp.ndarray
    traces: list = eqx.field(static=True)

    def __call__(self, context: Array) -> Array:
        self.traces.append(context.shape)
        hidden = context @ self.matrix
        return jnp.where(hidden > 0, hidden, 0.2 * hidden)


class Traces(list):
    """A list that compares by identity, as a static field must be hashable."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def test_encoding_in_chunks_equals_a_plain_loop_around_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings_module, "CHUNK", 8)
    rng = np.random.default_rng(6)
    matrix, contexts = rng.normal(size=(3, 2)), rng.normal(size=(33, 3)).astype(np.float32)
    encoder = CountingEncoder(jnp.asarray(matrix, jnp.float32), Traces())
    for rows in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33):
        expected = []
        for context in contexts[:rows]:
            hidden = context @ matrix
            expected.append([value if value > 0 else 0.2 * value for value in hidden])
        found = encode_contexts(encoder, contexts[:rows])
        assert found.shape == (rows, 2)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert len(encoder.traces) == 4  # rows are padded to 1, 2, 4 or 8


def test_encoding_no_contexts_gives_none() -> None:
    encoder = Affine(jnp.eye(3)[:, :2], jnp.zeros(2))
    assert encode_contexts(encoder, np.zeros((0, 3), np.float32)).shape == (0, 2)


# Whitening


def whitened(contexts: np.ndarray) -> np.ndarray:
    whitening = fit_whitening(contexts)
    return np.asarray(contexts.astype(np.float32) @ np.asarray(whitening.matrix) + np.asarray(whitening.shift))


def test_whitened_rows_have_mean_zero_and_unit_covariance() -> None:
    rng = np.random.default_rng(7)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    contexts = rng.normal(size=(500, 4)) * [1.0, 0.3, 3.0, 5.0] @ turn + [0.0, 1.0, -50.0, 100.0]
    rows = whitened(contexts.astype(np.float32))
    np.testing.assert_allclose(rows.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(np.cov(rows, rowvar=False, bias=True), np.eye(4), atol=1e-3)


def test_one_column_can_be_whitened() -> None:
    rows = whitened(np.random.default_rng(8).normal(5.0, 2.0, size=(300, 1)).astype(np.float32))
    np.testing.assert_allclose((rows.mean(), rows.std()), (0.0, 1.0), atol=1e-4)


def test_whitening_survives_constant_and_duplicated_columns() -> None:
    rng = np.random.default_rng(9)
    free = rng.normal(size=(400, 2))
    contexts = np.stack([free[:, 0], np.full(400, 3.7), free[:, 1], free[:, 0], 2 * free[:, 1] + 1], axis=1)
    rows = whitened(contexts.astype(np.float32))
    assert np.all(np.isfinite(rows))
    variances = np.linalg.eigvalsh(np.cov(rows, rowvar=False, bias=True))
    # Two directions carry everything; rounding in the three dead ones is not blown up.
    np.testing.assert_allclose(variances, [0.0, 0.0, 0.0, 1.0, 1.0], atol=1e-3)


def test_a_direction_with_hardly_any_variance_is_not_blown_up() -> None:
    rng = np.random.default_rng(10)
    column = rng.normal(size=400)
    contexts = np.stack([column, column + 1e-2 * rng.normal(size=400)], axis=1)
    rows = whitened(contexts.astype(np.float32))
    variances = np.linalg.eigvalsh(np.cov(rows, rowvar=False, bias=True))
    # Their difference has variance 5e-5 beside 2 for their sum: far below the floor of a thousandth.
    np.testing.assert_allclose(variances, [5e-5 / 2e-3, 1.0], rtol=0.2)


def test_whitening_does_not_depend_on_the_units_of_the_columns() -> None:
    """Arrays come unscaled: a platelet count of 250,000 must not hide a temperature."""
    rng = np.random.default_rng(11)
    contexts = rng.normal(size=(400, 2)) * [1.0, 1e4]
    rows = whitened(contexts.astype(np.float32))
    np.testing.assert_allclose(np.cov(rows, rowvar=False, bias=True), np.eye(2), atol=1e-3)


def test_contexts_that_never_vary_are_whitened_to_nearly_nothing() -> None:
    rng = np.random.default_rng(12)
    for _ in range(30):
        constant = rng.normal(size=3) * 10 ** rng.uniform(-3, 5)
        rows = whitened(np.tile(constant, (101, 1)).astype(np.float32))
        assert np.all(np.abs(rows) < 1.0)


# What moves slowly


def test_what_moves_from_row_to_row_is_told_from_noise() -> None:
    rng, people, rows, kept = np.random.default_rng(3), 400, 100, 0.9
    walk = rng.normal(size=(people, rows, 2)) @ np.linalg.cholesky(S).T
    for now in range(1, rows):
        walk[:, now] = kept * walk[:, now - 1] + np.sqrt(1 - kept**2) * walk[:, now]
    noise = rng.normal(size=walk.shape) @ np.linalg.cholesky(W).T
    starts = starts_of(np.full(people, rows))
    found = measure_scatter((MEAN + walk + noise).reshape(-1, 2), starts, (1.0, 4.0))
    scales = np.sqrt([1.0, 4.0])
    # Of the walk, a row differs from the next by 1 - kept of its variance, which passes for noise.
    still = found.encoding_covariance - found.moving_covariance
    np.testing.assert_allclose(still / np.outer(scales, scales), W + (1 - kept) * S, rtol=0.05)


def test_nothing_moves_where_rows_are_independent_or_there_are_two() -> None:
    rng = np.random.default_rng(4)
    encodings = draw_encodings(rng, np.full(1000, 40))
    found = measure_scatter(encodings, starts_of(np.full(1000, 40)))
    np.testing.assert_allclose(found.moving_covariance, 0, atol=0.02)
    pairs = measure_scatter(encodings, starts_of(np.full(20_000, 2)))
    np.testing.assert_allclose(pairs.moving_covariance, 0, atol=1e-4)
    alone = measure_scatter(encodings, starts_of(np.full(40_000, 1)))
    np.testing.assert_array_equal(alone.moving_covariance, 0)


def test_what_moves_does_not_depend_on_the_basis() -> None:
    rng, lengths = np.random.default_rng(5), np.array([1, 3, 9, 30, 2])
    walk = np.cumsum(rng.normal(size=(45, 2)), axis=0)
    matrix = np.array([[2.0, 1.0], [-0.5, 0.3]])
    first, second = (measure_scatter(walk @ basis, starts_of(lengths)) for basis in (np.eye(2), matrix))
    np.testing.assert_allclose(second.moving_covariance, matrix.T @ first.moving_covariance @ matrix, rtol=1e-3)
    assert np.linalg.eigvalsh(first.encoding_covariance - first.moving_covariance)[0] > 0


# What was learned by heart


def test_what_the_noise_of_unseen_people_gains_their_population_loses() -> None:
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 12, size=3000)
    encodings = draw_encodings(rng, lengths)
    plain, wider, widest = (
        measure_scatter(encodings, starts_of(lengths), inflation) for inflation in (1.0, (1.05, 1.02), 5.0)
    )
    scales = np.sqrt([1.05, 1.02])
    np.testing.assert_allclose(wider.encoding_covariance, plain.encoding_covariance * np.outer(scales, scales))
    np.testing.assert_allclose(
        wider.encoding_covariance + wider.population_covariance,
        plain.encoding_covariance + plain.population_covariance,
        rtol=1e-6,
    )
    assert np.linalg.eigvalsh(widest.population_covariance)[0] > 0  # it can't lose more than there is


def test_how_much_wider_unseen_people_vary_is_found_in_any_basis() -> None:
    rng = np.random.default_rng(8)
    lengths = np.full(2000, 4)
    unseen = np.arange(2000) < 1000
    encodings = draw_encodings(rng, lengths)
    means = np.repeat(instance_means(encodings, starts_of(lengths)), 4, axis=0)
    encodings = means + (encodings - means) * np.where(np.repeat(unseen, 4), 2.0, 1.0)[:, None]
    found = Unseen.measure(encodings, starts_of(lengths), unseen)
    assert found.freedom == 3000
    assert found.ratio == pytest.approx(4 / 2.5, rel=0.05)
    turned = Unseen.measure(encodings @ np.array([[1.0, 20.0], [-0.5, 0.3]]), starts_of(lengths), unseen)
    assert turned.ratio == pytest.approx(found.ratio, rel=1e-6)


def test_a_direction_that_never_varies_does_not_decide_how_much_wider() -> None:
    rng = np.random.default_rng(9)
    lengths = np.full(500, 4)
    unseen = np.arange(500) < 100
    encodings = draw_encodings(rng, lengths)
    encodings[:, 1] = np.repeat(rng.normal(size=500), 4) + 1e-6 * rng.normal(size=2000) * np.repeat(1 + 99 * unseen, 4)
    assert Unseen.measure(encodings, starts_of(lengths), unseen).ratio == pytest.approx(1, abs=0.1)


def test_few_degrees_of_freedom_leave_the_noise_nearly_as_it_was() -> None:
    assert Unseen.pooled([Unseen(3.0, 1)], 2) == pytest.approx(1 + 2 / 6)
    assert Unseen.pooled([Unseen(3.0, 1000), Unseen(2.0, 3000)], 2) == pytest.approx(2.25, rel=0.01)
    assert Unseen.pooled([Unseen(0.8, 1000)], 2) == 1.0
    assert Unseen.pooled([Unseen(1.0, 0)], 2) == 1.0
