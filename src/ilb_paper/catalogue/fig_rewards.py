"""fig:noise-reward, fig:nonlinear_reward and fig:multi_arm: noisier rewards, rewards of a network, and more actions."""

from ilb.environments import Synthetic
from ilb_paper.claims import (
    Claim,
    Comparison,
    each,
    grows_more,
    less_regret,
    no_worse_than,
    rate_falls,
    regret_grows,
    together,
)
from ilb_paper.experiment import Panel, RegretFigure
from ilb_paper.learners import OURS, PAPER, VAE
from ilb_paper.players import CPG, FPG, FPG_RELEASED, MAB, ON_OURS, ON_PAPER, ORACLE, RECURRENT, Group, Player, on_model
from ilb_paper.results import Results
from ilb_paper.settings import SyntheticSetting

LOW, MIDDLE, HIGH = (SyntheticSetting(Synthetic(reward_std=std)) for std in (0.5, 1.0, 2.0))
CPG_ORACLE = Player("CPG", ORACLE)
GROWTH = ((LOW, HIGH), "reward std 0.5 to 2")

NOISE = RegretFigure(
    label="fig:noise-reward",
    title="Cumulative regret with noisier rewards",
    panels=(Panel("reward std 0.5", LOW), Panel("reward std 1", MIDDLE), Panel("reward std 2", HIGH)),
    groups=(Group(ON_PAPER.title, (*ON_PAPER.players, RECURRENT)), ON_OURS),
    also=tuple((setting, CPG_ORACLE) for setting in (LOW, MIDDLE, HIGH)),
    claims=(
        Claim(
            "mab-suffers-from-reward-noise",
            "app:noise-reward",
            "MAB relies on rewards alone and takes longer to converge as they get noisier.",
            together(
                each(regret_grows, MAB, LOW, MIDDLE, "reward std 1 minus 0.5", at=0.25),
                each(regret_grows, MAB, MIDDLE, HIGH, "reward std 2 minus 1", at=0.25),
            ),
        ),
        Claim(
            "fpg-is-robust-to-reward-noise",
            "app:noise-reward",
            "FPG is robust to reward noise, compared with MAB: its regret grows less.",
            each(grows_more, MAB, FPG_RELEASED, *GROWTH, [0.25, 1.0]),
            remark="As printed, one reward weighs as much as all contexts together.",
            contrast=each(grows_more, MAB, FPG, *GROWTH, [0.25, 1.0]),
        ),
        Claim(
            "fpg-approaches-cpg-with-reward-noise",
            "app:noise-reward",
            "With noisier rewards FPG approaches CPG: from below, its advantage shrinks.",
            together(each(grows_more, FPG_RELEASED, CPG, *GROWTH), each(less_regret, HIGH, FPG_RELEASED, CPG)),
        ),
        Claim(
            "cpg-does-not-depend-on-reward-noise",
            "thm:regret, below",
            "Neither the bound on CPG's regret nor, with the true model, the regret depends on the noise of rewards.",
            lambda r: [
                no_worse_than(regret_grows(r, CPG_ORACLE, *pair), 1e-6)
                for pair in ((LOW, HIGH, "reward std 2 minus 0.5"), (HIGH, LOW, "reward std 0.5 minus 2"))
            ],
            remark="With a learned model the noise of logged rewards is in the model.",
            by_construction="CPG does not look at rewards, and the true model does not depend on their noise: the two "
            "plays are the same to the last digit.",
            contrast=each(regret_grows, CPG, LOW, HIGH, "reward std 2 minus 0.5"),
        ),
    ),
)

LINEAR, LEAKY = (SyntheticSetting(Synthetic(reward=reward)) for reward in ("linear", "leaky"))
CPG_OURS, CPG_VAE = (Player("CPG", model) for model in (OURS, VAE))

NONLINEAR = RegretFigure(
    label="fig:nonlinear_reward",
    title="Cumulative regret with rewards that are not linear in the latent state",
    panels=(Panel("two-layer leaky-ReLU rewards", LEAKY),),
    also=((LINEAR, CPG), (LINEAR, CPG_VAE)),
    groups=(Group("", (CPG, CPG_OURS, CPG_VAE, CPG_ORACLE, RECURRENT, MAB)),),
    claims=(
        Claim(
            "cpg-beats-regression-on-nonlinear-rewards",
            "app:nonlinear_reward",
            "CPG on the identifiable model with a learned reward network does better than the regression.",
            each(less_regret, LEAKY, CPG, RECURRENT),
            remark="Most of it is the encoder: the contrasts are with our recipe, whose reward network also has a "
            "heavier weight decay.",
            contrast=each(less_regret, LEAKY, CPG_OURS, [RECURRENT, CPG]),
        ),
        Claim(
            "vae-comes-closer-on-nonlinear-rewards",
            "app:nonlinear_reward",
            "Against the linear case, CPG on the VAE comes closer to CPG on the identifiable model.",
            each(grows_more, CPG, CPG_VAE, (LINEAR, LEAKY), "from linear to nonlinear rewards"),
        ),
    ),
)

SETTINGS = FEW, SOME, MANY = [SyntheticSetting(Synthetic(actions=actions)) for actions in (10, 20, 50)]
POLICIES = ("CPG", "FPG", "FPG (released)")
ON_TRUTH = [*on_model(ORACLE, "CPG", "FPG (released)")]


def _needs_longer(results: Results, player: Player, settings: tuple[SyntheticSetting, SyntheticSetting]) -> Comparison:
    few, many = settings
    return regret_grows(results, player, few, many, f"K = {many.actions} minus K = {few.actions}")


ACTIONS = RegretFigure(
    label="fig:multi_arm",
    title="Cumulative regret with 10, 20 and 50 actions",
    panels=(Panel("K = 10", FEW), Panel("K = 20", SOME), Panel("K = 50", MANY)),
    groups=(
        Group("paper's recipe", (*on_model(PAPER, *POLICIES), MAB)),
        Group("our recipe", (*on_model(OURS, *POLICIES), Player("Calibrated", OURS), MAB)),
        Group("oracle", (*on_model(ORACLE, *POLICIES), MAB)),
    ),
    claims=(
        Claim(
            "mab-is-slower-for-every-number-of-actions",
            "Offline variance and online bias",
            "MAB converges for every K, more slowly than policies on the oracle or the learned model.",
            together(
                each(rate_falls, SETTINGS, MAB),
                each(less_regret, SETTINGS, [CPG, FPG_RELEASED, *ON_TRUTH], MAB, at=0.05),
            ),
        ),
        Claim(
            "oracle-converges-for-every-number-of-actions",
            "Offline variance and online bias",
            "Policies on the oracle always converge to the best action: late regret a round is below 5 % of the early.",
            each(rate_falls, SETTINGS, ON_TRUTH),
        ),
        Claim(
            "oracle-needs-longer-with-more-actions",
            "Offline variance and online bias",
            "With more actions the oracle needs longer, since the best one is harder to tell.",
            each(_needs_longer, ON_TRUTH, [(FEW, SOME), (SOME, MANY)]),
        ),
        Claim(
            "learned-bias-grows-with-actions",
            "Offline variance and online bias",
            "The learned model's regret grows more with the number of actions than the oracle's: its bias grows.",
            lambda r: [
                grows_more(r, learned, oracle, (FEW, MANY), "K = 10 to K = 50")
                for learned, oracle in zip((CPG, FPG_RELEASED), ON_TRUTH, strict=True)
            ],
        ),
    ),
)
