"""The figures of a report: people, intervals, histograms, curves, and beliefs over time, from plain numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from ilb.plots.svg import COLOURS, Drawing, padded, shorten

MOST_POINTS = 1500
"""People on a map: more hide each other and make a page heavy."""

MOST_LINES = 5
"""Actions whose beliefs are drawn: more can't be told apart."""

LONGEST, LETTER = 22, 7.6
"""Letters of a line of a label beside a figure, and the room of one: text is larger on phones."""


def in_order_of_colour(best: Int[np.ndarray, " people"], averages: Float[np.ndarray, " K"]) -> list[int]:
    """Order actions by for how many people they are best, then by their average: the first have colours."""
    counts = np.bincount(best, minlength=len(averages))
    return [int(action) for action in np.lexsort((-averages, -counts))]


def draw_map(
    across: Float[np.ndarray, " people"],
    up: Float[np.ndarray, " people"],
    best: Int[np.ndarray, " people"],
    colours: Sequence[int],
    titles: tuple[str, str],
) -> str:
    """Draw people as points in the colour of their best action; `colours` lists the actions in order of colour."""
    shown = np.arange(len(best))
    if len(best) > MOST_POINTS:
        shown = np.sort(np.random.default_rng(0).permutation(len(best))[:MOST_POINTS])
    drawing = Drawing("a map of people, coloured by the best action", padded(across), padded(up), 560, 400)
    drawing.axes(*titles)
    size = 4.4 if len(shown) < 300 else 3.2
    place = {action: number for number, action in enumerate(colours)}
    for person in shown:
        drawing.point(float(across[person]), float(up[person]), place[int(best[person])], size=size, kind="dot")
    return drawing.svg()


def draw_mark(number: int) -> str:
    """Draw the mark of a colour alone, for a legend."""
    drawing = Drawing("mark", (0, 1), (0, 1), 12, 12, (0, 0, 0, 0))
    drawing.mark(6, 6, number, size=4.4)
    return drawing.svg()


def draw_intervals(
    rows: Sequence[tuple[str, float, float, float]],
    title: str,
    label: str,
    bounds: tuple[float, float] | None = None,
) -> str:
    """Draw named numbers with their intervals below each other, and a line at zero; those that hold zero are pale."""
    names = [textwrap.wrap(shorten(name, 2 * LONGEST), LONGEST) or [""] for name, *_ in rows]
    left = 16 + int(LETTER * max(len(part) for parts in names for part in parts))
    numbers = [number for _, *three in rows for number in (*three, 0.0)]
    step = 36 if max(map(len, names)) > 1 else 25
    drawing = Drawing(
        label, bounds or padded(numbers), (0.4 - len(rows), 0.6), 440, 56 + step * len(rows), (8, 12, 44, left)
    )
    drawing.axes(title, y_ticks=False)
    x, _ = drawing.at(0, 0)
    drawing.segment(x, 8, x, drawing.height - 44, "zero")
    for number, (_, value, low, high) in enumerate(rows):
        _, y = drawing.at(0, -number)
        for place, part in enumerate(names[number]):
            drawing.text(left - 9, y + 4 + 14 * place - 7 * (len(names[number]) - 1), part, "name", "end")
        drawing.interval(-number, value, low, high, 0, "pale" if low <= 0 <= high else "")
    return drawing.svg()


def draw_histogram(values: Float[np.ndarray, " values"], title: str, label: str, whole: bool = False) -> str:
    """Draw how often values occur, as bars."""
    low, high = float(values.min()), float(values.max())
    distinct = np.unique(values)
    if whole or len(distinct) <= 12:
        step = float(np.diff(distinct).min()) if len(distinct) > 1 else 1.0
        bars = min(round((high - low) / step) + 1, 30)
        edges = np.linspace(low - step / 2, high + step / 2, bars + 1)
    else:
        edges = np.linspace(low, high, 25)
    counts, edges = np.histogram(values, edges)
    drawing = Drawing(label, padded(edges, 0.02), (0.0, 1.05 * float(counts.max())), 440, 220)
    drawing.axes(title, "count", whole=whole)
    for count, start, stop in zip(counts, edges[:-1], edges[1:], strict=True):
        room = 0.06 * (stop - start)
        drawing.bar(float(start + room), 0, float(stop - room), float(count), "f0")
    return drawing.svg()


def draw_curve(points: Sequence[tuple[float, float]], titles: tuple[str, str], label: str, line: bool = True) -> str:
    """Draw a curve through a few points."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    drawing = Drawing(label, padded([0.0, *xs]), padded([0.0, *ys, *([1.0] if max(ys) > 0.9 else [])]), 440, 260)
    drawing.axes(*titles, whole=True)
    if line:
        drawing.line(xs, ys, "s0")
    for x, y in points:
        drawing.point(x, y, 0, size=4)
    return drawing.svg()


def draw_agreement(points: Sequence[tuple[float, float]], titles: tuple[str, str], label: str, low: float = 0.0) -> str:
    """Draw what came true against what was stated; on the dashed line, both agree."""
    bounds = (low, 1.02)
    drawing = Drawing(label, bounds, bounds, 440, 260)
    drawing.axes(*titles)
    drawing.line([low, 1], [low, 1], "dashed")
    drawing.line([x for x, _ in points], [y for _, y in points], "s0")
    for x, y in points:
        drawing.point(x, y, 0, size=4)
    return drawing.svg()


def chosen_lines(
    mean: Float[np.ndarray, "times K"], taken: Sequence[tuple[int, int, float]], colours: Sequence[int]
) -> list[int]:
    """Choose the actions to draw: the best at the end and at the start, then those that were taken most."""
    counts = np.bincount([action for _, action, _ in taken], minlength=mean.shape[1])
    order = np.argsort(-mean[-1], kind="stable").tolist()
    often = np.argsort(-counts, kind="stable").tolist()
    wanted = list(dict.fromkeys([*order[:3], int(mean[0].argmax()), *often]))[:MOST_LINES]
    return sorted(wanted, key=colours.index)


def draw_belief(
    rows: Int[np.ndarray, " times"],
    mean: Float[np.ndarray, "times K"],
    std: Float[np.ndarray, "times K"],
    taken: Sequence[tuple[int, int, float]],
    lines: Sequence[int],
    colours: Sequence[int],
    label: str,
) -> str:
    """Draw what is expected of some actions after each row, with 95 % bands, and their rewards as they came."""
    low, high = mean - 1.96 * std, mean + 1.96 * std
    came = [(row, action, reward) for row, action, reward in taken if action in lines]
    # Bands before anything is seen are so wide that all else would look flat; they are cut off.
    later = np.minimum(1, len(rows) - 1)
    inside = np.r_[low[later:, lines].ravel(), high[later:, lines].ravel(), mean[:, lines].ravel()]
    bounds = padded(np.r_[inside, [reward for *_, reward in came]])
    low, high = np.clip(low, *bounds), np.clip(high, *bounds)
    drawing = Drawing(label, padded([0.0, float(rows[-1])], 0.02), bounds, 440, 280)
    drawing.axes("rows seen", "expected reward", whole=True)
    number = {action: colours.index(action) for action in lines}
    for action in lines:
        drawing.band(rows.tolist(), low[:, action].tolist(), high[:, action].tolist(), f"f{_name(number[action])}")
    for action in lines:
        drawing.line(rows.tolist(), mean[:, action].tolist(), f"s{_name(number[action])}")
    for row, action, reward in came:
        drawing.point(row, reward, number[action], size=3.4, kind="dot")
    return drawing.svg()


def _name(number: int) -> str:
    return str(number) if number < COLOURS else "x"
