"""Counts that say what is in the logs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64

from ilb.logs.schema import Schema


@dataclass(frozen=True)
class Summary:
    """How much there is, and how much is missing; `missing_contexts` counts rows with some context value missing."""

    rows: int
    instances: int
    shortest_history: int
    median_history: float
    longest_history: int
    context_columns: int
    actions: int
    missing_contexts: int
    missing_actions: int
    missing_rewards: int

    @classmethod
    def of(
        cls,
        schema: Schema,
        context: Float32[np.ndarray, "N d"],
        action: Int32[np.ndarray, " N"],
        reward: Float32[np.ndarray, " N"],
        lengths: Int64[np.ndarray, " I"],
    ) -> Summary:
        """Count."""
        missing = np.zeros(len(context), dtype=bool)
        for column, block in schema.blocks(context):
            missing |= column.missing(block)
        return cls(
            rows=len(context),
            instances=len(lengths),
            shortest_history=int(lengths.min()),
            median_history=float(np.median(lengths)),
            longest_history=int(lengths.max()),
            context_columns=len(schema.context),
            actions=len(schema.actions),
            missing_contexts=int(missing.sum()),
            missing_actions=int(np.count_nonzero(action < 0)),
            missing_rewards=int(np.count_nonzero(np.isnan(reward))),
        )

    def sentence(self) -> str:
        """The counts in one line."""
        missing = {
            "a missing context": self.missing_contexts,
            "no action": self.missing_actions,
            "no reward": self.missing_rewards,
        }
        lacking = "".join(f", {count:,} rows with {what}" for what, count in missing.items() if count)
        span = f"{self.shortest_history:,} to {self.longest_history:,}"
        if self.shortest_history == self.longest_history:
            span = f"{self.longest_history:,}"
        return (
            f"{self.rows:,} rows of {self.instances:,} instances ({span} each), "
            f"{self.context_columns:,} context columns, {self.actions:,} actions{lacking}"
        )

    def __str__(self) -> str:
        lines = {
            "rows": f"{self.rows:,}",
            "instances": f"{self.instances:,}",
            "rows per instance": f"{self.shortest_history:,} to {self.longest_history:,}, "
            f"median {self.median_history:g}",
            "context columns": f"{self.context_columns:,}",
            "actions": f"{self.actions:,}",
            "rows with a missing context": f"{self.missing_contexts:,}",
            "rows without action": f"{self.missing_actions:,}",
            "rows without reward": f"{self.missing_rewards:,}",
        }
        return "\n".join(f"{name:<28}{value}" for name, value in lines.items())
