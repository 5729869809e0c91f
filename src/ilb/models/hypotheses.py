r"""How wrong a model may be for a person: hypotheses, in units that every model has.

The adaptive belief (`ilb.online.adaptive`) weighs them by what a person shows, and a fit (`ilb.offline.misfits`) by how
often each described people whom it had not seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ilb.models.calibration import Calibration


class Hypothesis(NamedTuple):
    """How wrong the model may be for a person."""

    says: str
    wider: float = 1.0
    r"""$\kappa$: the variance of the population, in units of that in the logs."""
    bias: float = 0.0
    r"""$\beta$: the encoder's bias, in units of the noise of one encoding."""
    own: float = 0.0
    r"""$\tau$: own effects of person and action, in units of the spread of expected rewards."""
    relevance: float = 1.0
    r"""$\gamma$: 1 where rewards follow the latent state as in the logs, 0 where they have nothing to do with it."""


HYPOTHESES = (
    Hypothesis("the model describes this person"),
    Hypothesis("actions have effects of their own on this person", own=0.3),
    Hypothesis("the contexts mislead a little about this person", bias=0.3, own=0.1),
    Hypothesis("this person is unlike most in the logs", wider=10, bias=1, own=0.1),
    Hypothesis("this person is unlike anybody in the logs", wider=100, bias=3, own=0.1),
    Hypothesis("this person is unlike anybody in the logs, in contexts and rewards", wider=100, bias=3, own=1),
    Hypothesis("the contexts of this person say nothing about the rewards", own=1, relevance=0),
)
"""What may be; the first is what the model says, and holds without doubt."""


def expected_spread(numbers: Calibration) -> float:
    r"""Give $\rho^2$, the variance of expected rewards over people and actions: the unit of effects not in the logs."""
    return float(np.mean(numbers.theta**2 @ (1 / numbers.prior_precision)) + np.var(numbers.intercept))


def prior_weights(
    doubt: float, hypotheses: tuple[Hypothesis, ...], learned: Float[np.ndarray, " known"]
) -> Float[np.ndarray, " H"]:
    """Share out the probability before anything is seen of a person.

    The model is wrong as often as it was for people not seen (`learned`, empty if that is not known), and `doubt` more,
    in equal parts. Without doubt it is right.

    >>> prior_weights(0.1, HYPOTHESES[:3], np.zeros(0)).tolist()
    [0.9, 0.05, 0.05]
    >>> prior_weights(0.1, HYPOTHESES[:3], np.array([0.5, 0.5, 0.0])).round(3).tolist()
    [0.45, 0.5, 0.05]
    >>> prior_weights(0.0, HYPOTHESES[:3], np.array([0.5, 0.5, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    right: Float[np.ndarray, " H"] = np.eye(len(hypotheses))[0]
    others = len(hypotheses) - 1
    if not others or not doubt:
        return right
    if len(learned) != len(hypotheses):
        learned = right
    return np.asarray((1 - doubt) * learned + doubt / others * (1 - right))
