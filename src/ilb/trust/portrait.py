"""What a model has learned of the people of a table, as plain values: where they are, what that means, what helps."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr, ndtri

from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward, canonical_basis
from ilb.trust.beliefs import Beliefs, believe

MOST_DIRECTIONS, LEAST_SHARE = 3, 0.03
"""Directions that are told of, and the share of the differences between people that one must account for."""

WIDTH = float(ndtri(0.975))


class Spread(NamedTuple):
    """A number with its 95 % interval, under a name; bounds are NaN where they are not known."""

    name: str
    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


class Direction(NamedTuple):
    """A direction in which people differ, by what the model expects of the actions for them.

    `share` is how much of these differences it accounts for. `scores` say where everybody is, in standard deviations.
    `columns` are correlations of the scores with each person's mean of a context column, the strongest first.
    `effects` say what one standard deviation more adds to the expected reward of each action.
    """

    share: float
    scores: Float[np.ndarray, " I"]
    columns: tuple[Spread, ...]
    effects: tuple[Spread, ...]


class ActionLine(NamedTuple):
    """What is known of an action: its rows and mean reward in the logs, and what the model says of it.

    `average` is the reward of an average person with its interval, `spread` the standard deviation over people of what
    is expected, `noise` that of one reward around it, `best_for` the share of people for whom it is best.
    """

    action: Hashable
    rows: int
    logged: float
    average: Spread
    spread: float
    noise: float
    best_for: float


@dataclass(frozen=True)
class Portrait:
    """Everybody in a table as the model sees them after all their rows.

    `expected` are the rewards expected of each action, `best` the action with the largest, `lead` by how much it is
    ahead of the next, and `sureness` the probability that it really is better than that one.
    """

    people: tuple[Hashable, ...]
    expected: Float[np.ndarray, "I K"]
    best: Int[np.ndarray, " I"]
    lead: Float[np.ndarray, " I"]
    sureness: Float[np.ndarray, " I"]
    directions: tuple[Direction, ...]
    actions: tuple[ActionLine, ...]

    @property
    def usual(self) -> int:
        """The action that is best for most people."""
        return int(np.bincount(self.best, minlength=self.expected.shape[1]).argmax())


def portray(model: LatentModel, logs: Logs) -> Portrait:
    """Look at everybody in the logs with the model, and say what sets them apart.

    Directions are the principal ones of what is expected of the actions, less each person's level: they do not depend
    on the basis of the latent state, which the theorem leaves open.
    """
    logs = model.read(logs)
    every = np.ones(logs.rows, dtype=bool)
    beliefs = believe(model, logs, every, every)
    best, second = _first_two(beliefs.mean)
    lead, variance = beliefs.difference(np.arange(logs.instances), best, second)
    sureness = ndtr(lead / np.sqrt(np.maximum(variance, 1e-24)))
    return Portrait(
        logs.instance_labels,
        beliefs.mean,
        best,
        lead,
        np.asarray(sureness),
        _directions(model, logs, beliefs),
        _action_lines(model, logs, beliefs, best),
    )


def _first_two(expected: Float[np.ndarray, "I K"]) -> tuple[Int[np.ndarray, " I"], Int[np.ndarray, " I"]]:
    if expected.shape[1] == 1:
        only = np.zeros(len(expected), dtype=np.int64)
        return only, only
    order = np.argsort(-expected, axis=1, kind="stable")
    return order[:, 0], order[:, 1]


def _directions(model: LatentModel, logs: Logs, beliefs: Beliefs) -> tuple[Direction, ...]:
    spread = beliefs.mean - beliefs.mean.mean(axis=0)
    contrasts = spread - spread.mean(axis=1, keepdims=True)
    # Where people differ in their level alone, the level is all there is to show.
    shown = contrasts if np.sum(contrasts**2) > 1e-3 * np.sum(spread**2) else spread
    total = float(np.sum(shown**2))
    if logs.instances < 3 or total <= 1e-12 * max(float(np.sum(beliefs.mean**2)), 1e-12):
        return ()
    left, sizes, _ = np.linalg.svd(shown, full_matrices=False)
    shares = sizes**2 / total
    found = [number for number in range(min(MOST_DIRECTIONS, len(shares))) if shares[number] >= LEAST_SHARE]
    means = _person_means(logs)
    directions = []
    for number in found:
        scores = left[:, number] * np.sqrt(logs.instances)
        columns = _associations(scores, means, logs.schema.names)
        effects = _effects(model, logs, beliefs, scores)
        leading = columns[0] if columns else max(effects, key=lambda effect: abs(effect.value))
        if leading.value < 0:  # a sign is nobody's choice, so let the strongest be positive
            scores = -scores
            columns, effects = (tuple(map(_turned, spreads)) for spreads in (columns, effects))
        directions.append(Direction(float(shares[number]), scores, columns, effects))
    return tuple(directions)


def _turned(one: Spread) -> Spread:
    return Spread(one.name, -one.value, -one.high, -one.low)


def _person_means(logs: Logs) -> Float[np.ndarray, "I d"]:
    sums = np.zeros((logs.instances, logs.width))
    np.add.at(sums, logs.instance, logs.context.astype(np.float64))
    return np.asarray(sums / np.maximum(logs.lengths, 1)[:, None])


def _associations(
    scores: Float[np.ndarray, " I"], means: Float[np.ndarray, "I d"], names: tuple[str, ...]
) -> tuple[Spread, ...]:
    """Give the correlation of scores with each column, with the interval of Fisher's transformation."""
    found = []
    for name, values in zip(names, means.T, strict=True):
        if values.std() <= 1e-9 or len(scores) < 4:
            continue
        value = float(np.clip(np.corrcoef(scores, values)[0, 1], -1, 1))
        middle, half = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12)), WIDTH / np.sqrt(len(scores) - 3)
        found.append(Spread(name, value, float(np.tanh(middle - half)), float(np.tanh(middle + half))))
    return tuple(sorted(found, key=lambda one: -abs(one.value)))


def _effects(model: LatentModel, logs: Logs, beliefs: Beliefs, scores: Float[np.ndarray, " I"]) -> tuple[Spread, ...]:
    """Give what one more standard deviation of the scores adds to each action, as sure as the coefficients are."""
    centred = scores - scores.mean()
    values = centred @ (beliefs.mean - beliefs.mean.mean(axis=0)) / max(float(centred @ centred), 1e-12)
    half = np.full(logs.actions, np.nan)
    if isinstance(model.reward, LinearReward):
        step = centred @ (beliefs.state - beliefs.state.mean(axis=0)) / max(float(centred @ centred), 1e-12)
        half = WIDTH * _standard_errors(model.reward, np.r_[_in_own_basis(model, step), 0.0])
    labels = logs.schema.actions
    return tuple(
        Spread(str(labels[a]), float(values[a]), float(values[a] - half[a]), float(values[a] + half[a]))
        for a in range(logs.actions)
    )


def _in_own_basis(model: LatentModel, step: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """Bring a step in the basis of `Calibration` back to that of the encoder."""
    n = model.encoded_dim
    noise, population = (
        np.asarray(part, np.float64) for part in (model.noise.encoding_covariance, model.noise.population_covariance)
    )
    shown = canonical_basis(noise, population[:n, :n]).back @ step[:n]
    return np.concatenate([shown, step[n:]])


def _standard_errors(reward: LinearReward, phi: Float[np.ndarray, " coefficients"]) -> Float[np.ndarray, " K"]:
    covariance = np.asarray(reward.coefficient_covariance, np.float64)
    return np.asarray(np.sqrt(np.maximum(np.einsum("i,aij,j->a", phi, covariance, phi), 0.0)))


def _action_lines(
    model: LatentModel, logs: Logs, beliefs: Beliefs, best: Int[np.ndarray, " I"]
) -> tuple[ActionLine, ...]:
    known = logs.rewarded
    rows = np.bincount(logs.action[known], minlength=logs.actions)
    sums = np.bincount(logs.action[known], weights=logs.reward[known], minlength=logs.actions)
    average, half = beliefs.mean.mean(axis=0), np.full(logs.actions, np.nan)
    if isinstance(model.reward, LinearReward):
        mean = np.asarray(model.noise.population_mean, np.float64)
        average = np.asarray(model.reward.theta, np.float64) @ mean + np.asarray(model.reward.intercept, np.float64)
        half = WIDTH * _standard_errors(model.reward, np.r_[mean, 1.0])
    noise = np.sqrt(np.asarray(model.noise.reward_variance, np.float64))
    return tuple(
        ActionLine(
            label,
            int(rows[a]),
            float(sums[a] / rows[a]) if rows[a] else float("nan"),
            Spread(str(label), float(average[a]), float(average[a] - half[a]), float(average[a] + half[a])),
            float(beliefs.mean[:, a].std()),
            float(noise[a]),
            float(np.mean(best == a)),
        )
        for a, label in enumerate(logs.schema.actions)
    )
