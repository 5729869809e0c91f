"""What a reward recipe is, what it is given (rewards by cells), and how the variances around its model are measured.

Rows of one instance with the same action share their mean encoding, so all sums are over *cells* (instance, action).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from ilb.errors import RareActionWarning
from ilb.logs import Logs
from ilb.models.moments import AbstractMoment
from ilb.offline.training import Keys
from ilb.types import Report, RewardModel, silent

PRIOR_ROWS = 10
"""Weight, in rows, of the pooled reward variance in the variance of one action."""


class Cells(NamedTuple):
    """Rewards by (instance, action): how many, their mean, and their squared deviations from it."""

    instance: Int[np.ndarray, " cells"]
    action: Int[np.ndarray, " cells"]
    rows: Int[np.ndarray, " cells"]
    mean: Float[np.ndarray, " cells"]
    deviation: Float[np.ndarray, " cells"]

    def where(self, kept: Bool[np.ndarray, " cells"]) -> Cells:
        return Cells(*(part[kept] for part in self))


def reward_cells(logs: Logs) -> Cells:
    """Sum the logged rewards by instance and action; rows without an action or a reward are left out."""
    logs.require_any_reward()
    seen = logs.rewarded
    code = logs.instance[seen].astype(np.int64) * logs.actions + logs.action[seen]
    cells, index, count = np.unique(code, return_inverse=True, return_counts=True)
    reward = logs.reward[seen].astype(np.float64)
    mean = np.bincount(index, weights=reward) / count
    deviation = np.bincount(index, weights=(reward - mean[index]) ** 2)
    return Cells(cells // logs.actions, cells % logs.actions, count, mean, deviation)


class RewardRows(NamedTuple):
    """The rows of a table that have both an action and a reward."""

    person: Int[np.ndarray, " rows"]
    action: Int[np.ndarray, " rows"]
    reward: Float[np.ndarray, " rows"]
    context: Float[np.ndarray, "rows d"]

    @classmethod
    def of(cls, logs: Logs) -> RewardRows:
        seen = logs.rewarded
        return cls(logs.instance[seen], logs.action[seen], logs.reward[seen].astype(np.float64), logs.context[seen])


class RewardTask(NamedTuple):
    """What the logs say of rewards once contexts are encoded.

    A mean encoding of `lengths[i]` rows has the sampling covariance `encoding_covariance` / T_i; `labels` are those of
    the actions. `rows` are for recipes that look at the context of the moment, too.
    """

    mean_encodings: Float[np.ndarray, "I n"]
    cells: Cells
    labels: Sequence[Any]
    encoding_covariance: Float[np.ndarray, "n n"]
    lengths: Int[np.ndarray, " I"]
    rows: RewardRows | None = None


class Population(NamedTuple):
    """Mean and covariance of the states of people, those coordinates included that only rewards show."""

    mean: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]


class RewardFit(NamedTuple):
    """The reward model and the variances around it; `notes` and `interrupted` go into the provenance of the model.

    A recipe that estimates the population of states says so; else it is that of the encodings.
    """

    reward: RewardModel
    reward_variance: Float[np.ndarray, " K"]
    leftover_variance: float
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    population: Population | None = None
    moment: AbstractMoment | None = None


@runtime_checkable
class RewardRecipe(Protocol):
    """Anything that learns mu_a(z) from mean encodings and rewards (Alg. 1, offline line 2).

    A recipe that inherits from this has to say only how to `train`.
    """

    def train(self, keys: Keys, tasks: Sequence[RewardTask], report: Report = silent) -> list[RewardFit]:
        """Fit one reward model for each key and task."""
        ...

    def hastened(self) -> RewardRecipe:
        """Stop earlier: near enough to compare candidates."""
        return self


def measure_reward_variance(cells: Cells, groups: Sequence[np.ndarray], unexplained: float) -> Float[np.ndarray, " K"]:
    """Pool deviations within cells, which no error of the model can touch; actions share strength.

    Where no action was ever repeated in an instance, noise and effects of instance x action can't be told apart, and
    all that the model leaves unexplained is taken as noise.
    """
    freedom = np.array([(cells.rows[g] - 1).sum() for g in groups])
    deviation = np.array([cells.deviation[g].sum() for g in groups])
    pooled = max(float(deviation.sum() / freedom.sum()) if freedom.sum() > 0 else unexplained, 1e-12)
    return np.asarray((deviation + PRIOR_ROWS * pooled) / (freedom + PRIOR_ROWS))


def measure_leftover_variance(
    cells: Cells,
    residual: Float[np.ndarray, " cells"],
    variance: Float[np.ndarray, " K"],
    blur: Float[np.ndarray, " cells"],
    parameters: int,
) -> float:
    """Find by moments what of the cells' residuals neither reward noise nor the noise of mean encodings explains."""
    expected = variance[cells.action] / cells.rows + blur
    weight = 1 / expected
    inflation = len(residual) / max(len(residual) - parameters, 1)
    excess = np.sum(weight * (inflation * residual**2 - expected)) / np.sum(weight)
    return max(float(excess), 0.0)


def warn_of_unseen_actions(task: RewardTask) -> None:
    """Warn of actions that no row with a reward has."""
    unseen = np.setdiff1d(np.arange(len(task.labels)), task.cells.action)
    if len(unseen):
        listed = ", ".join(repr(task.labels[a]) for a in unseen[:5]) + (", ..." if len(unseen) > 5 else "")
        warnings.warn(
            f"{len(unseen)} of {len(task.labels)} actions have no reward at all: {listed}. They are predicted to give "
            "the mean reward of all actions; drop them or collect rows.",
            RareActionWarning,
            stacklevel=4,
        )
