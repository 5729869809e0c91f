"""Bandits without contexts: MAB, MABPrior and uniform play."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from scipy import integrate, stats

from ilb.environments import Adcb, draw_world
from ilb.models.baselines import RewardScale
from ilb.models.latent import LatentModel, Provenance
from ilb.online.arms import ArmBelief, FirstContextBelief, mab, mab_centred, uniform
from ilb.online.policy import (
    PROPENSITY_POINTS,
    AbstractBelief,
    AbstractPolicy,
    AbstractRewards,
    BeliefPolicy,
    IndependentRewards,
    IndependentThompson,
    Thompson,
    UpperConfidence,
    probability_best,
)
from ilb.online.roster import policy_on
from ilb.simulation import simulate
from ilb.types import Choice, Step, as_real
from narrowed import linear

ACTIONS, DIM = 4, 2
WORLD = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS)
EVERYTHING = jnp.ones(ACTIONS, bool)
NO_CONTEXT = jnp.zeros(DIM)

POLICIES = {
    "mab": mab(ACTIONS, 0.25),
    "mab_prior": BeliefPolicy(FirstContextBelief(WORLD.oracle()), Thompson()),
    "uniform": uniform(ACTIONS),
}


@pytest.fixture(params=POLICIES, scope="module")
def policy(request: pytest.FixtureRequest) -> BeliefPolicy:
    return POLICIES[request.param]


def steps_of(rng: np.random.Generator, rounds: int, actions: int = ACTIONS) -> Step:
    return Step(
        jnp.asarray(rng.normal(size=(rounds, DIM)), jnp.float32),
        jnp.asarray(rng.integers(0, actions, rounds)),
        jnp.asarray(rng.normal(size=rounds), jnp.float32),
    )


@jax.jit
def learned(belief: AbstractBelief, state: Any, steps: Step) -> Any:
    """Take in all steps, each with its context first."""

    def one(state: Any, step: Step) -> tuple[Any, None]:
        return belief.learn(belief.observe(state, step.context), step), None

    return jax.lax.scan(one, state, steps)[0]


def belief_after(belief: AbstractBelief, steps: Step) -> AbstractRewards:
    return belief.rewards(learned(belief, belief.init(), steps), NO_CONTEXT)


# Posteriors


@pytest.mark.parametrize(
    ("mean", "variance", "noise"),
    [(0.0, 1.0, 0.25), ([1.0, 0.0, -2.0, 0.5], [1.0, 4.0, 0.1, 2.0], [0.25, 1.0, 9.0, 0.5])],
    ids=["shared", "by action"],
)
def test_the_posterior_is_that_of_conditioning_a_joint_normal(mean: Any, variance: Any, noise: Any) -> None:
    steps = steps_of(np.random.default_rng(0), 60, actions=ACTIONS - 1)  # the last action is never taken
    rewards = belief_after(ArmBelief(ACTIONS, reward_variance=noise, prior_mean=mean, prior_variance=variance), steps)
    mean, variance, noise = (np.broadcast_to(number, ACTIONS) for number in (mean, variance, noise))
    for a in range(ACTIONS):
        seen = np.asarray(steps.reward, float)[np.asarray(steps.action) == a]
        covariance = variance[a] + noise[a] * np.eye(len(seen))
        weights = np.linalg.solve(covariance, np.full(len(seen), variance[a]))
        assert rewards.mean()[a] == pytest.approx(mean[a] + weights @ (seen - mean[a]), abs=1e-5)
        assert rewards.std()[a] ** 2 == pytest.approx(variance[a] - weights.sum() * variance[a], abs=1e-5)


def test_the_posterior_is_that_of_integrating_bayes_rule() -> None:
    seen = [0.9, 0.3, 1.4]
    steps = Step(jnp.zeros((3, DIM)), jnp.full(3, 2), jnp.array(seen))
    rewards = belief_after(ArmBelief(ACTIONS, as_real(0.25), as_real(0.5), as_real(2.0)), steps)

    def moment(power: int) -> float:
        def density(mu: float) -> float:
            return float(mu**power * stats.norm.pdf(mu, 0.5, np.sqrt(2.0)) * np.prod(stats.norm.pdf(seen, mu, 0.5)))

        return integrate.quad(density, -5, 5)[0]

    mean = moment(1) / moment(0)
    assert rewards.mean()[2] == pytest.approx(mean, abs=1e-5)
    assert rewards.std()[2] == pytest.approx(np.sqrt(moment(2) / moment(0) - mean**2), abs=1e-5)


def test_mab_starts_from_the_standard_normal() -> None:
    rewards = POLICIES["mab"].rewards(POLICIES["mab"].init(), NO_CONTEXT)
    np.testing.assert_array_equal(rewards.mean(), np.zeros(ACTIONS))
    np.testing.assert_allclose(rewards.std(), np.ones(ACTIONS), rtol=1e-6)


def test_rewards_may_arrive_in_any_order(policy: BeliefPolicy) -> None:
    rng = np.random.default_rng(1)
    steps = steps_of(rng, 200)
    start = policy.belief.observe(policy.init(), jnp.ones(DIM))
    order = rng.permutation(200)
    shuffled = jax.tree.map(lambda leaf: leaf[order], steps)
    one, other = (policy.rewards(learned(policy.belief, start, some), NO_CONTEXT) for some in (steps, shuffled))
    np.testing.assert_allclose(one.mean(), other.mean(), atol=1e-5)
    np.testing.assert_allclose(one.std(), other.std(), rtol=1e-6)


def test_nothing_drifts_in_20000_rounds() -> None:
    rng = np.random.default_rng(2)
    steps = Step(jnp.zeros((20_000, DIM)), *steps_of(rng, 20_000)[1:])
    steps = steps._replace(reward=steps.reward + 3)
    rewards = belief_after(ArmBelief(ACTIONS, as_real(0.25)), steps)
    for a in range(ACTIONS):
        seen = np.asarray(steps.reward, float)[np.asarray(steps.action) == a]
        assert rewards.mean()[a] == pytest.approx(seen.sum() / (0.25 + len(seen)), abs=1e-4)


# The prior of MAB


def test_a_prior_far_below_the_rewards_keeps_mab_from_exploring_and_a_centred_one_does_not() -> None:
    world = Adcb(rewards="released").draw()
    noise = jnp.full(8, 0.25**2)
    tried = {}
    for name, policy in {"zero": mab(8, noise), "centred": mab_centred(RewardScale(2.08, 1.4), noise)}.items():
        actions = simulate(jr.key(1), world, policy, 100, 60).actions
        tried[name] = np.mean([len(np.unique(row)) for row in np.asarray(actions)])
    assert tried["zero"] < 4
    assert tried["centred"] > 6


# MABPrior


def test_the_prior_of_mab_prior_comes_from_the_first_context_only() -> None:
    model = WORLD.oracle()
    policy = policy_on(model, "MABPrior")
    first, *later = np.random.default_rng(3).normal(size=(5, DIM)).astype(np.float32)
    state, _ = policy.decide(jr.key(0), policy.init(), jnp.asarray(first), EVERYTHING)
    expected = np.asarray(linear(model.reward).theta) @ np.asarray(model.encoder(jnp.asarray(first)))
    for context in later:
        rewards = policy.rewards(state, jnp.asarray(context))
        np.testing.assert_allclose(rewards.mean(), expected, atol=1e-5)
        np.testing.assert_allclose(rewards.std(), np.ones(ACTIONS), rtol=1e-6)
        state, _ = policy.decide(jr.key(0), state, jnp.asarray(context), EVERYTHING)


def test_after_its_first_context_mab_prior_learns_like_mab_with_that_prior() -> None:
    steps = steps_of(np.random.default_rng(4), 50)
    model = WORLD.oracle()
    predicted = model.reward(model.encoder(steps.context[0]))
    found = belief_after(FirstContextBelief(model, prior_variance=as_real(2.0)), steps)
    expected = belief_after(ArmBelief(ACTIONS, model.noise.reward_variance, predicted, as_real(2.0)), steps)
    np.testing.assert_allclose(found.mean(), expected.mean(), atol=1e-5)
    np.testing.assert_allclose(found.std(), expected.std(), rtol=1e-6)


def test_a_reward_that_came_before_the_first_context_is_not_lost() -> None:
    belief = FirstContextBelief(WORLD.oracle())
    context = jnp.ones(DIM)
    step = Step(context, jnp.asarray(1), jnp.asarray(3.0))
    early = belief.observe(belief.learn(belief.init(), step), context)
    late = belief.learn(belief.observe(belief.init(), context), step)
    np.testing.assert_allclose(belief.rewards(early, context).mean(), belief.rewards(late, context).mean())


# Decisions


@jax.jit
def choices(policy: AbstractPolicy, state: Any, allowed: Array) -> Array:
    """Decide 4000 times from one state, each time with another key."""
    return jax.vmap(lambda key: policy.decide(key, state, jnp.ones(DIM), allowed)[1].action)(jr.split(jr.key(7), 4000))


@jax.jit
def propensities_of(policy: AbstractPolicy, state: Any, allowed: Array) -> Array:
    return policy.propensities(jr.key(1), state, jnp.ones(DIM), allowed)


@pytest.mark.parametrize("mask", [[True] * 4, [True, False, True, True]], ids=["all", "masked"])
def test_actions_are_drawn_as_often_as_the_propensities_say(policy: BeliefPolicy, mask: list[bool]) -> None:
    allowed = jnp.asarray(mask)
    state = learned(policy.belief, policy.init(), steps_of(np.random.default_rng(5), 12))
    drawn, propensities = (np.asarray(find(policy, state, allowed)) for find in (choices, propensities_of))
    assert propensities.sum() == pytest.approx(1, abs=1e-5)
    shares = np.bincount(drawn, minlength=ACTIONS) / len(drawn)
    # 4000 draws against 500 points: a difference has a standard error of at most 0.024.
    np.testing.assert_allclose(shares, propensities, atol=0.06)
    assert np.all(shares[~np.asarray(allowed)] == 0)
    assert np.all(propensities[~np.asarray(allowed)] == 0)


def test_the_action_is_the_largest_allowed_value(policy: BeliefPolicy) -> None:
    allowed = jnp.array([False, True, True, False])
    _, choice = policy.decide(jr.key(3), policy.init(), jnp.ones(DIM), allowed)
    assert int(choice.action) == 1 + int(np.argmax(np.asarray(choice.values)[1:3]))


def test_thompson_sampling_picks_the_better_of_two_with_the_probability_of_a_normal_difference() -> None:
    belief = ArmBelief(2, jnp.asarray(1.0), jnp.array([0.3, -0.2]), jnp.array([1.0, 4.0]))
    drawn = choices(BeliefPolicy(belief, Thompson()), belief.init(), jnp.ones(2, bool))
    assert np.mean(np.asarray(drawn) == 0) == pytest.approx(stats.norm.cdf(0.5 / np.sqrt(5.0)), abs=0.03)


def test_uniform_play_gives_every_allowed_action_the_same_share() -> None:
    drawn = choices(POLICIES["uniform"], POLICIES["uniform"].init(), jnp.array([True, False, True, True]))
    np.testing.assert_allclose(
        np.bincount(np.asarray(drawn), minlength=ACTIONS) / 4000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03
    )


def test_those_who_ask_uniform_play_hear_what_mab_with_unit_noise_believes() -> None:
    steps = steps_of(np.random.default_rng(9), 30)
    found, expected = (belief_after(policy.belief, steps) for policy in (uniform(ACTIONS), mab(ACTIONS, 1.0)))
    np.testing.assert_array_equal(found.mean(), expected.mean())
    np.testing.assert_array_equal(found.std(), expected.std())


def test_mab_settles_on_the_best_action() -> None:
    means = jnp.array([0.0, 1.0, 0.5, -1.0])

    @jax.jit
    @jax.vmap
    def play(key: PRNGKeyArray) -> Array:
        def one(state: Any, key: PRNGKeyArray) -> tuple[Any, Array]:
            key_decide, key_reward = jr.split(key)
            state, choice = POLICIES["mab"].decide(key_decide, state, NO_CONTEXT, EVERYTHING)
            reward = means[choice.action] + 0.5 * jr.normal(key_reward)
            return POLICIES["mab"].learn(state, Step(NO_CONTEXT, choice.action, reward)), choice.action

        return jax.lax.scan(one, POLICIES["mab"].init(), jr.split(key, 300))[1]

    actions = np.asarray(play(jr.split(jr.key(0), 50)))
    assert np.mean(actions[:, 200:] == 1) > 0.95


# Rules


class Tied(AbstractRewards):
    """Two actions whose rewards are the same number, and a third that pays nothing."""

    def mean(self) -> Any:
        return jnp.array([1.0, 1.0, 0.0])

    def std(self) -> Any:
        return jnp.array([2.0, 2.0, 0.0])

    @property
    def noise_size(self) -> Any:
        return 1

    def at(self, noise: Any) -> Any:
        return self.mean() + self.std() * noise


BOTH = jnp.ones(2, dtype=bool)
ALL_THREE = jnp.ones(3, dtype=bool)


def test_the_upper_confidence_bound_is_the_mean_and_so_many_standard_deviations() -> None:
    values = UpperConfidence(as_real(1.5)).values(
        jr.key(0), IndependentRewards(jnp.array([1.0, 2.0]), jnp.array([2.0, 0.5])), BOTH
    )
    np.testing.assert_allclose(values, [1 + 1.5 * 2, 2 + 1.5 * 0.5])


def test_separate_draws_have_the_marginals_of_the_belief_and_nothing_in_common() -> None:
    draws = np.asarray(
        jax.vmap(lambda key: IndependentThompson().values(key, Tied(), ALL_THREE))(jr.split(jr.key(0), 10_000))
    )
    np.testing.assert_allclose(draws.mean(axis=0), Tied().mean(), atol=4 * 2 / 100)
    np.testing.assert_allclose(draws.std(axis=0), Tied().std(), rtol=0.03)
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 4 / 100
    joint = np.asarray(jax.vmap(lambda key: Thompson().values(key, Tied(), ALL_THREE))(jr.split(jr.key(0), 100)))
    np.testing.assert_array_equal(joint[:, 0], joint[:, 1])


def test_the_probability_of_being_best_is_that_of_a_normal_difference() -> None:
    rewards = IndependentRewards(jnp.array([0.3, -0.2, 9.0]), jnp.array([1.0, 2.0, 1.0]))
    found = probability_best(rewards, jnp.array([True, True, False]))
    better = stats.norm.cdf(0.5 / np.sqrt(5.0))
    # Points that come in pairs err less than 500 independent ones would.
    np.testing.assert_allclose(found, [better, 1 - better, 0], atol=4 * np.sqrt(0.25 / PROPENSITY_POINTS))


def test_the_points_behind_propensities_are_five_hundred_and_mirror_each_other() -> None:
    alike = IndependentRewards(jnp.zeros(2), jnp.ones(2))
    np.testing.assert_allclose(probability_best(alike, jnp.ones(2, bool)), [0.5, 0.5], atol=1e-6)
    shares = np.asarray(
        probability_best(IndependentRewards(jnp.zeros(3), jnp.array([1.0, 2.0, 3.0])), jnp.ones(3, bool))
    )
    np.testing.assert_allclose(shares * 500, np.round(shares * 500), atol=1e-3)
    assert np.gcd.reduce(np.round(shares * 500).astype(int)) == 1


def test_actions_that_tie_share_their_points() -> None:
    shares = probability_best(Tied(), jnp.ones(3, bool))
    assert shares[0] == shares[1]
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares[2]) == pytest.approx(stats.norm.cdf(-0.5), abs=0.08)


def test_separate_draws_are_best_as_often_as_independent_rewards_are() -> None:
    shares = IndependentThompson().propensities(jr.key(0), Tied(), jnp.array([True, True, False]))
    np.testing.assert_allclose(shares, [0.5, 0.5, 0], atol=1e-6)


# Compiled programs


def test_a_refitted_model_or_another_variance_runs_in_the_same_program() -> None:
    traces: list = []

    @eqx.filter_jit
    def decide(policy: AbstractPolicy, state: Any) -> tuple[Any, Choice]:
        traces.append(None)
        return policy.decide(jr.key(0), state, NO_CONTEXT, EVERYTHING)

    for seed in (0, 1):
        oracle = draw_world(jr.key(seed), latent_dim=DIM, actions=ACTIONS).oracle()
        labelled = LatentModel(
            oracle.encoder, oracle.reward, oracle.noise, provenance=Provenance("1", seed, {}, rows=1, instances=1)
        )
        policy = policy_on(labelled, "MABPrior")
        decide(policy, policy.init())
    assert len(traces) == 1
    for variance in (0.25, 1, np.float64(2.0)):
        policy = mab(ACTIONS, variance)
        decide(policy, policy.init())
    assert len(traces) == 2


def test_the_context_means_nothing_to_mab() -> None:
    state = learned(POLICIES["mab"].belief, POLICIES["mab"].init(), steps_of(np.random.default_rng(8), 20))
    one, other = (POLICIES["mab"].decide(jr.key(0), state, x, EVERYTHING) for x in (NO_CONTEXT, 5 + NO_CONTEXT))
    np.testing.assert_array_equal(one[1].values, other[1].values)
