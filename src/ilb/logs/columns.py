"""One context column: how its values become float32 numbers, the same way at fit and at decision time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float32, Float64

from ilb.errors import LogsError, LogsWarning
from ilb.logs.labels import JsonValue, as_label, decode_label, encode_label, is_missing
from ilb.logs.messages import counted, shown, warn
from ilb.logs.values import (
    LARGEST,
    Labels,
    Values,
    in_order,
    infinite_error,
    not_a_number,
    number,
    read_labels,
    read_numbers,
)

MOST_CATEGORIES = 100
NUMBERS_EXPECTED = "Turn them into numbers, or name the column in categorical= when fitting."


@dataclass(frozen=True)
class NumericColumn:
    r"""A standardised number, $(v - \text{mean}) / \text{std}$, then a 0/1 missingness column when `flagged`.

    A missing value is replaced by `fill`, the training median. `std` is 1 where the training values are constant.
    """

    dtype: ClassVar[Any] = nw.Float64

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

    def encode(self, values: Values) -> Float32[np.ndarray, "N width"]:
        """Many values."""
        numbers = read_numbers(self.name, values, NUMBERS_EXPECTED)
        missing = np.isnan(numbers)
        if not self.flagged and missing.any():
            self._warn_unflagged(int(missing.sum()))
        with np.errstate(over="ignore"):
            scaled = (np.where(missing, self.fill, numbers) - self.mean) / self.std
        if (far := int(np.count_nonzero(np.abs(scaled) > LARGEST))) > 0:
            raise infinite_error(self.name, far)
        return np.column_stack([scaled, missing] if self.flagged else [scaled]).astype(np.float32)

    def append(self, value: Any, out: list[float]) -> None:
        """One value, added to a row under construction: the live path, free of NumPy."""
        found = value if type(value) is float else number(value)
        if found is None:
            raise not_a_number(self.name, 1, value, NUMBERS_EXPECTED)
        missing = found != found  # noqa: PLR0124 (NaN)
        if missing:
            found = self.fill
            if not self.flagged:
                self._warn_unflagged(1)
        scaled = (found - self.mean) / self.std
        if not -LARGEST <= scaled <= LARGEST or not -LARGEST <= found <= LARGEST:
            raise infinite_error(self.name, 1)
        out.append(scaled)
        if self.flagged:
            out.append(float(missing))

    def missing(self, block: Float32[np.ndarray, "N width"]) -> Bool[np.ndarray, " N"]:
        """Which rows of its encoded columns stand for a missing value; unknowable, hence none, without a flag."""
        return block[:, 1] == 1 if self.flagged else np.zeros(len(block), dtype=bool)

    def decode(self, block: Float32[np.ndarray, "N width"]) -> list[Any]:
        """The values again, None for a missing one."""
        values: list[Any] = (block[:, 0].astype(np.float64) * self.std + self.mean).tolist()
        for row in np.flatnonzero(self.missing(block)):
            values[row] = None
        return values

    def to_json(self) -> dict[str, JsonValue]:
        """Only JSON types."""
        numbers: dict[str, JsonValue] = {"mean": self.mean, "std": self.std, "fill": self.fill}
        return {"kind": "numeric", "name": self.name, **numbers, "flagged": self.flagged}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> NumericColumn:
        """What `to_json` was called on."""
        return cls(saved["name"], float(saved["mean"]), float(saved["std"]), float(saved["fill"]), saved["flagged"])

    def _warn_unflagged(self, count: int) -> None:
        warn(
            f"column {self.name!r} lacks {counted(count, 'value')}, filled with the training median {self.fill:g}. "
            "It had no missing values in training, so the model has no missingness flag for it and takes the fill "
            "for a measurement. Measure it, or fit on logs where it is sometimes missing.",
            LogsWarning,
        )


@dataclass(frozen=True)
class CategoricalColumn:
    """One 0/1 column for each category, then a 0/1 missingness column when `flagged`; all zeros when missing."""

    dtype: ClassVar[Any] = None  # whatever the labels are

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

    @cached_property
    def positions(self) -> dict[Hashable, int]:
        """Where each category has its 1."""
        return {category: position for position, category in enumerate(self.categories)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the float columns made from this one."""
        made = tuple(f"{self.name} = {category}" for category in self.categories)
        return (*made, f"{self.name} is missing") if self.flagged else made

    def encode(self, values: Values | Labels) -> Float32[np.ndarray, "N width"]:
        """Many values."""
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
        """One value, added to a row under construction."""
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
                f"column {self.name!r} got {value!r} of type {type(value).__name__!r}; expected one of its "
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
        """Only JSON types."""
        categories: list[JsonValue] = [encode_label(category) for category in self.categories]
        return {"kind": "categorical", "name": self.name, "categories": categories, "flagged": self.flagged}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> CategoricalColumn:
        """What `to_json` was called on."""
        return cls(saved["name"], tuple(decode_label(label) for label in saved["categories"]), saved["flagged"])

    def _warn_unknown(self, unknown: list[Hashable], count: int) -> None:
        warn(
            f"column {self.name!r} has {counted(count, 'value')} that training never saw: {shown(unknown)}, "
            f"treated as missing; known are {shown(self.categories)}. Check the spelling, or fit again with rows "
            "that have the new category.",
            LogsWarning,
        )

    def _warn_unflagged(self, count: int) -> None:
        warn(
            f"column {self.name!r} lacks {counted(count, 'value')}, given as zeros for every category. It had no "
            "missing values in training, so the model has no missingness flag for it and has never seen this. "
            "Fill it in, or fit on logs where it is sometimes missing.",
            LogsWarning,
        )


Column: TypeAlias = NumericColumn | CategoricalColumn
KINDS: dict[str, type[NumericColumn] | type[CategoricalColumn]] = {
    "numeric": NumericColumn,
    "categorical": CategoricalColumn,
}
