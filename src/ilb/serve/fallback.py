"""The declared fallback: what is done when the model does not answer, with its true propensity.

The draw is a function of person and idempotency key alone. A client that does not reach the server makes the same one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

Scalar = str | int | float | bool

UNIFORM = "uniform"


class Drawn(NamedTuple):
    """An action, and with what probability each was to be drawn."""

    action: Scalar
    propensity: float
    propensities: dict[str, float]


def draw(declared: Scalar | None, allowed: Sequence[Scalar], person: str, key: str) -> Drawn:
    """Draw the declared action, if it is allowed; otherwise, and without one, draw uniformly from the allowed.

    >>> draw("usual care", ["drug", "usual care"], "anna", "visit-1").action
    'usual care'
    >>> draw(None, ["drug", "usual care"], "anna", "visit-1").propensity
    0.5
    """
    text = str(declared)
    fixed = [action for action in allowed if declared is not None and str(action) == text]
    choices = fixed or list(allowed)
    digest = hashlib.sha256(json.dumps(["ilb-fallback", person, key]).encode()).digest()
    action = choices[int.from_bytes(digest[:8], "big") % len(choices)]
    propensity = 1 / len(choices)
    return Drawn(action, propensity, {str(one): propensity if one in choices else 0.0 for one in allowed})
