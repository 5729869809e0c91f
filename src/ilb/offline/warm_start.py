"""What linear bandits can learn from logs: a regression of rewards on contexts for each action (Oetomo et al. 2023)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.priors import ContextRegression


def fit_context_regression(logs: Logs, ridge: float = 1.0) -> ContextRegression:
    """Regress each action's rewards on the contexts of their rows; rows without an action or a reward are left out.

    >>> logs = Logs.from_arrays([[[1.0], [2.0]]], [[0, 0]], [[3.0, 6.0]], actions=2)
    >>> regression = fit_context_regression(logs)
    >>> regression.precision.ravel().tolist(), regression.moment.ravel().tolist()
    ([6.0, 1.0], [15.0, 0.0])
    """
    if not ridge > 0:
        raise FitError(f"ridge must be positive, or actions without rewards have no prior; got ridge={ridge}.")
    seen = (logs.action >= 0) & np.isfinite(logs.reward)
    if not np.any(seen):
        raise FitError(
            f"no row has both an action (column {logs.schema.action!r}) and a reward (column {logs.schema.reward!r}), "
            "so there is nothing to start warm from. Check the names of the columns."
        )
    precision = np.tile(ridge * np.eye(logs.width), (logs.actions, 1, 1))
    moment = np.zeros((logs.actions, logs.width))
    for action in range(logs.actions):
        rows = seen & (logs.action == action)
        context = logs.context[rows].astype(np.float64)
        precision[action] += context.T @ context
        moment[action] = context.T @ logs.reward[rows].astype(np.float64)
    return ContextRegression(jnp.asarray(precision, jnp.float32), jnp.asarray(moment, jnp.float32))
