"""One step ahead: each reward of a person predicted from the context at hand and that person's own past alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import ndtri

from ilb.estimates import Estimate, r_squared, standard_error
from ilb.logs import Logs
from ilb.models.calibration import Calibration
from ilb.models.drift import NO_DRIFT, Drift
from ilb.models.latent import LatentModel, LinearReward
from ilb.models.moments import AbstractMoment
from ilb.networks import padded_size
from ilb.offline.encodings import encode_contexts

CHUNK = 1 << 14

LEVELS, LEAST_RESIDUALS = 200, 500
"""Quantiles of residuals that are kept, and the number of residuals they need."""


class Predictions(NamedTuple):
    """What was expected of each rewarded row of the logs, and how far off it may be; `rows` says which rows.

    `std` is that of the reward itself, its noise included.
    """

    rows: Int[np.ndarray, " predictions"]
    person: Int[np.ndarray, " predictions"]
    reward: Float[np.ndarray, " predictions"]
    mean: Float[np.ndarray, " predictions"]
    std: Float[np.ndarray, " predictions"]
    quantiles: Float[np.ndarray, " levels"] = np.zeros(0)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Give the bounds that hold so large a share of rewards; their shape is that of held-out people's."""
        tail = (1 - level) / 2
        if not len(self.quantiles):
            low, high = np.asarray(ndtri([tail, 1 - tail]))
        else:
            levels = (np.arange(len(self.quantiles)) + 0.5) / len(self.quantiles)
            low, high = np.interp([tail, 1 - tail], levels, self.quantiles)
        return self.mean + low * self.std, self.mean + high * self.std

    def residual_quantiles(self) -> Float[np.ndarray, " levels"]:
        """Give the quantiles of standardised residuals; few of them say no more than that rewards may be normal."""
        if len(self.reward) < LEAST_RESIDUALS:
            return np.zeros(0)
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        return np.asarray(np.quantile((self.reward - self.mean) / self.std, levels))

    @property
    def log_likelihood(self) -> Float[np.ndarray, " predictions"]:
        """The log-density of each reward, if it is normal."""
        error = (self.reward - self.mean) / self.std
        return np.asarray(-0.5 * (error**2 + np.log(2 * np.pi)) - np.log(self.std))

    @property
    def squared_error(self) -> Float[np.ndarray, " predictions"]:
        return np.asarray((self.reward - self.mean) ** 2)

    def of_people(self, number: int) -> Predictions:
        """Number people so that they are told from those of other tables, by the number of theirs."""
        return self._replace(person=self.person.astype(np.int64) + (number << 32))


class AheadScores(NamedTuple):
    """How good predictions one step ahead are: R², log-likelihood of a reward, and how often intervals hold it."""

    r_squared: Estimate
    log_likelihood: Estimate
    covered_80: Estimate
    covered_95: Estimate


def score_ahead(predictions: Predictions) -> AheadScores:
    """Score predictions, with standard errors over people, whose rewards are not independent."""
    reward, person = predictions.reward, predictions.person
    inside = []
    for level in (0.8, 0.95):
        low, high = predictions.interval(level)
        inside.append(mean_by_person(((low <= reward) & (reward <= high)).astype(np.float64), person))
    return AheadScores(
        r_squared(predictions.mean, reward, person), mean_by_person(predictions.log_likelihood, person), *inside
    )


def lead(first: Predictions, second: Predictions) -> Estimate:
    """Give by how much the first has the higher log-likelihood of a reward; people are the independent units."""
    return mean_by_person(first.log_likelihood - second.log_likelihood, first.person)


def mean_by_person(values: Float[np.ndarray, " predictions"], person: Int[np.ndarray, " predictions"]) -> Estimate:
    """Average over all rewards, with the standard error over people."""
    _, group = np.unique(person, return_inverse=True)
    rows, total = np.bincount(group), np.bincount(group, weights=values)
    mean = total.sum() / rows.sum()
    return Estimate(float(mean), float(standard_error((total - mean * rows) * len(rows) / rows.sum())), len(rows))


def join(parts: Sequence[Predictions]) -> Predictions:
    """Put predictions of different people together."""
    columns = zip(*(part[:5] for part in parts), strict=True)
    return Predictions(*(np.concatenate(column) for column in columns))


def predict_ahead(model: LatentModel, logs: Logs, *, rounds: int | None = None) -> Predictions:
    """Predict each reward in the logs from what was known just before it, as a live decision would.

    The belief is the calibrated one: contexts so far, the one at hand included, and the person's rewards so far.
    `rounds` stops after so many rewards of each person.
    """
    logs.require_any_reward()
    if isinstance(model.reward, LinearReward):
        return Foresight(model, logs).predict(rounds=rounds)
    return _from_mean_encodings(model, model.read(logs), rounds)


class Foresight:
    """Predictions of the same people in one way after another: what encoder and moment say is computed once."""

    def __init__(self, model: LatentModel, logs: Logs) -> None:
        self.model, self._shown = model, _Shown.of(model, model.read(logs))

    def predict(self, drift: Drift = NO_DRIFT, rounds: int | None = None, *, from_rewards: bool = True) -> Predictions:
        """Predict as `predict_ahead` does, with people who change in this way; or as if no reward had come back."""
        predictions = _Past(drift.apply(self.model), self._shown).predict(rounds, from_rewards)
        return predictions._replace(quantiles=np.asarray(self.model.noise.reward_quantiles, np.float64))


class _Shown(NamedTuple):
    """What contexts show of everyone, and what the moments leave of their rewards."""

    logs: Logs
    encodings: Float[np.ndarray, "rows n"]
    left: Float[np.ndarray, " rows"]

    @classmethod
    def of(cls, model: LatentModel, logs: Logs) -> _Shown:
        left = logs.reward.astype(np.float64) - moment_effects(model.moment, logs)
        return cls(logs, encode_contexts(model.encoder, logs.context), left)


class _Past:
    """The calibrated belief of `CalibratedBelief` about everyone at once, in float64, moved on round by round.

    What changes in a round is one context and one reward of each person, so precisions and information are updated, not
    computed anew; unless people are forgotten, when all weights change.
    """

    def __init__(self, model: LatentModel, shown: _Shown) -> None:
        assert isinstance(model.reward, LinearReward)
        numbers = Calibration.of(model, model.reward)
        logs = self.logs = shown.logs
        self.left = shown.left
        self.theta, self.intercept = numbers.theta, numbers.intercept
        self.noise, self.own = numbers.reward_variance, numbers.own_variance
        self.encodings = shown.encodings @ numbers.matrix + numbers.shift
        people, actions, dim = logs.instances, logs.actions, self.theta.shape[1]
        self.shown = self.encodings.shape[1]
        self.memory, self.prior = float(model.noise.memory), numbers.prior_precision
        self.outer = (self.theta[:, :, None] * self.theta[:, None, :]).reshape(actions, -1)
        self.precision = np.tile(np.diag(self.prior), (people, 1, 1))
        self.information = np.zeros((people, dim))
        self.rounds, self.encoding_sum = np.zeros(people), np.zeros((people, self.shown))
        self.pulls, self.sums = np.zeros((2, people, actions))

    def predict(self, rounds: int | None, from_rewards: bool) -> Predictions:
        logs = self.logs
        rewarded = _first_rewards(logs, rounds)
        # Nobody is followed beyond the last reward that is asked for.
        lengths = np.zeros(logs.instances, dtype=np.int64)
        np.maximum.at(lengths, logs.instance[rewarded], logs.time[rewarded] + 1)
        mean, variance = np.full((2, logs.rows), np.nan)
        longest_first = np.argsort(-lengths, kind="stable")
        going_on = np.searchsorted(-lengths[longest_first], -np.arange(lengths.max()), side="left")
        for time, people in enumerate(going_on):
            person = longest_first[:people]
            row = logs.starts[person] + time
            self._see(person, row)
            told = rewarded[row]
            if np.any(told):
                person, row = person[told], row[told]
                mean[row], variance[row] = self._expect(person, logs.action[row])
                if from_rewards:
                    self._learn(person, row)
        rows = np.flatnonzero(rewarded)
        reward = logs.reward[rows].astype(np.float64)
        moment = reward - self.left[rows]
        return Predictions(rows, logs.instance[rows], reward, mean[rows] + moment, np.sqrt(variance[rows]))

    def _see(self, person: Int[np.ndarray, " people"], row: Int[np.ndarray, " people"]) -> None:
        if self.memory < 1:
            self._fade(person)
            self.rounds[person] += 1
            self.encoding_sum[person] += self.encodings[row]
        shown = np.arange(self.shown)
        self.precision[person[:, None], shown, shown] += 1
        self.information[person[:, None], shown] += self.encodings[row]

    def _fade(self, person: Int[np.ndarray, " people"]) -> None:
        """Let all that was seen of these people count for less."""
        for sums in (self.rounds, self.encoding_sum, self.pulls, self.sums):
            sums[person] *= self.memory
        pooled = self.noise + self.pulls[person] * self.own
        explained = (self.pulls[person] / pooled) @ self.outer
        self.precision[person] = np.diag(self.prior) + explained.reshape(len(person), *self.precision.shape[1:])
        self.information[person] = (self.sums[person] / pooled) @ self.theta
        shown = np.arange(self.shown)
        self.precision[person[:, None], shown, shown] += self.rounds[person, None]
        self.information[person[:, None], shown] += self.encoding_sum[person]

    def _expect(
        self, person: Int[np.ndarray, " people"], action: Int[np.ndarray, " people"]
    ) -> tuple[np.ndarray, np.ndarray]:
        theta, noise, own = self.theta[action], self.noise[action], self.own[action]
        solved = np.linalg.solve(self.precision[person], np.stack([self.information[person], theta], axis=-1))
        explained, doubt = np.einsum("ip,ipk->ki", theta, solved)
        pulls = self.pulls[person, action]
        pooled = noise + pulls * own
        share = noise / pooled
        mean = self.intercept[action] + share * explained + own / pooled * self.sums[person, action]
        return mean, share**2 * doubt + own * share + noise

    def _learn(self, person: Int[np.ndarray, " people"], row: Int[np.ndarray, " people"]) -> None:
        action = self.logs.action[row]
        theta, noise, own = self.theta[action], self.noise[action], self.own[action]
        pulls, sums = self.pulls[person, action], self.sums[person, action]
        more = sums + self.left[row] - self.intercept[action]
        before, after = noise + pulls * own, noise + (pulls + 1) * own
        weight = (pulls + 1) / after - pulls / before
        self.precision[person] += weight[:, None, None] * theta[:, :, None] * theta[:, None, :]
        self.information[person] += (more / after - sums / before)[:, None] * theta
        self.pulls[person, action], self.sums[person, action] = pulls + 1, more


def _first_rewards(logs: Logs, rounds: int | None) -> Bool[np.ndarray, " rows"]:
    """Mark the rows with a reward, of each person at most the first `rounds`."""
    rewarded = logs.rewarded
    if rounds is None:
        return rewarded
    before = np.cumsum(rewarded) - rewarded
    return np.asarray(rewarded & (before - before[logs.starts[logs.instance]] < rounds))


def _from_mean_encodings(model: LatentModel, logs: Logs, rounds: int | None) -> Predictions:
    """Predict from the mean encoding so far, as CPG does: rewards that are no linear model teach it nothing."""
    encodings = encode_contexts(model.encoder, logs.context).astype(np.float64)
    sums = np.cumsum(encodings, axis=0)
    sums -= (sums - encodings)[logs.starts[logs.instance]]
    rows = np.flatnonzero(_first_rewards(logs, rounds))
    means = jnp.asarray(sums[rows] / (logs.time[rows, None] + 1), jnp.float32)
    action = logs.action[rows]
    expected = np.asarray(jax.vmap(model.encoded_reward)(means), np.float64)[np.arange(len(rows)), action]
    variance = np.asarray(model.noise.reward_variance, np.float64)[action] + float(model.noise.leftover_variance)
    mean = expected + moment_effects(model.moment, logs)[rows]
    reward, quantiles = logs.reward[rows].astype(np.float64), np.asarray(model.noise.reward_quantiles, np.float64)
    return Predictions(rows, logs.instance[rows], reward, mean, np.sqrt(variance), quantiles)


def moment_effects(moment: AbstractMoment | None, logs: Logs) -> Float[np.ndarray, " rows"]:
    """Give what the moment adds to the reward of each row; zero where no action was taken."""
    effects = np.zeros(logs.rows)
    if moment is None:
        return effects
    for first in range(0, logs.rows, CHUNK):
        piece = slice(first, min(first + CHUNK, logs.rows))
        size = min(CHUNK, padded_size(piece.stop - first))
        context = np.pad(logs.context[piece], ((0, size - (piece.stop - first)), (0, 0)))
        action = np.pad(np.maximum(logs.action[piece], 0), (0, size - (piece.stop - first)))
        effects[piece] = np.asarray(_effects(moment, jnp.asarray(context), jnp.asarray(action)))[: piece.stop - first]
    return np.where(logs.action >= 0, effects, 0.0)


def every_effect(
    moment: AbstractMoment | None, context: Float[np.ndarray, "*rows d"], actions: int
) -> Float[np.ndarray, "*rows K"]:
    """Give what the moment would add to the reward of each action in each of these contexts."""
    effects = np.zeros((*context.shape[:-1], actions))
    if moment is None:
        return effects
    flat, filled = context.reshape(-1, context.shape[-1]), effects.reshape(-1, actions)
    for first in range(0, len(flat), CHUNK):
        piece = flat[first : first + CHUNK]
        padded = np.pad(piece, ((0, min(CHUNK, padded_size(len(piece))) - len(piece)), (0, 0)))
        filled[first : first + len(piece)] = np.asarray(_every_effect(moment, jnp.asarray(padded)))[: len(piece)]
    return effects


@eqx.filter_jit
def _every_effect(moment: AbstractMoment, context: Float[Array, "rows d"]) -> Float[Array, "rows K"]:
    effects: Float[Array, "rows K"] = jax.lax.map(moment, context, batch_size=512)
    return effects


@eqx.filter_jit
def _effects(
    moment: AbstractMoment, context: Float[Array, "rows d"], action: Int[Array, " rows"]
) -> Float[Array, " rows"]:
    effects: Float[Array, " rows"] = jax.lax.map(lambda row: moment.of_action(*row), (context, action), batch_size=512)
    return effects
