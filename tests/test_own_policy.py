"""A policy from outside the package: a belief and a rule of its own, and a line in a copy of the roster."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.live.bandit import LiveBandit
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.online.policy import (
    AbstractBelief,
    AbstractPolicy,
    AbstractRewards,
    AbstractRule,
    BeliefPolicy,
    IndependentRewards,
)
from ilb.online.roster import ROSTER, build_policies, build_policy
from ilb.types import Step, as_real
from narrowed import known
from policy_conformance import PolicyConformance


class Aged(NamedTuple):
    rounds: Float[Array, ""]
    weight: Float[Array, " K"]
    total: Float[Array, " K"]


class FadingBelief(AbstractBelief):
    """Rewards count less with every round that has gone by since, however late they came."""

    reward_variance: Float[Array, " K"]
    kept: Float[Array, ""] = eqx.field(converter=as_real, default=0.99)

    def init(self) -> Aged:
        nothing = jnp.zeros_like(self.reward_variance)
        return Aged(jnp.asarray(0.0), nothing, nothing)

    def observe(self, state: Aged, context: Array) -> Aged:
        return Aged(state.rounds + 1, self.kept * state.weight, self.kept * state.total)

    def learn(self, state: Aged, step: Step) -> Aged:
        age = 0 if step.time is None else state.rounds - 1 - step.time
        share = self.kept**age * jax.nn.one_hot(step.action, len(state.weight))
        return state._replace(weight=state.weight + share, total=state.total + share * step.reward)

    def rewards(self, state: Aged, context: Array) -> IndependentRewards:
        pooled = self.reward_variance + state.weight
        return IndependentRewards(state.total / pooled, jnp.sqrt(self.reward_variance / pooled))


class Softmax(AbstractRule):
    """Better actions more often: the largest mean after Gumbel noise has been added."""

    temperature: Float[Array, ""] = eqx.field(converter=as_real, default=0.2)

    def values(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Array) -> Array:
        mean = rewards.mean()
        return mean + self.temperature * jr.gumbel(key, mean.shape)

    def propensities(self, key: PRNGKeyArray, rewards: AbstractRewards, allowed: Array) -> Array:
        return jax.nn.softmax(jnp.where(allowed, rewards.mean() / self.temperature, -jnp.inf))


OWN_ROSTER = {**ROSTER, "Fading": lambda given: BeliefPolicy(FadingBelief(given.reward_variance), Softmax())}


class TestPolicyFromOutside(PolicyConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def policy(cls, ingredients: Ingredients) -> AbstractPolicy:
        return build_policy(ingredients, "Fading", OWN_ROSTER)

    @pytest.fixture
    def refitted(self, policy: AbstractPolicy) -> AbstractPolicy:
        return jax.tree.map(lambda leaf: 2 * leaf, policy)

    @pytest.fixture
    def least_share(self) -> float:
        return 0.3


def test_it_stands_beside_the_others(ingredients: Ingredients) -> None:
    assert set(build_policies(ingredients, roster=OWN_ROSTER)) == {*ROSTER, "Fading"}
    assert "Fading" not in ROSTER


def test_it_decides_live_and_is_told_how_old_a_reward_is(ingredients: Ingredients, small_model: LatentModel) -> None:
    bandit = LiveBandit(build_policy(ingredients, "Fading", OWN_ROSTER), known(small_model.schema))
    anna = bandit.start("anna")
    visit = {"x1": 0.0, "x2": 1.0, "x3": -1.0}
    first = anna.decide(visit)
    for _ in range(9):
        anna.observe(visit)
    anna = bandit.restore(anna.to_json())
    anna.learn(first, 3.0)
    variance = float(small_model.noise.reward_variance[known(small_model.schema).action_index(first.action)])
    weight = 0.99**10  # ten more contexts have come when the next decision is made
    expected = anna.decide(visit).expected_reward[first.action]
    assert expected == pytest.approx(3 * weight / (variance + weight), rel=1e-4)
