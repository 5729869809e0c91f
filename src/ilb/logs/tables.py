"""The user's table, whatever holds it: a pandas, polars or pyarrow frame, or a CSV or Parquet file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from narwhals.exceptions import DuplicateError

from ilb.errors import LogsError
from ilb.logs.messages import near, one_line, shown


def open_table(frame: Any) -> nw.DataFrame[Any]:
    """A frame, or the table in a file, as a narwhals frame in memory with unique column names that are text.

    >>> open_table(pa.table({"patient": [1, 2], "mmse": [24, 30]})).columns
    ['patient', 'mmse']
    """
    native = _read_path(Path(frame)) if isinstance(frame, str | Path) else frame
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
    writer = WRITERS[path.suffix.lower()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer(table, path)
    except OSError as error:
        raise LogsError(f"can't write {path}: {one_line(error)}.") from error


def require_columns(wanted: Collection[str], columns: list[str], error: type[LogsError]) -> None:
    """Raise unless all wanted columns are in the table."""
    lost = [name for name in wanted if name not in columns]
    if lost:
        raise error(
            f"the table has no column {shown(lost)}; its columns are {shown(columns, 30)}.{near(lost[0], columns)} "
            "Rename the column of the table, or name the right one."
        )


def _read_path(path: Path) -> pa.Table:
    readers: dict[str, Callable[[Path], pa.Table]] = {".csv": _read_csv, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise LogsError(
            f"can't read {str(path)!r}: unknown file type {path.suffix!r}; expected .csv or .parquet. "
            "Save the table as one of these, or read it yourself and pass the frame."
        )
    if not path.is_file():
        raise LogsError(f"there is no file {str(path)!r} (looked in {str(Path.cwd())!r}). Check the path.")
    try:
        return reader(path)
    except (OSError, pa.ArrowException) as error:
        raise LogsError(
            f"can't read {str(path)!r} as {path.suffix}: {one_line(error)}. Check that the file is whole, or read "
            "it yourself and pass the frame."
        ) from error


def _read_csv(path: Path) -> pa.Table:
    # Otherwise an empty field of a text column would be the category "" rather than a missing value.
    return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))


def _read_parquet(path: Path) -> pa.Table:
    table = pyarrow.parquet.read_table(path)
    # pandas writes its index under such names; it is a row number and would pass for a context.
    return table.drop_columns([name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)])
