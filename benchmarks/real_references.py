"""What anybody could write in ten lines: predictions one step ahead, for `benchmarks.real_tables` to compare ours with.

Every reference takes the logs to learn from and those of other people, in which each row has a reward, and forecasts
each of their rewards from earlier rows of the same person, and the action, contexts and time at hand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import qr
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, cross_val_predict

from ilb.logs import Logs

Values: TypeAlias = Float[np.ndarray, " rows"]
Features: TypeAlias = Float[np.ndarray, "rows features"]
People: TypeAlias = Int[np.ndarray, " rows"]

TINY = 1e-9

MOST_GROUPS = 1000
"""People that the mixed model learns from: statsmodels goes through them one by one in each of its many steps."""


class Forecast(NamedTuple):
    """The mean and standard deviation of each reward before it is known."""

    mean: Values
    std: Values


class Components(NamedTuple):
    """How far people's levels vary, and how far the rewards of one person do around their level: variances."""

    between: float
    within: float

    @classmethod
    def of(cls, person: People, residual: Values) -> Components:
        """Estimate both by moments: the mean of n rewards varies by between + within / n."""
        rows = np.bincount(person)
        level = np.bincount(person, weights=residual) / rows
        within = max(np.sum((residual - level[person]) ** 2) / max(np.sum(rows - 1), 1), TINY)
        return cls(max(float(np.var(level) - within * np.mean(1 / rows)), TINY), float(within))

    def forecast(self, person: People, reward: Values, fixed: Values) -> Forecast:
        """Add what is known of a person's level by then: the mean of what is left of earlier rewards, shrunk."""
        count, total = so_far(person, reward - fixed)
        pooled = self.within + count * self.between
        mean = fixed + self.between / pooled * total
        return Forecast(mean, np.sqrt(self.within + self.between * self.within / pooled))


def so_far(group: People, values: Values) -> tuple[Values, Values]:
    """Count and add up the values of the same group in earlier rows."""
    order = np.argsort(group, kind="stable")
    sorted_group, sorted_values = group[order], values[order]
    first = np.flatnonzero(np.r_[True, np.diff(sorted_group) != 0])
    lengths = np.diff(np.r_[first, len(group)])
    before = np.cumsum(sorted_values) - sorted_values
    count, total = np.empty((2, len(group)))
    count[order] = np.arange(len(group)) - np.repeat(first, lengths)
    total[order] = before - np.repeat(before[first], lengths)
    return count, np.where(count > 0, total, 0.0)


def action_means(logs: Logs) -> Float[np.ndarray, " K"]:
    counts = np.bincount(logs.action, minlength=logs.actions)
    return np.asarray(np.bincount(logs.action, weights=logs.reward, minlength=logs.actions) / np.maximum(counts, 1))


def action_mean(train: Logs, test: Logs) -> Forecast:
    means = action_means(train)
    return Forecast(means[test.action], np.full(test.rows, np.std(train.reward - means[train.action])))


def own_level(train: Logs, test: Logs) -> Forecast:
    """A random intercept for each person around the means of the actions."""
    means = action_means(train)
    components = Components.of(train.instance, train.reward - means[train.action])
    return components.forecast(test.instance, test.reward, means[test.action])


class PersonActions(NamedTuple):
    """A Gaussian over what each action gives one person, with a full covariance between actions, and noise on top."""

    mean: Float[np.ndarray, " K"]
    covariance: Float[np.ndarray, "K K"]
    noise: float

    @classmethod
    def fit(cls, logs: Logs, steps: int = 60) -> PersonActions:
        """Learn it by EM from the sums over each person and action."""
        person, action, reward = logs.instance, logs.action, logs.reward.astype(np.float64)
        counts, sums = np.zeros((2, logs.instances, logs.actions))
        np.add.at(counts, (person, action), 1)
        np.add.at(sums, (person, action), reward)
        variance = max(float(np.var(reward)), TINY)
        model = cls(action_means(logs), variance * (0.5 * np.eye(logs.actions) + 0.3), 0.5 * variance)
        for _ in range(steps):
            effect, doubt = model.posterior(counts, sums - counts * model.mean)
            covariance = (doubt + effect[:, :, None] * effect[:, None, :]).mean(axis=0) + 1e-6 * np.eye(logs.actions)
            mean = np.sum(sums - counts * effect, axis=0) / np.maximum(counts.sum(axis=0), 1)
            error = reward - mean[action] - effect[person, action]
            spread = np.sum(counts * np.einsum("ikk->ik", doubt))
            model = cls(mean, covariance, float(np.sum(error**2) + spread) / logs.rows)
        return model

    def posterior(
        self, counts: Float[np.ndarray, "people K"], residuals: Float[np.ndarray, "people K"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Give the mean and covariance of people's effects, given counts and sums of what they got above the mean."""
        seen = (counts / self.noise)[:, :, None] * np.eye(len(self.mean))
        doubt = np.linalg.inv(np.linalg.inv(self.covariance) + seen)
        return np.einsum("ikl,il->ik", doubt, residuals / self.noise), doubt

    def forecast(self, logs: Logs) -> Forecast:
        counts, residuals = np.zeros((2, logs.instances, logs.actions))
        mean, std = np.empty((2, logs.rows))
        for time in range(int(logs.lengths.max())):
            person = np.flatnonzero(logs.lengths > time)
            row = logs.starts[person] + time
            action = logs.action[row]
            effect, doubt = self.posterior(counts[person], residuals[person])
            each = np.arange(len(person))
            mean[row] = self.mean[action] + effect[each, action]
            std[row] = np.sqrt(doubt[each, action, action] + self.noise)
            counts[person, action] += 1
            residuals[person, action] += logs.reward[row] - self.mean[action]
        return Forecast(mean, std)


def person_by_action(train: Logs, test: Logs) -> Forecast:
    return PersonActions.fit(train).forecast(test)


def moments(train: Logs, test: Logs) -> tuple[Features, Features]:
    """Give contexts and time of the rows; the time is scaled by the training rows."""
    found = []
    for logs in (train, test):
        clock = np.zeros((logs.rows, 0)) if logs.clock is None or train.clock is None else logs.clock[:, None]
        found.append(np.c_[logs.context.astype(np.float64), clock])
    if train.clock is not None:
        centre, scale = np.mean(train.clock), max(np.std(train.clock), TINY)
        for features in found:
            features[:, -1] = (features[:, -1] - centre) / scale
    return found[0], found[1]


def _linear_features(train: Logs, test: Logs) -> tuple[Features, Features]:
    moment, other_moment = moments(train, test)
    actions = np.eye(train.actions)
    return np.c_[actions[train.action], moment], np.c_[actions[test.action], other_moment]


def _ridge_fits(train: Logs, test: Logs) -> tuple[Values, Values]:
    features, other_features = _linear_features(train, test)
    regression = RidgeCV(np.logspace(-2, 4, 13)).fit(features, train.reward)
    return regression.predict(features), regression.predict(other_features)


def ridge(train: Logs, test: Logs) -> Forecast:
    """Ridge regression on the action, contexts and time."""
    fitted, predicted = _ridge_fits(train, test)
    return Forecast(predicted, np.full(test.rows, np.std(train.reward - fitted)))


def ridge_and_level(train: Logs, test: Logs) -> Forecast:
    fitted, predicted = _ridge_fits(train, test)
    return Components.of(train.instance, train.reward - fitted).forecast(test.instance, test.reward, predicted)


def history(logs: Logs, means: Float[np.ndarray, " K"]) -> Features:
    """Give, from earlier rows of the same person: rows, mean above the actions', last reward, mean of this action."""
    reward = logs.reward.astype(np.float64)
    count, total = so_far(logs.instance, reward - means[logs.action])
    same_count, same_total = so_far(logs.instance.astype(np.int64) * logs.actions + logs.action, reward)
    last = np.r_[np.nan, reward[:-1]]
    with np.errstate(invalid="ignore"):
        own, same = total / count, same_total / same_count
    return np.column_stack([count, own, np.where(count > 0, last, np.nan), same])


def _boost(train: Logs, features: Features, other_features: Features) -> Forecast:
    """Boost trees, and see how far off they are on people left out; the first column is the action's number."""
    known = ~np.all(np.isnan(features), axis=0)
    features, other_features = features[:, known], other_features[:, known]
    trees = HistGradientBoostingRegressor(categorical_features=[0], random_state=0)
    folds = GroupKFold(min(3, train.instances))
    left_out = cross_val_predict(trees, features, train.reward, groups=train.instance, cv=folds)
    predicted = trees.fit(features, train.reward).predict(other_features)
    return Forecast(predicted, np.full(len(predicted), np.std(train.reward - left_out)))


def boosting(train: Logs, test: Logs) -> Forecast:
    """Boosted trees on the action, contexts and time."""
    moment, other_moment = moments(train, test)
    return _boost(train, np.c_[train.action, moment], np.c_[test.action, other_moment])


def boosting_and_history(train: Logs, test: Logs) -> Forecast:
    moment, other_moment = moments(train, test)
    means = action_means(train)
    features = np.c_[train.action, moment, history(train, means)]
    return _boost(train, features, np.c_[test.action, other_moment, history(test, means)])


def mixed_model(train: Logs, test: Logs) -> Forecast:
    """MixedLM of statsmodels: a random intercept for each person, fixed effects of actions, contexts and time."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    train = some_people(train, MOST_GROUPS)
    features, other_features = _linear_features(train, test)
    independent = _independent_columns(features)
    features, other_features = features[:, independent], other_features[:, independent]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted: Any = MixedLM(train.reward.astype(np.float64), features, groups=train.instance).fit()
    components = Components(max(float(np.asarray(fitted.cov_re)[0, 0]), TINY), float(fitted.scale))
    return components.forecast(test.instance, test.reward, other_features @ np.asarray(fitted.fe_params))


def some_people(logs: Logs, number: int) -> Logs:
    """Take at most so many of the people, drawn at random."""
    if logs.instances <= number:
        return logs
    return logs.select(np.sort(np.random.default_rng(0).permutation(logs.instances)[:number]))


def _independent_columns(features: Features) -> Int[np.ndarray, " kept"]:
    """Find columns that no others add up to, as one-hot categories beside one-hot actions do."""
    triangle, pivots = qr(features, mode="r", pivoting=True)
    size = np.abs(np.diag(triangle))
    return np.sort(pivots[: np.count_nonzero(size > 1e-8 * size[0])])


REFERENCES: dict[str, Callable[[Logs, Logs], Forecast]] = {
    "action mean": action_mean,
    "own level": own_level,
    "person × action": person_by_action,
    "ridge": ridge,
    "ridge + own level": ridge_and_level,
    "boosting": boosting,
    "boosting + history": boosting_and_history,
    "mixed model": mixed_model,
}
