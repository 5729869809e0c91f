"""fig:emission_noise: regret when contexts are seen through noise of standard deviation 0.25, 0.5 and 1."""

from ilb.environments import ContextNoise
from ilb_paper.claims import Claim, Comparison, grows_more, less_regret, regret_grows
from ilb_paper.experiment import AS_RELEASED, Group, Panel, RegretFigure
from ilb_paper.learners import PAPER, VAE
from ilb_paper.lineups import MAB, ON_ORACLE, ON_OURS, ON_PAPER, ON_VAE, RECURRENT, on_model
from ilb_paper.players import ORACLE, Player
from ilb_paper.results import Results
from ilb_paper.settings import SyntheticSetting

LOW, MIDDLE, HIGH = (SyntheticSetting(always=(ContextNoise(std),)) for std in (0.25, 0.5, 1.0))
CPG, FPG, FPG_RELEASED, FPG_TS, FPG_TS_RELEASED = on_model(PAPER)

LEVELS = (LOW, MIDDLE, HIGH)


def _overtakes(results: Results, better: Player, worse: Player) -> list[Comparison]:
    """Ends below at the strongest noise, and grows less with noise."""
    return [
        less_regret(results, HIGH, better, worse),
        grows_more(results, worse, better, (LOW, HIGH), "noise 0.25 to 1"),
    ]


EXPERIMENT = RegretFigure(
    label="fig:emission_noise",
    title="Cumulative regret with noise on the contexts",
    panels=(Panel("noise std 0.25", LOW), Panel("noise std 0.5", MIDDLE), Panel("noise std 1", HIGH)),
    groups=(Group(ON_PAPER.title, (*ON_PAPER.players, RECURRENT)), ON_OURS, ON_VAE, ON_ORACLE),
    claims=(
        Claim(
            "fpg-ts-wins-as-noise-grows",
            "Results, second paragraph",
            "With growing noise FPG-TS comes to beat FPG.",
            lambda r: _overtakes(r, FPG_TS_RELEASED, FPG_RELEASED),
            contrast=lambda r: _overtakes(r, FPG_TS, FPG),
        ),
        Claim(
            "cpg-is-biased-under-noise",
            "Results, second paragraph",
            "CPG is biased throughout: it ends above FPG and FPG-TS at every noise level.",
            lambda r: [
                less_regret(r, setting, better, CPG) for setting in LEVELS for better in (FPG_RELEASED, FPG_TS_RELEASED)
            ],
            contrast=lambda r: [less_regret(r, setting, better, CPG) for setting in LEVELS for better in (FPG, FPG_TS)],
        ),
        Claim(
            "oracle-degrades-under-noise",
            "app:emission_noise",
            "The oracle, which inverts the emission without knowing of the noise, gets worse and worse.",
            lambda r: [
                regret_grows(r, player, less, more, says)
                for player in on_model(ORACLE, *AS_RELEASED)
                for less, more, says in ((LOW, MIDDLE, "noise 0.5 minus 0.25"), (MIDDLE, HIGH, "noise 1 minus 0.5"))
            ],
        ),
        Claim(
            "fpg-adapts-better-than-cpg",
            "app:emission_noise",
            "FPG, which uses rewards, adapts to growing noise better than CPG, on the ILB and on the VAE model.",
            lambda r: [
                comparison
                for model in (PAPER, VAE)
                for comparison in _overtakes(r, Player("FPG (released)", model), Player("CPG", model))
            ],
            contrast=lambda r: [
                less_regret(r, HIGH, Player("FPG", model), Player("CPG", model)) for model in (PAPER, VAE)
            ],
        ),
        Claim(
            "exploration-pays-under-noise",
            "app:emission_noise",
            "Under strong noise FPG-TS beats both greedy algorithms.",
            lambda r: [
                less_regret(r, HIGH, Player("FPG-TS (released)", model), Player(greedy, model))
                for model in (PAPER, VAE)
                for greedy in ("CPG", "FPG (released)")
            ],
            contrast=lambda r: [
                less_regret(r, HIGH, Player("FPG-TS", model), Player(greedy, model))
                for model in (PAPER, VAE)
                for greedy in ("CPG", "FPG")
            ],
        ),
        Claim(
            "vae-beats-ilb-under-noise",
            "app:emission_noise",
            "Among learned models the VAE does better than the identifiable one when contexts are noisy.",
            lambda r: [
                less_regret(r, setting, Player(policy, VAE), Player(policy, PAPER))
                for setting in LEVELS
                for policy in AS_RELEASED
            ],
            contrast=lambda r: [less_regret(r, setting, Player("FPG", VAE), FPG) for setting in LEVELS],
        ),
        Claim(
            "regression-suffers-under-noise",
            "app:emission_noise",
            "The regression is substantially biased: it ends with more than twice the regret of FPG on the ILB model.",
            lambda r: [less_regret(r, setting, FPG_RELEASED, RECURRENT, times=2) for setting in LEVELS],
            contrast=lambda r: [less_regret(r, setting, MAB, RECURRENT) for setting in LEVELS],
        ),
    ),
)
