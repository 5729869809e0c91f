"""fig:ood and OOD-Plots-2: the mean of U moves at decision time, by a length, and as the released code moves it."""

from ilb.environments import Shift
from ilb_paper.claims import Claim, each, grows_more, less_regret, regret_grows, together
from ilb_paper.experiment import Panel, RegretFigure
from ilb_paper.learners import OURS, PAPER
from ilb_paper.players import CPG, FPG, FPG_RELEASED, MAB, ON_DEFAULTS, ORACLE, RECURRENT, Group, Player, on_model
from ilb_paper.settings import SyntheticSetting

LENGTHS, AMOUNTS = (1.0, 2.0, 4.0), (0.5, 1.0, 2.0, 4.0)
SHIFTS = [SyntheticSetting(playing=(Shift(length),)) for length in LENGTHS]
BY_COORDINATE = [SyntheticSetting(playing=(Shift(amount, "coordinate"),)) for amount in AMOUNTS]
"""The released plots call the first three 1, 2 and 4."""
UNMOVED = SyntheticSetting()
GROUPS = (
    Group("paper's recipe", (*on_model(PAPER), RECURRENT, MAB)),
    Group("our recipe", (*on_model(OURS), Player("Calibrated", OURS), Player("CPG", ORACLE), MAB)),
    ON_DEFAULTS,
)

LENGTH = RegretFigure(
    label="fig:ood",
    title="Cumulative regret out of distribution: the mean of U moved by a length",
    panels=tuple(Panel(f"Δz = {length:g}", setting) for length, setting in zip(LENGTHS, SHIFTS, strict=True)),
    groups=GROUPS,
    also=tuple((UNMOVED, player) for player in (CPG, FPG_RELEASED, RECURRENT)),
    claims=(
        Claim(
            "fpg-beats-cpg-out-of-distribution",
            "Results, second paragraph; app:ood",
            "FPG, which also learns from rewards, does better than CPG out of distribution.",
            each(less_regret, SHIFTS, FPG_RELEASED, CPG),
            remark="As printed, the mean encoding weighs no more than one reward, and FPG has more regret than CPG "
            "wherever the model is good.",
            contrast=each(less_regret, SHIFTS, FPG, CPG),
        ),
        Claim(
            "lvm-is-more-robust-than-regression-to-shifts",
            "Results, third paragraph",
            "CPG and FPG on the latent model are more robust to shifts than the regression: their regret grows less.",
            lambda r: [
                grows_more(r, RECURRENT, better, (UNMOVED, setting), f"Δz = 0 to {length:g}")
                for length, setting in zip(LENGTHS, SHIFTS, strict=True)
                for better in (CPG, FPG_RELEASED)
            ],
            contrast=each(less_regret, SHIFTS, [CPG, FPG_RELEASED], RECURRENT),
        ),
        Claim(
            "shift-adds-bias",
            "app:ood",
            "The bias of FPG, CPG and the regression grows with the shift.",
            each(regret_grows, [CPG, FPG_RELEASED, RECURRENT], SHIFTS[0], SHIFTS[2], "Δz = 4 minus 1"),
        ),
    ),
    remarks=(
        "A mean that moves by the length of 4 leaves some overlap: the standard deviation of U in that direction is 1. "
        "The figure below moves every coordinate.",
    ),
)

COORDINATES = RegretFigure(
    label="OOD-Plots-2",
    title="Cumulative regret out of distribution: every coordinate of the mean of U moved, as in the released code",
    panels=tuple(
        Panel(f"{x:g} in each coordinate", setting) for x, setting in zip(AMOUNTS, BY_COORDINATE, strict=True)
    ),
    groups=GROUPS,
    remarks=(
        "Far from the old mean, rewards are far from 0, where the prior N(0, 1) of MAB is: it stops to explore too "
        "early. 4 in each coordinate is a move by the length of 8.9, beyond any overlap.",
    ),
    claims=(
        Claim(
            "lvm-beats-regression-in-every-shift",
            "app:ood",
            "LVM-based policies outperform the regression in every case, and FPG generalises better than CPG.",
            together(
                each(less_regret, BY_COORDINATE, [CPG, FPG_RELEASED], RECURRENT),
                each(less_regret, BY_COORDINATE, FPG_RELEASED, CPG),
            ),
            contrast=each(less_regret, BY_COORDINATE, FPG, CPG),
        ),
    ),
)
