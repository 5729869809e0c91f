"""Small pieces of HTML for notebooks; whatever is put in is text, and escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

LEFT = "style='text-align:left;vertical-align:top'"


def html_table(header: Sequence[Any], rows: Iterable[Sequence[Any]], marked: Sequence[int] = ()) -> str:
    """Lay out rows under their header; the rows numbered in `marked` stand out.

    >>> html_table(["<a>"], [["1 & 2"]])
    "<table><tr><th style='text-align:left;vertical-align:top'>&lt;a&gt;</th></tr>\
<tr><td style='text-align:left;vertical-align:top'>1 &amp; 2</td></tr></table>"
    """
    head = "".join(f"<th {LEFT}>{escape(str(cell))}</th>" for cell in header)
    lines = []
    for number, row in enumerate(rows):
        cells = [f"<b>{escape(str(cell))}</b>" if number in marked else escape(str(cell)) for cell in row]
        lines.append("".join(f"<td {LEFT}>{cell}</td>" for cell in cells))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def html_block(title: str, *parts: str) -> str:
    """Put pieces of HTML under a title, which is text."""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(parts)}</div>"


def html_text(text: str) -> str:
    """Make a paragraph of text."""
    return f"<p>{escape(text)}</p>"
