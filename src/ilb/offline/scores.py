"""How good a model is (Table tab:test), each score with its standard error, beside three reference lines.

Standard errors are jackknife estimates over test instances: the rows of one instance share its latent state, so rows
are not independent and instances are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment

from ilb.errors import IlbWarning
from ilb.estimates import Estimate, jackknife, jackknife_sums, r_squared
from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import Affine, IdentityEncoder
from ilb.offline.encodings import encode_contexts, instance_means
from ilb.offline.fit import complete_model
from ilb.offline.rewards.recipe import reward_cells
from ilb.types import Encoder


class Truth(NamedTuple):
    """What only a simulation knows of its instances: latent states and expected rewards of all actions."""

    latents: Float[np.ndarray, "I n"]
    mean_rewards: Float[np.ndarray, "I K"]


class FitScores(NamedTuple):
    """One line of Table tab:test; scores that need the truth are None on real logs."""

    reward_r2: Estimate
    potential_r2: Estimate | None = None
    best_action: Estimate | None = None
    mcc: Estimate | None = None
    affine_mcc: Estimate | None = None
    affine_r2: Estimate | None = None


def mean_correlation(
    training_encodings: Float[np.ndarray, "rows n"],
    mean_encodings: Float[np.ndarray, "I n"],
    latents: Float[np.ndarray, "I n"],
    seed: int = 0,
) -> Estimate:
    """MCC as the paper does it: FastICA, fitted on training encodings, then Hungarian matching of coordinates.

    With Gaussian latent states the rotation is not identifiable, and even the truth scores well below 1; read it beside
    `affine_correlation`, which asks what Theorem id_latent promises.
    """
    from sklearn.decomposition import FastICA  # slow to import, and few need it
    from sklearn.exceptions import ConvergenceWarning

    # A coordinate that is constant, or made of others, is no source; a latent without a source counts as not found.
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(training_encodings, rowvar=False)))
    free = directions[:, variances > 1e-9 * variances[-1]]
    ica = FastICA(random_state=seed, whiten="unit-variance", max_iter=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ica.fit(training_encodings @ free)
    sources = ica.transform(mean_encodings @ free)
    rows, columns = linear_sum_assignment(-np.abs(_correlations(sources, latents)))

    def matched(index: np.ndarray) -> float:
        return float(np.abs(_correlations(sources[index], latents[index])[rows, columns]).sum() / latents.shape[1])

    return jackknife(matched, len(latents))


def _correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    a, b = first - first.mean(axis=0), second - second.mean(axis=0)
    scale = np.outer(np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0))
    return np.asarray(a.T @ b / np.maximum(scale, 1e-300))


def align(encodings: Float[np.ndarray, "I m"], latents: Float[np.ndarray, "I n"]) -> Callable[[np.ndarray], np.ndarray]:
    """Fit the best affine map from mean encodings to latent states (thm:id_latent leaves this map open)."""
    design = np.concatenate([encodings, np.ones((len(encodings), 1))], axis=1)
    coefficients = np.linalg.lstsq(design, latents, rcond=None)[0]
    return lambda other: np.asarray(other @ coefficients[:-1] + coefficients[-1])


def affine_correlation(aligned: Float[np.ndarray, "I n"], latents: Float[np.ndarray, "I n"]) -> Estimate:
    """Mean correlation of each latent coordinate with its aligned estimate."""
    return jackknife(lambda index: float(np.diag(_correlations(aligned[index], latents[index])).mean()), len(latents))


def share_of_best(
    estimate: Float[np.ndarray, "decisions K"], truth: Float[np.ndarray, "decisions K"], instance: np.ndarray
) -> Estimate:
    """How often the action that looks best is the best one; decisions of one instance are left out together."""
    right = (estimate.argmax(axis=1) == truth.argmax(axis=1)).astype(float)
    sums = np.stack([np.bincount(instance, weights=right), np.bincount(instance)], axis=1)
    return jackknife_sums(lambda sums: sums[..., 0] / sums[..., 1], sums)


def score_model(
    model: LatentModel, test: Logs, truth: Truth | None = None, training: tuple[Logs, Truth] | None = None
) -> FitScores:
    """Score a model on instances it has not seen.

    `truth` adds the scores that need potential rewards; `training`, with its truth, those that compare latent states
    (the affine map and the ICA rotation are fitted there, never on the test instances).
    """
    test.require_any_reward()
    test = model.read(test)
    mean_encodings = instance_means(encode_contexts(model.encoder, test.context), test.starts)
    estimate = np.asarray(jax.vmap(model.encoded_reward)(jnp.asarray(mean_encodings, jnp.float32)), dtype=np.float64)
    seen = test.rewarded
    instance, action = test.instance[seen], test.action[seen]
    scores = FitScores(r_squared(estimate[instance, action], test.reward[seen].astype(np.float64), instance))
    if truth is None:
        return scores
    everyone = np.repeat(np.arange(len(estimate)), estimate.shape[1])
    scores = scores._replace(
        potential_r2=r_squared(estimate.ravel(), truth.mean_rewards.ravel().astype(np.float64), everyone),
        best_action=share_of_best(estimate, truth.mean_rewards, np.arange(len(estimate))),
    )
    if training is None:
        return scores
    logs, known = training
    logs = model.read(logs)
    encodings = encode_contexts(model.encoder, logs.context)
    if not np.any(np.ptp(encodings, axis=0)):
        return scores
    training_means = instance_means(encodings, logs.starts)
    aligned = align(training_means, known.latents)(mean_encodings)
    coordinates = np.repeat(np.arange(len(aligned)), aligned.shape[1])
    centred = truth.latents - truth.latents.mean(axis=0)
    offset = aligned - truth.latents.mean(axis=0)
    scores = scores._replace(
        affine_mcc=affine_correlation(aligned, truth.latents),
        affine_r2=r_squared(offset.ravel(), centred.ravel(), coordinates),
    )
    if encodings.shape[1] == truth.latents.shape[1]:
        scores = scores._replace(mcc=mean_correlation(encodings, mean_encodings, truth.latents))
    return scores


def reference_models(training: Logs, oracle: Encoder | None = None) -> Mapping[str, LatentModel]:
    """Fit the reference lines on the training logs.

    *oracle*: the true encoder with least-squares rewards, the limit of any encoder; *mean contexts*: least squares on
    contexts, no network; *best on average*: the same prediction for everybody. What is to be said of their fits is no
    concern of whoever wants to know of another model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IlbWarning)
        references = {} if oracle is None else {"oracle": complete_model(oracle, training)}
        on_contexts = complete_model(IdentityEncoder(), training)
    references["mean contexts"] = on_contexts
    cells = reward_cells(training)
    weight = np.bincount(cells.action, weights=cells.rows, minlength=training.actions)
    total = np.bincount(cells.action, weights=cells.rows * cells.mean, minlength=training.actions)
    overall = total.sum() / weight.sum()
    average = np.where(weight > 0, total / np.maximum(weight, 1), overall)
    # An encoder that sees nothing: every instance gets the same prediction.
    blind = Affine(jnp.zeros((training.width, 1)), jnp.zeros(1))
    constant = LinearReward.known(jnp.zeros((training.actions, 1)), jnp.asarray(average, jnp.float32))
    seen = on_contexts.noise
    noise = NoiseLevels(jnp.eye(1), jnp.zeros(1), jnp.eye(1), seen.reward_variance, seen.leftover_variance)
    references["best on average"] = LatentModel(blind, constant, noise, training.schema)
    return references
