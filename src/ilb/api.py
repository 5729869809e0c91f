"""The names that `import ilb` gives, with all that is behind them; `ilb` itself loads them when they are asked for."""

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
from ilb.live.bandit import LiveBandit, LiveInstance
from ilb.live.decision import Decision
from ilb.logs import Logs, Schema
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels, Provenance
from ilb.models.recurrent import RecurrentRegression
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.choice import choose_latent_dim
from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.encoders.tied import TiedRecipe, deep_tied_recipe
from ilb.offline.encoders.vae import VAERecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.fit import fit, fit_many
from ilb.offline.regression import RegressionRecipe, fit_regression, fit_regression_many, score_regression
from ilb.offline.rewards.mlp import MLPRewardRecipe, decayed_mlp_recipe
from ilb.offline.rewards.recipe import LinearRewardRecipe
from ilb.offline.scores import reference_models, score_model
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
    "LinearRewardRecipe",
    "LiveBandit",
    "LiveInstance",
    "Logs",
    "LogsError",
    "LogsWarning",
    "MLPRewardRecipe",
    "MeanContrastive",
    "ModelFileError",
    "NoiseLevels",
    "PaperRecipe",
    "Provenance",
    "RareActionWarning",
    "RecurrentRegression",
    "RegressionRecipe",
    "Schema",
    "SchemaError",
    "TiedRecipe",
    "VAERecipe",
    "WithContexts",
    "WorldError",
    "__version__",
    "build_policies",
    "choose_latent_dim",
    "decayed_mlp_recipe",
    "deep_tied_recipe",
    "fit",
    "fit_many",
    "fit_regression",
    "fit_regression_many",
    "prepare_ingredients",
    "reference_models",
    "score_model",
    "score_regression",
    "simulate",
]
