"""Whether people change, and how fast: the drift under which people held out are predicted best, one step ahead."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from ilb.logs import Logs
from ilb.models.drift import NO_DRIFT, Drift
from ilb.models.latent import LatentModel, LinearReward
from ilb.offline.ahead import Foresight, Predictions, join, lead
from ilb.offline.choice import NEGLIGIBLE, some_people
from ilb.types import Report, silent

STARTS = (Drift(0.95, 1.0, 1.0), Drift(0.8, 0.8, 1.4), Drift(0.5, 0.5, 1.4), Drift(0.2, 0.2, 1.4))
"""Where the search may begin. Who forgets has noise around a moment, which is about the share that is remembered.

What encodings vary by within a person is noise in each of them, or change as far as it is slow, whichever is better.
"""

NARROWEST, WIDEST = (0.02, 0.01, 0.25), (0.995, 2.0, 8.0)
"""How far it goes."""

MOST_OFF = np.log(1000.0)
"""How far the variances of people who stay may be off."""

STEP = np.array([0.7, 0.4, 0.4])
"""How far it looks at first: in the logit of the memory, and the logarithms of the variances."""

HOPELESS = 0.02
"""If every start is behind people who stay by so much log-likelihood of a reward, there is nothing to search for."""

TRIES = 30
"""Drifts that are tried after the starts."""

STAYING_TRIES = 40
"""Scales that are tried for people who stay."""

WORTH = 1.0
"""Standard errors by which a memory must beat people who stay.

Who does not forget where people change loses far more than who forgets a little where they stay.
"""

MOST_WORK = 1_000_000
"""People x actions x coordinates² of one try: more people would not say anything else of three numbers."""


def find_drift(pairs: Sequence[tuple[LatentModel, Logs]], rounds: int, report: Report = silent) -> Drift:
    """Find the drift that makes rewards most likely, of people whom the model beside them has not seen.

    None where nobody would notice it, or where its three numbers fit no better than chance would make them. Variances
    that are off for people who stay are no change: a memory must be worth something beside people who stay and may have
    other variances, too, by more than chance.
    """
    if not all(isinstance(model.reward, LinearReward) and np.any(logs.rewarded) for model, logs in pairs):
        return NO_DRIFT
    ahead = [Foresight(model, _some(model, logs)) for model, logs in pairs]

    seen = itertools.count(1)

    def predict(drift: Drift) -> Predictions:
        found = join([one.predict(drift, rounds).of_people(number) for number, one in enumerate(ahead)])
        report(next(seen), 5 + 2 * len(STARTS) + TRIES + STAYING_TRIES, float(found.log_likelihood.mean()))
        return found

    def likelihood(drift: Drift) -> float:
        return float(predict(drift).log_likelihood.mean())

    as_is = predict(NO_DRIFT).log_likelihood
    rewards, staying = len(as_is), float(as_is.mean())
    moving = (0.0, 1.0) if any(np.any(np.asarray(model.noise.moving_covariance)) for model, _ in pairs) else (0.0,)
    tried = {start: likelihood(start) for share in moving for start in _starts(share)}
    best = max(tried, key=lambda drift: tried[drift])
    if tried[best] < staying - HOPELESS:
        return NO_DRIFT
    free = _climb(lambda free: likelihood(_drift(free, best.moving)), _free(best), TRIES)
    drift = _drift(free, best.moving)
    found = predict(drift)
    if found.log_likelihood.mean() <= staying + NEGLIGIBLE + (len(free) + best.moving) / rewards:
        return NO_DRIFT
    begin = max((np.zeros(2), free[1:]), key=lambda free: likelihood(_still(free)))
    scales = _climb(lambda free: likelihood(_still(free)), begin, STAYING_TRIES)
    gain = lead(found, predict(_still(scales)))
    # Of one person alone there is no standard error, and nothing is sure.
    sure = gain.value > NEGLIGIBLE + 1 / rewards and gain.value > WORTH * gain.standard_error
    return drift if sure else NO_DRIFT


def _starts(moving: float) -> list[Drift]:
    return [start._replace(moving=moving) for start in STARTS]


def _climb(height: Callable[[np.ndarray], float], begin: np.ndarray, tries: int) -> np.ndarray:
    """Look for the highest point, in so many tries."""
    from scipy.optimize import minimize  # slow to import, and few tables need it

    corners = np.vstack([begin, begin + np.diag(STEP[-len(begin) :])])
    options: Any = {"maxfev": tries, "initial_simplex": corners}
    found = minimize(lambda free, *_: -height(free), begin, method="Nelder-Mead", options=options)
    return np.asarray(found.x)


def _some(model: LatentModel, logs: Logs) -> Logs:
    """Take as many people as are enough."""
    work = logs.actions * (len(model.noise.population_mean) + 1) ** 2
    return some_people(logs, max(MOST_WORK // work, 50))


def _free(drift: Drift) -> Float[np.ndarray, " 3"]:
    return np.array([logit(drift.memory), np.log(drift.noise), np.log(drift.state)])


def _drift(free: Float[np.ndarray, " 3"], moving: float) -> Drift:
    values = np.array([expit(free[0]), *np.exp(free[1:])])
    memory, noise, state = np.clip(values, NARROWEST, WIDEST).round(4).tolist()
    return Drift(memory, noise, state, moving)


def _still(scales: Float[np.ndarray, " 2"]) -> Drift:
    """Give people who stay, with other variances."""
    return Drift(1.0, *np.exp(np.clip(scales, -MOST_OFF, MOST_OFF)).tolist())
