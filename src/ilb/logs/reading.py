"""From a table to sorted arrays: learning a schema from the table, or applying one that was learned before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped

from ilb.errors import LogsError, SchemaError
from ilb.logs import checks
from ilb.logs.columns import NUMBERS_EXPECTED, CategoricalColumn, Column, NumericColumn
from ilb.logs.messages import counted, shown
from ilb.logs.roles import Roles
from ilb.logs.schema import Schema
from ilb.logs.tables import require_columns
from ilb.logs.values import Labels, in_order, read_labels, read_numbers, read_times

REWARD_EXPECTED = "Turn it into a number, for example 1 for success and 0 for failure, or name another column."


class Parts(NamedTuple):
    """All that `Logs` are made of, rows sorted by instance and then time; see there."""

    schema: Schema
    instance_labels: tuple[Hashable, ...]
    context: Float32[np.ndarray, "N d"]
    instance: Int64[np.ndarray, " N"]
    action: Int64[np.ndarray, " N"]
    reward: Float32[np.ndarray, " N"]


class _Rows(NamedTuple):
    """What every row has beside its context, sorted; `order` is the row of the table where each comes from."""

    order: Int64[np.ndarray, " N"]
    instance: Labels
    action: Labels
    reward: Float32[np.ndarray, " N"]
    time: Shaped[np.ndarray, " N"] | None

    def warn(self, roles: Roles) -> None:
        """Tell what will be done with odd rows, once it is clear that the table can be used."""
        if roles.time is not None and self.time is not None:
            checks.warn_same_times(roles.time, self.instance.codes, self.time)
        checks.warn_lost_outcomes(roles.action, roles.reward, self.action.codes, self.reward)


def learn(table: nw.DataFrame[Any], roles: Roles, categorical: Sequence[str]) -> Parts:
    """Make a schema from this table, and the arrays that it gives."""
    rows = _read_rows(table, roles)
    checks.check_enough(roles.instance, rows.instance, roles.action, rows.action)
    rows.warn(roles)
    checks.warn_unrewarded_actions(roles.action, roles.reward, rows.action, rows.reward)
    columns: list[Column] = []
    blocks, still = [], []
    for name in roles.context:
        column, values = _learn_column(name, table[name], rows.order, as_category=name in categorical)
        checks.warn_constant(name, values)
        still.append(checks.find_still(name, values, rows.instance.codes))
        columns.append(column)
        blocks.append(column.encode(values))
    checks.warn_still([found for found in still if found], len(rows.instance.labels), len(columns))
    actions = in_order(rows.action.labels)
    schema = Schema(roles.instance, roles.time, roles.action, roles.reward, tuple(columns), actions)
    return _assemble(schema, rows, np.concatenate(blocks, axis=1))


def apply(table: nw.DataFrame[Any], schema: Schema) -> Parts:
    """The arrays that a schema made from other logs gives for this table; nothing is learned from it."""
    context = tuple(column.name for column in schema.context)
    roles = Roles(schema.instance, schema.time, context, schema.action, schema.reward)
    needed = [name for name in (roles.instance, roles.time, roles.action, roles.reward) if name is not None]
    require_columns([*needed, *context], table.columns, SchemaError)
    rows = _read_rows(table, roles)
    unknown = [label for label in rows.action.labels if label not in schema.action_positions]
    if unknown:
        lost = int(np.isin(rows.action.codes, [rows.action.labels.index(label) for label in unknown]).sum())
        raise SchemaError(
            f"column {schema.action!r} has actions that the schema does not know: {shown(unknown)} "
            f"({counted(lost, 'row')}); known are {shown(schema.actions)}. Drop these rows, or fit again with them."
        )
    rows.warn(roles)
    return _assemble(schema, rows, schema.encode(table)[rows.order])


def _assemble(schema: Schema, rows: _Rows, context: Float32[np.ndarray, "N d"]) -> Parts:
    action = rows.action.recoded(schema.action_positions)
    return Parts(schema, rows.instance.labels, context, rows.instance.codes, action, rows.reward)


def _read_rows(table: nw.DataFrame[Any], roles: Roles) -> _Rows:
    if len(table) == 0:
        raise LogsError(f"the table has no rows, only the columns {shown(table.columns, 30)}; expected past cases.")
    instances = read_labels(roles.instance, table[roles.instance])
    checks.check_instances(roles.instance, instances)
    time = None if roles.time is None else read_times(roles.time, table[roles.time])
    order = np.lexsort((instances.codes,) if time is None else (time, instances.codes))
    actions = read_labels(roles.action, table[roles.action])
    rewards = read_numbers(roles.reward, table[roles.reward], REWARD_EXPECTED).astype(np.float32)
    sorted_time = None if time is None else time[order]
    return _Rows(order, instances.take(order), actions.take(order), rewards[order], sorted_time)


def _learn_column(
    name: str, series: nw.Series[Any], order: Int64[np.ndarray, " N"], *, as_category: bool
) -> tuple[Column, Float64[np.ndarray, " N"] | Labels]:
    if as_category or series.dtype in (nw.String, nw.Categorical, nw.Enum):
        labels = read_labels(name, series)
        _require_some(name, len(labels.labels), len(series))
        return CategoricalColumn.fit(name, labels), labels.take(order)
    numbers = read_numbers(name, series, NUMBERS_EXPECTED)
    _require_some(name, int(np.count_nonzero(~np.isnan(numbers))), len(series))
    return NumericColumn.fit(name, numbers), numbers[order]


def _require_some(name: str, known: int, rows: int) -> None:
    if not known:
        raise LogsError(
            f"column {name!r} is missing in all {counted(rows, 'row')}; expected some values. "
            "Drop it with context=, or name the right column."
        )
