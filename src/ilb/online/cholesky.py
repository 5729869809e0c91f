"""Cholesky factors and triangular solves of small matrices, without LAPACK.

LAPACK is called once for each matrix of a batch, which costs some thirty times the arithmetic when n is 5. Written out
element by element, a batch of matrices is one loop over the batch with everything in registers. The program grows with
n³ / 6, so larger matrices are written out column by column, and still larger ones are loops over columns. LAPACK would
not do for those either: jaxlib spreads the matrices of a batch over its threads from one of these threads, and two such
calls at once can wait for each other for ever.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

WRITTEN_OUT = 16
"""The largest n that is written out."""

BY_ELEMENT = 8
"""The largest n of which factors and inverses are written out by element: with 10 that is slower, also to compile."""


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Give the lower factor L of a positive definite matrix, L @ L.T.

    >>> bool(jnp.allclose(cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])), jnp.array([[2.0, 0.0], [1.0, 2.0]])))
    True
    """
    size = matrix.shape[0]
    if not size:  # a state without coordinates: contexts say nothing of the person
        return matrix
    if size > WRITTEN_OUT:
        return _cholesky_in_a_loop(matrix)
    if size > BY_ELEMENT:
        return _cholesky_by_columns(matrix)
    zero = jnp.zeros((), matrix.dtype)
    factor = [[zero] * size for _ in range(size)]
    for j in range(size):
        pivot = matrix[j, j] - sum((factor[j][k] ** 2 for k in range(j)), zero)
        inverse_root = jax.lax.rsqrt(pivot)
        factor[j][j] = pivot * inverse_root
        for i in range(j + 1, size):
            factor[i][j] = (matrix[i, j] - sum((factor[i][k] * factor[j][k] for k in range(j)), zero)) * inverse_root
    return jnp.stack([jnp.stack(row) for row in factor])


def solve_lower(factor: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve L y = v."""
    size = factor.shape[0]
    if not size:
        return vector
    if size > WRITTEN_OUT:
        return _solve_by_rows(factor, vector, jnp.arange(size))
    solved: list[Array] = []
    for i in range(size):
        rest = vector[i] - sum((factor[i, k] * solved[k] for k in range(i)), jnp.zeros((), vector.dtype))
        solved.append(rest / factor[i, i])
    return jnp.stack(solved)


def solve_upper(factor: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve L' y = v, with the same lower factor L."""
    size = factor.shape[0]
    if not size:
        return vector
    if size > WRITTEN_OUT:
        return _solve_by_rows(factor.T, vector, jnp.arange(size)[::-1])
    solved: dict[int, Array] = {}
    for i in reversed(range(size)):
        later = sum((factor[k, i] * solved[k] for k in range(i + 1, size)), jnp.zeros((), vector.dtype))
        solved[i] = (vector[i] - later) / factor[i, i]
    return jnp.stack([solved[i] for i in range(size)])


def half_of_inverse(factor: Float[Array, "n n"]) -> Float[Array, " half"]:
    """Give the lower half of the inverse of L L', row by row as by `np.tril_indices`; the upper half is the same.

    >>> (16 * half_of_inverse(jnp.array([[2.0, 0.0], [1.0, 2.0]]))).tolist()
    [5.0, -2.0, 4.0]
    """
    size = factor.shape[0]
    if not size:
        return factor.ravel()
    if size > BY_ELEMENT:
        columns = jax.vmap(lambda unit: solve_lower(factor, unit))(jnp.eye(size))
        return jnp.asarray((columns @ columns.T)[np.tril_indices(size)])
    root: list[list[Array]] = []  # the inverse of L, row by row
    for i in range(size):
        pivot = 1 / factor[i, i]
        root.append([-pivot * sum(factor[i, k] * root[k][j] for k in range(j, i)) for j in range(i)] + [pivot])
    return jnp.stack([sum(root[k][i] * root[k][j] for k in range(i, size)) for i in range(size) for j in range(i + 1)])


def add_outer(factor: Float[Array, "m n"], vector: Float[Array, " m"]) -> Float[Array, "m n"]:
    """Give the lower factor of L L' + v v' by n plane rotations, which turn v into L column by column.

    Rows of the factor below its square part, and entries of v beyond n, are turned along: a last row h = L⁻¹ b and a
    last entry r make it L⁻¹ (b + r v). Rotations do not square anything, so no error grows by more than rounding.

    >>> factor = add_outer(jnp.array([[2.0, 0.0], [1.0, 2.0]]), jnp.array([1.0, 3.0]))
    >>> bool(jnp.allclose(factor @ factor.T, jnp.array([[5.0, 5.0], [5.0, 14.0]]), atol=1e-5))
    True
    """
    rows, size = factor.shape
    if not size:
        return factor
    if size > WRITTEN_OUT:
        return _add_outer_by_columns(factor, vector)
    zero = jnp.zeros((), factor.dtype)
    rest, columns = list(vector), []
    for k in range(size):
        length = jnp.sqrt(factor[k, k] ** 2 + rest[k] ** 2)
        cosine, sine = factor[k, k] / length, rest[k] / length
        below = range(k + 1, rows)
        columns.append(jnp.stack([*[zero] * k, length, *(cosine * factor[i, k] + sine * rest[i] for i in below)]))
        rest[k + 1 :] = [cosine * rest[i] - sine * factor[i, k] for i in below]
    return jnp.stack(columns, axis=1)


def _add_outer_by_columns(factor: Float[Array, "m n"], vector: Float[Array, " m"]) -> Float[Array, "m n"]:
    """Turn one column after the other."""
    Turned = tuple[Float[Array, "m n"], Float[Array, " m"]]

    def turn(k: Int[Array, ""], state: Turned) -> Turned:
        factor, rest = state
        column = factor[:, k]
        length = jnp.sqrt(column[k] ** 2 + rest[k] ** 2)
        cosine, sine = column[k] / length, rest[k] / length
        # Above the diagonal, the factor and what is left of the vector are zero already.
        return factor.at[:, k].set(cosine * column + sine * rest), (cosine * rest - sine * column).at[k].set(0)

    return jnp.asarray(jax.lax.fori_loop(0, factor.shape[1], turn, (factor, vector))[0])


def _cholesky_by_columns(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Take one column after the other off what is left of the matrix."""
    matrix, columns = _apart(matrix), []
    for k in range(matrix.shape[0]):
        column = matrix[:, 0] * jax.lax.rsqrt(matrix[0, 0])
        matrix = matrix[1:, 1:] - column[1:, None] * column[None, 1:]
        columns.append(jnp.concatenate([jnp.zeros(k, column.dtype), column]))
    return _apart(jnp.stack(columns, axis=1))


def _apart(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Keep the compiler from fusing what comes before with what comes after, and computing it again for each use."""
    return jnp.asarray(jax.lax.optimization_barrier(matrix))  # type: ignore[no-untyped-call]


def _cholesky_in_a_loop(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Fill the factor from the left: a column is what the columns before it leave of the matrix."""
    rows = jnp.arange(matrix.shape[0])

    def fill(j: Int[Array, ""], factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
        left = matrix[:, j] - jnp.sum(factor * factor[j][None], axis=1)
        return factor.at[:, j].set(jnp.where(rows >= j, left * jax.lax.rsqrt(left[j]), 0))

    return jnp.asarray(jax.lax.fori_loop(0, matrix.shape[0], fill, jnp.zeros_like(matrix)))


def _solve_by_rows(
    factor: Float[Array, "n n"], vector: Float[Array, " n"], order: Int[Array, " n"]
) -> Float[Array, " n"]:
    """Solve for one unknown after the other, in an order in which each row has one that is new."""

    def solve(step: Int[Array, ""], solved: Float[Array, " n"]) -> Float[Array, " n"]:
        i = order[step]
        return solved.at[i].set((vector[i] - jnp.sum(factor[i] * solved)) / factor[i, i])

    nothing = jnp.zeros(vector.shape, jnp.result_type(factor, vector))  # live states are float64, models float32
    return jnp.asarray(jax.lax.fori_loop(0, len(order), solve, nothing))
