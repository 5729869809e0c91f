r"""Bandits that learn the K rewards one by one: MAB, MABPrior and uniform play (Section "Bandit baselines").

Each action's expected reward has a Gaussian prior of its own and rewards have a known variance, so two sums for each
action are sufficient, and the posterior is computed from them in closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ilb.models.baselines import RewardScale
from ilb.models.latent import LatentModel
from ilb.online.evidence import RewardSums
from ilb.online.policy import AbstractBelief, BeliefPolicy, IndependentRewards, Thompson, Uniform
from ilb.types import Context, Step, as_real

ByAction = Float[Array, " K"] | Float[Array, ""]
"""A number for each action, or one that all share."""


class ArmBelief(AbstractBelief):
    """A posterior for each action by itself: no contexts, no latent state."""

    actions: int = eqx.field(static=True)
    reward_variance: ByAction = eqx.field(converter=as_real)
    prior_mean: ByAction = eqx.field(converter=as_real, default=0.0)
    prior_variance: ByAction = eqx.field(converter=as_real, default=1.0)

    def init(self) -> RewardSums:
        return RewardSums.none(self.actions)

    def learn(self, state: RewardSums, step: Step) -> RewardSums:
        return state.add(step)

    def rewards(self, state: RewardSums, context: Context) -> IndependentRewards:
        del context
        return _posterior(state, self.prior_mean, self.prior_variance, self.reward_variance)


class FirstContextSums(NamedTuple):
    """The rewards that the first context promised, once there was one, and what came."""

    begun: Bool[Array, ""]
    predicted: Float[Array, " K"]
    sums: RewardSums


class FirstContextBelief(AbstractBelief):
    """MABPrior's `ArmBelief`: the prior means are the rewards that the model predicts from the first context x_1."""

    model: LatentModel = eqx.field(converter=LatentModel.bare)
    prior_variance: ByAction = eqx.field(converter=as_real, default=1.0)

    def init(self) -> FirstContextSums:
        actions = self.model.noise.reward_variance.shape[0]
        return FirstContextSums(jnp.asarray(False), jnp.zeros(actions), RewardSums.none(actions))

    def observe(self, state: FirstContextSums, context: Context) -> FirstContextSums:
        predicted = jnp.where(state.begun, state.predicted, self.model.encoded_reward(self.model.encoder(context)))
        return FirstContextSums(jnp.asarray(True), predicted, state.sums)

    def learn(self, state: FirstContextSums, step: Step) -> FirstContextSums:
        return state._replace(sums=state.sums.add(step))

    def rewards(self, state: FirstContextSums, context: Context) -> IndependentRewards:
        del context
        return _posterior(state.sums, state.predicted, self.prior_variance, self.model.noise.reward_variance)


def _posterior(
    sums: RewardSums, prior_mean: ByAction, prior_variance: ByAction, reward_variance: ByAction
) -> IndependentRewards:
    """Weigh prior and rewards by their precisions, over the common denominator."""
    pooled = reward_variance + sums.pulls * prior_variance
    mean = (reward_variance * prior_mean + prior_variance * sums.reward_sum) / pooled
    return IndependentRewards(mean, jnp.sqrt(prior_variance * reward_variance / pooled))


def mab(actions: int, reward_variance: ArrayLike) -> BeliefPolicy:
    """Thompson sampling that is oblivious to contexts and latent states, with prior N(0, 1) and known variance.

    >>> import jax.random as jr
    >>> policy = mab(3, reward_variance=0.25)
    >>> state, choice = policy.decide(jr.key(0), policy.init(), jnp.zeros(2), jnp.array([False, True, False]))
    >>> int(choice.action)
    1
    """
    return BeliefPolicy(ArmBelief(actions, as_real(reward_variance)), Thompson())


def mab_centred(scale: RewardScale, reward_variance: Float[Array, " K"]) -> BeliefPolicy:
    """MAB whose prior has the mean and variance of logged rewards.

    Where rewards are far above 0, the prior N(0, 1) keeps MAB from exploring: after one good reward, actions that were
    never tried look worse than any that was.
    """
    prior = (as_real(scale.mean), as_real(scale.variance))
    return BeliefPolicy(ArmBelief(len(reward_variance), reward_variance, *prior), Thompson())


def uniform(actions: int) -> BeliefPolicy:
    """Any allowed action; its belief is that of `mab`, for those who ask."""
    return BeliefPolicy(ArmBelief(actions, as_real(1.0)), Uniform())
