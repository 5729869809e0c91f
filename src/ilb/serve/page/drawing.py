"""Figures as SVG inside the page: no scripts, no inline styles, a title and a description for who can't see them.

Colours come from classes of the style sheet, so that they follow light and dark. Text is escaped by `Markup.format`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 400, 230
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 12, 26
_NUMBERS = count()

Values = Sequence[float | None]


class Series(NamedTuple):
    """A line: its name, its colour as a class, its values, and how far a band around it reaches to both sides."""

    name: str
    colour: str
    values: Values
    around: Values = ()
    dashed: bool = False


class Dot(NamedTuple):
    """A single value at a place between the first and the last."""

    place: int
    value: float
    colour: str
    name: str


def lines(
    title: str,
    description: str,
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    dots: Sequence[Dot] = (),
    level: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> Markup:
    """Draw lines over the same places; `level` is a line across, `bounds` widens the axis."""
    shown = [value for one in series for value in _reach(one)] + [dot.value for dot in dots]
    shown += [] if level is None else [level]
    low, high, ticks = _axis(shown, bounds)
    last = max(len(labels) - 1, 1)

    def x(place: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (place / last if len(labels) > 1 else 0.5)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    parts = _grid(ticks, y) + _moments(labels, x)
    if level is not None:
        at = _short(y(level))
        parts.append(
            Markup('<line class="level" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, at, at)
        )
    for one in series:
        for start, band in _runs(one.around):
            upper = [(x(start + n), y(_given(one.values[start + n]) + reach)) for n, reach in enumerate(band)]
            lower = [(x(start + n), y(_given(one.values[start + n]) - reach)) for n, reach in enumerate(band)]
            parts.append(
                Markup('<polygon class="band {}" points="{}"/>').format(one.colour, _points([*upper, *lower[::-1]]))
            )
    for one in series:
        for start, run in _runs(one.values):
            places = [(x(start + n), y(value)) for n, value in enumerate(run)]
            dash = " dashed" if one.dashed else ""
            if len(places) == 1:
                parts.append(_circle(places[0], one.colour, one.name))
            else:
                parts.append(
                    Markup('<polyline class="line {}{}" points="{}"/>').format(one.colour, dash, _points(places))
                )
    parts += [_circle((x(dot.place), y(dot.value)), dot.colour, dot.name) for dot in dots]
    return _figure(title, description, parts)


def stacks(title: str, description: str, labels: Sequence[str], series: Sequence[Series]) -> Markup:
    """Draw shares that add up to 1, as bars beside each other."""
    step = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value

    parts = _grid([(value, f"{value:.0%}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)], y)
    parts += _moments(labels, lambda place: LEFT + step * (place + 0.5))
    for place in range(len(labels)):
        below = 0.0
        for one in series:
            share = _given(one.values[place])
            if share:
                parts.append(
                    Markup(
                        '<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"><title>{}: {:.0%}</title></rect>'
                    ).format(
                        one.colour,
                        _short(LEFT + step * place + 0.5),
                        _short(y(below + share)),
                        _short(max(step - 1, 0.5)),
                        _short(y(below) - y(below + share)),
                        one.name,
                        share,
                    )
                )
            below += share
    return _figure(title, description, parts)


class Row(NamedTuple):
    """What is expected of one action, and how surely."""

    name: str
    colour: str
    mean: float
    std: float
    chosen: bool


def intervals(title: str, description: str, rows: Sequence[Row]) -> Markup:
    """Draw a point for each action, with one and two standard deviations to both sides."""
    low, high, ticks = _axis([row.mean + side * row.std for row in rows for side in (-2, 2)], None)
    left, height = 92, 28 * len(rows) + BOTTOM + 4

    def x(value: float) -> float:
        return left + (WIDTH - left - RIGHT - 6) * (value - low) / (high - low)

    parts = []
    for value, word in ticks:
        at = _short(x(value))
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="4" y2="{}"/>').format(at, at, height - BOTTOM))
        parts.append(
            Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(at, height - 8, word)
        )
    for number, row in enumerate(rows):
        level = 18.0 + 28.0 * number
        weight = "name chosen" if row.chosen else "name"
        parts.append(
            Markup('<text class="{}" x="{}" y="{}" text-anchor="end">{}</text>').format(
                weight, left - 8, level + 4, _cut(row.name, 12)
            )
        )
        for reach, kind in ((2, "thin"), (1, "thick")):
            parts.append(
                Markup('<line class="line {} {}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                    kind,
                    row.colour,
                    _short(x(row.mean - reach * row.std)),
                    _short(x(row.mean + reach * row.std)),
                    level,
                    level,
                )
            )
        parts.append(_circle((x(row.mean), level), row.colour, f"{row.name}: {row.mean:.3g} ± {row.std:.2g}", 5.0))
    return _figure(title, description, parts, height)


def sparkline(values: Values, words: str) -> Markup:
    """Draw a line as small as a word."""
    given = [value for value in values if value is not None]
    if len(given) < 2:
        return Markup('<span class="quiet">–</span>')
    low, high = min(given), max(given)
    wide = high - low or 1.0
    points = _points([(2 + 76 * n / (len(given) - 1), 20 - 16 * (value - low) / wide) for n, value in enumerate(given)])
    return Markup(
        '<svg class="spark" viewBox="0 0 80 24" role="img" aria-label="{}">'
        '<polyline class="line s0" points="{}"/></svg>'
    ).format(words, points)


def number(value: float | int | None, digits: int = 3) -> str:
    """Write a number as people read it.

    >>> number(0.12345), number(None), number(12345.6)
    ('0.123', '–', '12346')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.{digits}g}"


def _reach(one: Series) -> list[float]:
    around = list(one.around) or [None] * len(one.values)
    known = [(value, wide or 0.0) for value, wide in zip(one.values, around, strict=True) if value is not None]
    return [side for value, wide in known for side in (value - wide, value + wide)]


def _axis(values: Sequence[float], bounds: tuple[float, float] | None) -> tuple[float, float, list[tuple[float, str]]]:
    """Choose round numbers for an axis that holds all values."""
    held = [*values, *(bounds or ())] or [0.0, 1.0]
    low, high = min(held), max(held)
    if high - low < 1e-9 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first, final = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [step * n for n in range(first, final + 1)]
    return ticks[0], ticks[-1], [(tick, f"{tick + 0.0:.6g}") for tick in ticks]


def _grid(ticks: Sequence[tuple[float, str]], y: Callable[[float], float]) -> list[Markup]:
    return [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
            '<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(LEFT, WIDTH - RIGHT, _short(y(value)), _short(y(value)), LEFT - 6, _short(y(value) + 4), word)
        for value, word in ticks
    ]


def _moments(labels: Sequence[str], x: Callable[[int], float]) -> list[Markup]:
    if not labels:
        return []
    chosen = sorted({0, len(labels) // 2, len(labels) - 1}) if len(labels) > 2 else sorted({0, len(labels) - 1})
    anchors = {chosen[0]: "start", chosen[-1]: "end"} if len(chosen) > 1 else {}
    return [
        Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>').format(
            _short(x(place)), HEIGHT - 8, anchors.get(place, "middle"), labels[place]
        )
        for place in chosen
    ]


def _circle(place: tuple[float, float], colour: str, name: str, radius: float = 3.0) -> Markup:
    return Markup('<circle class="dot {}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>').format(
        colour, _short(place[0]), _short(place[1]), radius, name
    )


def _figure(title: str, description: str, parts: Sequence[Markup], height: int = HEIGHT) -> Markup:
    name = f"figure-{next(_NUMBERS)}"
    opening = Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d">'
        '<title id="{}-t">{}</title><desc id="{}-d">{}</desc>'
    ).format(WIDTH, height, name, name, name, title, name, description)
    return opening + Markup("").join(parts) + Markup("</svg>")


def _runs(values: Values) -> list[tuple[int, list[float]]]:
    """Cut a line where values are missing: where each part starts, and its values."""
    runs: list[tuple[int, list[float]]] = []
    open_run = False
    for place, value in enumerate(values):
        if value is None:
            open_run = False
        elif open_run:
            runs[-1][1].append(value)
        else:
            runs.append((place, [value]))
            open_run = True
    return runs


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in places)


def _short(value: float | int) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _given(value: float | None) -> float:
    return 0.0 if value is None else value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
