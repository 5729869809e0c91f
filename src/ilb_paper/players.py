"""Players: a policy and the model it stands on, as the figures name them, and the groups that figures share."""

from __future__ import annotations

from typing import NamedTuple

from ilb.models.baselines import Ingredients
from ilb.offline.baselines import LogFits
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_policy
from ilb_paper.learners import OURS, PAPER, PLAIN_FIT, REGRESSION, VAE, Fitted
from ilb_paper.released import STUDY_ROSTER
from ilb_paper.settings import AbstractSetting

ORACLE = "oracle"


class Player(NamedTuple):
    """A policy by its name in the roster, and a model: a learner's name, `oracle`, or nothing."""

    policy: str
    model: str = ""

    def __str__(self) -> str:
        if self.policy == REGRESSION:
            return self.model  # the network is the policy
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


class Group(NamedTuple):
    """A row of a regret figure: the players that are compared in it."""

    title: str
    players: tuple[Player, ...]


ALGORITHMS = ("CPG", "FPG", "FPG (released)", "FPG-TS", "FPG-TS (released)")
"""The paper's own, as printed and as released."""
AS_RELEASED = ("CPG", "FPG (released)", "FPG-TS (released)")
"""The algorithms that the paper's figures were made with, and its claims are judged on."""

MAB, MAB_CENTRED, LIN_UCB = Player("MAB"), Player("MAB (centred)"), Player("LinUCB")
MAB_PRIOR = Player("MABPrior", PAPER)
RECURRENT = Player(REGRESSION, REGRESSION)
ONLINE = (MAB, MAB_PRIOR, LIN_UCB)
"""The paper's fully online learners."""


def on_model(model: str, *policies: str) -> tuple[Player, ...]:
    """Put policies on one model; without names, the paper's own."""
    return tuple(Player(policy, model) for policy in (policies or ALGORITHMS))


CPG, FPG, FPG_RELEASED, FPG_TS, FPG_TS_RELEASED = on_model(PAPER)
HYBRID = on_model(PAPER, *AS_RELEASED)

BASELINES = Group(
    "baselines", (*ONLINE, RECURRENT, *on_model(OURS, "mTS (encodings)", "mUCB (encodings)"), Player("CPG", PAPER))
)
ON_PAPER = Group("paper's recipe", (*on_model(PAPER), MAB))
ON_OURS = Group("our recipe", (*on_model(OURS), Player("Calibrated", OURS), MAB))
ON_DEFAULTS = Group("the library's defaults", (Player("Adaptive", PLAIN_FIT), Player("Calibrated", PLAIN_FIT), MAB))
"""What a user gets who asks for nothing: a plain `fit`, and the default policy on it."""
ON_VAE = Group("VAE", (*on_model(VAE), MAB))
ON_ORACLE = Group("oracle", (*on_model(ORACLE), Player("Calibrated", ORACLE), MAB))


def exchange(group: Group, leaves: Player, *come: Player) -> Group:
    players = (new for player in group.players for new in (come if player == leaves else (player,)))
    return Group(group.title, tuple(players))


ADCB_ONLINE = (MAB_CENTRED, MAB_PRIOR, LIN_UCB)
ADCB_GROUPS = (
    exchange(BASELINES, MAB, MAB, MAB_CENTRED),
    *(exchange(group, MAB, MAB_CENTRED) for group in (ON_PAPER, ON_OURS, ON_DEFAULTS, ON_VAE)),
)
