"""Perturbed worlds (app:ood, app:emission_noise): environments still, and different from their inside as promised."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from ilb.environments import (
    AbstractEnvironment,
    GaussianNoise,
    LaplaceNoise,
    UniformNoise,
    draw_world,
)
from ilb.environments.perturbed import (
    DroppedContexts,
    NoisyContexts,
    ShiftedLatents,
    shift_along,
    shift_by_coordinate,
    shift_by_norm,
    with_latent_noise,
)
from ilb.errors import WorldError

DIM, COLUMNS, ACTIONS = 3, 4, 5
WORLD = draw_world(jr.key(0), latent_dim=DIM, context_dim=COLUMNS, actions=ACTIONS)
SHIFT = jnp.asarray([1.0, -2.0, 0.5])
RARE = 1e-4  # a test of a distribution fails for one key in ten thousand
DRAWS = 4000

WORLDS = {
    "plain": (WORLD, COLUMNS),
    "shifted": (ShiftedLatents(WORLD, SHIFT), COLUMNS),
    "noisy": (NoisyContexts(WORLD, 0.5), COLUMNS),
    "dropped": (DroppedContexts(WORLD, [3, 1]), 2),
    "other noise": (with_latent_noise(WORLD, LaplaceNoise(0.3)), COLUMNS),
    "all at once": (ShiftedLatents(NoisyContexts(DroppedContexts(WORLD, [2]), 0.5), SHIFT), 1),
}


def draw(world, key):
    key_instance, key_context, key_rewards = jr.split(key, 3)
    instance = world.sample_instance(key_instance)
    return {
        "latent state": world.latent_state(instance),
        "context": world.emit(key_context, instance),
        "mean rewards": world.mean_rewards(instance),
        "rewards": world.sample_rewards(key_rewards, instance),
    }


draw_many = eqx.filter_jit(eqx.filter_vmap(draw, in_axes=(None, 0)))
emit_many = eqx.filter_jit(eqx.filter_vmap(lambda world, key, z: world.emit(key, z), in_axes=(None, 0, None)))


@pytest.fixture(params=WORLDS, ids=WORLDS, scope="module")
def drawn(request):
    world, columns = WORLDS[request.param]
    return world, columns, draw_many(world, jr.split(jr.key(1), DRAWS))


# Still environments


def test_shapes_are_those_of_an_environment(drawn):
    _, columns, many = drawn
    shapes = {"latent state": DIM, "context": columns, "mean rewards": ACTIONS, "rewards": ACTIONS}
    assert {name: value.shape for name, value in many.items()} == {name: (DRAWS, n) for name, n in shapes.items()}


def test_a_key_gives_the_same_draw_alone_and_in_a_compiled_batch_and_another_key_another(drawn):
    world, _, many = drawn
    alone = draw(world, jr.split(jr.key(1), DRAWS)[7])
    for name, value in alone.items():
        np.testing.assert_allclose(many[name][7], value, rtol=1e-4, atol=1e-5)
        assert not np.allclose(many[name][8], value)


def test_sampled_rewards_vary_around_the_mean_rewards(drawn):
    _, _, many = drawn
    centred = np.asarray(many["rewards"] - many["mean rewards"]) / 0.5
    np.testing.assert_array_less(np.abs(centred.mean(axis=0)), stats.norm.isf(RARE / ACTIONS) / np.sqrt(DRAWS))


def test_rewards_depend_on_the_latent_state_as_they_do_inside(drawn):
    _, _, many = drawn
    expected = np.asarray(many["latent state"]) @ np.asarray(WORLD.reward.theta).T
    np.testing.assert_allclose(many["mean rewards"], expected, rtol=1e-4, atol=1e-5)


def test_other_numbers_in_a_wrapper_do_not_compile_again():
    traces = []

    @eqx.filter_jit
    def context(world, key):
        traces.append(world)
        return world.emit(key, world.sample_instance(key))

    for number in (0.0, 1.0, 2.0):
        context(NoisyContexts(shift_by_coordinate(WORLD, number), number), jr.key(0))
    assert len(traces) == 1


# Shifted latents


def test_every_instance_is_that_of_the_inner_world_moved_by_the_shift():
    shifted = ShiftedLatents(WORLD, SHIFT)
    for seed in range(5):
        np.testing.assert_allclose(
            shifted.sample_instance(jr.key(seed)), WORLD.sample_instance(jr.key(seed)) + SHIFT, rtol=1e-6
        )


def test_a_shift_by_coordinate_moves_each_coordinate_and_a_shift_by_norm_the_whole_vector():
    np.testing.assert_array_equal(shift_by_coordinate(WORLD, 2.0).shift, np.full(DIM, 2.0))
    for norm in (1.0, 2.0, 4.0):
        by_norm = np.asarray(shift_by_norm(jr.key(1), WORLD, norm).shift)
        equal = np.asarray(shift_along(WORLD, jnp.ones(DIM), norm).shift)
        np.testing.assert_allclose([np.linalg.norm(by_norm), np.linalg.norm(equal)], norm, rtol=1e-6)
        np.testing.assert_allclose(equal, norm / np.sqrt(DIM), rtol=1e-6)
        np.testing.assert_allclose(by_norm, norm * shift_by_norm(jr.key(1), WORLD, 1.0).shift, rtol=1e-6)


def test_directions_of_a_shift_by_norm_have_no_preferred_side():
    shifts = np.stack([shift_by_norm(jr.key(seed), WORLD, 1.0).shift for seed in range(100)])
    # Each coordinate of a random unit vector has mean 0 and variance 1 / n.
    limit = stats.norm.isf(RARE / DIM) * np.sqrt(1 / DIM / len(shifts))
    assert np.abs(shifts.mean(axis=0)).max() < limit


def test_the_oracle_of_a_shifted_world_inverts_the_emission_and_keeps_the_training_population():
    shifted = ShiftedLatents(with_latent_noise(WORLD, GaussianNoise(0.0)), SHIFT)
    z = shifted.sample_instance(jr.key(3))
    oracle = shifted.oracle()
    np.testing.assert_allclose(oracle.encoder(shifted.emit(jr.key(4), z)), z, atol=1e-4)
    np.testing.assert_allclose(oracle.reward(z), shifted.mean_rewards(z), rtol=1e-6)
    np.testing.assert_array_equal(oracle.noise.population_mean, np.zeros(DIM))


def test_a_shift_that_does_not_fit_the_instances_is_refused():
    class Paired(AbstractEnvironment):
        """A world whose instance is more than a latent vector."""

        def sample_instance(self, key):
            return WORLD.sample_instance(key), jnp.asarray(1.0)

        def emit(self, key, instance):
            return WORLD.emit(key, instance[0])

        def mean_rewards(self, instance):
            return WORLD.mean_rewards(instance[0])

        def sample_rewards(self, key, instance):
            return WORLD.sample_rewards(key, instance[0])

        def latent_state(self, instance):
            return instance[0]

        def oracle(self):
            return WORLD.oracle()

    with pytest.raises(WorldError, match=r"shape \(2,\)"):
        ShiftedLatents(WORLD, jnp.ones(2))
    with pytest.raises(WorldError, match="those of Paired"):
        shift_by_coordinate(Paired(), 1.0)
    with pytest.raises(WorldError, match="zero vector"):
        shift_along(WORLD, jnp.zeros(DIM), 1.0)


# Noisy contexts


def test_context_noise_is_gaussian_with_the_given_standard_deviation():
    z = WORLD.sample_instance(jr.key(1))
    keys = jr.split(jr.key(2), DRAWS)
    clean, noisy, noisier = (np.asarray(emit_many(NoisyContexts(WORLD, std), keys, z)) for std in (0.0, 0.25, 1.0))
    added = noisier - clean
    np.testing.assert_allclose(noisy - clean, 0.25 * added, atol=1e-5)  # the same draws at every noise level
    assert stats.kstest(added.ravel(), "norm").pvalue > RARE
    correlation = np.corrcoef(added.T, clean.T)[:COLUMNS] - np.eye(COLUMNS, 2 * COLUMNS)
    assert np.abs(correlation).max() < stats.norm.isf(RARE / correlation.size) / np.sqrt(DRAWS)


def test_contexts_without_added_noise_are_distributed_as_inside():
    z = WORLD.sample_instance(jr.key(1))
    inner = np.asarray(emit_many(WORLD, jr.split(jr.key(2), DRAWS), z))
    outer = np.asarray(emit_many(NoisyContexts(WORLD, 0.0), jr.split(jr.key(3), DRAWS), z))
    assert min(stats.ks_2samp(inner[:, i], outer[:, i]).pvalue for i in range(COLUMNS)) > RARE


def test_the_oracle_inverts_the_emission_on_the_noisy_context():
    noisy = NoisyContexts(WORLD, 1.0)
    z = noisy.sample_instance(jr.key(1))
    context = noisy.emit(jr.key(2), z)
    np.testing.assert_array_equal(noisy.oracle().encoder(context), WORLD.mixing.inverse(context))
    contexts = emit_many(noisy, jr.split(jr.key(3), DRAWS), z)
    encodings = np.asarray(jax.vmap(noisy.oracle().encoder)(contexts))
    standard_error = encodings.std(axis=0) / np.sqrt(DRAWS)
    # It is biased, as the paper says: noise is stretched five-fold on one side of each leaky ReLU.
    assert (np.abs(encodings.mean(axis=0) - z) / standard_error).max() > 10


# Dropped columns


def test_only_the_kept_columns_are_seen_in_their_order():
    z = WORLD.sample_instance(jr.key(1))
    whole = np.asarray(WORLD.emit(jr.key(2), z))
    np.testing.assert_array_equal(DroppedContexts(WORLD, [3, 1]).emit(jr.key(2), z), whole[[3, 1]])


def test_there_is_no_oracle_for_part_of_the_context():
    with pytest.raises(WorldError, match="only 2 columns are seen"):
        DroppedContexts(WORLD, [3, 1]).oracle()


@pytest.mark.parametrize("kept", [[], [0, 0], [-1], [COLUMNS], [0.5], [[0, 1]]], ids=str)
def test_columns_that_are_not_there_can_not_be_kept(kept):
    with pytest.raises(WorldError, match="kept must list"):
        DroppedContexts(WORLD, kept)


# Another latent noise


@pytest.mark.parametrize(
    "noise", [GaussianNoise(0.3), LaplaceNoise(0.7), UniformNoise(2.0)], ids=lambda n: str(type(n))
)
def test_another_latent_noise_changes_contexts_and_the_oracle_knows_its_variance(noise):
    other = with_latent_noise(WORLD, noise)
    z = other.sample_instance(jr.key(1))
    np.testing.assert_array_equal(z, WORLD.sample_instance(jr.key(1)))
    np.testing.assert_array_equal(other.sample_rewards(jr.key(2), z), WORLD.sample_rewards(jr.key(2), z))
    oracle = other.oracle()
    contexts = emit_many(other, jr.split(jr.key(3), DRAWS), z)
    encodings = np.asarray(jax.vmap(oracle.encoder)(contexts), dtype=float)
    # The variance of a sample variance is at most 5 variance^2 / draws (Laplace: kurtosis 6), in each coordinate.
    variance = float(noise.variance)
    np.testing.assert_allclose(encodings.var(axis=0), variance, atol=4.5 * variance * np.sqrt(5 / DRAWS) + 1e-4)
    np.testing.assert_allclose(oracle.noise.encoding_covariance, variance * np.eye(DIM), rtol=1e-6)
