r"""Bandits that learn the K rewards one by one: MAB, MABPrior and uniform play (Section "Bandit baselines").

Each action's expected reward has a Gaussian prior of its own and rewards have a known variance, so two sums for each
action are sufficient, and the posterior is computed from them in closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ilb.models.baselines import RewardScale
from ilb.models.latent import LatentModel
from ilb.online.policy import AbstractRewards
from ilb.online.rules import AbstractBelief, BeliefPolicy, Thompson, Uniform
from ilb.types import Step


class IndependentRewards(AbstractRewards):
    """Rewards that are believed to be normal and to have nothing to do with each other."""

    means: Float[Array, " K"]
    stds: Float[Array, " K"]

    def mean(self) -> Float[Array, " K"]:
        """Give the expected values."""
        return self.means

    def std(self) -> Float[Array, " K"]:
        """Give the standard deviations."""
        return self.stds

    @property
    def noise_size(self) -> int:
        """One number for each action."""
        return self.means.shape[0]

    def at(self, noise: Float[Array, " K"]) -> Float[Array, " K"]:
        """Give the rewards at which each has its own noise."""
        return self.means + self.stds * noise


class ArmSums(NamedTuple):
    r"""How often each action was rewarded, $N_a$, and the sum of its rewards."""

    pulls: Float[Array, " K"]
    reward_sum: Float[Array, " K"]


def no_arm_sums(actions: int) -> ArmSums:
    """Start with nothing."""
    return ArmSums(jnp.zeros(actions), jnp.zeros(actions))


def add_arm_reward(sums: ArmSums, step: Step) -> ArmSums:
    """Count a reward for the action that earned it."""
    taken = jax.nn.one_hot(step.action, sums.pulls.shape[0])
    return ArmSums(sums.pulls + taken, sums.reward_sum + taken * step.reward)


class ArmBelief(AbstractBelief):
    """A posterior for each action by itself: no contexts, no latent state.

    The three numbers may differ between actions (arrays of K) or be shared.
    """

    actions: int = eqx.field(static=True)
    reward_variance: Float[Array, " #K"] | Float[Array, ""] = eqx.field(converter=jnp.asarray)
    prior_mean: Float[Array, " #K"] | Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)
    prior_variance: Float[Array, " #K"] | Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)

    def init(self) -> ArmSums:
        """Know only the prior."""
        return no_arm_sums(self.actions)

    def observe(self, state: ArmSums, context: Float[Array, " d"]) -> ArmSums:
        """Ignore the context."""
        del context
        return state

    def learn(self, state: ArmSums, step: Step) -> ArmSums:
        """Count the reward."""
        return add_arm_reward(state, step)

    def rewards(self, state: ArmSums, context: Float[Array, " d"]) -> IndependentRewards:
        """Believe the posterior."""
        del context
        return _posterior(state, self.prior_mean, self.prior_variance, self.reward_variance)


class FirstContextSums(NamedTuple):
    """The rewards that the first context promised, once there was one, and what came."""

    begun: Bool[Array, ""]
    predicted: Float[Array, " K"]
    sums: ArmSums


class FirstContextBelief(AbstractBelief):
    """`ArmBelief` around a one-shot prediction: the prior means are the rewards that the first context x_1 predicts."""

    model: LatentModel = eqx.field(converter=LatentModel.bare)
    prior_variance: Float[Array, " #K"] | Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)

    def init(self) -> FirstContextSums:
        """Wait for the first context."""
        actions = self.model.noise.reward_variance.shape[0]
        return FirstContextSums(jnp.asarray(False), jnp.zeros(actions), no_arm_sums(actions))

    def observe(self, state: FirstContextSums, context: Float[Array, " d"]) -> FirstContextSums:
        """Predict from the first context; ignore the later ones."""
        predicted = jnp.where(state.begun, state.predicted, self.model.reward(self.model.encoder(context)))
        return FirstContextSums(jnp.asarray(True), predicted, state.sums)

    def learn(self, state: FirstContextSums, step: Step) -> FirstContextSums:
        """Count the reward."""
        return state._replace(sums=add_arm_reward(state.sums, step))

    def rewards(self, state: FirstContextSums, context: Float[Array, " d"]) -> IndependentRewards:
        """Believe the posterior."""
        del context
        return _posterior(state.sums, state.predicted, self.prior_variance, self.model.noise.reward_variance)


def _posterior(
    sums: ArmSums,
    prior_mean: Float[Array, " K"],
    prior_variance: Float[Array, " K"],
    reward_variance: Float[Array, " K"],
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
    return BeliefPolicy(ArmBelief(actions, jnp.asarray(reward_variance, float)), Thompson())


def mab_centred(scale: RewardScale, reward_variance: Float[Array, " K"]) -> BeliefPolicy:
    """MAB whose prior has the mean and variance of logged rewards.

    Where rewards are far above 0, the prior N(0, 1) keeps MAB from exploring: after one good reward, actions that were
    never tried look worse than any that was.
    """
    belief = ArmBelief(len(reward_variance), reward_variance, jnp.asarray(scale.mean), jnp.asarray(scale.variance))
    return BeliefPolicy(belief, Thompson())


def mab_prior(model: LatentModel) -> BeliefPolicy:
    """MABPrior: the same Thompson sampling around the model's one-shot prediction from the first context."""
    return BeliefPolicy(FirstContextBelief(model), Thompson())


def uniform(actions: int) -> BeliefPolicy:
    """Any allowed action; its belief is that of `mab`, for those who ask."""
    return BeliefPolicy(ArmBelief(actions, jnp.asarray(1.0)), Uniform())
