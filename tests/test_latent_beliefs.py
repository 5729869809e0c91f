"""The beliefs about a latent state against brute force."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from scipy.optimize import minimize

from ilb.environments import SyntheticWorld, draw_leaky_reward, draw_world
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels, canonical_basis
from ilb.networks import Affine, IdentityEncoder
from ilb.online.evidence import Evidence
from ilb.online.latent import (
    AbstractLatentBelief,
    CalibratedBelief,
    ContextBelief,
    PrintedBelief,
    ReleasedBelief,
)
from ilb.online.roster import policy_on
from ilb.simulation import simulate
from ilb.types import Encoder, Step
from narrowed import linear

DIM, ACTIONS = 3, 4


@pytest.fixture(scope="module")
def model() -> LatentModel:
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(2, DIM, DIM))
    array = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    return LatentModel(
        IdentityEncoder(),
        LinearReward(
            array(rng.normal(size=(ACTIONS, DIM))),
            array(rng.normal(size=ACTIONS)),
            jnp.zeros((ACTIONS, DIM + 1, DIM + 1)),
        ),
        NoiseLevels(
            array(spread[0] @ spread[0].T + np.eye(DIM)),
            array(rng.normal(size=DIM)),
            array(spread[1] @ spread[1].T + np.eye(DIM)),
            array(rng.uniform(0.2, 1.0, size=ACTIONS)),
            array(0.3),
        ),
    )


@pytest.fixture(scope="module")
def past() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts (which are encodings here), actions and rewards of 15 rounds."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(15, DIM)), rng.integers(ACTIONS, size=15), rng.normal(size=15)


def evidence_of(
    encodings: np.ndarray, actions: np.ndarray, rewards: np.ndarray, belief: AbstractLatentBelief | None = None
) -> Evidence:
    """Sum what was seen, as this belief sums it."""
    evidence = Evidence.none(DIM, ACTIONS)
    for encoding in encodings:
        evidence = evidence.add_encoding(jnp.asarray(encoding, jnp.float32))
    for action, reward in zip(actions, rewards, strict=True):
        step = Step(jnp.zeros(DIM), jnp.asarray(int(action)), jnp.asarray(reward, jnp.float32))
        evidence = evidence.add_reward(step) if belief is None else belief.learn(evidence, step)
    return evidence


def test_evidence_is_the_sums_of_a_plain_loop(past: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    encodings, actions, rewards = past
    evidence = evidence_of(*past)
    assert evidence.rounds == len(encodings)
    np.testing.assert_allclose(evidence.encoding_sum, encodings.sum(axis=0), rtol=1e-5)
    for a in range(ACTIONS):
        earned = rewards[actions == a]
        assert evidence.rewards.pulls[a] == len(earned)
        assert evidence.rewards.reward_sum[a] == pytest.approx(earned.sum(), abs=1e-5)
        assert evidence.rewards.means()[a] == pytest.approx(earned.sum() / max(len(earned), 1), abs=1e-5)


@pytest.mark.parametrize("rewards", [[], [3.0], [3.0, 5.0], [3.0, 5.0, -2.0]])
def test_the_mean_reward_of_an_action_is_that_of_its_rewards_and_zero_of_none(rewards: list[float]) -> None:
    means = evidence_of(np.zeros((0, DIM)), np.full(len(rewards), 2), np.array(rewards)).rewards.means()
    np.testing.assert_allclose(means, [0, 0, sum(rewards) / len(rewards) if rewards else 0, 0])


def brute_force(loss: Callable[[np.ndarray], float]) -> np.ndarray:
    found = minimize(loss, np.zeros(DIM), method="BFGS", options={"gtol": 1e-9})
    return found.x


def test_the_printed_belief_is_the_minimiser_of_the_printed_loss(
    model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    encodings, actions, rewards = past
    theta, intercept = np.asarray(linear(model.reward).theta), np.asarray(linear(model.reward).intercept)

    def loss(z: np.ndarray) -> float:
        residuals = rewards - theta[actions] @ z - intercept[actions]
        return np.sum((z - encodings.mean(axis=0)) ** 2) + np.sum(residuals**2)

    believed = PrintedBelief(model).believe(evidence_of(*past))
    np.testing.assert_allclose(believed.z, brute_force(loss), atol=1e-4)


def test_the_released_belief_is_the_minimiser_of_the_released_loss(
    model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    encodings, actions, rewards = past
    theta, intercept = np.asarray(linear(model.reward).theta), np.asarray(linear(model.reward).intercept)

    def loss(z: np.ndarray) -> float:
        residuals = rewards - theta[actions] @ z - intercept[actions]
        return np.sum((z - encodings.mean(axis=0)) ** 2) + np.mean(residuals**2)

    believed = ReleasedBelief(model).believe(evidence_of(*past))
    np.testing.assert_allclose(believed.z, brute_force(loss), atol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e8])
@pytest.mark.parametrize(("belief", "weight"), [(PrintedBelief, 1.0), (ReleasedBelief, 7.0)])
def test_the_papers_beliefs_hold_whatever_the_scale_of_rewards(
    belief: type[AbstractLatentBelief], weight: float, scale: float, model: LatentModel
) -> None:
    """Against least squares in float64; two of the actions were taken, so that most directions rest on contexts."""
    larger = eqx.tree_at(lambda m: (m.reward.theta, m.reward.intercept), model, replace_fn=lambda part: part * scale)
    rng = np.random.default_rng(2)
    encodings, actions = rng.normal(size=(7, DIM)).astype(np.float32), np.array([0, 1, 1, 0, 1, 1, 1])
    rewards = (scale * rng.normal(size=7)).astype(np.float32)
    theta, intercept = (
        np.asarray(part, np.float64) for part in (linear(larger.reward).theta, linear(larger.reward).intercept)
    )
    design = np.concatenate([np.sqrt(weight) * np.eye(DIM), theta[actions]])
    target = np.concatenate([np.sqrt(weight) * encodings.mean(axis=0), rewards - intercept[actions]])
    inverse = np.linalg.pinv(design)
    believed = belief(larger).believe(evidence_of(encodings, actions, rewards))
    # The solution, and its standard deviations: those of rewards that were never seen are as wide as contexts leave.
    np.testing.assert_allclose(believed.mean(), theta @ (inverse @ target) + intercept, rtol=1e-3, atol=1e-3 * scale)
    spread = np.sqrt(np.sum((theta @ inverse) ** 2, axis=1))
    np.testing.assert_allclose(believed.std(), spread, rtol=1e-3)


def test_the_calibrated_belief_is_gaussian_conditioning(
    model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    """z, the unexplained effects, all encodings and all rewards in one joint Gaussian, conditioned in float64."""
    encodings, actions, rewards = past
    noise = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.noise)
    theta, intercept = (
        np.asarray(part, np.float64) for part in (linear(model.reward).theta, linear(model.reward).intercept)
    )
    unknowns = DIM + ACTIONS
    prior = np.zeros((unknowns, unknowns))
    prior[:DIM, :DIM], prior[DIM:, DIM:] = noise.population_covariance, noise.leftover_variance * np.eye(ACTIONS)
    prior_mean = np.concatenate([noise.population_mean, np.zeros(ACTIONS)])
    rows, values, blocks = [], [], []
    for encoding in encodings:
        rows.append(np.concatenate([np.eye(DIM), np.zeros((DIM, ACTIONS))], axis=1))
        values.append(encoding)
        blocks.append(noise.encoding_covariance)
    for action, reward in zip(actions, rewards, strict=True):
        rows.append(np.concatenate([theta[action], np.eye(ACTIONS)[action]])[None])
        values.append([reward - intercept[action]])
        blocks.append(noise.reward_variance[action] * np.eye(1))
    design, observed = np.concatenate(rows), np.concatenate(values)
    scatter = np.zeros((len(design), len(design)))
    first = 0
    for block in blocks:
        scatter[first : first + len(block), first : first + len(block)] = block
        first += len(block)
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + scatter)
    mean = prior_mean + gain @ (observed - design @ prior_mean)
    covariance = prior - gain @ design @ prior
    to_rewards = np.concatenate([theta, np.eye(ACTIONS)], axis=1)

    belief = CalibratedBelief(model)
    believed = belief.rewards(evidence_of(*past, belief), jnp.zeros(DIM))
    np.testing.assert_allclose(believed.mean(), to_rewards @ mean + intercept, atol=1e-4)
    np.testing.assert_allclose(believed.std(), np.sqrt(np.diag(to_rewards @ covariance @ to_rewards.T)), atol=1e-4)
    draws = np.asarray(jax.vmap(believed.draw)(jr.split(jr.key(0), 40_000)))
    np.testing.assert_allclose(np.cov(draws.T), to_rewards @ covariance @ to_rewards.T, atol=0.03)


def test_the_context_belief_is_the_mean_encoding(
    model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    believed = ContextBelief(model).believe(evidence_of(*past))
    np.testing.assert_allclose(believed.z, past[0].mean(axis=0), atol=1e-5)
    theta, within = np.asarray(linear(model.reward).theta), np.asarray(model.noise.encoding_covariance)
    np.testing.assert_allclose(believed.std(), np.sqrt(np.diag(theta @ within @ theta.T) / 15), rtol=1e-3)


@pytest.mark.parametrize("belief", [ContextBelief, PrintedBelief, ReleasedBelief, CalibratedBelief])
def test_rewards_may_arrive_in_any_order(
    belief: type[AbstractLatentBelief], model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    encodings, actions, rewards = past
    order = np.random.default_rng(3).permutation(15)
    made = belief(model)
    first = made.rewards(evidence_of(*past, made), jnp.zeros(DIM))
    second = made.rewards(evidence_of(encodings[::-1], actions[order], rewards[order], made), jnp.zeros(DIM))
    np.testing.assert_allclose(first.mean(), second.mean(), atol=1e-5)
    np.testing.assert_allclose(first.std(), second.std(), atol=1e-5)


@pytest.mark.parametrize("belief", [PrintedBelief, ReleasedBelief, CalibratedBelief])
def test_nothing_drifts_in_20000_rounds(belief: type[AbstractLatentBelief], model: LatentModel) -> None:
    """float32 sums against one direct solve in float64."""
    rng = np.random.default_rng(4)
    rounds = 20_000
    z = rng.normal(size=DIM)
    encodings = (z + rng.normal(size=(rounds, DIM))).astype(np.float32)
    actions = rng.integers(ACTIONS, size=rounds)
    theta, intercept = (
        np.asarray(part, np.float64) for part in (linear(model.reward).theta, linear(model.reward).intercept)
    )
    rewards = (theta[actions] @ z + intercept[actions] + 0.5 * rng.normal(size=rounds)).astype(np.float32)

    def count(evidence: Evidence, row: Any) -> tuple[Evidence, None]:
        encoding, action, reward = row
        return evidence.add_encoding(encoding).add_reward(Step(encoding, action, reward)), None

    evidence, _ = jax.lax.scan(count, Evidence.none(DIM, ACTIONS), (encodings, actions, rewards))
    reward_sum: Any = np.bincount(actions, weights=rewards.astype(np.float64))
    exact: Any = evidence._replace(
        encoding_sum=encodings.sum(axis=0, dtype=np.float64),
        rewards=evidence.rewards._replace(reward_sum=reward_sum),
    )
    with jax.enable_x64():
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), model)
        exact = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), exact)
        wanted = np.asarray(belief(wide).rewards(exact, jnp.zeros(DIM)).mean())
        assert wanted.dtype == np.float64
    believed = belief(model).rewards(evidence, jnp.zeros(DIM))
    np.testing.assert_allclose(believed.mean(), wanted, atol=5e-4)


def moved(model: LatentModel, matrix: Array, shift: Array) -> LatentModel:
    """The same model in another latent basis: z' = z A + c."""
    inverse = jnp.linalg.inv(matrix)
    theta = linear(model.reward).theta @ inverse.T
    n = len(shift)
    back = jnp.eye(n + 1).at[:n, :n].set(inverse).at[n, :n].set(-shift @ inverse.T)
    covariance = back @ linear(model.reward).coefficient_covariance @ back.T
    reward = LinearReward(theta, linear(model.reward).intercept - theta @ shift, covariance)
    turn = lambda covariance: matrix.T @ covariance @ matrix  # noqa: E731
    noise = eqx.tree_at(
        lambda n: (n.encoding_covariance, n.population_mean, n.population_covariance),
        model.noise,
        (
            turn(model.noise.encoding_covariance),
            model.noise.population_mean @ matrix + shift,
            turn(model.noise.population_covariance),
        ),
    )
    return LatentModel(_Then(model.encoder, Affine(matrix, shift)), reward, noise)


class _Then(eqx.Module):
    first: Encoder
    second: Encoder

    def __call__(self, x: Array) -> Array:
        return self.second(self.first(x))


@pytest.mark.parametrize("name", ["CPG", "Calibrated", "Adaptive"])
def test_actions_survive_an_affine_change_of_latents(
    name: str, small_world: SyntheticWorld, small_model: LatentModel
) -> None:
    rng = np.random.default_rng(5)
    matrix = jnp.asarray(rng.normal(size=(3, 3)) + 2 * np.eye(3), jnp.float32)
    other = moved(small_model, matrix, jnp.asarray(rng.normal(size=3), jnp.float32))
    first, second = (simulate(jr.key(0), small_world, policy_on(m, name), 40, 50) for m in (small_model, other))
    # The other model's float32 numbers are off by 1e-3, which may turn what is nearly a tie, and all that follows it.
    same = np.all(first.actions == second.actions, axis=1)
    assert np.mean(same) > 0.9


def test_cpg_runs_on_rewards_that_are_not_linear() -> None:
    world = draw_world(jr.key(2), latent_dim=3, actions=5, draw_reward=draw_leaky_reward)
    history = simulate(jr.key(0), world, policy_on(world.oracle(), "CPG"), 50, 200)
    assert history.optimal_share(150).value > 0.85


def test_a_population_without_width_and_rewards_without_noise_count_as_very_narrow(
    model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    """A population has at least 1e-4 of the noise of encodings, a reward 1e-4 of the variance of expected rewards."""
    where = lambda m: (m.noise.population_covariance, m.noise.reward_variance)  # noqa: E731
    W, theta = (
        np.asarray(model.noise.encoding_covariance, np.float64),
        np.asarray(linear(model.reward).theta, np.float64),
    )
    narrow = 1e-4 * W
    noise = 1e-4 * np.mean(np.diag(theta @ narrow @ theta.T))
    exact = eqx.tree_at(where, model, (jnp.zeros((DIM, DIM)), jnp.zeros(ACTIONS)))
    stated = eqx.tree_at(where, model, (jnp.asarray(narrow, jnp.float32), jnp.full(ACTIONS, noise, jnp.float32)))
    first, second = (CalibratedBelief(each) for each in (exact, stated))
    np.testing.assert_allclose(first.prior_precision, second.prior_precision, rtol=1e-3)
    np.testing.assert_allclose(first.reward_variance, second.reward_variance, rtol=1e-3)
    believed = first.rewards(evidence_of(*past), jnp.zeros(DIM))
    assert np.all(np.isfinite(believed.mean()))
    assert np.all(believed.std() > 0)


def test_actions_that_all_pay_the_same_for_certain_are_believed_to(
    model: LatentModel, past: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    where = lambda m: (m.reward.theta, m.noise.reward_variance, m.noise.leftover_variance)  # noqa: E731
    flat = eqx.tree_at(where, model, (jnp.zeros((ACTIONS, DIM)), jnp.zeros(ACTIONS), jnp.asarray(0.0)))
    belief = CalibratedBelief(flat)
    believed = belief.rewards(evidence_of(*past, belief), jnp.zeros(DIM))
    np.testing.assert_allclose(believed.mean(), flat.reward.intercept, rtol=1e-5)
    np.testing.assert_allclose(believed.std(), 0, atol=1e-5)


def test_the_canonical_basis_has_the_narrowest_coordinate_first_and_an_inverse(model: LatentModel) -> None:
    noise, population = (
        np.asarray(each, np.float64) for each in (model.noise.encoding_covariance, model.noise.population_covariance)
    )
    variances, matrix, back = canonical_basis(noise, population)
    np.testing.assert_allclose(variances, np.sort(np.linalg.eigvals(np.linalg.inv(noise) @ population).real))
    np.testing.assert_allclose(matrix @ back.T, np.eye(DIM), atol=1e-9)
    np.testing.assert_allclose(matrix.T @ population @ matrix, np.diag(variances), atol=1e-9)


def test_standard_errors_are_roots_of_the_diagonal_and_zero_for_a_known_model() -> None:
    roots = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    correlated = np.einsum("ki,kj->kij", roots, roots)
    reward = LinearReward(jnp.ones((3, 1)), jnp.ones(3), jnp.asarray(correlated, jnp.float32))
    np.testing.assert_allclose(reward.standard_errors, roots)
    known = LinearReward.known(jnp.ones((3, 1)), jnp.ones(3))
    np.testing.assert_array_equal(known.coefficient_covariance, np.zeros((3, 2, 2)))
