"""Worlds to learn in and to be tested in."""

from ilb.environments.environment import AbstractEnvironment
from ilb.environments.recording import (
    ConfoundedLogging,
    Recording,
    UniformLogging,
    draw_confounded_logging,
    record,
)
from ilb.environments.synthetic import (
    GaussianNoise,
    LaplaceNoise,
    SyntheticWorld,
    UniformNoise,
    draw_leaky_reward,
    draw_linear_reward,
    draw_world,
)

__all__ = [
    "AbstractEnvironment",
    "ConfoundedLogging",
    "GaussianNoise",
    "LaplaceNoise",
    "Recording",
    "SyntheticWorld",
    "UniformLogging",
    "UniformNoise",
    "draw_confounded_logging",
    "draw_leaky_reward",
    "draw_linear_reward",
    "draw_world",
    "record",
]
