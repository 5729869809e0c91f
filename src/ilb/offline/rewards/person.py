"""PersonRewardRecipe: rewards by the person model (`person_estimator`), with the moment's effects if asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from ilb.models.latent import LinearReward
from ilb.models.moments import AbstractMoment, BoostedMoment, LinearMoment
from ilb.networks import Affine
from ilb.offline.rewards.boosting import Boosting, Trees
from ilb.offline.rewards.person_estimator import STEPS, TOLERANCE, PersonModelFit, fit_person_model
from ilb.offline.rewards.person_sums import PersonSums
from ilb.offline.rewards.recipe import Population, RewardFit, RewardRecipe, RewardTask, warn_of_unseen_actions
from ilb.offline.scaling import ROUNDING, measure_columns
from ilb.offline.training import Keys
from ilb.types import Report, as_float32, silent

Moment = Literal["none", "linear", "boosted"]

AXES_ROWS = 4000
"""Rows from which the principal axes of many columns are found."""


@dataclass(frozen=True)
class PersonRewardRecipe(RewardRecipe):
    r"""Rewards from the encoding, from `hidden` coordinates that only rewards show, from the moment, and own effects.

    $r = m_a(x_t) + \theta_a^\top (z, u) + \delta_{a} + \epsilon$, by one likelihood: mean encodings are noisy, an
    action with few rewards borrows from the others, and noise is told from effects of person × action wherever the
    table can tell. `same_level` makes u a level that all actions share (a random intercept); `moment` is what the
    context at hand adds: nothing, a linear effect for each action, or beside it boosted trees of what that leaves. Of
    large tables some people are enough: at most `most_rows` rewards, and `most_work` people times the cube of their
    coordinates. A linear moment sees `most_columns` columns at most; of more, their principal axes.
    """

    hidden: int = 4
    same_level: bool = False
    moment: Moment = "none"
    own_effects: bool = True
    boosting: Boosting = field(default_factory=Boosting)
    most_rows: int = 200_000
    most_work: float = 2e8
    most_columns: int = 64
    steps: int = STEPS
    tolerance: float = TOLERANCE

    def hastened(self) -> PersonRewardRecipe:
        """Stop earlier: near enough to compare candidates."""
        return replace(self, steps=60, tolerance=10 * self.tolerance)

    def train(self, keys: Keys, tasks: Sequence[RewardTask], report: Report = silent) -> list[RewardFit]:
        del keys, report  # nothing is drawn that depends on a key
        for task in tasks:
            warn_of_unseen_actions(task)
        # Matrices are small: threads that share one of them only wait for each other.
        with threadpool_limits(1):
            return [self._fit(task) for task in tasks]

    def _fit(self, task: RewardTask) -> RewardFit:
        dim = task.mean_encodings.shape[1] + min(self.hidden, len(task.labels))
        rows = _Rows.of(task, self.most_rows, round(self.most_work / max(dim, 1) ** 3))
        axes = _principal_axes(rows.context, self.most_columns if self.moment != "none" else 0)
        moment = rows.context @ axes
        trees: Trees | None = None
        reward = rows.reward
        if self.moment == "boosted" and rows.context.shape[1]:
            # What trees are fitted to is near enough after fewer steps.
            people = self.hastened()._fit_people(task, rows, reward, moment)
            left, told = _left_unexplained(people, rows, moment), _told_of_levels(people, rows)
            trees, foreseen = self.boosting.fit(rows.context, rows.action, left, rows.person, told)
            reward = reward - foreseen
        return _complete(self._fit_people(task, rows, reward, moment), rows, trees, axes)

    def _fit_people(
        self,
        task: RewardTask,
        rows: _Rows,
        reward: Float[np.ndarray, " rows"],
        moment: Float[np.ndarray, "rows axes"],
    ) -> PersonModelFit:
        sums = PersonSums.of_rows(
            rows.person,
            rows.action,
            reward,
            moment,
            len(task.labels),
            rows.contexts,
            rows.encoding_sum,
            task.encoding_covariance / np.outer(rows.encodings.spread, rows.encodings.spread),
        )
        return fit_person_model(
            sums,
            min(self.hidden, len(task.labels)),
            same_level=self.same_level,
            own_effects=self.own_effects,
            steps=self.steps,
            tolerance=self.tolerance,
        )


class _Scale(NamedTuple):
    """How numbers were standardised: less their centre, by their spread."""

    centre: Float[np.ndarray, " columns"]
    spread: Float[np.ndarray, " columns"]

    @classmethod
    def of(cls, table: Float[np.ndarray, "rows columns"]) -> _Scale:
        return cls(*measure_columns(table, ROUNDING)) if len(table) else cls(*np.ones((2, table.shape[1])))

    def apply(self, table: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        return np.asarray((table - self.centre) / self.spread)


class _Rows(NamedTuple):
    """The rewarded rows and the encodings of a table in standard units."""

    person: Int[np.ndarray, " rows"]
    action: Int[np.ndarray, " rows"]
    reward: Float[np.ndarray, " rows"]
    context: Float[np.ndarray, "rows d"]
    contexts: Float[np.ndarray, " I"]
    encoding_sum: Float[np.ndarray, "I n"]
    rewards: _Scale
    moments: _Scale
    encodings: _Scale

    @classmethod
    def of(cls, task: RewardTask, most_rows: int, most_people: int) -> _Rows:
        assert task.rows is not None, "the person model needs the rewarded rows themselves"
        person, action, reward, context = task.rows
        means, lengths = task.mean_encodings, task.lengths
        if len(reward) > most_rows or len(lengths) > most_people:
            kept = _draw_people(person, len(lengths), most_rows, most_people)
            among = kept[person]
            person = (np.cumsum(kept) - 1)[person[among]]
            action, reward, context = action[among], reward[among], context[among]
            means, lengths = means[kept], lengths[kept]
        rewards, moments, encodings = _Scale.of(reward[:, None]), _Scale.of(context), _Scale.of(means)
        # An encoding that never varies says nothing; it must not be blown up.
        encodings = encodings._replace(spread=np.where(np.isfinite(encodings.spread), encodings.spread, 1.0))
        return cls(
            person,
            action,
            rewards.apply(reward[:, None].astype(np.float64))[:, 0],
            moments.apply(context.astype(np.float64)),
            lengths.astype(np.float64),
            encodings.apply(means) * lengths[:, None],
            rewards._replace(spread=np.where(np.isfinite(rewards.spread), rewards.spread, 1.0)),
            moments,
            encodings,
        )


def _left_unexplained(
    fitted: PersonModelFit, rows: _Rows, moment: Float[np.ndarray, "rows axes"]
) -> Float[np.ndarray, " rows"]:
    r"""Take off what is known of each person and the linear moment: all that trees could still explain.

    With V the covariance of a person's rewards and e what the linear moment leaves, this is $\sigma^2 V^{-1} e$, the
    gradient of the likelihood by the prediction. Trees of the rewards themselves would see between people, who differ
    much, what only varies within them.
    """
    actions = len(fitted.coefficients)
    _, cell = np.unique(rows.person.astype(np.int64) * actions + rows.action, return_inverse=True)
    slopes = fitted.coefficients[:, len(fitted.population_mean) + 1 :]
    return np.asarray(rows.reward - fitted.levels[cell] - np.sum(moment * slopes[rows.action], axis=1))


def _told_of_levels(fitted: PersonModelFit, rows: _Rows) -> Float[np.ndarray, " people"]:
    r"""Give how much of each person's level their own rewards tell: $n \omega^2 / (\sigma^2 + n \omega^2)$."""
    number, n = np.bincount(rows.person, minlength=len(rows.contexts)), rows.encoding_sum.shape[1]
    hidden = fitted.coefficients[rows.action, n : len(fitted.population_mean)]
    level = float(np.mean(np.sum(hidden**2, axis=1)))
    noise = float(np.mean(fitted.reward_variance[rows.action])) + fitted.own_variance
    return np.asarray(number * level / (noise + number * level))


def _principal_axes(context: Float[np.ndarray, "rows d"], most: int) -> Float[np.ndarray, "d axes"]:
    """Give the directions that a moment may depend on: the columns themselves, or the widest axes of many."""
    if context.shape[1] <= most:
        return np.eye(context.shape[1])
    if not most:
        return np.zeros((context.shape[1], 0))
    some = np.random.default_rng(0).permutation(len(context))[:AXES_ROWS]
    axes = np.linalg.svd(context[some], full_matrices=False)[2][:most].T
    # In units of their spread, so that shrinkage treats them alike.
    return np.asarray(axes / np.maximum((context @ axes).std(axis=0), 1e-9))


def _draw_people(person: Int[np.ndarray, " rows"], people: int, most_rows: int, most_people: int) -> np.ndarray:
    """Draw at most so many people, whose rewards are together at most so many."""
    order = np.random.default_rng(0).permutation(people)[:most_people]
    rewards = np.bincount(person, minlength=people)[order]
    kept = np.zeros(people, dtype=bool)
    kept[order[np.cumsum(rewards) <= most_rows]] = True
    return kept


def _complete(fitted: PersonModelFit, rows: _Rows, trees: Trees | None, axes: Float[np.ndarray, "d axes"]) -> RewardFit:
    """Go back to the units of the table."""
    (centre,), (spread,) = rows.rewards
    p, n = len(fitted.population_mean), rows.encoding_sum.shape[1]
    shift, scale = np.r_[rows.encodings.centre, np.zeros(p - n)], np.r_[rows.encodings.spread, np.ones(p - n)]
    # beta on ((v - shift) / scale, 1) becomes beta' on (v, 1).
    back = np.eye(p + 1)
    back[:p, :p] = np.diag(1 / scale)
    back[p, :p] = -shift / scale
    coefficients = spread * fitted.coefficients[:, : p + 1] @ back.T
    coefficients[:, p] += centre
    covariance = spread**2 * back @ fitted.covariance[:, : p + 1, : p + 1] @ back.T
    moment = None
    if axes.shape[1]:
        moment = _moment(spread * fitted.coefficients[:, p + 1 :] @ axes.T, rows.moments, trees, spread)
    if trees is not None:
        coefficients[:, p] += spread * trees.base
    mean, population = shift + scale * fitted.population_mean, np.outer(scale, scale) * fitted.population_covariance
    if p == 0:  # at least one coordinate, of which nothing depends
        coefficients = np.concatenate([np.zeros((len(coefficients), 1)), coefficients], axis=1)
        covariance = np.pad(covariance, ((0, 0), (1, 0), (1, 0)))
        mean, population, p = np.zeros(1), np.eye(1), 1
    reward = LinearReward(*map(as_float32, (coefficients[:, :p], coefficients[:, p], covariance)))
    variance, own = spread**2 * fitted.reward_variance, spread**2 * fitted.own_variance
    return RewardFit(reward, variance, own, population=Population(mean, population), moment=moment)


def _moment(effects: Float[np.ndarray, "K d"], scale: _Scale, trees: Trees | None, spread: float) -> AbstractMoment:
    matrix = (effects / scale.spread).T
    affine = Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(-scale.centre @ matrix, jnp.float32))
    if trees is None:
        return LinearMoment(affine)
    # Thresholds are in standard units of the contexts; the last column is the number of the action.
    centre, width = np.r_[scale.centre, 0.0], np.r_[np.where(np.isfinite(scale.spread), scale.spread, 1.0), 1.0]
    threshold = trees.threshold * width[trees.column] + centre[trees.column]
    return BoostedMoment(
        affine,
        jax.device_put(trees.column),
        as_float32(threshold),
        as_float32(spread * trees.value),
    )
