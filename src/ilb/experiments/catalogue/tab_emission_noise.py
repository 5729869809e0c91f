"""tab:emission_noise: fits when contexts are seen through noise."""

from ilb.experiments.catalogue.fit_rows import emission_noise_rows
from ilb.experiments.claims import Claim, better_score
from ilb.experiments.experiment import ScoreTable
from ilb.experiments.learners import PAPER, REGRESSION, VAE
from ilb.experiments.settings import Synthetic

LOW, HIGH = Synthetic(context_noise_std=0.25), Synthetic(context_noise_std=1.0)

EXPERIMENT = ScoreTable(
    label="tab:emission_noise",
    title="Fits with noise on the contexts, L = 2, T_o = 200",
    header=("model", "noise std"),
    rows=emission_noise_rows(),
    claims=(
        Claim(
            "noise-hurts-every-fit",
            "app:emission_noise",
            "Noise on the contexts makes the fits of the identifiable model and of the regression worse.",
            lambda r: [
                better_score(
                    r, "best_action", (LOW, learner), (HIGH, learner), f"% best of {learner}, noise 0.25 minus 1"
                )
                for learner in (PAPER, REGRESSION)
            ],
        ),
        Claim(
            "vae-fits-noisy-contexts-better",
            "app:emission_noise",
            "Under strong noise the VAE fits better than the identifiable model.",
            lambda r: [
                better_score(r, metric, (HIGH, VAE), (HIGH, PAPER), f"{metric} of VAE minus LVM, noise 1")
                for metric in ("reward_r2", "best_action")
            ],
        ),
    ),
)
