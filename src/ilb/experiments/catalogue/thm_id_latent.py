"""thm:id_latent: the latent state is recovered up to an affine map, the better the more there is to learn from."""

import numpy as np

from ilb.experiments.claims import Claim, Comparison
from ilb.experiments.experiment import Drawing, Exhibit
from ilb.experiments.learners import OURS
from ilb.experiments.results import Estimate, Results, mean_of
from ilb.experiments.settings import Synthetic
from ilb.experiments.tasks import FitTask
from ilb.plots.distributions import plot_sweeps

LEARNERS = (OURS,)
INSTANCES, LENGTHS, EFFORTS = (10, 25, 50, 100), (10, 25, 50, 200), (0.03, 0.1, 0.3, 1.0)
SWEEPS: dict[str, tuple[tuple[float, Synthetic, float], ...]] = {
    "instances I": tuple((float(count), Synthetic(instances=count), 1.0) for count in INSTANCES),
    "rows of each instance T_o": tuple((float(length), Synthetic(length=length), 1.0) for length in LENGTHS),
    "share of training steps": tuple((effort, Synthetic(), effort) for effort in EFFORTS),
}


def _task(results: Results, learner: str, setting: Synthetic, effort: float) -> FitTask:
    size = results.size
    return FitTask(setting.shrunk(size.effort), learner, size.table_blocks[0], size.effort * effort)


def _estimate(results: Results, learner: str, setting: Synthetic, effort: float) -> Estimate:
    return mean_of(results.store.table(_task(results, learner, setting, effort))["affine_r2"].to_numpy())


def _draw(results: Results) -> Exhibit:
    sweeps = {
        name: {
            learner: [(at, *_estimate(results, learner, setting, effort)) for at, setting, effort in points]
            for learner in LEARNERS
        }
        for name, points in SWEEPS.items()
    }
    return Exhibit({"thm-id-latent": plot_sweeps(sweeps, label="R² of z after an affine map")})


def _improves(results: Results) -> list[Comparison]:
    found = []
    for name, points in SWEEPS.items():
        for learner in LEARNERS:
            few, many = (
                results.store.table(_task(results, learner, setting, effort))["affine_r2"].to_numpy()
                for _, setting, effort in (points[0], points[-1])
            )
            gain = many - few
            error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
            found.append(
                Comparison(f"affine R² of {learner}, most minus least {name}", float(gain.mean()), float(error))
            )
    return found


def _near_one(results: Results) -> list[Comparison]:
    score = _estimate(results, OURS, Synthetic(), 1.0)
    return [Comparison("affine R² of our recipe minus 0.98", score.value - 0.98, score.standard_error)]


EXPERIMENT = Drawing(
    label="thm:id_latent",
    title="Identifiability: recovery of the latent state up to an affine map",
    plan=lambda results: [
        _task(results, learner, setting, effort)
        for points in SWEEPS.values()
        for _, setting, effort in points
        for learner in LEARNERS
    ],
    draw=_draw,
    claims=(
        Claim(
            "recovery-improves-with-data",
            "thm:id_latent",
            "The encoder approaches the latent state, up to an affine map, as instances, rows and training grow.",
            _improves,
        ),
        Claim(
            "latent-state-is-recovered",
            "thm:id_latent",
            "With the logs of the standard setting the latent state is recovered up to an affine map.",
            _near_one,
        ),
    ),
)
