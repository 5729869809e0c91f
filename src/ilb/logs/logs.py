"""Past cases as flat arrays: who was seen, what was observed, what was done and what came of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64
from numpy.typing import ArrayLike

from ilb.errors import FitError, LogsError, SchemaError
from ilb.logs.arrays import read_arrays, warn_still_parts
from ilb.logs.frames import write_frame
from ilb.logs.messages import counted, shown
from ilb.logs.reading import Parts, apply, learn
from ilb.logs.roles import assign_roles, names_of
from ilb.logs.schema import Schema
from ilb.logs.splits import earlier_rows, instance_parts
from ilb.logs.summary import Summary
from ilb.logs.tables import open_table, write_table


@dataclass(frozen=True, eq=False, repr=False)
class Logs:
    """A table of logs, sorted by instance and then time.

    Row i belongs to instance `instance[i]`, whose label is `instance_labels[instance[i]]`; the rows of instance u are
    `starts[u]` to `starts[u + 1]`. `action` is -1 and `reward` is NaN where missing; contexts are never missing here,
    for `schema` has filled them in and flagged them.
    """

    schema: Schema
    instance_labels: tuple[Hashable, ...]
    context: Float32[np.ndarray, "N d"]
    instance: Int32[np.ndarray, " N"]
    action: Int32[np.ndarray, " N"]
    reward: Float32[np.ndarray, " N"]
    starts: Int64[np.ndarray, " I+1"]

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        instance: str | None = None,
        time: str | None = None,
        context: Sequence[str] | None = None,
        action: str | None = None,
        reward: str | None = None,
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        schema: Schema | None = None,
    ) -> Logs:
        """Read a pandas, polars or pyarrow frame, or a .csv or .parquet file.

        `instance`, `action` and `reward` name columns, and so do `time` (without it the table's order is kept) and
        `context` (without it all remaining columns, less those in `drop`). Text is categorical, and so are the columns
        in `categorical`.
        With the `schema` of other logs, the table is read as that says and nothing is learned from it; names may
        then be left out.

        >>> import pyarrow as pa
        >>> table = pa.table({
        ...     "patient": ["anna", "anna", "bo", "bo"], "mmse": [24, 25, 29, 30],
        ...     "drug": ["A", "B", "A", "B"], "gain": [1.0, 0.5, None, 2.0],
        ... })
        >>> logs = Logs.from_frame(table, instance="patient", action="drug", reward="gain")
        >>> logs
        Logs(4 rows of 2 instances, 1 context column, 2 actions, 3 rewards)
        >>> Logs.from_frame(table, schema=logs.schema).action
        array([0, 1, 0, 1], dtype=int32)
        """
        table = open_table(frame)
        if schema is not None:
            _require_agreement(schema, instance=instance, time=time, action=action, reward=reward)
            if context is not None or len(categorical) or len(drop):
                raise SchemaError("schema= says which columns are context; leave out context=, categorical= and drop=.")
            return cls.of_parts(apply(table, schema))
        if instance is None or action is None or reward is None:
            given = {"instance=": instance, "action=": action, "reward=": reward}
            lost = " and ".join(role for role, name in given.items() if name is None)
            raise LogsError(f"no column is named for {lost}; the table has {shown(table.columns, 30)}. Name one.")
        roles = assign_roles(
            table.columns,
            instance=instance,
            time=time,
            context=context,
            action=action,
            reward=reward,
            categorical=categorical,
            drop=drop,
        )
        return cls.of_parts(learn(table, roles, names_of(categorical)))

    @classmethod
    def from_arrays(
        cls,
        context: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        instance: ArrayLike | None = None,
        *,
        actions: int | Sequence[Hashable] | None = None,
        names: Sequence[str] | None = None,
    ) -> Logs:
        """Take arrays [I, T, d], [I, T], [I, T], or flat ones [N, d], [N], [N] with `instance` [N], unscaled.

        `action` numbers the actions from 0, with -1 or NaN where missing; `actions` is how many there are, or their
        labels in this order, in case some were never played. Context columns are called `names`, or x1 to xd.

        >>> Logs.from_arrays(np.zeros((3, 2, 4)), np.zeros((3, 2)), np.ones((3, 2)), actions=5)
        Logs(6 rows of 3 instances, 4 context columns, 5 actions, 6 rewards)
        """
        parts = read_arrays(context, action, reward, instance, actions, names)
        warn_still_parts(parts)
        return cls.of_parts(parts)

    @classmethod
    def of_parts(cls, parts: Parts) -> Logs:
        """Take parts that are known to be right; nothing is checked and nothing warned of."""
        lengths = np.bincount(parts.instance, minlength=len(parts.instance_labels))
        return cls(
            schema=parts.schema,
            instance_labels=parts.instance_labels,
            context=parts.context,
            instance=parts.instance.astype(np.int32),
            action=parts.action.astype(np.int32),
            reward=parts.reward,
            starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        )

    @property
    def rows(self) -> int:
        """The number N of rows."""
        return len(self.instance)

    @property
    def instances(self) -> int:
        """The number I of instances."""
        return len(self.instance_labels)

    @property
    def actions(self) -> int:
        """The number K of actions."""
        return len(self.schema.actions)

    @property
    def width(self) -> int:
        """The number d of context columns, as numbers."""
        return self.schema.width

    @property
    def lengths(self) -> Int64[np.ndarray, " I"]:
        """The number of rows of each instance."""
        return np.diff(self.starts)

    @cached_property
    def rewarded(self) -> Bool[np.ndarray, " N"]:
        """The rows that say what was done and what came of it: those with an action and a reward."""
        return np.asarray((self.action >= 0) & np.isfinite(self.reward))

    def require_any_reward(self) -> None:
        """Raise a FitError unless some row has both an action and a reward."""
        if not np.any(self.rewarded):
            raise FitError(
                f"no row has both an action (column {self.schema.action!r}) and a reward (column "
                f"{self.schema.reward!r}), so there is nothing to learn from or to score against. "
                "Check the names of the columns."
            )

    def __repr__(self) -> str:
        shape = f"{counted(self.rows, 'row')} of {counted(self.instances, 'instance')}"
        rewards = int(np.count_nonzero(~np.isnan(self.reward)))
        columns = counted(self.width, "context column")
        return f"Logs({shape}, {columns}, {counted(self.actions, 'action')}, {counted(rewards, 'reward')})"

    def describe(self) -> Summary:
        """Counts to print: how much there is, and how much is missing.

        >>> logs = Logs.from_arrays(np.zeros((3, 2, 1)), np.zeros((3, 2)), np.full((3, 2), np.nan), actions=2)
        >>> logs.describe().missing_rewards
        6
        """
        return Summary.of(self.schema, self.context, self.action, self.reward, self.lengths)

    def to_frame(self, backend: str = "pandas") -> Any:
        """The table again, with labels, as a "pandas", "polars" or "pyarrow" frame.

        Numbers are unscaled from float32, time counts from 0 within each instance, missing is null. A value that
        was filled in without a flag (see `Schema.encode`) comes back as its fill.

        >>> logs = Logs.from_arrays(np.ones((2, 2, 1)), [[0, 1], [1, -1]], [[0.5, 1], [2, np.nan]])
        >>> logs.to_frame("pyarrow").to_pylist()[-1]
        {'instance': 1, 'time': 1, 'x1': 1.0, 'action': None, 'reward': None}
        """
        labels = [self.instance_labels[code] for code in self.instance.tolist()]
        time = np.arange(self.rows) - self.starts[self.instance]
        arrays = {"context": self.context, "action": self.action, "reward": self.reward}
        return write_frame(self.schema, instance=labels, time=time, **arrays, backend=backend)

    def write(self, path: str | Path) -> None:
        """Write the table of `to_frame` to a .csv or .parquet file, for `ilb fit` or anybody else."""
        write_table(self.to_frame("pyarrow"), Path(path))

    def select(self, instances: ArrayLike) -> Logs:
        """Only these instances, given by number or by a mask, in this order; one given twice becomes two.

        >>> logs = Logs.from_arrays(np.zeros((3, 2, 1)), np.zeros((3, 2)), np.ones((3, 2)))
        >>> logs.select([2, 0]).instance_labels
        (2, 0)
        """
        index = np.asarray(instances)
        if index.dtype == bool and index.shape == (self.instances,):
            index = np.flatnonzero(index)
        if index.ndim != 1 or index.size == 0 or not np.issubdtype(index.dtype, np.integer):
            raise LogsError(
                f"can't select instances by an array of shape {index.shape} and type {index.dtype}; "
                f"expected the numbers of at least one, or a mask of length {self.instances}."
            )
        if index.min() < 0 or index.max() >= self.instances:
            raise LogsError(
                f"can't select instances {index.min()} to {index.max()}; expected 0 to {self.instances - 1}."
            )
        lengths = self.lengths[index]
        shift = np.repeat(self.starts[index] - (np.cumsum(lengths) - lengths), lengths)
        labels = tuple(self.instance_labels[code] for code in index.tolist())
        return self._take(np.arange(lengths.sum()) + shift, np.repeat(np.arange(len(index)), lengths), labels)

    def without(self, columns: str | Sequence[str]) -> Logs:
        """The same rows without these context columns, given by the names they have in the table.

        >>> logs = Logs.from_arrays(np.zeros((3, 2, 2)), np.zeros((3, 2)), np.ones((3, 2)), names=["age", "mmse"])
        >>> logs.without("age").schema.names
        ('mmse',)
        """
        schema, kept = self.schema.without(names_of(columns))
        return replace(self, schema=schema, context=self.context[:, kept])

    def split_instances(self, fractions: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int) -> tuple[Logs, ...]:
        """Disjoint sets of instances drawn at random, one for each fraction, none empty.

        All keep the schema, whose scales were learned on the whole; to learn them on one part only, split the table.

        >>> logs = Logs.from_arrays(np.zeros((10, 2, 1)), np.zeros((10, 2)), np.ones((10, 2)))
        >>> [part.instances for part in logs.split_instances((0.5, 0.3, 0.2), seed=0)]
        [5, 3, 2]
        """
        return tuple(self.select(part) for part in instance_parts(self.instances, fractions, seed))

    def split_time(self, fraction: float = 0.8) -> tuple[Logs, Logs]:
        """The earlier and the later rows of each instance; an instance with one row is in the earlier part only.

        >>> logs = Logs.from_arrays(np.zeros((3, 5, 1)), np.zeros((3, 5)), np.ones((3, 5)))
        >>> [part.lengths.tolist() for part in logs.split_time(0.8)]
        [[4, 4, 4], [1, 1, 1]]
        """
        early = earlier_rows(self.lengths, fraction)
        return self._keep(early), self._keep(~early)

    def require_rewards(self) -> Logs:
        """These logs, if each row has an action and a reward; else a LogsError.

        >>> logs = Logs.from_arrays(np.zeros((3, 2, 1)), np.zeros((3, 2)), np.ones((3, 2)))
        >>> logs.require_rewards() is logs
        True
        """
        lacking = {
            self.schema.reward: int(np.count_nonzero(np.isnan(self.reward))),
            self.schema.action: int(np.count_nonzero(self.action < 0)),
        }
        if any(lacking.values()):
            found = " and ".join(
                f"column {name!r} in {counted(count, 'row')}" for name, count in lacking.items() if count
            )
            raise LogsError(
                f"values are missing in {found} of {self.rows:,}; expected an action and a reward in each row. "
                "Drop these rows, or fill the values in."
            )
        return self

    def _keep(self, rows: Bool[np.ndarray, " N"]) -> Logs:
        present, codes = np.unique(self.instance[rows], return_inverse=True)
        labels = tuple(self.instance_labels[code] for code in present.tolist())
        return self._take(np.flatnonzero(rows), codes, labels)

    def _take(
        self, rows: Int64[np.ndarray, " M"], codes: Int64[np.ndarray, " M"], labels: tuple[Hashable, ...]
    ) -> Logs:
        taken = (self.context[rows], codes.astype(np.int64), self.action[rows], self.reward[rows])
        return self.of_parts(Parts(self.schema, labels, *taken))


def _require_agreement(schema: Schema, **given: str | None) -> None:
    for role, name in given.items():
        if name is not None and name != getattr(schema, role):
            raise SchemaError(
                f"{role}={name!r}, but the schema was made with {role}={getattr(schema, role)!r}. "
                f"Rename the column, or leave out {role}=."
            )
