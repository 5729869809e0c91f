"""What the command line prints: results to standard output, everything else to standard error."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ilb.cli.wording import in_options
from ilb.errors import IlbError, IlbWarning

if TYPE_CHECKING:
    from ilb.estimates import Estimate
    from ilb.offline.ahead import AheadScores
    from ilb.offline.scores import FitScores
    from ilb.types import Report

results = Console()
notes = Console(stderr=True)


CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys rather than shows; names and cells of a table may hold it."""

PLAIN = {"±": "+-", "²": "^2", "…": "...", "–": "-", "≤": "<=", "≥": ">=", "×": "x", "→": "->"}
"""What is written where a terminal can't show a character; others become question marks."""


def visible(text: str) -> str:
    r"""Show control characters as escapes, so that a cell of a table can't take over the terminal.

    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def write_in_any_encoding() -> None:
    """Let output streams write something for every character, whatever the encoding of the terminal."""
    codecs.register_error("ilb-plain", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ilb-plain")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def say(text: str) -> None:
    """Print a line of the result."""
    results.print(visible(text), highlight=False, markup=False, soft_wrap=True)


def tell(text: str, label: str = "", style: str = "") -> None:
    """Print a line that is no result, with a word before it that stands out."""
    marked = f"[bold {style}]{label}:[/] " if label else ""
    with suppress(OSError):  # standard error may be closed or full, and there is no other place to say so
        notes.print(f"{marked}{escape(visible(text))}", highlight=False, soft_wrap=not notes.is_terminal)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning for a person: no file names, no source line; those of other libraries stay as they are."""
    del file  # always standard error
    if issubclass(category, IlbWarning):
        tell(in_options(str(message)), category.__name__, "yellow")
    else:
        notes.print(visible(warnings.formatwarning(message, category, filename, lineno, line)), markup=False)


HEADINGS = {
    "reward_r2": "R² of rewards",
    "potential_r2": "R² expected rewards",
    "best_action": "best action named",
    "affine_r2": "R² of z (affine)",
    "affine_mcc": "MCC of z (affine)",
    "mcc": "MCC of z (ICA)",
}
"""In the order of a table; MCC after ICA comes last, for with Gaussian states even the truth scores low on it."""


def layout(title: str, header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> Table:
    """Lay out rows under their header: names to the left, numbers to the right.

    In a narrow terminal the first columns wrap, as many as `words` says, and numbers are not cut.
    """
    table = Table(title=escape(visible(title)), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, name in enumerate(header):
        is_word = number < words
        table.add_column(visible(name), justify="left" if is_word else "right", no_wrap=not is_word, overflow="fold")
    for row in rows:
        table.add_row(*(escape(visible(cell)) for cell in row))
    return table


def choice_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Lay out the candidates that were compared: the headings, and a line for each, the chosen one marked."""
    headings = ["candidate", "R²", "log-lik.", "behind"]
    lines = []
    for row in rows:
        error = "" if row["standard_error"] is None else f"±{row['standard_error']:.3f}"
        mark = " (plain)" if row["reference"] else ""
        name = f"{'> ' if row['chosen'] else '  '}{row['candidate']}{mark}"
        behind = "" if row["chosen"] else f"{row['behind']:.3f}{error}"
        r_squared = "-" if row["r2"] is None else f"{row['r2']:.3f}"
        lines.append([name, r_squared, f"{row['log_likelihood']:.3f}", behind])
    return headings, lines


AHEAD_HEADINGS = {
    "r_squared": "R² of the next reward",
    "log_likelihood": "log-likelihood of it",
    "covered_80": "80 % intervals hold",
    "covered_95": "95 % intervals hold",
}


def ahead_rows(lines: Mapping[str, AheadScores], leads: Mapping[str, Estimate]) -> list[list[str]]:
    """Write a row for each score one step ahead, and one for the lead of this model over the others."""
    rows = []
    for name, heading in AHEAD_HEADINGS.items():
        scores = [getattr(line, name) for line in lines.values()]
        percent = name.startswith("covered")
        texts = [f"{score.text(1, 100.0)} %" if percent else score.text() for score in scores]
        rows.append([heading, *(text.replace(" ± ", "±") for text in texts)])
    if leads:
        rows.append(["this model leads by", "", *(one.text().replace(" ± ", "±") for one in leads.values())])
    return rows


def score_rows(lines: Mapping[str, FitScores]) -> list[list[str]]:
    """Write a row for each score that any of the models has: its heading, then what each model reaches."""
    return [
        [heading, *(_score_cell(name, getattr(line, name)) for line in lines.values())]
        for name, heading in HEADINGS.items()
        if any(getattr(line, name) is not None for line in lines.values())
    ]


def _score_cell(name: str, score: Estimate | None) -> str:
    if score is None:
        return "-"
    text = f"{score.text(1, 100.0)} %" if name == "best_action" else score.text()
    return text.replace(" ± ", "±")


def width_of(table: Table) -> int:
    """Measure how wide a table is that is not cut."""
    return Measurement.get(results, results.options.update(max_width=1000), table).maximum


def require_directory(path: Path) -> None:
    """Raise unless `path` is a directory or can become one: to be asked before the work, not after it."""
    try:
        nearest = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    except (OSError, ValueError) as error:
        raise IlbError(f"--out is no name that a disk can have: {error}.") from error
    if not nearest.is_dir():
        raise IlbError(f"--out needs a directory, new or not, and {nearest} is a file. Choose another name.")
    if not os.access(nearest, os.W_OK):
        raise IlbError(f"--out needs a directory that can be written to, and {nearest} can't.")
    require_short_names(path, nearest)


def require_file(out: Path, *suffixes: str) -> None:
    """Raise unless a file can be written under this name: to be asked before the work, not after it."""
    if suffixes and out.suffix.lower() not in suffixes:
        *first, last = suffixes
        raise IlbError(f"--out must end in {', '.join(first)} or {last}; got {str(out)!r}.")
    if out.is_dir():
        raise IlbError(f"--out must be the name of a file; {out} is a directory.")
    require_directory(out.parent)
    require_short_names(out, Path.cwd())


def require_short_names(path: Path, existing: Path) -> None:
    """Raise if a name on the way to `path` is longer than the disk of the existing place takes."""
    longest = os.pathconf(existing, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
    for name in path.absolute().parts:
        if len(os.fsencode(name)) > longest:
            raise IlbError(
                f"--out has a name of {len(os.fsencode(name))} bytes, {name[:20]}…; expected {longest} at most."
            )


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show on a terminal that something is being done whose length nobody knows; elsewhere, nothing."""
    if notes.is_terminal:
        with notes.status(escape(visible(what))):
            yield
    else:
        yield


@contextmanager
def progress_bar(description: str, console: Console | None = None, value: str = "loss") -> Iterator[Report]:
    """Show a bar while the block runs, with what `value` names; a count that starts again begins the bar anew.

    >>> with progress_bar("Training", Console(quiet=True)) as report:
    ...     report(100, 200, 1.5)
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(value + " {task.fields[value]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as progress:
        task = progress.add_task(description, total=None, value="-")
        last = 0

        def report(done: int, total: int, reached: float) -> None:
            nonlocal last
            if done <= last:
                progress.reset(task)
            last = done
            progress.update(task, completed=done, total=total, value=f"{reached:.3f}")

        yield report
        if not last:  # nothing was trained, and a bar without a number only puzzles
            progress.update(task, visible=False)
