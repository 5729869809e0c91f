"""thm:regret: the bound on CPG's regret against simulation, with an exact model and with one that is off."""

import numpy as np

from ilb_paper.claims import Claim, Comparison, nothing_to_compare
from ilb_paper.experiment import Drawing, Exhibit, Table
from ilb_paper.plots import plot_bounds
from ilb_paper.results import Results
from ilb_paper.settings import SyntheticSetting
from ilb_paper.simulation_tasks import BoundTask

ERRORS = (0.0, 0.02, 0.2)
SAYS = {0.0: "exact model", 0.02: "model off by 0.02", 0.2: "model off by 0.2"}


def _task(results: Results, error: float) -> BoundTask:
    size = results.size
    return BoundTask(SyntheticSetting(), error, max(3, size.instances), max(4, round(20 * size.effort)), size.horizon())


def _draw(results: Results) -> Exhibit:
    tables = {SAYS[error]: results.store.table(_task(results, error)) for error in ERRORS}
    cases = {
        name: tuple(table[column].to_numpy() for column in ("gap", "regret", "bound")) for name, table in tables.items()
    }
    rows = []
    for name, (gap, regret, bound) in cases.items():
        rows.append(
            [
                name,
                f"{len(gap)}",
                f"{regret.mean():.1f}",
                f"{np.median(bound / np.maximum(regret, 1e-3)):.0f}",
                f"{(regret > bound).sum()}",
            ]
        )
    header = ["case", "instances", "mean regret", "median of bound / regret", "regret above bound"]
    remark = (
        "Each point is the mean regret of one latent state over repeated runs. The printed bound is true for Gaussian "
        "noise, though not by its printed proof (see the module ilb.theory); it is loose by orders of magnitude."
    )
    return Exhibit({"thm-regret": plot_bounds(cases)}, [Table("CPG against its bound", header, rows)], (remark,))


def _below(results: Results) -> list[Comparison]:
    """Take the instance that comes closest to its bound, among those whose bound is below the worst that can happen."""
    found = []
    for error in ERRORS:
        table = results.store.table(_task(results, error))
        gained, spread, bound, most = (table[n].to_numpy() for n in ("regret", "regret_se", "bound", "most"))
        telling = np.flatnonzero(bound < most)
        if len(telling) == 0:
            says = f"{SAYS[error]}: none of {len(bound)} instances has a bound below the worst that can happen"
            found.append(nothing_to_compare(f"{says} in {results.size.horizon():,} rounds"))
            continue
        spare = bound[telling] - gained[telling]
        closest = int(np.argmin(spare / np.maximum(spread[telling], 1e-9)))
        says = f"{SAYS[error]}: bound minus regret, closest of {len(telling)} instances whose bound says something"
        runs = _task(results, error).runs
        found.append(Comparison(says, float(spare[closest]), float(spread[telling][closest]), runs - 1.0))
    return found


EXPERIMENT = Drawing(
    label="thm:regret",
    title="CPG's regret and the bound of its theorem",
    plan=lambda results: [_task(results, error) for error in ERRORS],
    draw=_draw,
    claims=(
        Claim(
            "regret-is-below-the-bound",
            "thm:regret",
            "The expected regret of CPG is below the bound, in the case of constant and in that of linear regret.",
            _below,
            by_construction="A theorem, which is true for the Gaussian noise that is simulated (proof in ilb.theory), "
            "so this checks our code.",
        ),
    ),
)
