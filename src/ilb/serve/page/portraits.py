"""People as the page shows them: what was believed when, what was done, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ilb.serve.page.digest import Story, colours_of, is_pending
from ilb.serve.page.drawing import Dot, Series, lines, number, sparkline
from ilb.serve.store.store import AbstractStore, PersonRow
from ilb.serve.stories import story_of_person

DRAWN = 100
"""The newest decisions of a person that are drawn."""

BELIEFS = 5
"""Actions whose expected rewards are drawn: those that were chosen most, or are now expected to be best."""


class Line(NamedTuple):
    """A person in the list."""

    row: PersonRow
    last: Story | None
    pending: int
    rewards: Markup


def line_of(store: AbstractStore, row: PersonRow) -> Line:
    """Tell a person in one line."""
    history = story_of_person(store, row.person)["history"]
    rewards = [float(story["outcome"]["reward"]) for story in history if story["outcome"] is not None]
    words = f"{len(rewards)} rewards, from {number(rewards[0])} to {number(rewards[-1])}" if rewards else "no rewards"
    drawn = sparkline(rewards[-40:], words)
    return Line(row, history[-1] if history else None, sum(map(is_pending, history)), drawn)


class Portrait(NamedTuple):
    """A person: the story, the newest decision first, and figures with the actions that have colours in them."""

    story: dict[str, Any]
    newest: list[Story]
    belief: Markup | None
    misfit: Markup | None
    legend: dict[str, str]


def portrait_of(store: AbstractStore, person: str, actions: Sequence[Any]) -> Portrait:
    """Tell a person with figures; raises `ProblemError` if nothing is known."""
    story = story_of_person(store, person)
    history: list[Story] = story["history"][-DRAWN:]
    believed = [one for one in history if one["decision"]["expected_reward"]]
    if not believed:
        return Portrait(story, history[::-1], None, None, {})
    shown = _actions_to_draw(believed)
    colours = colours_of(actions, shown)
    legend = {action: colours.get(action, "other") for action in shown}
    return Portrait(story, history[::-1], _belief(history, legend), _misfit(history), legend)


def _actions_to_draw(believed: Sequence[Story]) -> list[str]:
    chosen = [name for name, _ in Counter(str(one["decision"]["action"]) for one in believed).most_common(BELIEFS)]
    expected = believed[-1]["decision"]["expected_reward"]
    best = sorted(expected, key=lambda name: -expected[name])
    return sorted([*chosen, *(name for name in best if name not in chosen)][:BELIEFS])


def _belief(history: Sequence[Story], legend: dict[str, str]) -> Markup:
    labels = [f"decision {one['decision']['number']}" for one in history]
    series = []
    for action, colour in legend.items():
        means = [(one["decision"]["expected_reward"] or {}).get(action) for one in history]
        stds = [(one["decision"]["reward_std"] or {}).get(action) for one in history]
        series.append(
            Series(action, colour, means, [None if m is None else s for m, s in zip(means, stds, strict=True)])
        )
    dots = [
        Dot(
            place,
            float(one["outcome"]["reward"]),
            legend.get(str(one["outcome"]["action"]), "other"),
            f"decision {one['decision']['number']}: {one['outcome']['action']} gave {number(one['outcome']['reward'])}",
        )
        for place, one in enumerate(history)
        if one["outcome"] is not None
    ]
    last = next(one for one in reversed(history) if one["decision"]["expected_reward"])["decision"]
    said = "; ".join(
        f"{action} {number(last['expected_reward'].get(action))} ± {number(last['reward_std'].get(action), 2)}"
        for action in legend
    )
    description = f"Expected reward of each action at each decision, with one standard deviation; at the last: {said}."
    return lines("Belief over time", description, labels, series, dots=dots)


def _misfit(history: Sequence[Story]) -> Markup:
    values = [one["decision"]["misfit"] for one in history]
    known = [value for value in values if value is not None]
    said = f"from {number(known[0], 2)} to {number(known[-1], 2)}" if known else "never told"
    description = f"The probability that the model does not fit this person, at each decision: {said}."
    labels = [f"decision {one['decision']['number']}" for one in history]
    return lines("Misfit", description, labels, [Series("misfit", "s3", values)], bounds=(0.0, 1.0))
