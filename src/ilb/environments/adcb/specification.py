"""Recordings of the Alzheimer world as plain values: a small file names them, and anyone can make them again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import jax.random as jr

from ilb.environments.adcb.recording import AdcbRecording, adcb_confounded_logging, record_adcb
from ilb.environments.adcb.world import TREATMENTS, AdcbWorld, ContextName, RewardsName, adcb_world
from ilb.environments.recording import LoggingRule, UniformLogging
from ilb.errors import WorldError

LEAST = {"seed": 0, "patients": 1, "test_patients": 0, "visits": 1}


class AdcbRecorded(NamedTuple):
    """The world with the recordings that a specification asks for."""

    world: AdcbWorld
    training: AdcbRecording
    test: AdcbRecording | None


@dataclass(frozen=True)
class AdcbSpecification:
    """Everything that determines recordings of the Alzheimer world; its own numbers are those of the package."""

    seed: int = 0
    latent_noise_std: float = 0.02
    rewards: RewardsName = "printed"
    context: ContextName = "nine"
    reward_std: float = 0.25
    confounding: float = 0.0
    patients: int = 100
    test_patients: int = 50
    visits: int = 200

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise WorldError(f"{name} must be an integer, at least {least}; got {value!r}.")
        if not 0 <= self.confounding < float("inf"):
            raise WorldError(f"confounding must be a number, at least 0; got {self.confounding!r}.")
        self.world()  # refuses what is wrong with the rest

    def world(self) -> AdcbWorld:
        """Make the world."""
        return adcb_world(
            latent_noise_std=self.latent_noise_std,
            rewards=self.rewards,
            context=self.context,
            reward_std=self.reward_std,
        )

    def logging(self) -> LoggingRule:
        """Draw the rule by which treatments were logged: uniform, or confounded with the given strength."""
        if self.confounding == 0:
            return UniformLogging(TREATMENTS)
        return adcb_confounded_logging(jr.fold_in(jr.key(self.seed), 1), self.world(), self.confounding)

    def record(self) -> AdcbRecorded:
        """Record the training logs and, for other patients, the test logs."""
        world, logging = self.world(), self.logging()
        key_training, key_test = (jr.fold_in(jr.key(self.seed), number) for number in (2, 3))
        return AdcbRecorded(
            world,
            record_adcb(key_training, world, logging, self.patients, self.visits),
            record_adcb(key_test, world, logging, self.test_patients, self.visits) if self.test_patients else None,
        )

    def save(self, path: Path) -> None:
        """Write the specification as JSON."""
        path.write_text(json.dumps({"environment": "adcb", **asdict(self)}, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> AdcbSpecification:
        """Read a specification that `save` wrote."""
        try:
            stored = json.loads(path.read_text())
            stored.pop("environment")
            return AdcbSpecification(**stored)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorldError(f"{path} is not a world that `ilb simulate adcb` wrote: {error}.") from error
