"""What a table means: its columns, scales, categories and labels. Saved with the model and applied to new data."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32

from ilb.errors import LogsError, LogsWarning, SchemaError
from ilb.logs.columns import KINDS, Column
from ilb.logs.labels import JsonValue, as_label, decode_label, encode_label, is_missing
from ilb.logs.messages import brief, near, one_line, shown, warn
from ilb.logs.tables import open_table, require_columns


@dataclass(frozen=True)
class Schema:
    """The meaning of a table of logs, learned once by `Logs.from_frame` and the same from then on.

    `instance`, `time`, `action` and `reward` are column names; `context` holds one column object each, in order;
    `actions[k]` is the label of action k.
    """

    instance: str
    time: str | None
    action: str
    reward: str
    context: tuple[Column, ...]
    actions: tuple[Hashable, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the d float columns that `encode` makes."""
        return tuple(name for column in self.context for name in column.names)

    @cached_property
    def width(self) -> int:
        """The number d of float columns that `encode` makes."""
        return len(self.names)

    @property
    def clocked(self) -> bool:
        """Whether the time column is context, too (`Logs.with_clock`)."""
        return any(column.name == self.time for column in self.context)

    @property
    def free_time_name(self) -> str:
        """A name for a column of times that no other column has."""
        taken = {self.instance, self.action, self.reward, *(column.name for column in self.context)}
        name = "time"
        while name in taken:
            name += "_"
        return name

    def encode(self, rows: Any) -> Float32[np.ndarray, "*rows d"]:
        """The contexts of a frame, a file or a list of mappings as [rows, d], or of one mapping as [d].

        Missing values are None or NaN; they are filled in and flagged as they were in training. Extra columns are
        ignored; keys of mappings that are no columns of the table are, too, with a warning. The time of a schema that
        is `clocked` may be left out, with a warning.

        >>> from ilb.logs import NumericColumn
        >>> mmse = NumericColumn("mmse", mean=25.0, std=5.0, fill=25.0, flagged=True)
        >>> schema = Schema("patient", None, "drug", "gain", (mmse,), ("a", "b"))
        >>> schema.encode({"mmse": 30})
        array([1., 0.], dtype=float32)
        >>> schema.encode([{"mmse": 30}, {"mmse": None}])
        array([[1., 0.],
               [0., 1.]], dtype=float32)
        """
        if isinstance(rows, Mapping):
            return self._encode_one(rows)
        if isinstance(rows, Sequence) and not isinstance(rows, str):
            return side_by_side([column.encode(values) for column, values in self._by_column(rows)], len(rows))
        table = open_table(rows, self.known_labels)
        needed = [column.name for column in self.context if not column.may_be_absent]
        require_columns(needed, table.columns, SchemaError)
        found, nothing = set(table.columns), [None] * len(table)
        blocks = [column.encode(table[column.name] if column.name in found else nothing) for column in self.context]
        return side_by_side(blocks, len(table))

    def _by_column(self, rows: Sequence[Any]) -> Iterator[tuple[Column, list[Any]]]:
        for row in rows:
            if not isinstance(row, Mapping):
                raise LogsError(
                    f"a row came as {type(row).__name__!r}; expected mappings from column to value. "
                    "Pass dictionaries, or a frame."
                )
            for column in self.context:
                if column.name not in row and not column.may_be_absent:
                    raise _lost_key(column.name, row)
            self._warn_unknown_keys(row)
        return ((column, [row.get(column.name) for row in rows]) for column in self.context)

    def _encode_one(self, row: Mapping[str, Any]) -> Float32[np.ndarray, " d"]:
        out: list[float] = []
        for column in self.context:
            try:
                value = row[column.name]
            except KeyError:
                if not column.may_be_absent:
                    raise _lost_key(column.name, row) from None
                value = None
            column.append(value, out)
        self._warn_unknown_keys(row)
        return np.array(out, dtype=np.float32)

    def _warn_unknown_keys(self, row: Mapping[str, Any]) -> None:
        if len(row) <= len(self.context) and not self.clocked:
            return  # all columns are there, so there is nothing else
        unknown = [key for key in row if key not in self._known_keys]
        if unknown:
            meant = near(str(unknown[0]), [name for name in self._known_keys if name not in row])
            warn(f"the row has keys that the model does not know: {shown(unknown)}; ignored.{meant}", LogsWarning)

    @cached_property
    def _known_keys(self) -> frozenset[str]:
        names = (self.instance, self.time, self.action, self.reward, *(one.name for one in self.context))
        return frozenset(name for name in names if name is not None)

    def numeric_scaling(self) -> tuple[Float32[np.ndarray, " d"], Float32[np.ndarray, " d"]]:
        """The means and standard deviations by which `encode` scales; raises unless that is all that it does."""
        scalings = [column.scaling for column in self.context]
        if None in scalings:
            raise SchemaError("categories and missing values are read by `schema.encode`, not by a compiled program.")
        means, stds = np.array(scalings, np.float32).reshape(-1, 2).T
        return means, stds

    def blocks(self, context: Float32[np.ndarray, "N d"]) -> Iterator[tuple[Column, Float32[np.ndarray, "N width"]]]:
        """Each column with the part of encoded contexts that it made."""
        start = 0
        for column in self.context:
            stop = start + len(column.names)
            yield column, context[:, start:stop]
            start = stop

    def without(self, names: Sequence[str]) -> tuple[Schema, Bool[np.ndarray, " d"]]:
        """The schema less these context columns, and which of the d float columns are left."""
        require_columns(names, [column.name for column in self.context], SchemaError)
        left = tuple(column for column in self.context if column.name not in names)
        kept = [column in left for column in self.context for _ in column.names]
        return replace(self, context=left), np.array(kept, dtype=bool)

    def action_index(self, label: Any) -> int:
        """The position of an action.

        >>> Schema("patient", None, "drug", "gain", (), ("a", "b")).action_index("b")
        1
        """
        try:
            position = self.action_positions.get(as_label(label))
        except TypeError:  # not hashable, so not a label
            position = None
        if position is None:
            raise SchemaError(
                f"unknown action {brief(label)}; column {self.action!r} had {len(self.actions)} actions when the "
                f"schema was made: {shown(self.actions)}. Use one of these, or fit again with the new action."
            )
        return position

    @property
    def known_labels(self) -> dict[str, tuple[Hashable, ...] | None]:
        """The columns that hold labels, with those that they may have; instances may have any."""
        categories = {column.name: column.labels for column in self.context if column.labels}
        return {**categories, self.action: self.actions, self.instance: None}

    @cached_property
    def action_positions(self) -> dict[Hashable, int]:
        return {label: position for position, label in enumerate(self.actions)}

    def to_json(self) -> dict[str, JsonValue]:
        """The schema in JSON types only; `from_json` gives an equal schema back.

        >>> schema = Schema("patient", None, "drug", "gain", (), ("a", 2.5))
        >>> schema.to_json()["actions"], Schema.from_json(schema.to_json()) == schema
        (['a', {'float': '2.5'}], True)
        """
        return {
            "instance": self.instance,
            "time": self.time,
            "action": self.action,
            "reward": self.reward,
            "context": [column.to_json() for column in self.context],
            "actions": [encode_label(label) for label in self.actions],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Schema:
        try:
            context = tuple(KINDS[column["kind"]].from_json(column) for column in saved["context"])
            actions = tuple(decode_label(label) for label in saved["actions"])
            schema = cls(saved["instance"], saved["time"], saved["action"], saved["reward"], context, actions)
            schema._require_sense()
        except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise SchemaError(
                f"this is not a saved schema ({type(error).__name__}: {one_line(error)[:200]}); "
                "expected what Schema.to_json makes."
            ) from error
        return schema

    def _require_sense(self) -> None:
        """Raise a ValueError unless names are text, and names, actions and categories differ from each other."""
        names = [self.instance, self.action, self.reward, *(column.name for column in self.context)]
        # The time may be a context as well.
        named = [*names, *(() if self.time is None or self.clocked else (self.time,))]
        if not all(type(name) is str for name in named) or len(set(named)) < len(named):
            raise ValueError(f"the columns are called {shown(named)}; expected different texts")
        for what, labels in (
            (f"column {self.action!r}", self.actions),
            *((f"column {column.name!r}", column.labels) for column in self.context),
        ):
            if len(set(labels)) < len(labels) or any(map(is_missing, labels)):
                raise ValueError(f"{what} has a label that is missing or comes twice: {shown(labels)}")


def side_by_side(blocks: Sequence[Float32[np.ndarray, "N _"]], rows: int) -> Float32[np.ndarray, "N d"]:
    """The numbers of all context columns; with no column at all, as many rows without any number."""
    return np.concatenate([np.zeros((rows, 0), dtype=np.float32), *blocks], axis=1)


def _lost_key(name: str, row: Mapping[str, Any]) -> SchemaError:
    keys = [str(key) for key in row]
    typo = difflib.get_close_matches(name, keys, n=1)
    meant = f" Is {typo[0]!r} meant for it?" if typo else ""
    return SchemaError(
        f"the row has no key {name!r}; it came with {shown(keys, 30)}.{meant} "
        "Give every context column; where the value is not known, give None."
    )
