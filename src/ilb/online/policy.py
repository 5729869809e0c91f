"""A policy is a belief and a rule: `init`, `decide`, `learn`, for one instance; batches are made by `vmap`.

Policies and their states are pytrees, so a refitted model runs in the program that was compiled for the one before it.
"""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.types import Allowed, Choice, Context, Step, Values, as_real

State = Any
"""What a policy remembers of one instance: a small pytree of its own choice."""

PROPENSITY_POINTS = 500
"""Fixed points of the belief behind the propensities of rules that sample, and behind the probability of being best."""

ROUNDING = 64
"""Values that differ by less than this many units in the last place are taken for one."""


class AbstractRewards(eqx.Module):
    """What is believed of the K expected rewards of an instance at one moment."""

    @abc.abstractmethod
    def mean(self) -> Values:
        """Give the expected values."""

    @abc.abstractmethod
    def std(self) -> Values:
        """Give the standard deviations."""

    @property
    @abc.abstractmethod
    def noise_size(self) -> int:
        """The number of standard normal numbers behind one draw."""

    @abc.abstractmethod
    def at(self, noise: Float[Array, " noise"]) -> Values:
        """Give the rewards at one point of the joint belief, as a function of standard normal noise."""

    def draw(self, key: PRNGKeyArray) -> Values:
        """Draw all K at once from the joint belief."""
        return self.at(jr.normal(key, (self.noise_size,), jnp.float32))  # the same numbers in float64

    def worth_trying(self, allowed: Allowed, horizon: Float[Array, ""]) -> Values:
        """Say what knowing each action better would bring in the rounds to come; nothing, where a belief can't say."""
        del allowed, horizon
        return jnp.zeros_like(self.mean())

    def outlook(self) -> Outlook:
        """Take the belief apart into normal distributions: here, into one for each action."""
        mean, std = self.mean(), self.std()
        usual = jnp.ones((), mean.dtype)
        return Outlook(jnp.ones((1, len(mean))), mean[None], std[None], jnp.ones(1), jnp.zeros_like(mean), usual)


class Outlook(NamedTuple):
    """A belief about each action's expected reward as a mixture of M normal distributions, for reports.

    `hypotheses` are the probabilities of what the mixture is over, that the model is right coming first, and `doubts`
    those that an action is not what the logs say. `context_noise` is the variance of this person's contexts around
    their state, in units of that in the logs.
    """

    weights: Float[Array, "M K"]
    means: Float[Array, "M K"]
    stds: Float[Array, "M K"]
    hypotheses: Float[Array, " H"]
    doubts: Float[Array, " K"]
    context_noise: Float[Array, ""]

    @property
    def context_scatter(self) -> float:
        """How many times as widely as in the logs this person's contexts scatter."""
        return math.sqrt(float(self.context_noise))


class IndependentRewards(AbstractRewards):
    """Rewards that are believed to be normal and to have nothing to do with each other."""

    means: Float[Array, " K"]
    stds: Float[Array, " K"]

    def mean(self) -> Values:
        return self.means

    def std(self) -> Values:
        return self.stds

    @property
    def noise_size(self) -> int:
        return self.means.shape[0]

    def at(self, noise: Float[Array, " K"]) -> Values:
        return self.means + self.stds * noise


class AbstractPolicy(eqx.Module):
    """A decision rule for one instance."""

    @abc.abstractmethod
    def init(self) -> State:
        """Start an instance."""

    @abc.abstractmethod
    def decide(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> tuple[State, Choice]:
        """Take in a context and choose one of the allowed actions."""

    def take_in(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> State:
        """Take in a context as `decide` does; what is chosen does not matter."""
        return self.decide(key, state, context, allowed)[0]

    @abc.abstractmethod
    def learn(self, state: State, step: Step) -> State:
        """Take in a reward: that of the last decision, or of an earlier one."""

    @abc.abstractmethod
    def rewards(self, state: State, context: Context) -> AbstractRewards:
        """Say what is believed of the rewards, after `decide` has taken the context in."""

    @abc.abstractmethod
    def propensities(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> Values:
        """Give the probability of each action being chosen, after `decide` has taken the context in."""

    @property
    def says(self) -> tuple[str, ...]:
        """Words for the hypotheses of the `Outlook`, for reports."""
        return ()


class AbstractBelief(eqx.Module):
    """How evidence about one instance turns into a belief about its rewards."""

    @property
    def says(self) -> tuple[str, ...]:
        """Words for the hypotheses of the `Outlook`, for reports."""
        return ()

    @abc.abstractmethod
    def init(self) -> State:
        """Know nothing of this instance."""

    def observe(self, state: State, context: Context) -> State:
        """Take in the context of a round; by default, it teaches nothing but by its reward."""
        del context
        return state

    @abc.abstractmethod
    def learn(self, state: State, step: Step) -> State:
        """Take in the reward of a round, this one or an earlier one."""

    @abc.abstractmethod
    def rewards(self, state: State, context: Context) -> AbstractRewards:
        """Say what is believed of the rewards in a round with this context."""


class AbstractRule(eqx.Module):
    """How to value actions by what is believed of them; the largest value is taken."""

    @abc.abstractmethod
    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        """Value all K actions; the largest value of an allowed one is taken."""

    def propensities(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        """Give the probability with which each action is taken; by default, one for the largest value."""
        return indicate(self.values(key, rewards, allowed), allowed)


class BeliefPolicy(AbstractPolicy):
    """Take in what is seen, and take the action that the rule values most."""

    belief: AbstractBelief
    rule: AbstractRule

    @property
    def says(self) -> tuple[str, ...]:
        return self.belief.says

    def init(self) -> State:
        return self.belief.init()

    def take_in(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> State:
        del key, allowed
        return self.belief.observe(state, context)

    def decide(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> tuple[State, Choice]:
        state = self.belief.observe(state, context)
        return state, choose(self.rule.values(key, self.belief.rewards(state, context), allowed), allowed)

    def learn(self, state: State, step: Step) -> State:
        return self.belief.learn(state, step)

    def rewards(self, state: State, context: Context) -> AbstractRewards:
        return self.belief.rewards(state, context)

    def propensities(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> Values:
        return self.rule.propensities(key, self.belief.rewards(state, context), allowed)


class Greedy(AbstractRule):
    """The expected reward itself (Alg. 1, line 7)."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del key, allowed
        return rewards.mean()


class UpperConfidence(AbstractRule):
    """The mean plus `width` standard deviations."""

    width: Float[Array, ""] = eqx.field(converter=as_real)

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del key, allowed
        return rewards.mean() + self.width * rewards.std()


class Thompson(AbstractRule):
    """One joint draw from the belief."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del allowed
        return rewards.draw(key)

    def propensities(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del key
        return probability_best(rewards, allowed)


class IndependentThompson(AbstractRule):
    """A separate draw for each action from its own marginal (Alg. 1, line 9, as printed)."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del allowed
        mean = rewards.mean()
        return mean + rewards.std() * jr.normal(key, mean.shape, jnp.float32)

    def propensities(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del key
        return probability_best(IndependentRewards(rewards.mean(), rewards.std()), allowed)


class WorthTrying(AbstractRule):
    """The expected reward, and what is gained in the rounds to come by knowing the action better.

    With an unknown `horizon` (infinite) the belief says how many rounds may be ahead; near a known one, the rule is
    greedy.
    """

    horizon: Float[Array, ""] = eqx.field(converter=as_real, default=np.inf)

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del key
        return rewards.mean() + rewards.worth_trying(allowed, self.horizon)


class Uniform(AbstractRule):
    """Any allowed action, whatever is believed: the logging policy of the paper."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del allowed
        return jr.uniform(key, rewards.mean().shape, jnp.float32)

    def propensities(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Allowed) -> Values:
        del key, rewards
        return allowed / allowed.sum()


def choose(values: Values, allowed: Allowed) -> Choice:
    """Take the allowed action with the largest value."""
    return Choice(jnp.argmax(jnp.where(allowed, values, -jnp.inf)), values)


def indicate(values: Values, allowed: Allowed) -> Values:
    """Mark the allowed action with the largest value by 1, all others by 0."""
    return jax.nn.one_hot(choose(values, allowed).action, values.shape[0])


def probability_best(rewards: AbstractRewards, allowed: Allowed) -> Values:
    """Give the probability that each allowed action is the best of them: its share of `PROPENSITY_POINTS` points.

    The points are the same for every decision, so that probabilities are a function of the belief alone.
    """
    half = np.random.default_rng(0).standard_normal((PROPENSITY_POINTS // 2, rewards.noise_size)).astype(np.float32)
    # With the points on the last axis, largest and sums over actions are taken of many points at once.
    values = jax.vmap(rewards.at, out_axes=1)(jnp.asarray(np.concatenate([half, -half])))
    open_values = jnp.where(allowed[:, None], values, -jnp.inf)
    # A compiled program may compute a value twice, for the maximum and to be compared with it, and round it in two
    # ways: what is the largest but for rounding is the largest.
    rounding = ROUNDING * np.finfo(values.dtype).eps * jnp.abs(values).max(axis=0, keepdims=True)
    largest = open_values >= open_values.max(axis=0, keepdims=True) - rounding
    # Ties share their point, so that the shares sum to one.
    return jnp.mean(largest / largest.sum(axis=0, keepdims=True), axis=1)
