r"""How many more rounds until a choice is settled, as far as one can expect.

What is believed of the lead of an action over another is normal, and its variance after so many rounds more does not
depend on what will be seen (`ilb.models.calibration`): the lead $L$ with variance $s^2$ becomes $L_m \sim N(L, s^2 -
s_m^2)$ with variance $s_m^2$. Whichever of the two is then expected to be better is so with the probability $E\,
\Phi(|L_m| / s_m)$.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.special import ndtr, ndtri

from ilb.models.calibration import Calibration
from ilb.models.latent import LatentModel, LinearReward

SETTLED = 0.95
"""The probability of being best, or better than a rival, from which a choice is called settled."""

ROUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of rounds that are tried."""

POINTS = ndtri((np.arange(101) + 0.5) / 101)
"""Equally probable points of a standard normal distribution."""


class Settling:
    """The variances of a model, by which rounds to come are judged."""

    def __init__(self, known: Calibration, encoded_dim: int, memory: float = 1.0) -> None:
        self._known = known
        self.memory = memory
        self._is_shown = np.arange(len(known.prior_precision)) < encoded_dim

    @staticmethod
    def of(model: LatentModel) -> Settling | None:
        """Read them off a model with linear rewards; others do not say how much a round teaches."""
        if not isinstance(model.reward, LinearReward):
            return None
        return Settling(Calibration.of(model, model.reward), model.encoded_dim, float(model.noise.memory))

    @property
    def everybody(self) -> Float[np.ndarray, " K"]:
        """What is expected of each action before anything is seen of a person."""
        return self._known.intercept

    def rounds(
        self,
        expected: Float[np.ndarray, "people K"],
        allowed: Bool[np.ndarray, "people K"],
        seen: Float[np.ndarray, " people"] | Int64[np.ndarray, " people"],
        pulls: Float[np.ndarray, "people K"],
    ) -> Float[np.ndarray, " people"]:
        """Say after how many rounds it can be expected that, of the best action and any other, the better is known.

        That is with probability `SETTLED`, and infinite if it takes too many rounds. In the rounds to come the best and
        all rivals that may be better, so far as is known now, are taken in turn, and each round has a context. Where
        the model forgets, `seen` and `pulls` are what old rounds still count for, and fade on.
        """
        people = np.arange(len(expected))
        best = np.argmax(np.where(allowed, expected, -np.inf), axis=1)
        lead = expected[people, best][:, None] - expected
        rivals = allowed & (np.arange(expected.shape[1]) != best[:, None])
        before = np.maximum(self.lead_variance(best, seen, pulls), 1e-24)
        # More rounds never make the better of two less sure: who is behind for certain needs none.
        in_turn = rivals & (ndtr(-lead / np.sqrt(before)) > 1 - SETTLED)
        in_turn[people, best] = True
        shares = in_turn / in_turn.sum(axis=1, keepdims=True)
        found = np.full(len(expected), np.inf)
        for rounds in reversed(ROUNDS):
            kept, added = self.memory**rounds, float(np.sum(self.memory ** np.arange(rounds)))
            after = np.maximum(self.lead_variance(best, kept * seen + added, kept * pulls + added * shares), 1e-24)
            then = lead[..., None] + np.sqrt(np.maximum(before - after, 0.0))[..., None] * POINTS
            wrong = ndtr(-np.abs(then) / np.sqrt(after)[..., None]).mean(axis=-1)
            found[np.where(rivals, wrong, 0.0).max(axis=1) <= 1 - SETTLED] = rounds
        return found

    def lead_variance(
        self,
        best: Int64[np.ndarray, " people"],
        seen: Float[np.ndarray, " people"] | Int64[np.ndarray, " people"],
        pulls: Float[np.ndarray, "people K"],
    ) -> Float[np.ndarray, "people K"]:
        r"""Give the variance of how far the action `best` is ahead of each other, after contexts and rewards.

        Given v, the expected reward of action a is $(1 - g_a) \theta_a^\top v$ and a number, with the variance
        $\omega_a (1 - g_a)$ of its own, where $g_a = N_a \omega_a / (\sigma_a^2 + N_a \omega_a)$.
        """
        known, people = self._known, np.arange(len(best))
        pooled = known.reward_variance + pulls * known.own_variance
        gain = pulls * known.own_variance / pooled
        precision = np.einsum("ua,ai,aj->uij", pulls / pooled, known.theta, known.theta)
        diagonal = known.prior_precision + np.where(self._is_shown, seen[:, None], 0.0)
        precision += diagonal[:, :, None] * np.eye(len(known.prior_precision))
        slopes = (1 - gain)[:, :, None] * known.theta
        own = known.own_variance * (1 - gain)
        apart = slopes[people, best][:, None] - slopes
        explained = np.einsum("uai,uij,uaj->ua", apart, np.linalg.inv(precision), apart)
        return np.asarray(explained + own + own[people, best][:, None])
