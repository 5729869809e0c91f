"""fig:ATE_a: the expected reward of each of ADCB's treatments, as a function of the amyloid ratio."""

import jax
import jax.numpy as jnp
import numpy as np

from ilb.environments.adcb.world import REWARDS, adcb_reward
from ilb.estimates import standard_error
from ilb_paper.catalogue.fig_z_q_dist_adcb import sample_task, sampled_states
from ilb_paper.claims import Claim, Comparison
from ilb_paper.experiment import Drawing, Exhibit, Table
from ilb_paper.plots import plot_reward_lines
from ilb_paper.results import Results

PUBLISHED = (0.0, 1.95, 2.48, 3.03, 3.20, 2.01, 1.29, 2.69)
"""The average effects of the eight treatments, as the paper prints them."""
ALLOWED = 0.1
"""How far a mean may be from the published one to count as the same: 3 to 8 % of the effects."""


def treatment_effects(table: str, z: np.ndarray) -> np.ndarray:
    """Give the expected reward of every treatment at every z."""
    return np.asarray(jax.vmap(adcb_reward(table))(jnp.asarray(z, jnp.float32)[:, None]), dtype=np.float64)


def _draw(results: Results) -> Exhibit:
    z = np.linspace(0.02, 0.3, 200)
    effects = {f"rewards as {name}": treatment_effects(name, z) for name in REWARDS}
    figure = plot_reward_lines(z, effects, label="amyloid ratio z")
    z = sampled_states(results)
    rows = [[name, *(f"{mean:.2f}" for mean in treatment_effects(name, z).mean(axis=0))] for name in REWARDS]
    header = ["mean over patients", *(f"treatment {a}" for a in range(8))]
    return Exhibit({"fig-ate-a": figure}, [Table("Average effects of the treatments", header, rows)])


def _average_effects(results: Results) -> list[Comparison]:
    """Take the treatment whose mean is least surely within what is allowed; treatment 0 has no effect at all."""
    z = sampled_states(results)
    found = []
    for name in REWARDS:
        values = treatment_effects(name, z)[:, 1:]
        spare = ALLOWED - np.abs(values.mean(axis=0) - PUBLISHED[1:])
        error = standard_error(values)
        worst = int(np.argmin(spare / error))
        says = f"rewards as {name}: {ALLOWED} minus the distance from the published effect, treatment {worst + 1}"
        found.append(Comparison(says, float(spare[worst]), float(error[worst]), len(z) - 1.0))
    return found


def _nobody_is_average(results: Results) -> list[Comparison]:
    """For many patients the treatment that is best on average is not the best one."""
    z = sampled_states(results)
    found = []
    for name in REWARDS:
        values = treatment_effects(name, z)
        other = values.argmax(axis=1) != values.mean(axis=0).argmax()
        says = f"rewards as {name}: share of patients for whom another treatment is best than on average, minus 5 %"
        found.append(Comparison(says, float(other.mean() - 0.05), float(other.std() / np.sqrt(len(z))), len(z) - 1.0))
    return found


EXPERIMENT = Drawing(
    label="fig:ATE_a",
    title="Expected rewards of ADCB's treatments",
    plan=lambda results: [sample_task(results)],
    draw=_draw,
    claims=(
        Claim(
            "average-effects-match",
            "app:adcb_ate",
            "The mean of each treatment's effect over patients is the published average effect.",
            _average_effects,
            by_construction="The simulator is made from these effects, so this checks our code.",
        ),
        Claim(
            "best-treatment-depends-on-the-patient",
            "fig:ATE_a",
            "Rewards differ between latent states, and with them the best treatment, for more than 5 % of patients.",
            _nobody_is_average,
            by_construction="Rewards and patients are the paper's own lines and mixture, so this checks our code.",
        ),
    ),
)
