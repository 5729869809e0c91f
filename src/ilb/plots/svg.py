"""Small figures as SVG text: they take their colours from the page, light or dark, and fetch nothing.

Colours are classes (`f0`, `s0`, … for filled and drawn in the first colour) that the page's style defines. Whatever
is written into a figure is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

COLOURS = 8
"""Colours that a page has for figures; further things are grey, class `fx`."""

MARKS = ("circle", "square", "triangle", "diamond")
"""Shapes of points: prints without colour tell them apart, too."""

Number: TypeAlias = float | int
"""A whole number is as good as any."""


def colour(number: int) -> str:
    """Give the name of the n-th colour."""
    return str(number) if 0 <= number < COLOURS else "x"


def nice_ticks(low: Number, high: Number, count: int = 5) -> Float[np.ndarray, " ticks"]:
    """Give round numbers between two bounds, about so many.

    >>> nice_ticks(-0.3, 1.1).tolist()
    [-0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> nice_ticks(0, 40).tolist()
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    span = max(high - low, 1e-12)
    rough = span / count
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(np.log(factor * power / rough)))
    ticks = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step
    return np.asarray(np.round(ticks, 12) + 0.0)


def tick_label(tick: Number) -> str:
    """Write a number on an axis, thousands shortly.

    >>> tick_label(0.25), tick_label(2000), tick_label(150000.0)
    ('0.25', '2,000', '150k')
    """
    return f"{tick / 1000:,.6g}k" if abs(tick) >= 10_000 else f"{tick:,.6g}"


def shorten(text: str, letters: int) -> str:
    """Cut a long label, with dots in its place.

    >>> shorten("treatment 12", 8)
    'treatme…'
    """
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def padded(values: Sequence[Number] | Float[np.ndarray, " values"], share: float = 0.05) -> tuple[float, float]:
    """Give bounds that hold all finite values with a little room."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    room = share * (high - low) if high > low else max(abs(low), 1.0) * 0.5
    return low - room, high + room


@dataclass
class Drawing:
    """A figure in the making: `x` and `y` are the bounds of its data, margins are (top, right, bottom, left)."""

    label: str
    x: tuple[Number, Number]
    y: tuple[Number, Number]
    width: int = 440
    height: int = 300
    margins: tuple[int, int, int, int] = (12, 12, 44, 62)
    parts: list[str] = field(default_factory=list)

    def at(self, x: Number, y: Number) -> tuple[float, float]:
        """Say where a point of the data is."""
        top, right, bottom, left = self.margins
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return left + across * (self.width - left - right), self.height - bottom - up * (self.height - top - bottom)

    def axes(self, x_title: str = "", y_title: str = "", *, whole: bool = False, y_ticks: bool = True) -> None:
        """Draw grid, numbers and titles; `whole` leaves only whole numbers below."""
        top, right, bottom, left = self.margins
        for tick in nice_ticks(*self.x):
            if whole and tick != round(tick):
                continue
            x, _ = self.at(float(tick), 0)
            self.segment(x, top, x, self.height - bottom, "grid")
            self.text(x, self.height - bottom + 15, tick_label(float(tick)), "tick", "middle")
        for tick in nice_ticks(*self.y) if y_ticks else ():
            _, y = self.at(0, float(tick))
            self.segment(left, y, self.width - right, y, "grid")
            self.text(left - 6, y + 4, tick_label(float(tick)), "tick", "end")
        if x_title:
            self.text((left + self.width - right) / 2, self.height - 8, x_title, "title", "middle")
        if y_title:
            middle = (top + self.height - bottom) / 2
            self.parts.append(
                f'<text class="title" text-anchor="middle" transform="translate(14 {middle:.1f}) rotate(-90)">'
                f"{escape(y_title)}</text>"
            )

    def segment(self, x1: Number, y1: Number, x2: Number, y2: Number, kind: str) -> None:
        """Draw a straight line between two places of the figure."""
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def text(self, x: Number, y: Number, text: str, kind: str, anchor: str = "start") -> None:
        """Write text at a place of the figure."""
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>')

    def line(self, xs: Sequence[Number], ys: Sequence[Number], kind: str) -> None:
        """Draw a line through points of the data."""
        path = " ".join("{:.1f},{:.1f}".format(*self.at(float(x), float(y))) for x, y in zip(xs, ys, strict=True))
        self.parts.append(f'<polyline class="line {kind}" points="{path}"/>')

    def band(self, xs: Sequence[Number], low: Sequence[Number], high: Sequence[Number], kind: str) -> None:
        """Fill between two lines."""
        there = [self.at(float(x), float(y)) for x, y in zip(xs, high, strict=True)]
        back = [self.at(float(x), float(y)) for x, y in zip(xs, low, strict=True)][::-1]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in there + back)
        self.parts.append(f'<polygon class="band {kind}" points="{path}"/>')

    def bar(self, x1: Number, y1: Number, x2: Number, y2: Number, kind: str) -> None:
        """Fill the box between two points of the data."""
        (a, b), (c, d) = self.at(x1, y1), self.at(x2, y2)
        place = f'x="{min(a, c):.1f}" y="{min(b, d):.1f}" width="{abs(c - a):.1f}" height="{abs(d - b):.1f}"'
        self.parts.append(f'<rect class="{kind}" {place}/>')

    def point(self, x: Number, y: Number, number: int, *, size: Number = 3.6, kind: str = "") -> None:
        """Draw a point of the data in the shape and colour of a number."""
        self.mark(*self.at(x, y), number, size=size, kind=kind)

    def mark(self, x: Number, y: Number, number: int, *, size: Number = 3.6, kind: str = "") -> None:
        """Draw a point at a place of the figure."""
        shape, look = MARKS[number % len(MARKS)], f"f{colour(number)} {kind}".strip()
        if shape == "circle":
            self.parts.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"/>')
            return
        corners = {
            "square": ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
            "triangle": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
            "diamond": ((0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)),
        }[shape]
        path = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
        self.parts.append(f'<polygon class="{look}" points="{path}"/>')

    def interval(self, y: Number, value: Number, low: Number, high: Number, number: int, kind: str = "") -> None:
        """Draw a number with its interval, on a line across."""
        if np.isfinite(low) and np.isfinite(high):
            (a, b), (c, _) = self.at(low, y), self.at(high, y)
            self.segment(a, b, c, b, f"whisker s{colour(number)} {kind}".strip())
        x, place = self.at(value, y)
        self.parts.append(f'<circle class="f{colour(number)} {kind}" cx="{x:.1f}" cy="{place:.1f}" r="4"/>')

    def svg(self) -> str:
        """Give the figure as an SVG element."""
        return (
            f'<svg role="img" aria-label="{escape(self.label)}" viewBox="0 0 {self.width} {self.height}" '
            f'style="max-width:{self.width}px">{"".join(self.parts)}</svg>'
        )
