"""The sections of a report on people: the map, what sets them apart, what actions do, and four of them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from ilb.logs import Logs
from ilb.logs.messages import counted
from ilb.models.latent import LatentModel
from ilb.pages.contents import MOST_ROWS, TITLES
from ilb.pages.page import Page
from ilb.plots.portraits import (
    chosen_lines,
    draw_belief,
    draw_intervals,
    draw_map,
    draw_mark,
    in_order_of_colour,
)
from ilb.plots.svg import COLOURS
from ilb.trust.portrait import Direction, Portrait
from ilb.trust.stories import Story

MOST_COLUMNS = 8
"""Columns that are named for a direction: the strongest."""

MOST_ACTIONS = 12
"""Actions that a figure of a direction names: those that it moves most."""


def the_people(page: Page, portrait: Portrait, logs: Logs) -> None:
    """Draw the map."""
    page.heading(TITLES["people"], "people")
    if not portrait.directions:
        page.paragraph("The model expects the same for everybody, so there is nothing to map.")
        return
    first = portrait.directions[0]
    if len(portrait.directions) > 1:
        second = portrait.directions[1]
        up, name = second.scores, f"direction 2 ({second.share:.0%} of the differences)"
    else:
        up, name = portrait.lead, "lead of the best action over the next"
    page.paragraph(
        "Every mark is a person. People who are near each other are expected to do well with the same actions; colour "
        "and shape say which action is expected to be best, after all that the table says of the person."
    )
    colours = in_order_of_colour(portrait.best, portrait.expected.mean(axis=0))
    labels = logs.schema.actions
    found = set(portrait.best.tolist())
    _legend(page, [(place, str(labels[one])) for place, one in enumerate(colours[:COLOURS]) if one in found])
    titles = (f"direction 1 ({first.share:.0%} of the differences)", name)
    sure = float(np.mean(portrait.sureness >= 0.9))
    page.figure(
        draw_map(first.scores, up, portrait.best, colours, titles),
        f"{logs.instances:,} people. For {sure:.0%} of them the best action is ahead of the next with a probability of "
        "at least 90 %; for the others, the colour is a best guess.",
    )


def _legend(page: Page, entries: Sequence[tuple[int, str]]) -> None:
    page.parts.append(_legend_of(entries))


def _legend_of(entries: Sequence[tuple[int, str]]) -> str:
    items = "".join(f"<li>{draw_mark(number)}<span>{escape(text)}</span></li>" for number, text in entries)
    return f'<ul class="legend">{items}</ul>'


def the_directions(page: Page, portrait: Portrait, logs: Logs) -> None:
    """Say what each direction means in terms of the table's columns, and for the actions."""
    page.heading(TITLES["directions"], "directions")
    if not portrait.directions:
        page.paragraph("The model expects the same for everybody.")
        return
    page.paragraph(
        "Directions are those in which people differ most in what is expected of the actions for them. Bars are 95 % "
        "intervals over people; pale ones can't be told from zero. They say what goes together, not what causes what."
    )
    for number, direction in enumerate(portrait.directions, start=1):
        page.parts.append(f"<h3>Direction {number}: {direction.share:.0%} of the differences between people</h3>")
        page.paragraph(_meaning(direction, portrait))
        figures = []
        if direction.columns:
            columns = direction.columns[:MOST_COLUMNS]
            svg = draw_intervals(columns, "correlation with the person's mean", "columns", (-1.05, 1.05))
            figures.append((svg, "Which columns go with it."))
        moved = sorted(direction.effects, key=lambda one: -abs(one.value))[:MOST_ACTIONS]
        ordered = sorted(moved, key=lambda one: -one.value)
        svg = draw_intervals(ordered, f"added to {logs.schema.reward} by one std", "effects on the actions")
        figures.append((svg, "What one standard deviation more means for the expected reward of each action."))
        page.figures(figures)


def _meaning(direction: Direction, portrait: Portrait) -> str:
    """Say who is high in a direction, and what is best at its two ends."""
    clear = [one for one in direction.columns if one.is_clear][:3]
    named = _listed([f"{'high' if one.value > 0 else 'low'} “{one.name}”" for one in clear])
    means = f"People who are high in it tend to have {named}. " if named else ""
    if direction.columns and not named:
        means = "No column goes with it clearly: it shows in rewards. "
    ends = np.quantile(direction.scores, [0.2, 0.8])
    low, high = (
        str(portrait.actions[int(np.bincount(portrait.best[some]).argmax())].action)
        for some in (direction.scores <= ends[0], direction.scores >= ends[1])
    )
    if low == high:
        return f"{means}“{low}” is mostly best at both of its ends."
    return f"{means}Of the highest fifth, “{high}” is mostly best; of the lowest, “{low}”."


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] if parts else ""


def the_rewards(page: Page, portrait: Portrait, model: LatentModel) -> None:
    """Show what the model says of each action."""
    page.heading(TITLES["rewards"], "rewards")
    lines = sorted(portrait.actions, key=lambda line: -line.average.value)
    shown = lines[: 2 * MOST_ACTIONS]
    page.figure(
        draw_intervals(
            [line.average for line in shown],
            "expected reward of an average person",
            "average rewards",
        ),
        "What is expected for an average person, with 95 % intervals of the estimate. A small lead here matters little "
        "where people differ much.",
    )
    largest = max(abs(line.average.value) + line.spread for line in lines)
    digits = int(np.clip(2 - np.floor(np.log10(max(largest, 1e-6))), 0, 6))
    table = [
        [
            str(line.action),
            f"{line.rows:,}",
            "-" if np.isnan(line.logged) else f"{line.logged:.{digits}f}",
            f"{line.average.value:.{digits}f}",
            f"{line.spread:.{digits}f}",
            f"{line.noise:.{digits}f}",
            f"{line.best_for:.0%}",
        ]
        for line in lines
    ]
    header = ["action", "rows", "mean in the logs", "average person", "std over people", "noise of one", "best for"]
    page.table(header, table[:MOST_ROWS])
    moment = " What the context of the day adds comes on top." if model.moment is not None else ""
    page.note(
        "“Mean in the logs” also depends on whom an action was given to; “average person” does not, as far as the "
        "model accounts for who they are. “Std over people” is how much the expected reward differs from person to "
        f"person, and “noise of one” how much a single reward varies around it.{moment}",
    )


def the_stories(page: Page, stories: Sequence[Story], portrait: Portrait, model: LatentModel, who: str) -> None:
    """Follow a few people from row to row."""
    page.heading(TITLES["examples"], "examples")
    moment = " (on an average day)" if model.moment is not None else ""
    page.paragraph(
        f"Lines are what is expected of an action for this person{moment} after so many rows, bands hold it with 95 %, "
        "and marks are rewards as they came. At 0 nothing is known of the person. Of many actions, the best and the "
        "most frequent are shown. These people may be among those the model was fitted on."
    )
    colours = in_order_of_colour(portrait.best, portrait.expected.mean(axis=0))
    names = [str(line.action) for line in portrait.actions]
    figures = []
    for story in stories:
        lines = chosen_lines(story.mean, story.taken, colours)
        svg = draw_belief(
            story.rows, story.mean, story.std, story.taken, lines, colours, f"belief about {story.person}"
        )
        numbers = [(colours.index(action), names[action]) for action in lines]
        figures.append(
            f"<figure><h3>{escape(f'{who} {story.person}')}: {escape(story.why)}</h3>{_legend_of(numbers)}{svg}"
            f"<figcaption>{escape(_told(story, names))}</figcaption></figure>"
        )
    page.parts.append(f'<div class="pair">{"".join(figures)}</div>')


def _told(story: Story, names: Sequence[str]) -> str:
    first, last = names[story.first], names[story.last]
    value, error = story.mean[-1, story.last], 1.96 * story.std[-1, story.last]
    changed = f"still “{last}”" if first == last else f"“{last}” instead"
    return (
        f"Knowing nothing one would choose “{first}”; after {counted(int(story.rows[-1]), 'row')} it is {changed}, "
        f"expected {value:.3g} ± {error:.2g} and ahead of the next with a probability of {story.ahead:.0%}."
    )
