"""fig:ood: the mean of U moves at decision time by a vector of length 1, 2 and 4."""

from ilb_paper.claims import Claim, grows_more, less_regret, regret_grows
from ilb_paper.experiment import Group, Panel, RegretFigure
from ilb_paper.learners import OURS, PAPER
from ilb_paper.lineups import MAB, RECURRENT, on_model
from ilb_paper.players import ORACLE, Player
from ilb_paper.settings import Synthetic

SHIFTS = tuple(Synthetic(latent_shift=length) for length in (1.0, 2.0, 4.0))
UNMOVED = Synthetic()
CPG, FPG, FPG_RELEASED, *_ = on_model(PAPER)
GROUPS = (
    Group("paper's recipe", (*on_model(PAPER), RECURRENT, MAB)),
    Group("our recipe", (*on_model(OURS), Player("Calibrated", OURS), Player("CPG", ORACLE), MAB)),
)

EXPERIMENT = RegretFigure(
    label="fig:ood",
    title="Cumulative regret out of distribution: the mean of U moved by a length",
    panels=tuple(Panel(f"Δz = {setting.latent_shift:g}", setting) for setting in SHIFTS),
    groups=GROUPS,
    also=tuple((UNMOVED, player) for player in (CPG, FPG_RELEASED, RECURRENT)),
    claims=(
        Claim(
            "fpg-beats-cpg-out-of-distribution",
            "Results, second paragraph; app:ood",
            "FPG, which also learns from rewards, does better than CPG out of distribution.",
            lambda r: [less_regret(r, setting, FPG_RELEASED, CPG) for setting in SHIFTS],
            remark="As printed, the mean encoding weighs no more than one reward, and FPG has more regret than CPG "
            "wherever the model is good.",
            contrast=lambda r: [less_regret(r, setting, FPG, CPG) for setting in SHIFTS],
        ),
        Claim(
            "lvm-is-more-robust-than-regression-to-shifts",
            "Results, third paragraph",
            "CPG and FPG on the latent model are more robust to shifts than the regression: their regret grows less.",
            lambda r: [
                grows_more(r, RECURRENT, better, (UNMOVED, setting), f"Δz = 0 to {setting.latent_shift:g}")
                for setting in SHIFTS
                for better in (CPG, FPG_RELEASED)
            ],
            contrast=lambda r: [
                less_regret(r, setting, better, RECURRENT) for setting in SHIFTS for better in (CPG, FPG_RELEASED)
            ],
        ),
        Claim(
            "shift-adds-bias",
            "app:ood",
            "The bias of FPG, CPG and the regression grows with the shift.",
            lambda r: [
                regret_grows(r, player, SHIFTS[0], SHIFTS[2], "Δz = 4 minus 1")
                for player in (CPG, FPG_RELEASED, RECURRENT)
            ],
        ),
    ),
    remarks=(
        "A mean that moves by the length of 4 leaves some overlap: the standard deviation of U in that direction is 1. "
        "The figure below moves every coordinate.",
    ),
)
