"""Identifiable latent bandits: learn from the records of earlier people what is best for the next one."""

from ilb.decision import Decision
from ilb.errors import (
    DecisionError,
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
from ilb.history import History
from ilb.live import LiveBandit, LiveInstance
from ilb.logs import Logs, Schema
from ilb.model import LatentModel, LinearReward, NoiseLevels, Provenance
from ilb.offline.dimension import choose_latent_dim
from ilb.offline.fit import fit, fit_many
from ilb.offline.ingredients import prepare_ingredients
from ilb.offline.paper import PaperRecipe
from ilb.offline.scores import reference_models, score_model
from ilb.offline.tied import TiedRecipe, deep_tied_recipe
from ilb.online.roster import build_policies
from ilb.simulation import simulate
from ilb.transformer import MeanContrastive
from ilb.version import __version__

__all__ = [
    "Decision",
    "DecisionError",
    "FitError",
    "History",
    "IdentifiabilityWarning",
    "IlbError",
    "IlbWarning",
    "LatentModel",
    "LinearReward",
    "LiveBandit",
    "LiveInstance",
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
    "build_policies",
    "choose_latent_dim",
    "deep_tied_recipe",
    "fit",
    "fit_many",
    "prepare_ingredients",
    "reference_models",
    "score_model",
    "simulate",
]
