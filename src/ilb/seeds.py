"""What a seed is: an integer that a stream of random numbers can begin with."""

from __future__ import annotations

import operator
from typing import Any

from ilb.errors import SeedError

SEEDS = 2**32
"""So many different seeds there are; JAX takes larger integers and drops all bits but the last 32 without a word."""


def as_seed(value: Any, least: int = 0, beyond: int = SEEDS) -> int:
    """Give a seed as a Python integer, or refuse it.

    >>> as_seed(7)
    7
    >>> as_seed(2**32)
    Traceback (most recent call last):
    ilb.errors.SeedError: a seed is an integer from 0 to 2^32 - 1; got 4294967296.
    """
    try:
        seed = operator.index(value)
    except TypeError:
        seed = None
    if seed is None or not least <= seed < beyond:
        lower = "0" if least == 0 else f"-2^{(-least).bit_length() - 1}"
        raise SeedError(
            f"a seed is an integer from {lower} to 2^{beyond.bit_length() - 1} - 1; got {_brief(value, seed)}."
        )
    return seed


def _brief(value: Any, seed: int | None) -> str:
    if seed is not None and abs(seed).bit_length() > 128:
        return f"one of {abs(seed).bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
