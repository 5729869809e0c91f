r"""Latent bandits with a discrete state: mTS and mUCB (Hong et al. 2020, "Latent Bandits Revisited").

Both know what each of S states pays for each action (`DiscreteStates`), and look for the state of the instance: mTS by
its posterior, mUCB by ruling out the states that promised more than came.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.models.baselines import DiscreteStates
from ilb.online.evidence import RewardSums
from ilb.online.policy import (
    AbstractBelief,
    AbstractPolicy,
    AbstractRewards,
    BeliefPolicy,
    Thompson,
    choose,
    indicate,
)
from ilb.types import Allowed, Choice, Context, Step, Values, as_real


class MixtureRewards(AbstractRewards):
    """Rewards that are one of S rows, with the given log-probabilities (up to a constant)."""

    log_weights: Float[Array, " S"]
    rows: Float[Array, "S K"]

    def probabilities(self) -> Float[Array, " S"]:
        """Give the probability of each state."""
        return jax.nn.softmax(self.log_weights)

    def mean(self) -> Values:
        return self.probabilities() @ self.rows

    def std(self) -> Values:
        return jnp.sqrt(self.probabilities() @ (self.rows - self.mean()[None]) ** 2)

    @property
    def noise_size(self) -> int:
        """One number, which picks the state."""
        return 1

    def at(self, noise: Float[Array, " 1"]) -> Values:
        """Give the rewards of the state in whose share of the unit interval the noise falls."""
        edges = jnp.cumsum(self.probabilities())
        # Divided by the last edge, which rounding may leave below 1: no noise may fall beyond the last possible state.
        return self.rows[jnp.sum(edges / edges[-1] < norm.cdf(noise))]


class DiscreteBelief(AbstractBelief):
    """The posterior over the S states given the rewards; contexts are not used."""

    states: DiscreteStates

    def init(self) -> RewardSums:
        return RewardSums.none(self.states.mean_rewards.shape[1])

    def learn(self, state: RewardSums, step: Step) -> RewardSums:
        return state.add(step)

    def rewards(self, state: RewardSums, context: Context) -> MixtureRewards:
        del context
        # Distances to the mean reward, not to each reward: the rest is the same for all states, and is where float32
        # would lose what tells them apart.
        distance = (state.means()[None] - self.states.mean_rewards) ** 2
        log_likelihood = -distance @ (state.pulls / (2 * self.states.reward_variance))
        return MixtureRewards(jnp.log(self.states.weights) + log_likelihood, self.states.mean_rewards)


class Promises(NamedTuple):
    r"""What mUCB remembers: which state last chose each action, and how each state kept what it promised.

    `rounds` is $N_t(s)$, the rounds in which s was the most optimistic state and that were rewarded; `shortfall` is
    $G_t(s)$, the sum over them of what s predicted minus what came.
    """

    chosen_by: Int[Array, " K"]
    rounds: Float[Array, " S"]
    shortfall: Float[Array, " S"]


class ModelUCB(AbstractPolicy):
    r"""mUCB: the best action of the most optimistic state that is still consistent with the rewards.

    State s is consistent while $G_t(s) \le \sigma \sqrt{6 N_t(s) \ln n}$, where n is the horizon and $\sigma$ the
    largest standard deviation of a reward; when no state is, all are taken. A late reward is booked on the state that
    chose its action last.
    """

    states: DiscreteStates
    horizon: Float[Array, ""] = eqx.field(converter=as_real)

    def init(self) -> Promises:
        """Believe every state; an action not chosen yet belongs to the state that promises most of it."""
        nothing = jnp.zeros(self.states.mean_rewards.shape[0])
        return Promises(jnp.argmax(self.states.mean_rewards, axis=0), nothing, nothing)

    def consistent(self, state: Promises) -> Bool[Array, " S"]:
        """Mark the states that may be true."""
        std = jnp.sqrt(self.states.reward_variance.max())
        kept = state.shortfall <= std * jnp.sqrt(6 * state.rounds * jnp.log(self.horizon))
        return kept | ~kept.any()

    def _promised(self, state: Promises) -> Float[Array, "S K"]:
        """Give what the consistent states promise."""
        return jnp.where(self.consistent(state)[:, None], self.states.mean_rewards, -jnp.inf)

    def decide(self, key: PRNGKeyArray, state: Promises, context: Context, allowed: Allowed) -> tuple[Promises, Choice]:
        """Take the largest promise for an allowed action, and remember who made it."""
        del key, context
        promised = self._promised(state)
        choice = choose(promised.max(axis=0), allowed)
        optimist = jnp.argmax(promised[:, choice.action])
        taken = jnp.arange(promised.shape[1]) == choice.action
        return state._replace(chosen_by=jnp.where(taken, optimist, state.chosen_by)), choice

    def learn(self, state: Promises, step: Step) -> Promises:
        """Compare the reward with the promise."""
        optimist = state.chosen_by[step.action]
        promised = self.states.mean_rewards[optimist, step.action]
        booked = jax.nn.one_hot(optimist, state.rounds.shape[0])
        return state._replace(
            rounds=state.rounds + booked, shortfall=state.shortfall + booked * (promised - step.reward)
        )

    def rewards(self, state: Promises, context: Context) -> MixtureRewards:
        """Say how the rewards vary over the consistent states, each as common as it was in the logs."""
        del context
        weights = jnp.where(self.consistent(state), self.states.weights, 0.0)
        return MixtureRewards(jnp.log(weights), self.states.mean_rewards)

    def propensities(self, key: PRNGKeyArray, state: Promises, context: Context, allowed: Allowed) -> Values:
        del key, context
        return indicate(self._promised(state).max(axis=0), allowed)


def mts(states: DiscreteStates) -> BeliefPolicy:
    """Make mTS: draw a state from its posterior and take the action that is best in it.

    >>> states = DiscreteStates(jnp.array([0.5, 0.5]), jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.ones(2))
    >>> policy = mts(states)
    >>> state = policy.learn(policy.init(), Step(jnp.zeros(1), jnp.asarray(0), jnp.asarray(9.0)))
    >>> policy.rewards(state, jnp.zeros(1)).probabilities().round(3).tolist()
    [0.0, 1.0]
    """
    return BeliefPolicy(DiscreteBelief(states), Thompson())


def mucb(states: DiscreteStates, horizon: ArrayLike) -> ModelUCB:
    """Make mUCB for `horizon` rounds in all."""
    return ModelUCB(states, as_real(horizon))
