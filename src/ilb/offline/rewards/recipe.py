"""What a reward recipe is: a frozen set of numbers with one method, `train`, for any number of models at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ilb.offline.rewards.linear import Cells, RewardFit, fit_linear_reward
from ilb.types import Report, silent


class RewardTask(NamedTuple):
    """What the logs say of rewards once contexts are encoded.

    A mean encoding of `lengths[i]` rows has the sampling covariance `encoding_covariance` / T_i; `labels` are those of
    the actions.
    """

    mean_encodings: Float[np.ndarray, "I n"]
    cells: Cells
    labels: Sequence[Any]
    encoding_covariance: Float[np.ndarray, "n n"]
    lengths: Int[np.ndarray, " I"]


@runtime_checkable
class RewardRecipe(Protocol):
    """Anything that learns mu_a(z) from mean encodings and rewards (Alg. 1, offline line 2)."""

    def train(self, keys: PRNGKeyArray, tasks: Sequence[RewardTask], report: Report = silent) -> list[RewardFit]:
        """Fit one reward model for each key and task."""
        ...


@dataclass(frozen=True)
class LinearRewardRecipe:
    """Least squares for each action (thm:reward): the default, and what FPG and the calibrated posterior need."""

    def train(self, keys: PRNGKeyArray, tasks: Sequence[RewardTask], report: Report = silent) -> list[RewardFit]:
        """Fit in closed form; nothing is drawn and there is nothing to report."""
        del keys, report
        return [fit_linear_reward(*task) for task in tasks]
