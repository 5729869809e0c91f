"""Boosted trees across people: what a context and an action promise, however the two play together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

FOLDS = 3


class Trees(NamedTuple):
    """Complete trees, node j going on to 2j + 1 (at most the threshold) or 2j + 2, and a number to add to their sum."""

    column: Int[np.ndarray, "trees inner"]
    threshold: Float[np.ndarray, "trees inner"]
    value: Float[np.ndarray, "trees leaves"]
    base: float


class Boosted(NamedTuple):
    """The trees of everyone, and what trees of other people predict for each row."""

    trees: Trees
    foreseen: Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class Boosting:
    """The numbers of the trees; `most_rows` are enough for them, whatever the size of the table."""

    trees: int = 150
    depth: int = 6
    leaves: int = 31
    learning_rate: float = 0.1
    leaf_rows: int = 20
    most_rows: int = 60_000

    def fit(
        self,
        context: Float[np.ndarray, "rows d"],
        action: Int[np.ndarray, " rows"],
        reward: Float[np.ndarray, " rows"],
        person: Int[np.ndarray, " rows"],
    ) -> Boosted:
        """Fit on everyone, and beside that on some people to predict the others: in sample, trees know too much."""
        import sklearn.ensemble  # noqa: F401  # slow, so not before it is needed, and loaded before its threads are limited

        # One thread: the same trees on any machine, and threads that wait for each other would burn time.
        with threadpool_limits(1, user_api="openmp"):
            return self._fit(np.concatenate([context, action[:, None]], axis=1).astype(np.float32), reward, person)

    def _fit(
        self,
        features: Float[np.ndarray, "rows columns"],
        reward: Float[np.ndarray, " rows"],
        person: Int[np.ndarray, " rows"],
    ) -> Boosted:
        people = int(person.max()) + 1
        fold = (np.random.default_rng(0).permutation(people) % FOLDS)[person]
        foreseen = np.zeros(len(reward))
        for number in range(FOLDS):
            others, held = fold != number, fold == number
            if np.any(held) and np.any(others):
                foreseen[held] = self._train(features[others], reward[others]).predict(features[held])
        return Boosted(take_trees(self._train(features, reward), self.depth), foreseen)

    def _train(self, features: np.ndarray, reward: np.ndarray) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(
            max_iter=self.trees,
            max_depth=self.depth,
            max_leaf_nodes=self.leaves,
            learning_rate=self.learning_rate,
            min_samples_leaf=self.leaf_rows,
            early_stopping=False,
            random_state=0,
        )
        if len(reward) > self.most_rows:
            some = np.random.default_rng(0).choice(len(reward), self.most_rows, replace=False)
            features, reward = features[some], reward[some]
        return model.fit(features, reward)


def take_trees(model: Any, depth: int) -> Trees:
    """Write scikit-learn's trees as complete ones: a leaf above the last level is repeated below itself."""
    inner = 2**depth - 1
    predictors = [group[0].nodes for group in model._predictors]
    column, threshold = (np.zeros((len(predictors), inner), kind) for kind in (np.int32, np.float32))
    value = np.zeros((len(predictors), inner + 1), np.float32)
    for tree, nodes in enumerate(predictors):
        column[tree], threshold[tree], value[tree] = _unfold(nodes, inner)
    return Trees(column, threshold, value, float(np.ravel(model._baseline_prediction)[0]))


def _unfold(nodes: np.ndarray, inner: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give columns, thresholds and values of one tree, level by level; both sides of a leaf are the leaf itself."""
    node = np.zeros(2 * inner + 1, np.intp)
    first = 0
    while first < inner:
        level = node[first : 2 * first + 1]
        for side, beside in (("left", 1), ("right", 2)):
            node[2 * first + beside : 4 * first + 3 : 2] = np.where(nodes["is_leaf"][level], level, nodes[side][level])
        first = 2 * first + 1
    split = nodes[node[:inner]]
    # float32 values at most the threshold in float64 are at most its rounding downwards.
    rounded = split["num_threshold"].astype(np.float32)
    rounded = np.where(rounded > split["num_threshold"], np.nextafter(rounded, np.float32(-np.inf)), rounded)
    column = np.where(split["is_leaf"], 0, split["feature_idx"])
    return column, np.where(split["is_leaf"], np.inf, rounded), nodes["value"][node[inner:]]
