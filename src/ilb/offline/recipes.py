"""Recipes from the plain values that a model's provenance keeps (`describe_recipe`): to fit the same way again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from ilb.errors import FitError
from ilb.models.latent import LatentModel
from ilb.offline.encoders import ENCODER_RECIPES, UNTRAINED_RECIPES
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.vae import GaussianLikelihood
from ilb.offline.rewards import REWARD_RECIPES
from ilb.offline.rewards.boosting import Boosting
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.offline.scaling import MinMax, Standardised, Whitened, WidestAxes
from ilb.offline.training import Adam, CosineAdam, MomentumSGD, Schedule

_RECIPES = [recipe() for known in (ENCODER_RECIPES, UNTRAINED_RECIPES, REWARD_RECIPES) for recipe in known.values()]
_PARTS = (
    GaussianLikelihood,
    Schedule,
    CosineAdam,
    Adam,
    MomentumSGD,
    Boosting,
    Standardised,
    Whitened,
    WidestAxes,
    MinMax,
)
KNOWN: dict[str, Any] = {kind.__name__: kind for kind in (*map(type, _RECIPES), *_PARTS)}
"""What a description may name. A recipe of somebody else's is not among these, and can't be made from its name."""


class Recipes(NamedTuple):
    """How a model was fitted: what `fit_many` needs to do it again."""

    encoder: EncoderRecipe
    latent_dim: int
    reward: RewardRecipe

    @classmethod
    def of(cls, model: LatentModel) -> Recipes:
        """Read them from the provenance; a model that was put together by hand, or by other recipes, raises."""
        if model.provenance is None or "reward" not in model.provenance.recipe:
            raise FitError("the model does not say how it was fitted, so it can't be fitted again on other people.")
        described = dict(model.provenance.recipe)
        latent_dim, reward = described.pop("latent_dim"), described.pop("reward")
        return cls(_made(described), int(latent_dim), _made(reward))


def _made(described: Any) -> Any:
    if isinstance(described, Mapping):
        kind = KNOWN.get(described.get("name", ""))
        wanted = [] if kind is None else [part.name for part in fields(kind)]
        if kind is None or set(wanted) != set(described) - {"name"}:
            raise FitError(
                f"the model was fitted with {described.get('name')!r}, which this version can't make from its "
                "description, so it can't be fitted again on other people."
            )
        return kind(**{name: _made(described[name]) for name in wanted})
    return tuple(described) if isinstance(described, list) else described
