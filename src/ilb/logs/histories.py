"""Histories of people to decide for: a table that may lack what is not known yet, read as a schema says."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float32, Int64

from ilb.errors import SchemaError
from ilb.logs.labels import missing_rows, read_labels
from ilb.logs.messages import brief, shown
from ilb.logs.reading import read_rows, require_known_actions
from ilb.logs.schema import Schema
from ilb.logs.tables import Roles, open_table, require_columns

BETWEEN_LABELS = ";"
"""What stands between several actions in one cell of the column that rules actions out."""


class Histories(NamedTuple):
    """What was seen of each person so far, sorted by person and time; `labels` may name people without any row.

    `action` is -1 and `reward` is NaN where there is none. `ruled_out` has the actions, by their numbers, that must
    not be chosen for a person.
    """

    labels: tuple[Hashable, ...]
    person: Int64[np.ndarray, " N"]
    context: Float32[np.ndarray, "N d"]
    action: Int64[np.ndarray, " N"]
    reward: Float32[np.ndarray, " N"]
    ruled_out: tuple[frozenset[int], ...]

    @property
    def starts(self) -> Int64[np.ndarray, " starts"]:
        """Where the rows of each person start, and where the last ones end."""
        return np.searchsorted(self.person, np.arange(len(self.labels) + 1))

    @property
    def rewarded(self) -> Bool[np.ndarray, " N"]:
        """The rows that say what was done and what came of it."""
        return np.asarray((self.action >= 0) & np.isfinite(self.reward))


def read_histories(frame: Any, schema: Schema, forbidden_column: str | None = None) -> Histories:
    """Read a frame or a file; columns of action, reward and time may be absent.

    A row in which nothing but the person is filled in says that there is such a person, and no more. A cell of
    `forbidden_column` has an action that must not be chosen for the person of the row, or several with semicolons
    between them.

    >>> import pyarrow as pa
    >>> from ilb.logs import NumericColumn
    >>> mmse = NumericColumn("mmse", mean=25.0, std=5.0, fill=25.0, flagged=False)
    >>> schema = Schema("patient", None, "drug", "gain", (mmse,), ("a", "b"))
    >>> table = pa.table({"patient": ["eve", "bo", "bo"], "mmse": [None, 30, 20], "drug": [None, "b", None]})
    >>> histories = read_histories(table, schema)
    >>> histories.labels, histories.person.tolist(), histories.action.tolist()
    (('eve', 'bo'), [1, 1], [1, -1])
    """
    extra = [] if forbidden_column is None else [forbidden_column]
    table = open_table(frame, {**schema.known_labels, **dict.fromkeys(extra)})
    needed = [column.name for column in schema.context if not column.may_be_absent]
    require_columns([schema.instance, *needed, *extra], table.columns, SchemaError)
    if len(table) == 0:
        nothing = np.zeros(0, np.int64)
        return Histories((), nothing, np.zeros((0, schema.width), np.float32), nothing, np.zeros(0, np.float32), ())
    absent = [name for name in (schema.action, schema.reward) if name not in table.columns]
    table = table.with_columns(*(nw.lit(None, dtype=nw.Float64).alias(name) for name in absent))
    timed = schema.time is not None and schema.time in table.columns
    people = read_labels(schema.instance, table[schema.instance])
    full = np.flatnonzero(~_is_blank(table, schema) | (people.codes < 0))
    ruled_out = _ruled_out(table, schema, people.codes, len(people.labels), forbidden_column)
    if not len(full):
        empty = read_histories(table.head(0).to_native(), schema)
        return empty._replace(labels=people.labels, ruled_out=ruled_out)
    some = table[full.tolist()]
    context = tuple(column.name for column in schema.context)
    roles = Roles(schema.instance, schema.action, schema.reward, context, schema.time if timed else None)
    rows = read_rows(some, roles)
    require_known_actions(rows.action, schema)
    contexts = schema.encode(some)
    positions = {label: position for position, label in enumerate(people.labels)}
    person = rows.instance.recoded(positions)
    order = np.argsort(person, kind="stable")
    action = rows.action.recoded(schema.action_positions)
    return Histories(
        people.labels, person[order], contexts[rows.order][order], action[order], rows.reward[order], ruled_out
    )


def _is_blank(table: nw.DataFrame[Any], schema: Schema) -> Bool[np.ndarray, " N"]:
    """Which rows have neither context nor action nor reward; the time of a visit alone says nothing."""
    names = [column.name for column in schema.context if column.name != schema.time]
    there = [name for name in (*names, schema.action, schema.reward) if name in table.columns]
    return np.asarray(np.all([missing_rows(table[name]) for name in there], axis=0))


def _ruled_out(
    table: nw.DataFrame[Any], schema: Schema, people: Int64[np.ndarray, " N"], count: int, column: str | None
) -> tuple[frozenset[int], ...]:
    found: list[set[int]] = [set() for _ in range(count)]
    if column is not None:
        by_text = {str(label): position for label, position in schema.action_positions.items()}
        cells = read_labels(column, table[column])
        for person, code in zip(people.tolist(), cells.codes.tolist(), strict=True):
            if code >= 0:
                found[person] |= _actions_in(str(cells.labels[code]), by_text, column)
    return tuple(map(frozenset, found))


def _actions_in(cell: str, by_text: dict[str, int], column: str) -> set[int]:
    names = [cell] if cell in by_text else [name.strip() for name in cell.split(BETWEEN_LABELS) if name.strip()]
    unknown = [name for name in names if name not in by_text]
    if unknown:
        raise SchemaError(
            f"column {column!r} rules out {shown(unknown)} in {brief(cell)}; known actions are {shown(list(by_text))}. "
            "Write one of these in a cell, or several with semicolons between them."
        )
    return {by_text[name] for name in names}
