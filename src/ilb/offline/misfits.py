r"""How often a model is wrong for people whom it has not seen, and how: weights of the hypotheses of `ilb.models`.

Given a hypothesis, all that a person showed is Gaussian, in closed form on the sums that a live person keeps. So the
weights are those of a mixture, found by EM on people who were held out. Contexts count here as noisy as in the logs, of
which these people are a part; a live person's are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ilb.logs import Logs
from ilb.models.calibration import Calibration
from ilb.models.hypotheses import HYPOTHESES, Hypothesis, own_variances
from ilb.models.latent import LatentModel, LinearReward
from ilb.offline.ahead import moment_effects
from ilb.offline.choice import some_people
from ilb.offline.encodings import encode_contexts

RIGHT = 5.0
"""People whom the model is taken to describe, before any is asked: few people are no reason to doubt it."""

MOST_STEPS, SETTLED = 20_000, 1e-7
"""Steps of EM, and how little weights may change in one that is the last."""

MOST_CELLS = 2_000_000
"""Pairs of person and action that are asked, of each table: of thousands of actions, fewer people."""


def learn_misfits(models: Sequence[LatentModel], held_out: Sequence[Logs]) -> Float[np.ndarray, " H"]:
    """Give the share of people that each hypothesis describes, where each model meets people it has not seen.

    Empty where rewards are no linear model, which closed forms need.
    """
    pairs = list(zip(models, held_out, strict=True))
    if not all(isinstance(model.reward, LinearReward) for model, _ in pairs):
        return np.zeros(0)
    some = [(model, some_people(logs, max(MOST_CELLS // logs.actions, 1))) for model, logs in pairs]
    return mixture_weights(np.concatenate([log_likelihoods(model, logs) for model, logs in some]))


def mixture_weights(log_likelihoods: Float[np.ndarray, "people H"]) -> Float[np.ndarray, " H"]:
    """Find by EM how often each hypothesis holds, as if the first one had already held for `RIGHT` more people."""
    people, hypotheses = log_likelihoods.shape
    likelihoods = np.exp(log_likelihoods - log_likelihoods.max(axis=1, keepdims=True))
    right = np.eye(hypotheses)[0]
    # From near the first: where people say little, EM would take thousands of steps back from equal weights.
    weights = 0.98 * right + 0.02 / hypotheses
    for _ in range(MOST_STEPS):
        before, shares = weights, weights * likelihoods
        shares /= shares.sum(axis=1, keepdims=True)
        weights = (RIGHT * right + shares.sum(axis=0)) / (RIGHT + people)
        if np.max(np.abs(weights - before)) < SETTLED:
            break
    return np.asarray(weights)


def log_likelihoods(
    model: LatentModel, logs: Logs, hypotheses: Sequence[Hypothesis] = HYPOTHESES
) -> Float[np.ndarray, "people H"]:
    """Say how probable each hypothesis makes what every person showed, up to a constant of the person."""
    assert isinstance(model.reward, LinearReward)
    numbers = Calibration.of(model, model.reward)
    seen = _Seen.of(model, numbers, logs)
    return np.stack([_under(hypothesis, numbers, seen) for hypothesis in hypotheses], axis=1)


class _Seen(NamedTuple):
    """The sums of everybody, as `Evidence` has them of one person: mean encodings, and what rewards are off by."""

    rounds: Float[np.ndarray, " people"]
    encoding: Float[np.ndarray, "people n"]
    pulls: Float[np.ndarray, "people K"]
    residual: Float[np.ndarray, "people K"]

    @classmethod
    def of(cls, model: LatentModel, numbers: Calibration, logs: Logs) -> _Seen:
        people, actions = logs.instances, logs.actions
        encodings = encode_contexts(model.encoder, logs.context).astype(np.float64) @ numbers.matrix + numbers.shift
        # What was seen long ago may count for less.
        weight = float(model.noise.memory) ** (logs.lengths[logs.instance] - 1.0 - logs.time)
        rounds = np.bincount(logs.instance, weights=weight, minlength=people)
        shown = np.zeros((people, encodings.shape[1]))
        np.add.at(shown, logs.instance, weight[:, None] * encodings)
        told = logs.rewarded
        off = logs.reward[told] - moment_effects(model.moment, logs)[told] - numbers.intercept[logs.action[told]]
        cell = (logs.instance[told], logs.action[told])
        pulls, sums = np.zeros((2, people, actions))
        np.add.at(pulls, cell, weight[told])
        np.add.at(sums, cell, weight[told] * off)
        return cls(rounds, shown / rounds[:, None], pulls, sums / np.where(pulls > 0, pulls, 1))


def _under(hypothesis: Hypothesis, numbers: Calibration, seen: _Seen) -> Float[np.ndarray, " people"]:
    """Give the log-density of everybody's mean encoding, and of their mean rewards given that."""
    shown = seen.encoding.shape[1]
    theta = numbers.theta * (hypothesis.relevant | (np.arange(numbers.theta.shape[1]) >= shown))
    prior = numbers.prior_precision / hypothesis.wider
    noise = hypothesis.bias**2 + 1 / seen.rounds[:, None]
    apart = 1 / prior[:shown] + noise
    contexts = -0.5 * np.sum(np.log(apart) + seen.encoding**2 / apart, axis=1)
    precision = np.tile(prior, (len(seen.rounds), 1))
    precision[:, :shown] += 1 / noise
    mean = np.zeros_like(precision)
    mean[:, :shown] = seen.encoding / noise / precision[:, :shown]
    # Given the encoding, mean rewards have the covariance theta' V theta + diagonal: its inverse is that of p x p.
    own = own_variances(hypothesis, numbers)
    told = seen.pulls > 0
    diagonal = np.where(told, own + numbers.reward_variance / np.where(told, seen.pulls, 1), 1.0)
    off = np.where(told, seen.residual - mean @ theta.T, 0.0)
    weight = told / diagonal
    outer = (theta[:, :, None] * theta[:, None, :]).reshape(len(theta), -1)
    posterior = (weight @ outer).reshape(len(weight), len(prior), len(prior))
    posterior[:, np.arange(len(prior)), np.arange(len(prior))] += precision
    information = (weight * off) @ theta
    explained = np.einsum("ip,ip->i", information, np.linalg.solve(posterior, information[..., None])[..., 0])
    volume = np.linalg.slogdet(posterior)[1] - np.sum(np.log(precision), axis=1)
    surprise = np.sum(np.log(diagonal) + weight * off**2, axis=1)
    return np.asarray(contexts - 0.5 * (volume + surprise - explained))
