"""The names that `import ilb` gives, with all that is behind them; `ilb` itself loads them when they are asked for."""

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
from ilb.offline.mlp_reward import MLPRewardRecipe, decayed_mlp_recipe
from ilb.offline.paper import PaperRecipe
from ilb.offline.regression import RegressionRecipe, fit_regression, fit_regression_many
from ilb.offline.regression_scores import score_regression
from ilb.offline.reward_recipe import LinearRewardRecipe
from ilb.offline.scores import reference_models, score_model
from ilb.offline.tied import TiedRecipe, deep_tied_recipe
from ilb.offline.vae import VAERecipe
from ilb.offline.vae_released import released_vae_recipe
from ilb.offline.with_contexts import WithContexts
from ilb.online.roster import build_policies
from ilb.recurrent import RecurrentRegression
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
    "released_vae_recipe",
    "score_model",
    "score_regression",
    "simulate",
]
