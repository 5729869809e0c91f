"""fig:noise-reward: reward noise of standard deviation 0.5, 1 and 2."""

from ilb.environments import Synthetic
from ilb_paper.claims import Claim, grows_more, less_regret, no_worse_than, regret_grows
from ilb_paper.experiment import Group, Panel, RegretFigure
from ilb_paper.learners import PAPER
from ilb_paper.lineups import MAB, ON_OURS, ON_PAPER, RECURRENT, on_model
from ilb_paper.players import ORACLE, Player
from ilb_paper.settings import SyntheticSetting

LOW, MIDDLE, HIGH = (SyntheticSetting(Synthetic(reward_std=std)) for std in (0.5, 1.0, 2.0))
CPG, FPG, FPG_RELEASED, *_ = on_model(PAPER)
CPG_ORACLE = Player("CPG", ORACLE)
GROWTH = "reward std 0.5 to 2"

EXPERIMENT = RegretFigure(
    label="fig:noise-reward",
    title="Cumulative regret with noisier rewards",
    panels=(Panel("reward std 0.5", LOW), Panel("reward std 1", MIDDLE), Panel("reward std 2", HIGH)),
    groups=(Group(ON_PAPER.title, (*ON_PAPER.players, RECURRENT)), ON_OURS),
    also=tuple((setting, CPG_ORACLE) for setting in (LOW, MIDDLE, HIGH)),
    claims=(
        Claim(
            "mab-suffers-from-reward-noise",
            "app:noise-reward",
            "MAB relies on rewards alone and takes longer to converge as they get noisier.",
            lambda r: [
                regret_grows(r, MAB, LOW, MIDDLE, "reward std 1 minus 0.5", at=0.25),
                regret_grows(r, MAB, MIDDLE, HIGH, "reward std 2 minus 1", at=0.25),
            ],
        ),
        Claim(
            "fpg-is-robust-to-reward-noise",
            "app:noise-reward",
            "FPG is robust to reward noise, compared with MAB: its regret grows less.",
            lambda r: [grows_more(r, MAB, FPG_RELEASED, (LOW, HIGH), GROWTH, at=at) for at in (0.25, 1.0)],
            remark="As printed, one reward weighs as much as all contexts together.",
            contrast=lambda r: [grows_more(r, MAB, FPG, (LOW, HIGH), GROWTH, at=at) for at in (0.25, 1.0)],
        ),
        Claim(
            "fpg-approaches-cpg-with-reward-noise",
            "app:noise-reward",
            "With noisier rewards FPG approaches CPG: from below, its advantage shrinks.",
            lambda r: [
                grows_more(r, FPG_RELEASED, CPG, (LOW, HIGH), GROWTH),
                less_regret(r, HIGH, FPG_RELEASED, CPG),
            ],
        ),
        Claim(
            "cpg-does-not-depend-on-reward-noise",
            "thm:regret, below",
            "Neither the bound on CPG's regret nor, with the true model, the regret depends on the noise of rewards.",
            lambda r: [
                no_worse_than(regret_grows(r, CPG_ORACLE, *pair), 1e-6)
                for pair in ((LOW, HIGH, "reward std 2 minus 0.5"), (HIGH, LOW, "reward std 0.5 minus 2"))
            ],
            remark="With a learned model the noise of logged rewards is in the model.",
            by_construction="CPG does not look at rewards, and the true model does not depend on their noise: the two "
            "plays are the same to the last digit.",
            contrast=lambda r: [regret_grows(r, CPG, LOW, HIGH, "reward std 2 minus 0.5")],
        ),
    ),
)
