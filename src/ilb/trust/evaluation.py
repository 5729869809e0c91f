"""Evaluation: what would be gained, how sure that is, and where the logs can't say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from ilb.estimates import IntervalEstimate
from ilb.logs.messages import counted
from ilb.trust.sensitivity import Sensitivity

QUEUE = "queue replay"
DOUBLY = "doubly robust"
CROSSOVER = "crossover"
BETWEEN = "difference"
DISAGREEMENT = "disagreement of the two"


class Line(NamedTuple):
    """An estimated number: what it is of, by which estimator, and over how many decisions of each person.

    `followed` is the share of people whose rewards could be seen that far; of two ways to decide, the smaller one. For
    the others what is expected of them stands in.
    """

    quantity: str
    estimator: str
    rounds: int
    figure: IntervalEstimate
    followed: float = 1.0

    @property
    def is_gain(self) -> bool:
        return self.quantity.startswith(("gain", "disagreement"))


class Horizon(NamedTuple):
    """How many decisions for each person the estimates are of, and how far the logs can follow them.

    `followed` is the share of people whose every reward up to there could be seen, `observed` the share of rewards.
    `shares[h - 1]` is the share of people followed for h decisions.
    """

    rounds: int
    followed: float
    observed: float
    asked: int | None
    shares: tuple[float, ...]


class Control(NamedTuple):
    """A question whose answer is known: what came out, what should have, and whether it did."""

    name: str
    found: str
    expected: str
    passed: bool


@dataclass(frozen=True)
class Evaluation:
    """What a policy would have brought the people of the logs, each decided for by a model that had not seen them.

    Numbers are rewards of one decision, averaged over the first `horizon.rounds` decisions of each person and then over
    people. `refusal` says why nothing is claimed, where the logs can't say; it is None where they can. `models` are the
    kinds of model that decided, one for each fold.
    """

    policy: str
    people: int
    horizon: Horizon
    lines: tuple[Line, ...]
    sentences: tuple[str, ...]
    refusal: str | None = None
    controls: tuple[Control, ...] = ()
    sensitivity: Sensitivity | None = None
    models: tuple[str, ...] = ()

    def figure(self, quantity: str, estimator: str = QUEUE) -> IntervalEstimate:
        """Give one of the numbers, by the name it has in the table; the first, where there are two."""
        for line in self.lines:
            if (line.quantity, line.estimator) == (quantity, estimator):
                return line.figure
        known = ", ".join(f"{line.quantity!r} ({line.estimator})" for line in self.lines) or "none"
        raise KeyError(f"there is no {quantity!r} by {estimator!r}; there are: {known}.")

    @property
    def gain(self) -> IntervalEstimate | None:
        """The gain over what was done, by queue replay; None if it can't be said."""
        return None if self.refusal else self.figure(GAIN_OVER_DONE)

    def to_frame(self, backend: Any = "pandas") -> Any:
        """Give the numbers as a "pandas", "polars" or "pyarrow" frame."""
        columns: dict[str, tuple[list[Any], Any]] = {
            "quantity": ([line.quantity for line in self.lines], nw.String),
            "estimator": ([line.estimator for line in self.lines], nw.String),
            "decisions": ([line.rounds for line in self.lines], nw.Int64),
            "value": ([line.figure.value for line in self.lines], nw.Float64),
            "standard_error": ([line.figure.standard_error for line in self.lines], nw.Float64),
            "low": ([line.figure.low for line in self.lines], nw.Float64),
            "high": ([line.figure.high for line in self.lines], nw.Float64),
            "followed": ([line.followed for line in self.lines], nw.Float64),
        }
        series = [nw.new_series(name, values, kind, backend=backend) for name, (values, kind) in columns.items()]
        return nw.concat([one.to_frame() for one in series], how="horizontal").to_native()

    def to_dict(self) -> dict[str, Any]:
        """Give everything in JSON types, unknown numbers as None."""
        return {
            "policy": self.policy,
            "people": self.people,
            "horizon": {name: _plain(value) for name, value in self.horizon._asdict().items()},
            "refusal": self.refusal,
            "estimates": [
                {
                    "quantity": line.quantity,
                    "estimator": line.estimator,
                    "decisions": line.rounds,
                    "value": _plain(line.figure.value),
                    "standard_error": _plain(line.figure.standard_error),
                    "low": _plain(line.figure.low),
                    "high": _plain(line.figure.high),
                    "followed": _plain(line.followed),
                }
                for line in self.lines
            ],
            "controls": [control._asdict() for control in self.controls],
            "sensitivity": None
            if self.sensitivity is None
            else {
                "bounds": [
                    {name: _plain(value) for name, value in bound._asdict().items()}
                    for bound in self.sensitivity.bounds
                ],
                "breaks_at": _plain(self.sensitivity.breaks_at),
            },
            "models": list(self.models),
            "sentences": list(self.sentences),
        }

    def rows(self) -> list[list[str]]:
        """Give the table in words: quantity, estimator, number, interval, and how many people could be followed."""
        return [
            [
                line.quantity,
                line.estimator,
                str(line.rounds),
                f"{line.figure.value:{'+' if line.is_gain else ''}.3f}",
                f"{line.figure.low:{'+' if line.is_gain else ''}.3f} to "
                f"{line.figure.high:{'+' if line.is_gain else ''}.3f}",
                f"{line.followed:.0%}",
            ]
            for line in self.lines
        ]

    @property
    def title(self) -> str:
        rounds = counted(self.horizon.rounds, "decision")
        return f"the reward of a decision by {self.policy}: first {rounds} of each of {self.people:,} people"

    def __str__(self) -> str:
        parts = []
        if self.lines:
            parts.append("\n".join([self.title, "", *_aligned([HEADER, *self.rows()])]))
        if self.controls:
            parts.append("\n".join(["controls", "", *_aligned([CONTROL_HEADER, *self.control_rows()])]))
        return "\n\n".join([*parts, "\n".join(self.sentences)])

    def control_rows(self) -> list[list[str]]:
        """Give the controls in words."""
        return [[one.name, one.found, one.expected, "yes" if one.passed else "NO"] for one in self.controls]

    def _repr_html_(self) -> str:
        tables = []
        if self.lines:
            tables.append(_html_table(self.title, HEADER, self.rows()))
        if self.controls:
            tables.append(_html_table("controls", CONTROL_HEADER, self.control_rows()))
        return "".join(tables) + "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)


GAIN_OVER_DONE = "gain over what was done"
HEADER = ["", "estimator", "rounds", "reward", "95 % interval", "followed"]
CONTROL_HEADER = ["control", "found", "expected", "passed"]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plain(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return round(float(value), 6) if np.isfinite(value) else None
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
