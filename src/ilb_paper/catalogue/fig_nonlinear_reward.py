"""fig:nonlinear_reward: rewards that are a two-layer network of z, learned by a network; CPG plays."""

from ilb.environments import Synthetic
from ilb_paper.claims import Claim, grows_more, less_regret
from ilb_paper.experiment import Group, Panel, RegretFigure
from ilb_paper.learners import OURS, PAPER, VAE
from ilb_paper.lineups import MAB, RECURRENT
from ilb_paper.players import ORACLE, Player
from ilb_paper.settings import SyntheticSetting

LINEAR, LEAKY = (SyntheticSetting(Synthetic(reward=reward)) for reward in ("linear", "leaky"))
CPG, CPG_OURS, CPG_VAE, CPG_ORACLE = (Player("CPG", model) for model in (PAPER, OURS, VAE, ORACLE))

EXPERIMENT = RegretFigure(
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
            lambda r: [less_regret(r, LEAKY, CPG, RECURRENT)],
            remark="Most of it is the encoder: the contrasts are with our recipe, whose reward network also has a "
            "heavier weight decay.",
            contrast=lambda r: [less_regret(r, LEAKY, CPG_OURS, RECURRENT), less_regret(r, LEAKY, CPG_OURS, CPG)],
        ),
        Claim(
            "vae-comes-closer-on-nonlinear-rewards",
            "app:nonlinear_reward",
            "Against the linear case, CPG on the VAE comes closer to CPG on the identifiable model.",
            lambda r: [grows_more(r, CPG, CPG_VAE, (LINEAR, LEAKY), "from linear to nonlinear rewards")],
        ),
    ),
)
