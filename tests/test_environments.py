"""What every environment promises, whatever world it is.

Every named world is here as it is known to `WORLDS`, one from outside the package among them.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from scipy import stats

from ilb.cli import run as run_command
from ilb.environments import (
    WORLDS,
    AbstractDescription,
    AbstractEnvironment,
    ContextNoise,
    FewTypes,
    KeptColumns,
    Plan,
    Shift,
    Specification,
    SyntheticWorld,
    draw_world,
    parameter,
)
from ilb.environments.wrappers import FixedInstance, ScaledContexts
from ilb.errors import WorldError
from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.fit import fit
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.training import CosineAdam, Schedule
from ilb.online.arms import mab
from ilb.online.roster import policy_on
from ilb.simulation import play_keys, simulate
from ilb.streams import Stream
from ilb_paper.catalogue.fig_synthetic_contextual import Stationary


class ThermostatWorld(AbstractEnvironment):
    """Rooms that are too cold or too warm, seen by two thermometers: a world that the package knows nothing of."""

    effect: jax.Array

    def sample_instance(self, key: PRNGKeyArray) -> Any:
        return {"warmth": jr.normal(key, (2,))}

    def emit(self, key: PRNGKeyArray, instance: Any) -> Array:
        return instance["warmth"] + 0.5 * jr.normal(key, (2,))

    def mean_rewards(self, instance: Any) -> Array:
        return self.effect @ instance["warmth"]

    def sample_rewards(self, key: PRNGKeyArray, instance: Any) -> Array:
        return self.mean_rewards(instance) + 0.1 * jr.normal(key, (len(self.effect),))

    def latent_state(self, instance: Any) -> Array:
        return instance["warmth"]

    def oracle(self) -> LatentModel:
        actions = len(self.effect)
        noise = NoiseLevels(
            encoding_covariance=0.25 * jnp.eye(2),
            population_mean=jnp.zeros(2),
            population_covariance=jnp.eye(2),
            reward_variance=jnp.full(actions, 0.01),
            leftover_variance=jnp.asarray(0.0),
        )
        return LatentModel(IdentityEncoder(), LinearReward.known(self.effect, jnp.zeros(actions)), noise)


@dataclass(frozen=True)
class Thermostat(AbstractDescription, name="thermostat"):
    """Rooms that are too cold or too warm."""

    actions: int = parameter(3, "Number of ways to heat.", least=1)

    def draw(self, seed: int = 0) -> ThermostatWorld:
        return ThermostatWorld(jr.normal(Stream.WORLD.key(seed), (self.actions, 2)))


SYNTHETIC = draw_world(jr.key(0), latent_dim=3, context_dim=4, actions=5)
ENVIRONMENTS = {
    **{name: description().draw() for name, description in WORLDS.items()},
    "toy": Stationary().draw(),
    "shifted latents": Shift(2.0).apply(jr.key(0), SYNTHETIC),
    "few types": FewTypes(3).apply(jr.key(0), SYNTHETIC),
    "noisy contexts": ContextNoise(0.5).apply(jr.key(0), SYNTHETIC),
    "dropped contexts": KeptColumns((3, 1)).apply(jr.key(0), SYNTHETIC),
    "scaled contexts": ScaledContexts(SYNTHETIC, jnp.arange(4), 2 + jnp.arange(4)),
}
WITHOUT_ORACLE = {"dropped contexts", "adcb"}
RARE = 1e-4  # a test of a distribution fails for one key in ten thousand
DRAWS = 2000


def draw(world: AbstractEnvironment, key: PRNGKeyArray) -> dict[str, Array]:
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

Drawn: TypeAlias = tuple[AbstractEnvironment, dict[str, np.ndarray]]


@pytest.fixture(params=ENVIRONMENTS, scope="module")
def drawn(request: pytest.FixtureRequest) -> Drawn:
    """A world and what many keys draw from it."""
    world = ENVIRONMENTS[request.param]
    return world, {name: np.asarray(many) for name, many in draw_many(world, jr.split(jr.key(1), DRAWS)).items()}


def test_draws_are_finite_vectors_of_the_sizes_that_were_announced(
    drawn: Drawn,
) -> None:
    world, many = drawn
    latent_dim, context_dim, actions = world.sizes
    sizes = {"latent state": latent_dim, "context": context_dim, "mean rewards": actions, "rewards": actions}
    for name, values in many.items():
        assert values.shape == (DRAWS, sizes[name])
        assert values.dtype == np.float32
        assert np.isfinite(values).all()
    assert world.column_names is None or len(world.column_names) == context_dim


def test_a_key_draws_the_same_alone_and_in_a_batch_and_another_key_draws_otherwise(
    drawn: Drawn,
) -> None:
    world, many = drawn
    for name, value in draw_one(world, jr.split(jr.key(1), DRAWS)[7]).items():
        np.testing.assert_allclose(many[name][7], value, rtol=1e-4, atol=1e-5)
        assert not np.allclose(many[name][8], value, rtol=1e-4)


def test_instances_are_pytrees_of_arrays_with_a_type_of_their_own(
    drawn: Drawn,
) -> None:
    world, _ = drawn
    for leaf in jax.tree.leaves(jax.eval_shape(world.sample_instance, jr.key(0))):
        assert not leaf.weak_type  # a weak type would compile anew when it is carried


def test_sampled_rewards_vary_around_the_mean_rewards(drawn: Drawn) -> None:
    _, many = drawn
    noise = many["rewards"] - many["mean rewards"]
    limit = stats.norm.isf(RARE / noise.shape[1] / 2) * noise.std(axis=0) / np.sqrt(DRAWS)
    np.testing.assert_array_less(np.abs(noise.mean(axis=0)), limit)


def test_the_oracle_has_the_true_rewards_or_says_why_there_is_none(
    drawn: Drawn,
) -> None:
    world, many = drawn
    if any(world is ENVIRONMENTS[name] for name in WITHOUT_ORACLE):
        with pytest.raises(WorldError, match="no oracle"):
            world.oracle()
        return
    oracle = world.oracle()
    np.testing.assert_allclose(
        jax.vmap(oracle.reward)(jnp.asarray(many["latent state"])), many["mean rewards"], rtol=1e-4, atol=1e-4
    )


def test_regret_of_play_is_the_best_mean_reward_less_that_of_the_action(
    drawn: Drawn,
) -> None:
    world, many = drawn
    actions = many["rewards"].shape[1]
    history = simulate(jr.key(2), world, mab(actions, 0.25), instances=3, horizon=8)
    keys = jax.vmap(lambda number: play_keys(jr.key(2), number).instance)(np.arange(3))
    means = np.asarray(mean_rewards_of(world, keys))
    regret = means.max(axis=1, keepdims=True) - np.take_along_axis(means, history.actions, axis=1)
    np.testing.assert_allclose(history.regret, regret, rtol=1e-4, atol=1e-5)


def test_a_fixed_instance_is_the_only_one_and_its_rounds_are_those_of_the_world_inside() -> None:
    instance = SYNTHETIC.sample_instance(jr.key(3))
    fixed = FixedInstance(SYNTHETIC, instance)
    np.testing.assert_array_equal(fixed.sample_instance(jr.key(4)), instance)
    np.testing.assert_array_equal(fixed.emit(jr.key(5), instance), SYNTHETIC.emit(jr.key(5), instance))


def test_the_oracle_of_scaled_contexts_undoes_the_scaling() -> None:
    scaled = ENVIRONMENTS["scaled contexts"]
    z = SYNTHETIC.sample_instance(jr.key(3))
    context, plain = scaled.emit(jr.key(4), z), SYNTHETIC.emit(jr.key(4), z)
    np.testing.assert_allclose(context * (2 + np.arange(4)) + np.arange(4), plain, atol=1e-5)
    np.testing.assert_allclose(scaled.oracle().encoder(context), SYNTHETIC.oracle().encoder(plain), atol=1e-4)


# Named worlds


@pytest.mark.parametrize("name", WORLDS)
def test_a_named_world_is_recorded_and_comes_back_from_its_file(name: str, tmp_path: Path) -> None:
    specification = Specification(WORLDS[name](), Plan(instances=6, length=4, test_instances=5), seed=3)
    specification.save(tmp_path / "world.json")
    assert Specification.load(tmp_path / "world.json") == specification
    recorded = specification.record()
    assert (recorded.training.logs.rows, recorded.test.logs.instances) == (24, 5)
    assert recorded.training.to_frame().num_rows == 24
    again = specification.world.draw(seed=3)
    assert eqx.tree_equal(recorded.world, again, typematch=True)


def test_a_world_without_a_name_can_not_be_saved(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Nameless(AbstractDescription):
        """A world that was never given a name."""

        def draw(self, seed: int = 0) -> SyntheticWorld:
            return SYNTHETIC

    with pytest.raises(WorldError, match=r"Nameless has no name to be saved by"):
        Specification(Nameless()).save(tmp_path / "world.json")


def test_the_command_line_has_a_command_for_a_world_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ("--instances", "5", "--length", "3", "--test-instances", "0", "--actions", "4", "--seed", "2")
    monkeypatch.setattr(sys, "argv", ["ilb", "simulate", "thermostat", "--out", str(tmp_path / "rooms.csv"), *sizes])
    assert run_command() == 0
    written = Specification.load(tmp_path / "rooms.world.json")
    assert written == Specification(Thermostat(actions=4), Plan(instances=5, length=3, test_instances=0), seed=2)
    logs = Logs.from_frame(tmp_path / "rooms.csv", instance="instance", time="time", action="action", reward="reward")
    np.testing.assert_allclose(logs.reward, written.record().training.logs.reward, rtol=1e-5)


def test_a_world_from_outside_is_recorded_fitted_and_played() -> None:
    """One class and its description are all that a new environment needs."""
    plan = Plan(instances=60, length=30, test_instances=20)
    recorded = Specification(Thermostat(actions=4), plan, seed=1).record()
    schedule = Schedule(60, CosineAdam(0.01), score_every=30)
    model = fit(recorded.training.logs, latent_dim=2, recipe=TiedRecipe(training=schedule), reward=LinearRewardRecipe())
    true, learned, blind = (
        simulate(jr.key(5), recorded.world, policy, instances=50, horizon=20).regret.sum(axis=1).mean()
        for policy in (policy_on(recorded.world.oracle(), "CPG"), policy_on(model.bare(), "CPG"), mab(4, 0.01))
    )
    assert true < learned < blind
