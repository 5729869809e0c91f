"""Players: a policy and the model it stands on, as the figures name them."""

from __future__ import annotations

from typing import NamedTuple

from ilb.models.baselines import Ingredients
from ilb.offline.baselines import LogFits
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_policy
from ilb_paper.learners import Fitted
from ilb_paper.released import STUDY_ROSTER
from ilb_paper.settings import AbstractSetting

ORACLE = "oracle"


class Player(NamedTuple):
    """A policy by its name in the roster, and a model: a learner's name, `oracle`, or nothing."""

    policy: str
    model: str = ""

    def __str__(self) -> str:
        if self.model.startswith(self.policy):
            return self.model
        return f"{self.policy}, {self.model}" if self.model else self.policy


def build_player(
    policy: str, model: str, setting: AbstractSetting, seed: int, fitted: Fitted | None, horizon: int
) -> AbstractPolicy:
    """Build the policy for the world of one seed; as in the paper, bandits are told the true noise of rewards."""
    given = Ingredients.on(
        setting.oracle(seed) if model == ORACLE else fitted,
        LogFits(lambda: setting.record(seed).training.logs, seed=seed, ridge=setting.warm_ridge),
        actions=setting.actions,
        context_dim=setting.playground(seed).sizes.context_dim,
        reward_variance=setting.reward_std**2,
        horizon=horizon,
    )
    return build_policy(given, policy, STUDY_ROSTER)
