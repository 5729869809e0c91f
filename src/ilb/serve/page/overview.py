"""The first page: what is shown of a digest, as figures and as the tables behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ilb.serve.page.digest import COLOURS, Bin, Digest, Story, colours_of, is_pending
from ilb.serve.page.drawing import Series, lines, number, stacks
from ilb.serve.service import Service

LONGEST = 6
"""Pending decisions, and newest ones, that the first page lists."""


class Figure(NamedTuple):
    """A figure with its words, the names of its colours, and its numbers as a table."""

    title: str
    words: str
    drawn: Markup
    legend: list[tuple[str, str]]
    head: list[str]
    rows: list[list[str]]


class Told(NamedTuple):
    """All of the first page that comes from the log."""

    decisions: int
    whole: Bin | None
    by_fallback: Bin | None
    figures: list[Figure]
    oldest_pending: list[Story]
    newest: list[Story]


def told_of(digest: Digest, service: Service) -> Told:
    """Put the first page together."""
    pending = [story for story in reversed(digest.stories) if is_pending(story)]
    figures = _figures(digest, service) if digest.bins else []
    return Told(
        len(digest.stories), digest.whole, digest.by_fallback, figures, pending[:LONGEST], digest.stories[:LONGEST]
    )


def _figures(digest: Digest, service: Service) -> list[Figure]:
    bins = digest.bins
    days = len({one.first_at[:10] for one in bins}) > 1
    moments = [one.first_at[5:10] if days else one.first_at[11:16] for one in bins]
    return [
        _rewards(digest, moments, service),
        _shares(digest, moments, service),
        _single(bins, moments, "Surprise", "s4", lambda one: one.surprise, level=1.0, words=(
            "How far rewards were from what was expected, squared and in standard deviations. About 1, the dotted "
            "line, where the model fits; much more says that it does not."
        )),
        _single(bins, moments, "Misfit", "s3", lambda one: one.misfit, bounds=(0.0, 1.0), words=(
            "The probability that the model does not fit the person, on average."
        )),
        _single(bins, moments, "Entropy of propensities", "s2", lambda one: one.entropy, bounds=(0.0, 0.1), words=(
            "How open decisions were, in nats: 0 if there was one way, more if the policy draws. Near 0, the log says "
            "little about what was not done."
        )),
    ]  # fmt: skip


def _rewards(digest: Digest, moments: Sequence[str], service: Service) -> Figure:
    bins = digest.bins
    declared = "uniform" if service.declared is None else str(service.declared)
    came = Series("rewards that came", "s0", [one.reward for one in bins], [one.reward_error for one in bins])
    without = Series(f"the fallback ({declared}), as the model expects it", "other",
                     [one.fallback_expected for one in bins], dashed=True)  # fmt: skip
    whole = digest.whole
    said = "no rewards yet" if whole is None or whole.reward is None else (
        f"{number(whole.reward)} on average, where the model expects {number(whole.fallback_expected)} of the fallback"
    )  # fmt: skip
    rows = [[one.first_at[:16].replace("T", " "), number(one.reward), number(one.reward_error, 2),
             number(one.fallback_expected)] for one in bins]  # fmt: skip
    drawn = lines("Reward over time", f"Mean reward of the decisions of each bin: {said}.", moments, [without, came])
    return Figure(
        "Reward over time",
        "Mean reward with its standard error, beside what the model expects the fallback to bring the same people.",
        drawn,
        [(came.name, "s0"), (without.name, "other dashed")],
        ["from", "reward", "± standard error", "fallback, expected"],
        rows,
    )


def _shares(digest: Digest, moments: Sequence[str], service: Service) -> Figure:
    bins = digest.bins
    seen = [str(story["decision"]["action"]) for story in digest.stories]
    colours = colours_of(service.names.all, seen)
    series = [Series(name, colour, [one.shares.get(name, 0.0) for one in bins]) for name, colour in colours.items()]
    rest = [max(0.0, 1 - sum(one.shares.get(name, 0.0) for name in colours)) for one in bins]
    if any(value > 1e-9 for value in rest):
        series.append(Series("others", "other", rest))
    whole = digest.whole.shares if digest.whole is not None else {}
    said = ", ".join(f"{name} {whole.get(name, 0.0):.0%}" for name in colours)
    few = "" if len(service.names.all) <= COLOURS else f" The {COLOURS} most frequent of {len(service.names.all)}."
    return Figure(
        "Actions over time",
        f"The share of each action among the decisions.{few}",
        stacks("Actions over time", f"Shares of all decisions shown: {said}.", moments, series),
        [(one.name, one.colour) for one in series],
        ["from", *(one.name for one in series)],
        [
            [one.first_at[:16].replace("T", " "), *(f"{_share(column, place):.0%}" for column in series)]
            for place, one in enumerate(bins)
        ],
    )


def _share(series: Series, place: int) -> float:
    return series.values[place] or 0.0


def _single(
    bins: Sequence[Bin],
    moments: Sequence[str],
    title: str,
    colour: str,
    read: Callable[[Bin], float | None],
    *,
    words: str,
    **given: Any,
) -> Figure:
    values = [read(one) for one in bins]
    known = [value for value in values if value is not None]
    said = f"from {number(known[0], 2)} to {number(known[-1], 2)}" if known else "nothing to show yet"
    drawn = lines(title, f"{words} Here {said}.", moments, [Series(title, colour, values)], **given)
    rows = [[one.first_at[:16].replace("T", " "), number(value)] for one, value in zip(bins, values, strict=True)]
    return Figure(title, words, drawn, [], ["from", title.lower()], rows)
