"""fig:z_q_dist_adcb and fig:ATE_a: the amyloid ratio of ADCB's patients, and what treatments give at each ratio."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pyarrow as pa

from ilb.environments.adcb.patients import adcb_population
from ilb.environments.adcb.world import REWARDS, adcb_reward
from ilb.estimates import Estimate, standard_error
from ilb.streams import bare_key
from ilb_paper.claims import Claim, Comparison, each
from ilb_paper.experiment import Drawing, Exhibit, Table
from ilb_paper.plots import plot_histogram, plot_reward_lines
from ilb_paper.results import Results
from ilb_paper.settings import AdcbSetting
from ilb_paper.tasks import AbstractTask, Outcome

PATIENTS = 20_000
PRINTED_MEAN = 0.1403
PUBLISHED = (0.0, 1.95, 2.48, 3.03, 3.20, 2.01, 1.29, 2.69)
"""The average effects of the eight treatments, as the paper prints them."""
ALLOWED = 0.1
"""How far a mean may be from the published one to count as the same: 3 to 8 % of the effects."""


@dataclass(frozen=True)
class LatentSampleTask(AbstractTask):
    """Draw the latent states of many instances."""

    kind: ClassVar[str] = "LatentSampleTask"
    revision: ClassVar[int] = 2
    title: ClassVar[str] = "latent sample"

    setting: AdcbSetting
    instances: int
    seed: int = 0

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        del inputs
        world = self.setting.draw(self.seed)
        keys = jr.split(bare_key(self.seed), self.instances)
        states = jax.jit(jax.vmap(lambda key: world.latent_state(world.sample_instance(key))))(keys)
        return Outcome(pa.table({"z": np.asarray(states)[:, 0].astype(np.float64)}))

    def weight(self) -> float:
        return 1.0


def _task(results: Results) -> LatentSampleTask:
    size = results.size
    return LatentSampleTask(AdcbSetting(), max(200, round(PATIENTS * size.scale)), size.first_seed)


def _states(results: Results) -> np.ndarray:
    return np.asarray(results.store.table(_task(results))["z"].to_numpy())


def _compare_patients(says: str, values: np.ndarray) -> Comparison:
    mean = Estimate.of(values)
    return Comparison(says, mean.value, mean.standard_error, mean.count - 1.0)


def _mixture() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and standard deviations of the two components."""
    population = adcb_population(everybody_married=False)
    return tuple(np.asarray(part, float) for part in (population.z_weights, population.z_means, population.z_stds))  # type: ignore[return-value]


def _density(z: np.ndarray) -> np.ndarray:
    from scipy.stats import norm  # slow to import, and only this figure needs it

    weights, means, stds = _mixture()
    return np.asarray(norm.pdf(z[:, None], means, stds) @ weights)


def _draw_states(results: Results) -> Exhibit:
    z = _states(results)
    figure = plot_histogram(z, _density, bins=50, label="amyloid ratio z")
    remark = (
        f"The mean of the mixture is {np.dot(*_mixture()[:2]):.4f}; the paper prints {PRINTED_MEAN}, which its own "
        f"numbers do not give. The sample's mean is {Estimate.of(z).text(digits=4)}."
    )
    return Exhibit({"fig-z-q-dist-adcb": figure}, (), (remark,))


def _two_modes(results: Results) -> list[Comparison]:
    z = _states(results)
    low, high = _mixture()[1]
    width = 0.02
    near_low, half_way, near_high = (
        (np.abs(z - centre) < width / 2).astype(float) for centre in (low, (low + high) / 2, high)
    )
    return [
        _compare_patients(
            f"share of patients within {width / 2} of {centre:.3f} minus that half-way between the modes",
            here - half_way,
        )
        for centre, here in ((low, near_low), (high, near_high))
    ]


def treatment_effects(table: str, z: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(adcb_reward(table))(jnp.asarray(z, jnp.float32)[:, None]), dtype=np.float64)


def _draw_effects(results: Results) -> Exhibit:
    shown, z = np.linspace(0.02, 0.3, 200), _states(results)
    effects = {f"rewards as {name}": treatment_effects(name, shown) for name in REWARDS}
    figure = plot_reward_lines(shown, effects, label="amyloid ratio z")
    rows = [[name, *(f"{mean:.2f}" for mean in treatment_effects(name, z).mean(axis=0))] for name in REWARDS]
    header = ["mean over patients", *(f"treatment {a}" for a in range(8))]
    return Exhibit({"fig-ate-a": figure}, [Table("Average effects of the treatments", header, rows)])


def _average_effects(results: Results, name: str) -> Comparison:
    """Take the treatment whose mean is least surely within what is allowed; treatment 0 has no effect at all."""
    values = treatment_effects(name, _states(results))[:, 1:]
    spare = ALLOWED - np.abs(values.mean(axis=0) - PUBLISHED[1:])
    error = standard_error(values)
    worst = int(np.argmin(spare / error))
    says = f"rewards as {name}: {ALLOWED} minus the distance from the published effect, treatment {worst + 1}"
    return Comparison(says, float(spare[worst]), float(error[worst]), len(values) - 1.0)


def _nobody_is_average(results: Results, name: str) -> Comparison:
    """For many patients the treatment that is best on average is not the best one."""
    values = treatment_effects(name, _states(results))
    other = values.argmax(axis=1) != values.mean(axis=0).argmax()
    says = f"rewards as {name}: share of patients for whom another treatment is best than on average, minus 5 %"
    return _compare_patients(says, other - 0.05)


STATES = Drawing(
    label="fig:z_q_dist_adcb",
    title="The continuous latent state of ADCB",
    plan=lambda results: [_task(results)],
    draw=_draw_states,
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

EFFECTS = Drawing(
    label="fig:ATE_a",
    title="Expected rewards of ADCB's treatments",
    plan=lambda results: [_task(results)],
    draw=_draw_effects,
    claims=(
        Claim(
            "average-effects-match",
            "app:adcb_ate",
            "The mean of each treatment's effect over patients is the published average effect.",
            each(_average_effects, [*REWARDS]),
            by_construction="The simulator is made from these effects, so this checks our code.",
        ),
        Claim(
            "best-treatment-depends-on-the-patient",
            "fig:ATE_a",
            "Rewards differ between latent states, and with them the best treatment, for more than 5 % of patients.",
            each(_nobody_is_average, [*REWARDS]),
            by_construction="Rewards and patients are the paper's own lines and mixture, so this checks our code.",
        ),
    ),
)
