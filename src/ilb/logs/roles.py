"""Which column of a table plays which part: instance, time, context, action, reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ilb.errors import LogsError, LogsWarning
from ilb.logs.messages import counted, shown, warn
from ilb.logs.tables import require_columns


class Roles(NamedTuple):
    """The column names of one table; each column has one role at most."""

    instance: str
    time: str | None
    context: tuple[str, ...]
    action: str
    reward: str


def assign_roles(
    columns: list[str],
    *,
    instance: str,
    time: str | None,
    context: Sequence[str] | None,
    action: str,
    reward: str,
    categorical: Sequence[str],
    drop: Sequence[str] = (),
) -> Roles:
    """Check the names that the user gave; without `context`, all remaining columns but those in `drop` are context.

    >>> assign_roles(["who", "age", "drug", "gain"], instance="who", time=None, context=None,
    ...              action="drug", reward="gain", categorical=()).context
    ('age',)
    """
    single = {"instance": instance, "action": action, "reward": reward} | ({"time": time} if time is not None else {})
    dropped = names_of(drop)
    _check_dropped(dropped, columns, single, context)
    rest = [name for name in columns if name not in single.values() and name not in dropped]
    chosen = _with_names(rest) if context is None else names_of(context)
    require_columns([*single.values(), *chosen], columns, LogsError)
    if not chosen:
        raise LogsError(
            f"no context column is left beside {shown([*single.values(), *dropped])}; expected at least one column "
            "that describes the instance at that time. Add one to the table, or name it in context=."
        )
    pairs = [*((name, f"{role}=") for role, name in single.items()), *((name, "context=") for name in chosen)]
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            uses = " and ".join(role for used, role in pairs if used == name)
            raise LogsError(f"column {name!r} is used {count} times: {uses}; expected one role. Name another column.")
    strays = [name for name in names_of(categorical) if name not in chosen]
    if strays:
        raise LogsError(
            f"categorical= names {shown(strays)}, which is no context column; those are {shown(chosen)}. "
            "Correct the name, or add it to context=."
        )
    return Roles(instance, time, tuple(chosen), action, reward)


def _check_dropped(
    dropped: list[str], columns: list[str], single: Mapping[str, str], context: Sequence[str] | None
) -> None:
    require_columns(dropped, columns, LogsError)
    used = [f"{role}={name!r}" for role, name in single.items() if name in dropped]
    if used:
        raise LogsError(f"drop= names {', '.join(used)}; expected context columns. That column is needed: keep it.")
    if dropped and context is not None:
        raise LogsError(
            f"context= says which columns are kept, and drop= which are not: {shown(dropped)}; expected one of the two."
        )


def names_of(names: Sequence[str]) -> list[str]:
    """A list of column names, where a single one may be given as it is."""
    return [names] if isinstance(names, str) else list(names)


def _with_names(columns: list[str]) -> list[str]:
    nameless = [name for name in columns if not name.strip()]
    if nameless:
        warn(
            f"{counted(len(nameless), 'column')} without a name left out of the context; it looks like a saved row "
            "number. Name the context columns in context= to decide yourself.",
            LogsWarning,
        )
    return [name for name in columns if name.strip()]
