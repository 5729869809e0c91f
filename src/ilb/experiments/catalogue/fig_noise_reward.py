"""fig:noise-reward: reward noise of standard deviation 0.5, 1 and 2."""

from ilb.experiments.claims import Claim, grows_more, less_regret, regret_grows
from ilb.experiments.experiment import Group, Panel, RegretFigure
from ilb.experiments.groups import MAB, ON_OURS, ON_PAPER, RECURRENT, on_model
from ilb.experiments.learners import PAPER
from ilb.experiments.players import ORACLE, Player
from ilb.experiments.settings import Synthetic

LOW, MIDDLE, HIGH = (Synthetic(reward_std=std) for std in (0.5, 1.0, 2.0))
CPG, FPG, FPG_RELEASED, *_ = on_model(PAPER)
CPG_ORACLE = Player("CPG", ORACLE)

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
            "FPG (as released) stays robust: below MAB at every level of reward noise.",
            lambda r: [less_regret(r, setting, FPG_RELEASED, MAB) for setting in (LOW, MIDDLE, HIGH)],
            remark="With FPG as released; as printed, one reward weighs as much as all contexts together.",
        ),
        Claim(
            "fpg-approaches-cpg-with-reward-noise",
            "app:noise-reward",
            "With noisier rewards the advantage of FPG (as released) over CPG shrinks.",
            lambda r: [grows_more(r, FPG_RELEASED, CPG, (LOW, HIGH), "reward std 0.5 to 2")],
        ),
    ),
)
