r"""The Alzheimer environment of the paper (ADCB, Section "Environments", app:adcb_ate); docs/adcb.md has its sources.

A patient's ratio z of amyloid-beta is seen through biomarkers of $z_t = z + \eta_t$, and eight treatments have rewards
that are linear in z. All sampling and all tables are JAX, for one patient and one visit; batches are `vmap`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.adcb.biomarkers import Biomarkers, adcb_biomarkers
from ilb.environments.adcb.patients import (
    MARITAL,
    AdcbPatient,
    AdcbPopulation,
    adcb_parameters,
    adcb_population,
    as_array,
)
from ilb.environments.environment import AbstractEnvironment
from ilb.errors import WorldError
from ilb.models.latent import LatentModel, LinearReward
from ilb.types import RewardModel

TREATMENTS = 8

CONTEXTS: dict[str, tuple[str, ...]] = {
    "nine": ("age", "education", "marital", "tau", "ptau", "fdg", "av45", "mmse", "cdrsb"),
    "without_age": ("education", "marital", "tau", "ptau", "fdg", "av45", "mmse", "cdrsb"),
    "biomarkers": ("tau", "ptau", "fdg", "av45"),
}
"""The variables that a context shows: nine (an assumption, see docs/adcb.md), these without Age, and the four of the
released configuration."""

RewardsName: TypeAlias = Literal["printed", "released"]
ContextName: TypeAlias = Literal["nine", "without_age", "biomarkers"]
MaritalName: TypeAlias = Literal["sampled", "married"]


class AdcbWorld(AbstractEnvironment):
    """Patients with Alzheimer's disease, seen through `variables`, treated in eight ways.

    Rewards depend on z alone. The latent noise is a standard deviation, as in the released code (the paper calls the
    same number a variance).
    """

    population: AdcbPopulation
    biomarkers: Biomarkers
    reward: RewardModel
    variables: tuple[str, ...] = eqx.field(static=True)
    latent_noise_std: Float[Array, ""] = eqx.field(converter=as_array, default=0.02)
    reward_std: Float[Array, ""] = eqx.field(converter=as_array, default=0.25)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the numbers in a context; marital status is one 0/1 column for each category."""
        return tuple(
            column
            for name in self.variables
            for column in ([f"marital = {category}" for category in MARITAL] if name == "marital" else [name])
        )

    def sample_instance(self, key: PRNGKeyArray) -> AdcbPatient:
        """Draw a patient."""
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
        return jnp.concatenate([jnp.atleast_1d(as_array(values[name])) for name in self.variables])

    def mean_rewards(self, instance: AdcbPatient) -> Float[Array, " 8"]:
        """Give the expected reward of every treatment, by the z of the patient and not that of a visit."""
        return self.reward(instance.z[None])

    def sample_rewards(self, key: PRNGKeyArray, instance: AdcbPatient) -> Float[Array, " 8"]:
        """Draw the rewards of all treatments."""
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


def adcb_world(
    *,
    latent_noise_std: float = 0.02,
    rewards: RewardsName = "printed",
    context: ContextName = "nine",
    reward_std: float = 0.25,
    marital: MaritalName = "sampled",
) -> AdcbWorld:
    """Make the Alzheimer world of the paper.

    `rewards` is the formula as printed (app:adcb_ate) or the table of the released code, whose intercepts have the
    other sign; `context` says which variables are seen (`CONTEXTS`). `marital` is drawn by sex, or "married" for all,
    as the released generator has it. `latent_noise_std` is 0.02 or, in the noisy variant (app:noise-latent), 0.1.

    >>> world = adcb_world(rewards="released", context="biomarkers")
    >>> world.column_names
    ('tau', 'ptau', 'fdg', 'av45')
    >>> patient = world.sample_instance(jr.key(0))
    >>> world.emit(jr.key(1), patient).shape, world.mean_rewards(patient).shape
    ((4,), (8,))
    """
    for name, value, known in (
        ("rewards", rewards, ("printed", "released")),
        ("context", context, tuple(CONTEXTS)),
        ("marital", marital, ("sampled", "married")),
    ):
        if value not in known:
            raise WorldError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
    for name, std in (("latent_noise_std", latent_noise_std), ("reward_std", reward_std)):
        if not 0 <= std < float("inf"):
            raise WorldError(f"{name} must be a number, at least 0; got {std!r}.")
    return AdcbWorld(
        population=adcb_population(everybody_married=marital == "married"),
        biomarkers=adcb_biomarkers(),
        reward=adcb_reward(rewards),
        variables=CONTEXTS[context],
        latent_noise_std=as_array(latent_noise_std),
        reward_std=as_array(reward_std),
    )


def adcb_reward(name: RewardsName) -> RewardModel:
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
    return LinearReward.known(as_array(slope)[:, None], as_array(intercept))
