"""How often a model is wrong for people not seen: found where it is so, and not where it is right."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from ilb.environments import AbstractEnvironment, SyntheticWorld, UniformLogging, draw_world, record
from ilb.environments.changed_rewards import OwnEffects
from ilb.environments.perturbed import Shift
from ilb.errors import ModelFileError
from ilb.live.bandit import LiveBandit
from ilb.logs import Logs
from ilb.models.hypotheses import HYPOTHESES
from ilb.models.latent import LatentModel
from ilb.networks import LeakyReward
from ilb.offline.encoders.plain import NoEncoding
from ilb.offline.fit import fit, fit_again
from ilb.offline.misfits import learn_misfits, mixture_weights

OWN, UNLIKE = 1, slice(3, 6)


@pytest.fixture(scope="module")
def world() -> SyntheticWorld:
    return draw_world(jr.key(3), latent_dim=2, actions=5)


def people_of(world: AbstractEnvironment, number: int = 200) -> Logs:
    return record(jr.key(4), world, UniformLogging(5), instances=number, length=40).logs


def test_people_whom_the_model_describes_give_no_cause_to_doubt_it(world: SyntheticWorld) -> None:
    weights = learn_misfits([world.oracle()], [people_of(world)])
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > 0.95


def test_own_effects_are_told_from_people_who_come_from_elsewhere(world: SyntheticWorld) -> None:
    own = learn_misfits([world.oracle()], [people_of(OwnEffects(0.5).apply(jr.key(5), world))])
    assert own[OWN] > 0.8
    elsewhere = learn_misfits([world.oracle()], [people_of(Shift(4.0, "coordinate").apply(jr.key(5), world))])
    assert elsewhere[UNLIKE].sum() > 0.8


def test_weights_are_those_of_a_mixture_and_few_people_change_little() -> None:
    rng = np.random.default_rng(0)
    second = rng.random(4000) < 0.3
    draws = rng.normal(size=4000) * np.where(second, 4.0, 1.0)
    log_likelihoods = np.stack([-0.5 * draws**2, -0.5 * (draws / 4) ** 2 - np.log(4.0)], axis=1)
    assert mixture_weights(log_likelihoods)[1] == pytest.approx(0.3, abs=0.03)
    assert mixture_weights(np.array([[0.0, 100.0]]))[1] == pytest.approx(1 / 6, abs=1e-5)
    assert mixture_weights(np.zeros((3000, 7)))[0] > 0.95  # people who say nothing are no reason to doubt


def test_who_is_fitted_again_forgets_and_doubts_as_before() -> None:
    rng = np.random.default_rng(2)
    logs = Logs.from_arrays(np.zeros((30, 6, 0)), rng.integers(2, size=(30, 6)), rng.normal(size=(30, 6)))
    model = fit(logs, recipe=NoEncoding()).with_memory(0.5)
    model = replace(model, noise=replace(model.noise, misfits=jnp.asarray([0.4, 0.6, 0, 0, 0, 0, 0])))
    [again] = fit_again(model, [logs.select(np.arange(20))])
    assert float(again.noise.memory) == 0.5
    np.testing.assert_array_equal(again.noise.misfits, model.noise.misfits)


def test_a_fit_keeps_how_often_it_was_wrong_and_decisions_begin_with_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    action = rng.integers(3, size=(60, 12))
    reward = rng.normal(size=(60, 1)) + rng.normal(size=(60, 12))
    model = fit(Logs.from_arrays(np.zeros((60, 12, 0)), action, reward), recipe=NoEncoding())
    misfits = np.asarray(model.noise.misfits)
    assert misfits.shape == (len(HYPOTHESES),)
    assert misfits.sum() == pytest.approx(1, abs=1e-6)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(LatentModel.load(tmp_path / "model").noise.misfits, model.noise.misfits)
    doubtful = replace(model, noise=replace(model.noise, misfits=jnp.asarray([0.4, 0.6, 0, 0, 0, 0, 0])))
    first = LiveBandit.on(doubtful, doubt=0.05).start("anna").decide({})
    assert first.misfit == pytest.approx(1 - 0.95 * 0.4, abs=1e-5)
    assert LiveBandit.on(doubtful, doubt=0.0).start("anna").decide({}).misfit == pytest.approx(0, abs=1e-6)
    broken = replace(model, noise=replace(model.noise, misfits=jnp.asarray([0.4, 0.9])))
    with pytest.raises(ModelFileError, match="no shares of people"):
        broken.save(tmp_path / "broken")


def test_rewards_that_are_not_linear_have_no_closed_form_to_weigh(world: SyntheticWorld) -> None:
    bent = replace(world.oracle(), reward=LeakyReward(jnp.eye(2), jnp.ones((5, 2)), jnp.asarray(0.2)))
    assert not len(learn_misfits([bent], [people_of(world, 3)]))
