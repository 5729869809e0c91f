"""What a model believes of each person's expected rewards after some of their rows: the calibrated belief, in bulk."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ilb.logs import Logs
from ilb.models.calibration import Calibration
from ilb.models.latent import LatentModel, LinearReward
from ilb.offline.ahead import moment_effects
from ilb.offline.encodings import encode_contexts


class Beliefs(NamedTuple):
    r"""Means of the K expected rewards of each person, without the moment's part, and how sure they are.

    The covariance of two of them is $l_a^\top C l_b$, with the covariance C of the state and loadings l, and each has a
    variance of its own besides. `state` is where the person is believed to be, in the basis of `Calibration`.
    """

    mean: Float[np.ndarray, "I K"]
    state_covariance: Float[np.ndarray, "I p p"]
    loading: Float[np.ndarray, "I K p"]
    own_variance: Float[np.ndarray, "I K"]
    state: Float[np.ndarray, "I p"]

    @property
    def std(self) -> Float[np.ndarray, "I K"]:
        """How far off each mean may be, as a standard deviation."""
        shared = np.einsum("ikp,ipq,ikq->ik", self.loading, self.state_covariance, self.loading)
        return np.asarray(np.sqrt(shared + self.own_variance))

    def difference(
        self, person: Int[np.ndarray, " pairs"], first: Int[np.ndarray, " pairs"], second: Int[np.ndarray, " pairs"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Give mean and variance of how much better the first action is than the second, for each person named."""
        loading = self.loading[person, first] - self.loading[person, second]
        shared = np.einsum("ip,ipq,iq->i", loading, self.state_covariance[person], loading)
        own = self.own_variance[person, first] + self.own_variance[person, second]
        return self.mean[person, first] - self.mean[person, second], shared + own


def believe(
    model: LatentModel,
    logs: Logs,
    contexts: Bool[np.ndarray, " rows"],
    rewards: Bool[np.ndarray, " rows"],
    *,
    later: int = 0,
) -> Beliefs:
    """Form the belief about everyone from these rows' contexts and those rows' rewards, where they have one.

    Where the model forgets, older rows count for less: the last of these rows is what is known now, and so many rounds
    `later` than that it has faded further.
    """
    weight = fading(model, logs, contexts | rewards) * float(model.noise.memory) ** later
    if not isinstance(model.reward, LinearReward):
        return _from_contexts(model, logs, contexts, weight)
    numbers = Calibration.of(model, model.reward)
    people, actions, dim = logs.instances, logs.actions, numbers.theta.shape[1]
    encodings = encode_contexts(model.encoder, logs.context) @ numbers.matrix + numbers.shift
    shown = encodings.shape[1]
    known = rewards & logs.rewarded
    cell = logs.instance[known].astype(np.int64) * actions + logs.action[known]
    left = logs.reward[known] - moment_effects(model.moment, logs)[known] - numbers.intercept[logs.action[known]]
    pulls, sums = (
        np.bincount(cell, weights=weights, minlength=people * actions).reshape(people, actions)
        for weights in (weight[known], weight[known] * left)
    )
    pooled = numbers.reward_variance + pulls * numbers.own_variance
    precision = np.einsum("ia,ap,aq->ipq", pulls / pooled, numbers.theta, numbers.theta)
    precision += np.diag(numbers.prior_precision)
    information = (sums / pooled) @ numbers.theta
    seen = np.bincount(logs.instance[contexts], weights=weight[contexts], minlength=people)
    precision[:, np.arange(shown), np.arange(shown)] += seen[:, None]
    for column in range(shown):
        information[:, column] += np.bincount(
            logs.instance[contexts], weights=weight[contexts] * encodings[contexts, column], minlength=people
        )
    covariance = np.linalg.inv(precision) if dim else precision
    state = np.einsum("ipq,iq->ip", covariance, information)
    share = numbers.reward_variance / pooled
    mean = numbers.intercept + share * (state @ numbers.theta.T) + numbers.own_variance / pooled * sums
    return Beliefs(mean, covariance, share[:, :, None] * numbers.theta, numbers.own_variance * share, state)


def fading(model: LatentModel, logs: Logs, seen: Bool[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Say how much each row counts after the last one of the person that is seen: by its age, if the model forgets."""
    last = np.zeros(logs.instances)
    np.maximum.at(last, logs.instance[seen], logs.time[seen])
    return np.asarray(float(model.noise.memory) ** np.maximum(last[logs.instance] - logs.time, 0.0))


def _from_contexts(
    model: LatentModel, logs: Logs, contexts: Bool[np.ndarray, " rows"], weight: Float[np.ndarray, " rows"]
) -> Beliefs:
    """Take the rewards of the mean encoding: what is no linear model learns nothing from rewards."""
    encodings = encode_contexts(model.encoder, logs.context).astype(np.float64)
    people, dim = logs.instances, encodings.shape[1]
    sums = np.zeros((people, dim))
    np.add.at(sums, logs.instance[contexts], weight[contexts, None] * encodings[contexts])
    seen = np.bincount(logs.instance[contexts], weights=weight[contexts], minlength=people)[:, None]
    average = np.asarray(model.noise.population_mean, np.float64)[:dim]
    means = np.where(seen > 0, sums / np.where(seen > 0, seen, 1), average)
    values = np.asarray(jax.vmap(model.encoded_reward)(jnp.asarray(means, jnp.float32)), np.float64)
    own = np.full_like(values, float(model.noise.leftover_variance))
    return Beliefs(values, np.zeros((people, 0, 0)), np.zeros((*values.shape, 0)), own, np.zeros((people, 0)))
