r"""The Alzheimer environment of the paper (ADCB, Section "Environments", app:adcb_ate); docs/adcb.md has its sources.

A patient's ratio z of amyloid-beta is seen through biomarkers of $z_t = z + \eta_t$, and eight treatments have rewards
that are linear in z. All sampling and all tables are JAX, for one patient and one visit; batches are `vmap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pyarrow as pa
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.adcb.biomarkers import Biomarkers, adcb_biomarkers
from ilb.environments.adcb.patients import MARITAL, AdcbPatient, AdcbPopulation, adcb_parameters, adcb_population
from ilb.environments.environment import AbstractEnvironment, Units
from ilb.environments.specification import AbstractDescription, Plan, parameter
from ilb.errors import WorldError
from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward
from ilb.types import RewardModel, as_real

TREATMENTS = 8
ROLES = {"instance": "patient", "time": "visit", "action": "treatment", "reward": "reward"}
"""What `Logs.from_frame` and `ilb fit` must know of the columns of a recording's table; all others are context."""

CONTEXTS: dict[str, tuple[str, ...]] = {
    "nine": ("age", "education", "marital", "tau", "ptau", "fdg", "av45", "mmse", "cdrsb"),
    "without_age": ("education", "marital", "tau", "ptau", "fdg", "av45", "mmse", "cdrsb"),
    "biomarkers": ("tau", "ptau", "fdg", "av45"),
}
"""The variables that a context shows: nine (an assumption, see docs/adcb.md), these without Age, and the four of the
released configuration."""

REWARDS = ("printed", "released")
"""The formula as printed (app:adcb_ate), or the table of the released code, whose intercepts have the other sign."""


class AdcbWorld(AbstractEnvironment):
    """Patients with Alzheimer's disease, seen through `variables`, treated in eight ways.

    Rewards depend on z alone. The latent noise is a standard deviation, as in the released code (the paper calls the
    same number a variance).
    """

    population: AdcbPopulation
    biomarkers: Biomarkers
    reward: RewardModel
    variables: tuple[str, ...] = eqx.field(static=True)
    latent_noise_std: Float[Array, ""] = eqx.field(converter=as_real, default=0.02)
    reward_std: Float[Array, ""] = eqx.field(converter=as_real, default=0.25)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the numbers in a context; marital status is one 0/1 column for each category."""
        return tuple(
            column
            for name in self.variables
            for column in ([f"marital = {category}" for category in MARITAL] if name == "marital" else [name])
        )

    def sample_instance(self, key: PRNGKeyArray) -> AdcbPatient:
        return self.population.sample(key)

    def emit(self, key: PRNGKeyArray, instance: AdcbPatient) -> Float[Array, " d"]:
        """Draw the context of one visit, in the units of the clinic."""
        z = instance.z + self.latent_noise_std * jr.normal(key)
        values = {
            **self.biomarkers(z, instance),
            "age": instance.age,
            "education": instance.education,
            "marital": instance.marital == jnp.arange(len(MARITAL)),
        }
        return jnp.concatenate([jnp.atleast_1d(as_real(values[name])) for name in self.variables])

    def mean_rewards(self, instance: AdcbPatient) -> Float[Array, " 8"]:
        """Give the expected reward of every treatment, by the z of the patient and not that of a visit."""
        return self.reward(instance.z[None])

    def sample_rewards(self, key: PRNGKeyArray, instance: AdcbPatient) -> Float[Array, " 8"]:
        return self.mean_rewards(instance) + self.reward_std * jr.normal(key, (TREATMENTS,))

    def latent_state(self, instance: AdcbPatient) -> Float[Array, " 1"]:
        """Give z, the part of the latent state that rewards depend on; race and sex only colour the contexts."""
        return instance.z[None]

    def oracle(self) -> LatentModel:
        """Refuse: the measurements can't be inverted exactly."""
        raise WorldError(
            "the ADCB world has no oracle: the biomarkers level off at both ends of z, depend on traits that the "
            "context does not show (sex, race, APOE4), and ratings are rounded, so no encoder gives z back exactly. "
            "Fit a model on logs of this world instead."
        )

    @property
    def units(self) -> Units:
        """The published figures for a latent noise of 0.02; the 0/1 columns of marital status stay as they are."""
        numbers, names = adcb_parameters()["marginals"], self.column_names
        return Units(
            latent_mean=self.population.z_mean[None],
            latent_std=self.population.z_std[None],
            context_mean=as_real([numbers["mean"].get(name, 0.0) for name in names]),
            context_std=as_real([numbers["std"].get(name, 1.0) for name in names]),
        )

    def to_frame(self, logs: Logs) -> Any:
        """Write a table such as a clinic would have: in clinical units, with text for categories; see `ROLES`."""
        blocks = dict(zip(logs.schema.names, logs.context.T, strict=True))
        if "marital" in self.variables:
            indicators = [blocks[f"marital = {category}"] for category in MARITAL]
            blocks["marital"] = np.array(MARITAL)[np.argmax(indicators, axis=0)]
        return pa.table(
            {
                "patient": np.asarray(logs.instance_labels)[logs.instance],
                "visit": np.arange(logs.rows) - logs.starts[logs.instance],
                **{name: blocks[name] for name in self.variables},
                "treatment": np.array([f"treatment {number}" for number in range(TREATMENTS)])[logs.action],
                "reward": logs.reward,
            }
        )


def adcb_reward(name: str) -> RewardModel:
    r"""Give one of the two reward tables, $\alpha_a z + \gamma_a$ with $E[\alpha_a z + \gamma_a]$ as published.

    >>> [round(float(reward), 2) for reward in adcb_reward("printed")(jnp.asarray([0.14099]))]
    [0.0, 1.95, 2.48, 3.03, 3.2, 2.01, 1.29, 2.69]
    """
    numbers = adcb_parameters()["reward"]
    printed = numbers["printed_paper_variant"]
    intercept, slope = {
        "printed": (printed["intercept"], printed["slope"]),
        "released": (numbers["intercept_gamma"], numbers["slope"]),
    }[name]
    return LinearReward.known(as_real(slope)[:, None], as_real(intercept))


@dataclass(frozen=True)
class Adcb(AbstractDescription, name="adcb"):
    """The paper's Alzheimer world (ADCB): patient, visit, measurements, treatment, reward.

    `rewards` is one of `REWARDS`, `context` one of `CONTEXTS`. `marital` is drawn by sex, or "married" for all, as the
    released generator has it. `latent_noise_std` is 0.02 or, in the noisy variant (app:noise-latent), 0.1.

    >>> world = Adcb(rewards="released", context="biomarkers").draw()
    >>> world.column_names
    ('tau', 'ptau', 'fdg', 'av45')
    >>> patient = world.sample_instance(jr.key(0))
    >>> world.emit(jr.key(1), patient).shape, world.mean_rewards(patient).shape
    ((4,), (8,))
    """

    latent_noise_std: float = parameter(0.02, "Standard deviation of the latent noise.")
    rewards: str = parameter("printed", "Rewards, of the paper's formula or its code", choices=REWARDS)
    context: str = parameter("nine", "Columns of the table", choices=tuple(CONTEXTS))
    reward_std: float = parameter(0.25, "Standard deviation of reward noise.")
    marital: str = parameter("sampled", "Marital status", choices=("sampled", "married"))
    words: ClassVar[Mapping[str, str]] = {
        "instances": "patients",
        "test_instances": "test_patients",
        "length": "visits",
        "latent_noise_std": "latent_noise",
    }
    plan: ClassVar[Plan] = Plan(test_instances=50)

    def draw(self, seed: int = 0) -> AdcbWorld:
        """Make the simulator; its numbers are fixed, so seeds differ in patients only."""
        del seed
        return AdcbWorld(
            population=adcb_population(everybody_married=self.marital == "married"),
            biomarkers=adcb_biomarkers(),
            reward=adcb_reward(self.rewards),
            variables=CONTEXTS[self.context],
            latent_noise_std=as_real(self.latent_noise_std),
            reward_std=as_real(self.reward_std),
        )
