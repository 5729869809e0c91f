"""fig:z_q_dist_adcb: the amyloid ratio of ADCB's patients, which has two modes."""

import numpy as np
from scipy import stats

from ilb.environments.adcb.patients import adcb_population
from ilb_paper.claims import Claim, Comparison
from ilb_paper.experiment import Drawing, Exhibit
from ilb_paper.plots import plot_histogram
from ilb_paper.results import Results
from ilb_paper.settings import Adcb
from ilb_paper.simulation_tasks import LatentSampleTask

PRINTED_MEAN = 0.1403
PATIENTS = 20_000


def sample_task(results: Results) -> LatentSampleTask:
    """Name the task that draws the patients."""
    return LatentSampleTask(Adcb(), max(200, round(PATIENTS * results.size.scale)))


def sampled_states(results: Results) -> np.ndarray:
    """Give the amyloid ratio of every patient."""
    return np.asarray(results.store.table(sample_task(results))["z"].to_numpy())


def _mixture() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and standard deviations of the two components."""
    population = adcb_population(everybody_married=False)
    return tuple(np.asarray(part, float) for part in (population.z_weights, population.z_means, population.z_stds))  # type: ignore[return-value]


def _density(z: np.ndarray) -> np.ndarray:
    weights, means, stds = _mixture()
    return np.asarray(stats.norm.pdf(z[:, None], means, stds) @ weights)


def _draw(results: Results) -> Exhibit:
    z = sampled_states(results)
    figure = plot_histogram(z, _density, bins=50, label="amyloid ratio z")
    mean = float(np.dot(*_mixture()[:2]))
    remark = (
        f"The mean of the mixture is {mean:.4f}; the paper prints {PRINTED_MEAN}, which its own numbers do not give. "
        f"The sample's mean is {z.mean():.4f} ± {z.std() / np.sqrt(len(z)):.4f}."
    )
    return Exhibit({"fig-z-q-dist-adcb": figure}, (), (remark,))


def _two_modes(results: Results) -> list[Comparison]:
    z = sampled_states(results)
    low, high = _mixture()[1]
    width = 0.02
    counts = [np.abs(z - centre) < width / 2 for centre in (low, (low + high) / 2, high)]
    valley = counts[1].mean()
    return [
        Comparison(
            f"share of patients within {width / 2} of {centre:.3f} minus that half-way between the modes",
            float(here.mean() - valley),
            float(np.sqrt((here.mean() + valley) / len(z))),
        )
        for centre, here in ((low, counts[0]), (high, counts[2]))
    ]


EXPERIMENT = Drawing(
    label="fig:z_q_dist_adcb",
    title="The continuous latent state of ADCB",
    plan=lambda results: [sample_task(results)],
    draw=_draw,
    claims=(
        Claim(
            "amyloid-ratio-has-two-modes",
            "app:adcb_ate",
            "The continuous latent state of ADCB has two modes.",
            _two_modes,
            by_construction="The simulator draws from the paper's own mixture of two, so this checks our code.",
        ),
    ),
)
