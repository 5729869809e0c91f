"""What the estimator of the person model needs of a table: sums, and who is known equally well."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real
from scipy import sparse

FEW_KINDS = 8
"""With so many people of a kind on average, the people of each are taken together."""


class PersonSums(NamedTuple):
    """All that the estimator needs of a table: sums over cells (person, action), actions and people."""

    person: Int[np.ndarray, " cells"]
    action: Int[np.ndarray, " cells"]
    rows: Float[np.ndarray, " cells"]
    reward_sum: Float[np.ndarray, " cells"]
    moment_sum: Float[np.ndarray, "cells d"]
    reward_square: Float[np.ndarray, " K"]
    moment_reward: Float[np.ndarray, "K d"]
    moment_square: Float[np.ndarray, "K d d"]
    contexts: Float[np.ndarray, " I"]
    encoding_sum: Float[np.ndarray, "I n"]
    encoding_precision: Float[np.ndarray, "n n"]

    @property
    def people(self) -> int:
        return len(self.contexts)

    @property
    def actions(self) -> int:
        return len(self.reward_square)

    @classmethod
    def of_rows(
        cls,
        person: Int[np.ndarray, " rows"],
        action: Int[np.ndarray, " rows"],
        reward: Float[np.ndarray, " rows"],
        moment: Float[np.ndarray, "rows d"],
        actions: int,
        contexts: Real[np.ndarray, " I"],
        encoding_sum: Float[np.ndarray, "I n"],
        encoding_covariance: Float[np.ndarray, "n n"],
    ) -> PersonSums:
        """Sum the rows that have a reward; `contexts` and `encoding_sum` are of all rows of each person."""
        code = person.astype(np.int64) * actions + action
        cells, index, rows = np.unique(code, return_inverse=True, return_counts=True)
        gather = incidence(index, len(cells))
        of_action = [np.flatnonzero(action == a) for a in range(actions)]
        return cls(
            cells // actions,
            cells % actions,
            rows.astype(np.float64),
            gather @ reward,
            gather @ moment,
            np.bincount(action, weights=reward**2, minlength=actions),
            np.stack([moment[rows].T @ reward[rows] for rows in of_action]),
            np.stack([moment[rows].T @ moment[rows] for rows in of_action]),
            contexts.astype(np.float64),
            encoding_sum,
            np.linalg.inv(encoding_covariance),
        )


class Kinds(NamedTuple):
    """People who had the same actions as often, and as many contexts: one covariance serves them all."""

    of: Int[np.ndarray, " I"]
    size: Int[np.ndarray, " kinds"]
    placed: sparse.csr_matrix
    """The cells of the first of each kind, with a row for each kind and a column for each action."""

    @classmethod
    def among(cls, sums: PersonSums) -> Kinds:
        cells = np.arange(len(sums.person))
        placed = sparse.csr_matrix((cells, (sums.person, sums.action)), (sums.people, sums.actions))
        had = np.stack([placed.indices.astype(np.float64), sums.rows[placed.data]], axis=1)
        found: dict[bytes, int] = {}
        numbers = np.empty(sums.people, dtype=np.int64)
        first: list[int] = []
        for person, (start, stop) in enumerate(itertools.pairwise(placed.indptr.tolist())):
            number = found.setdefault(sums.contexts[person].tobytes() + had[start:stop].tobytes(), len(found))
            numbers[person] = number
            if number == len(first):
                first.append(person)
        return cls(numbers, np.bincount(numbers, minlength=len(first)), placed[first])

    def by_action(self, values: Float[np.ndarray, " cells"]) -> sparse.csr_matrix:
        """Put a value for each cell, which people of a kind share, into a matrix of kinds and actions."""
        columns, starts = self.placed.indices, self.placed.indptr
        return sparse.csr_matrix((values[self.placed.data], columns, starts), self.placed.shape)

    def times(
        self, matrices: Float[np.ndarray, "kinds p p"], vectors: Float[np.ndarray, "I p"]
    ) -> Float[np.ndarray, "I p"]:
        """Multiply the vector of each person by the matrix of their kind."""
        if FEW_KINDS * len(self.size) > len(self.of):
            return np.asarray((matrices[self.of] @ vectors[:, :, None])[:, :, 0])
        order, product = np.argsort(self.of, kind="stable"), np.empty_like(vectors)
        for matrix, people in zip(matrices, np.split(order, np.cumsum(self.size)[:-1]), strict=True):
            product[people] = vectors[people] @ matrix.T
        return product


def incidence(index: Int[np.ndarray, " items"], groups: int) -> sparse.csr_matrix:
    """Give the matrix that sums items by group."""
    return sparse.csr_matrix((np.ones(len(index)), (index, np.arange(len(index)))), (groups, len(index)))


def summed_squares(
    group: Int[np.ndarray, " items"], groups: int, rows: Float[np.ndarray, "items d"]
) -> Float[np.ndarray, "groups d d"]:
    """Sum the outer products of rows by group."""
    total = np.zeros((groups, rows.shape[1], rows.shape[1]))
    order = np.argsort(group, kind="stable")
    found, first = np.unique(group[order], return_index=True)
    for number, mine in zip(found, np.split(rows[order], first[1:]), strict=True):
        total[number] = mine.T @ mine
    return total
