"""What every environment promises, whatever world it is; another joins by a line in ENVIRONMENTS."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from ilb.environments import adcb_world, draw_stationary_world, draw_world
from ilb.environments.perturbed import DroppedContexts, NoisyContexts, shift_by_coordinate
from ilb.errors import WorldError
from ilb.online.arms import mab
from ilb.simulation import instance_keys, simulate

SYNTHETIC = draw_world(jr.key(0), latent_dim=3, context_dim=4, actions=5)
ENVIRONMENTS = {
    "synthetic": SYNTHETIC,
    "shifted latents": shift_by_coordinate(SYNTHETIC, 2.0),
    "noisy contexts": NoisyContexts(SYNTHETIC, 0.5),
    "dropped contexts": DroppedContexts(SYNTHETIC, [3, 1]),
    "adcb": adcb_world(),
    "stationary": draw_stationary_world(jr.key(1)),
}
WITHOUT_ORACLE = {"dropped contexts", "adcb"}
RARE = 1e-4  # a test of a distribution fails for one key in ten thousand
DRAWS = 2000


def draw(world, key):
    key_instance, key_context, key_rewards = jr.split(key, 3)
    instance = world.sample_instance(key_instance)
    return {
        "latent state": world.latent_state(instance),
        "context": world.emit(key_context, instance),
        "mean rewards": world.mean_rewards(instance),
        "rewards": world.sample_rewards(key_rewards, instance),
    }


mean_rewards_of = eqx.filter_jit(
    eqx.filter_vmap(lambda world, key: world.mean_rewards(world.sample_instance(key)), in_axes=(None, 0))
)
draw_one = eqx.filter_jit(draw)
draw_many = eqx.filter_jit(eqx.filter_vmap(draw, in_axes=(None, 0)))


@pytest.fixture(params=ENVIRONMENTS, scope="module")
def drawn(request):
    """A world and what many keys draw from it."""
    world = ENVIRONMENTS[request.param]
    return world, {name: np.asarray(many) for name, many in draw_many(world, jr.split(jr.key(1), DRAWS)).items()}


def test_draws_are_finite_vectors_of_the_shapes_that_were_announced(drawn):
    world, many = drawn
    announced = jax.eval_shape(lambda key: draw(world, key), jr.key(0))
    for name, values in many.items():
        assert values.shape == (DRAWS, *announced[name].shape)
        assert values.ndim == 2
        assert values.dtype == np.float32
        assert np.isfinite(values).all()
    assert many["rewards"].shape == many["mean rewards"].shape


def test_a_key_draws_the_same_alone_and_in_a_batch_and_another_key_draws_otherwise(drawn):
    world, many = drawn
    for name, value in draw_one(world, jr.split(jr.key(1), DRAWS)[7]).items():
        np.testing.assert_allclose(many[name][7], value, rtol=1e-4, atol=1e-5)
        assert not np.allclose(many[name][8], value, rtol=1e-4)


def test_instances_are_pytrees_of_arrays_with_a_type_of_their_own(drawn):
    world, _ = drawn
    for leaf in jax.tree.leaves(jax.eval_shape(world.sample_instance, jr.key(0))):
        assert not leaf.weak_type  # a weak type would compile anew when it is carried


def test_sampled_rewards_vary_around_the_mean_rewards(drawn):
    _, many = drawn
    noise = many["rewards"] - many["mean rewards"]
    limit = stats.norm.isf(RARE / noise.shape[1] / 2) * noise.std(axis=0) / np.sqrt(DRAWS)
    np.testing.assert_array_less(np.abs(noise.mean(axis=0)), limit)


def test_the_oracle_has_the_true_rewards_or_says_why_there_is_none(drawn):
    world, many = drawn
    if any(world is ENVIRONMENTS[name] for name in WITHOUT_ORACLE):
        with pytest.raises(WorldError, match="no oracle"):
            world.oracle()
        return
    oracle = world.oracle()
    np.testing.assert_allclose(
        jax.vmap(oracle.reward)(many["latent state"]), many["mean rewards"], rtol=1e-4, atol=1e-4
    )


def test_regret_of_play_is_the_best_mean_reward_less_that_of_the_action(drawn):
    world, many = drawn
    actions = many["rewards"].shape[1]
    history = simulate(jr.key(2), world, mab(actions, 0.25), instances=3, horizon=8)
    keys = jax.vmap(lambda number: instance_keys(jr.key(2), number).instance)(np.arange(3))
    means = np.asarray(mean_rewards_of(world, keys))
    regret = means.max(axis=1, keepdims=True) - np.take_along_axis(means, history.actions, axis=1)
    np.testing.assert_allclose(history.regret, regret, rtol=1e-4, atol=1e-5)
