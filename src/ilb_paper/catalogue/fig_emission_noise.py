"""tab:emission_noise and fig:emission_noise: contexts seen through noise of standard deviation 0.25, 0.5 and 1."""

from ilb.environments import ContextNoise
from ilb_paper.catalogue.tables import EMISSION_NOISE, emission_noise_rows
from ilb_paper.claims import (
    Claim,
    Comparison,
    Evidence,
    better_model,
    better_policy,
    better_score,
    each,
    grows_more,
    less_regret,
    regret_grows,
    together,
)
from ilb_paper.experiment import Panel, RegretFigure, ScoreTable
from ilb_paper.learners import PAPER, REGRESSION, VAE
from ilb_paper.players import (
    AS_RELEASED,
    MAB,
    ON_ORACLE,
    ON_OURS,
    ON_PAPER,
    ON_VAE,
    ORACLE,
    RECURRENT,
    Group,
    Player,
    on_model,
)
from ilb_paper.results import Results
from ilb_paper.settings import SyntheticSetting

LEVELS = LOW, MIDDLE, HIGH = [SyntheticSetting(always=(ContextNoise(std),)) for std in EMISSION_NOISE]
STEPS = ((LOW, MIDDLE, "noise 0.5 minus 0.25"), (MIDDLE, HIGH, "noise 1 minus 0.5"))
METRICS = ["reward_r2", "best_action"]
CPG, FPG, FPG_RELEASED, FPG_TS, FPG_TS_RELEASED = on_model(PAPER)


def _lost_to_noise(results: Results, learner: str, metric: str) -> Comparison:
    says = f"{metric} of {results.learner(learner)}, noise 0.25 minus 1"
    return better_score(results, metric, (LOW, learner), (HIGH, learner), says)


def _vae_fits_better(results: Results, std: float, metric: str) -> Comparison:
    level = SyntheticSetting(always=(ContextNoise(std),))
    says = f"{metric} of VAE minus LVM, noise {std:g}"
    return better_score(results, metric, (level, VAE), (level, PAPER), says)


def _overtakes(better: Player, worse: Player) -> Evidence:
    """Ends below at the strongest noise, and grows less with noise."""
    return together(
        each(less_regret, HIGH, better, worse), each(grows_more, worse, better, (LOW, HIGH), "noise 0.25 to 1")
    )


TABLE = ScoreTable(
    label="tab:emission_noise",
    title="Fits with noise on the contexts, L = 2, T_o = 200",
    header=("model", "noise std"),
    rows=emission_noise_rows(),
    claims=(
        Claim(
            "noise-hurts-the-fits",
            "Results, second paragraph; app:emission_noise",
            "Noise on the contexts makes the fits of the identifiable model and of the regression worse.",
            each(_lost_to_noise, [PAPER, REGRESSION], METRICS),
            contrast=each(_lost_to_noise, VAE, METRICS),
        ),
        Claim(
            "vae-fits-noisy-contexts-better",
            "app:emission_noise",
            "When contexts are noisy the VAE fits better than the identifiable model.",
            each(_vae_fits_better, [*EMISSION_NOISE], METRICS),
        ),
    ),
)

FIGURE = RegretFigure(
    label="fig:emission_noise",
    title="Cumulative regret with noise on the contexts",
    panels=(Panel("noise std 0.25", LOW), Panel("noise std 0.5", MIDDLE), Panel("noise std 1", HIGH)),
    groups=(Group(ON_PAPER.title, (*ON_PAPER.players, RECURRENT)), ON_OURS, ON_VAE, ON_ORACLE),
    claims=(
        Claim(
            "fpg-ts-wins-as-noise-grows",
            "Results, second paragraph",
            "With growing noise FPG-TS comes to beat FPG.",
            _overtakes(FPG_TS_RELEASED, FPG_RELEASED),
            contrast=_overtakes(FPG_TS, FPG),
        ),
        Claim(
            "cpg-is-biased-under-noise",
            "Results, second paragraph",
            "CPG is biased throughout: it ends above FPG and FPG-TS at every noise level.",
            each(less_regret, LEVELS, [FPG_RELEASED, FPG_TS_RELEASED], CPG),
            contrast=each(less_regret, LEVELS, [FPG, FPG_TS], CPG),
        ),
        Claim(
            "oracle-degrades-under-noise",
            "app:emission_noise",
            "The oracle, which inverts the emission without knowing of the noise, gets worse and worse.",
            lambda r: [regret_grows(r, player, *step) for player in on_model(ORACLE, *AS_RELEASED) for step in STEPS],
        ),
        Claim(
            "fpg-adapts-better-than-cpg",
            "app:emission_noise",
            "FPG, which uses rewards, adapts to growing noise better than CPG, on the ILB and on the VAE model.",
            together(*(_overtakes(Player("FPG (released)", model), Player("CPG", model)) for model in (PAPER, VAE))),
            contrast=each(better_policy, HIGH, [PAPER, VAE], "FPG", "CPG"),
        ),
        Claim(
            "exploration-pays-under-noise",
            "app:emission_noise",
            "Under strong noise FPG-TS beats both greedy algorithms.",
            each(better_policy, HIGH, [PAPER, VAE], "FPG-TS (released)", ["CPG", "FPG (released)"]),
            contrast=each(better_policy, HIGH, [PAPER, VAE], "FPG-TS", ["CPG", "FPG"]),
        ),
        Claim(
            "vae-beats-ilb-under-noise",
            "app:emission_noise",
            "Among learned models the VAE does better than the identifiable one when contexts are noisy.",
            each(better_model, LEVELS, [*AS_RELEASED], VAE, PAPER),
            contrast=each(better_model, LEVELS, "FPG", VAE, PAPER),
        ),
        Claim(
            "regression-suffers-under-noise",
            "app:emission_noise",
            "The regression is substantially biased: it ends with more than twice the regret of FPG on the ILB model.",
            each(less_regret, LEVELS, FPG_RELEASED, RECURRENT, times=2.0),
            contrast=each(less_regret, LEVELS, MAB, RECURRENT),
        ),
    ),
)
