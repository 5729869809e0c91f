"""Reward recipes: how rewards follow from encodings. A new one is a file and a line here."""

from collections.abc import Callable

from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.mlp import MLPRewardRecipe
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.offline.rewards.recipe import RewardRecipe

REWARD_RECIPES: dict[str, Callable[[], RewardRecipe]] = {
    "person": PersonRewardRecipe,
    "linear": LinearRewardRecipe,
    "mlp": MLPRewardRecipe,
    "mlp-decayed": MLPRewardRecipe.decayed,
}
"""Every recipe by name."""
