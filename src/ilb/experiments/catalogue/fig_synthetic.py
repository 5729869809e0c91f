"""fig:synthetic: regret in the synthetic environment, every policy on every model, three kinds of latent noise."""

from ilb.experiments.claims import Claim, less_regret, small_bias
from ilb.experiments.experiment import Panel, RegretFigure
from ilb.experiments.groups import (
    BASELINES,
    LIN_UCB,
    MAB,
    MAB_PRIOR,
    ON_ORACLE,
    ON_OURS,
    ON_PAPER,
    ON_VAE,
    ONLINE,
    RECURRENT,
    on_model,
)
from ilb.experiments.learners import OURS, PAPER, PAPER_WIDE, REGRESSION, REGRESSION_SORTED, VAE
from ilb.experiments.players import ORACLE, Player
from ilb.experiments.settings import Synthetic

STANDARD = Synthetic()
CPG, FPG, FPG_RELEASED, FPG_TS, FPG_TS_RELEASED = on_model(PAPER)
RELEASED_WIDTH = on_model(PAPER_WIDE, "CPG", "FPG (released)")
RECURRENT_SORTED = Player(REGRESSION, REGRESSION_SORTED)

EXPERIMENT = RegretFigure(
    label="fig:synthetic",
    title="Cumulative regret in the synthetic environment",
    panels=(
        Panel("Gaussian (standard)", STANDARD),
        Panel("Laplace, scale 1", Synthetic(noise="laplace")),
        Panel("uniform, width 1", Synthetic(noise="uniform")),
    ),
    groups=(BASELINES, ON_PAPER, ON_OURS, ON_VAE, ON_ORACLE),
    also=tuple((STANDARD, player) for player in (*RELEASED_WIDTH, RECURRENT_SORTED)),
    claims=(
        Claim(
            "offline-beats-online-early",
            "Results, first paragraph",
            "Offline and hybrid policies converge much faster than the fully online learners.",
            lambda r: [
                less_regret(r, STANDARD, better, worse, at=0.05)
                for better in (CPG, FPG, FPG_TS_RELEASED, RECURRENT)
                for worse in ONLINE
            ],
        ),
        Claim(
            "oracle-is-best",
            "Results, first paragraph",
            "With the true model CPG and FPG (as released) do best of all that the paper plots.",
            lambda r: [
                less_regret(r, STANDARD, Player(policy, ORACLE), other)
                for policy in ("CPG", "FPG (released)")
                for other in (*on_model(PAPER), *on_model(VAE), RECURRENT, *ONLINE)
            ],
        ),
        Claim(
            "learned-bias-is-small",
            "Results, first paragraph",
            "CPG and FPG (as released) on the learned model lose little: less than a tenth of what separates the "
            "oracle from a bandit from scratch.",
            lambda r: [
                small_bias(r, STANDARD, Player(policy, model), Player(policy, ORACLE), MAB)
                for policy in ("CPG", "FPG (released)")
                for model in (PAPER, OURS)
            ],
            remark="With the paper's recipe the bias depends on the hidden width; see the table of fits.",
            contrast=lambda r: [
                small_bias(r, STANDARD, player, Player(player.policy, ORACLE), MAB) for player in RELEASED_WIDTH
            ],
        ),
        Claim(
            "ilb-beats-vae",
            "Results, first paragraph",
            "In the synthetic environment CPG and FPG do better on the identifiable model than on the VAE.",
            lambda r: [
                less_regret(r, STANDARD, Player(policy, PAPER), Player(policy, VAE))
                for policy in ("CPG", "FPG", "FPG (released)")
            ],
        ),
        Claim(
            "fpg-ts-is-slower-when-the-model-fits",
            "Results, second paragraph",
            "FPG-TS converges more slowly than CPG and FPG when the model fits, because it explores.",
            lambda r: [
                less_regret(r, STANDARD, greedy, sampled, at=0.05)
                for sampled in (FPG_TS, FPG_TS_RELEASED)
                for greedy in (CPG, FPG)
            ],
        ),
        Claim(
            "regression-is-more-biased-than-lvm",
            "Results, third paragraph",
            "The regression does poorly in the synthetic environment, with a larger bias than policies on the LVM.",
            lambda r: [less_regret(r, STANDARD, better, RECURRENT) for better in (CPG, FPG_RELEASED)],
        ),
        Claim(
            "mab-slower-than-every-latent-policy",
            "When is online learning necessary?",
            "MAB converges much more slowly than all methods on latent variable models, FPG-TS among them.",
            lambda r: [
                less_regret(r, STANDARD, Player(policy, model), MAB, at=0.05)
                for policy in ("CPG", "FPG", "FPG-TS", "FPG-TS (released)")
                for model in (PAPER, VAE)
            ],
        ),
        Claim(
            "mab-beats-vae-and-regression-in-the-end",
            "When is online learning necessary?",
            "MAB has no bias, which may make it preferable to the VAE and to the regression in the end.",
            lambda r: [less_regret(r, STANDARD, MAB, worse) for worse in (Player("CPG", VAE), RECURRENT)],
            remark="The released code records the actions of an instance in sorted order, so that its regression "
            "never sees some actions early in a history. Trained like that, ours is worse, too.",
            contrast=lambda r: [
                less_regret(r, STANDARD, MAB, RECURRENT_SORTED),
                less_regret(r, STANDARD, RECURRENT, RECURRENT_SORTED),
            ],
        ),
        Claim(
            "prior-helps-mab",
            "fig:synthetic",
            "MAB started from a one-shot prediction of the model loses less than MAB from scratch.",
            lambda r: [less_regret(r, STANDARD, MAB_PRIOR, MAB)],
        ),
        Claim(
            "contextual-bandit-is-no-help",
            "Results, first paragraph; app:synthetic_stationary",
            "A contextual bandit on raw contexts does no better than the bandit without contexts.",
            lambda r: [less_regret(r, STANDARD, MAB, LIN_UCB)],
        ),
    ),
)
