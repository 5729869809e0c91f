import ast
import doctest
import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import ilb.logs
import ilb.logs.labels
from ilb.errors import LogsError, LogsWarning
from ilb.logs import Logs, NumericColumn

ROLES: dict[str, Any] = {"instance": "who", "time": "when", "action": "did", "reward": "got"}
FRAME = pd.DataFrame(
    {
        "who": ["ä", "b", "ä", "b", "ä"],
        "when": pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02", "2020-01-02", "2020-01-01"]),
        "x": [1.5, None, 2.5, 0.5, -1.0],
        "sex": ["F", None, "M", "M", "F"],
        "did": ["a", "b", "a", "b", "a"],
        "got": [1.0, 2.0, None, 0.0, 1.0],
    }
)


def assert_same(one: Logs, other: Logs) -> None:
    assert one.schema == other.schema
    assert one.instance_labels == other.instance_labels
    for name in ("context", "instance", "action", "reward", "starts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".csv.gz", ".parquet"])
def test_a_file_gives_the_logs_of_the_frame_in_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"logs{suffix}"
    FRAME.to_parquet(path) if suffix == ".parquet" else FRAME.to_csv(path, index=False)
    expected = Logs.from_frame(FRAME, **ROLES)
    assert_same(Logs.from_frame(path, **ROLES), expected)
    assert_same(Logs.from_frame(str(path), **ROLES), expected)
    np.testing.assert_array_equal(expected.schema.encode(path), expected.schema.encode(FRAME))


def test_an_index_that_pandas_saved_is_no_context(tmp_path: Path) -> None:
    shuffled = FRAME.iloc[[3, 1, 0, 2, 4]]
    shuffled.to_parquet(tmp_path / "logs.parquet")
    assert "__index_level_0__" in pa.parquet.read_schema(tmp_path / "logs.parquet").names
    assert_same(Logs.from_frame(tmp_path / "logs.parquet", **ROLES), Logs.from_frame(shuffled, **ROLES))
    shuffled.to_csv(tmp_path / "logs.csv")
    with pytest.warns(LogsWarning, match="1 column without a name left out of the context"):
        logs = Logs.from_frame(tmp_path / "logs.csv", **ROLES)
    assert_same(logs, Logs.from_frame(shuffled, **ROLES))


def test_a_column_of_a_csv_may_turn_out_to_be_floats_late_in_the_file(tmp_path: Path) -> None:
    rows = 120_000  # more than one block of the reader
    frame = pd.DataFrame({"who": np.arange(rows) % 7, "x": np.arange(rows) % 11, "did": np.arange(rows) % 2, "got": 1})
    text = frame.to_csv(index=False) + "0,0.5,1,1\n"
    (tmp_path / "logs.csv").write_text(text)
    logs = Logs.from_frame(tmp_path / "logs.csv", instance="who", action="did", reward="got")
    assert logs.rows == rows + 1
    column = logs.schema.context[0]
    assert isinstance(column, NumericColumn)
    assert column.mean == pytest.approx((frame["x"].sum() + 0.5) / (rows + 1))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogsError, match=r"there is no file .*nowhere\.csv"):
        Logs.from_frame(tmp_path / "nowhere.csv", **ROLES)


@pytest.mark.parametrize("name", ["logs.xlsx", "logs", "logs.tsv.gz"])
def test_an_unknown_kind_of_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("who\n")
    with pytest.raises(LogsError, match=r"unknown file type .*expected \.csv, \.csv\.gz or \.parquet"):
        Logs.from_frame(tmp_path / name, **ROLES)


@pytest.mark.parametrize(
    ("name", "content"),
    [("logs.parquet", b"PAR1 cut off"), ("logs.parquet", b""), ("logs.csv", b""), ("logs.csv", b"a,b\n1,2,3\n")],
)
def test_an_unreadable_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LogsError, match=r"can't read .*logs\..*Check that the file is whole"):
        Logs.from_frame(tmp_path / name, **ROLES)


def test_a_file_with_only_a_header_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "logs.csv").write_text("who,when,x,did,got\n")
    with pytest.raises(LogsError, match=r"the table has no rows, only the columns 'who', 'when'"):
        Logs.from_frame(tmp_path / "logs.csv", **ROLES)


MODULES = [
    ilb.logs.labels,
    *(importlib.import_module(f"ilb.logs.{m.name}") for m in pkgutil.iter_modules(ilb.logs.__path__)),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_run(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_reading_logs_imports_neither_jax_nor_a_frame_library(module: ModuleType) -> None:
    imported = set()
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            imported.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
    third_party = imported - set(sys.stdlib_module_names)
    assert third_party <= {"ilb", "numpy", "narwhals", "jaxtyping", "pyarrow"}
    assert "pyarrow" not in third_party or module.__name__ == "ilb.logs.tables"
