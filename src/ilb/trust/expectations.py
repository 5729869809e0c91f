"""What is expected of each person and action, given everything that the logs say of the person."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.offline.ahead import moment_effects
from ilb.offline.encodings import encode_contexts
from ilb.online.evidence import Evidence, RewardSums
from ilb.online.latent import CalibratedBelief
from ilb.trust.beliefs import fading
from ilb.trust.propensities import person_shares
from ilb.types import as_float32

MOST_LEVERAGE = 0.95
"""More than that and what all others say would be mostly rounding."""


class Expectations(NamedTuple):
    """Mean and standard deviation of the belief about each person's rewards, without the moment; the noise beside.

    `shares` are how often each action is taken with the person.
    """

    mean: Float[np.ndarray, "I K"]
    std: Float[np.ndarray, "I K"]
    noise_variance: Float[np.ndarray, " K"]
    shares: Float[np.ndarray, "I K"]

    @property
    def leverage(self) -> Float[np.ndarray, "I K"]:
        """How much of what is expected of a reward is that reward itself, if it is one of those behind it."""
        return np.asarray(np.minimum(self.std**2 / self.noise_variance[None, :], MOST_LEVERAGE))


def expect(model: LatentModel, logs: Logs, shares: Float[np.ndarray, "I K"] | None = None) -> Expectations:
    """Believe what the calibrated posterior says after all rows of each person; the model has seen none of them.

    Where the model forgets, that is what is expected of the person now, after the last row.
    """
    belief = CalibratedBelief(model)
    mean, std = _believe(belief, gather(belief, model.read(logs)))
    noise = np.asarray(belief.reward_variance, np.float64)
    shares = person_shares(logs) if shares is None else shares
    return Expectations(np.asarray(mean, np.float64), np.asarray(std, np.float64), noise, shares)


def gather(belief: CalibratedBelief, logs: Logs) -> Evidence:
    """Add up everything that the logs say of each person; where the model forgets, older rows count for less."""
    weight = fading(belief.model, logs, np.ones(logs.rows, dtype=bool))
    encodings = encode_contexts(belief.model.encoder, logs.context).astype(np.float64)
    rows = np.flatnonzero(logs.rewarded)
    action = logs.action[rows]
    intercept = np.asarray(belief.reward.intercept, np.float64)
    rewards = logs.reward[rows] - moment_effects(belief.model.moment, logs)[rows] - intercept[action]
    cell, cells = logs.instance[rows].astype(np.int64) * logs.actions + action, logs.instances * logs.actions
    pulls, sums = (
        np.bincount(cell, weights, cells).reshape(logs.instances, -1)
        for weights in (weight[rows], weight[rows] * rewards)
    )
    shown = np.zeros((logs.instances, encodings.shape[1]))
    np.add.at(shown, logs.instance, weight[:, None] * encodings)
    seen = np.bincount(logs.instance, weight, logs.instances)
    parts = map(as_float32, (seen, shown, pulls, sums, logs.lengths, np.zeros_like(seen)))
    rounds, encoding_sum, rewarded, reward_sum, elapsed, scatter = parts
    return Evidence(rounds, encoding_sum, RewardSums(rewarded, reward_sum), elapsed, scatter)


@eqx.filter_jit
def _believe(belief: CalibratedBelief, evidence: Evidence) -> tuple[Float[Array, "I K"], Float[Array, "I K"]]:
    def one(state: Evidence) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        rewards = belief.believe(state)
        return rewards.mean(), rewards.std()

    return jax.vmap(one)(evidence)
