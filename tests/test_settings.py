"""The paper's settings: a described world, what perturbs it always and while playing, and what is recorded there."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

from ilb.environments import (
    AbstractEnvironment,
    AbstractPerturbation,
    Adcb,
    ContextNoise,
    Plan,
    Shift,
    Synthetic,
    UniformLogging,
    record,
)
from ilb.environments.perturbed import NoisyContexts, ShiftedLatents
from ilb.errors import WorldError
from ilb.streams import Stream
from ilb_paper.catalogue.fig_synthetic_contextual import Stationary, StationarySetting
from ilb_paper.settings import AbstractSetting, AdcbSetting, SyntheticSetting, describe_setting
from ilb_paper.tasks import PlayTask, hash_of

SMALL = Plan(instances=5, length=7, test_instances=4)
NOISE, MOVE = ContextNoise(0.25), Shift(2.0)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (SyntheticSetting(), "Synthetic()"),
        (SyntheticSetting(always=(NOISE,)), "Synthetic(context_noise_std=0.25)"),
        (SyntheticSetting(playing=(MOVE,)), "Synthetic(latent_shift=2.0)"),
        (
            SyntheticSetting(Synthetic(reward="leaky"), Plan(5, 7), playing=(Shift(0.5, "coordinate"),)),
            "Synthetic(reward='leaky', latent_shift=0.5, shift_by='coordinate', instances=5, length=7)",
        ),
        (
            AdcbSetting(Adcb(0.1, "released", "without_age"), Plan(length=100), layers=4),
            "Adcb(layers=4, latent_noise_std=0.1, rewards='released', context='without_age', length=100)",
        ),
        (StationarySetting(plan=Plan(50, 1, 10)), "Stationary(instances=50)"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_setting_is_named_by_what_is_special_whatever_part_it_belongs_to(setting: AbstractSetting, text: str) -> None:
    assert describe_setting(setting) == text


def test_a_shift_happens_only_while_playing_and_noise_always() -> None:
    setting = SyntheticSetting(Synthetic(latent_dim=3, actions=4), SMALL, always=(NOISE,), playing=(MOVE,))
    recorded, ground = setting.record(2), setting.playground(2)
    assert isinstance(recorded.world, NoisyContexts)
    assert isinstance(ground, ShiftedLatents)
    moved = ground.sample_instance(jr.key(5)) - recorded.world.sample_instance(jr.key(5))
    np.testing.assert_allclose(moved, ground.shift, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(ground.shift), 2.0, rtol=1e-6)
    assert setting.offline() == replace(setting, playing=())
    unmoved = setting.offline().record(2)
    np.testing.assert_array_equal(recorded.training.logs.context, unmoved.training.logs.context)


def test_logs_are_recorded_with_uniform_actions_in_streams_of_their_own() -> None:
    setting = SyntheticSetting(Synthetic(latent_dim=3, actions=4), SMALL)
    recorded = setting.record(2)
    again = record(Stream.TRAINING_LOGS.key(2), setting.world.draw(2), UniformLogging(4), 5, 7)
    np.testing.assert_array_equal(recorded.training.logs.reward, again.logs.reward)
    test = record(Stream.TEST_LOGS.key(2), setting.world.draw(2), UniformLogging(4), 4, 7)
    np.testing.assert_array_equal(recorded.test.logs.context, test.logs.context)


def test_the_true_model_knows_nothing_of_noise_or_of_a_shift() -> None:
    setting = SyntheticSetting(Synthetic(latent_dim=3, actions=4), SMALL)
    plain, perturbed = (one.oracle(1) for one in (setting, replace(setting, always=(NOISE,), playing=(MOVE,))))
    context = jnp.asarray([0.3, -1.0, 2.0])
    np.testing.assert_array_equal(plain.encoder(context), perturbed.encoder(context))
    np.testing.assert_array_equal(plain.noise.encoding_covariance, perturbed.noise.encoding_covariance)
    with pytest.raises(WorldError, match="no oracle"):
        AdcbSetting().oracle(0)


@dataclass(frozen=True)
class Lookalike(AbstractPerturbation):
    """Another perturbation, with a field of the same name."""

    latent_shift: float

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> AbstractEnvironment:
        return world


def test_settings_that_differ_in_anything_are_different_tasks() -> None:
    standard = SyntheticSetting()
    settings = [
        standard,
        SyntheticSetting(Synthetic(latent_std=2.0)),
        SyntheticSetting(plan=Plan(confounding=1.0)),
        replace(standard, playing=(MOVE,)),
        replace(standard, always=(MOVE,)),
        replace(standard, playing=(Lookalike(2.0),)),
        replace(standard, playing=(MOVE, NOISE)),
        replace(standard, playing=(NOISE, MOVE)),
    ]
    hashes = [hash_of(PlayTask(setting, "MAB", "", (0,), 3, 12)) for setting in settings]
    assert len(set(hashes)) == len(settings)
    assert hash_of(PlayTask(SyntheticSetting(Synthetic(layers=2)), "MAB", "", (0,), 3, 12)) == hashes[0]


def test_settings_with_the_same_contexts_share_one_whatever_their_rewards() -> None:
    noisy = SyntheticSetting(Synthetic(actions=50, reward="leaky", reward_std=2.0, noise="laplace"), always=(NOISE,))
    assert noisy.contexts() == SyntheticSetting(Synthetic(noise="laplace"), always=(NOISE,))
    assert AdcbSetting(Adcb(0.1), layers=4).contexts() == AdcbSetting(Adcb(0.1, "released"), layers=4)
    assert StationarySetting(Stationary(actions=3)).contexts() == StationarySetting(Stationary(actions=3))


def test_a_smaller_setting_has_fewer_and_shorter_logs_but_never_too_few() -> None:
    assert SyntheticSetting().shrunk(0.5).plan == Plan(instances=50, length=100, test_instances=250)
    assert AdcbSetting().shrunk(0.01).plan == Plan(instances=12, length=25, test_instances=12)
    assert SyntheticSetting(plan=SMALL).shrunk(0.01).plan == SMALL
    assert StationarySetting().shrunk(0.01).plan == Plan(instances=50, length=1, test_instances=10)


def test_columns_of_the_alzheimer_world_are_scaled_to_about_the_unit_interval() -> None:
    logs = AdcbSetting(plan=Plan(instances=200, length=5, test_instances=0)).record(0).training.logs
    assert logs.schema.names[0] == "age"
    assert -0.2 < logs.context.min() < 0.1
    assert 0.9 < logs.context.max() < 1.2
