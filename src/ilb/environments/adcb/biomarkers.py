r"""Measurements of the ADCB simulator: from a patient and the noisy ratio $z_t$ of a visit to numbers.

There is no other noise: given the patient, $z_t$ is all that varies from visit to visit (docs/adcb.md, section 3).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ilb.environments.adcb.patients import AdcbPatient, adcb_parameters
from ilb.types import as_real

EDUCATION_LEVELS = 13
BLACK, NOT_HISPANIC, MALE = 1, 1, 1
"""The codes of race, ethnicity and sex that the tables single out."""


def interpolate(x: Float[Array, ""], nodes: Float[Array, " nodes"], values: Float[Array, " nodes"]) -> Float[Array, ""]:
    """Follow the line through the nodes, and stay at the first and the last value beyond them.

    >>> nodes, values = jnp.asarray([0.0, 1.0, 3.0]), jnp.asarray([2.0, 4.0, 0.0])
    >>> [float(interpolate(jnp.asarray(x), nodes, values)) for x in (-1.0, 0.5, 2.0, 9.0)]
    [2.0, 3.0, 2.0, 0.0]
    """
    # The sum of what each stretch adds: unlike a search, this is one vector operation for a batch of any size.
    steps = jnp.diff(nodes)
    return values[0] + jnp.diff(values) / steps @ jnp.clip(x - nodes[:-1], 0.0, steps)


class Share(eqx.Module):
    """How far z has moved a patient from amyloid-positive (0) to amyloid-negative (1) values: calibrated, not fitted.

    `low` and `high` are the means of the sigmoid over the two components of z, so that the mean share is 0 in the one
    and 1 in the other, and the means of both are those of the published fits.
    """

    centre: Float[Array, ""]
    width: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]

    def __call__(self, z: Float[Array, ""]) -> Float[Array, ""]:
        """Give the share; it may leave [0, 1] by some 0.15."""
        return (jax.nn.sigmoid((z - self.centre) / self.width) - self.low) / (self.high - self.low)


class Protein(eqx.Module):
    """tau or ptau: from a positive to a negative value as the share grows; without APOE4 the latter rises with age."""

    positive: Float[Array, " 3"]
    carrier_negative: Float[Array, ""]
    ages: Float[Array, " nodes"]
    negative: Float[Array, " nodes"]
    if_black: Float[Array, ""]
    if_other_ethnicity: Float[Array, ""]

    def __call__(self, share: Float[Array, ""], patient: AdcbPatient) -> Float[Array, ""]:
        without = (
            interpolate(patient.age, self.ages, self.negative)
            + self.if_black * _is_black(patient)
            + self.if_other_ethnicity * _is_other_ethnicity(patient)
        )
        negative = jnp.where(patient.apoe4 == 0, without, self.carrier_negative)
        positive = self.positive[patient.apoe4]
        return jnp.maximum(positive + (negative - positive) * share, 0.0)


class Curve(eqx.Module):
    """fdg, av45 or adas13: a curve over the share for each number of APOE4 alleles, and curves added for some."""

    shares: Float[Array, " nodes"]
    by_apoe4: Float[Array, "3 nodes"]
    if_black: Float[Array, " nodes"]
    if_other_ethnicity: Float[Array, " nodes"]
    if_male: Float[Array, " nodes"]
    by_education: Float[Array, " 13"]

    def __call__(self, share: Float[Array, ""], patient: AdcbPatient) -> Float[Array, ""]:
        """Give the measurement; beyond the first and last node a curve stays where it is."""
        # The curves have the same nodes, so they may be added first and interpolated once.
        curve = (
            self.by_apoe4[patient.apoe4]
            + self.if_black * _is_black(patient)
            + self.if_other_ethnicity * _is_other_ethnicity(patient)
            + self.if_male * (patient.sex == MALE)
        )
        return interpolate(share, self.shares, curve) + self.by_education[patient.education]


class Rating(eqx.Module):
    """mmse or cdrsb: a curve over adas13, an offset for education, and rounding to the steps of the scale."""

    nodes: Float[Array, " nodes"]
    curve: Float[Array, " nodes"]
    by_education: Float[Array, " 13"]
    highest: Float[Array, ""]
    step: Float[Array, ""]

    def __call__(self, adas13: Float[Array, ""], education: Int[Array, ""]) -> Float[Array, ""]:
        exact = interpolate(adas13, self.nodes, self.curve) + self.by_education[education]
        return jnp.round(jnp.clip(exact, 0.0, self.highest) / self.step) * self.step


class Biomarkers(eqx.Module):
    """All measurements of a visit."""

    share: Share
    tau: Protein
    ptau: Protein
    fdg: Curve
    av45: Curve
    adas13: Curve
    mmse: Rating
    cdrsb: Rating
    adas13_highest: Float[Array, ""]

    def __call__(self, z: Float[Array, ""], patient: AdcbPatient) -> dict[str, Float[Array, ""]]:
        """Give them by name, for the ratio z of this visit (the ratio of the patient plays no part)."""
        share = self.share(z)
        adas13 = jnp.clip(self.adas13(share, patient), 0.0, self.adas13_highest)
        return {
            "tau": self.tau(share, patient),
            "ptau": self.ptau(share, patient),
            "fdg": self.fdg(share, patient),
            "av45": self.av45(share, patient),
            "adas13": adas13,
            "mmse": self.mmse(adas13, patient.education),
            "cdrsb": self.cdrsb(adas13, patient.education),
        }


def adcb_biomarkers() -> Biomarkers:
    numbers = adcb_parameters()
    share = numbers["share_function"]
    return Biomarkers(
        share=Share(
            as_real(share["centre"]),
            as_real(share["width"]),
            as_real(share["mean_sigmoid_component_low_ratio"]),
            as_real(share["mean_sigmoid_component_high_ratio"]),
        ),
        tau=_protein(numbers["tau"]),
        ptau=_protein(numbers["ptau"]),
        fdg=_curve(numbers["fdg"], share["u_nodes"]),
        av45=_curve(numbers["av45"], share["u_nodes"]),
        adas13=_curve(numbers["adas13"], share["u_nodes"]),
        mmse=_rating(numbers["mmse"]),
        cdrsb=_rating(numbers["cdrsb"]),
        adas13_highest=as_real(numbers["adas13"]["clip"][1]),
    )


def _protein(numbers: dict[str, Any]) -> Protein:
    return Protein(
        as_real(numbers["amyloid_positive_by_apoe4"]),
        as_real(numbers["amyloid_negative_if_apoe4_at_least_1"]),
        as_real(numbers["age_nodes"]),
        as_real(numbers["amyloid_negative_if_apoe4_is_0_by_age"]),
        as_real(numbers["add_to_negative_if_apoe4_is_0_and_race_black"]),
        as_real(numbers["add_to_negative_if_apoe4_is_0_and_ethnicity_not_1"]),
    )


def _curve(numbers: dict[str, Any], nodes: list[float]) -> Curve:
    """Read a curve; where the file has no table for a group, nothing is added, and one number counts everywhere."""

    def added(name: str, count: int) -> Float[Array, " count"]:
        return jnp.broadcast_to(as_real(numbers.get(f"add_{name}", 0.0)), (count,))

    return Curve(
        shares=as_real(nodes),
        by_apoe4=as_real(numbers["table_by_apoe4"]),
        if_black=added("if_race_black", len(nodes)),
        if_other_ethnicity=added("if_ethnicity_not_1", len(nodes)),
        if_male=added("if_male", len(nodes)),
        by_education=added("by_education_code", EDUCATION_LEVELS),
    )


def _rating(numbers: dict[str, Any]) -> Rating:
    return Rating(
        as_real(numbers["adas13_nodes"]),
        as_real(numbers["table"]),
        as_real(numbers["add_by_education_code"]),
        as_real(numbers["clip"][1]),
        as_real(numbers["round_to"]),
    )


def _is_black(patient: AdcbPatient) -> Bool[Array, ""]:
    return patient.race == BLACK


def _is_other_ethnicity(patient: AdcbPatient) -> Bool[Array, ""]:
    return patient.ethnicity != NOT_HISPANIC
