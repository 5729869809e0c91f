"""fig:no-age: ADCB with latent noise 0.1 and without the Age column, which tells the patients apart."""

from ilb.experiments.catalogue.fig_adcb import ADCB_GROUPS, ADCB_REMARKS
from ilb.experiments.claims import Claim, regret_grows
from ilb.experiments.experiment import Panel, RegretFigure
from ilb.experiments.learners import PAPER
from ilb.experiments.players import Player
from ilb.experiments.settings import Adcb

WITH_AGE = Adcb(latent_noise_std=0.1, rewards="released")
PRINTED, RELEASED = (
    Adcb(latent_noise_std=0.1, rewards=rewards, context="without_age") for rewards in ("printed", "released")
)

EXPERIMENT = RegretFigure(
    label="fig:no-age",
    title="Cumulative regret in ADCB with latent noise 0.1, without Age",
    panels=(Panel("rewards as printed", PRINTED), Panel("rewards as released", RELEASED)),
    groups=ADCB_GROUPS,
    remarks=ADCB_REMARKS,
    also=((WITH_AGE, Player("CPG", PAPER)),),
    claims=(
        Claim(
            "without-age-ilb-recovers",
            "app:noise-latent",
            "Without Age the identifiable model's policies improve considerably.",
            lambda r: [regret_grows(r, Player("CPG", PAPER), RELEASED, WITH_AGE, "with Age minus without")],
            remark="Our recipe keeps the contexts beside its encoding (WithContexts) and does not fall to Age.",
        ),
    ),
)
