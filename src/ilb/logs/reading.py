"""From tables and arrays to sorted rows: learning a schema from a table, or applying one that was learned before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from jaxtyping import Float32, Float64, Int64, Shaped
from numpy.typing import ArrayLike

from ilb.errors import LogsError, SchemaError
from ilb.logs import checks, suspicions
from ilb.logs.columns import (
    NUMBERS_EXPECTED,
    CategoricalColumn,
    Column,
    NumericColumn,
    read_moment,
    read_moments,
    read_numbers,
)
from ilb.logs.labels import Labels, Values, as_label, has_numpy_order, in_order, missing_rows, read_labels
from ilb.logs.messages import brief, counted, shown
from ilb.logs.schema import Schema, side_by_side
from ilb.logs.tables import Roles, Rows, require_columns

REWARD_EXPECTED = "Turn it into a number, for example 1 for success and 0 for failure, or name another column."


class Parts(NamedTuple):
    """All that `Logs` are made of: what the numbers mean, the rows, and their contexts in the same order."""

    schema: Schema
    rows: Rows
    context: Float32[np.ndarray, "N d"]


def learn(table: nw.DataFrame[Any], roles: Roles) -> Parts:
    """Make a schema from this table, and the numbers that it gives."""
    rows = read_rows(table, roles)
    checks.require_one_scale(roles.reward, rows.reward.astype(np.float64))
    checks.check_enough(roles, rows)
    checks.warn_odd_rows(roles, rows)
    checks.warn_unrewarded_actions(roles, rows)
    suspicions.require_distinct_actions(roles, rows.action)
    suspicions.warn_growing_reward(roles, rows)
    columns: list[Column] = []
    blocks, still, found = [], [], {}
    for name in roles.context:
        column, block, values = _learn_column(name, table[name], as_category=name in roles.categorical)
        checks.warn_constant(name, values)
        found[name] = values[rows.order]
        still.append(checks.find_still(name, found[name], rows.instance.codes))
        columns.append(column)
        blocks.append(block)
    checks.warn_still(still, len(rows.instance.labels))
    suspicions.warn_suspicious_columns(roles, rows, found)
    actions = in_order(rows.action.labels)
    schema = Schema(roles.instance, roles.time, roles.action, roles.reward, tuple(columns), actions)
    return Parts(schema, rows, side_by_side(blocks, len(table))[rows.order])


def apply(table: nw.DataFrame[Any], schema: Schema) -> Parts:
    """The numbers that a schema made from other logs gives for this table; nothing is learned from it."""
    context = tuple(column.name for column in schema.context)
    roles = Roles(schema.instance, schema.action, schema.reward, context, schema.time)
    needed = [name for name in (roles.instance, roles.time, roles.action, roles.reward) if name is not None]
    require_columns([*needed, *context], table.columns, SchemaError)
    rows = read_rows(table, roles)
    require_known_actions(rows.action, schema)
    checks.warn_odd_rows(roles, rows)
    return Parts(schema, rows, schema.encode(table)[rows.order])


def require_known_actions(actions: Labels, schema: Schema) -> None:
    """Raise if a column of actions has one that the schema does not know."""
    lost = int(np.count_nonzero((actions.codes >= 0) & (actions.recoded(schema.action_positions) < 0)))
    if lost:
        unknown = [label for label in actions.labels if label not in schema.action_positions]
        raise SchemaError(
            f"column {schema.action!r} has actions that the schema does not know: {shown(unknown)} "
            f"({counted(lost, 'row')}); known are {shown(schema.actions)}. Drop these rows, or fit again with them."
        )


def read_rows(table: nw.DataFrame[Any], roles: Roles) -> Rows:
    """What every row has beside its context, sorted by instance and time."""
    if len(table) == 0:
        raise LogsError(f"the table has no rows, only the columns {shown(table.columns, 30)}; expected past cases.")
    instances = read_labels(roles.instance, table[roles.instance])
    missing = int(np.count_nonzero(instances.codes < 0))
    if missing:
        raise LogsError(
            f"column {roles.instance!r} lacks the instance in {counted(missing, 'row')}; expected a label in each row. "
            "Drop these rows, or fill the labels in."
        )
    times = None if roles.time is None else table[roles.time]
    time = None if times is None else _read_times(times.name, times)
    order = np.lexsort((instances.codes,) if time is None else (time, instances.codes))
    actions = read_labels(roles.action, table[roles.action])
    rewards = read_numbers(roles.reward, table[roles.reward], REWARD_EXPECTED).astype(np.float32)
    rows = Rows(order, instances.take(order), actions.take(order), rewards[order])
    return rows if times is None or time is None else rows._replace(time=time[order], clock=_read_clock(times, order))


def _read_clock(times: Values, order: Int64[np.ndarray, " N"]) -> Float64[np.ndarray, " N"] | None:
    """The times as numbers in this order, if all of them are known and numbers or dates."""
    numbers, refused = read_moments(times)
    return None if refused or np.isnan(numbers).any() else numbers[order]


def _read_times(name: str, series: nw.Series[Any]) -> Shaped[np.ndarray, " N"]:
    """A column of time stamps as something that NumPy can sort; text must be dates that read one way."""
    missing = int(np.count_nonzero(missing_rows(series)))
    if missing:
        raise LogsError(
            f"column {name!r} lacks the time in {counted(missing, 'row')}; expected a time in each row. "
            "Drop these rows, or leave out time= to keep the order of the table."
        )
    if has_numpy_order(series.dtype):
        return np.asarray(series.to_numpy())
    times = read_labels(name, series)
    moments: list[Any] = []
    try:
        for label in times.labels:
            moments.append(read_moment(label) if isinstance(label, str) else label)
        ranks = {moment: rank for rank, moment in enumerate(sorted(set(moments)))}
    except (TypeError, ValueError) as error:
        # The first that is no moment; if all are, they are of kinds that can't be compared.
        odd = times.labels[len(moments) if len(moments) < len(times.labels) else 0]
        raise LogsError(
            f"column {name!r} holds times such as {brief(odd)} that have no order; expected numbers, dates "
            "or text such as '2024-03-31' or '31.03.2024'. Turn them into one of these, or leave out time= to keep the "
            "order."
        ) from error
    return np.array([ranks[moment] for moment in moments], dtype=np.int64).take(times.codes)


def _learn_column(
    name: str, series: nw.Series[Any], *, as_category: bool
) -> tuple[Column, Float32[np.ndarray, "N width"], Float64[np.ndarray, " N"]]:
    """The column, its numbers, and its values as they were: numbers, or codes of labels."""
    if as_category or series.dtype in (nw.String, nw.Categorical, nw.Enum):
        labels = read_labels(name, series)
        values = labels.as_numbers()
        _require_some(name, values)
        if not as_category and series.dtype == nw.String:
            checks.require_words(name, labels)
        category = CategoricalColumn.fit(name, labels)
        return category, category.encode(labels), values
    values = read_numbers(name, series, NUMBERS_EXPECTED)
    _require_some(name, values)
    checks.require_one_scale(name, values)
    numeric = NumericColumn.fit(name, values)
    return numeric, numeric.encode(values), values


def _require_some(name: str, values: Float64[np.ndarray, " N"]) -> None:
    if np.isnan(values).all():
        raise LogsError(
            f"column {name!r} is missing in all {counted(len(values), 'row')}; expected some values. "
            f"Leave it out: drop=[{name!r}], --drop {name}. Or name the right column."
        )


def read_arrays(
    context: ArrayLike,
    action: ArrayLike,
    reward: ArrayLike,
    instance: ArrayLike | None,
    actions: int | Sequence[Hashable] | None,
    names: Sequence[str] | None = None,
    time: ArrayLike | None = None,
) -> Parts:
    """Numbers that are taken as they are: [I, T, ...] arrays, or flat arrays and the instance of each row."""
    x, a, r = _as_floats("context", context), _as_floats("action", action), _as_floats("reward", reward)
    if instance is None:
        if x.ndim != 3:
            raise LogsError(
                f"context has shape {x.shape}; expected [instances, times, columns]. "
                "For flat arrays [rows, columns], give the instance of each row in instance=."
            )
        labels = Labels(np.repeat(np.arange(len(x)), x.shape[1]), tuple(range(len(x))))
        expected: tuple[int, ...] = x.shape[:2]
    else:
        if x.ndim != 2:
            raise LogsError(f"context has shape {x.shape}; expected [rows, columns] when instance= is given.")
        labels = read_labels("instance", instance if isinstance(instance, Sequence) else list(np.asarray(instance)))
        expected = (len(x),)
    shapes = {"action": a.shape, "reward": r.shape} | ({} if instance is None else {"instance": labels.codes.shape})
    if time is not None:
        shapes["time"] = np.shape(time)
    for name, shape in shapes.items():
        if shape != expected:
            raise LogsError(f"{name} has shape {shape}; expected {expected}, as context has shape {x.shape}.")
    if labels.codes.size == 0:
        raise LogsError(f"context has shape {x.shape}; expected at least one row.")
    if (labels.codes < 0).any():
        raise LogsError(f"instance is missing in {counted(int((labels.codes < 0).sum()), 'row')}; drop these rows.")
    order = np.argsort(labels.codes, kind="stable")
    played = _action_codes(a.reshape(-1)[order])
    taken = Labels(played, _action_labels(actions, int(played.max()) + 1))
    values = x.reshape(len(order), x.shape[-1])[order].T
    columns = tuple(
        _column_as_given(name, one) for name, one in zip(_column_names(names, len(values)), values, strict=True)
    )
    schema = Schema("instance", None, "action", "reward", columns, taken.labels)
    clock = None
    if time is not None:
        schema = replace(schema, time=schema.free_time_name)
        clock = _read_clock(np.asarray(time).reshape(-1), order)
    blocks = [column.encode(one) for column, one in zip(columns, values, strict=True)]
    rewards = read_numbers("reward", r.reshape(-1)[order], NUMBERS_EXPECTED).astype(np.float32)
    rows = Rows(order, labels.take(order), taken, rewards, clock=clock)
    return Parts(schema, rows, side_by_side(blocks, len(order)))


def warn_still_columns(parts: Parts) -> None:
    """Warn of columns of arrays that stand still within instances and help to tell these apart."""
    still = []
    for column, block in parts.schema.blocks(parts.context):
        values = np.where(column.missing(block), np.nan, block[:, 0].astype(np.float64))
        still.append(checks.find_still(column.name, values, parts.rows.instance.codes))
    checks.warn_still(still, len(parts.rows.instance.labels))


def _as_floats(name: str, values: ArrayLike) -> Float64[np.ndarray, "..."]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LogsError(
            f"{name} can't be read as numbers ({error}); expected an array of numbers. "
            "For labels and categories, use Logs.from_frame."
        ) from error


def _column_names(names: Sequence[str] | None, width: int) -> Sequence[str]:
    if names is None:
        return [f"x{position + 1}" for position in range(width)]
    if len(names) != width or len(set(names)) != width or not all(isinstance(name, str) for name in names):
        raise LogsError(f"names= holds {shown(names)}; expected {width} different names, one for each context column.")
    return names


def _column_as_given(name: str, values: Float64[np.ndarray, " N"]) -> NumericColumn:
    if np.isnan(values).all():
        raise LogsError(f"context column {name!r} is NaN in all {counted(len(values), 'row')}; leave it out.")
    numbers = read_numbers(name, values, NUMBERS_EXPECTED)
    checks.require_one_scale(name, numbers)
    return NumericColumn.as_given(name, numbers)


def _action_codes(action: Float64[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
    whole = np.where(np.isnan(action), -1, action)
    wrong = (whole != np.round(whole)) | (whole < -1) | np.isinf(whole)
    if wrong.any():
        raise LogsError(
            f"action has {counted(int(wrong.sum()), 'value')} that number no action, such as {whole[wrong][0]}; "
            "expected 0 to K - 1, or -1 or NaN where the action is missing."
        )
    return whole.astype(np.int64)


def _action_labels(actions: int | Sequence[Hashable] | None, played: int) -> tuple[Hashable, ...]:
    if actions is None:
        return tuple(range(played))
    labels = tuple(range(actions) if isinstance(actions, int | np.integer) else (as_label(label) for label in actions))
    if len(labels) < played:
        raise LogsError(
            f"action holds {played - 1}, but actions= says that there are {len(labels)}; expected 0 to "
            f"{len(labels) - 1}, or -1 for a missing action."
        )
    if len(set(labels)) < len(labels):
        raise LogsError(f"actions= has the same label twice: {shown(labels)}; expected one label for each action.")
    return labels
