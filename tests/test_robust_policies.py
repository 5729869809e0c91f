"""Baselines that doubt the model or do without: each index a second way, and what it is for."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from ilb.environments import draw_world
from ilb.logs import Logs
from ilb.models.baselines import RewardPopulation, RewardScale
from ilb.models.latent import LatentModel
from ilb.models.moments import LinearMoment
from ilb.networks import Affine
from ilb.offline.baselines import LogFits, fit_reward_population
from ilb.offline.rewards.recipe import Cells
from ilb.online.arms import mab, mab_centred
from ilb.online.balancing import RegretBalancing, calibrated_or_mab
from ilb.online.evidence import RewardSums
from ilb.online.hierarchical import HierarchicalBelief, hierarchical_ts
from ilb.online.latent import CalibratedBelief
from ilb.online.optimism import LoggedMeans, MinUCB, OfflineEstimate, model_min_ucb
from ilb.online.policy import AbstractPolicy, BeliefPolicy, Greedy
from ilb.online.proball import proball_ucb
from ilb.online.roster import policy_on
from ilb.simulation import Rounds, draw_rounds, play
from ilb.types import Step
from narrowed import linear

NO_CONTEXT = jnp.zeros(2)


def regret_in(policy: AbstractPolicy, rounds: Rounds) -> np.ndarray:
    """Play drawn rounds; give the mean cumulative regret by round."""
    people = rounds.contexts.shape[1]
    played = jax.jit(jax.vmap(lambda key, drawn: play(key, policy, drawn), in_axes=(0, 1)))(
        jr.split(jr.key(0), people), rounds
    )
    return np.cumsum(np.asarray(played.regret).mean(axis=0))


class Fates(NamedTuple):
    """A model, rounds of people that it describes, and the same where everybody has the rewards of somebody else."""

    model: LatentModel
    described: Rounds
    exchanged: Rounds


@pytest.fixture(scope="module")
def fates() -> Fates:
    world = draw_world(jr.key(0), latent_dim=2, actions=12)
    rounds = jax.jit(lambda: draw_rounds(jr.key(1), world, jnp.arange(64), 800))()
    shift = Rounds(rounds.contexts, jnp.roll(rounds.rewards, 1, axis=1), jnp.roll(rounds.mean_rewards, 1, axis=1))
    return Fates(world.oracle(), rounds, shift)


@jax.jit
def after(policy: AbstractPolicy, contexts: Array, steps: Step) -> Any:
    """Let a policy see contexts and learn from rewards of the same rounds."""

    def one(state: Any, row: tuple[Array, Step]) -> tuple[Any, None]:
        context, step = row
        state, _ = policy.decide(jr.key(0), state, context, jnp.ones(12, bool))
        return policy.learn(state, step), None

    return jax.lax.scan(one, policy.init(), (contexts, steps))[0]


def some_rounds(fates: Fates, seed: int) -> tuple[Array, Step]:
    """Give 40 rounds of one person with actions by chance, one of them never."""
    actions = np.random.default_rng(seed).integers(0, 11, 40)
    contexts = fates.described.contexts[:40, 5]
    return contexts, Step(contexts, jnp.asarray(actions), fates.described.rewards[np.arange(40), 5, actions])


def width_at(rounds: int) -> float:
    return float(np.sqrt(2 * np.log(1 + rounds * np.log(rounds) ** 2)))


# Hierarchical Thompson sampling


def population_of(level: float) -> RewardPopulation:
    rng = np.random.default_rng(0)
    parts = (rng.normal(size=4), rng.uniform(0.01, 0.1, 4), level, rng.uniform(0.2, 1, 4), rng.uniform(0.5, 2, 4))
    return RewardPopulation(*(jnp.asarray(part, jnp.float32) for part in parts))


@pytest.mark.parametrize("level", [0.0, 0.7])
def test_the_hierarchical_belief_is_the_joint_gaussian_conditioned_on_every_reward(level: float) -> None:
    known = population_of(level)
    mean, mean_variance, _, effect, noise = (np.asarray(part, np.float64) for part in known)
    rng = np.random.default_rng(1)
    actions = np.array([0, 0, 2, 1, 2, 2, 0])
    rewards = rng.normal(size=7)
    # Rewards and mean rewards are jointly normal: condition the latter on the former, one reward at a time in a row.
    prior = level + np.diag(mean_variance + effect)
    shown = np.eye(4)[actions]
    among = shown @ prior @ shown.T + np.diag(noise[actions])
    slope = np.linalg.solve(among, shown @ prior).T
    expected = mean + slope @ (rewards - mean[actions])
    covariance = prior - slope @ shown @ prior
    pulls = np.bincount(actions, minlength=4)
    state = RewardSums(jnp.asarray(pulls, jnp.float32), jnp.asarray(np.bincount(actions, rewards, 4), jnp.float32))
    believed = HierarchicalBelief(known).rewards(state, NO_CONTEXT)
    np.testing.assert_allclose(believed.mean(), expected, atol=1e-5)
    np.testing.assert_allclose(believed.std(), np.sqrt(np.diag(covariance)), atol=1e-5)
    drawn = np.asarray(jax.vmap(believed.draw)(jr.split(jr.key(0), 40_000)))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.04)


def test_the_spread_of_mean_rewards_is_found_in_logs() -> None:
    rng = np.random.default_rng(2)
    people, actions, rows = 3000, 4, 6
    mean, effect, noise = (
        np.array([0.0, 1.0, -2.0, 5.0]),
        np.array([0.1, 0.5, 1.0, 2.0]),
        np.array([0.5, 1.0, 2.0, 0.2]),
    )
    truth = mean + 0.8 * rng.normal(size=(people, 1)) + np.sqrt(effect) * rng.normal(size=(people, actions))
    taken = rng.integers(0, actions, (people, rows))
    rewards = np.take_along_axis(truth, taken, 1) + np.sqrt(noise[taken]) * rng.normal(size=taken.shape)
    logs = Logs.from_arrays(np.zeros((people, rows, 0)), taken, rewards, actions=actions)
    found = LogFits(lambda: logs).reward_population
    np.testing.assert_allclose(found.mean, mean, atol=0.1)
    np.testing.assert_allclose(found.level_variance, 0.64, atol=0.06)
    np.testing.assert_allclose(found.effect_variance, effect, atol=0.15)
    np.testing.assert_allclose(found.reward_variance, noise, rtol=0.1)
    np.testing.assert_allclose(found.mean_variance, (0.64 + effect + noise / 2) / people, rtol=0.5)


def test_an_action_that_nobody_was_given_is_taken_for_one_like_the_others() -> None:
    cells = Cells(
        np.array([0, 0, 1, 1]),
        np.array([0, 1, 0, 1]),
        np.array([4, 4, 4, 4]),
        np.array([1.0, 3.0, 3.0, 5.0]),
        np.zeros(4),
    )
    found = fit_reward_population(cells, np.full(3, 0.1))
    assert found.mean.tolist() == [2.0, 4.0, 3.0]
    assert float(found.level_variance) == pytest.approx(1.0)
    assert float(found.mean_variance[2]) == pytest.approx(1.0 + float(found.mean_variance[0]))
    assert np.all(np.isfinite(np.concatenate([np.ravel(part) for part in found])))


def test_the_hierarchy_is_better_than_separate_actions_where_people_differ_in_their_level() -> None:
    """Rewards of one action tell how high those of the others will be, and logs which are good for most."""
    rng = np.random.default_rng(3)
    means = np.linspace(0, 2, 8) + 2 * rng.normal(size=(128, 1)) + 0.5 * rng.normal(size=(128, 8))
    population = RewardPopulation(
        *(
            jnp.asarray(part, jnp.float32)
            for part in (np.linspace(0, 2, 8), np.zeros(8), 4.0, np.full(8, 0.25), np.ones(8))
        )
    )
    rewards = means[None] + rng.normal(size=(100, 128, 8))
    rounds = Rounds(jnp.zeros((100, 128, 2)), *(jnp.asarray(part, jnp.float32) for part in (rewards, means[None])))
    hierarchy = regret_in(hierarchical_ts(population), rounds)
    apart = regret_in(mab_centred(RewardScale(1.0, 4.8), jnp.ones(8)), rounds)
    assert hierarchy[-1] < 0.5 * apart[-1]


# MIN-UCB


def test_the_index_of_min_ucb_is_that_of_all_rewards_in_a_row() -> None:
    """Offline estimates with the variance of T rewards, as T rewards."""
    rng = np.random.default_rng(4)
    offline = [rng.normal(action, 1, 10 * (action + 1)) for action in range(3)]
    online = [rng.normal(action, 1, count) for action, count in ((0, 5), (1, 40))] + [np.zeros(0)]
    variance, bias = np.array([0.5, 1.0, 2.0]), np.array([0.1, 0.3, 0.2])
    logged = OfflineEstimate(
        *(
            jnp.asarray(part, jnp.float32)
            for part in ([one.mean() for one in offline], [variance[a] / len(offline[a]) for a in range(3)], bias)
        )
    )
    policy = MinUCB(LoggedMeans(logged), jnp.asarray(variance, jnp.float32))
    state = policy.init()
    for action, rewards in enumerate(online):
        for reward in rewards:
            state = policy.learn(state, Step(NO_CONTEXT, jnp.asarray(action), jnp.asarray(reward, jnp.float32)))
    expected = []
    for action in range(3):
        both = np.concatenate([online[action], offline[action]])
        pooled = (
            both.mean()
            + np.sqrt(variance[action] / len(both)) * width_at(46)
            + len(offline[action]) / len(both) * bias[action]
        )
        count = len(online[action])
        alone = online[action].mean() + np.sqrt(variance[action] / count) * width_at(46) if count else np.inf
        expected.append(min(alone, pooled))
    np.testing.assert_allclose(policy.index(state, NO_CONTEXT), expected, rtol=1e-5)


def test_offline_estimates_of_min_ucb_are_those_of_the_contexts_alone(fates: Fates) -> None:
    policy, (contexts, steps) = model_min_ucb(fates.model, missed_share=0.5), some_rounds(fates, 1)
    state = after(policy, contexts, steps)
    no_rewards = BeliefPolicy(CalibratedBelief(fates.model), Greedy())
    seen, decide = no_rewards.init(), eqx.filter_jit(no_rewards.decide)
    for context in contexts:
        seen, _ = decide(jr.key(0), seen, context, jnp.ones(12, bool))
    predicted, estimate = no_rewards.rewards(seen, contexts[0]), policy.offline.estimate(state.offline)
    np.testing.assert_allclose(estimate.mean, predicted.mean(), atol=1e-5)
    np.testing.assert_allclose(estimate.variance, predicted.std() ** 2, rtol=1e-4)
    spread = np.asarray(fates.described.mean_rewards[0]).std(axis=0)
    np.testing.assert_allclose(estimate.bias, 2 * 0.5 * spread, rtol=0.5)


def test_min_ucb_gains_much_by_a_right_model_and_is_not_linear_with_a_bound_that_holds(
    fates: Fates,
) -> None:
    scratch = regret_in(mab(12, fates.model.noise.reward_variance), fates.described)
    trusting, wary = (policy_on(fates.model, f"MIN-UCB ({kind})") for kind in ("model", "wary"))
    assert regret_in(trusting, fates.described)[-1] < 0.25 * scratch[-1]
    regret = regret_in(wary, fates.exchanged)
    assert regret[-1] - regret[399] < 0.5 * (regret[399] - regret[0])
    # A bound that does not hold: what it rules out is never tried.
    linear = regret_in(trusting, fates.exchanged)
    assert linear[-1] - linear[399] > 0.7 * (linear[399] - linear[0])


# ProBALL-UCB


def test_the_index_of_proball_ucb_is_weighted_least_squares_over_all_rows(fates: Fates) -> None:
    contexts, steps = some_rounds(fates, 2)
    model, noise = fates.model, fates.model.noise
    theta, intercept = (
        np.asarray(part, np.float64) for part in (linear(model.reward).theta, linear(model.reward).intercept)
    )
    encodings = np.asarray(jax.vmap(model.encoder)(contexts), np.float64)
    actions, rewards = np.asarray(steps.action), np.asarray(steps.reward, np.float64)
    variance = np.asarray(noise.reward_variance, np.float64)
    # Each row observes v: the population once, every context, every reward; all divided by their deviations.
    roots = [np.linalg.inv(np.linalg.cholesky(np.asarray(one, np.float64))) for one in noise_covariances(model)]
    rows = [roots[0], *([roots[1]] * 40), theta[actions] / np.sqrt(variance[actions])[:, None]]
    seen = [roots[0] @ np.asarray(noise.population_mean, np.float64), *(roots[1] @ one for one in encodings)]
    seen.append((rewards - intercept[actions]) / np.sqrt(variance[actions]))
    design, target = np.concatenate(rows), np.concatenate(seen)
    v, *_ = np.linalg.lstsq(design, target, rcond=None)
    std = np.sqrt(np.einsum("ai,ij,aj->a", theta, np.linalg.inv(design.T @ design), theta))
    spread = np.einsum("ai,ij,aj->a", theta, np.asarray(noise.population_covariance, np.float64), theta)
    pulls = np.bincount(actions, minlength=12)
    for share, stays in ((0.02, True), (1.0, False)):
        policy = proball_ucb(model, missed_share=share)
        error = np.asarray(policy.error, np.float64)
        np.testing.assert_allclose(error, share * np.sqrt(spread), rtol=1e-3)
        width, pull = width_at(41), np.sqrt(np.sum(pulls * error**2 / variance))
        inside = intercept + theta @ v + (width + pull) * std + error
        centre = intercept + theta @ np.asarray(noise.population_mean, np.float64)
        precision = 1 / (spread + error**2) + pulls / variance
        apart = centre + np.bincount(actions, rewards - centre[actions], 12) / variance / precision
        state = after(policy, contexts, steps)
        assert bool(policy.in_subspace(state)) == stays == ((width + pull) * np.sqrt(2) <= width * np.sqrt(12))
        expected = inside if stays else apart + width / np.sqrt(precision)
        np.testing.assert_allclose(policy.index(state, contexts[0]), expected, rtol=1e-3, atol=1e-3)


def noise_covariances(model: LatentModel) -> tuple[Array, Array]:
    return model.noise.population_covariance, model.noise.encoding_covariance


def test_proball_ucb_is_near_the_calibrated_posterior_with_a_right_model_and_not_linear_once_it_leaves_the_subspace(
    fates: Fates,
) -> None:
    calibrated = regret_in(policy_on(fates.model, "Calibrated"), fates.described)
    assert regret_in(policy_on(fates.model, "ProBALL-UCB"), fates.described)[-1] < 2 * calibrated[-1] + 2
    regret = regret_in(policy_on(fates.model, "ProBALL-UCB (wary)"), fates.exchanged)
    assert regret[-1] - regret[399] < 0.3 * (regret[399] - regret[0])


# Regret balancing


def test_balancing_plays_and_drops_as_a_plain_loop_says(fates: Fates) -> None:
    policy = calibrated_or_mab(fates.model, fates.model.noise.reward_variance)
    slopes, noise_std = np.asarray(policy.slopes, np.float64), float(policy.noise_std)
    np.testing.assert_allclose(slopes, noise_std * np.sqrt(2 * np.array([2, 12]) * np.log(12)), rtol=1e-5)
    contexts, all_rewards = np.asarray(fates.exchanged.contexts), np.asarray(fates.exchanged.rewards)
    one_round = jax.jit(one_round_of)
    dropped = set()
    for person in range(3):
        state = policy.init()
        rounds, earned, kept = np.zeros(2), np.zeros(2), np.ones(2, bool)
        for t in range(300):
            bounds = np.where(kept, slopes * np.sqrt(rounds), np.inf)
            context, rewards = contexts[t, person], all_rewards[t, person]
            state, chosen, reward = one_round(policy, np.uint32(t), state, context, rewards)
            assert bounds[int(chosen)] <= bounds.min() * (1 + 1e-6)  # bounds may be equal up to rounding
            rounds[int(chosen)] += 1
            earned[int(chosen)] += float(reward)
            with np.errstate(divide="ignore", invalid="ignore"):
                radius = 2 * noise_std * np.sqrt(np.log(2 * np.maximum(np.log(rounds), 1) / 0.05) / rounds)
                mean = earned / rounds
            if (rounds > 0).all():
                best = (mean - radius)[kept].max()
                kept &= ~(mean + slopes / np.sqrt(rounds) + radius < best)
            np.testing.assert_array_equal(state.kept, kept)
        np.testing.assert_allclose(state.reward_sum, earned, rtol=1e-3)
        dropped |= {name for name, still in zip(("calibrated", "mab"), kept, strict=True) if not still}
    assert dropped == {"calibrated"}


def one_round_of(policy: RegretBalancing, seed: Array, state: Any, context: Array, rewards: Array) -> Any:
    chosen = policy.selected(state)
    state, choice = policy.decide(jr.key(seed), state, context, jnp.ones(12, bool))
    reward = rewards[choice.action]
    return policy.learn(state, Step(context, choice.action, reward)), chosen, reward


def test_balancing_keeps_a_right_model_for_most_rounds_and_is_not_linear_with_a_wrong_one(fates: Fates) -> None:
    policy = calibrated_or_mab(fates.model, fates.model.noise.reward_variance)
    right, wrong = regret_in(policy, fates.described), regret_in(policy, fates.exchanged)
    assert right[-1] < 0.7 * regret_in(policy.bases[1], fates.described)[-1]
    lost = regret_in(policy.bases[0], fates.exchanged)
    assert wrong[-1] - wrong[399] < 0.3 * (lost[-1] - lost[399])


# Moments


@pytest.mark.parametrize("name", ["MIN-UCB (model)", "ProBALL-UCB"])
def test_what_the_moment_adds_is_taken_off_rewards_and_put_on_values(name: str, fates: Fates) -> None:
    """A model with a moment, on rewards that have it, against the same without, on rewards that do not."""
    moment = LinearMoment(Affine(jr.normal(jr.key(3), (2, 12)), jnp.zeros(12)))
    plain = fates.model
    with_moment = policy_on(LatentModel(plain.encoder, plain.reward, plain.noise, moment=moment), name)
    without = policy_on(plain, name)
    contexts, steps = some_rounds(fates, 4)
    added = jax.vmap(moment)(contexts)
    richer = steps._replace(reward=steps.reward + added[jnp.arange(40), steps.action])
    believed = with_moment.rewards(after(with_moment, contexts, richer), contexts[7])
    expected = without.rewards(after(without, contexts, steps), contexts[7])
    np.testing.assert_allclose(believed.mean(), expected.mean() + added[7], atol=1e-3)
    np.testing.assert_allclose(believed.std(), expected.std(), rtol=1e-4)
    _, choice = with_moment.decide(jr.key(0), with_moment.init(), contexts[7], jnp.ones(12, bool))
    _, other = without.decide(jr.key(0), without.init(), contexts[7], jnp.ones(12, bool))
    np.testing.assert_allclose(choice.values, other.values + added[7], atol=1e-4)
