"""Recommendation: what to do for a person after their history, what that rests on, and when it will be settled."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import narwhals as nw

from ilb.html import html_block, html_table
from ilb.live.decision import Decision
from ilb.live.settling import ROUNDS
from ilb.logs.labels import encode_label
from ilb.logs.messages import counted

LEVEL = 0.95
"""The probability with which an expected reward is between its bounds."""

MOST_SHOWN = 100
"""People in the table of a notebook."""

PARTS = ("everybody", "contexts", "own rewards")
"""What a choice may rest on."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An earlier person of whom the model expects much the same.

    `distance` is how far the expected rewards of the two are apart, in units of the reward: the root of the mean square
    over actions, after what all actions have in common is taken off. `rewards` says what came of each action that the
    earlier person had: the mean, and how often.
    """

    instance: Hashable
    distance: float
    rewards: Mapping[Hashable, tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to do for one person now, and what that rests on.

    `expected_reward`, `interval` (95 %) and `probability_best` go from action labels to numbers. `rows` and `rewards`
    count what the person's history had. `ahead_of` is the runner-up and `lead` by how much more reward is expected;
    `rests_on` takes that lead apart: what holds for `everybody`, what the `contexts` of this person add, and what
    their `own rewards` add. `rounds_to_settle` is after how many more rounds, in which all that may be best are taken
    in turn, it can be expected that the better of the two that are hardest to tell apart is known with probability
    0.95: 0 if an action is the best with that probability already, None if it takes more than 64 rounds, or if the
    model can't say. `unsettled_after` is 64 in the first of these two cases, and None otherwise.
    """

    instance: Hashable
    action: Hashable
    expected_reward: Mapping[Hashable, float]
    interval: Mapping[Hashable, tuple[float, float]]
    probability_best: Mapping[Hashable, float]
    misfit: float
    ruled_out: tuple[Hashable, ...]
    rows: int
    rewards: int
    ahead_of: Hashable | None
    lead: float
    rests_on: Mapping[str, float]
    rounds_to_settle: int | None
    unsettled_after: int | None
    nearest: tuple[Neighbour, ...]
    sentence: str
    reason: str

    @property
    def rounds_in_words(self) -> str:
        """The rounds until it is settled, for a cell of a table; a dash where the model can't say."""
        if self.unsettled_after is not None:
            return f"> {self.unsettled_after}"
        return "-" if self.rounds_to_settle is None else f"{self.rounds_to_settle}"

    def to_json(self) -> dict[str, Any]:
        """Give everything in JSON types; labels that JSON has no type for as `ilb.logs.labels` writes them."""
        labels = [(label, encode_label(label)) for label in self.expected_reward]
        return {
            "instance": encode_label(self.instance),
            "action": encode_label(self.action),
            "actions": [
                {
                    "action": written,
                    "expected_reward": self.expected_reward[label],
                    "low": self.interval[label][0],
                    "high": self.interval[label][1],
                    "probability_best": self.probability_best[label],
                    "ruled_out": label in self.ruled_out,
                }
                for label, written in labels
            ],
            "misfit": self.misfit,
            "rows": self.rows,
            "rewards": self.rewards,
            "ahead_of": encode_label(self.ahead_of),
            "lead": self.lead,
            "rests_on": dict(self.rests_on),
            "rounds_to_settle": self.rounds_to_settle,
            "unsettled_after": self.unsettled_after,
            "nearest": [
                {
                    "instance": encode_label(one.instance),
                    "distance": one.distance,
                    "rewards": [
                        {"action": encode_label(label), "mean": mean, "count": count}
                        for label, (mean, count) in one.rewards.items()
                    ],
                }
                for one in self.nearest
            ],
            "sentence": self.sentence,
            "reason": self.reason,
        }


class Recommendations(Sequence[Recommendation]):
    """A recommendation for each person of a table, in its order."""

    def __init__(self, one_by_one: Sequence[Recommendation]) -> None:
        self._one_by_one = tuple(one_by_one)

    def __len__(self) -> int:
        return len(self._one_by_one)

    def __getitem__(self, place: Any) -> Any:
        return self._one_by_one[place]

    def __iter__(self) -> Iterator[Recommendation]:
        return iter(self._one_by_one)

    def __repr__(self) -> str:
        return "\n".join(one.sentence for one in self._one_by_one)

    def _repr_html_(self) -> str:
        """Show in a notebook a row for each person, the first hundred."""
        header = ["person", "action", "expected reward", "95 % interval", "probability best", "why"]
        rows = [
            [
                one.instance,
                one.action,
                f"{one.expected_reward[one.action]:.3g}",
                "{:.3g} to {:.3g}".format(*one.interval[one.action]),
                f"{one.probability_best[one.action]:.2f}",
                one.sentence,
            ]
            for one in self._one_by_one[:MOST_SHOWN]
        ]
        return html_block(f"{counted(len(self), 'recommendation')}", html_table(header, rows))

    def to_json(self) -> str:
        """Write all of it as JSON text."""
        return json.dumps([one.to_json() for one in self._one_by_one], indent=2, allow_nan=False, ensure_ascii=False)

    def columns(self) -> dict[str, list[Any]]:
        """Give a row for each person: what is recommended, then four columns for each action."""
        rows = self._one_by_one
        table: dict[str, list[Any]] = {
            "instance": [one.instance for one in rows],
            "action": [one.action for one in rows],
            "expected_reward": [one.expected_reward[one.action] for one in rows],
            "low": [one.interval[one.action][0] for one in rows],
            "high": [one.interval[one.action][1] for one in rows],
            "probability_best": [one.probability_best[one.action] for one in rows],
            "misfit": [one.misfit for one in rows],
            "ahead_of": [one.ahead_of for one in rows],
            "lead": [one.lead for one in rows],
            **{f"from {part}": [one.rests_on.get(part) for one in rows] for part in PARTS},
            "rounds_to_settle": [one.rounds_to_settle for one in rows],
            "unsettled_after": [one.unsettled_after for one in rows],
            "rows": [one.rows for one in rows],
            "rewards": [one.rewards for one in rows],
            "nearest": ["; ".join(str(near.instance) for near in one.nearest) or None for one in rows],
            "sentence": [one.sentence for one in rows],
        }
        for label in rows[0].expected_reward if rows else ():
            table[f"{label}: expected"] = [one.expected_reward[label] for one in rows]
            table[f"{label}: low"] = [one.interval[label][0] for one in rows]
            table[f"{label}: high"] = [one.interval[label][1] for one in rows]
            table[f"{label}: best"] = [one.probability_best[label] for one in rows]
        return table

    def to_frame(self, backend: str = "pandas") -> Any:
        """Give the table of `columns` as a "pandas", "polars" or "pyarrow" frame."""
        columns = {name: _alike(values) for name, values in self.columns().items()}
        return nw.from_dict(columns, backend=backend).to_native()  # type: ignore[arg-type]


def _alike(values: list[Any]) -> list[Any]:
    """Write values as text if they are of several types, or of one that tables do not have."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and kinds <= {str, int, float, bool, date, datetime}:
        return values
    return [None if value is None else str(value) for value in values]


def sentence_of(
    decision: Decision,
    bounds: tuple[float, float],
    rests_on: Mapping[str, float],
    rows: int,
    rewards: int,
    rounds_to_settle: float | None,
    nearest: Sequence[Neighbour],
) -> str:
    """Say what to do and why, for somebody who has not read the paper; a choice may take infinitely many rounds."""
    low, high = bounds
    known = f"{counted(rows, 'row')} and {counted(rewards, 'reward')}" if rows else "nothing known yet"
    parts = [
        f"{decision.instance} ({known}): {decision.reason}",
        f"the reward to expect of it is between {low:.3g} and {high:.3g} (95 %)",
    ]
    happened = {"everybody": True, "contexts": rows > 0, "own rewards": rewards > 0}
    added = [f"{amount:+.2g} {_FROM[part]}" for part, amount in rests_on.items() if happened[part]]
    if added:
        parts.append(f"its lead rests on {', '.join(added)}")
    tried = [one.rewards[decision.action] for one in nearest if decision.action in one.rewards]
    if tried:
        mean = sum(mean * count for mean, count in tried) / sum(count for _, count in tried)
        parts.append(f"{len(tried)} of the {len(nearest)} nearest earlier people had it, with mean reward {mean:.3g}")
    parts += [] if rounds_to_settle is None else [_when_settled(rounds_to_settle, decision)]
    return f"{'; '.join(parts)}."


_FROM = {
    "everybody": "for everybody",
    "contexts": "from this person's contexts",
    "own rewards": "from their own rewards",
}


def _when_settled(rounds: float, decision: Decision) -> str:
    if rounds == 0:
        best = max(decision.probability_best, key=decision.probability_best.__getitem__)
        return "this is settled" if best == decision.action else f"it is settled that {best!r} is best"
    if rounds > ROUNDS[-1]:
        return f"more than {ROUNDS[-1]} more rounds would be needed to settle it"
    return f"about {counted(int(rounds), 'more round')} would settle it"
