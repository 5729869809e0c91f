"""Patients of the ADCB simulator: what is drawn once and stays as it is for all visits (docs/adcb.md, section 2)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.types import as_real


@cache
def adcb_parameters() -> dict[str, Any]:
    """Read `parameters.json`; its entry "provenance" says what is published and what is calibrated.

    >>> adcb_parameters()["latent_noise"]["standard_deviation_default"]
    0.02
    """
    text = resources.files("ilb.environments.adcb").joinpath("parameters.json").read_text(encoding="utf-8")
    parameters: dict[str, Any] = json.loads(text)
    return parameters


MARITAL = ("married", "never", "widowed", "divorced", "unknown")
"""The categories of marital status, by code."""


class AdcbPatient(NamedTuple):
    """One patient: z is the ratio of amyloid-beta 42 to 40, all that rewards depend on; categories are codes."""

    z: Float[Array, ""]
    sex: Int[Array, ""]
    race: Int[Array, ""]
    ethnicity: Int[Array, ""]
    age: Float[Array, ""]
    apoe4: Int[Array, ""]
    education: Int[Array, ""]
    marital: Int[Array, ""]


class AdcbPopulation(eqx.Module):
    """The distribution U of patients: z, sex, race and ethnicity independent, the others given these.

    `apoe4[ethnicity, race, sex]` and `marital[sex]` are probabilities; `education` holds the coefficients of a softmax
    over 13 levels, for nine indicators and an intercept, the last.
    """

    z_weights: Float[Array, " 2"]
    z_means: Float[Array, " 2"]
    z_stds: Float[Array, " 2"]
    male: Float[Array, ""]
    race: Float[Array, " 7"]
    ethnicity: Float[Array, " 3"]
    age_shape: Float[Array, ""]
    age_location: Float[Array, ""]
    age_scale: Float[Array, ""]
    apoe4: Float[Array, "3 7 2 3"]
    education: Float[Array, "13 10"]
    marital: Float[Array, "2 5"]

    def sample(self, key: PRNGKeyArray) -> AdcbPatient:
        key_z, key_sex, key_race, key_ethnicity, key_age, key_apoe4, key_education, key_marital = jr.split(key, 8)
        sex = jr.bernoulli(key_sex, self.male).astype(jnp.int32)
        race, ethnicity = _draw(key_race, self.race), _draw(key_ethnicity, self.ethnicity)
        return AdcbPatient(
            z=self._sample_z(key_z),
            sex=sex,
            race=race,
            ethnicity=ethnicity,
            age=self._sample_age(key_age),
            apoe4=_draw(key_apoe4, self.apoe4[ethnicity, race, sex]),
            education=_draw(key_education, self._education_shares(ethnicity, race, sex)),
            marital=_draw(key_marital, self.marital[sex]),
        )

    @property
    def z_mean(self) -> Float[Array, ""]:
        """E[z]: 0.1410. The paper prints 0.1403, a slip of arithmetic."""
        return self.z_weights @ self.z_means

    @property
    def z_std(self) -> Float[Array, ""]:
        return jnp.sqrt(self.z_weights @ (self.z_stds**2 + (self.z_means - self.z_mean) ** 2))

    def _sample_z(self, key: PRNGKeyArray) -> Float[Array, ""]:
        key_component, key_value = jr.split(key)
        component = _draw(key_component, self.z_weights)
        return self.z_means[component] + self.z_stds[component] * jr.normal(key_value)

    def _sample_age(self, key: PRNGKeyArray) -> Float[Array, ""]:
        """Draw from the skew-normal distribution: a normal number and the size of another, mixed."""
        size, plain = jr.normal(key, (2,))
        slant = self.age_shape / jnp.sqrt(1 + self.age_shape**2)
        standard = slant * jnp.abs(size) + jnp.sqrt(1 - slant**2) * plain
        return jnp.round(self.age_location + self.age_scale * standard, 1)

    def _education_shares(
        self, ethnicity: Int[Array, ""], race: Int[Array, ""], sex: Int[Array, ""]
    ) -> Float[Array, " 13"]:
        features = jnp.concatenate(
            [
                ethnicity == jnp.arange(1, self.ethnicity.size),
                race == jnp.arange(1, self.race.size),
                (sex == 1)[None],
                jnp.ones(1, dtype=bool),
            ]
        )
        return jax.nn.softmax(self.education @ features.astype(self.education.dtype))


def adcb_population(*, everybody_married: bool) -> AdcbPopulation:
    """Read the population from the file of parameters; the released generator makes everybody married."""
    numbers = adcb_parameters()
    latent, groups, age, education = (
        numbers[name] for name in ("latent_continuous", "latent_categorical", "age", "education")
    )
    shares = [numbers["marital_status"][f"probabilities_{sex}"] for sex in ("female", "male")]
    coefficients = [
        [*row, intercept]
        for row, intercept in zip(education["coefficients_code_by_feature"], education["intercepts"], strict=True)
    ]
    return AdcbPopulation(
        z_weights=as_real(latent["mixture_weights"]),
        z_means=as_real(latent["mixture_means"]),
        z_stds=as_real(latent["mixture_std"]),
        male=as_real(groups["probability_male"]),
        race=as_real(groups["race_probabilities"]),
        ethnicity=as_real(groups["ethnicity_probabilities"]),
        age_shape=as_real(age["shape"]),
        age_location=as_real(age["location"]),
        age_scale=as_real(age["scale"]),
        apoe4=as_real(numbers["apoe4"]["probability_table_ethnicity_race_sex_allele"]),
        education=as_real(coefficients),
        marital=as_real([[1, 0, 0, 0, 0]] * 2 if everybody_married else shares),
    )


def _draw(key: PRNGKeyArray, shares: Float[Array, " categories"]) -> Int[Array, ""]:
    return jr.categorical(key, jnp.log(shares)).astype(jnp.int32)
