"""fig:synthetic: regret in the synthetic environment, every policy on every model, three kinds of latent noise."""

from ilb.environments import Synthetic
from ilb_paper.claims import Claim, Comparison, less_regret, rate_falls, small_bias
from ilb_paper.experiment import AS_RELEASED, Panel, RegretFigure
from ilb_paper.learners import OURS, PAPER, REGRESSION, REGRESSION_SORTED, VAE
from ilb_paper.lineups import (
    BASELINES,
    MAB,
    ON_ORACLE,
    ON_OURS,
    ON_PAPER,
    ON_VAE,
    ONLINE,
    RECURRENT,
    on_model,
)
from ilb_paper.players import ORACLE, Player
from ilb_paper.results import Results
from ilb_paper.settings import SyntheticSetting

STANDARD = SyntheticSetting()
CPG, FPG, FPG_RELEASED, FPG_TS, FPG_TS_RELEASED = on_model(PAPER)
RECURRENT_SORTED = Player(REGRESSION, REGRESSION_SORTED)

ON_LATENT_MODELS = (*on_model(PAPER, *AS_RELEASED), *on_model(VAE, *AS_RELEASED))
PANELS = (
    Panel("Gaussian (standard)", STANDARD),
    Panel("Laplace, scale 1", SyntheticSetting(Synthetic(noise="laplace"))),
    Panel("uniform, width 1", SyntheticSetting(Synthetic(noise="uniform"))),
)


def _better_than_vae(results: Results, policy: str) -> Comparison:
    return less_regret(results, STANDARD, Player(policy, PAPER), Player(policy, VAE))


EXPERIMENT = RegretFigure(
    label="fig:synthetic",
    title="Cumulative regret in the synthetic environment",
    panels=PANELS,
    groups=(BASELINES, ON_PAPER, ON_OURS, ON_VAE, ON_ORACLE),
    also=((STANDARD, RECURRENT_SORTED),),
    remarks=(
        "Claims speak of FPG and FPG-TS as released, which the paper's figures were made with; the same as printed "
        "stands below for contrast.",
    ),
    claims=(
        Claim(
            "offline-beats-online-early",
            "Results, first paragraph",
            "Offline and hybrid policies converge substantially faster than the fully online learners: at round 100 "
            "they have less than half of the regret.",
            lambda r: [
                less_regret(r, STANDARD, better, worse, at=0.05, times=2)
                for better in (CPG, FPG_RELEASED, FPG_TS_RELEASED, RECURRENT)
                for worse in ONLINE
            ],
            contrast=lambda r: [
                less_regret(r, STANDARD, better, worse, at=0.05, times=2)
                for better in (FPG, FPG_TS)
                for worse in ONLINE
            ],
        ),
        Claim(
            "oracle-is-best",
            "Results, first paragraph",
            "Policies on the true model do better than all others.",
            lambda r: [
                less_regret(r, STANDARD, Player(policy, ORACLE), other)
                for policy in AS_RELEASED
                for other in (*on_model(PAPER, *AS_RELEASED), *on_model(VAE, *AS_RELEASED), RECURRENT, *ONLINE)
            ],
            contrast=lambda r: [
                less_regret(r, STANDARD, Player(policy, ORACLE), Player(policy, model))
                for policy in ("FPG", "FPG-TS")
                for model in (PAPER, VAE)
            ],
        ),
        Claim(
            "learned-bias-is-small",
            "Results, first paragraph",
            "CPG and FPG on the learned model incur a very small bias: less than a tenth of what separates the oracle "
            "from a bandit from scratch.",
            lambda r: [
                small_bias(r, STANDARD, Player(policy, PAPER), Player(policy, ORACLE), MAB)
                for policy in ("CPG", "FPG (released)")
            ],
            remark="With the paper's recipe the bias depends on the hidden width; see the table of fits. The contrasts "
            "are with our recipe.",
            contrast=lambda r: [
                small_bias(r, STANDARD, Player(policy, OURS), Player(policy, ORACLE), MAB)
                for policy in ("CPG", "FPG (released)")
            ],
        ),
        Claim(
            "ilb-beats-vae",
            "Results, first paragraph",
            "In the synthetic environment CPG and FPG do better on the identifiable model than on the VAE.",
            lambda r: [_better_than_vae(r, policy) for policy in ("CPG", "FPG (released)")],
            contrast=lambda r: [_better_than_vae(r, "FPG")],
        ),
        Claim(
            "fpg-ts-is-slower-when-the-model-fits",
            "Results, second paragraph",
            "FPG-TS converges more slowly than CPG and FPG, because it explores.",
            lambda r: [less_regret(r, STANDARD, greedy, FPG_TS_RELEASED, at=0.05) for greedy in (CPG, FPG_RELEASED)],
            contrast=lambda r: [less_regret(r, STANDARD, greedy, FPG_TS, at=0.05) for greedy in (CPG, FPG)],
        ),
        Claim(
            "regression-is-more-biased-than-lvm",
            "Results, third paragraph",
            "The regression does poorly in the synthetic environment, with a larger bias than the policies on latent "
            "variable models.",
            lambda r: [less_regret(r, STANDARD, better, RECURRENT) for better in ON_LATENT_MODELS],
            remark="Ours is better than the paper's: it is trained on actions in random order. The contrasts are with "
            "one that is trained on sorted actions, as the released code records them.",
            contrast=lambda r: [less_regret(r, STANDARD, better, RECURRENT_SORTED) for better in ON_LATENT_MODELS],
        ),
        Claim(
            "mab-gets-low-regret-in-the-end",
            "When is online learning necessary?",
            "MAB consistently gets to low regret in the end: late regret a round is below 5 % of the early one.",
            lambda r: [rate_falls(r, STANDARD, MAB)],
            by_construction="Rewards depend on z and not on its noise, so that MAB, which sees nothing else, plays the "
            "very same games in all three panels, and in fig:multi_arm with K = 20, where "
            "mab-is-slower-for-every-number-of-actions counts them.",
        ),
        Claim(
            "mab-slower-than-every-latent-policy",
            "When is online learning necessary?",
            "MAB converges substantially more slowly than all methods on latent variable models, FPG-TS among them: at "
            "round 100 it has more than twice the regret.",
            lambda r: [less_regret(r, STANDARD, better, MAB, at=0.05, times=2) for better in ON_LATENT_MODELS],
            contrast=lambda r: [
                less_regret(r, STANDARD, Player(policy, model), MAB, at=0.05, times=2)
                for policy in ("FPG", "FPG-TS")
                for model in (PAPER, VAE)
            ],
        ),
        Claim(
            "mab-beats-vae-and-regression-in-the-end",
            "When is online learning necessary?",
            "MAB has no bias, which may make it preferable to the VAE and to the regression in the end.",
            lambda r: [less_regret(r, STANDARD, MAB, worse) for worse in (Player("CPG", VAE), RECURRENT)],
            remark="The released code records the actions of an instance in sorted order, so that its regression never "
            "sees some actions early in a history; the contrasts are with one trained like that.",
            contrast=lambda r: [
                less_regret(r, STANDARD, MAB, RECURRENT_SORTED),
                less_regret(r, STANDARD, RECURRENT, RECURRENT_SORTED),
            ],
        ),
    ),
)
