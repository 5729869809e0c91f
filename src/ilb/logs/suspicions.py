"""Columns that look like something else than a context: what a model must not know when it decides, by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float64, Int64

from ilb.errors import LogsError, LogsWarning
from ilb.logs.labels import Labels
from ilb.logs.messages import counted, warn
from ilb.logs.tables import Roles, Rows

LEAST_ROWS = 20
"""With fewer rows, a column may look like another by chance."""

SAME = 0.9999
"""The correlation from which a column is called a copy of the reward."""

MOST_FALLS = 0.01
"""A reward that falls in fewer of its steps than this share is taken for one that is summed up."""

QUICK = 1000
"""Rows by which most columns are found to be innocent."""

FEW_ROWS = 3
"""With fewer rows for each value, numbers are taken for amounts and not for labels of actions."""

MANY_VALUES = 30
"""So many actions may be numbers before anybody asks whether they are amounts."""

PROPENSITY = re.compile(r"propensit|pscore|p_score|prob.*(action|logg|chosen|treat)|^ips|action_prob", re.IGNORECASE)
"""What a column of propensities may be called."""


def warn_suspicious_columns(roles: Roles, rows: Rows, values: Mapping[str, Float64[np.ndarray, " N"]]) -> None:
    """Name columns that a model should not have as contexts; `values` has numbers, or codes, in the rows' order."""
    if len(rows.order) < LEAST_ROWS:
        return
    for name, column in values.items():
        what = _what_it_is(name, column, roles, rows)
        if what is not None:
            warn(f"column {name!r} {what} Leave it out: drop=, --drop {shlex.quote(name)}.", LogsWarning)


def _what_it_is(name: str, column: Float64[np.ndarray, " N"], roles: Roles, rows: Rows) -> str | None:
    known = ~np.isnan(column)
    if np.count_nonzero(known) < LEAST_ROWS or np.ptp(column[known]) == 0:
        return None
    in_table = np.empty_like(column)
    in_table[rows.order] = column
    is_share = column[known].min() >= 0 and column[known].max() <= 1
    looks = {
        f"is a copy of the reward {roles.reward!r}, which is not known when an action is chosen.": _is_copy(
            column, rows.reward.astype(np.float64), known
        ),
        "numbers the rows of the table: it says nothing of a person.": _counts(in_table),
        "numbers the rows of each instance. If it says when, name it in time=.": roles.time is None
        and _counts_within(column, rows.instance.codes),
        "looks like the probability of the action that was taken, which depends on what was chosen.": is_share
        and PROPENSITY.search(name) is not None,
        f"has one value for each action in {roles.action!r}, so it says what was done.": _follows(
            column, rows.action.codes, known
        ),
        "looks like dates written as numbers (20240131). If it says when, name it in time=.": _are_days(column[known]),
    }
    return next((what for what, is_so in looks.items() if is_so), None)


def _is_copy(
    column: Float64[np.ndarray, " N"], reward: Float64[np.ndarray, " N"], known: Bool[np.ndarray, " N"]
) -> bool:
    both = known & ~np.isnan(reward)
    if np.count_nonzero(both) < LEAST_ROWS or len(np.unique(reward[both])) < 3:
        # Rewards of two values may well agree with a yes or no: only equality counts.
        return bool(
            np.count_nonzero(both) >= LEAST_ROWS and np.ptp(reward[both]) > 0 and (column == reward)[both].all()
        )
    x, y = column[both], reward[both]
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return False
    return bool(abs(np.corrcoef(x, y)[0, 1]) > SAME)


def _counts(column: Float64[np.ndarray, " N"]) -> bool:
    """Tell whether each row has the number of the one before it and one."""
    return bool((np.diff(column) == 1).all())


def _counts_within(column: Float64[np.ndarray, " N"], instance: Int64[np.ndarray, " N"]) -> bool:
    within = instance[1:] == instance[:-1]
    return bool(np.count_nonzero(within) >= LEAST_ROWS and (np.diff(column)[within] == 1).all())


def _follows(column: Float64[np.ndarray, " N"], action: Int64[np.ndarray, " N"], known: Bool[np.ndarray, " N"]) -> bool:
    """Tell whether every action comes with one value of its own."""
    both = np.flatnonzero(known & (action >= 0))
    first = both[:QUICK]
    if len(np.unique(column[first])) > len(np.unique(action[first])):  # as of most columns, at little cost
        return False
    pairs = np.unique(np.column_stack([action[both], column[both]]), axis=0)
    actions, values = (len(np.unique(part)) for part in pairs.T)
    return bool(len(pairs) == actions == values and actions > 1 and len(both) >= LEAST_ROWS)


def _are_days(values: Float64[np.ndarray, " N"]) -> bool:
    if (values != np.round(values)).any() or values.min() < 19000101 or values.max() > 21001231:
        return False
    month, day = values // 100 % 100, values % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def warn_growing_reward(roles: Roles, rows: Rows) -> None:
    """Name a reward that all but never falls within a person: it may have been summed up, or say when it was."""
    reward = rows.reward.astype(np.float64)
    known = np.flatnonzero(~np.isnan(reward))
    steps, codes = np.diff(reward[known]), rows.instance.codes[known]
    steps = steps[codes[1:] == codes[:-1]]
    rises = np.count_nonzero(steps > 0)
    if rises >= LEAST_ROWS and np.count_nonzero(steps < 0) < MOST_FALLS * len(steps) and 2 * rises > len(steps):
        warn(
            f"column {roles.reward!r} grows from row to row within an instance: it rises in {rises:,} of "
            f"{counted(len(steps), 'step')} and all but never falls. If it is a sum so far, give what each action "
            "added to it.",
            LogsWarning,
        )


def require_distinct_actions(roles: Roles, actions: Labels) -> None:
    """Refuse actions that are amounts: numbers of which hardly any comes twice."""
    codes, labels = actions
    if len(labels) <= MANY_VALUES or not all(map(_is_number, labels)):
        return
    rows = int(np.count_nonzero(codes >= 0))
    if rows < FEW_ROWS * len(labels):
        raise LogsError(
            f"column {roles.action!r} looks continuous: it has {len(labels):,} different numbers in {rows:,} rows. "
            "ILB chooses among few actions, each seen many times. Cut it into a few ranges, or name the column that "
            "says what was done."
        )


def _is_number(label: object) -> bool:
    """Tell whether a label is a number, or text that is one: in a CSV file '0.30' and '0.3' are two labels."""
    try:
        float(label.replace(",", ".", 1) if isinstance(label, str) else label)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True
