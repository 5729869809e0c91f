"""Past cases as flat arrays: who was seen, what was observed, what was done and what came of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64
from numpy.typing import ArrayLike

from ilb.errors import FitError, LogsError, SchemaError
from ilb.html import html_block, html_table
from ilb.logs.columns import ClockColumn, Column, with_none
from ilb.logs.labels import Labels
from ilb.logs.messages import counted, one_line
from ilb.logs.reading import Parts, apply, learn, read_arrays, require_known_actions, warn_still_columns
from ilb.logs.schema import Schema, side_by_side
from ilb.logs.tables import assign_roles, names_of, open_table, require_columns, write_table
from ilb.seeds import as_seed


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

    def sentence(self) -> str:
        """The counts in one line."""
        missing = {
            "a missing context": self.missing_contexts,
            "no action": self.missing_actions,
            "no reward": self.missing_rewards,
        }
        lacking = "".join(f", {counted(count, 'row')} with {what}" for what, count in missing.items() if count)
        span = f"{self.shortest_history:,} to {self.longest_history:,}"
        if self.shortest_history == self.longest_history:
            span = f"{self.longest_history:,}"
        return (
            f"{counted(self.rows, 'row')} of {counted(self.instances, 'instance')} ({span} each), "
            f"{counted(self.context_columns, 'context column')}, {counted(self.actions, 'action')}{lacking}"
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


@dataclass(frozen=True, eq=False, repr=False)
class Logs:
    """A table of logs, sorted by instance and then time.

    Row i belongs to instance `instance[i]`, whose label is `instance_labels[instance[i]]`; the rows of instance u are
    `starts[u]` to `starts[u + 1]`. `action` is -1 and `reward` is NaN where missing; contexts are never missing here,
    for `schema` has filled them in and flagged them. `clock` holds the time column of the table as numbers (dates as
    days since 1970-01-01, in UTC), or is None where there is none, or it has neither numbers nor dates.
    """

    schema: Schema
    instance_labels: tuple[Hashable, ...]
    context: Float32[np.ndarray, "N d"]
    instance: Int32[np.ndarray, " N"]
    action: Int32[np.ndarray, " N"]
    reward: Float32[np.ndarray, " N"]
    clock: Float64[np.ndarray, " N"] | None = None

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
        `context` (without it all remaining columns, less those in `drop`; there may be none). Text is categorical, and
        so are the columns in `categorical`.
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
        >>> Logs.from_frame(table, instance="patient", action="drug", reward="gain", context=()).context.shape
        (4, 0)
        """
        named = {"instance": instance, "action": action, "reward": reward, "time": time}
        if schema is None:
            labels = [name for name in (instance, action, *names_of(categorical)) if name is not None]
            table = open_table(frame, dict.fromkeys(labels))
            _require_no_index(frame, [name for name in named.values() if name not in table.columns])
            return cls.of_parts(learn(table, assign_roles(table.columns, named, context, categorical, drop)))
        _require_agreement(schema, named)
        if context is not None or len(categorical) or len(drop):
            raise SchemaError("schema= says which columns are context; leave out context=, categorical= and drop=.")
        return cls.of_parts(apply(open_table(frame, schema.known_labels), schema))

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
        time: ArrayLike | None = None,
    ) -> Logs:
        """Take arrays [I, T, d], [I, T], [I, T], or flat ones [N, d], [N], [N] with `instance` [N], unscaled.

        `action` numbers the actions from 0, with -1 or NaN where missing; `actions` is how many there are, or their
        labels in this order, in case some were never played. Context columns are called `names`, or x1 to xd; d may
        be 0. `time`, of the shape of `action`, becomes the `clock`: numbers or dates, which reorder nothing.

        >>> Logs.from_arrays(np.zeros((3, 2, 4)), np.zeros((3, 2)), np.ones((3, 2)), actions=5)
        Logs(6 rows of 3 instances, 4 context columns, 5 actions, 6 rewards)
        """
        parts = read_arrays(context, action, reward, instance, actions, names, time)
        warn_still_columns(parts)
        return cls.of_parts(parts)

    @classmethod
    def of_parts(cls, parts: Parts) -> Logs:
        """Take parts that are known to be right; nothing is checked and nothing warned of."""
        schema, rows, context = parts
        instance = rows.instance.codes.astype(np.int32)
        action = rows.action.recoded(schema.action_positions).astype(np.int32)
        return cls(schema, rows.instance.labels, context, instance, action, rows.reward, rows.clock)

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

    @cached_property
    def starts(self) -> Int64[np.ndarray, " starts"]:
        """Where the rows of each instance start, and where the last ones end: I + 1 numbers."""
        lengths = np.bincount(self.instance, minlength=self.instances)
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    @property
    def lengths(self) -> Int64[np.ndarray, " I"]:
        """The number of rows of each instance."""
        return np.diff(self.starts)

    @property
    def time(self) -> Int64[np.ndarray, " N"]:
        """The position of each row in the history of its instance, from 0."""
        position: Int64[np.ndarray, " N"] = np.arange(self.rows) - self.starts[self.instance]
        return position

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

    def _repr_html_(self) -> str:
        """Show in a notebook how much there is, and what the columns are."""
        schema = self.schema
        roles = {
            schema.instance: f"who: {counted(self.instances, 'instance')}",
            **({} if schema.time is None or schema.clocked else {schema.time: "when"}),
            **{column.name: f"context: {_span(column, block)}" for column, block in schema.blocks(self.context)},
            schema.action: f"what was done: {counted(self.actions, 'action')}, {', '.join(self._frequent())}",
            schema.reward: f"what came of it: {counted(int(np.count_nonzero(~np.isnan(self.reward))), 'reward')}",
        }
        return html_block(self.describe().sentence(), html_table(["column", "what it is"], roles.items()))

    def _frequent(self, most: int = 5) -> list[str]:
        counts = np.bincount(self.action[self.action >= 0], minlength=self.actions)
        order = np.argsort(-counts, kind="stable")[:most]
        named = [f"{self.schema.actions[action]} ({counts[action]:,})" for action in order.tolist()]
        return [*named, "…"] if self.actions > most else named

    def describe(self) -> Summary:
        """Counts to print: how much there is, and how much is missing.

        >>> logs = Logs.from_arrays(np.zeros((3, 2, 1)), np.zeros((3, 2)), np.full((3, 2), np.nan), actions=2)
        >>> logs.describe().missing_rewards
        6
        """
        lengths = self.lengths
        missing = [column.missing(block) for column, block in self.schema.blocks(self.context)]
        return Summary(
            rows=self.rows,
            instances=self.instances,
            shortest_history=int(lengths.min()),
            median_history=float(np.median(lengths)),
            longest_history=int(lengths.max()),
            context_columns=len(self.schema.context),
            actions=self.actions,
            missing_contexts=int(np.count_nonzero(np.any(missing, axis=0))),
            missing_actions=int(np.count_nonzero(self.action < 0)),
            missing_rewards=int(np.count_nonzero(np.isnan(self.reward))),
        )

    def to_frame(self, backend: str = "pandas") -> Any:
        """The table again, with labels, as a "pandas", "polars" or "pyarrow" frame.

        Numbers are unscaled from float32, time counts from 0 within each instance (or is the `clock`, where that is
        context, too), missing is null. A value that was filled in without a flag (see `Schema.encode`) comes back as
        its fill.

        >>> logs = Logs.from_arrays(np.ones((2, 2, 1)), [[0, 1], [1, -1]], [[0.5, 1], [2, np.nan]])
        >>> logs.to_frame("pyarrow").to_pylist()[-1]
        {'instance': 1, 'time': 1, 'x1': 1.0, 'action': None, 'reward': None}
        """
        schema, actions = self.schema, (*self.schema.actions, None)
        columns: dict[str, tuple[list[Any], Any]] = {
            schema.instance: ([self.instance_labels[code] for code in self.instance.tolist()], None),
            schema.time or schema.free_time_name: (self.time.tolist(), nw.Int64),
            **{column.name: (column.decode(block), column.dtype) for column, block in schema.blocks(self.context)},
            schema.action: ([actions[code] for code in self.action.tolist()], None),
            schema.reward: (with_none(self.reward, np.isnan(self.reward)), nw.Float64),
        }
        if schema.clocked and self.clock is not None:
            columns[str(schema.time)] = (self.clock.tolist(), nw.Float64)
        return _native_frame(columns, backend)

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

    def with_clock(self, like: Schema | None = None) -> Logs:
        """The same rows with the time column as one more, last, context column.

        Its scale is learned from these rows (split afterwards, so that all parts have the same), or is that of another
        schema that has it, `like`.

        >>> grid = np.zeros((2, 3))
        >>> logs = Logs.from_arrays(np.zeros((2, 3, 0)), grid, grid, actions=2, time=[[0, 4, 8], [0, 4, 8]])
        >>> logs.with_clock().schema.names, logs.with_clock().schema.encode({"time": 4})
        (('time',), array([0.], dtype=float32))
        """
        name = self.schema.time
        if self.schema.clocked:
            return self
        if name is None or self.clock is None:
            lacking = (
                "no time column" if name is None else f"a time column {name!r} without numbers or dates in all rows"
            )
            raise LogsError(
                f"the table has {lacking}, so time can't be context. Name a column of numbers or dates in time=."
            )
        column = ClockColumn.fit(name, self.clock) if like is None else like.context[-1]
        schema = replace(self.schema, context=(*self.schema.context, column))
        return replace(self, schema=schema, context=side_by_side([self.context, column.encode(self.clock)], self.rows))

    def read_as(self, schema: Schema) -> Logs:
        """The same rows as a model with this schema reads them: its columns, scales, categories and actions.

        Rows that were read by themselves have scales of their own, and would mean something else to the model.

        >>> rows = np.zeros((2, 2, 0)), [[0, 1], [0, 1]], [[1, 2], [3, 4]]
        >>> one, other = (Logs.from_arrays(*rows, actions=labels) for labels in ("ab", "ba"))
        >>> other.read_as(one.schema).action.tolist()
        [1, 0, 1, 0]
        """
        if (schema.context, schema.actions) == (self.schema.context, self.schema.actions):
            return self
        logs = self.with_clock(like=schema) if schema.clocked and not self.schema.clocked else self
        known = {column.name: (column, block) for column, block in logs.schema.blocks(logs.context)}
        require_columns([column.name for column in schema.context], list(known), SchemaError)
        blocks = []
        for column in schema.context:
            own, block = known[column.name]
            blocks.append(block if own == column else column.encode(own.decode(block)))
        actions = Labels(self.action.astype(np.int64), self.schema.actions)
        require_known_actions(actions, schema)
        action = actions.recoded(schema.action_positions).astype(np.int32)
        return replace(self, schema=schema, context=side_by_side(blocks, self.rows), action=action)

    def split_instances(self, fractions: Sequence[float] = (0.8, 0.1, 0.1), *, seed: int) -> tuple[Logs, ...]:
        """Disjoint sets of instances drawn at random, one for each fraction, none empty.

        All keep the schema, whose scales were learned on the whole; to learn them on one part only, split the table.

        >>> logs = Logs.from_arrays(np.zeros((10, 2, 1)), np.zeros((10, 2)), np.ones((10, 2)))
        >>> [part.instances for part in logs.split_instances((0.5, 0.3, 0.2), seed=0)]
        [5, 3, 2]
        """
        shares = np.asarray(fractions, dtype=np.float64)
        if shares.ndim != 1 or len(shares) == 0 or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
            raise LogsError(
                f"fractions are {fractions!r}; expected positive numbers with sum 1, such as (0.8, 0.1, 0.1)."
            )
        if self.instances < len(shares):
            raise LogsError(
                f"can't split {self.instances} instances into {len(shares)} parts, each with at least one. "
                "Use fewer parts, or add instances."
            )
        sizes = np.maximum(1, np.diff(np.round(np.cumsum([0.0, *shares]) * self.instances)).astype(np.int64))
        while sizes.sum() > self.instances:
            sizes[sizes.argmax()] -= 1
        shuffled = np.random.default_rng(as_seed(seed)).permutation(self.instances)
        return tuple(self.select(np.sort(part)) for part in np.split(shuffled, np.cumsum(sizes)[:-1]))

    def split_time(self, fraction: float = 0.8) -> tuple[Logs, Logs]:
        """The earlier and the later rows of each instance; an instance with one row is in the earlier part only.

        >>> logs = Logs.from_arrays(np.zeros((3, 5, 1)), np.zeros((3, 5)), np.ones((3, 5)))
        >>> [part.lengths.tolist() for part in logs.split_time(0.8)]
        [[4, 4, 4], [1, 1, 1]]
        """
        if not 0 < fraction < 1:
            raise LogsError(f"fraction is {fraction!r}; expected a number between 0 and 1, such as 0.8.")
        lengths = self.lengths
        if not (lengths >= 2).any():
            raise LogsError(
                f"none of the {len(lengths)} instances has 2 rows or more, so time can't split them. "
                "Split by instance instead: split_instances."
            )
        first_late = np.clip(np.round(lengths * fraction), 1, np.maximum(lengths - 1, 1))
        early = self.time < first_late[self.instance]
        return self._keep(early), self._keep(~early)

    def _keep(self, rows: Bool[np.ndarray, " N"]) -> Logs:
        present, codes = np.unique(self.instance[rows], return_inverse=True)
        labels = tuple(self.instance_labels[code] for code in present.tolist())
        return self._take(np.flatnonzero(rows), codes, labels)

    def _take(
        self, rows: Int64[np.ndarray, " M"], codes: Int64[np.ndarray, " M"], labels: tuple[Hashable, ...]
    ) -> Logs:
        clock = None if self.clock is None else self.clock[rows]
        taken = (self.context[rows], codes.astype(np.int32), self.action[rows], self.reward[rows], clock)
        return Logs(self.schema, labels, *taken)


def _span(column: Column, block: Float32[np.ndarray, "N width"]) -> str:
    """Say what values a column has, in a few words."""
    known = [value for value in column.decode(block) if value is not None]
    if column.labels:
        return f"{len(column.labels):,} categories, such as {column.labels[0]}"
    low, middle, high = np.quantile(np.array(known, dtype=np.float64), [0.0, 0.5, 1.0]) if known else [np.nan] * 3
    return f"{low:.4g} to {high:.4g}, median {middle:.4g}"


def _require_agreement(schema: Schema, named: Mapping[str, str | None]) -> None:
    for role, name in named.items():
        if name is not None and name != getattr(schema, role):
            raise SchemaError(
                f"{role}={name!r}, but the schema was made with {role}={getattr(schema, role)!r}. "
                f"Rename the column, or leave out {role}=."
            )


def _native_frame(columns: dict[str, tuple[list[Any], Any]], backend: Any) -> Any:
    series = []
    for name, (values, dtype) in columns.items():
        try:
            series.append(nw.new_series(name, values, dtype, backend=backend))
        except Exception as error:  # each library has its own errors for what it can't hold
            raise LogsError(
                f"{backend!r} can't hold column {name!r} ({type(error).__name__}: {one_line(error)}). "
                "Install that library, or try another of 'pandas', 'polars', 'pyarrow'."
            ) from error
    return nw.concat([one.to_frame() for one in series], how="horizontal").to_native()


def _require_no_index(frame: Any, lost: Sequence[str | None]) -> None:
    """Say so if a column that is not there is the index of a pandas frame."""
    index = [name for name in getattr(getattr(frame, "index", None), "names", ()) if name is not None and name in lost]
    if index:
        raise LogsError(
            f"{index[0]!r} is the index of the frame; expected a column. Make it one with frame.reset_index()."
        )


def require_logs(found: Any, who: str) -> None:
    """Raise if somebody was given a table that has not been read yet, or something else that is no `Logs`."""
    if not isinstance(found, Logs):
        raise LogsError(
            f"{who} takes Logs; got {type(found).__name__!r}. Read a file or a table with "
            'Logs.from_frame(table, instance="patient", action="drug", reward="relief").'
        )
