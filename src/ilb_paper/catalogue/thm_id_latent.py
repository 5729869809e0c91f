"""thm:id_latent: the latent state is recovered up to an affine map, the better the more there is to learn from."""

from itertools import product

import numpy as np

from ilb.environments import Plan
from ilb.estimates import Estimate
from ilb_paper.claims import Claim, Comparison, compare_fits, each
from ilb_paper.experiment import Drawing, Exhibit
from ilb_paper.learners import OURS, PAPER, PAPER_WIDE, TRUE_ENCODER
from ilb_paper.plots import plot_sweeps
from ilb_paper.results import Results, common_worlds
from ilb_paper.settings import SyntheticSetting

STANDARD = SyntheticSetting()
LEARNERS = (PAPER, PAPER_WIDE, OURS, TRUE_ENCODER)
INSTANCES, LENGTHS, EFFORTS = (10, 25, 50, 100), (10, 25, 50, 200), (0.03, 0.1, 0.3, 1.0)
SWEEPS: dict[str, dict[float, tuple[SyntheticSetting, float]]] = {
    "instances I": {float(n): (SyntheticSetting(plan=Plan(instances=n)), 1.0) for n in INSTANCES},
    "rows of each instance T_o": {float(n): (SyntheticSetting(plan=Plan(length=n)), 1.0) for n in LENGTHS},
    "share of training steps": {effort: (STANDARD, effort) for effort in EFFORTS},
}
"""What there is to learn from, by the setting and the share of training."""


def _affine(results: Results, learner: str, setting: SyntheticSetting = STANDARD, effort: float = 1.0) -> np.ndarray:
    return results.scores(setting, learner, "affine_r2", effort)


def _draw(results: Results) -> Exhibit:
    sweeps = {
        name: {
            learner: {at: Estimate.of(_affine(results, learner, *place)) for at, place in places.items()}
            for learner in LEARNERS
        }
        for name, places in SWEEPS.items()
    }
    return Exhibit({"thm-id-latent": plot_sweeps(sweeps, label="R² of z after an affine map")})


def _improves(results: Results, learner: str, name: str) -> Comparison:
    """Compare what is missing to the true encoder; the noise of means and of the affine map is the same for both."""
    least, *_, most = SWEEPS[name].values()
    best_few, few, best_many, many = common_worlds(
        *(_affine(results, one, *place) for place, one in product((least, most), (TRUE_ENCODER, learner)))
    )
    says = f"affine R² that {results.learner(learner)} misses to the true encoder, least minus most {name}"
    return compare_fits(says, (best_few - few) - (best_many - many))


def _near(results: Results, learner: str, allowed: float) -> Comparison:
    best, learned = common_worlds(_affine(results, TRUE_ENCODER), _affine(results, learner))
    says = f"{allowed} minus the affine R² that {results.learner(learner)} misses to the true encoder"
    return compare_fits(says, allowed - (best - learned))


EXPERIMENT = Drawing(
    label="thm:id_latent",
    title="Identifiability: recovery of the latent state up to an affine map",
    plan=lambda results: [
        task
        for places in SWEEPS.values()
        for setting, effort in places.values()
        for learner in LEARNERS
        for task in results.fit_tasks(setting, learner, effort)
    ],
    draw=_draw,
    claims=(
        Claim(
            "recovery-improves-with-data",
            "thm:id_latent",
            "The encoder approaches the latent state, up to an affine map, as instances, rows and training grow.",
            each(_improves, PAPER, [*SWEEPS]),
        ),
        Claim(
            "latent-state-is-recovered",
            "thm:id_latent",
            "With the logs of the standard setting the latent state is recovered up to an affine map: within 0.01 of "
            "the R² of the true encoder.",
            each(_near, PAPER, 0.01),
            remark="The mark of 0.01 is ours; the contrast allows 0.05.",
            contrast=each(_near, PAPER, 0.05),
        ),
        Claim(
            "our-recovery-improves-with-data",
            "our recipe",
            "With our recipe, too, the encoder approaches the latent state as instances, rows and training grow.",
            each(_improves, OURS, [*SWEEPS]),
            ours=True,
        ),
        Claim(
            "our-recipe-recovers-the-latent-state",
            "our recipe",
            "With our recipe the latent state is recovered within 0.01 of the R² of the true encoder.",
            each(_near, OURS, 0.01),
            ours=True,
        ),
    ),
)
