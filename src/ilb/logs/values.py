"""The values of one column as arrays, out of any frame or out of a plain list.

Numbers are float64 with NaN for a missing value; labels are codes in order of first appearance, -1 for a missing one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
from jaxtyping import Float64, Int64, Shaped

from ilb.errors import LogsError
from ilb.logs.labels import as_label, is_missing
from ilb.logs.messages import counted

Values: TypeAlias = "nw.Series[Any] | Sequence[Any] | np.ndarray"

# Contexts and rewards are stored as float32: what lies beyond would become infinite there.
LARGEST = float(np.finfo(np.float32).max)


class Labels(NamedTuple):
    """A column of labels: `labels[codes[i]]` is the label of row i, and a code of -1 says that it is missing."""

    codes: Int64[np.ndarray, " N"]
    labels: tuple[Hashable, ...]

    def take(self, rows: Int64[np.ndarray, " M"]) -> Labels:
        """These rows, in this order."""
        return Labels(self.codes[rows], self.labels)

    def recoded(self, positions: dict[Hashable, int]) -> Int64[np.ndarray, " N"]:
        """The codes in another numbering of labels; -1 where the label is missing or not among them."""
        translation = np.array([*(positions.get(label, -1) for label in self.labels), -1], dtype=np.int64)
        return translation.take(self.codes)


def in_order(labels: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """The labels sorted, or as they come when they can't be compared with each other."""
    try:
        return tuple(sorted(labels))  # type: ignore[type-var]
    except TypeError:
        return tuple(labels)


def number(value: Any) -> float | None:
    """A value as a float, NaN when it is missing, None when it is no number.

    >>> number(True), number(np.float32(0.5)), number(Decimal("1.5")), number(None), number("7")
    (1.0, 0.5, 1.5, nan, None)
    """
    if type(value) is float:
        return value
    if is_missing(value):
        return float("nan")
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def read_numbers(name: str, values: Values, way_out: str) -> Float64[np.ndarray, " N"]:
    """A column of numbers, Booleans as 0 and 1; refuses whatever is no number, and infinite numbers."""
    if isinstance(values, np.ndarray):
        numbers = values.astype(np.float64)
    elif isinstance(values, nw.Series) and (values.dtype.is_numeric() or values.dtype == nw.Boolean):
        numbers = np.asarray(values.cast(nw.Float64).to_numpy(), dtype=np.float64)
    else:
        numbers = _numbers_one_by_one(name, values.to_list() if isinstance(values, nw.Series) else values, way_out)
    infinite = int(np.count_nonzero(np.abs(numbers) > LARGEST))
    if infinite:
        raise infinite_error(name, infinite)
    return numbers


def infinite_error(name: str, count: int) -> LogsError:
    """The refusal of numbers that are infinite, or become so as float32."""
    return LogsError(
        f"column {name!r} has {counted(count, 'infinite value')} (or beyond {LARGEST:.2g}); expected finite numbers. "
        "Replace them by what was measured, or by None where that is unknown."
    )


def not_a_number(name: str, count: int, example: Any, way_out: str) -> LogsError:
    """The refusal of text, dates and the like where numbers belong."""
    if isinstance(example, date | timedelta):
        way_out = "Turn times into numbers first, for example into days since a start date."
    found = f"{counted(count, 'value')} of type {type(example).__name__!r}, such as {example!r}"
    return LogsError(f"column {name!r} has {found}; expected numbers. {way_out}")


def _numbers_one_by_one(name: str, values: Sequence[Any], way_out: str) -> Float64[np.ndarray, " N"]:
    numbers = [number(value) for value in values]
    refused = [value for value, found in zip(values, numbers, strict=True) if found is None]
    if refused:
        raise not_a_number(name, len(refused), refused[0], way_out)
    return np.array(numbers, dtype=np.float64)


def read_labels(name: str, values: Values | Labels) -> Labels:
    """A column of labels, as Python objects; whole floats beside missing values are the integers that they were."""
    if isinstance(values, Labels):
        return values
    if isinstance(values, nw.Series) and _has_numpy_order(values.dtype):
        return _by_sorting(values)
    listed: Sequence[Any] = values.to_list() if isinstance(values, nw.Series) else list(values)
    index: dict[Hashable, int] = {}
    try:
        # NaN is not equal to itself, so many may be entered; they all end as missing.
        codes = np.array([index.setdefault(value, len(index)) for value in listed], dtype=np.int64)
    except TypeError as error:
        unhashable = next(value for value in listed if not _hashable(value))
        raise LogsError(
            f"column {name!r} has labels of type {type(unhashable).__name__!r}, such as {unhashable!r}; expected "
            "labels that can be dictionary keys. Turn them into text or tuples first."
        ) from error
    return _as_python(codes, list(index))


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _has_numpy_order(dtype: Any) -> bool:
    return bool(dtype.is_integer() or dtype.is_float()) or dtype in (nw.Boolean, nw.Datetime, nw.Date, nw.Duration)


def _by_sorting(series: nw.Series[Any]) -> Labels:
    missing = np.asarray(series.is_null().to_numpy(), dtype=bool)
    if series.dtype.is_float():
        missing = missing | np.isnan(np.asarray(series.to_numpy(), dtype=np.float64))
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


def read_times(name: str, series: nw.Series[Any]) -> Shaped[np.ndarray, " N"]:
    """A column of time stamps as something that NumPy can sort; text must be ISO dates, for others sort wrongly."""
    missing = int(series.null_count())
    if series.dtype.is_float():
        missing = int(np.count_nonzero(np.isnan(np.asarray(series.to_numpy(), dtype=np.float64))))
    if missing:
        raise LogsError(
            f"column {name!r} lacks the time in {counted(missing, 'row')}; expected a time in each row. "
            "Drop these rows, or leave out time= to keep the order of the table."
        )
    if _has_numpy_order(series.dtype):
        return np.asarray(series.to_numpy())
    times = read_labels(name, series)
    try:
        moments = [datetime.fromisoformat(label) if isinstance(label, str) else label for label in times.labels]
        ranks = {moment: rank for rank, moment in enumerate(sorted(set(moments)))}  # type: ignore[type-var]
    except (TypeError, ValueError) as error:
        raise LogsError(
            f"column {name!r} holds times such as {times.labels[0]!r} that have no order; expected numbers, dates or "
            "ISO text such as '2024-03-31'. Turn them into one of these, or leave out time= to keep the table's order."
        ) from error
    return np.array([ranks[moment] for moment in moments], dtype=np.int64).take(times.codes)
