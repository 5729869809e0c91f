"""Identifiable latent bandits: learn from the records of earlier people what is best for the next one."""

from ilb.errors import (
    FitError,
    IdentifiabilityWarning,
    IlbError,
    IlbWarning,
    LogsError,
    LogsWarning,
    ModelFileError,
    RareActionWarning,
    SchemaError,
    WorldError,
)
from ilb.logs import Logs, Schema
from ilb.model import LatentModel, LinearReward, NoiseLevels, Provenance
from ilb.offline.dimension import choose_latent_dim
from ilb.offline.fit import fit, fit_many
from ilb.offline.paper import PaperRecipe
from ilb.offline.scores import reference_models, score_model
from ilb.offline.tied import TiedRecipe
from ilb.transformer import MeanContrastive
from ilb.version import __version__

__all__ = [
    "FitError",
    "IdentifiabilityWarning",
    "IlbError",
    "IlbWarning",
    "LatentModel",
    "LinearReward",
    "Logs",
    "LogsError",
    "LogsWarning",
    "MeanContrastive",
    "ModelFileError",
    "NoiseLevels",
    "PaperRecipe",
    "Provenance",
    "RareActionWarning",
    "Schema",
    "SchemaError",
    "TiedRecipe",
    "WorldError",
    "__version__",
    "choose_latent_dim",
    "fit",
    "fit_many",
    "reference_models",
    "score_model",
]
