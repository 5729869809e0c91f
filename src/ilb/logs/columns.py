"""Context columns: how values of any frame or list become float32 numbers, the same way at fit and at decision time."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, TypeAlias

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from ilb.errors import LogsError, LogsWarning
from ilb.logs.labels import (
    JsonValue,
    Labels,
    Values,
    as_label,
    decode_label,
    encode_label,
    in_order,
    is_missing,
    read_labels,
)
from ilb.logs.messages import brief, counted, shown, warn

# Contexts and rewards are stored as float32: what lies beyond would become infinite there.
_LARGEST = float(np.finfo(np.float32).max)
MOST_CATEGORIES = 100
NUMBERS_EXPECTED = "Turn them into numbers, or name the column in categorical= when fitting."
_EPOCH = datetime(1970, 1, 1)
_DAY_FIRST = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2}))?)?")


def _number(value: Any) -> float | None:
    """A value as a float, NaN when it is missing, None when it is no number.

    >>> _number(True), _number(np.float32(0.5)), _number(Decimal("1.5")), _number(None), _number("7")
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
    """A column of numbers, Booleans as 0 and 1, NaN where missing; refuses what is no number, and infinite numbers."""
    if isinstance(values, nw.Series):
        plain = values.dtype.is_numeric() or values.dtype == nw.Boolean
        values = values.cast(nw.Float64).to_numpy() if plain else values.to_list()
    if isinstance(values, np.ndarray):
        numbers = values.astype(np.float64)
    else:
        found = [_number(value) for value in values]
        refused = [value for value, one in zip(values, found, strict=True) if one is None]
        if refused:
            # Text that a person reads as a number is not what the column stumbled over.
            bad = [value for value in refused if not _is_number_in_text(value)] or refused
            raise _not_a_number(name, len(bad), bad[0], way_out)
        numbers = np.array(found, dtype=np.float64)
    infinite = int(np.count_nonzero(np.abs(numbers) > _LARGEST))
    if infinite:
        raise _infinite(name, infinite)
    return numbers


def _is_number_in_text(value: Any) -> bool:
    try:
        float(value if isinstance(value, str) else "no text")
    except ValueError:
        return False
    return True


def _moment(value: Any) -> float | None:
    """A time as a number: days since 1970 (UTC) of dates and ISO text, NaN when missing, None when it is no time.

    >>> _moment(3), _moment(date(1970, 1, 3)), _moment("1970-01-03T12:00"), _moment(None), _moment("soon")
    (3.0, 2.0, 2.5, nan, None)
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, str):
        try:
            value = read_moment(value)
        except ValueError:
            return None
    if is_missing(value) or not isinstance(value, date | np.datetime64):
        return _number(value)
    if isinstance(value, np.datetime64):
        return float((value - np.datetime64(_EPOCH, "D")) / np.timedelta64(1, "D"))
    if isinstance(value, datetime):
        return (value - (_EPOCH if value.tzinfo is None else _EPOCH.replace(tzinfo=UTC))) / timedelta(days=1)
    return float(value.toordinal() - _EPOCH.toordinal())


def read_moment(text: str) -> datetime:
    """Read a date, with or without a time of day, as ISO 8601 or with points between day, month and year.

    Dates with slashes are refused: who wrote 02/03/2021 may have meant either month.

    >>> read_moment("2021-02-16").day, read_moment("16.2.2021 14:30").hour
    (16, 14)
    """
    found = _DAY_FIRST.fullmatch(text.strip())
    if found is None:
        return datetime.fromisoformat(text)
    day, month, year, hour, minute, second = (int(part or 0) for part in found.groups())
    return datetime(year, month, day, hour, minute, second)


def read_moments(values: Values) -> tuple[Float64[np.ndarray, " N"], list[Any]]:
    """Times as numbers (dates as days since 1970, in UTC), NaN where missing; and the values that are no times.

    >>> read_moments(["1970-01-02", None, "soon"])
    (array([ 1., nan, nan]), ['soon'])
    """
    if isinstance(values, nw.Series):
        if values.dtype.is_numeric() or values.dtype == nw.Boolean:
            values = values.cast(nw.Float64)
        plain = values.dtype in (nw.Float64, nw.Datetime, nw.Date)
        values = values.to_numpy() if plain else values.to_list()
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        return (values - np.datetime64(_EPOCH, "D")) / np.timedelta64(1, "D"), []
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64), []
    found = [_moment(value) for value in values]
    refused = [value for value, one in zip(values, found, strict=True) if one is None]
    return np.array([np.nan if one is None else one for one in found], dtype=np.float64), refused


def with_none(values: Float[np.ndarray, " N"], missing: Bool[np.ndarray, " N"]) -> list[Any]:
    """The numbers as Python has them, None where missing."""
    return [None if lost else value for value, lost in zip(values.tolist(), missing.tolist(), strict=True)]


def _infinite(name: str, count: int) -> LogsError:
    """The refusal of numbers that are infinite, or become so as float32."""
    return LogsError(
        f"column {name!r} has {counted(count, 'infinite value')} (or beyond {_LARGEST:.2g}); expected finite numbers. "
        "Replace them by what was measured, or by None where that is unknown."
    )


def _not_a_number(name: str, count: int, example: Any, way_out: str) -> LogsError:
    """The refusal of text, dates and the like where numbers belong."""
    if isinstance(example, date | timedelta):
        way_out = "If it says when, name it in time=; else turn it into days since a start date."
    found = f"{counted(count, 'value')} of type {type(example).__name__!r}, such as {brief(example)}"
    return LogsError(f"column {name!r} has {found}; expected numbers. {way_out}")


def _warn_unflagged(name: str, count: int, treatment: str, way_out: str) -> None:
    warn(
        f"column {name!r} lacks {counted(count, 'value')}, {treatment}. It had no missing values in training, so the "
        f"model has no missingness flag for it and {way_out}, or fit on logs where it is sometimes missing.",
        LogsWarning,
    )


def _saved_scale(saved: dict[str, Any], *names: str) -> list[float]:
    """Numbers of a saved column, by which others are scaled: all finite, and a spread above zero."""
    if not all(type(saved[name]) in (int, float) for name in names):
        raise ValueError(f"column {saved['name']!r} has scales that are no numbers")
    numbers = [float(saved[name]) for name in names]
    if not all(abs(number) < float("inf") for number in numbers) or numbers[names.index("std")] <= 0:
        raise ValueError(f"column {saved['name']!r} has scales {shown(numbers)}; expected finite ones, the std above 0")
    return numbers


def _saved_flag(saved: dict[str, Any]) -> bool:
    flagged = saved["flagged"]
    if type(flagged) is not bool:
        raise ValueError(f"column {saved['name']!r} has a flag that is neither true nor false")
    return flagged


@dataclass(frozen=True)
class NumericColumn:
    r"""A standardised number, $(v - \text{mean}) / \text{std}$, then a 0/1 missingness column when `flagged`.

    A missing value is replaced by `fill`, the training median. `std` is 1 where the training values are constant.
    """

    dtype: ClassVar[Any] = nw.Float64
    may_be_absent: ClassVar[bool] = False
    labels: ClassVar[tuple[Hashable, ...]] = ()

    name: str
    mean: float
    std: float
    fill: float
    flagged: bool

    @classmethod
    def fit(cls, name: str, values: Float64[np.ndarray, " N"]) -> NumericColumn:
        """Learn scale, median and whether values may be missing.

        >>> NumericColumn.fit("mmse", np.array([20.0, 30.0, np.nan]))
        NumericColumn(name='mmse', mean=25.0, std=5.0, fill=25.0, flagged=True)
        """
        # Sorted first, so that sums and hence scales do not depend on the order of the rows.
        known = np.sort(values[~np.isnan(values)])
        constant = known[0] == known[-1]
        mean = float(known[0] if constant else known.mean())
        std = 0.0 if constant else float(known.std())
        if not constant and std == 0:  # the squares of tiny numbers vanish
            largest = float(np.abs(known).max())
            std = largest * float((known / largest).std())
        return cls(name, mean, std or 1.0, float(np.median(known)), len(known) < len(values))

    @classmethod
    def as_given(cls, name: str, values: Float64[np.ndarray, " N"]) -> NumericColumn:
        """Leave numbers as they are: mean 0, std 1."""
        missing = np.isnan(values)
        return cls(name, 0.0, 1.0, float(np.median(values[~missing])), bool(missing.any()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the float columns made from this one."""
        return (self.name, f"{self.name} is missing") if self.flagged else (self.name,)

    @property
    def scaling(self) -> tuple[float, float] | None:
        """Mean and standard deviation, where scaling by them is all that `encode` does."""
        return None if self.flagged else (self.mean, self.std)

    def encode(self, values: Values) -> Float32[np.ndarray, "N width"]:
        numbers = read_numbers(self.name, values, NUMBERS_EXPECTED)
        missing = np.isnan(numbers)
        if not self.flagged and missing.any():
            self._warn_unflagged(int(missing.sum()))
        with np.errstate(over="ignore"):
            scaled = (np.where(missing, self.fill, numbers) - self.mean) / self.std
        if (far := int(np.count_nonzero(np.abs(scaled) > _LARGEST))) > 0:
            raise _infinite(self.name, far)
        return np.column_stack([scaled, missing] if self.flagged else [scaled]).astype(np.float32)

    def append(self, value: Any, out: list[float]) -> None:
        """One value, added to a row under construction: the live path, free of NumPy."""
        found = _number(value)
        if found is None:
            raise _not_a_number(self.name, 1, value, NUMBERS_EXPECTED)
        missing = found != found  # noqa: PLR0124 (NaN)
        if missing:
            found = self.fill
            if not self.flagged:
                self._warn_unflagged(1)
        scaled = (found - self.mean) / self.std
        if not -_LARGEST <= scaled <= _LARGEST or not -_LARGEST <= found <= _LARGEST:
            raise _infinite(self.name, 1)
        out.append(scaled)
        if self.flagged:
            out.append(float(missing))

    def missing(self, block: Float32[np.ndarray, "N width"]) -> Bool[np.ndarray, " N"]:
        """Which rows of its encoded columns stand for a missing value; unknowable, hence none, without a flag."""
        return block[:, 1] == 1 if self.flagged else np.zeros(len(block), dtype=bool)

    def decode(self, block: Float32[np.ndarray, "N width"]) -> list[Any]:
        """The values again, None for a missing one."""
        values = block[:, 0].astype(np.float64) * self.std + self.mean
        return with_none(values, self.missing(block))

    def to_json(self) -> dict[str, JsonValue]:
        return {"kind": "numeric", **asdict(self)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> NumericColumn:
        mean, std, fill = _saved_scale(saved, "mean", "std", "fill")
        return cls(saved["name"], mean, std, fill, _saved_flag(saved))

    def _warn_unflagged(self, count: int) -> None:
        treatment = f"filled with the training median {self.fill:g}"
        _warn_unflagged(self.name, count, treatment, "takes the fill for a measurement. Measure it")


@dataclass(frozen=True)
class ClockColumn:
    r"""The time of the row, $(v - \text{mean}) / \text{std}$, where $v$ is a number or the days since 1970 (UTC).

    A time that is not given is taken to be the mean, with a warning. Times run on after training, so none is too late.

    >>> ClockColumn("visit", mean=2.0, std=4.0).encode([2, "1970-01-07", date(1970, 1, 1)])[:, 0].tolist()
    [0.0, 1.0, -0.5]
    """

    dtype: ClassVar[Any] = nw.Float64
    may_be_absent: ClassVar[bool] = True
    labels: ClassVar[tuple[Hashable, ...]] = ()

    name: str
    mean: float
    std: float

    @classmethod
    def fit(cls, name: str, values: Float64[np.ndarray, " N"]) -> ClockColumn:
        """Learn the scale of times, none of them missing."""
        scale = NumericColumn.fit(name, read_numbers(name, values, NUMBERS_EXPECTED))
        return cls(name, scale.mean, scale.std)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def scaling(self) -> tuple[float, float]:
        return self.mean, self.std

    def encode(self, values: Values) -> Float32[np.ndarray, "N 1"]:
        numbers, refused = read_moments(values)
        if refused:
            raise self._no_time(len(refused), refused[0])
        if (infinite := int(np.count_nonzero(np.isinf(numbers)))) > 0:
            raise _infinite(self.name, infinite)
        missing = np.isnan(numbers)
        if missing.any():
            self._warn_missing(int(missing.sum()))
        with np.errstate(over="ignore"):
            scaled = (np.where(missing, self.mean, numbers) - self.mean) / self.std
        return np.clip(scaled, -_LARGEST, _LARGEST)[:, None].astype(np.float32)

    def append(self, value: Any, out: list[float]) -> None:
        found = _moment(value)
        if found is None:
            raise self._no_time(1, value)
        if abs(found) == float("inf"):
            raise _infinite(self.name, 1)
        if found != found:  # noqa: PLR0124 (NaN)
            self._warn_missing(1)
            found = self.mean
        out.append(min(max((found - self.mean) / self.std, -_LARGEST), _LARGEST))

    def missing(self, block: Float32[np.ndarray, "N 1"]) -> Bool[np.ndarray, " N"]:
        return np.zeros(len(block), dtype=bool)

    def decode(self, block: Float32[np.ndarray, "N 1"]) -> list[Any]:
        """The times again, as numbers."""
        return list((block[:, 0].astype(np.float64) * self.std + self.mean).tolist())

    def to_json(self) -> dict[str, JsonValue]:
        return {"kind": "clock", **asdict(self)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> ClockColumn:
        mean, std = _saved_scale(saved, "mean", "std")
        return cls(saved["name"], mean, std)

    def _warn_missing(self, count: int) -> None:
        warn(
            f"column {self.name!r} lacks the time in {counted(count, 'row')}, where one was expected; its average in "
            f"training, {self.mean:g}, was used. Give a number or a date, as the logs had it.",
            LogsWarning,
        )

    def _no_time(self, count: int, example: Any) -> LogsError:
        found = f"{counted(count, 'value')} of type {type(example).__name__!r}, such as {brief(example)}"
        return LogsError(
            f"column {self.name!r} has {found}; expected times: numbers, dates or ISO text such as '2024-03-31'. "
            "Turn them into one of these, or give None."
        )


@dataclass(frozen=True)
class CategoricalColumn:
    """One 0/1 column for each category, then a 0/1 missingness column when `flagged`; all zeros when missing."""

    dtype: ClassVar[Any] = None  # whatever the labels are
    may_be_absent: ClassVar[bool] = False
    scaling: ClassVar[None] = None

    name: str
    categories: tuple[Hashable, ...]
    flagged: bool

    @classmethod
    def fit(cls, name: str, values: Labels) -> CategoricalColumn:
        """Learn the categories.

        >>> CategoricalColumn.fit("sex", Labels(np.array([0, 1, -1]), ("M", "F")))
        CategoricalColumn(name='sex', categories=('F', 'M'), flagged=True)
        """
        if len(values.labels) > MOST_CATEGORIES:
            raise LogsError(
                f"column {name!r} has {len(values.labels):,} different values, such as {shown(values.labels, 3)}; "
                f"expected at most {MOST_CATEGORIES} categories. It looks like free text or an identifier: "
                "drop it with context=, or group its values."
            )
        return cls(name, in_order(values.labels), bool((values.codes < 0).any()))

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """The labels that its values may have, where they have any."""
        return self.categories

    @cached_property
    def positions(self) -> dict[Hashable, int]:
        return {category: position for position, category in enumerate(self.categories)}

    @property
    def names(self) -> tuple[str, ...]:
        made = tuple(f"{self.name} = {category}" for category in self.categories)
        return (*made, f"{self.name} is missing") if self.flagged else made

    def encode(self, values: Values | Labels) -> Float32[np.ndarray, "N width"]:
        found = read_labels(self.name, values)
        codes = found.recoded(self.positions)
        unknown = [label for label in found.labels if label not in self.positions]
        if unknown:
            self._warn_unknown(unknown, int(np.count_nonzero((codes < 0) & (found.codes >= 0))))
        missing = int(np.count_nonzero(found.codes < 0))
        if missing and not self.flagged:
            self._warn_unflagged(missing)
        block = np.zeros((len(codes), len(self.names)), dtype=np.float32)
        known = codes >= 0
        block[known, codes[known]] = 1
        if self.flagged:
            block[~known, -1] = 1
        return block

    def append(self, value: Any, out: list[float]) -> None:
        block = [0.0] * (len(self.categories) + self.flagged)
        position = None if is_missing(value) else self._position(value)
        if position is not None:
            block[position] = 1.0
        elif self.flagged:
            block[-1] = 1.0
        elif is_missing(value):
            self._warn_unflagged(1)
        out.extend(block)

    def _position(self, value: Any) -> int | None:
        try:
            label = as_label(value)
            position = self.positions.get(label)
        except TypeError as error:
            raise LogsError(
                f"column {self.name!r} got {brief(value)} of type {type(value).__name__!r}; expected one of its "
                f"categories: {shown(self.categories)}, or None."
            ) from error
        if position is None:
            self._warn_unknown([label], 1)
        return position

    def missing(self, block: Float32[np.ndarray, "N width"]) -> Bool[np.ndarray, " N"]:
        """Which rows of its encoded columns stand for a missing or unknown value."""
        return np.logical_not(block[:, : len(self.categories)].any(axis=1))

    def decode(self, block: Float32[np.ndarray, "N width"]) -> list[Any]:
        """The categories again, None for a missing one."""
        codes = np.where(self.missing(block), -1, block[:, : len(self.categories)].argmax(axis=1))
        values = (*self.categories, None)
        return [values[code] for code in codes.tolist()]

    def to_json(self) -> dict[str, JsonValue]:
        categories: list[JsonValue] = [encode_label(category) for category in self.categories]
        return {"kind": "categorical", "name": self.name, "categories": categories, "flagged": self.flagged}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> CategoricalColumn:
        return cls(saved["name"], tuple(decode_label(label) for label in saved["categories"]), _saved_flag(saved))

    def _warn_unknown(self, unknown: list[Hashable], count: int) -> None:
        warn(
            f"column {self.name!r} has {counted(count, 'value')} that training never saw: {shown(unknown)}, "
            f"treated as missing; known are {shown(self.categories)}. Check the spelling, or fit again with rows "
            "that have the new category.",
            LogsWarning,
        )

    def _warn_unflagged(self, count: int) -> None:
        treatment = "given as zeros for every category"
        _warn_unflagged(self.name, count, treatment, "has never seen this. Fill it in")


Column: TypeAlias = NumericColumn | ClockColumn | CategoricalColumn
KINDS: dict[str, type[NumericColumn] | type[ClockColumn] | type[CategoricalColumn]] = {
    "numeric": NumericColumn,
    "clock": ClockColumn,
    "categorical": CategoricalColumn,
}
