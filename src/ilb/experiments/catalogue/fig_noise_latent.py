"""fig:noise-latent: ADCB with latent noise of standard deviation 0.1 instead of 0.02."""

from ilb.experiments.catalogue.fig_adcb import ADCB_GROUPS, ADCB_REMARKS, CPG, FPG_RELEASED, FPG_TS_RELEASED
from ilb.experiments.claims import Claim, less_regret, no_worse_than, regret_grows
from ilb.experiments.experiment import Panel, RegretFigure
from ilb.experiments.groups import MAB_CENTRED
from ilb.experiments.learners import PAPER, VAE
from ilb.experiments.players import Player
from ilb.experiments.settings import Adcb

CALM = Adcb(rewards="released")
PRINTED, RELEASED = Adcb(latent_noise_std=0.1), Adcb(latent_noise_std=0.1, rewards="released")

EXPERIMENT = RegretFigure(
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
            lambda r: [
                regret_grows(r, player, CALM, RELEASED, "noise 0.1 minus 0.02") for player in (CPG, FPG_RELEASED)
            ],
        ),
        Claim(
            "adaptive-policies-are-more-robust",
            "Modelling assumptions",
            "FPG and FPG-TS overcome the bias of noisy latents better than CPG.",
            lambda r: [less_regret(r, RELEASED, better, CPG) for better in (FPG_RELEASED, FPG_TS_RELEASED)],
        ),
        Claim(
            "fpg-ts-is-most-robust-to-latent-noise",
            "Results, second paragraph",
            "FPG-TS is more robust than CPG and FPG to variance of the time-dependent latent variable.",
            lambda r: [less_regret(r, RELEASED, FPG_TS_RELEASED, worse) for worse in (CPG, FPG_RELEASED)],
        ),
        Claim(
            "mab-is-unaffected-by-latent-noise",
            "app:noise-latent",
            "MAB, which ignores contexts, is unaffected by latent noise.",
            lambda r: [
                no_worse_than(regret_grows(r, MAB_CENTRED, one, other, says), 1e-6)
                for one, other, says in (
                    (CALM, RELEASED, "noise 0.1 minus 0.02"),
                    (RELEASED, CALM, "noise 0.02 minus 0.1"),
                )
            ],
            remark="MAB meets the same patients and rewards in both, and its prior is that of the same logged rewards, "
            "so the difference is exactly zero.",
        ),
        Claim(
            "mab-wins-in-the-end-under-latent-noise",
            "When is online learning necessary?",
            "When latent noise grows, MAB becomes preferable to CPG, FPG and FPG-TS (as released) on the ILB model in "
            "the long run.",
            lambda r: [less_regret(r, RELEASED, MAB_CENTRED, worse) for worse in (CPG, FPG_RELEASED, FPG_TS_RELEASED)],
        ),
        Claim(
            "vae-beats-ilb-under-latent-noise",
            "app:noise-latent",
            "With the Age column the VAE does better online than the identifiable model.",
            lambda r: [less_regret(r, RELEASED, Player("CPG", VAE), Player("CPG", PAPER))],
        ),
    ),
)
