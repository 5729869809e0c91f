"""fig:multi_arm: 10, 20 and 50 actions with the same number of logged rows."""

from itertools import pairwise

from ilb.environments import Synthetic
from ilb_paper.claims import Claim, grows_more, less_regret, rate_falls, regret_grows
from ilb_paper.experiment import Group, Panel, RegretFigure
from ilb_paper.learners import OURS, PAPER
from ilb_paper.lineups import MAB, on_model
from ilb_paper.players import ORACLE, Player
from ilb_paper.settings import SyntheticSetting

SETTINGS = FEW, SOME, MANY = tuple(SyntheticSetting(Synthetic(actions=actions)) for actions in (10, 20, 50))
POLICIES = ("CPG", "FPG", "FPG (released)")
CPG, _, FPG_RELEASED = on_model(PAPER, *POLICIES)
CPG_ORACLE, _, FPG_ORACLE = on_model(ORACLE, *POLICIES)


EXPERIMENT = RegretFigure(
    label="fig:multi_arm",
    title="Cumulative regret with 10, 20 and 50 actions",
    panels=(Panel("K = 10", FEW), Panel("K = 20", SOME), Panel("K = 50", MANY)),
    groups=(
        Group("paper's recipe", (*on_model(PAPER, *POLICIES), MAB)),
        Group("our recipe", (*on_model(OURS, *POLICIES), Player("Calibrated", OURS), MAB)),
        Group("oracle", (*on_model(ORACLE, *POLICIES), MAB)),
    ),
    claims=(
        Claim(
            "mab-is-slower-for-every-number-of-actions",
            "Offline variance and online bias",
            "MAB converges for every K, more slowly than policies on the oracle or the learned model.",
            lambda r: [
                *(rate_falls(r, setting, MAB) for setting in SETTINGS),
                *(
                    less_regret(r, setting, better, MAB, at=0.05)
                    for setting in SETTINGS
                    for better in (CPG, FPG_RELEASED, CPG_ORACLE, FPG_ORACLE)
                ),
            ],
        ),
        Claim(
            "oracle-converges-for-every-number-of-actions",
            "Offline variance and online bias",
            "Policies on the oracle always converge to the best action: late regret a round is below 5 % of the early.",
            lambda r: [rate_falls(r, setting, player) for setting in SETTINGS for player in (CPG_ORACLE, FPG_ORACLE)],
        ),
        Claim(
            "oracle-needs-longer-with-more-actions",
            "Offline variance and online bias",
            "With more actions the oracle needs longer, since the best one is harder to tell.",
            lambda r: [
                regret_grows(r, player, few, many, f"K = {many.actions} minus K = {few.actions}")
                for player in (CPG_ORACLE, FPG_ORACLE)
                for few, many in pairwise(SETTINGS)
            ],
        ),
        Claim(
            "learned-bias-grows-with-actions",
            "Offline variance and online bias",
            "The learned model's regret grows more with the number of actions than the oracle's: its bias grows.",
            lambda r: [
                grows_more(r, learned, oracle, (FEW, MANY), "K = 10 to K = 50")
                for learned, oracle in ((CPG, CPG_ORACLE), (FPG_RELEASED, FPG_ORACLE))
            ],
        ),
    ),
)
