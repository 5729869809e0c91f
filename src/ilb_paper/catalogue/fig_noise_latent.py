"""fig:noise-latent and fig:no-age: ADCB with latent noise of standard deviation 0.1, with Age and without."""

from ilb.environments import Adcb
from ilb.environments.adcb.world import REWARDS
from ilb_paper.catalogue.fig_adcb import ADCB_GROUPS, ADCB_REMARKS, CPG, FPG_RELEASED, FPG_TS_RELEASED
from ilb_paper.claims import Claim, grows_more, less_regret, regret_grows
from ilb_paper.experiment import AS_RELEASED, Panel, RegretFigure
from ilb_paper.learners import PAPER, VAE
from ilb_paper.lineups import MAB_CENTRED, RECURRENT, on_model
from ilb_paper.players import Player
from ilb_paper.settings import AdcbSetting

CALM = AdcbSetting(Adcb(rewards="released"))
PRINTED, RELEASED, AGELESS_PRINTED, AGELESS = (
    AdcbSetting(Adcb(0.1, rewards, context)) for context in ("nine", "without_age") for rewards in REWARDS
)

ON_ILB = (CPG, FPG_RELEASED, FPG_TS_RELEASED)
GROWTH = "noise 0.02 to 0.1"

WITH_AGE = RegretFigure(
    label="fig:noise-latent",
    title="Cumulative regret in ADCB with latent noise 0.1",
    panels=(Panel("rewards as printed", PRINTED), Panel("rewards as released", RELEASED)),
    groups=ADCB_GROUPS,
    remarks=ADCB_REMARKS,
    also=tuple((CALM, player) for player in (CPG, FPG_RELEASED, FPG_TS_RELEASED, MAB_CENTRED)),
    claims=(
        Claim(
            "latent-noise-hurts-ilb",
            "Modelling assumptions",
            "ILB-based policies are sensitive to latent noise: their regret grows with it.",
            lambda r: [regret_grows(r, player, CALM, RELEASED, "noise 0.1 minus 0.02") for player in ON_ILB],
        ),
        Claim(
            "latent-noise-hurts-cpg-most",
            "app:noise-latent",
            "Latent noise puts policies on latent models at a disadvantage, CPG especially.",
            lambda r: [
                grows_more(r, CPG, other, (CALM, RELEASED), GROWTH) for other in (FPG_RELEASED, FPG_TS_RELEASED)
            ],
        ),
        Claim(
            "adaptive-policies-are-more-robust",
            "Modelling assumptions",
            "FPG and FPG-TS overcome the bias of noisy latents to some extent: they end below CPG.",
            lambda r: [less_regret(r, RELEASED, better, CPG) for better in (FPG_RELEASED, FPG_TS_RELEASED)],
        ),
        Claim(
            "fpg-ts-is-most-robust-to-latent-noise",
            "Results, second paragraph",
            "FPG-TS is more robust than CPG and FPG to variance of the time-dependent latent variable: its regret "
            "grows less.",
            lambda r: [
                grows_more(r, worse, FPG_TS_RELEASED, (CALM, RELEASED), GROWTH) for worse in (CPG, FPG_RELEASED)
            ],
            contrast=lambda r: [less_regret(r, RELEASED, FPG_TS_RELEASED, worse) for worse in (CPG, FPG_RELEASED)],
        ),
        Claim(
            "mab-is-more-robust-to-latent-noise",
            "Modelling assumptions; app:noise-latent",
            "FPG and FPG-TS are not as robust to latent noise as MAB, which is unaffected: their regret grows more.",
            lambda r: [
                grows_more(r, player, MAB_CENTRED, (CALM, RELEASED), GROWTH)
                for player in (FPG_RELEASED, FPG_TS_RELEASED)
            ],
            by_construction="MAB meets the same patients and rewards in both, and its prior is that of the same logged "
            "rewards, so that its regret is the same to the last digit. What is left is the growth of FPG and FPG-TS "
            "alone, which latent-noise-hurts-ilb counts.",
        ),
        Claim(
            "mab-wins-in-the-end-under-latent-noise",
            "When is online learning necessary?",
            "When latent noise grows, MAB becomes preferable to the other algorithms in the long run.",
            lambda r: [
                less_regret(r, RELEASED, MAB_CENTRED, worse)
                for worse in (*ON_ILB, *on_model(VAE, *AS_RELEASED), RECURRENT)
            ],
        ),
        Claim(
            "vae-beats-ilb-under-latent-noise",
            "app:noise-latent",
            "With the Age column the VAE does better online than the identifiable model.",
            lambda r: [less_regret(r, RELEASED, Player(policy, VAE), Player(policy, PAPER)) for policy in AS_RELEASED],
        ),
    ),
)

WITHOUT_AGE = RegretFigure(
    label="fig:no-age",
    title="Cumulative regret in ADCB with latent noise 0.1, without Age",
    panels=(Panel("rewards as printed", AGELESS_PRINTED), Panel("rewards as released", AGELESS)),
    groups=ADCB_GROUPS,
    remarks=ADCB_REMARKS,
    also=tuple((RELEASED, player) for player in ON_ILB),
    claims=(
        Claim(
            "without-age-ilb-recovers",
            "app:noise-latent",
            "Without Age the identifiable model's policies improve considerably.",
            lambda r: [regret_grows(r, player, AGELESS, RELEASED, "with Age minus without") for player in ON_ILB],
            remark="Our recipe keeps the contexts beside its encoding (WithContexts) and does not fall to Age.",
        ),
    ),
)
