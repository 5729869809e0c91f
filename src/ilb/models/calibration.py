r"""What the calibrated belief rests on, computed once from a model, in float64 and in a basis of its own.

There, noise has covariance one and the population is centred and uncorrelated, so that numbers are well-conditioned
whatever the encoder, and results do not depend on the encoder's basis. Decisions (`ilb.online`) and the prediction of
logged rewards (`ilb.offline.ahead`) share it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ilb.models.latent import LatentModel, LinearReward, canonical_basis

SMALLEST_POPULATION = 1e-4
"""The least variance of the population, in units of the noise of one encoding, that a belief takes seriously."""

SMALLEST_NOISE = 1e-4
"""The least variance of a reward, in units of the variance of expected rewards, that a belief takes seriously."""


class Calibration(NamedTuple):
    r"""The numbers behind the posterior of v = (z, u).

    An encoding e is `e @ matrix + shift` in the basis, where its noise is one; hidden coordinates u stand behind. What
    is not known of the coefficients of an action differs from person to person and lasts, like an effect of person and
    action: `own_variance` is $\tau^2 + E[\phi^\top C_a \phi]$ with $\phi = (v, 1)$ over the population.
    """

    matrix: Float[np.ndarray, "n n"]
    shift: Float[np.ndarray, " n"]
    theta: Float[np.ndarray, "K p"]
    intercept: Float[np.ndarray, " K"]
    prior_precision: Float[np.ndarray, " p"]
    reward_variance: Float[np.ndarray, " K"]
    own_variance: Float[np.ndarray, " K"]

    @classmethod
    def of(cls, model: LatentModel, reward: LinearReward) -> Calibration:
        """Compute them for a model whose rewards are this linear model."""
        noise, n = model.noise, model.encoded_dim
        mean, population = (np.asarray(x, np.float64) for x in (noise.population_mean, noise.population_covariance))
        variances, matrix, back = canonical_basis(np.asarray(noise.encoding_covariance, np.float64), population[:n, :n])
        theta = np.asarray(reward.theta, np.float64)
        intercept = np.asarray(reward.intercept, np.float64) + theta @ mean
        theta = np.concatenate([theta[:, :n] @ back, theta[:, n:]], axis=1)
        variances = np.maximum(np.r_[variances, np.diag(population)[n:]], SMALLEST_POPULATION)
        # Rewards without any noise would make a single one infinitely precise.
        least = SMALLEST_NOISE * max(float(np.mean(theta**2 @ variances)), 1e-12)
        phi = np.r_[mean, 1.0]
        second = np.outer(phi, phi)
        second[:-1, :-1] += population
        unsure = np.einsum("aij,ij->a", np.asarray(reward.coefficient_covariance, np.float64), second)
        return cls(
            matrix,
            -mean[:n] @ matrix,
            theta,
            intercept,
            1 / variances,
            np.maximum(np.asarray(noise.reward_variance, np.float64), least),
            float(noise.leftover_variance) + np.maximum(unsure, 0.0),
        )
