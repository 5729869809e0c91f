"""How a CSV file is laid out, as seen from its first rows: what stands between columns, and the sign in numbers."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path
from typing import NamedTuple

from ilb.errors import LogsError, LogsWarning
from ilb.logs.messages import brief, warn

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What may stand between columns, in words."""

LOOKED_AT = 100_000
"""Bytes at the start of a file that are looked at."""

_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_POINT = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2},\d{3}\s*")


class Layout(NamedTuple):
    """What stands between columns, and between a number and its fraction."""

    delimiter: str = ","
    decimal: str = "."


def look_at(path: Path) -> Layout:
    """Find the layout of a file, and say so if it is not the usual one."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        start = file.read(LOOKED_AT)
    text = start.decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    if len(start) == LOOKED_AT and len(lines) > 1:
        lines.pop()  # it is cut
    found = layout_of(lines)
    if found != Layout():
        numbers = " and decimal commas in numbers" if found.decimal == "," else ""
        warn(f"{str(path)!r} has {DELIMITERS[found.delimiter]} between columns{numbers}; it is read so.", LogsWarning)
    return found


def layout_of(lines: list[str]) -> Layout:
    """Find the layout of a table by its first lines, the header first.

    >>> layout_of(["who;x;got", "anna;1,5;2", "bo;0,25;3"])
    Layout(delimiter=';', decimal=',')
    >>> layout_of(["who,x,got", "anna,1.5,2"])
    Layout(delimiter=',', decimal='.')
    """
    delimiter = max(DELIMITERS, key=lambda sign: _columns(lines, sign))  # the comma, where it is as good as another
    cells = [cell for row in _rows(lines[1:], delimiter) for cell in row]
    with_comma = [cell for cell in cells if _COMMA.fullmatch(cell)]
    with_point = [cell for cell in cells if _POINT.fullmatch(cell)]
    # 1,234 may be a thousand and more; a comma is that of a fraction only where some number can't be read so.
    is_fraction = any(not _THOUSANDS.fullmatch(cell) for cell in with_comma)
    if is_fraction and with_point:
        raise LogsError(
            f"some numbers have a decimal comma, such as {brief(with_comma[0].strip())}, and others a decimal point, "
            f"such as {brief(with_point[0].strip())}; expected one of the two. Write all numbers alike."
        )
    return Layout(delimiter, "," if is_fraction else ".")


def _columns(lines: list[str], delimiter: str) -> int:
    """Count the columns that a sign makes of a table; none if it makes one, or rows that differ from the header."""
    header, *rows = _rows(lines[:50], delimiter) or [[]]
    return len(header) if len(header) > 1 and all(len(row) == len(header) for row in rows) else 0


def _rows(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []
