import json
import math
import random
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilb.errors import LogsError, LogsWarning, SchemaError
from ilb.logs import CategoricalColumn, Logs, NumericColumn, Schema

MMSE = NumericColumn("mmse", mean=25.0, std=5.0, fill=26.0, flagged=True)
AGE = NumericColumn("age", mean=70.0, std=10.0, fill=71.0, flagged=False)
SEX = CategoricalColumn("sex", ("F", "M"), flagged=True)
SITE = CategoricalColumn("site", (1, 2, 3), flagged=False)
SCHEMA = Schema("patient", "visit", "drug", "gain", (MMSE, AGE, SEX, SITE), ("A", "B", "C"))
ROW = {"mmse": 30, "age": 60.0, "sex": "M", "site": 2}
ENCODED = [1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]


def quietly_learned(frame: Any) -> Logs:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small random tables have constant and identifying columns
        return Logs.from_frame(frame, instance="who", action="did", reward="got", categorical=["site"])


def test_names_tell_what_each_number_is() -> None:
    assert SCHEMA.names == (
        "mmse",
        "mmse is missing",
        "age",
        "sex = F",
        "sex = M",
        "sex is missing",
        "site = 1",
        "site = 2",
        "site = 3",
    )
    assert SCHEMA.width == 9


def test_a_row_is_encoded_as_worked_out_by_hand() -> None:
    encoded = SCHEMA.encode(ROW)
    assert encoded.dtype == np.float32
    assert encoded.tolist() == ENCODED


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.Table.from_pylist, list, tuple])
def test_every_kind_of_table_gives_the_same_numbers(library: Callable[[Any], Any]) -> None:
    rows = [ROW, {**ROW, "mmse": None, "sex": None}]
    encoded = SCHEMA.encode(library(rows))
    assert encoded.dtype == np.float32
    second = [0.2, 1.0, -1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    np.testing.assert_array_equal(encoded, np.array([ENCODED, second], dtype=np.float32))


def test_a_lazy_frame_is_collected() -> None:
    np.testing.assert_array_equal(SCHEMA.encode(pl.LazyFrame([ROW])), [ENCODED])


def test_no_rows_give_no_rows() -> None:
    assert SCHEMA.encode([]).shape == (0, 9)


@pytest.mark.parametrize("missing", [None, math.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN")])
def test_a_missing_value_is_filled_and_flagged(missing: Any) -> None:
    encoded = SCHEMA.encode({**ROW, "mmse": missing, "sex": missing})
    np.testing.assert_array_equal(encoded, np.array([0.2, 1, -1, 0, 0, 1, 0, 1, 0], dtype=np.float32))


@pytest.mark.parametrize("number", [30, 30.0, np.int8(30), np.float32(30), Decimal(30), np.array(30)])
def test_any_kind_of_number_will_do(number: Any) -> None:
    assert SCHEMA.encode({**ROW, "mmse": number}).tolist() == ENCODED


def test_booleans_are_zero_and_one() -> None:
    schema = Schema("i", None, "a", "r", (NumericColumn("on", 0.5, 0.5, 1.0, False),), ("A", "B"))
    assert [schema.encode({"on": on}).tolist() for on in (True, np.bool_(False))] == [[1.0], [-1.0]]
    assert schema.encode(pl.DataFrame({"on": [True, False]})).tolist() == [[1.0], [-1.0]]
    assert schema.encode(pd.DataFrame({"on": pd.array([True, False], dtype="boolean")})).tolist() == [[1.0], [-1.0]]


@pytest.mark.parametrize("shape", [lambda row: row, lambda row: [ROW, row], lambda row: pd.DataFrame([ROW, row])])
def test_an_unknown_category_is_missing_with_a_warning(shape: Callable[[dict[str, Any]], Any]) -> None:
    message = r"column 'sex' has 1 value that training never saw: 'X', .* known are 'F', 'M'\. Check the spelling"
    with pytest.warns(LogsWarning, match=message):
        encoded = SCHEMA.encode(shape({**ROW, "sex": "X"}))
    assert encoded.reshape(-1, 9)[-1].tolist() == [1, 0, -1, 0, 0, 1, 0, 1, 0]


def test_unknown_categories_are_counted() -> None:
    with pytest.warns(LogsWarning, match=r"'site' has 3 values that training never saw: 9, 8, treated as missing"):
        encoded = SCHEMA.encode(pd.DataFrame({**ROW, "site": [1, 9, 8, 9]}))
    assert encoded[:, 6:].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("shape", [lambda row: row, lambda row: [row], lambda row: pl.DataFrame([row])])
def test_a_column_that_was_never_missing_says_that_it_has_no_flag(shape: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.warns(LogsWarning, match=r"'age' lacks 1 value, filled with the training median 71\. .*no missingness"):
        encoded = SCHEMA.encode(shape({**ROW, "age": None}))
    assert encoded.reshape(-1)[2] == np.float32(0.1)
    with pytest.warns(LogsWarning, match=r"'site' lacks 1 value, given as zeros"):
        encoded = SCHEMA.encode(shape({**ROW, "site": None}))
    assert encoded.reshape(-1)[6:].tolist() == [0, 0, 0]


def test_a_warning_points_at_the_line_that_called() -> None:
    with pytest.warns(LogsWarning) as caught:
        SCHEMA.encode({**ROW, "sex": "X"})
    assert caught[0].filename == __file__


def test_a_row_without_a_key_names_it_and_what_came() -> None:
    row = {"mmse": 30, "Age": 60, "sex": "M", "site": 2}
    message = r"no key 'age'; it came with 'mmse', 'Age', 'sex', 'site'\. Is 'Age' meant for it\? .* give None"
    with pytest.raises(SchemaError, match=message):
        SCHEMA.encode(row)
    with pytest.raises(SchemaError, match=message):
        SCHEMA.encode([ROW, row])


def test_a_table_without_a_column_names_it_and_what_came() -> None:
    with pytest.raises(SchemaError, match=r"no column 'sex', 'site'; its columns are 'mmse', 'age'\."):
        SCHEMA.encode(pd.DataFrame({"mmse": [1], "age": [2]}))


@pytest.mark.parametrize("infinite", [math.inf, -math.inf, 1e39, 10**400, np.float32("inf")])
def test_an_infinite_number_is_refused(infinite: Any) -> None:
    message = r"column 'mmse' has 1 infinite value .*None where that is unknown"
    for rows in ({**ROW, "mmse": infinite}, [ROW, {**ROW, "mmse": infinite}]):
        with pytest.raises(LogsError, match=message):
            SCHEMA.encode(rows)


def test_infinite_numbers_of_a_frame_are_counted() -> None:
    with pytest.raises(LogsError, match=r"column 'age' has 2 infinite values"):
        SCHEMA.encode(pd.DataFrame({**ROW, "age": [1.0, math.inf, -math.inf]}))


def test_a_number_that_overflows_when_scaled_is_refused() -> None:
    schema = Schema("i", None, "a", "r", (NumericColumn("x", 0.0, 1e-300, 0.0, False),), ("A", "B"))
    for rows in ({"x": 1e10}, [{"x": 1e10}]):
        with pytest.raises(LogsError, match="infinite"):
            schema.encode(rows)


@pytest.mark.parametrize("wrong", ["30", "high", [30], {"v": 30}, 3j, np.array([1.0, 2.0])])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    message = r"column 'mmse' has 1 value of type .*; expected numbers\. .*categorical="
    for rows in ({**ROW, "mmse": wrong}, [ROW, {**ROW, "mmse": wrong}]):
        with pytest.raises(LogsError, match=message):
            SCHEMA.encode(rows)


def test_text_in_a_numeric_column_of_a_frame_is_counted() -> None:
    with pytest.raises(LogsError, match=r"column 'mmse' has 2 values of type 'str', such as '30'; expected numbers"):
        SCHEMA.encode(pd.DataFrame({**ROW, "mmse": ["30", "29"]}))


def test_a_date_is_refused_with_the_way_out() -> None:
    for rows in ({**ROW, "age": pd.Timestamp("2020-01-01")}, pl.DataFrame({**ROW, "age": pd.Timestamp("2020-01-01")})):
        with pytest.raises(LogsError, match=r"column 'age' has 1 value of type .*days since a start date"):
            SCHEMA.encode(rows)


def test_an_unhashable_category_is_refused() -> None:
    with pytest.raises(LogsError, match=r"column 'sex' got \['M'\] of type 'list'; expected one of .*'F', 'M'"):
        SCHEMA.encode({**ROW, "sex": ["M"]})
    with pytest.raises(LogsError, match=r"column 'sex' has labels of type 'list', such as \['M'\]"):
        SCHEMA.encode([{**ROW, "sex": ["M"]}])


@pytest.mark.parametrize("rows", [3, np.zeros((2, 4)), pd.Series(ROW), [1, 2], [(1, 2)]])
def test_what_is_no_table_is_refused(rows: Any) -> None:
    with pytest.raises(LogsError, match="expected"):
        SCHEMA.encode(rows)


def test_actions_have_positions() -> None:
    assert [SCHEMA.action_index(label) for label in ("A", "C", np.str_("B"))] == [0, 2, 1]


@pytest.mark.parametrize("label", ["D", None, 0, ["A"]])
def test_an_unknown_action_lists_the_known_ones(label: Any) -> None:
    with pytest.raises(SchemaError, match=r"unknown action .*'drug' had 3 actions .*'A', 'B', 'C'\. Use one"):
        SCHEMA.action_index(label)


def test_at_most_ten_known_actions_are_listed() -> None:
    schema = Schema("i", None, "a", "r", (), tuple(range(30)))
    with pytest.raises(SchemaError, match="8, 9 and 20 more"):
        schema.action_index(31)


@pytest.mark.parametrize("saved", [{}, {"instance": "i"}, {**SCHEMA.to_json(), "context": [{"kind": "image"}]}])
def test_what_is_no_saved_schema_is_refused(saved: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="not a saved schema"):
        Schema.from_json(saved)


def test_scales_are_those_of_the_known_values() -> None:
    values = np.array([3.0, np.nan, 5.0, 10.0, 7.0])
    column = NumericColumn.fit("x", values)
    series = pd.Series(values)
    assert column == NumericColumn("x", series.mean(), series.std(ddof=0), series.median(), True)


def test_a_constant_column_gets_the_scale_one() -> None:
    assert NumericColumn.fit("x", np.full(1000, 0.1)) == NumericColumn("x", 0.1, 1.0, 0.1, False)


# Quarters: a column of tiny numbers and one huge one would be refused.
maybe = st.one_of(st.none(), st.integers(-4000, 4000).map(lambda quarters: quarters / 4))
tables = st.lists(
    st.fixed_dictionaries(
        {
            "who": st.integers(0, 3),
            "x": maybe,
            "sex": st.sampled_from(["F", "M", None]),
            "site": st.sampled_from([1, 2, None]),
            "on": st.booleans(),
            "did": st.sampled_from(["a", "b", "c", None]),
            "got": maybe,
        }
    ),
    min_size=3,
    max_size=12,
).map(
    # What every table must have: two instances, two actions, some value in each column.
    lambda rows: [
        {"who": 0, "x": 1.0, "sex": "F", "site": 1, "on": True, "did": "a", "got": 0.0},
        {"who": 9, "x": 2.0, "sex": "M", "site": 2, "on": False, "did": "b", "got": 1.0},
        *rows,
    ]
)


@settings(deadline=None, max_examples=60)
@given(tables)
def test_encoding_the_training_table_gives_the_training_contexts(rows: Any) -> None:
    frame = pd.DataFrame(rows)
    logs = quietly_learned(frame)
    in_order = frame.assign(position=pd.factorize(frame["who"])[0]).sort_values("position", kind="stable")
    np.testing.assert_array_equal(logs.schema.encode(in_order), logs.context)


@settings(deadline=None, max_examples=60)
@given(tables)
def test_one_row_at_a_time_gives_the_numbers_of_the_table(rows: Any) -> None:
    schema = quietly_learned(pl.DataFrame(rows, infer_schema_length=None)).schema
    one_by_one = np.stack([schema.encode(row) for row in rows])
    np.testing.assert_array_equal(one_by_one, schema.encode(pl.DataFrame(rows, infer_schema_length=None)))
    np.testing.assert_array_equal(one_by_one, schema.encode(rows))


@settings(deadline=None, max_examples=60)
@given(tables)
def test_a_schema_survives_json(rows: Any) -> None:
    schema = quietly_learned(pa.Table.from_pylist(rows)).schema
    back = Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
    assert back == schema
    assert [type(label) for label in back.actions] == [type(label) for label in schema.actions]
    np.testing.assert_array_equal(back.encode(rows), schema.encode(rows))


@settings(deadline=None, max_examples=60)
@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_different_instances_does_not_matter(rows: Any, random: random.Random) -> None:
    queues: dict = {}
    for row in rows:
        queues.setdefault(row["who"], []).append(row)
    mixed = []
    while any(queues.values()):  # a random interleaving that keeps the order within each instance
        mixed.append(queues[random.choice([who for who, queue in queues.items() if queue])].pop(0))
    columns = list(rows[0])
    one, other = (quietly_learned(pd.DataFrame(table, columns=columns)) for table in (rows, mixed))
    assert one.schema == other.schema
    other = other.select([other.instance_labels.index(label) for label in one.instance_labels])
    assert one.instance_labels == other.instance_labels
    for name in ("context", "instance", "action", "reward", "starts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
