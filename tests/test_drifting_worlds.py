from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from ilb.environments import Adcb, SuddenChanges, Synthetic, Wandering
from ilb.environments.environment import follow
from ilb.environments.perturbed import AbstractPerturbation
from ilb.errors import WorldError

PEOPLE, ROUNDS, RATE = 4000, 6, 0.2
CALM = Synthetic(latent_dim=2, context_dim=2, actions=3).draw(0)


def paths(perturbation: AbstractPerturbation) -> np.ndarray:
    """The states of many people in every round: [person, round, coordinate]."""
    world = perturbation.apply(jr.key(0), CALM)

    def path(key: jax.Array) -> jax.Array:
        start, rounds = jr.split(key)
        return follow(world, rounds, world.sample_instance(start), ROUNDS)

    return np.asarray(jax.jit(jax.vmap(path))(jr.split(jr.key(1), PEOPLE)))


@pytest.mark.parametrize("perturbation", [Wandering(RATE), SuddenChanges(RATE)])
def test_people_change_and_the_population_stays(perturbation: AbstractPerturbation) -> None:
    z = paths(perturbation)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=5 / np.sqrt(PEOPLE))
    np.testing.assert_allclose(z.var(axis=0), float(CALM.latent_std) ** 2, rtol=5 * np.sqrt(2 / PEOPLE))
    for apart in range(ROUNDS):
        correlation = np.corrcoef(z[:, 0, 0], z[:, apart, 0])[0, 1]
        assert correlation == pytest.approx((1 - RATE) ** apart, abs=5 / np.sqrt(PEOPLE))


def test_sudden_changes_leave_most_people_exactly_as_they_were() -> None:
    z = paths(SuddenChanges(RATE))
    assert np.mean(z[:, 1] == z[:, 0]) == pytest.approx(1 - RATE, abs=0.03)


def test_nobody_changes_at_rate_zero() -> None:
    for perturbation in (Wandering(0.0), SuddenChanges(0.0)):
        z = paths(perturbation)
        np.testing.assert_array_equal(z, np.broadcast_to(z[:, :1], z.shape))


def test_categories_of_a_patient_stay_while_their_numbers_wander() -> None:
    world = Wandering(0.5).apply(jr.key(0), Adcb().draw(0))
    before = world.sample_instance(jr.key(1))
    after = world.advance(jr.key(2), before)
    assert after.marital == before.marital
    assert after.z != before.z
    assert jnp.isfinite(after.z)


def test_a_rate_is_a_share() -> None:
    with pytest.raises(WorldError, match=r"wandering_rate is a share, from 0 .* to 1; got 1\.5"):
        Wandering(1.5).apply(jr.key(0), CALM)
