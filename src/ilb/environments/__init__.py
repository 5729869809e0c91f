"""Worlds to learn in and to be tested in. A world of its own file joins `ilb simulate` by its import here."""

from ilb.environments.adcb.world import Adcb, AdcbWorld
from ilb.environments.changed_rewards import ChangedAction, IrrelevantModel, OwnEffects
from ilb.environments.drifting import SuddenChanges, Wandering
from ilb.environments.environment import AbstractEnvironment
from ilb.environments.perturbed import (
    AbstractPerturbation,
    ContextNoise,
    FewTypes,
    KeptColumns,
    OtherNoise,
    Shift,
    perturb,
)
from ilb.environments.recording import (
    ConfoundedLogging,
    Recorded,
    Recording,
    UniformLogging,
    draw_confounded_logging,
    record,
)
from ilb.environments.specification import WORLDS, AbstractDescription, Plan, Specification, parameter
from ilb.environments.synthetic import (
    GaussianNoise,
    LaplaceNoise,
    Synthetic,
    SyntheticWorld,
    UniformNoise,
    draw_leaky_reward,
    draw_linear_reward,
    draw_world,
)

__all__ = [
    "WORLDS",
    "AbstractDescription",
    "AbstractEnvironment",
    "AbstractPerturbation",
    "Adcb",
    "AdcbWorld",
    "ChangedAction",
    "ConfoundedLogging",
    "ContextNoise",
    "FewTypes",
    "GaussianNoise",
    "IrrelevantModel",
    "KeptColumns",
    "LaplaceNoise",
    "OtherNoise",
    "OwnEffects",
    "Plan",
    "Recorded",
    "Recording",
    "Shift",
    "Specification",
    "SuddenChanges",
    "Synthetic",
    "SyntheticWorld",
    "UniformLogging",
    "UniformNoise",
    "Wandering",
    "draw_confounded_logging",
    "draw_leaky_reward",
    "draw_linear_reward",
    "draw_world",
    "parameter",
    "perturb",
    "record",
]
