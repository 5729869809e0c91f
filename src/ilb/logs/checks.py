"""What logs must have to be learned from, and what a user should know about them; rows are sorted by instance here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from ilb.errors import IdentifiabilityWarning, LogsError, LogsWarning
from ilb.logs.labels import Labels
from ilb.logs.messages import brief, counted, shown, warn
from ilb.logs.tables import Roles, Rows

# Under this share of a column's variance inside instances, one value all but tells which instance it is.
LEAST_WITHIN_SHARE = 1e-4
# With fewer rows that could have shown a change, a column may seem to stand still without doing so.
LEAST_REPEATS = 20


def check_enough(roles: Roles, rows: Rows) -> None:
    """To learn, there must be instances to tell apart and actions to choose between."""
    instances, actions = rows.instance.labels, rows.action.labels
    if len(instances) < 2:
        raise LogsError(
            f"column {roles.instance!r} has a single instance, {shown(instances)}, in all "
            f"{counted(len(rows.order), 'row')}; expected at least 2, since the encoder learns by telling "
            "instances apart. Add the logs of others, or name the column that tells instances apart."
        )
    if len(actions) < 2:
        found = f"only the action {brief(actions[0])}" if actions else "no action at all"
        raise LogsError(
            f"column {roles.action!r} has {found} in {counted(len(rows.order), 'row')}; expected at least 2 actions, "
            "for with fewer there is nothing to decide. Name the column that says what was done."
        )


def warn_odd_rows(roles: Roles, rows: Rows) -> None:
    """Tell what is done with rows at the same time, and with those that can train the encoder but not the rewards."""
    instance, time, rewarded = rows.instance.codes, rows.time, ~np.isnan(rows.reward)
    if time is not None:
        same = (instance[1:] == instance[:-1]) & (time[1:] == time[:-1])
        shared = int(np.count_nonzero(np.append(same, False) | np.append(False, same)))
        if shared:
            warn(
                f"column {roles.time!r} has {shared:,} rows that share their time with another row of the same "
                "instance; expected each time once. They keep the order of the table; add the time of day if that is "
                "not right.",
                LogsWarning,
            )
    if not rewarded.any():
        warn(
            f"column {roles.reward!r} lacks all {counted(len(rewarded), 'reward')}: these logs can train the encoder, "
            "but not the reward model. Name the right column if you have rewards.",
            LogsWarning,
        )
    unattributed = int(np.count_nonzero(rewarded & (rows.action.codes < 0)))
    if unattributed:
        warn(
            f"column {roles.action!r} lacks the action in {counted(unattributed, 'row')} that have a reward in "
            f"{roles.reward!r}: they train the encoder, but can't train the reward model. Fill in what was done where "
            "you know it.",
            LogsWarning,
        )


def warn_unrewarded_actions(roles: Roles, rows: Rows) -> None:
    """Actions whose effect was never seen."""
    codes, labels = rows.action
    rewarded = ~np.isnan(rows.reward)
    seen = np.bincount(codes[rewarded & (codes >= 0)], minlength=len(labels))
    silent = np.flatnonzero(seen == 0)
    if rewarded.any() and len(silent):
        named = shown([labels[code] for code in silent])
        warn(
            f"{counted(len(silent), 'action')} of column {roles.action!r} without any reward in {roles.reward!r}: "
            f"{named} ({counted(int(np.isin(codes, silent).sum()), 'row')}). Nothing can be learned of their effect; "
            "drop them, or add rows with rewards.",
            LogsWarning,
        )


def warn_constant(name: str, values: Float64[np.ndarray, " N"]) -> None:
    """A column that is the same everywhere says nothing, and is kept all the same."""
    known = values[~np.isnan(values)]
    if (known == known[0]).all():
        warn(
            f"column {name!r} has the same value in all {counted(len(known), 'row')} that have one, so it tells "
            f"nothing of the instance. It is kept; leave it out with drop=[{name!r}] unless it will vary later.",
            LogsWarning,
        )


NUMBER = re.compile(r"[<>~]?\s*[-+]?[$€£]?(\d+|\d{1,3}([ ,.']\d{3})+)([.,]\d+)?([eE][-+]?\d+)?\s*[%$€£]?")
"""What a person would take for a number, with the signs that keep a computer from it."""


DAY = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([T ].*)?")
"""A date as people write it; files and frames have their own types for those that computers read."""

MOST_CODES = 10
"""So many different numbers, among words that recur, may be codes of categories such as the steps of a ladder."""


def require_words(name: str, values: Labels) -> None:
    """Refuse text that is mostly numbers: as categories, a few stray cells would cost the column its meaning."""
    codes, labels = values
    texts = [str(label).strip() for label in labels]
    days = [text for text in texts if DAY.fullmatch(text)]
    if 2 * len(days) > len(texts):
        raise LogsError(
            f"column {name!r} looks like dates, such as {days[0]!r}. If it says when, name it in time=, written "
            "like 2024-01-31 or 31.01.2024; else leave it out with drop=, or turn it into a number."
        )
    numeric = np.array([NUMBER.fullmatch(text) is not None for text in texts], dtype=bool)
    rows = np.bincount(codes[codes >= 0], minlength=len(labels))
    numbers = int(rows[numeric].sum())
    if 2 * numbers < rows.sum():
        return
    plain = np.array([_is_plain_number(text) for text in texts], dtype=bool)
    if plain.all():
        warn(
            f"column {name!r} has numbers as text, such as {labels[0]!r}; it is read as categories, without order and "
            "distances. Turn them into numbers; if they are categories, name the column in categorical=.",
            LogsWarning,
        )
        return
    odd = [label for label, ordinary in zip(labels, plain, strict=True) if not ordinary]
    if plain.sum() <= MOST_CODES and not numeric[~plain].any() and rows[~plain].min() > 1:
        warn(
            f"column {name!r} has words such as {odd[0]!r} among few numbers; it is read as categories. Name the "
            "column in categorical= if that is right, else turn the words into numbers or leave these cells empty.",
            LogsWarning,
        )
        return
    raise LogsError(
        f"column {name!r} is text, but {numbers:,} of its {int(rows.sum()):,} values look like numbers; what keeps "
        f"them from being read as such are {shown(odd, 5)}. Turn them into numbers, or leave them empty where nothing "
        "is known; if these are categories, name the column in categorical=."
    )


def _is_plain_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


FAR_OUT = 1e5
"""Times the usual distance from the median at which a value is told of: most tails, even heavy ones, end before."""

LEAST_APART = 10
"""With fewer values that differ from the median, nobody can say how far values usually are from it."""

OUT_OF_SIGHT = 1e7
"""Times the usual distance from the median beyond which float32 can't hold the others beside it any more."""


def require_one_scale(name: str, values: Float64[np.ndarray, " N"]) -> None:
    """Refuse a column in which one value is so far out that all others become the same number beside it."""
    known = values[~np.isnan(values)]
    if not len(known):
        return
    centre = float(np.median(known))
    distance = np.abs(known - centre)
    apart = distance[distance > np.finfo(np.float32).eps * abs(centre)]
    if len(apart) < LEAST_APART or (furthest := float(distance.max())) <= FAR_OUT * (usual := float(np.median(apart))):
        return
    worst = known[distance.argmax()]
    said = (
        f"column {name!r} has the value {worst:g}, {furthest / usual:.1g} times as far from the median {centre:g} as "
        "values usually are"
    )
    if furthest > OUT_OF_SIGHT * usual:
        raise LogsError(
            f"{said}: beside it all others are the same number. Correct it, or leave it empty if it stands for a value "
            "that is not known."
        )
    warn(f"{said}. It decides the scale of the column; check it.", LogsWarning)


class StillColumn(NamedTuple):
    """A column that (nearly) stands still in time: `within` is the share of its variance inside instances."""

    name: str
    distinct: int
    within: float

    def identifies(self, instances: int) -> bool:
        """Tell whether it has so many values that one of them all but says which instance it is."""
        return self.distinct > max(2, instances / 2)

    def sentence(self) -> str:
        still = "never changes" if self.within == 0 else f"hardly changes ({self.within:.1e} of its variance is)"
        return f"column {self.name!r} {still} within an instance and has {self.distinct:,} distinct values"


def find_still(name: str, values: Float64[np.ndarray, " N"], instance: Int64[np.ndarray, " N"]) -> StillColumn | None:
    """The column, if its values (or their codes) differ between instances but (nearly) stand still within them."""
    known = ~np.isnan(values)
    numbers, instance = values[known], instance[known]
    neighbours = instance[1:] == instance[:-1]
    if np.count_nonzero(neighbours) < LEAST_REPEATS or (numbers == numbers[0]).all():
        return None
    changing = bool(((numbers[1:] != numbers[:-1]) & neighbours).any())
    within = _within_share(numbers, instance) if changing else 0.0
    return StillColumn(name, len(np.unique(numbers)), within) if within < LEAST_WITHIN_SHARE else None


def warn_still(columns: Sequence[StillColumn | None], instances: int) -> None:
    """Columns that stand still in time but differ between instances give the instance away, or part of it.

    Beside contexts that vary, a value without noise is the easiest way to tell instances apart: an encoder may spend
    latent dimensions on it that the latent state then lacks. That holds of traits that many instances share, too.
    `fit` compares encoders with doing without; who names an encoder should know.
    """
    still = [column for column in columns if column is not None]
    if not still:
        return
    identifying = [column for column in still if column.identifies(instances)]
    shared = [column for column in still if column not in identifying]
    traits = ", ".join(f"{column.name!r} ({column.distinct:,} values)" for column in shared)
    parts = []
    if identifying:
        verb = "it identifies" if len(identifying) == 1 else "they identify"
        parts.append(
            f"{'; '.join(column.sentence() for column in identifying)} for {instances:,} instances, so {verb} them: an "
            "encoder, which learns by telling instances apart, may learn nothing else (the paper's Age variable)."
        )
    if shared:
        parts.append(
            f"{'These stand still, too' if identifying else 'Columns that never change within an instance'}: {traits}. "
            "They help to tell instances apart, so an encoder may spend latent dimensions on them."
        )
    parts.append(_way_out([column.name for column in (*identifying, *shared)], others=len(still) < len(columns)))
    warn(" ".join(parts), IdentifiabilityWarning)


def _way_out(names: list[str], *, others: bool) -> str:
    if not others:
        return "No other column is left, so these contexts can't teach an encoder by telling instances apart."
    options = " ".join(f"--drop {shlex.quote(name)}" for name in names)
    them = "it" if len(names) == 1 else "them"
    return (
        "fit() compares ways to read contexts by held-out rewards; an encoder that you name (recipe=, --recipe) is not "
        f"compared with doing without. To leave {them} out: drop={tuple(names)!r} in Logs.from_frame, "
        f"`ilb fit {options}`, or logs.without({names!r})."
    )


def _within_share(numbers: Float64[np.ndarray, " N"], instance: Int64[np.ndarray, " N"]) -> float:
    # Centred and scaled first: a large offset must not drown small changes, nor tiny numbers vanish when squared.
    centred = numbers - numbers.mean()
    centred = centred / np.abs(centred).max()
    counts = np.bincount(instance)
    means = np.bincount(instance, weights=centred) / np.maximum(counts, 1)
    return float(((centred - means[instance]) ** 2).sum() / (centred**2).sum())
