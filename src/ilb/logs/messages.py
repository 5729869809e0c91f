"""How messages about tables are worded: counts, lists cut short, near spellings, and where a warning points."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ilb.errors import IlbWarning


def shown(values: Collection[Any], limit: int = 10) -> str:
    """The values in a row, at most `limit` of them.

    >>> shown(["a", "b", 3], limit=2)
    "'a', 'b' and 1 more"
    """
    some = ", ".join(brief(value) for value, _ in zip(values, range(limit), strict=False))
    more = len(values) - limit
    return f"{some} and {more:,} more" if more > 0 else some or "none"


def brief(value: Any, most: int = 80) -> str:
    """A value as Python shows it, cut short; also one that Python refuses to show.

    >>> brief("x" * 100, most=10), brief(10**5000)
    ("'xxxxxx...", 'a very large int')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # digits or brackets without end
        return f"a very large {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def counted(count: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def near(name: str, names: Collection[str]) -> str:
    """A question about the nearest spelling, or nothing.

    >>> near("pateint", ["patient", "drug"])
    " Did you mean 'patient'?"
    """
    close = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def one_line(error: Exception) -> str:
    r"""What another library complained about, without its line breaks and final stop.

    >>> one_line(ValueError("two names are equal:\n- 'x'."))
    "two names are equal: - 'x'"
    """
    return " ".join(str(error).split()).rstrip(".")


_OVERHEARD: ContextVar[list[str] | None] = ContextVar("overheard", default=None)


@contextmanager
def overheard() -> Iterator[list[str]]:
    """Collect what this thread would be warned of, to be told to somebody else.

    >>> with overheard() as said:
    ...     warn("it rains", IlbWarning)
    >>> said
    ['it rains']
    """
    said: list[str] = []
    before = _OVERHEARD.set(said)
    try:
        yield said
    finally:
        _OVERHEARD.reset(before)


def warn(message: str, category: type[IlbWarning]) -> None:
    """Warn, pointing at the line of the caller's code that led here rather than at a line of ILB."""
    if (listener := _OVERHEARD.get()) is not None:
        listener.append(message)
        return
    level, frame = 2, sys._getframe(1)
    ours = ("ilb", "jaxtyping")  # the latter wraps our functions where shapes are checked
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ours:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
