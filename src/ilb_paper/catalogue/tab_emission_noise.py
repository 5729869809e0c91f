"""tab:emission_noise: fits when contexts are seen through noise."""

from ilb.environments import ContextNoise
from ilb_paper.catalogue.fit_rows import emission_noise_rows
from ilb_paper.claims import Claim, Comparison, better_score
from ilb_paper.experiment import ScoreTable
from ilb_paper.learners import PAPER, REGRESSION, VAE
from ilb_paper.results import Results
from ilb_paper.settings import SyntheticSetting

NOISES = (0.25, 0.5, 1.0)
LEVELS = tuple(SyntheticSetting(always=(ContextNoise(std),)) for std in NOISES)
METRICS = ("reward_r2", "best_action")


def _lost_to_noise(results: Results, metric: str, learner: str) -> Comparison:
    says = f"{metric} of {learner}, noise 0.25 minus 1"
    return better_score(results, metric, (LEVELS[0], learner), (LEVELS[-1], learner), says)


EXPERIMENT = ScoreTable(
    label="tab:emission_noise",
    title="Fits with noise on the contexts, L = 2, T_o = 200",
    header=("model", "noise std"),
    rows=emission_noise_rows(),
    claims=(
        Claim(
            "noise-hurts-the-fits",
            "Results, second paragraph; app:emission_noise",
            "Noise on the contexts makes the fits of the identifiable model and of the regression worse.",
            lambda r: [_lost_to_noise(r, metric, learner) for learner in (PAPER, REGRESSION) for metric in METRICS],
            contrast=lambda r: [_lost_to_noise(r, metric, VAE) for metric in METRICS],
        ),
        Claim(
            "vae-fits-noisy-contexts-better",
            "app:emission_noise",
            "When contexts are noisy the VAE fits better than the identifiable model.",
            lambda r: [
                better_score(
                    r,
                    metric,
                    (level, VAE),
                    (level, PAPER),
                    f"{metric} of VAE minus LVM, noise {std:g}",
                )
                for std, level in zip(NOISES, LEVELS, strict=True)
                for metric in METRICS
            ],
        ),
    ),
)
