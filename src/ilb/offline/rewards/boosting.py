"""Boosted trees across people: what a context and an action promise, however the two play together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

FOLDS = 3

MOST_JUDGED = 20_000
"""Rows of people left out that say how many trees to keep."""


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
    """The numbers of the trees: at most `trees`, as many as predict people left out best.

    `most_rows` are enough for them, whatever the size of the table.
    """

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
        told: Float[np.ndarray, " people"] | None = None,
    ) -> Boosted:
        r"""Fit on everyone, and beside that on some people to predict the others: in sample, trees know too much.

        With `told`, `reward` is what is left once each person's level is known, as far as their rewards tell it; that
        share of what trees say of the level is then known without them (`likelihood_loss`).
        """
        import sklearn.ensemble  # noqa: F401  # slow, so not before it is needed, and loaded before its threads are limited

        # One thread: the same trees on any machine, and threads that wait for each other would burn time.
        with threadpool_limits(1, user_api="openmp"):
            features = np.concatenate([context, action[:, None]], axis=1).astype(np.float32)
            return self._fit(features, reward, person, np.zeros(int(person.max()) + 1) if told is None else told)

    def _fit(
        self,
        features: Float[np.ndarray, "rows columns"],
        reward: Float[np.ndarray, " rows"],
        person: Int[np.ndarray, " rows"],
        told: Float[np.ndarray, " people"],
    ) -> Boosted:
        people = int(person.max()) + 1
        fold = (np.random.default_rng(0).permutation(people) % FOLDS)[person]
        parts = [(fold != number, fold == number) for number in range(FOLDS)]
        parts = [(others, held) for others, held in parts if np.any(others) and np.any(held)]
        models = [self._train(features[others], reward[others]) for others, _ in parts]
        errors = np.zeros(self.trees + 1)  # of no tree, of one, …
        for model, (_, held) in zip(models, parts, strict=True):
            some = _rows_of_some(held, person)
            judge = partial(likelihood_loss, left=reward[some], person=person[some], told=told)
            none = np.full(len(some), np.ravel(model._baseline_prediction)[0])
            stages = [judge(none), *map(judge, model.staged_predict(features[some]))]
            # Trees stop where nothing is left to part.
            errors += np.pad(stages, (0, len(errors) - len(stages)), mode="edge")
        kept = int(np.argmin(errors)) if parts else self.trees
        foreseen = np.zeros(len(reward))
        for model, (_, held) in zip(models, parts, strict=True):
            foreseen[held] = _first(model, kept).predict(features[held])
        # Everyone's rows bear more trees than those of two folds in three.
        kept = min(round(kept * FOLDS / (FOLDS - 1)), self.trees)
        return Boosted(take_trees(_first(self._train(features, reward), kept), self.depth, self.trees), foreseen)

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


def likelihood_loss(
    predicted: Float[np.ndarray, " rows"],
    left: Float[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    told: Float[np.ndarray, " people"],
) -> float:
    r"""Give minus twice the log-likelihood, times $\sigma^2$, up to what does not depend on the prediction f.

    With V the covariance of a person's rewards and e what is to be predicted, that is $f^\top \sigma^2 V^{-1} f - 2
    f^\top \sigma^2 V^{-1} e$, and $\sigma^2 V^{-1} e$ is what is left. Squared error would take $V = \sigma^2$, and
    hold it against f that it says of people what their rewards will tell, too.
    """
    sums, rows = np.bincount(person, predicted), np.bincount(person)
    known = told[: len(rows)] * sums**2 / np.maximum(rows, 1)
    return float(predicted @ predicted - known.sum() - 2 * predicted @ left)


def _rows_of_some(held: Bool[np.ndarray, " rows"], person: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " some"]:
    """Give all rows of some of the people who are held out, drawn at random: enough to judge trees on."""
    people = np.random.default_rng(0).permutation(np.unique(person[held]))
    rows = np.bincount(person[held])[people]
    drawn = people[np.cumsum(rows) - rows < MOST_JUDGED // FOLDS]
    return np.flatnonzero(held & np.isin(person, drawn))


def _first(model: Any, number: int) -> Any:
    """Keep the first trees alone: those of a model with fewer steps."""
    model._predictors = model._predictors[:number]
    return model


def take_trees(model: Any, depth: int, number: int | None = None) -> Trees:
    """Write scikit-learn's trees as complete ones: a leaf above the last level is repeated below itself.

    With a `number`, trees that add nothing make up for those that are missing, so that shapes, and with them compiled
    programs, do not depend on how many were kept.
    """
    inner = 2**depth - 1
    predictors = [group[0].nodes for group in model._predictors]
    size = len(predictors) if number is None else number
    column, threshold = np.zeros((size, inner), np.int32), np.full((size, inner), np.inf, np.float32)
    value = np.zeros((size, inner + 1), np.float32)
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
