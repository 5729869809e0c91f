"""A synthetic world and its recordings as plain values: a small file names them, and anyone can make them again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.random as jr

from ilb.environments.recording import LoggingRule, Recording, UniformLogging, draw_confounded_logging, record
from ilb.environments.synthetic import (
    GaussianNoise,
    LaplaceNoise,
    LatentNoise,
    RewardDraw,
    SyntheticWorld,
    UniformNoise,
    draw_leaky_reward,
    draw_linear_reward,
    draw_world,
)
from ilb.errors import WorldError

NOISES: dict[str, Callable[[Any], LatentNoise]] = {
    "gaussian": GaussianNoise,
    "laplace": LaplaceNoise,
    "uniform": UniformNoise,
}
LEAST = {
    "seed": 0,
    "latent_dim": 1,
    "context_dim": 1,
    "layers": 2,
    "actions": 1,
    "instances": 1,
    "test_instances": 0,
    "length": 1,
}
REWARDS: dict[str, RewardDraw] = {"linear": draw_linear_reward, "leaky": draw_leaky_reward}


class Recorded(NamedTuple):
    """A world with the recordings that a specification asks for."""

    world: SyntheticWorld
    training: Recording
    test: Recording | None


@dataclass(frozen=True)
class SyntheticSpecification:
    """Everything that determines a synthetic world and what was recorded in it; defaults as in the paper."""

    seed: int = 0
    latent_dim: int = 5
    context_dim: int = 5
    layers: int = 2
    actions: int = 20
    noise: str = "gaussian"
    noise_scale: float = 1.0
    reward: str = "linear"
    latent_std: float = 1.0
    reward_std: float = 0.5
    confounding: float = 0.0
    instances: int = 100
    test_instances: int = 500
    length: int = 200

    def __post_init__(self) -> None:
        for name, known in (("noise", NOISES), ("reward", REWARDS)):
            if getattr(self, name) not in known:
                raise WorldError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise WorldError(f"{name} must be an integer, at least {least}; got {value!r}.")
        for name in ("noise_scale", "latent_std", "reward_std", "confounding"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise WorldError(f"{name} must be a number, at least 0; got {value!r}.")
            if name in ("noise_scale", "latent_std") and value == 0:
                raise WorldError(f"{name} must be above 0: without it there is nothing to tell apart.")
        if self.context_dim < self.latent_dim:
            raise WorldError(f"context_dim must be at least latent_dim={self.latent_dim}; got {self.context_dim}.")

    def world(self) -> SyntheticWorld:
        """Draw the world."""
        return draw_world(
            jr.fold_in(jr.key(self.seed), 0),
            latent_dim=self.latent_dim,
            context_dim=self.context_dim,
            layers=self.layers,
            actions=self.actions,
            noise=NOISES[self.noise](self.noise_scale),
            draw_reward=REWARDS[self.reward],
            latent_std=self.latent_std,
            reward_std=self.reward_std,
        )

    def logging(self) -> LoggingRule:
        """Draw the rule by which actions were logged: uniform, or confounded with the given strength."""
        if self.confounding == 0:
            return UniformLogging(self.actions)
        key = jr.fold_in(jr.key(self.seed), 1)
        return draw_confounded_logging(key, self.actions, self.latent_dim, self.context_dim, self.confounding)

    def record(self) -> Recorded:
        """Record the training logs and, for other instances, the test logs."""
        world, logging = self.world(), self.logging()
        key_training, key_test = (jr.fold_in(jr.key(self.seed), number) for number in (2, 3))
        return Recorded(
            world,
            record(key_training, world, logging, self.instances, self.length),
            record(key_test, world, logging, self.test_instances, self.length) if self.test_instances else None,
        )

    def save(self, path: Path) -> None:
        """Write the specification as JSON."""
        path.write_text(json.dumps({"environment": "synthetic", **asdict(self)}, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> SyntheticSpecification:
        """Read a specification that `save` wrote."""
        try:
            stored = json.loads(path.read_text())
            kind = stored.pop("environment")
            if kind == "synthetic":
                return SyntheticSpecification(**stored)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WorldError(f"{path} is not a world that `ilb simulate` wrote: {error}.") from error
        raise WorldError(f"{path} describes a {kind!r} environment; only 'synthetic' is known here.")
