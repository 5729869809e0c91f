"""A belief and a rule that chooses by it: together, a policy."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ilb.online.policy import AbstractPolicy, AbstractRewards, State, choose, indicate
from ilb.types import Choice, Step

PROPENSITY_POINTS = 500
"""Fixed points of the belief behind the propensities of rules that sample, and behind the probability of being best."""


class AbstractBelief(eqx.Module):
    """How evidence about one instance turns into a belief about its rewards."""

    @abc.abstractmethod
    def init(self) -> State:
        """Know nothing of this instance."""

    @abc.abstractmethod
    def observe(self, state: State, context: Float[Array, " d"]) -> State:
        """Take in the context of a round."""

    @abc.abstractmethod
    def learn(self, state: State, step: Step) -> State:
        """Take in the reward of a round, this one or an earlier one."""

    @abc.abstractmethod
    def rewards(self, state: State, context: Float[Array, " d"]) -> AbstractRewards:
        """Say what is believed of the rewards in a round with this context."""


class AbstractRule(eqx.Module):
    """How to value actions by what is believed of them; the largest value is taken."""

    @abc.abstractmethod
    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Value all K actions."""

    @abc.abstractmethod
    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Give the probability with which each action is taken."""


class Greedy(AbstractRule):
    """The expected reward itself (Alg. 1, line 7)."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Value actions by their means."""
        del key
        return rewards.mean()

    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Put everything on one action."""
        return indicate(self.values(key, rewards), allowed)


class Thompson(AbstractRule):
    """One joint draw from the belief."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Draw the values of all actions together."""
        return rewards.draw(key)

    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Give each action the probability that it is the best."""
        del key
        return probability_best(rewards, allowed)


class IndependentThompson(AbstractRule):
    """A separate draw for each action from its own marginal (Alg. 1, line 9, as printed)."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Draw the value of each action by itself."""
        mean = rewards.mean()
        return mean + rewards.std() * jr.normal(key, mean.shape)

    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Give each action the share of points at which its own noise lifts it above the others."""
        del key
        mean, std = rewards.mean(), rewards.std()
        return frequencies(mean.shape[0], lambda noise: mean + std * noise, allowed)


class UpperConfidence(AbstractRule):
    """The mean plus `width` standard deviations."""

    width: Float[Array, ""] = eqx.field(converter=partial(jnp.asarray, dtype=jnp.float32))

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Value actions by their upper confidence bounds."""
        del key
        return rewards.mean() + self.width * rewards.std()

    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Put everything on one action."""
        return indicate(self.values(key, rewards), allowed)


class Uniform(AbstractRule):
    """Any allowed action, whatever is believed: the logging policy of the paper."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Draw values that have nothing to do with the belief."""
        return jr.uniform(key, rewards.mean().shape)

    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Share equally among the allowed actions."""
        del key, rewards
        return allowed / allowed.sum()


def frequencies(
    noise_size: int, values_at: Callable[[Float[Array, " noise"]], Float[Array, " K"]], allowed: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """Find at what share of `PROPENSITY_POINTS` fixed points of noise each action has the largest value.

    The points are the same for every decision, so that probabilities are a function of the belief alone.
    """
    half = np.random.default_rng(0).standard_normal((PROPENSITY_POINTS // 2, noise_size)).astype(np.float32)
    values = jax.vmap(values_at)(jnp.asarray(np.concatenate([half, -half])))
    open_values = jnp.where(allowed, values, -jnp.inf)
    largest = open_values >= open_values.max(axis=1, keepdims=True)
    # Ties share their point, so that the shares sum to one.
    return jnp.mean(largest / largest.sum(axis=1, keepdims=True), axis=0)


def probability_best(rewards: AbstractRewards, allowed: Bool[Array, " K"]) -> Float[Array, " K"]:
    """Give the probability that each allowed action is the best of them."""
    return frequencies(rewards.noise_size, rewards.at, allowed)


class BeliefPolicy(AbstractPolicy):
    """Take in what is seen, and take the action that the rule values most."""

    belief: AbstractBelief
    rule: AbstractRule

    def init(self) -> State:
        """Start an instance."""
        return self.belief.init()

    def decide(
        self, key: PRNGKeyArray, state: State, context: Float[Array, " d"], allowed: Bool[Array, " K"]
    ) -> tuple[State, Choice]:
        """Take in a context and choose."""
        state = self.belief.observe(state, context)
        return state, choose(self.rule.values(key, self.belief.rewards(state, context)), allowed)

    def learn(self, state: State, step: Step) -> State:
        """Take in a reward."""
        return self.belief.learn(state, step)

    def rewards(self, state: State, context: Float[Array, " d"]) -> AbstractRewards:
        """Say what is believed of the rewards."""
        return self.belief.rewards(state, context)

    def propensities(
        self, key: PRNGKeyArray, state: State, context: Float[Array, " d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Ask the rule."""
        return self.rule.propensities(key, self.belief.rewards(state, context), allowed)
