"""History: what came of playing, as arrays by instance and round, with the summaries that papers print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float, Int

from ilb.errors import DecisionError
from ilb.estimates import Estimate
from ilb.logs.messages import counted


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """Actions, noise-free regret and whether the action was a best one, for each instance and round.

    `expected_rewards` holds what the policy expected of all actions in each round, where that was asked for.
    """

    actions: Int[np.ndarray, "I T"]
    regret: Float[np.ndarray, "I T"]
    optimal: Bool[np.ndarray, "I T"]
    expected_rewards: Float[np.ndarray, "I T K"] | None = None

    @property
    def instances(self) -> int:
        """The number of instances played."""
        return len(self.regret)

    @property
    def horizon(self) -> int:
        """The number of rounds of each."""
        return int(self.regret.shape[1])

    def __repr__(self) -> str:
        return f"History({counted(self.instances, 'instance')}, {counted(self.horizon, 'round')})"

    def cumulative_regret(self) -> Float[np.ndarray, "I T"]:
        """Sum the regret up to each round, in double precision."""
        return np.cumsum(self.regret, axis=1, dtype=np.float64)

    def regret_at(self, rounds: int) -> Estimate:
        """Estimate the cumulative regret after that many rounds: mean, standard error over instances, median."""
        self._require(rounds)
        return Estimate.of(self.regret[:, :rounds].sum(axis=1, dtype=np.float64), median=True)

    def optimal_share(self, first: int = 0, last: int | None = None) -> Estimate:
        """Estimate how often a best action is taken in these rounds."""
        return Estimate.of(self.optimal[:, first:last].mean(axis=1), median=True)

    def _require(self, rounds: int) -> None:
        if not 1 <= rounds <= self.horizon:
            raise DecisionError(f"{self.horizon:,} rounds were played; there is nothing to say of round {rounds:,}.")

    def to_frame(
        self, rounds: Sequence[int] | None = None, backend: Literal["pandas", "polars", "pyarrow"] = "pandas"
    ) -> Any:
        """Give a tidy table: one row for each instance and round (all, or the given ones, counted from 1)."""
        for number in rounds or ():
            self._require(number)
        kept = np.arange(self.horizon) if rounds is None else np.asarray(rounds) - 1
        cumulative = self.cumulative_regret()[:, kept]
        columns = {
            "instance": np.repeat(np.arange(self.instances), len(kept)),
            "round": np.tile(kept + 1, self.instances),
            "action": self.actions[:, kept].ravel(),
            "regret": self.regret[:, kept].ravel(),
            "cumulative_regret": cumulative.ravel(),
            "optimal": self.optimal[:, kept].ravel(),
        }
        return nw.from_dict(columns, backend=backend).to_native()
