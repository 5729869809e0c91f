r"""Drift: how people change, in four numbers, and what a model fitted as if they stayed becomes.

Such a fit takes a person's average for the state of every moment. So it calls noise what is change, and finds people
more alike than they are at any one moment. With a memory the variances must be those of a moment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.types import as_float32


class Drift(NamedTuple):
    """What was seen a round ago counts `memory` times as much as what is seen now.

    `noise` and `state` are the variances of a reward around the state of the moment, and of what only rewards show of
    that state, beside those of a fit that takes people to stay as they are. Such a fit counts as noise all that
    encodings vary by within a person: `moving` is the share of `NoiseLevels.moving_covariance` that is change.
    """

    memory: float = 1.0
    noise: float = 1.0
    state: float = 1.0
    moving: float = 0.0

    @classmethod
    def of(cls, model: LatentModel) -> Drift:
        """Read off a model how its people change."""
        return cls(float(model.noise.memory), *np.asarray(model.noise.drift).tolist())

    def apply(self, model: LatentModel) -> LatentModel:
        """Give the model of people who change in this way, from one that was fitted as if they stayed."""
        return model if self == NO_DRIFT else _changed(model, self)


NO_DRIFT = Drift()


def without_drift(model: LatentModel) -> LatentModel:
    """Give the model as it was fitted, as if people stayed as they are."""
    drift = Drift.of(model)
    return model if drift == NO_DRIFT else _changed(model, Drift(1.0, 1 / drift.noise, 1 / drift.state, -drift.moving))


def _changed(model: LatentModel, by: Drift) -> LatentModel:
    model = model.with_memory(by.memory)
    if not isinstance(model.reward, LinearReward):
        return model
    # Hidden coordinates have variance one: what they do is in their loadings.
    widths = np.ones(model.reward.theta.shape[1] + 1)
    widths[model.encoded_dim : -1] = np.sqrt(by.state)
    theta = np.asarray(model.reward.theta) * widths[:-1]
    covariance = np.asarray(model.reward.coefficient_covariance) * np.outer(widths, widths)
    before = Drift.of(model)
    noise = replace(
        _moved(model.noise, by.moving),
        reward_variance=as_float32(by.noise * np.asarray(model.noise.reward_variance)),
        leftover_variance=as_float32(by.state * np.asarray(model.noise.leftover_variance)),
        drift=as_float32(np.array([before.noise * by.noise, before.state * by.state, before.moving + by.moving])),
    )
    reward = LinearReward(as_float32(theta), model.reward.intercept, as_float32(covariance))
    return replace(model, reward=reward, noise=noise)


def _moved(noise: NoiseLevels, share: float) -> NoiseLevels:
    """Take this share of what moves from the noise of encodings, and give it to the states of the population."""
    moving = share * np.asarray(noise.moving_covariance, np.float64)
    if not np.any(moving):
        return noise
    population = np.array(noise.population_covariance, np.float64)
    population[: len(moving), : len(moving)] += moving
    return replace(
        noise,
        encoding_covariance=as_float32(np.asarray(noise.encoding_covariance, np.float64) - moving),
        population_covariance=as_float32(population),
    )
