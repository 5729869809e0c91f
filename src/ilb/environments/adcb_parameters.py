"""The numbers of the ADCB simulator: a file in the package, read once; where each comes from is written in it."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float


@cache
def adcb_parameters() -> dict[str, Any]:
    """Read `data/adcb_parameters.json`; its entry "provenance" says what is published and what is calibrated.

    >>> adcb_parameters()["latent_noise"]["standard_deviation_default"]
    0.02
    """
    text = resources.files("ilb.environments").joinpath("data/adcb_parameters.json").read_text(encoding="utf-8")
    parameters: dict[str, Any] = json.loads(text)
    return parameters


def as_array(numbers: Any) -> Float[Array, "..."]:
    """Make an array of the usual type, also from integers: equal worlds then share their compilations."""
    return jnp.asarray(numbers, float)
