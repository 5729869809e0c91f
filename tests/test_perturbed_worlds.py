"""Perturbed worlds (app:ood, app:emission_noise): environments still, and different from their inside as promised."""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from scipy import stats

from ilb.environments import AbstractEnvironment, Adcb, draw_confounded_logging, draw_world
from ilb.environments.perturbed import (
    ContextNoise,
    DroppedContexts,
    FewTypes,
    KeptColumns,
    NoisyContexts,
    OtherNoise,
    Shift,
    ShiftedLatents,
    perturb,
)
from ilb.environments.synthetic import NOISES
from ilb.environments.wrappers import ScaledContexts
from ilb.errors import WorldError
from ilb.models.latent import LatentModel
from ilb.types import as_real
from narrowed import linear

DIM, COLUMNS, ACTIONS = 3, 4, 5
WORLD = draw_world(jr.key(0), latent_dim=DIM, context_dim=COLUMNS, actions=ACTIONS)
SHIFT = jnp.asarray([1.0, -2.0, 0.5])
RARE = 1e-4  # a test of a distribution fails for one key in ten thousand
DRAWS = 4000

WORLDS = {
    "plain": (WORLD, COLUMNS),
    "shifted": (ShiftedLatents(WORLD, SHIFT), COLUMNS),
    "noisy": (NoisyContexts(WORLD, as_real(0.5)), COLUMNS),
    "dropped": (DroppedContexts(WORLD, jnp.array([3, 1])), 2),
    "other noise": (OtherNoise("laplace", 0.3).apply(jr.key(0), WORLD), COLUMNS),
    "all at once": (perturb(jr.key(0), WORLD, (KeptColumns((2,)), ContextNoise(0.5), Shift(2.0))), 1),
}


def draw(world: AbstractEnvironment, key: PRNGKeyArray) -> dict[str, Array]:
    key_instance, key_context, key_rewards = jr.split(key, 3)
    instance = world.sample_instance(key_instance)
    return {
        "latent state": world.latent_state(instance),
        "context": world.emit(key_context, instance),
        "mean rewards": world.mean_rewards(instance),
        "rewards": world.sample_rewards(key_rewards, instance),
    }


Drawn: TypeAlias = tuple[AbstractEnvironment, int, dict[str, Array]]
draw_many = eqx.filter_jit(eqx.filter_vmap(draw, in_axes=(None, 0)))
emit_many = eqx.filter_jit(eqx.filter_vmap(lambda world, key, z: world.emit(key, z), in_axes=(None, 0, None)))


@pytest.fixture(params=WORLDS, ids=list(WORLDS), scope="module")
def drawn(request: pytest.FixtureRequest) -> Drawn:
    world, columns = WORLDS[request.param]
    return world, columns, draw_many(world, jr.split(jr.key(1), DRAWS))


# Still environments


def test_shapes_are_those_of_an_environment(drawn: Drawn) -> None:
    _, columns, many = drawn
    shapes = {"latent state": DIM, "context": columns, "mean rewards": ACTIONS, "rewards": ACTIONS}
    assert {name: value.shape for name, value in many.items()} == {name: (DRAWS, n) for name, n in shapes.items()}


def test_a_key_gives_the_same_draw_alone_and_in_a_compiled_batch_and_another_key_another(
    drawn: Drawn,
) -> None:
    world, _, many = drawn
    alone = draw(world, jr.split(jr.key(1), DRAWS)[7])
    for name, value in alone.items():
        np.testing.assert_allclose(many[name][7], value, rtol=1e-4, atol=1e-5)
        assert not np.allclose(many[name][8], value)


def test_sampled_rewards_vary_around_the_mean_rewards(drawn: Drawn) -> None:
    _, _, many = drawn
    centred = np.asarray(many["rewards"] - many["mean rewards"]) / 0.5
    np.testing.assert_array_less(np.abs(centred.mean(axis=0)), stats.norm.isf(RARE / ACTIONS) / np.sqrt(DRAWS))


def test_rewards_depend_on_the_latent_state_as_they_do_inside(
    drawn: Drawn,
) -> None:
    _, _, many = drawn
    expected = np.asarray(many["latent state"]) @ np.asarray(linear(WORLD.reward).theta).T
    np.testing.assert_allclose(many["mean rewards"], expected, rtol=1e-4, atol=1e-5)


def test_other_numbers_in_a_wrapper_do_not_compile_again() -> None:
    traces = []

    @eqx.filter_jit
    def context(world: AbstractEnvironment, key: PRNGKeyArray) -> Array:
        traces.append(world)
        return world.emit(key, world.sample_instance(key))

    for number in (0.0, 1.0, 2.0):
        context(perturb(jr.key(0), WORLD, (Shift(number), ContextNoise(number))), jr.key(0))
    assert len(traces) == 1


# Few types


def test_everybody_is_one_of_a_few_types_which_are_equally_common() -> None:
    few = FewTypes(3).apply(jr.key(4), WORLD)
    people = np.asarray(jax.vmap(few.sample_instance)(jr.split(jr.key(5), DRAWS)))
    types, counts = np.unique(people, axis=0, return_counts=True)
    drawn = [WORLD.sample_instance(key) for key in jr.split(jr.key(4), 3)]
    np.testing.assert_allclose(types, np.unique(np.asarray(drawn), axis=0), rtol=1e-5)
    assert stats.chisquare(counts).pvalue > RARE


def test_who_is_of_the_same_type_has_the_same_mean_rewards_and_other_contexts() -> None:
    few = FewTypes(1).apply(jr.key(4), WORLD)
    one, other = (draw(few, jr.key(seed)) for seed in (0, 1))
    np.testing.assert_array_equal(one["mean rewards"], other["mean rewards"])
    assert not np.allclose(one["context"], other["context"])
    assert not np.allclose(one["rewards"], other["rewards"])


def test_people_are_of_one_type_at_least() -> None:
    with pytest.raises(WorldError, match="at least 1; got 0"):
        FewTypes(0)


# Shifted latents


def test_every_instance_is_that_of_the_inner_world_moved_by_the_shift() -> None:
    shifted = ShiftedLatents(WORLD, SHIFT)
    for seed in range(5):
        np.testing.assert_allclose(
            shifted.sample_instance(jr.key(seed)), WORLD.sample_instance(jr.key(seed)) + SHIFT, rtol=1e-6
        )


def shift_of(perturbation: Shift, seed: int = 1) -> np.ndarray:
    return np.asarray(perturbation.apply(jr.key(seed), WORLD).shift)


def test_a_shift_by_coordinate_moves_each_coordinate_and_a_shift_by_norm_the_whole_vector() -> None:
    np.testing.assert_array_equal(shift_of(Shift(2.0, "coordinate")), np.full(DIM, 2.0))
    for norm in (1.0, 2.0, 4.0):
        np.testing.assert_allclose(np.linalg.norm(shift_of(Shift(norm))), norm, rtol=1e-6)
        np.testing.assert_allclose(shift_of(Shift(norm)), norm * shift_of(Shift(1.0)), rtol=1e-6)
    with pytest.raises(WorldError, match="shift_by must be one of norm, coordinate; got 'length'"):
        Shift(2.0, "length")


def test_directions_of_a_shift_by_norm_have_no_preferred_side() -> None:
    shifts = np.stack([shift_of(Shift(1.0), seed) for seed in range(100)])
    # Each coordinate of a random unit vector has mean 0 and variance 1 / n.
    limit = stats.norm.isf(RARE / DIM) * np.sqrt(1 / DIM / len(shifts))
    assert np.abs(shifts.mean(axis=0)).max() < limit


def test_the_oracle_of_a_shifted_world_inverts_the_emission_and_keeps_the_training_population() -> None:
    shifted = ShiftedLatents(OtherNoise("gaussian", 0.0).apply(jr.key(0), WORLD), SHIFT)
    z = shifted.sample_instance(jr.key(3))
    oracle = shifted.oracle()
    np.testing.assert_allclose(oracle.encoder(shifted.emit(jr.key(4), z)), z, atol=1e-4)
    np.testing.assert_allclose(oracle.reward(z), shifted.mean_rewards(z), rtol=1e-6)
    np.testing.assert_array_equal(oracle.noise.population_mean, np.zeros(DIM))


def test_a_shift_that_does_not_fit_the_instances_is_refused() -> None:
    class Paired(AbstractEnvironment):
        """A world whose instance is more than a latent vector."""

        def sample_instance(self, key: PRNGKeyArray) -> Any:
            return WORLD.sample_instance(key), jnp.asarray(1.0)

        def emit(self, key: PRNGKeyArray, instance: Any) -> Array:
            return WORLD.emit(key, instance[0])

        def mean_rewards(self, instance: Any) -> Array:
            return WORLD.mean_rewards(instance[0])

        def sample_rewards(self, key: PRNGKeyArray, instance: Any) -> Array:
            return WORLD.sample_rewards(key, instance[0])

        def latent_state(self, instance: Any) -> Array:
            return instance[0]

        def oracle(self) -> LatentModel:
            return WORLD.oracle()

    with pytest.raises(WorldError, match=r"shape \(2,\)"):
        ShiftedLatents(WORLD, jnp.ones(2))
    with pytest.raises(WorldError, match="those of Paired"):
        Shift(1.0).apply(jr.key(0), Paired())


# Noisy contexts


def test_context_noise_is_gaussian_with_the_given_standard_deviation() -> None:
    z = WORLD.sample_instance(jr.key(1))
    keys = jr.split(jr.key(2), DRAWS)
    clean, noisy, noisier = (
        np.asarray(emit_many(NoisyContexts(WORLD, as_real(std)), keys, z)) for std in (0.0, 0.25, 1.0)
    )
    added = noisier - clean
    np.testing.assert_allclose(noisy - clean, 0.25 * added, atol=1e-5)  # the same draws at every noise level
    assert stats.kstest(added.ravel(), "norm").pvalue > RARE
    correlation = np.corrcoef(added.T, clean.T)[:COLUMNS] - np.eye(COLUMNS, 2 * COLUMNS)
    assert np.abs(correlation).max() < stats.norm.isf(RARE / correlation.size) / np.sqrt(DRAWS)


def test_contexts_without_added_noise_are_distributed_as_inside() -> None:
    z = WORLD.sample_instance(jr.key(1))
    inner = np.asarray(emit_many(WORLD, jr.split(jr.key(2), DRAWS), z))
    outer = np.asarray(emit_many(NoisyContexts(WORLD, as_real(0.0)), jr.split(jr.key(3), DRAWS), z))
    assert min(stats.ks_2samp(inner[:, i], outer[:, i]).pvalue for i in range(COLUMNS)) > RARE


def test_the_oracle_inverts_the_emission_on_the_noisy_context() -> None:
    noisy = NoisyContexts(WORLD, as_real(1.0))
    z = noisy.sample_instance(jr.key(1))
    context = noisy.emit(jr.key(2), z)
    np.testing.assert_array_equal(noisy.oracle().encoder(context), WORLD.mixing.inverse(context))
    contexts = emit_many(noisy, jr.split(jr.key(3), DRAWS), z)
    encodings = np.asarray(jax.vmap(noisy.oracle().encoder)(contexts))
    standard_error = encodings.std(axis=0) / np.sqrt(DRAWS)
    # It is biased, as the paper says: noise is stretched five-fold on one side of each leaky ReLU.
    assert (np.abs(encodings.mean(axis=0) - z) / standard_error).max() > 10


# Dropped columns


def test_only_the_kept_columns_are_seen_in_their_order() -> None:
    z = WORLD.sample_instance(jr.key(1))
    whole = np.asarray(WORLD.emit(jr.key(2), z))
    np.testing.assert_array_equal(DroppedContexts(WORLD, jnp.array([3, 1])).emit(jr.key(2), z), whole[[3, 1]])


def test_there_is_no_oracle_for_part_of_the_context() -> None:
    with pytest.raises(WorldError, match="only 2 columns are seen"):
        DroppedContexts(WORLD, jnp.array([3, 1])).oracle()


@pytest.mark.parametrize("kept", [[], [0, 0], [-1], [COLUMNS], [0.5], [[0, 1]]], ids=str)
def test_columns_that_are_not_there_can_not_be_kept(kept: Any) -> None:
    with pytest.raises(WorldError, match="kept must list"):
        DroppedContexts(WORLD, kept)


# Another latent noise


@pytest.mark.parametrize(("name", "scale"), [("gaussian", 0.3), ("laplace", 0.7), ("uniform", 2.0)])
def test_another_latent_noise_changes_contexts_and_the_oracle_knows_its_variance(name: str, scale: float) -> None:
    other = OtherNoise(name, scale).apply(jr.key(0), WORLD)
    z = other.sample_instance(jr.key(1))
    np.testing.assert_array_equal(z, WORLD.sample_instance(jr.key(1)))
    np.testing.assert_array_equal(other.sample_rewards(jr.key(2), z), WORLD.sample_rewards(jr.key(2), z))
    oracle = other.oracle()
    contexts = emit_many(other, jr.split(jr.key(3), DRAWS), z)
    encodings = np.asarray(jax.vmap(oracle.encoder)(contexts), dtype=float)
    # The variance of a sample variance is at most 5 variance^2 / draws (Laplace: kurtosis 6), in each coordinate.
    variance = float(NOISES[name](scale).variance)
    np.testing.assert_allclose(encodings.var(axis=0), variance, atol=4.5 * variance * np.sqrt(5 / DRAWS) + 1e-4)
    np.testing.assert_allclose(oracle.noise.encoding_covariance, variance * np.eye(DIM), rtol=1e-6)


def test_only_a_synthetic_world_can_have_another_latent_noise() -> None:
    with pytest.raises(WorldError, match="got AdcbWorld"):
        OtherNoise("laplace").apply(jr.key(0), Adcb().draw())


# Perturbations as values


def test_perturbations_of_one_world_are_drawn_independently_and_the_first_as_if_alone() -> None:
    twice = perturb(jr.key(1), WORLD, (Shift(1.0), Shift(1.0)))
    assert isinstance(twice, ShiftedLatents)
    assert isinstance(twice.environment, ShiftedLatents)
    np.testing.assert_array_equal(twice.environment.shift, shift_of(Shift(1.0)))
    assert np.abs(np.asarray(twice.shift) - shift_of(Shift(1.0))).max() > 1e-3


def test_columns_keep_their_names_and_dropped_ones_lose_them() -> None:
    world = Adcb(context="biomarkers").draw()
    kept = perturb(jr.key(0), world, (ContextNoise(0.1), KeptColumns((3, 0))))
    assert isinstance(kept, DroppedContexts)
    assert kept.environment.column_names == ("tau", "ptau", "fdg", "av45")
    assert kept.column_names == ("av45", "tau")
    assert KeptColumns((0,)).apply(jr.key(0), WORLD).column_names is None


def test_confounded_logging_goes_by_standard_units_whatever_wraps_the_world() -> None:
    world = Adcb(context="biomarkers").draw()
    scaled = ScaledContexts(world, jnp.asarray([100.0, 10.0, 1.0, 0.5]), jnp.asarray([300.0, 30.0, 0.2, 1.0]))
    patient = world.sample_instance(jr.key(1))
    plain, other = (
        draw_confounded_logging(jr.key(2), one)(one.latent_state(patient), one.emit(jr.key(3), patient))
        for one in (world, scaled)
    )
    np.testing.assert_allclose(other, plain, atol=1e-3)
    kept = KeptColumns((3, 0)).apply(jr.key(0), world)
    assert kept.units is not None
    assert world.units is not None
    np.testing.assert_array_equal(kept.units.context_std, np.asarray(world.units.context_std)[[3, 0]])
