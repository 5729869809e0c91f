"""fig:multi_arm: 10, 20 and 50 actions with the same number of logged rows."""

from ilb.experiments.claims import Claim, Comparison, compare, grows_more, less_regret, regret_grows
from ilb.experiments.experiment import Group, Panel, RegretFigure
from ilb.experiments.groups import MAB, on_model
from ilb.experiments.learners import OURS, PAPER
from ilb.experiments.players import ORACLE, Player
from ilb.experiments.results import Results
from ilb.experiments.settings import Synthetic

FEW, SOME, MANY = (Synthetic(actions=actions) for actions in (10, 20, 50))
POLICIES = ("CPG", "FPG", "FPG (released)")
CPG, _, FPG_RELEASED = on_model(PAPER, *POLICIES)
CPG_ORACLE, _, FPG_ORACLE = on_model(ORACLE, *POLICIES)


def _flattens(results: Results) -> list[Comparison]:
    """The oracles' regret a round in the second half is below a hundredth of that in the first 2 %."""
    found = []
    for setting in (FEW, SOME, MANY):
        for player in (CPG_ORACLE, FPG_ORACLE):
            early = results.regret_at(setting, player, 0.02) / 0.02
            late = (results.regret_at(setting, player, 1.0) - results.regret_at(setting, player, 0.5)) / 0.5
            says = f"K = {setting.actions}, {player}: 1 % of early regret a round minus late regret a round"
            found.append(compare(says, 0.01 * early - late, unit=results.size.horizon()))
    return found


EXPERIMENT = RegretFigure(
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
            "MAB converges more slowly than policies on the oracle or the learned model, for every K.",
            lambda r: [
                less_regret(r, setting, better, MAB, at=0.05)
                for setting in (FEW, SOME, MANY)
                for better in (CPG, FPG_RELEASED, CPG_ORACLE, FPG_ORACLE)
            ],
        ),
        Claim(
            "oracle-converges-for-every-number-of-actions",
            "Offline variance and online bias",
            "Policies on the oracle always converge to the best action.",
            _flattens,
        ),
        Claim(
            "oracle-needs-longer-with-more-actions",
            "Offline variance and online bias",
            "With more actions the oracle needs longer, since the best one is harder to tell.",
            lambda r: [regret_grows(r, CPG_ORACLE, FEW, MANY, "K = 50 minus K = 10")],
        ),
        Claim(
            "learned-bias-grows-with-actions",
            "Offline variance and online bias",
            "The learned model's regret grows more with the number of actions than the oracle's: its bias grows.",
            lambda r: [
                grows_more(r, learned, oracle, (FEW, MANY), "K = 10 to K = 50")
                for learned, oracle in ((CPG, CPG_ORACLE), (FPG_RELEASED, FPG_ORACLE))
            ],
        ),
    ),
)
