"""A belief and a rule that chooses by it: together, a policy."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ilb.online.policy import AbstractPolicy, AbstractRewards, State, choose, indicate
from ilb.types import Choice, Step

PROPENSITY_DRAWS = 1000
"""Draws behind the propensities of rules that sample, and behind the probability of being best."""


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
        """Estimate by `PROPENSITY_DRAWS` further draws."""
        return frequencies(key, rewards.draw, allowed)


class IndependentThompson(AbstractRule):
    """A separate draw for each action from its own marginal (Alg. 1, line 9, as printed)."""

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards) -> Float[Array, " K"]:
        """Draw the value of each action by itself."""
        mean = rewards.mean()
        return mean + rewards.std() * jr.normal(key, mean.shape)

    def propensities(
        self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Estimate by `PROPENSITY_DRAWS` further draws."""
        return frequencies(key, lambda one: self.values(one, rewards), allowed)


class UpperConfidence(AbstractRule):
    """The mean plus `width` standard deviations."""

    width: Float[Array, ""] = eqx.field(converter=jnp.asarray)

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
    key: PRNGKeyArray, draw: Callable[[PRNGKeyArray], Float[Array, " K"]], allowed: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """Estimate how often each action has the largest of the drawn values."""
    drawn = jax.vmap(lambda one: indicate(draw(one), allowed))(jr.split(key, PROPENSITY_DRAWS))
    return jnp.mean(drawn, axis=0)


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
