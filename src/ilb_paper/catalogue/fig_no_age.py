"""fig:no-age: ADCB with latent noise 0.1 and without the Age column, which tells the patients apart."""

from ilb_paper.catalogue.fig_adcb import ADCB_GROUPS, ADCB_REMARKS, CPG, FPG_RELEASED, FPG_TS_RELEASED
from ilb_paper.claims import Claim, regret_grows
from ilb_paper.experiment import Panel, RegretFigure
from ilb_paper.settings import Adcb

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
    also=tuple((WITH_AGE, player) for player in (CPG, FPG_RELEASED, FPG_TS_RELEASED)),
    claims=(
        Claim(
            "without-age-ilb-recovers",
            "app:noise-latent",
            "Without Age the identifiable model's policies improve considerably.",
            lambda r: [
                regret_grows(r, player, RELEASED, WITH_AGE, "with Age minus without")
                for player in (CPG, FPG_RELEASED, FPG_TS_RELEASED)
            ],
            remark="Our recipe keeps the contexts beside its encoding (WithContexts) and does not fall to Age.",
        ),
    ),
)
