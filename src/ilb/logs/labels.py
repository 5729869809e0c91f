"""Labels of instances, actions and categories: any hashable thing in memory, codes in arrays, and JSON on disk.

Two labels are the same when a dictionary says so (`1 == 1.0 == True`). NumPy and pandas scalars become the Python
objects that they stand for as soon as a table is read, so labels are the same whichever library held the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float64, Int64

from ilb.errors import LogsError
from ilb.logs.messages import brief

Values: TypeAlias = "nw.Series[Any] | Sequence[Any] | np.ndarray"
JsonValue: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

# Beyond this, readers that keep JSON numbers as doubles would change the label.
_LARGEST_PLAIN_INT = 2**53

LONGEST_INT = 1000
"""Hexadecimal digits of the largest integer that is a label; Python won't print much longer ones."""


def is_missing(value: Any) -> bool:
    """Whether this stands for "not known": None, NaN, pandas' NaT and NA.

    >>> [is_missing(value) for value in (None, float("nan"), 0.0, "", "nan")]
    [True, True, False, False, False]
    """
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 (only NaN and NaT differ from themselves)
    except InvalidOperation:  # a signalling NaN refuses to be compared
        return True
    except (TypeError, ValueError):  # pandas' NA refuses to be a truth value, and so do arrays
        pandas = sys.modules.get("pandas")
        return pandas is not None and value is pandas.NA


def as_label(value: Any) -> Any:
    """The Python object that a value of a table stands for; what is a Python object already stays as it is.

    Times finer than a microsecond have no Python equivalent and are left alone.

    >>> as_label(np.int64(3)), as_label((np.str_("a"), np.bool_(True))), as_label(np.datetime64("2020-01-02"))
    (3, ('a', True), datetime.date(2020, 1, 2))
    """
    if type(value) in (tuple, frozenset):
        return type(value)(as_label(item) for item in value)
    if type(value) in (str, bool) or type(value) in _SAVED:
        return value
    return None if is_missing(value) else _python_object(value)


def _python_object(value: Any) -> Any:
    if isinstance(value, np.generic):
        return _python_time(value) if isinstance(value, np.datetime64 | np.timedelta64) else value.item()
    if isinstance(value, datetime) and not getattr(value, "nanosecond", 0):
        clock = (value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
        return datetime(value.year, value.month, value.day, *clock, fold=value.fold)
    if isinstance(value, timedelta) and not getattr(value, "nanoseconds", 0):
        return timedelta(value.days, value.seconds, value.microseconds)
    return value


def _python_time(value: np.datetime64 | np.timedelta64) -> Any:
    if isinstance(value.item(), date | timedelta):
        return value.item()
    try:
        rounded = value.astype(f"{'datetime' if isinstance(value, np.datetime64) else 'timedelta'}64[us]")
    except TypeError:  # months have no fixed length
        return value
    return rounded.item() if rounded == value and isinstance(rounded.item(), date | timedelta) else value


class Labels(NamedTuple):
    """A column of labels: `labels[codes[i]]` is the label of row i, and a code of -1 says that it is missing."""

    codes: Int64[np.ndarray, " N"]
    labels: tuple[Hashable, ...]

    def take(self, rows: Int64[np.ndarray, " M"]) -> Labels:
        return Labels(self.codes[rows], self.labels)

    def recoded(self, positions: dict[Hashable, int]) -> Int64[np.ndarray, " N"]:
        """The codes in another numbering of labels; -1 where the label is missing or not among them."""
        translation = np.array([*(positions.get(label, -1) for label in self.labels), -1], dtype=np.int64)
        return translation.take(self.codes)

    def as_numbers(self) -> Float64[np.ndarray, " N"]:
        """The codes as floats, NaN where the label is missing."""
        return np.where(self.codes < 0, np.nan, self.codes.astype(np.float64))


def in_order(labels: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The labels sorted, or as they come when they can't be compared with each other."""
    try:
        return tuple(sorted(labels))  # type: ignore[type-var]
    except TypeError:
        return tuple(labels)


def read_labels(name: str, values: Values | Labels) -> Labels:
    """A column of labels, as Python objects; whole floats beside missing values are the integers that they were."""
    if isinstance(values, Labels):
        return values
    if isinstance(values, nw.Series) and has_numpy_order(values.dtype):
        return _by_sorting(values)
    listed: Sequence[Any] | np.ndarray = values.to_list() if isinstance(values, nw.Series) else values
    index: dict[Hashable, int] = {}
    codes = []
    for value in listed:
        try:
            # NaN is not equal to itself, so many may be entered; they all end as missing.
            codes.append(index.setdefault(value, len(index)))
        except TypeError as error:
            raise LogsError(
                f"column {name!r} has labels of type {type(value).__name__!r}, such as {brief(value)}; expected "
                "labels that can be dictionary keys. Turn them into text or tuples first."
            ) from error
    return _as_python(np.array(codes, dtype=np.int64), list(index))


def has_numpy_order(dtype: Any) -> bool:
    """Whether NumPy can sort columns of this type."""
    return bool(dtype.is_integer() or dtype.is_float()) or dtype in (nw.Boolean, nw.Datetime, nw.Date, nw.Duration)


def missing_rows(series: nw.Series[Any]) -> Bool[np.ndarray, " N"]:
    """Which rows of a column are null or NaN."""
    missing = np.asarray(series.is_null().to_numpy(), dtype=bool)
    if series.dtype.is_float():
        missing = missing | np.isnan(np.asarray(series.to_numpy(), dtype=np.float64))
    return missing


def _by_sorting(series: nw.Series[Any]) -> Labels:
    missing = missing_rows(series)
    present = series if not missing.any() else series[np.flatnonzero(~missing)]
    array = present.to_numpy()
    _, first, inverse = np.unique(array, return_index=True, return_inverse=True)
    appearance = np.argsort(first)
    rank = np.empty_like(appearance)
    rank[appearance] = np.arange(len(first))
    codes = np.full(len(series), -1, dtype=np.int64)
    codes[~missing] = rank[inverse]
    labels = present[first[appearance]].to_list() if len(first) else []
    # pandas has no integer column with missing values by default: 1, 2, None comes here as 1.0, 2.0, NaN.
    if series.dtype.is_float() and missing.any() and all(label.is_integer() for label in labels):
        labels = [int(label) for label in labels]
    return _as_python(codes, labels)


def _as_python(codes: Int64[np.ndarray, " N"], raw: list[Any]) -> Labels:
    index: dict[Hashable, int] = {}
    translation = np.full(len(raw) + 1, -1, dtype=np.int64)
    for position, value in enumerate(raw):
        if not is_missing(value):
            translation[position] = index.setdefault(as_label(value), len(index))
    return Labels(translation[codes], tuple(index))


def encode_label(label: Hashable) -> JsonValue:
    """A label as JSON, from which `decode_label` makes an equal label of the same type.

    >>> encode_label("drug A"), encode_label(3), encode_label(2.5), encode_label((1, b"x"))
    ('drug A', 3, {'float': '2.5'}, {'tuple': [1, {'bytes': '78'}]})
    """
    label = as_label(label)
    if label is None or type(label) in (str, bool) or (type(label) is int and abs(label) <= _LARGEST_PLAIN_INT):
        return label  # type: ignore[return-value]
    if type(label) not in _SAVED:
        raise LogsError(
            f"label {brief(label)} of type {type(label).__name__!r} can't be saved; expected str, bool, None, "
            f"{', '.join(kind.__name__ for kind in _SAVED)}, or a NumPy scalar. "
            "Turn the labels into one of these before fitting, for example with str()."
        )
    tag, encode, decode = _SAVED[type(label)]
    encoded = encode(label)
    if type(label) is int:
        decode(encoded)  # what can't be read must not be written
    return {tag: encoded}


def decode_label(value: JsonValue) -> Hashable:
    """The label that `encode_label` was given.

    >>> decode_label({"tuple": [1, {"bytes": "78"}]})
    (1, b'x')
    """
    if not isinstance(value, dict | list | float):
        return value
    try:
        ((tag, content),) = value.items()  # type: ignore[union-attr]
        label: Hashable = _DECODERS[tag](content)
        hash(label)
    except (AttributeError, ValueError, KeyError, TypeError, ArithmeticError, OSError, RecursionError) as error:
        raise LogsError(f"{brief(value)} is not a saved label; expected what encode_label makes.") from error
    return label


def _decode_int(text: str) -> int:
    if len(text) > LONGEST_INT:
        raise ValueError(f"an integer of {len(text)} hexadecimal digits")
    return int(text, 16)


def _encode_datetime(label: datetime) -> JsonValue:
    zone = label.tzinfo.key if isinstance(label.tzinfo, ZoneInfo) else None
    local = label if zone is None else label.replace(tzinfo=None)
    return [local.isoformat(), zone, label.fold]


def _decode_datetime(content: Any) -> datetime:
    text, zone, fold = content
    label = datetime.fromisoformat(text).replace(fold=fold)
    return label if zone is None else label.replace(tzinfo=ZoneInfo(zone))


def _encode_set(label: frozenset[Hashable]) -> JsonValue:
    # Sets have no order of their own; sorting gives equal sets the same bytes on disk.
    return sorted((encode_label(item) for item in label), key=json.dumps)


_SAVED: dict[type, tuple[str, Callable[[Any], JsonValue], Callable[[Any], Hashable]]] = {
    int: ("int", hex, _decode_int),
    float: ("float", repr, float),
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    datetime: ("datetime", _encode_datetime, _decode_datetime),
    date: ("date", date.isoformat, date.fromisoformat),
    timedelta: (
        "timedelta",
        lambda label: [label.days, label.seconds, label.microseconds],
        lambda parts: timedelta(*parts),
    ),
    Decimal: ("Decimal", str, Decimal),
    UUID: ("UUID", str, UUID),
    tuple: (
        "tuple",
        lambda label: [encode_label(item) for item in label],
        lambda items: tuple(decode_label(item) for item in items),
    ),
    frozenset: ("frozenset", _encode_set, lambda items: frozenset(decode_label(item) for item in items)),
}
_DECODERS = {tag: decode for tag, _, decode in _SAVED.values()}
