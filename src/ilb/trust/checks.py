"""What a check is: a question, a figure and its bar, a verdict, a sentence, a remedy; and a table of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import Any

import narwhals as nw

from ilb.errors import IlbError
from ilb.logs.messages import one_line


class Verdict(StrEnum):
    """What came of a check, from good to bad."""

    FINE = "fine"
    DOUBTFUL = "doubtful"
    BROKEN = "broken"

    @property
    def badness(self) -> int:
        return list(Verdict).index(self)


MARKS = {Verdict.FINE: "✓", Verdict.DOUBTFUL: "?", Verdict.BROKEN: "✗"}
COLOURS = {Verdict.FINE: "#00785a", Verdict.DOUBTFUL: "#a05a00", Verdict.BROKEN: "#c02020"}


COLUMNS = ("name", "question", "figure", "bar", "verdict", "sentence", "remedy")


def plain(value: Any) -> Any:
    """Give numbers, texts, lists and mappings in JSON types; what is no finite number is null.

    >>> plain({"a": (1, float("nan")), "b": Verdict.FINE})
    {'a': [1, None], 'b': 'fine'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return str(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Check:
    """One question, answered.

    `figure` is what was measured and `bar` what it is held against, both as text; `remedy` is empty where nothing needs
    to be done. `numbers` has the figures behind the sentence as plain values, for whoever draws or stores them.
    """

    name: str
    question: str
    figure: str
    bar: str
    verdict: Verdict
    sentence: str
    remedy: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give it in JSON types."""
        return {name: plain(getattr(self, name)) for name in (*COLUMNS, "numbers")}


@dataclass(frozen=True)
class Checks:
    """The checks of one model on one table; `about` says whom they are of, and who was kept from whom.

    Print it, or take it as a frame: `to_frame()`. A check is found by its name: `checks["drift"]`.
    """

    rows: tuple[Check, ...]
    about: str = ""

    def __iter__(self) -> Iterator[Check]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Check:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"there is no check {name!r}; there are {', '.join(row.name for row in self.rows)}.")

    @property
    def verdict(self) -> Verdict:
        """The worst of all verdicts."""
        return max((row.verdict for row in self.rows), key=lambda verdict: verdict.badness, default=Verdict.FINE)

    def with_verdict(self, verdict: Verdict | str) -> tuple[Check, ...]:
        """Give the checks that came out like this."""
        return tuple(row for row in self.rows if row.verdict == verdict)

    def sentence(self) -> str:
        """Say it all in one line."""
        if self.verdict is Verdict.FINE:
            return f"All {len(self)} checks are fine."
        parts = [
            f"{len(found)} {verdict} ({', '.join(row.name for row in found)})"
            for verdict in (Verdict.BROKEN, Verdict.DOUBTFUL)
            if (found := self.with_verdict(verdict))
        ]
        return f"Of {len(self)} checks {' and '.join(parts)}."

    def to_frame(self, backend: Any = "pandas") -> Any:
        """Give a row for each check, as a "pandas", "polars" or "pyarrow" frame."""
        series = []
        for name in COLUMNS:
            values = [str(getattr(row, name)) for row in self.rows]
            try:
                series.append(nw.new_series(name, values, nw.String, backend=backend).to_frame())
            except Exception as error:  # each library has its own errors, and it may not be there
                raise IlbError(
                    f"{backend!r} can't hold the checks ({type(error).__name__}: {one_line(error)}). Install that "
                    "library, or try another of 'pandas', 'polars', 'pyarrow'."
                ) from error
        return nw.concat(series, how="horizontal").to_native()

    def to_json(self) -> dict[str, Any]:
        """Give everything in JSON types."""
        return {
            "verdict": str(self.verdict),
            "about": self.about,
            "sentence": self.sentence(),
            "checks": [row.to_json() for row in self.rows],
        }

    def __str__(self) -> str:
        lines = [*_wrapped(self.about, ""), ""] if self.about else []
        for row in self.rows:
            lines.append(f"{MARKS[row.verdict]} {row.question} {row.verdict}: {row.figure} (bar: {row.bar})")
            lines += _wrapped(row.sentence, "    ")
            if row.remedy:
                lines += _wrapped(f"→ {row.remedy}", "    ")
        return "\n".join([*lines, "", self.sentence()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Show it as a table in a notebook; whatever the table's labels are, they are text."""
        return f"<div><p>{escape(self.about)}</p>{html_table(self.rows)}<p>{escape(self.sentence())}</p></div>"


def html_table(rows: Sequence[Check]) -> str:
    """Lay out checks as an HTML table, everything escaped."""
    head = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("", "question", "figure", "bar", "answer"))
    body = []
    for row in rows:
        mark = f"<b style='color:{COLOURS[row.verdict]}'>{MARKS[row.verdict]}&nbsp;{row.verdict}</b>"
        answer = escape(row.sentence) + (f" <em>{escape(row.remedy)}</em>" if row.remedy else "")
        cells = (mark, escape(row.question), escape(row.figure), escape(row.bar), answer)
        body.append("".join(f"<td style='text-align:left;vertical-align:top'>{cell}</td>" for cell in cells))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{cells}</tr>' for cells in body)}</table>"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent=indent, subsequent_indent=indent)
