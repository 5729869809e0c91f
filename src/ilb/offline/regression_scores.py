"""How good a recurrent regression is (Table fit_results), after whole histories or after every prefix of them.

The paper's share of best actions averages over all prefixes for the regression, and uses the whole history for latent
variable models: to compare like with like, both are here.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.offline.scores import FitScores, Score, Truth, jackknife_sums, r_squared
from ilb.recurrent import RecurrentRegression

INSTANCES_AT_ONCE = 256
"""Histories that are run side by side: bounds the memory."""


def predict_prefixes(model: RecurrentRegression, logs: Logs) -> Float[np.ndarray, "rows K"]:
    """Predict the rewards of all actions at each row, from the contexts of its instance up to it."""
    size, rounds = min(INSTANCES_AT_ONCE, logs.instances), int(logs.lengths.max())
    predictions = np.empty((logs.rows, model.actions), np.float32)
    time = np.arange(rounds)
    for first in range(0, logs.instances, size):
        # The last batch is filled up with the last instance, so that one program serves all.
        batch = np.minimum(np.arange(first, first + size), logs.instances - 1)
        row = np.minimum(logs.starts[batch][:, None] + time, logs.rows - 1)
        values = np.asarray(_run_each(model.bare(), jnp.asarray(logs.context[row])))
        present = time < logs.lengths[batch][:, None]
        predictions[row[present]] = values[present]
    return predictions


@eqx.filter_jit
def _run_each(model: RecurrentRegression, contexts: Float[Array, "I T d"]) -> Float[Array, "I T K"]:
    values: Float[Array, "I T K"] = jax.vmap(model.run)(contexts)
    return values


def score_regression(
    model: RecurrentRegression, test: Logs, truth: Truth | None = None, prefix: Literal["full", "all"] = "full"
) -> FitScores:
    """Score a recurrent regression on instances it has not seen.

    With the `prefix` "full" an instance is predicted from all its contexts, as `score_model` does; with "all" each row
    is predicted from the contexts up to it, and scores average over rows. `truth` adds those that need it.
    """
    if prefix not in ("full", "all"):
        raise FitError(f'prefix is {prefix!r}; expected "full" or "all".')
    seen = (test.action >= 0) & np.isfinite(test.reward)
    if not np.any(seen):
        raise FitError("no row of the test logs has both an action and a reward, so there is nothing to score against.")
    estimate = predict_prefixes(model, test).astype(np.float64)
    # One line for each decision that is scored, and the instance it belongs to.
    if prefix == "full":
        owner = np.arange(test.instances)
        estimate = estimate[test.starts[1:] - 1]
        decision = test.instance[seen]
    else:
        owner = test.instance.astype(np.int64)
        decision = np.flatnonzero(seen)
    target, instance = test.reward[seen].astype(np.float64), test.instance[seen]
    scores = FitScores(r_squared(estimate[decision, test.action[seen]], target, instance))
    if truth is None:
        return scores
    potential = truth.mean_rewards[owner].astype(np.float64)
    return scores._replace(
        potential_r2=r_squared(estimate.ravel(), potential.ravel(), np.repeat(owner, estimate.shape[1])),
        best_action=_share_of_best(estimate, potential, owner),
    )


def _share_of_best(
    estimate: Float[np.ndarray, "decisions K"], truth: Float[np.ndarray, "decisions K"], owner: np.ndarray
) -> Score:
    """Find how often the best action looks best; decisions of one instance are left out together."""
    right = (estimate.argmax(axis=1) == truth.argmax(axis=1)).astype(float)
    sums = np.stack([np.bincount(owner, weights=right), np.bincount(owner)], axis=1)
    return jackknife_sums(lambda sums: sums[..., 0] / sums[..., 1], sums)
