"""Settings: the worlds of the paper as plain values, with the logs recorded in them and where policies are played."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ilb import environments
from ilb.environments.environment import AbstractEnvironment
from ilb.environments.perturbed import NoisyContexts, Shift
from ilb.environments.recording import Recording, UniformLogging, record
from ilb.environments.synthetic import NOISES, REWARDS, SyntheticWorld, draw_world
from ilb.environments.wrappers import ScaledContexts
from ilb.models.latent import LatentModel
from ilb.streams import Stream
from ilb_paper.toy import draw_stationary_world

TEST_INSTANCES = 500
"""Unseen instances behind the scores of a fit; the paper has 50, which leaves 5 points of noise in a share of 80 %."""


class Recorded(NamedTuple):
    """Logs to learn from and logs of other instances to score on, with the truth behind both."""

    training: Recording
    test: Recording


class Setting(Protocol):
    """A world for each seed, its logs, and where policies are played."""

    kind: ClassVar[str]
    """Part of the names of tasks and of what is stored: never changed."""
    constant_columns: ClassVar[bool]
    """Whether part of a context never varies within an instance: encoders then need other scalings and company."""
    warm_ridge: ClassVar[float]
    """The ridge of a warm start from the logs."""

    @property
    def layers(self) -> int:
        """The layers that networks are given: as in the paper, those of the emission."""
        ...

    @property
    def linear_rewards(self) -> bool:
        """Whether rewards are linear in z."""
        ...

    @property
    def latent_dim(self) -> int:
        """The dimension n that encoders are given."""
        ...

    @property
    def actions(self) -> int:
        """The number K of actions."""
        ...

    @property
    def reward_std(self) -> float:
        """The standard deviation of reward noise, which the paper tells its online bandits."""
        ...

    def record(self, seed: int) -> Recorded:
        """Record training and test logs in the world of this seed."""
        ...

    def playground(self, seed: int) -> AbstractEnvironment:
        """Give the world in which policies are played; a shift, if there is one, happens only here."""
        ...

    def oracle(self, seed: int) -> LatentModel:
        """Give the true model of the world of this seed."""
        ...

    def offline(self) -> Setting:
        """Give the setting without what only happens while playing: two settings with the same one share their fits."""
        ...

    def contexts(self) -> Setting:
        """Give the setting whose logs have the same contexts: encoders, which never see a reward, are the same."""
        ...

    def shrunk(self, factor: float) -> Setting:
        """Give the setting with shorter logs of fewer instances, for a look in passing."""
        ...


def _shrink(count: int, factor: float, least: int) -> int:
    return min(count, max(least, round(count * factor)))


@dataclass(frozen=True)
class Synthetic:
    r"""The synthetic environment; defaults are the paper's standard setting.

    `latent_shift` moves the mean of U at decision time only, by that Euclidean length in a random direction, or by that
    much in every coordinate (`shift_by`), as the released code has it. `context_noise_std` is added to every context.
    """

    kind: ClassVar[str] = "Synthetic"
    constant_columns: ClassVar[bool] = False
    warm_ridge: ClassVar[float] = 1.0

    layers: int = 2
    actions: int = 20
    noise: str = "gaussian"
    noise_scale: float = 1.0
    reward: str = "linear"
    reward_std: float = 0.5
    context_noise_std: float = 0.0
    latent_shift: float = 0.0
    shift_by: str = "norm"
    instances: int = 100
    length: int = 200
    test_instances: int = TEST_INSTANCES
    latent_dim: int = 5

    @property
    def linear_rewards(self) -> bool:
        """As asked for."""
        return self.reward == "linear"

    def _clean(self, seed: int) -> SyntheticWorld:
        return draw_world(
            Stream.WORLD.key(seed),
            latent_dim=self.latent_dim,
            layers=self.layers,
            actions=self.actions,
            noise=NOISES[self.noise](self.noise_scale),
            draw_reward=REWARDS[self.reward],
            reward_std=self.reward_std,
        )

    def world(self, seed: int) -> AbstractEnvironment:
        """Draw the world; without noise on the contexts it is the plain one."""
        world = self._clean(seed)
        return NoisyContexts(world, jnp.asarray(self.context_noise_std)) if self.context_noise_std else world

    def record(self, seed: int) -> Recorded:
        """Record with uniform actions, as the paper does."""
        return _record(self.offline(), seed)

    def playground(self, seed: int) -> AbstractEnvironment:
        """Move the population of the world, if asked to."""
        world = self.world(seed)
        if not self.latent_shift:
            return world
        return Shift(self.latent_shift, self.shift_by).apply(Stream.PERTURBATION.key(seed), world)

    def oracle(self, seed: int) -> LatentModel:
        """Give the truth, which knows nothing of noise on the contexts or of a shift."""
        return self._clean(seed).oracle()

    def offline(self) -> Synthetic:
        """Leave the shift out."""
        return replace(self, latent_shift=0.0, shift_by="norm")

    def contexts(self) -> Synthetic:
        """Take the standard rewards."""
        standard = Synthetic()
        return replace(self.offline(), actions=standard.actions, reward=standard.reward, reward_std=standard.reward_std)

    def shrunk(self, factor: float) -> Synthetic:
        """Shorten the logs."""
        return replace(
            self,
            instances=_shrink(self.instances, factor, 12),
            length=_shrink(self.length, factor, 25),
            test_instances=_shrink(self.test_instances, factor, 12),
        )


class _PlayedAsLogged(ABC):
    """Settings in which nothing happens only while playing: the world of the logs is the world of the policies."""

    linear_rewards: ClassVar[bool] = True

    @abstractmethod
    def world(self, seed: int) -> AbstractEnvironment:
        """Give the world of this seed."""

    def record(self, seed: int) -> Recorded:
        """Record with uniform actions."""
        return _record(self, seed)

    def playground(self, seed: int) -> AbstractEnvironment:
        """Play where the logs come from."""
        return self.world(seed)

    def oracle(self, seed: int) -> LatentModel:
        """Give the true model; worlds without one raise."""
        return self.world(seed).oracle()

    def offline(self) -> Self:
        """Give the setting itself."""
        return self


@dataclass(frozen=True)
class Adcb(_PlayedAsLogged):
    """The Alzheimer environment; `context` is nine, without_age or biomarkers, `rewards` printed or released.

    It has no layers of its own: `layers` is that of the networks which are fitted to it. They have 9 latent dimensions:
    the amyloid ratio, and the indicators of seven races and of sex that the paper counts into Z.
    """

    kind: ClassVar[str] = "Adcb"
    constant_columns: ClassVar[bool] = True
    warm_ridge: ClassVar[float] = 1.0

    layers: int = 2
    latent_noise_std: float = 0.02
    rewards: str = "printed"
    context: str = "nine"
    instances: int = 100
    length: int = 200
    test_instances: int = TEST_INSTANCES
    latent_dim: int = 9
    actions: int = 8
    reward_std: float = 0.25

    def world(self, seed: int) -> AbstractEnvironment:
        """Give the simulator; its numbers are fixed, so seeds differ in patients only."""
        del seed
        return _adcb(self.latent_noise_std, self.rewards, self.context, self.reward_std)

    def contexts(self) -> Adcb:
        """Take the released rewards."""
        return replace(self, rewards="released", reward_std=Adcb().reward_std)

    def shrunk(self, factor: float) -> Adcb:
        """Shorten the logs."""
        return replace(
            self,
            instances=_shrink(self.instances, factor, 12),
            length=_shrink(self.length, factor, 25),
            test_instances=_shrink(self.test_instances, factor, 12),
        )


@dataclass(frozen=True)
class Stationary(_PlayedAsLogged):
    """The toy of app:synthetic_stationary: contexts that never change, 500 logged rows for the warm start."""

    kind: ClassVar[str] = "Stationary"
    constant_columns: ClassVar[bool] = True
    layers: ClassVar[int] = 2
    warm_ridge: ClassVar[float] = 0.5  # as released

    actions: int = 10
    latent_dim: int = 5
    reward_std: float = 0.25
    instances: int = 500
    test_instances: int = 10
    length: int = 1

    def world(self, seed: int) -> AbstractEnvironment:
        """Draw the parameters of the arms."""
        key = Stream.WORLD.key(seed)
        return draw_stationary_world(key, actions=self.actions, context_dim=self.latent_dim, reward_std=self.reward_std)

    def contexts(self) -> Stationary:
        """Nothing is learned from contexts here."""
        return self

    def shrunk(self, factor: float) -> Stationary:
        """Log fewer instances."""
        return replace(self, instances=_shrink(self.instances, factor, 50))


@lru_cache(maxsize=8)
def _adcb(latent_noise_std: float, rewards: Any, context: Any, reward_std: float) -> AbstractEnvironment:
    """Scale each column to about [0, 1] by the range of a fixed sample, as the authors do before any learning."""
    world = environments.Adcb(latent_noise_std, rewards, context, reward_std).draw()
    sample = record(jr.key(20_000), world, UniformLogging(8), 2000, 1).logs.context
    low, high = sample.min(axis=0), sample.max(axis=0)
    return ScaledContexts(world, jnp.asarray(low), jnp.asarray(np.where(high > low, high - low, 1.0)))


@lru_cache(maxsize=16)
def _record(setting: Any, seed: int) -> Recorded:
    """Record once for all the tasks of a process that need the same logs."""
    world, logging = setting.world(seed), UniformLogging(setting.actions)
    key_training, key_test = (stream.key(seed) for stream in (Stream.TRAINING_LOGS, Stream.TEST_LOGS))
    return Recorded(
        record(key_training, world, logging, setting.instances, setting.length),
        record(key_test, world, logging, setting.test_instances, setting.length),
    )


def describe_setting(setting: Any) -> str:
    """Name a setting by what differs from its defaults.

    >>> describe_setting(Synthetic(layers=4, length=100))
    'Synthetic(layers=4, length=100)'
    """
    default = asdict(type(setting)())
    changed = {name: value for name, value in asdict(setting).items() if value != default[name]}
    return f"{setting.kind}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
