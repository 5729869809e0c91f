"""fig:synthetic_contextual: contexts that never change, where a contextual bandit has nothing to gain."""

from ilb_paper.claims import Claim, Comparison, compare, less_regret
from ilb_paper.experiment import Group, Panel, RegretFigure
from ilb_paper.players import Player
from ilb_paper.results import Results, common_worlds
from ilb_paper.toy import StationarySetting

TOY = StationarySetting()
HORIZON = 1000
MAB, COLD, WARM = Player("MAB"), Player("LinTS (released)"), Player("Warm LinTS (released)")
COLD_PLAIN, WARM_PLAIN = Player("LinTS"), Player("Warm LinTS")


def _ends_alike(results: Results) -> list[Comparison]:
    cold, warm, mab = common_worlds(
        *(
            results.regret_at(TOY, player, 1.0, HORIZON) - results.regret_at(TOY, player, 0.5, HORIZON)
            for player in (COLD, WARM, MAB)
        )
    )
    apart, between = cold - mab, cold - warm
    return [
        compare(f"late regret: (cold minus MAB) minus {factor:+d} (cold minus warm)", apart - factor * between)
        for factor in (2, -2)
    ]


EXPERIMENT = RegretFigure(
    label="fig:synthetic_contextual",
    title="Cumulative regret where contexts never change",
    panels=(Panel("K = 10, d = 5, 500 logged rows", TOY),),
    groups=(Group("", (MAB, COLD, WARM, COLD_PLAIN, WARM_PLAIN)),),
    horizon=HORIZON,
    claims=(
        Claim(
            "mab-beats-contextual-on-constant-contexts",
            "app:synthetic_stationary",
            "Thompson sampling without contexts beats linear Thompson sampling, warm-started or not, on constant "
            "contexts.",
            lambda r: [less_regret(r, TOY, MAB, worse, horizon=HORIZON) for worse in (COLD, WARM)],
            remark="With the widened draws of the released code. A warm-started sampler that draws from its plain "
            "posterior beats MAB (see the table): the disadvantage is that of the widening, not of the contexts. The "
            "cold one with ridge 1 hardly explores, because its prior is as narrow as the noise of rewards.",
        ),
        Claim(
            "warm-start-converges-faster",
            "app:synthetic_stationary",
            "The warm start converges faster than the cold start.",
            lambda r: [less_regret(r, TOY, WARM, COLD, at=0.2, horizon=HORIZON)],
            remark="In the first fifth; the curves cross later.",
            contrast=lambda r: [less_regret(r, TOY, WARM, COLD, horizon=HORIZON)],
        ),
        Claim(
            "both-contextual-samplers-end-alike",
            "app:synthetic_stationary",
            "Both contextual samplers end at a similar rate, which is far from that of the sampler without contexts.",
            _ends_alike,
        ),
    ),
)
