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
    any_effect: bool = False
    """Whether own effects may be as large as all that people and actions differ by, levels included."""
    relevant: bool = True
    """Whether contexts say of rewards what they said in the logs, or nothing."""
    weight: float = 1.0
    """How much of the doubt it gets, beside others."""


HYPOTHESES = (
    Hypothesis("the model describes this person"),
    Hypothesis("actions have effects of their own on this person", own=0.3, weight=2),
    Hypothesis("the contexts mislead a little about this person", bias=0.3, own=0.1),
    Hypothesis("this person is unlike most in the logs", wider=10, bias=1, own=0.1),
    Hypothesis("this person is unlike anybody in the logs", wider=100, bias=3, own=0.1),
    Hypothesis(
        "this person is unlike anybody in the logs, in contexts and rewards", wider=100, bias=3, any_effect=True
    ),
    Hypothesis("what actions do to this person can't be foreseen", any_effect=True, relevant=False, weight=3),
)
"""What may be; the first is what the model says, and holds without doubt.

Those weigh more that cost most where they hold and are not thought of.
"""


LEAST_SPREAD = 0.01
"""The least spread of expected rewards, in units of the variance of a reward: less takes hundreds of plays to see."""


def expected_spread(numbers: Calibration) -> float:
    r"""Give $\rho^2$, how much actions differ for a person, in expected rewards: the unit of effects not in the logs.

    A level that actions share does not matter to who chooses among them, however much people differ in it.
    """
    apart = numbers.theta - numbers.theta.mean(axis=0)
    own = (1 - 1 / len(apart)) * numbers.own_variance.mean()
    spread = np.mean(apart**2 @ (1 / numbers.prior_precision)) + np.var(numbers.intercept) + own
    return float(max(spread, LEAST_SPREAD * numbers.reward_variance.mean()))


def own_variances(hypothesis: Hypothesis, numbers: Calibration) -> Float[np.ndarray, " K"]:
    """Give the variance of what a person has of an action beside what the state explains.

    If contexts say nothing of rewards, what they would have explained is there all the same, and nobody knows it.
    """
    explained = numbers.theta**2 / numbers.prior_precision
    own = numbers.own_variance + hypothesis.own**2 * expected_spread(numbers)
    if hypothesis.any_effect:
        own = own + explained.sum(axis=1).mean() + np.var(numbers.intercept) + numbers.own_variance.mean()
    if not hypothesis.relevant:
        own = own + explained[:, : len(numbers.shift)].sum(axis=1)
    return np.asarray(own)


def prior_weights(
    doubt: float, hypotheses: tuple[Hypothesis, ...], learned: Float[np.ndarray, " known"]
) -> Float[np.ndarray, " H"]:
    """Share out the probability before anything is seen of a person.

    The model is wrong as often as it was for people not seen (`learned`, empty if that is not known), and `doubt` more,
    shared by weight. Without doubt it is right.

    >>> sound, own, mislead = HYPOTHESES[:3]
    >>> prior_weights(0.3, (sound, own, mislead), np.zeros(0)).round(3).tolist()
    [0.7, 0.2, 0.1]
    >>> prior_weights(0.3, (sound, own, mislead), np.array([0.5, 0.5, 0.0])).round(3).tolist()
    [0.35, 0.55, 0.1]
    >>> prior_weights(0.0, (sound, own, mislead), np.array([0.5, 0.5, 0.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    right: Float[np.ndarray, " H"] = np.eye(len(hypotheses))[0]
    others = np.array([hypothesis.weight for hypothesis in hypotheses]) * (1 - right)
    if not np.any(others) or not doubt:
        return right
    if len(learned) != len(hypotheses):
        learned = right
    return np.asarray((1 - doubt) * learned + doubt * others / others.sum())
