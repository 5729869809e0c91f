"""Cholesky factors and triangular solves of small matrices, written out element by element.

LAPACK is called once for each matrix of a batch, which costs some thirty times the arithmetic when n is 5. Written out,
a batch of matrices is one loop over the batch with everything in registers. The program grows with n³ / 6, so larger
matrices go to LAPACK after all.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

WRITTEN_OUT = 12
"""The largest n that is written out."""


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Give the lower factor L of a positive definite matrix, L @ L.T.

    >>> bool(jnp.allclose(cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])), jnp.array([[2.0, 0.0], [1.0, 2.0]])))
    True
    """
    size = matrix.shape[0]
    if size > WRITTEN_OUT:
        return jnp.asarray(jnp.linalg.cholesky(matrix))
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
    if size > WRITTEN_OUT:
        return jsl.solve_triangular(factor, vector, lower=True)
    solved: list[Array] = []
    for i in range(size):
        rest = vector[i] - sum((factor[i, k] * solved[k] for k in range(i)), jnp.zeros((), vector.dtype))
        solved.append(rest / factor[i, i])
    return jnp.stack(solved)


def solve_upper(factor: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve L' y = v, with the same lower factor L."""
    size = factor.shape[0]
    if size > WRITTEN_OUT:
        return jsl.solve_triangular(factor, vector, lower=True, trans="T")
    solved: dict[int, Array] = {}
    for i in reversed(range(size)):
        later = sum((factor[k, i] * solved[k] for k in range(i + 1, size)), jnp.zeros((), vector.dtype))
        solved[i] = (vector[i] - later) / factor[i, i]
    return jnp.stack([solved[i] for i in range(size)])
