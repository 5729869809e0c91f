"""Worlds to learn in and to be tested in."""

from ilb.environments.adcb.recording import AdcbRecording, adcb_confounded_logging, record_adcb
from ilb.environments.adcb.world import AdcbWorld, adcb_world
from ilb.environments.environment import AbstractEnvironment
from ilb.environments.recording import (
    ConfoundedLogging,
    Recording,
    UniformLogging,
    draw_confounded_logging,
    record,
)
from ilb.environments.stationary import StationaryWorld, draw_stationary_world
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
    "AdcbRecording",
    "AdcbWorld",
    "ConfoundedLogging",
    "GaussianNoise",
    "LaplaceNoise",
    "Recording",
    "StationaryWorld",
    "SyntheticWorld",
    "UniformLogging",
    "UniformNoise",
    "adcb_confounded_logging",
    "adcb_world",
    "draw_confounded_logging",
    "draw_leaky_reward",
    "draw_linear_reward",
    "draw_stationary_world",
    "draw_world",
    "record",
    "record_adcb",
]
