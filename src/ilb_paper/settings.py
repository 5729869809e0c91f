"""Settings: a world of the paper, what perturbs it, what is recorded there, and where policies are played."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import jax.numpy as jnp
import numpy as np

from ilb.environments import Adcb, Plan, Recorded, Synthetic, UniformLogging, record
from ilb.environments.adcb.world import TREATMENTS
from ilb.environments.environment import AbstractEnvironment
from ilb.environments.perturbed import AbstractPerturbation, perturb
from ilb.environments.wrappers import ScaledContexts
from ilb.models.latent import LatentModel
from ilb.streams import Stream, bare_key

PARTS = ("world", "plan", "always", "playing")
PLAN, SYNTHETIC, ADCB = Plan(), Synthetic(), Adcb()
"""The standard ones."""
RANGES = 20_000
"""The seed of the sample whose ranges ADCB's columns are scaled by."""
Setting = TypeVar("Setting", bound="AbstractSetting")


@dataclass(frozen=True)
class AbstractSetting(ABC):
    """A world for each seed, its logs, and where policies are played.

    `always` perturbs the world of the logs and of the policies alike; `playing` happens at decision time only. The plan
    has 500 unseen instances behind the scores of a fit: the paper has 50, which leaves 5 points of noise in a share of
    80 %.
    """

    kind: ClassVar[str]
    """What tables and claims call it."""
    constant_columns: ClassVar[bool]
    """Whether part of a context never varies within an instance: encoders then need other scalings and company."""
    warm_ridge: ClassVar[float] = 1.0
    """The ridge of a warm start from the logs."""

    world: Any
    """An `AbstractDescription`, whose fields say what the properties below ask for."""
    plan: Plan = PLAN
    always: tuple[AbstractPerturbation, ...] = ()
    playing: tuple[AbstractPerturbation, ...] = ()

    @property
    def layers(self) -> int:
        """The layers that networks are given: as in the paper, those of the emission."""
        return int(self.world.layers)

    @property
    def latent_dim(self) -> int:
        """The dimension n that encoders are given."""
        return int(self.world.latent_dim)

    @property
    def actions(self) -> int:
        return int(self.world.actions)

    @property
    def reward_std(self) -> float:
        """The standard deviation of reward noise, which the paper tells its online bandits."""
        return float(self.world.reward_std)

    @property
    def linear_rewards(self) -> bool:
        return True

    @abstractmethod
    def contexts(self: Setting) -> Setting:
        """Give the setting whose logs have the same contexts: encoders, which never see a reward, are the same."""

    def offline(self: Setting) -> Setting:
        """Give the setting without what only happens while playing: two settings with the same one share their fits."""
        return replace(self, playing=())

    def shrunk(self: Setting, factor: float) -> Setting:
        """Give the setting with shorter logs of fewer instances, for a look in passing."""
        return replace(self, plan=shrink(self.plan, factor, instances=12, length=25, test_instances=12))

    def clean(self, seed: int) -> AbstractEnvironment:
        """Draw the world of this seed, before anything perturbs it."""
        drawn: AbstractEnvironment = self.world.draw(seed)
        return drawn

    def draw(self, seed: int) -> AbstractEnvironment:
        """Draw the world that logs are recorded in."""
        return perturb(Stream.PERTURBATION.of(Stream.WORLD.key(seed)), self.clean(seed), self.always)

    def playground(self, seed: int) -> AbstractEnvironment:
        """Draw the world in which policies are played."""
        return perturb(Stream.PERTURBATION.key(seed), self.draw(seed), self.playing)

    def record(self, seed: int) -> Recorded:
        return _record(self.offline(), seed)

    def oracle(self, seed: int) -> LatentModel:
        """Give the true model, which knows nothing of noise on the contexts or of a shift; worlds without one raise."""
        return self.draw(seed).oracle()

    def changes(self) -> dict[str, Any]:
        """Give what differs from the standard setting of this kind, whatever part it belongs to."""
        standard = type(self)()  # type: ignore[call-arg]
        changed = {name: value for name, value in _changes(self, standard).items() if name not in PARTS}
        changed |= _changes(self.world, standard.world)
        for perturbation in (*self.always, *self.playing):
            changed |= _changes(perturbation)
        return changed | _changes(self.plan, standard.plan)


def describe_setting(setting: AbstractSetting) -> str:
    """Name a setting by what differs from its defaults.

    >>> describe_setting(SyntheticSetting(Synthetic(layers=4), Plan(length=100)))
    'Synthetic(layers=4, length=100)'
    """
    return f"{setting.kind}({', '.join(f'{name}={value!r}' for name, value in setting.changes().items())})"


def shrink(plan: Plan, factor: float, **least: int) -> Plan:
    """Take a share of the sizes that are named, but never less than the least of each."""
    sizes = {name: getattr(plan, name) for name in least}
    return replace(plan, **{name: min(n, max(least[name], round(n * factor))) for name, n in sizes.items()})


@lru_cache(maxsize=16)
def _record(setting: AbstractSetting, seed: int) -> Recorded:
    """Record once for all the tasks of a process that need the same logs."""
    return setting.plan.record(seed, setting.draw(seed))


def _changes(part: Any, standard: Any = None) -> dict[str, Any]:
    values = {one.name: (getattr(part, one.name), getattr(standard, one.name, one.default)) for one in fields(part)}
    return {name: value for name, (value, default) in values.items() if value != default}


@dataclass(frozen=True)
class SyntheticSetting(AbstractSetting):
    """The synthetic environment; defaults are the paper's standard setting."""

    kind: ClassVar[str] = "Synthetic"
    constant_columns: ClassVar[bool] = False
    world: Synthetic = SYNTHETIC

    @property
    def linear_rewards(self) -> bool:
        return self.world.reward == "linear"

    def contexts(self) -> SyntheticSetting:
        rewards = {name: getattr(SYNTHETIC, name) for name in ("actions", "reward", "reward_std")}
        return replace(self.offline(), world=replace(self.world, **rewards))


@dataclass(frozen=True)
class AdcbSetting(AbstractSetting):
    """The Alzheimer environment.

    It has no layers of its own: `layers` is that of the networks which are fitted to it. They have 9 latent dimensions:
    the amyloid ratio, and the indicators of seven races and of sex that the paper counts into Z.
    """

    kind: ClassVar[str] = "Adcb"
    constant_columns: ClassVar[bool] = True
    world: Adcb = ADCB
    layers: int = 2
    latent_dim: ClassVar[int] = 9
    actions: ClassVar[int] = TREATMENTS

    def clean(self, seed: int) -> AbstractEnvironment:
        del seed
        return _unit_columns(self.world)

    def contexts(self) -> AdcbSetting:
        return replace(self.offline(), world=replace(self.world, rewards="released", reward_std=ADCB.reward_std))


@lru_cache(maxsize=8)
def _unit_columns(description: Adcb) -> ScaledContexts:
    """Scale each column to about [0, 1] by the range of a fixed sample, as the authors do before any learning."""
    world = description.draw()
    sample = record(bare_key(RANGES), world, UniformLogging(TREATMENTS), 2000, 1).logs.context
    low, high = sample.min(axis=0), sample.max(axis=0)
    return ScaledContexts(world, jnp.asarray(low), jnp.asarray(np.where(high > low, high - low, 1.0)))
