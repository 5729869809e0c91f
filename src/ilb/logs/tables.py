"""The user's table, whatever holds it (a frame of any library, a CSV or Parquet file), and the roles of its columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from jaxtyping import Float32, Float64, Int64, Shaped
from narwhals.exceptions import DuplicateError

from ilb.errors import LogsError, LogsWarning
from ilb.files import put_in_place, reason
from ilb.logs.labels import Labels
from ilb.logs.layouts import look_at
from ilb.logs.messages import brief, counted, near, one_line, shown, warn

KnownLabels: TypeAlias = Mapping[str, Collection[Hashable] | None]
"""Columns whose values are labels, each with those that it may have, where these are known."""


def open_table(frame: Any, labels: KnownLabels = MappingProxyType({})) -> nw.DataFrame[Any]:
    """A frame, or the table in a file, as a narwhals frame in memory with unique column names that are text.

    A CSV file has no types. The columns in `labels` are read as text unless what is read says the same as the text:
    '01' and '1' are two people.

    >>> open_table(pa.table({"patient": [1, 2], "mmse": [24, 30]})).columns
    ['patient', 'mmse']
    """
    native = _read_path(Path(frame), labels) if isinstance(frame, str | Path) else frame
    try:
        table = nw.from_native(native)
        names = table.collect_schema().names() if isinstance(table, nw.LazyFrame) else table.columns
    except DuplicateError as error:
        raise LogsError(f"column names must differ. {one_line(error)}. Rename or drop the copies.") from error
    except TypeError as error:
        raise LogsError(
            f"can't read a table from {type(frame).__name__!r}; expected a pandas, polars or pyarrow frame, or the "
            "path of a .csv or .parquet file."
        ) from error
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise LogsError(
            f"{len(odd)} column names are not text: {shown(odd)}; expected text. "
            "Rename them, in pandas for example with frame.columns = frame.columns.map(str)."
        )
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def _read_path(path: Path, labels: KnownLabels) -> pa.Table:
    readers: dict[str, Callable[[Path], pa.Table]] = {
        ".csv": lambda path: _read_csv(path, labels),
        ".csv.gz": lambda path: _read_csv(path, labels),
        ".parquet": _read_parquet,
    }
    try:
        found, folder = path.is_file(), path.is_dir()
    except (OSError, ValueError) as error:
        raise LogsError(f"can't read {str(path)!r}: {_reason(error)}. Check the path.") from error
    if folder:
        raise LogsError(f"can't read {str(path)!r}: it is a directory. Give the path of a file.")
    reader = next((reader for suffix, reader in readers.items() if path.name.lower().endswith(suffix)), None)
    if reader is None:
        raise LogsError(
            f"can't read {str(path)!r}: unknown file type {path.suffix!r}; expected .csv, .csv.gz or .parquet. "
            "Save the table as one of these, or read it yourself and pass the frame."
        )
    if not found:
        raise LogsError(f"there is no file {str(path)!r} (looked in {str(Path.cwd())!r}). Check the path.")
    try:
        return reader(path)
    except LogsError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise LogsError(
            f"can't read {str(path)!r} as {path.suffix}: {_reason(error)}. Check that the file is whole, or read "
            "it yourself and pass the frame."
        ) from error


def _reason(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else one_line(error)


def _read_csv(path: Path, labels: KnownLabels) -> pa.Table:
    as_they_are = {name: pa.binary() for name in labels}
    layout = look_at(path)
    # Otherwise an empty field of a text column would be the category "" rather than a missing value.
    options = pyarrow.csv.ConvertOptions(
        strings_can_be_null=True, column_types=as_they_are, decimal_point=layout.decimal
    )
    parsing = pyarrow.csv.ParseOptions(delimiter=layout.delimiter)
    table = pyarrow.csv.read_csv(path, convert_options=options, parse_options=parsing)
    try:
        names = table.column_names
    except UnicodeDecodeError as error:
        raise LogsError(
            f"can't read {str(path)!r}: the name of a column has {brief(error.object)}, which is not UTF-8. {NOT_UTF8}"
        ) from error
    for number, name in enumerate(names):
        kind = table.schema.field(number).type
        if pa.types.is_binary(kind):
            texts = _as_text(path, name, table.column(number))
            read = _as_labels(texts, labels[name]) if name in labels else texts
            table = table.set_column(number, name, read)
        elif layout.decimal == "," and pa.types.is_string(kind):
            table = table.set_column(number, name, _with_points(table.column(number)))
    return table


NOT_UTF8 = "Save it as UTF-8, or read it yourself, with its encoding, and pass the frame."
"""What to do about a file in another encoding."""


def _with_points(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write decimal commas as points in a column that other cells keep from being numbers, so that those are blamed."""
    return pyarrow.compute.replace_substring_regex(texts, r"^(\s*[-+]?\d*),(\d+\s*)$", r"\1.\2")


def _as_text(path: Path, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        wrong = next(value for value in column.to_pylist() if value is not None and not _is_utf8(value))
        raise LogsError(
            f"can't read {str(path)!r}: column {name!r} has {brief(wrong)}, which is not UTF-8. {NOT_UTF8}"
        ) from error


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


LABEL_TYPES = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("s"))
"""What labels in a CSV file may be beside text."""


def _as_labels(texts: pa.ChunkedArray, known: Collection[Hashable] | None) -> pa.ChunkedArray:
    """Labels of a CSV file: text, unless a type gives exactly this text back; if labels are known, what they are."""
    if known is not None and all(isinstance(label, str) for label in known):
        return texts
    for kind in LABEL_TYPES:
        try:
            read = texts.cast(kind)
            again = read.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        same = again.equals(pyarrow.compute.utf8_lower(texts) if kind == pa.bool_() else texts)
        if same and len(set(read.unique().to_pylist())) == len(texts.unique()):  # -0 is not 0, nor true TRUE
            return read
    return texts


def _read_parquet(path: Path) -> pa.Table:
    table = pyarrow.parquet.read_table(path)
    # pandas writes its index under such names; it is a row number and would pass for a context.
    return table.drop_columns([name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)])


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".csv": pyarrow.csv.write_csv,
    ".parquet": pyarrow.parquet.write_table,
}


def require_writable_suffix(path: Path) -> None:
    """Raise unless a table can be written under this name: to be asked before the work, not after it."""
    if path.suffix.lower() not in WRITERS:
        raise LogsError(f"can't write {path}: its suffix {path.suffix!r} is neither .csv nor .parquet. Rename it.")


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as CSV or Parquet, by the suffix of the path."""
    require_writable_suffix(path)
    try:
        with put_in_place(path) as (draft,):
            fill_table(table, draft, path.suffix)
    except (OSError, ValueError) as error:
        raise LogsError(f"can't write {path}: {one_line(error)}.") from error


def fill_table(table: pa.Table, draft: Path, suffix: str) -> None:
    """Write a table into a file that is not in place yet, as a file of this suffix."""
    WRITERS[suffix.lower()](table, draft)


def require_columns(wanted: Collection[str], columns: list[str], error: type[LogsError]) -> None:
    """Raise unless all wanted columns are in the table."""
    lost = [name for name in wanted if name not in columns]
    if lost:
        raise error(
            f"the table has no column {shown(lost)}; its columns are {shown(columns, 30)}.{near(lost[0], columns)} "
            "Rename the column of the table, or name the right one."
        )


class Roles(NamedTuple):
    """The column names of one table; each column has one role at most, and `categorical` are some of the context."""

    instance: str
    action: str
    reward: str
    context: tuple[str, ...]
    time: str | None = None
    categorical: tuple[str, ...] = ()


class Rows(NamedTuple):
    """What every row has beside its context, sorted by instance and then time; row i was row `order[i]` before.

    `time` is anything that can be sorted, and `clock` the same as numbers, where it has numbers or dates.
    """

    order: Int64[np.ndarray, " N"]
    instance: Labels
    action: Labels
    reward: Float32[np.ndarray, " N"]
    time: Shaped[np.ndarray, " N"] | None = None
    clock: Float64[np.ndarray, " N"] | None = None


def names_of(names: Sequence[str]) -> tuple[str, ...]:
    """Column names, where a single one may be given as it is."""
    return (names,) if isinstance(names, str) else tuple(names)


def assign_roles(
    columns: list[str],
    named: Mapping[str, str | None],
    context: Sequence[str] | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Roles:
    """Check the names that the user gave; without `context`, all remaining columns but those in `drop` are context.

    >>> named = {"instance": "who", "action": "drug", "reward": "gain", "time": None}
    >>> assign_roles(["who", "age", "drug", "gain"], named).context
    ('age',)
    """
    lost = " and ".join(f"{role}=" for role, name in named.items() if name is None and role != "time")
    if lost:
        raise LogsError(f"no column is named for {lost}; the table has {shown(columns, 30)}. Name one.")
    single = {role: name for role, name in named.items() if name is not None}
    dropped = names_of(drop)
    _check_dropped(dropped, columns, single, context)
    rest = [name for name in columns if name not in single.values() and name not in dropped]
    chosen = _with_names(rest) if context is None else names_of(context)
    require_columns([*single.values(), *chosen], columns, LogsError)
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
    return Roles(**single, context=chosen, categorical=names_of(categorical))


def _check_dropped(
    dropped: Sequence[str], columns: list[str], single: Mapping[str, str], context: Sequence[str] | None
) -> None:
    require_columns(dropped, columns, LogsError)
    used = [f"{role}={name!r}" for role, name in single.items() if name in dropped]
    if used:
        raise LogsError(f"drop= names {', '.join(used)}; expected context columns. That column is needed: keep it.")
    if dropped and context is not None:
        raise LogsError(
            f"context= says which columns are kept, and drop= which are not: {shown(dropped)}; expected one of the two."
        )


def _with_names(columns: list[str]) -> tuple[str, ...]:
    nameless = [name for name in columns if not name.strip()]
    if nameless:
        warn(
            f"{counted(len(nameless), 'column')} without a name left out of the context; it looks like a saved row "
            "number. Name the context columns in context= to decide yourself.",
            LogsWarning,
        )
    return tuple(name for name in columns if name.strip())
