"""The synthetic world (eq. scm, Section "Environments"): its parts, its recordings, and the file that names it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ilb.environments import (
    ConfoundedLogging,
    GaussianNoise,
    LaplaceNoise,
    Plan,
    Recording,
    Specification,
    Synthetic,
    SyntheticWorld,
    UniformLogging,
    UniformNoise,
    draw_confounded_logging,
    draw_leaky_reward,
    draw_world,
    record,
)
from ilb.environments.synthetic import LatentNoise
from ilb.errors import WorldError
from ilb.logs import Logs
from ilb.networks import LeakyReward, random_leaky_mixing
from ilb.types import as_real
from narrowed import linear

DIM, ACTIONS = 3, 4
WORLD = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS)
RARE = 1e-4  # a test of a distribution fails for one key in ten thousand


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(jr.key(1), WORLD, UniformLogging(ACTIONS), instances=40, length=30)


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.2 * x)


# The emission


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(2, 5), st.integers(0, 2**31 - 1))
def test_the_left_inverse_undoes_the_emission(one_dim: int, other_dim: int, layers: int, seed: int) -> None:
    dim, context_dim = sorted((one_dim, other_dim))
    mixing = random_leaky_mixing(jr.key(seed), dim, context_dim, layers, 0.2)
    z = 2 * jr.normal(jr.key(seed + 1), (dim,))
    # Each stage may shrink a coordinate five-fold, so rounding grows by 5 in each of the L - 1 inverse stages.
    np.testing.assert_allclose(mixing.inverse(mixing(z)), z, atol=1e-5 * 5 ** (layers - 1))


@pytest.mark.parametrize(("context_dim", "layers"), [(3, 2), (3, 4), (4, 3)])
def test_the_emission_is_leaky_stages_and_orthonormal_columns(context_dim: int, layers: int) -> None:
    mixing = random_leaky_mixing(jr.key(3), 3, context_dim, layers, 0.2)
    assert len(mixing.matrices) == layers - 1
    z = np.random.default_rng(0).normal(size=3)
    expected = z
    for matrix in map(np.asarray, mixing.matrices):
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(matrix.shape[1]), atol=1e-5)
        expected = matrix @ leaky(expected)
    np.testing.assert_allclose(mixing(jnp.asarray(z)), expected, atol=1e-5)


def test_the_matrices_of_an_emission_are_drawn_independently() -> None:
    first, second = random_leaky_mixing(jr.key(4), 3, 3, 3, 0.2).matrices
    assert np.abs(np.asarray(first) - np.asarray(second)).max() > 0.1


def test_the_emission_is_not_linear() -> None:
    z = jnp.asarray([1.0, -2.0, 3.0])
    mixing = random_leaky_mixing(jr.key(6), 3, 3, 2, 0.2)
    assert np.linalg.norm(mixing(z) + mixing(-z)) > 0.5  # odd functions would give 0


def principal_deviations(layers: int, seed: int) -> np.ndarray:
    """Of an image of two latent dimensions in four, the largest as 1."""
    mixing = random_leaky_mixing(jr.key(seed), 2, 4, layers, 0.2)
    contexts = np.asarray(jax.vmap(mixing)(jr.normal(jr.key(8), (500, 2))))
    spread = np.linalg.svd(contexts - contexts.mean(axis=0), compute_uv=False)
    return spread / spread[0]


@pytest.mark.parametrize("layers", [3, 5])
def test_the_image_in_more_dimensions_is_bent(layers: int) -> None:
    """No n-dimensional affine subspace holds it, so no linear map can take the extra dimensions off."""
    assert all(principal_deviations(layers, seed)[2] > 0.05 for seed in range(3))


def test_with_two_layers_the_image_in_more_dimensions_is_flat() -> None:
    """One stage lifts and nothing comes after it to bend: known, and the reason to use L = 3 with d > n."""
    assert principal_deviations(2, seed=0)[2] < 1e-5


# Noise, latent states and rewards


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize(
    ("noise", "law", "variance"),
    [
        (GaussianNoise, lambda scale: stats.norm(0, scale), lambda scale: scale**2),
        (LaplaceNoise, lambda scale: stats.laplace(0, scale), lambda scale: 2 * scale**2),
        (UniformNoise, lambda scale: stats.uniform(-scale / 2, scale), lambda scale: scale**2 / 12),
    ],
    ids=["gaussian", "laplace", "uniform"],
)
def test_latent_noise_has_its_law_mean_zero_and_the_stated_variance(
    noise: Callable[[float], LatentNoise], law: Callable[[float], Any], variance: Callable[[float], float], scale: float
) -> None:
    eta = np.asarray(jax.vmap(lambda key: noise(scale).sample(key, DIM))(jr.split(jr.key(9), 5000)), np.float64)
    assert stats.kstest(eta.ravel(), law(scale).cdf).pvalue > RARE
    stated = float(noise(scale).variance)
    np.testing.assert_allclose(stated, variance(scale), rtol=1e-6)
    kurtosis = law(scale).stats(moments="k") + 3
    assert abs(eta.mean()) < 4 * np.sqrt(stated / eta.size)
    assert abs(eta.var() - stated) < 4 * stated * np.sqrt((kurtosis - 1) / eta.size)
    correlations = np.asarray(np.corrcoef(eta, rowvar=False))[np.triu_indices(DIM, 1)]
    assert np.all(np.abs(correlations) < 4 / np.sqrt(len(eta)))


def test_numbers_may_be_given_as_integers() -> None:
    """`reward_std=1` is as good as 1.0: the same types everywhere, so the same compiled programs."""
    noise: Any = LaplaceNoise
    whole = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS, latent_std=1, reward_std=1, noise=noise(1))
    real = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS, latent_std=1.0, reward_std=1.0, noise=noise(1.0))
    types = [[leaf.dtype for leaf in jax.tree.leaves(world.oracle())] for world in (whole, real)]
    assert types[0] == types[1]
    assert [leaf.dtype for leaf in jax.tree.leaves(whole)] == [leaf.dtype for leaf in jax.tree.leaves(real)]


def test_coefficients_are_unit_vectors_that_differ() -> None:
    draws = [linear(draw_world(jr.key(seed), latent_dim=DIM, actions=ACTIONS).reward).theta for seed in range(10)]
    theta = np.concatenate([np.asarray(draw) for draw in draws])
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1.0, atol=1e-6)
    assert np.abs(theta @ theta.T - np.eye(10 * ACTIONS)).max() < 0.99999
    # Uniform on the sphere: each coordinate has mean 0 and variance 1 / n, and for n = 3 is itself uniform.
    assert stats.kstest(theta[:, 0], stats.uniform(-1, 2).cdf).pvalue > RARE
    assert np.all(np.abs(theta.mean(axis=0)) < 4 / np.sqrt(len(theta) * DIM))


def test_latent_states_have_the_stated_deviation() -> None:
    world = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS, latent_std=2.0)
    z = np.asarray(jax.vmap(world.sample_instance)(jr.split(jr.key(11), 5000)))
    assert stats.kstest(z.ravel(), stats.norm(0, 2.0).cdf).pvalue > RARE


def test_recorded_rewards_are_theta_z_plus_noise_of_the_stated_deviation(recording: Recording) -> None:
    logs = recording.logs
    theta = np.asarray(linear(WORLD.reward).theta)
    np.testing.assert_allclose(recording.mean_rewards, recording.latents @ theta.T, atol=1e-5)
    noise = logs.reward - recording.mean_rewards[logs.instance, logs.action]
    assert stats.kstest(noise, stats.norm(0, 0.5).cdf).pvalue > RARE
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 4 / np.sqrt(logs.rows)  # a new draw each round
    # Rewards are functions of z, not of the noisy z_t that the context of the round shows.
    eta = np.asarray(jax.vmap(WORLD.mixing.inverse)(jnp.asarray(logs.context))) - recording.latents[logs.instance]
    assert np.all(np.abs([np.corrcoef(noise, eta[:, j])[0, 1] for j in range(DIM)]) < 4 / np.sqrt(logs.rows))


def test_recorded_contexts_are_emitted_around_the_latent_state(recording: Recording) -> None:
    eta = (
        np.asarray(jax.vmap(WORLD.mixing.inverse)(jnp.asarray(recording.logs.context)))
        - recording.latents[recording.logs.instance]
    )
    assert stats.kstest(eta.ravel(), stats.norm(0, 1).cdf).pvalue > RARE


def test_the_oracle_is_exact_without_noise() -> None:
    oracle = WORLD.oracle()
    for z in jr.normal(jr.key(12), (5, DIM)):
        np.testing.assert_allclose(oracle.encoder(WORLD.mixing(z)), z, atol=1e-4)
        np.testing.assert_allclose(oracle.reward(oracle.encoder(WORLD.mixing(z))), WORLD.mean_rewards(z), atol=1e-4)


def test_the_oracle_states_the_variances_of_the_world() -> None:
    world = draw_world(
        jr.key(0), latent_dim=DIM, actions=ACTIONS, latent_std=2.0, reward_std=0.3, noise=LaplaceNoise(as_real(0.5))
    )
    noise = world.oracle().noise
    np.testing.assert_allclose(noise.encoding_covariance, 0.5 * np.eye(DIM), atol=1e-6)
    np.testing.assert_allclose(noise.population_covariance, 4.0 * np.eye(DIM), atol=1e-6)
    np.testing.assert_allclose(noise.population_mean, np.zeros(DIM))
    np.testing.assert_allclose(noise.reward_variance, np.full(ACTIONS, 0.09), rtol=1e-5)
    assert noise.leftover_variance == 0


def test_nonlinear_rewards_match_their_definition_and_no_line() -> None:
    world = draw_world(jr.key(13), latent_dim=DIM, actions=ACTIONS, draw_reward=draw_leaky_reward)
    assert isinstance(world.reward, LeakyReward)
    hidden, theta = np.asarray(world.reward.hidden), np.asarray(world.reward.theta)
    np.testing.assert_allclose(np.linalg.norm(theta, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(hidden @ hidden.T, np.eye(DIM), atol=1e-5)
    z = np.random.default_rng(1).normal(size=(400, DIM))
    rewards = np.asarray(jax.vmap(world.mean_rewards)(jnp.asarray(z)))
    np.testing.assert_allclose(rewards, leaky(z @ hidden.T) @ theta.T, atol=1e-5)
    design = np.concatenate([z, np.ones((400, 1))], axis=1)
    residual = rewards - design @ np.linalg.lstsq(design, rewards, rcond=None)[0]
    assert np.all(residual.var(axis=0) > 0.02 * rewards.var(axis=0))


def test_impossible_worlds_are_refused() -> None:
    with pytest.raises(ValueError, match="got context_dim=2 < latent_dim=3"):
        draw_world(jr.key(0), latent_dim=3, context_dim=2)
    with pytest.raises(ValueError, match="got layers=1"):
        draw_world(jr.key(0), layers=1)


# Logging


def test_uniform_logging_is_uniform_and_blind(recording: Recording) -> None:
    action = recording.logs.action
    assert stats.chisquare(np.bincount(action, minlength=ACTIONS)).pvalue > RARE
    positive = recording.latents[recording.logs.instance] > 0
    for j in range(DIM):
        table = [np.bincount(action[positive[:, j] == side], minlength=ACTIONS) for side in (True, False)]
        assert stats.chi2_contingency(table).pvalue > RARE


def log_odds_gain(action: np.ndarray, logits: np.ndarray) -> tuple[float, float, float, np.ndarray]:
    """Mean gain in log-likelihood over uniform play, and the gain that these logits themselves expect."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    probabilities = np.exp(log_probabilities)
    gain = log_probabilities[np.arange(len(action)), action] + np.log(ACTIONS)
    expected = np.sum(probabilities * (log_probabilities + np.log(ACTIONS)), axis=1)
    return gain.mean(), expected.mean(), gain.std() / np.sqrt(len(action)), probabilities


@pytest.mark.parametrize("cause", ["latent state", "context"])
def test_confounded_logging_depends_on_the_latent_state_and_on_the_context(cause: str) -> None:
    drawn = draw_confounded_logging(jr.key(14), WORLD)
    zeros = jnp.zeros((ACTIONS, DIM))
    on_state = cause == "latent state"
    logging = ConfoundedLogging(
        drawn.latent_weights if on_state else zeros, zeros if on_state else drawn.context_weights
    )
    recording = record(jr.key(1), WORLD, logging, instances=40, length=30)
    logs = recording.logs
    latents = recording.latents[logs.instance]
    causes = latents if on_state else logs.context
    weights = np.asarray(logging.latent_weights if on_state else logging.context_weights)
    gain, expected, deviation, probabilities = log_odds_gain(logs.action, causes @ weights.T)
    assert expected > 0.2  # actions are far from uniform
    assert abs(gain - expected) < 4 * deviation
    counts, means = np.bincount(logs.action, minlength=ACTIONS), probabilities.sum(axis=0)
    assert np.all(np.abs(counts - means) < 4 * np.sqrt((probabilities * (1 - probabilities)).sum(axis=0)))


def test_confounding_has_the_stated_strength() -> None:
    drawn = [draw_confounded_logging(jr.key(seed), WORLD, 0.3) for seed in range(40)]
    weights = np.concatenate([np.asarray(part).ravel() for part in jax.tree.leaves(drawn)])
    assert weights.size == 40 * 2 * ACTIONS * DIM
    assert stats.kstest(weights, stats.norm(0, 0.3).cdf).pvalue > RARE


def test_contexts_and_instances_do_not_depend_on_who_logged(recording: Recording) -> None:
    other = record(jr.key(1), WORLD, draw_confounded_logging(jr.key(14), WORLD), instances=40, length=30)
    np.testing.assert_allclose(other.latents, recording.latents, atol=1e-6)
    np.testing.assert_allclose(other.logs.context, recording.logs.context, atol=1e-5)
    assert np.any(other.logs.action != recording.logs.action)


# Recordings


def test_a_recording_begins_with_one_of_fewer_instances_and_rounds(recording: Recording) -> None:
    instances, length = 25, 12
    shorter = record(jr.key(1), WORLD, UniformLogging(ACTIONS), instances=instances, length=length)
    np.testing.assert_allclose(shorter.latents, recording.latents[:instances], atol=1e-6)
    np.testing.assert_allclose(shorter.mean_rewards, recording.mean_rewards[:instances], atol=1e-5)

    def early(logs: Logs) -> np.ndarray:
        round_number = np.arange(logs.rows) - logs.starts[logs.instance]
        return (logs.instance < instances) & (round_number < length)

    kept, logs = early(recording.logs), shorter.logs
    np.testing.assert_array_equal(logs.instance, recording.logs.instance[kept])
    np.testing.assert_array_equal(logs.action, recording.logs.action[kept])
    np.testing.assert_allclose(logs.context, recording.logs.context[kept], atol=1e-5)
    np.testing.assert_allclose(logs.reward, recording.logs.reward[kept], atol=1e-5)


def test_histories_may_have_unequal_lengths(recording: Recording) -> None:
    lengths = np.array([1 + (7 * number) % 30 for number in range(40)])
    lengths[3] = 30
    unequal = record(jr.key(1), WORLD, UniformLogging(ACTIONS), instances=40, length=lengths)
    np.testing.assert_array_equal(unequal.logs.lengths, lengths)
    np.testing.assert_allclose(unequal.latents, recording.latents)
    for number in (0, 3, 17):
        mine, full = (one.logs.context[one.logs.instance == number] for one in (unequal, recording))
        np.testing.assert_allclose(mine, full[: lengths[number]], atol=1e-5)


@pytest.mark.parametrize("length", [0, np.array([30, 0, 5]), np.array([30, -1, 5])], ids=["none", "one", "negative"])
def test_an_instance_without_rounds_is_refused(length: int | np.ndarray) -> None:
    """Dropped in silence, the latent states would belong to other instances than the logs."""
    with pytest.raises(ValueError, match="length"):
        record(jr.key(1), WORLD, UniformLogging(ACTIONS), instances=3, length=length)


def test_another_key_gives_another_recording(recording: Recording) -> None:
    other = record(jr.key(2), WORLD, UniformLogging(ACTIONS), instances=40, length=30)
    assert np.abs(other.latents - recording.latents).min() > 0
    assert np.any(other.logs.action != recording.logs.action)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_recording_goes_through_a_frame_and_back(recording: Recording, backend: str) -> None:
    logs = recording.logs
    frame = logs.to_frame(backend)
    again = Logs.from_frame(frame, instance="instance", time="time", action="action", reward="reward")
    assert again.instance_labels == logs.instance_labels
    assert again.schema.actions == logs.schema.actions == tuple(range(ACTIONS))
    np.testing.assert_array_equal(again.instance, logs.instance)
    np.testing.assert_array_equal(again.action, logs.action)
    np.testing.assert_array_equal(again.reward, logs.reward)
    np.testing.assert_array_equal(again.starts, logs.starts)
    # from_frame scales the contexts; written out again they are in the units of the world.
    mean, std = logs.context.mean(axis=0, dtype=float), logs.context.std(axis=0, dtype=float)
    np.testing.assert_allclose(again.context, (logs.context - mean) / std, atol=1e-3)
    columns = [f"x{j + 1}" for j in range(DIM)]
    np.testing.assert_allclose(pd.DataFrame(again.to_frame())[columns], logs.context, atol=1e-5)


def test_with_its_own_schema_a_frame_gives_the_same_contexts(recording: Recording) -> None:
    again = Logs.from_frame(recording.logs.to_frame("pyarrow"), schema=recording.logs.schema)
    np.testing.assert_array_equal(again.context, recording.logs.context)
    np.testing.assert_array_equal(again.action, recording.logs.action)


# Specifications


SMALL = Specification(Synthetic(latent_dim=DIM, actions=ACTIONS), Plan(instances=40, test_instances=40, length=30))


def test_a_specification_comes_back_from_its_file(tmp_path: Path) -> None:
    odd = Specification(
        Synthetic(3, 35, "laplace", 0.1 + 0.2, "leaky", 0.25, 4, 7, 2.0),
        Plan(confounding=0.5, instances=3, test_instances=0, length=9),
        seed=7,
    )
    odd.save(tmp_path / "world.json")
    assert Specification.load(tmp_path / "world.json") == odd
    assert json.loads((tmp_path / "world.json").read_text())["environment"] == "synthetic"


def test_a_file_of_the_first_version_gives_the_same_world(tmp_path: Path) -> None:
    stored = {"environment": "synthetic", "seed": 2, "latent_dim": 4, "context_dim": 7, "layers": 3, "actions": 6}
    stored |= {"noise": "laplace", "noise_scale": 0.3, "reward": "leaky", "latent_std": 2.0, "reward_std": 0.25}
    stored |= {"confounding": 0.5, "instances": 3, "test_instances": 0, "length": 9}
    (tmp_path / "world.json").write_text(json.dumps(stored))
    world = Synthetic(3, 6, "laplace", 0.3, "leaky", 0.25, 4, 7, 2.0)
    assert Specification.load(tmp_path / "world.json") == Specification(world, Plan(3, 9, 0, 0.5), seed=2)


def test_a_specification_determines_the_recordings(tmp_path: Path) -> None:
    SMALL.save(tmp_path / "world.json")
    first, second = SMALL.record(), Specification.load(tmp_path / "world.json").record()
    np.testing.assert_array_equal(first.training.logs.context, second.training.logs.context)
    np.testing.assert_array_equal(first.test.logs.reward, second.test.logs.reward)
    assert np.abs(first.training.latents - first.test.latents).min() > 0  # other instances of the same world
    assert isinstance(first.world, SyntheticWorld)
    theta = np.asarray(linear(first.world.reward).theta)
    np.testing.assert_allclose(first.test.mean_rewards, first.test.latents @ theta.T, atol=1e-5)


def test_a_specification_can_do_without_test_instances() -> None:
    recorded = replace(SMALL, plan=replace(SMALL.plan, test_instances=0)).record()
    assert recorded.held_out is None
    with pytest.raises(WorldError, match="test_instances is 0"):
        _ = recorded.test
    np.testing.assert_array_equal(recorded.training.logs.context, SMALL.record().training.logs.context)


def test_a_description_draws_the_world_it_names() -> None:
    world = Synthetic(
        latent_dim=3,
        context_dim=5,
        layers=3,
        actions=4,
        noise="uniform",
        noise_scale=0.5,
        reward="leaky",
        latent_std=2.0,
    ).draw()
    assert isinstance(world.noise, UniformNoise)
    assert float(world.noise.scale) == 0.5
    assert [matrix.shape for matrix in world.mixing.matrices] == [(5, 3), (5, 5)]
    assert isinstance(world.reward, LeakyReward)
    assert world.reward.hidden.shape == (3, 3)
    assert (float(world.latent_std), float(world.reward_std)) == (2.0, 0.5)


def test_a_plan_can_make_logged_actions_depend_on_the_latent_state() -> None:
    plan = replace(SMALL.plan, confounding=2.0, instances=100)
    for strength, expected in ((0.0, False), (2.0, True)):
        recording = replace(SMALL, plan=replace(plan, confounding=strength)).record().training
        positive = recording.latents[recording.logs.instance, 0] > 0
        table = [np.bincount(recording.logs.action[positive == side], minlength=ACTIONS) for side in (True, False)]
        assert (stats.chi2_contingency(table).pvalue < RARE) == expected


@pytest.mark.parametrize(("field", "value"), [("noise", "cauchy"), ("reward", "cubic")])
def test_an_unknown_family_is_answered_with_the_known_ones(field: str, value: Any) -> None:
    with pytest.raises(WorldError, match=rf"{field} must be one of (gaussian|linear), .*; got '{value}'"):
        Synthetic(**{field: value})


def test_the_name_of_a_noise_is_not_a_noise() -> None:
    with pytest.raises(WorldError, match=r"noise must be GaussianNoise\(scale\).*; got 'laplace'\. By name:"):
        draw_world(jr.key(0), noise="laplace")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '{"seed": 1}', '{"environment": "synthetic", "colour": 1}', '{"environment": []}'],
)
def test_a_file_that_is_no_specification_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "world.json").write_text(text)
    with pytest.raises(WorldError, match=r"world\.json"):
        Specification.load(tmp_path / "world.json")


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"nowhere\.json"):
        Specification.load(tmp_path / "nowhere.json")
    (tmp_path / "world.json").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(WorldError, match=r"world\.json"):
        Specification.load(tmp_path / "world.json")


@pytest.mark.parametrize("more", [{}, {"sites": 3}])
def test_an_unknown_environment_is_answered_with_the_known_ones(tmp_path: Path, more: dict[str, int]) -> None:
    (tmp_path / "world.json").write_text(json.dumps({"environment": "mars", **more}))
    with pytest.raises(WorldError, match=r"'mars' environment; known are .*synthetic.*import that first"):
        Specification.load(tmp_path / "world.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", "two"),
        ("layers", 1),
        ("context_dim", 2),
        ("seed", None),
        ("instances", 0),
        ("length", 0),
        ("test_instances", -1),
        ("actions", 0),
        ("latent_dim", 2.5),
        ("reward_std", -1.0),
        ("noise_scale", "wide"),
    ],
)
def test_impossible_numbers_in_a_file_are_named(tmp_path: Path, field: str, value: Any) -> None:
    (tmp_path / "world.json").write_text(json.dumps({"environment": "synthetic", field: value}))
    with pytest.raises(WorldError, match=field):
        Specification.load(tmp_path / "world.json")
