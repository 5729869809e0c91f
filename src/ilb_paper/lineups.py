"""The players that most figures share, by the model they stand on."""

from __future__ import annotations

from ilb_paper.experiment import Group
from ilb_paper.learners import OURS, PAPER, REGRESSION, VAE
from ilb_paper.players import ORACLE, Player

ALGORITHMS = ("CPG", "FPG", "FPG (released)", "FPG-TS", "FPG-TS (released)")
"""The paper's own, as printed and as released."""

MAB, MAB_CENTRED, LIN_UCB = Player("MAB"), Player("MAB (centred)"), Player("LinUCB")
MAB_PRIOR = Player("MABPrior", PAPER)
RECURRENT = Player(REGRESSION, REGRESSION)
ONLINE = (MAB, MAB_PRIOR, LIN_UCB)
"""The paper's fully online learners."""


def on_model(model: str, *policies: str) -> tuple[Player, ...]:
    """Put policies on one model; without names, the paper's own."""
    return tuple(Player(policy, model) for policy in (policies or ALGORITHMS))


BASELINES = Group(
    "baselines",
    (*ONLINE, RECURRENT, *on_model(OURS, "mTS (encodings)", "mUCB (encodings)"), Player("CPG", PAPER)),
)
ON_PAPER = Group("paper's recipe", (*on_model(PAPER), MAB))
ON_OURS = Group("our recipe", (*on_model(OURS), Player("Calibrated", OURS), MAB))
ON_VAE = Group("VAE", (*on_model(VAE), MAB))
ON_ORACLE = Group("oracle", (*on_model(ORACLE), Player("Calibrated", ORACLE), MAB))


def exchange(group: Group, leaves: Player, *come: Player) -> Group:
    """Put other players in the place of one."""
    players = (new for player in group.players for new in (come if player == leaves else (player,)))
    return Group(group.title, tuple(players))
