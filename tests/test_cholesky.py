"""Factors and solves of small matrices, against LAPACK."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ilb.online.cholesky import WRITTEN_OUT, add_outer, cholesky, half_of_inverse, solve_lower, solve_upper
from ilb.online.linear import lin_ucb
from ilb.simulation import Rounds, play

SMALL = (1, 2, 5, 12)
LARGE = (WRITTEN_OUT + 1, 40)


@pytest.mark.parametrize("size", SMALL + LARGE)
def test_factors_and_solves_agree_with_lapack(size: int) -> None:
    rng = np.random.default_rng(6)
    roots = rng.normal(size=(3, size, size))
    matrices = jnp.asarray(roots @ roots.transpose(0, 2, 1) + size * np.eye(size), jnp.float32)
    vectors = rng.normal(size=(3, size)).astype(np.float32)
    factors = jax.jit(jax.vmap(cholesky))(matrices)
    np.testing.assert_allclose(factors, np.linalg.cholesky(np.asarray(matrices, np.float64)), rtol=1e-4, atol=1e-4)
    assert np.all(np.triu(factors, 1) == 0)
    for solve, turned in ((solve_lower, factors), (solve_upper, factors.transpose(0, 2, 1))):
        solved = jax.jit(jax.vmap(solve))(factors, vectors)
        np.testing.assert_allclose(np.einsum("bij,bj->bi", turned, solved), vectors, atol=1e-4)
    halves = jax.jit(jax.vmap(half_of_inverse))(factors)
    rows, columns = np.tril_indices(size)
    inverses = np.linalg.inv(np.asarray(matrices, np.float64))
    np.testing.assert_allclose(halves, inverses[:, rows, columns], rtol=1e-4, atol=1e-4 / size)


def test_a_matrix_that_is_not_positive_gives_nan() -> None:
    for size in (3, WRITTEN_OUT + 1):
        assert np.isnan(cholesky(-jnp.eye(size))).any()


def test_policies_do_not_call_lapack_however_wide_their_contexts_are() -> None:
    """Two batched calls of LAPACK in one program can wait for each other for ever."""
    size = WRITTEN_OUT + 1
    policy = lin_ucb(3, size, 1.0)
    rounds = Rounds(jnp.ones((2, size)), jnp.ones((2, 3)), jnp.ones((1, 3)))
    program = jax.jit(jax.vmap(lambda key: play(key, policy, rounds))).lower(jax.random.split(jax.random.key(0)))
    assert "lapack" not in program.as_text()


@pytest.mark.parametrize("size", SMALL + LARGE)
def test_a_factor_follows_what_is_added_to_its_matrix_and_a_row_below_follows_the_moment(size: int) -> None:
    rng = np.random.default_rng(7)
    root, moment = rng.normal(size=(size, size)), rng.normal(size=size)
    matrix = root @ root.T + np.eye(size)
    factor = np.linalg.cholesky(matrix)
    rows = jnp.asarray(np.concatenate([factor, np.linalg.solve(factor, moment)[None]]), jnp.float32)
    for _ in range(3):
        x, r = rng.normal(size=size), rng.normal()
        matrix, moment = matrix + np.outer(x, x), moment + r * x
        rows = jax.jit(add_outer)(rows, jnp.asarray(np.append(x, r), jnp.float32))
    factor = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(rows[:-1], factor, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rows[-1], np.linalg.solve(factor, moment), rtol=1e-3, atol=1e-4)
    assert np.all(np.triu(rows[:-1], 1) == 0)


@pytest.mark.parametrize("function", [cholesky, half_of_inverse, solve_lower, solve_upper, add_outer])
def test_only_small_matrices_are_written_out(function: Callable[..., jax.Array]) -> None:
    """A program that is written out has no loop, and grows with the matrix; one with a loop is short."""

    def operations(size: int) -> list[str]:
        arguments = (jnp.eye(size),) if function in (cholesky, half_of_inverse) else (jnp.eye(size), jnp.ones(size))
        return [equation.primitive.name for equation in jax.make_jaxpr(function)(*arguments).eqns]

    loops = {"while", "scan"}
    assert not loops & set(operations(2))
    assert not loops & set(operations(WRITTEN_OUT))
    assert loops & set(operations(WRITTEN_OUT + 1))
    assert len(operations(3 * WRITTEN_OUT)) == len(operations(WRITTEN_OUT + 1)) < 40
