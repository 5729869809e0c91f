from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ilb.errors import LogsError, LogsWarning, SchemaError
from ilb.logs import CategoricalColumn, Logs, NumericColumn
from ilb.networks import IdentityEncoder
from ilb.offline.ahead import predict_ahead
from ilb.offline.fit import complete_model
from ilb.offline.scores import score_model

ROLES: dict[str, Any] = {"instance": "patient", "time": "visit", "action": "drug", "reward": "gain"}
ARRAYS = ("context", "instance", "action", "reward", "starts")


def trial(seed: int = 0, patients: int = 6) -> pd.DataFrame:
    """Unequal histories in random row order; contexts, actions and rewards are sometimes missing."""
    rng = np.random.default_rng(seed)
    lengths = np.append(rng.integers(1, 9, patients - 1), 8)
    rows = lengths.sum()
    frame = pd.DataFrame(
        {
            "patient": np.repeat([f"p{number}" for number in range(patients)], lengths),
            "visit": np.concatenate([np.arange(length) for length in lengths]),
            "mmse": rng.normal(25, 3, rows),
            "sex": rng.choice(["F", "M", "X"], rows),
            "smoker": rng.random(rows) < 0.5,
            "weight": rng.integers(50, 90, rows),
            "drug": rng.choice(["A", "B", "C"], rows),
            "gain": rng.normal(size=rows),
        }
    )
    frame.loc[rng.random(rows) < 0.2, "mmse"] = np.nan
    frame.loc[rng.random(rows) < 0.2, "sex"] = None
    unknown = rng.random(rows) < 0.1
    frame.loc[unknown, ["drug", "gain"]] = None
    frame.loc[rng.random(rows) < 0.1, "gain"] = np.nan
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def sorted_by_hand(frame: Any) -> pd.DataFrame:
    order = {label: code for code, label in enumerate(frame["patient"].unique())}
    frame = frame.assign(code=frame["patient"].map(order))
    return frame.sort_values(["code", "visit"], kind="stable").reset_index(drop=True)


def assert_same(one: Logs, other: Logs) -> None:
    assert one.schema == other.schema
    assert one.instance_labels == other.instance_labels
    for name in ARRAYS:
        assert getattr(one, name).dtype == getattr(other, name).dtype
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_table_becomes_the_arrays_that_pandas_gives() -> None:
    frame = trial()
    logs = Logs.from_frame(frame, **ROLES)
    expected = sorted_by_hand(frame)

    assert logs.instance_labels == tuple(frame["patient"].unique())
    assert logs.schema.actions == ("A", "B", "C")
    np.testing.assert_array_equal(logs.instance, expected["code"])
    np.testing.assert_array_equal(logs.action, pd.Categorical(expected["drug"], ["A", "B", "C"]).codes)
    np.testing.assert_array_equal(logs.reward, expected["gain"].astype(np.float32))
    np.testing.assert_array_equal(logs.lengths, frame.groupby("patient", sort=False).size())
    assert logs.starts.tolist() == [0, *np.cumsum(logs.lengths).tolist()]
    assert [getattr(logs, name).dtype for name in ARRAYS] == [np.float32, np.int32, np.int32, np.float32, np.int64]

    def standard(name: str) -> np.ndarray:
        filled = expected[name].astype(float).fillna(frame[name].astype(float).median())
        return (filled - frame[name].astype(float).mean()) / frame[name].astype(float).std(ddof=0)

    columns = {
        "mmse": standard("mmse"),
        "mmse is missing": expected["mmse"].isna(),
        **{f"sex = {sex}": expected["sex"] == sex for sex in "FMX"},
        "sex is missing": expected["sex"].isna(),
        "smoker": standard("smoker"),
        "weight": standard("weight"),
    }
    assert logs.schema.names == tuple(columns)
    np.testing.assert_allclose(logs.context, np.stack([*columns.values()], axis=1).astype(float), rtol=1e-6, atol=1e-7)


def test_sizes_are_those_of_the_table() -> None:
    frame = trial()
    logs = Logs.from_frame(frame, **ROLES)
    assert (logs.rows, logs.instances, logs.actions, logs.width) == (len(frame), 6, 3, 8)
    rewards = frame["gain"].notna().sum()
    assert repr(logs) == f"Logs({len(frame)} rows of 6 instances, 8 context columns, 3 actions, {rewards} rewards)"


def test_the_summary_counts_what_is_missing() -> None:
    frame = trial(seed=4)
    summary = Logs.from_frame(frame, **ROLES).describe()
    lengths = frame.groupby("patient").size()
    assert summary.rows == len(frame)
    assert summary.instances == 6
    assert (summary.shortest_history, summary.longest_history) == (lengths.min(), lengths.max())
    assert summary.median_history == lengths.median()
    assert summary.missing_contexts == frame[["mmse", "sex"]].isna().any(axis=1).sum()
    assert summary.missing_actions == frame["drug"].isna().sum()
    assert summary.missing_rewards == frame["gain"].isna().sum()
    assert summary.missing_contexts > summary.missing_rewards > summary.missing_actions > 0
    assert f"rows without reward         {summary.missing_rewards}" in str(summary)


@pytest.mark.parametrize(
    "library",
    [
        pl.from_pandas,
        lambda frame: pl.from_pandas(frame).lazy(),
        pa.Table.from_pandas,
        lambda frame: frame.convert_dtypes(),
        lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
        lambda frame: frame.astype({"sex": "category", "drug": "category", "patient": object}),
        lambda frame: pl.from_pandas(frame).with_columns(pl.col("sex", "drug").cast(pl.Categorical)),
        lambda frame: pl.from_pandas(frame).with_columns(pl.col("sex").cast(pl.Enum(["M", "unused", "X", "F"]))),
        lambda frame: pa.Table.from_pandas(frame.astype({"sex": "category"})),
        lambda frame: frame.astype({"smoker": object, "weight": "float32"}),
    ],
)
def test_every_library_gives_the_same_logs(library: Callable[[Any], Any]) -> None:
    for seed in range(3):
        frame = trial(seed)
        assert_same(Logs.from_frame(library(frame), **ROLES), Logs.from_frame(frame, **ROLES))


def test_nan_and_null_are_both_missing_in_polars() -> None:
    frame = pl.DataFrame(
        {
            "who": [1, 1, 2, 2, 2],
            "x": [1.0, float("nan"), None, 3.0, 8.0],
            "did": [1.0, 2.0, float("nan"), None, 1.0],
            "got": [float("nan"), 1.0, None, float("nan"), 2.0],
        }
    )
    logs = Logs.from_frame(frame, instance="who", action="did", reward="got")
    assert logs.context[:, 1].tolist() == [0, 1, 1, 0, 0]
    column = logs.schema.context[0]
    assert isinstance(column, NumericColumn)
    assert column.fill == 3.0
    assert logs.action.tolist() == [0, 1, -1, -1, 0]
    assert np.isnan(logs.reward).tolist() == [True, False, True, True, False]


def test_without_time_the_order_of_rows_is_kept() -> None:
    frame = trial()
    logs = Logs.from_frame(frame.drop(columns="visit"), instance="patient", action="drug", reward="gain")
    expected = np.concatenate([group["gain"] for _, group in frame.groupby("patient", sort=False)])
    np.testing.assert_array_equal(logs.reward, expected.astype(np.float32))
    assert logs.schema.time is None


@pytest.mark.parametrize(
    "times",
    [
        [3, 1, 2, 2, 1],
        [0.3, -0.1, 0.2, 1e300, -5.0],
        [datetime(2020, 3, 1), datetime(2020, 1, 1), datetime(2020, 2, 1), datetime(2021, 1, 2), datetime(2021, 1, 1)],
        [date(2020, 10, 1), date(2020, 9, 1), date(2020, 9, 30), date(2021, 10, 2), date(2021, 9, 1)],
        ["2020-10-01", "2020-09-01", "2020-09-30", "2021-01-01T10:00", "2021-01-01"],
        [timedelta(3), timedelta(1), timedelta(2), timedelta(2), timedelta(1)],
        [Decimal("3"), Decimal("1"), Decimal("2"), Decimal("2"), Decimal("1")],
        pd.to_datetime(["2020-03-01", "2020-01-01", "2020-02-01", "2020-02-01", "2020-01-01"], utc=True),
        pd.PeriodIndex(["2020-03", "2020-01", "2020-02", "2020-02", "2020-01"], freq="M"),
    ],
)
def test_any_kind_of_time_sorts_each_history(times: list[Any]) -> None:
    frame = pd.DataFrame({"who": [0, 0, 0, 1, 1], "t": times, "x": [1.0, 2, 3, 4, 5], "a": [0, 1, 0, 1, 0], "r": 0.0})
    logs = Logs.from_frame(frame, instance="who", time="t", action="a", reward="r")
    assert (logs.context[:, 0] * np.sqrt(2) + 3).round().tolist() == [2, 3, 1, 5, 4]


@pytest.mark.parametrize(
    "labels",
    [
        [3, 1, 2],
        [2**60 + 2, 2**60, 2**60 + 1],
        [0.5, -1.0, 2.0],
        ["c", "a", "b"],
        [b"c", b"a", b"b"],
        [date(2020, 1, 3), date(2020, 1, 1), date(2020, 1, 2)],
        [datetime(2020, 1, 3), datetime(2020, 1, 1), datetime(2020, 1, 2)],
        [timedelta(3), timedelta(1), timedelta(2)],
        [Decimal("3.5"), Decimal("1.5"), Decimal("2.5")],
        [UUID(int=3), UUID(int=1), UUID(int=2)],
        [(2, "b"), (1, "a"), (1, "b")],
    ],
)
@pytest.mark.parametrize("library", [pd.DataFrame, lambda data: pl.DataFrame(data, strict=False)])
def test_labels_of_any_hashable_type_are_given_back(labels: list[Any], library: Callable[[Any], Any]) -> None:
    if library is not pd.DataFrame and type(labels[0]) in (tuple, UUID):
        columns: dict[str, Any] = {name: pl.Series([*labels, *labels], dtype=pl.Object) for name in ("who", "did")}
    else:
        columns = {"who": [*labels, *labels], "did": [*labels, *labels]}
    frame = library({**columns, "x": [1.0, 2, 3, 4, 5, 6], "r": 0.0})
    logs = Logs.from_frame(frame, instance="who", action="did", reward="r")
    assert logs.instance_labels == tuple(labels)
    assert logs.schema.actions == tuple(sorted(labels))
    assert {type(label) for label in (*logs.instance_labels, *logs.schema.actions)} == {type(labels[0])}
    assert [logs.schema.actions[code] for code in logs.action] == [label for label in labels for _ in range(2)]
    assert [logs.schema.action_index(label) for label in sorted(labels)] == [0, 1, 2]


def test_labels_that_can_not_be_sorted_come_in_order_of_appearance() -> None:
    frame = pd.DataFrame({"who": [1, 2, 1, 2], "x": [1.0, 2, 3, 4], "did": ["b", 7, "a", 7], "r": 0.0})
    assert Logs.from_frame(frame, instance="who", action="did", reward="r").schema.actions == ("b", 7, "a")


def test_integers_that_pandas_made_floats_are_integers_again() -> None:
    frame = pd.DataFrame({"who": [1, 2, 1, 2], "x": [1.0, 2, 3, 4], "did": [1, 2, 1, None], "site": [5, None, 6, 5]})
    frame["r"] = [0.0, 1.0, 2.0, None]
    logs = Logs.from_frame(frame, instance="who", action="did", reward="r", categorical="site")
    assert [repr(label) for label in logs.schema.actions] == ["1", "2"]
    assert logs.action.tolist() == [0, 0, 1, -1]
    assert logs.schema.names == ("x", "site = 5", "site = 6", "site is missing")


def test_context_says_which_columns_and_in_which_order() -> None:
    logs = Logs.from_frame(trial(), **ROLES, context=["weight", "smoker"])
    assert logs.schema.names == ("weight", "smoker")
    assert Logs.from_frame(trial(), **ROLES, context="weight").schema.names == ("weight",)


def test_a_named_column_is_categorical_whatever_its_type() -> None:
    logs = Logs.from_frame(trial(), **ROLES, context=["weight", "smoker"], categorical=["smoker"])
    assert logs.schema.context[1] == CategoricalColumn("smoker", (False, True), flagged=False)
    assert logs.schema.names == ("weight", "smoker = False", "smoker = True")


def test_a_schema_is_applied_to_held_out_rows_without_learning() -> None:
    frame = trial()
    logs = Logs.from_frame(frame, **ROLES)
    held_out = frame[frame["patient"] == "p2"].assign(weight=1000, gain=None)
    with pytest.warns(UserWarning, match="lacks all"):
        part = Logs.from_frame(held_out, schema=logs.schema, instance="patient")
    assert part.schema is logs.schema
    assert part.instance_labels == ("p2",)
    np.testing.assert_array_equal(part.context, logs.schema.encode(held_out.sort_values("visit")))
    again = Logs.from_frame(frame[frame["patient"] == "p2"], schema=logs.schema)
    np.testing.assert_array_equal(again.context, logs.select([logs.instance_labels.index("p2")]).context)
    np.testing.assert_array_equal(again.action, logs.select([logs.instance_labels.index("p2")]).action)


def test_a_schema_refuses_actions_that_it_does_not_know() -> None:
    frame = trial()
    schema = Logs.from_frame(frame, **ROLES).schema
    with pytest.raises(SchemaError, match=r"column 'drug' has actions .* 'Z' \(2 rows\); known are 'A', 'B', 'C'"):
        Logs.from_frame(frame.assign(drug=["Z", "Z", *frame["drug"][2:]]), schema=schema)


def test_a_schema_refuses_other_names_and_other_columns() -> None:
    frame = trial()
    schema = Logs.from_frame(frame, **ROLES).schema
    with pytest.raises(SchemaError, match="reward='mmse', but the schema was made with reward='gain'"):
        Logs.from_frame(frame, schema=schema, reward="mmse")
    with pytest.raises(SchemaError, match="leave out context="):
        Logs.from_frame(frame, schema=schema, context=["mmse"])
    with pytest.raises(SchemaError, match="no column 'gain', 'weight'; its columns are 'patient'"):
        Logs.from_frame(frame.drop(columns=["weight", "gain"]), schema=schema)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_frame_made_from_logs_has_the_original_values(backend: str) -> None:
    frame = trial(seed=1)
    logs = Logs.from_frame(frame, **ROLES)
    made = logs.to_frame(backend)
    assert type(made).__module__.split(".")[0] == backend
    table = made if backend == "pandas" else made.to_pandas()
    expected = sorted_by_hand(frame)
    assert list(table.columns) == ["patient", "visit", "mmse", "sex", "smoker", "weight", "drug", "gain"]
    expected["visit"] = expected.groupby("code").cumcount()
    for name in ("patient", "visit", "sex", "drug"):
        assert table[name].isna().tolist() == expected[name].isna().tolist()
        assert table[name].dropna().tolist() == expected[name].dropna().tolist()
    for name in ("mmse", "smoker", "weight", "gain"):
        values = expected[name].astype(float)
        bound = 4 * values.std() * 2**-24  # float32 rounds what lies within 4 standard deviations by at most this
        np.testing.assert_allclose(table[name].astype(float), values, rtol=2**-24, atol=bound)


def test_missing_is_null_and_not_nan_in_polars() -> None:
    made = Logs.from_frame(trial(seed=1), **ROLES).to_frame("polars")
    for name in ("mmse", "sex", "drug", "gain"):
        assert made[name].null_count() == trial(seed=1)[name].isna().sum() > 0


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_logs_survive_a_round_trip_through_a_frame(backend: str) -> None:
    logs = Logs.from_frame(trial(seed=2), **ROLES)
    back = Logs.from_frame(logs.to_frame(backend), schema=logs.schema)
    assert back.instance_labels == logs.instance_labels
    for name in ("instance", "action", "reward", "starts"):
        np.testing.assert_array_equal(getattr(back, name), getattr(logs, name))
    np.testing.assert_allclose(back.context, logs.context, atol=1e-6)


def test_a_made_time_column_does_not_hide_a_context_column() -> None:
    frame = trial().rename(columns={"weight": "time"}).drop(columns="visit")
    logs = Logs.from_frame(frame, instance="patient", action="drug", reward="gain")
    made = logs.to_frame()
    assert made["time"].min() >= 49
    assert made.groupby("patient")["time_"].max().max() == logs.lengths.max() - 1


def test_a_library_that_is_not_there_is_named() -> None:
    with pytest.raises(LogsError, match=r"'abacus' can't hold column 'patient'.*'pandas', 'polars', 'pyarrow'"):
        Logs.from_frame(trial(), **ROLES).to_frame("abacus")


def test_arrays_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(0)
    context, action, reward = rng.normal(size=(4, 3, 2)), rng.integers(0, 3, (4, 3)), rng.normal(size=(4, 3))
    logs = Logs.from_arrays(context, action, reward, actions=7)
    np.testing.assert_array_equal(logs.context, context.reshape(12, 2).astype(np.float32))
    np.testing.assert_array_equal(logs.reward.reshape(4, 3), reward.astype(np.float32))
    np.testing.assert_array_equal(logs.action.reshape(4, 3), action)
    assert logs.instance.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert logs.instance_labels == (0, 1, 2, 3)
    assert (logs.actions, logs.schema.actions) == (7, (0, 1, 2, 3, 4, 5, 6))
    assert logs.schema.context[1] == NumericColumn("x2", 0.0, 1.0, np.median(context[..., 1]), False)
    np.testing.assert_array_equal(logs.schema.encode({"x1": 0.25, "x2": 4}), [0.25, 4])


def test_flat_arrays_give_the_same_logs_in_any_order_of_instances() -> None:
    rng = np.random.default_rng(0)
    context, action, reward = rng.normal(size=(4, 3, 2)), rng.integers(0, 3, (4, 3)), rng.normal(size=(4, 3))
    round_robin = np.arange(12).reshape(4, 3).T.reshape(-1)  # all first rows, then all second rows
    x, a, r = (array.reshape(12, *array.shape[2:])[round_robin] for array in (context, action, reward))
    logs = Logs.from_arrays(x, a, r, instance=np.repeat(np.arange(4), 3)[round_robin], actions=3)
    assert_same(logs, Logs.from_arrays(context, action, reward, actions=3))


def test_missing_values_of_arrays_are_filled_flagged_or_kept_missing() -> None:
    logs = Logs.from_arrays([[[1.0], [np.nan], [5.0]]], [[0, -1, np.nan]], [[1.0, np.nan, 3.0]], actions=["a", "b"])
    assert logs.context.tolist() == [[1, 0], [3, 1], [5, 0]]
    assert logs.action.tolist() == [0, -1, -1]
    assert np.isnan(logs.reward).tolist() == [False, True, False]
    assert logs.schema.actions == ("a", "b")


def test_instances_of_arrays_may_have_any_labels() -> None:
    logs = Logs.from_arrays(np.zeros((3, 1)), [0, 1, 0], np.ones(3), instance=[("b", 1), ("a", 2), ("b", 1)])
    assert logs.instance_labels == (("b", 1), ("a", 2))
    assert logs.action.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": np.zeros((6, 2))}, r"context has shape \(6, 2\); expected \[instances, times, columns\]"),
        ({"action": np.zeros((3, 1))}, r"action has shape \(3, 1\); expected \(3, 2\)"),
        ({"reward": np.zeros(6)}, r"reward has shape \(6,\); expected \(3, 2\)"),
        ({"instance": np.zeros(6)}, r"context has shape \(3, 2, 4\); expected \[rows, columns\]"),
        ({"action": np.full((3, 2), 0.5)}, r"action has 6 values that number no action, such as 0\.5"),
        ({"action": np.full((3, 2), -2)}, "expected 0 to K - 1"),
        ({"action": np.full((3, 2), np.inf)}, "number no action"),
        ({"action": [["a", "b"]] * 3}, "action can't be read as numbers.*Logs.from_frame"),
        ({"actions": 1, "action": np.ones((3, 2))}, "action holds 1, but actions= says that there are 1"),
        ({"actions": ["a", "a"]}, "the same label twice"),
        ({"context": np.full((3, 2, 4), np.inf)}, "column 'x1' has 6 infinite values"),
        ({"context": np.full((3, 2, 4), np.nan)}, "column 'x1' is NaN in all 6 rows"),
        ({"reward": np.full((3, 2), -np.inf)}, "column 'reward' has 6 infinite values"),
        ({"context": np.zeros((0, 2, 4)), "action": np.zeros((0, 2)), "reward": np.zeros((0, 2))}, "at least one row"),
        ({"context": np.zeros((2, 4)), "action": [0, 0], "reward": [0, 0], "instance": [1, None]}, "missing in 1 row"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    arrays = {"context": np.zeros((3, 2, 4)), "action": np.zeros((3, 2)), "reward": np.zeros((3, 2))}
    with pytest.raises(LogsError, match=message):
        Logs.from_arrays(**(arrays | change))


# Logs that were read by themselves, for a model of other logs


def visits(seed: int, *, sites: str = "abc", drugs: str = "xyz", shift: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = 60
    age = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(50 + shift, 10, rows))
    return pd.DataFrame(
        {
            "patient": np.repeat(np.arange(12), 5),
            "visit": np.tile(np.arange(5.0), 12),
            "age": age,
            "site": rng.choice(list(sites), rows),
            "drug": rng.choice(list(drugs), rows),
            "gain": rng.normal(size=rows),
        }
    )


@pytest.mark.parametrize("clocked", [False, True])
def test_logs_read_by_themselves_are_read_again_as_a_schema_says(clocked: bool) -> None:
    learned = Logs.from_frame(visits(0), **ROLES)
    schema = (learned.with_clock() if clocked else learned).schema
    table = visits(1, sites="bd", drugs="zx", shift=20)
    with pytest.warns(LogsWarning, match="'d'"):
        right = Logs.from_frame(table, schema=schema)
    alone = Logs.from_frame(table, **ROLES)
    assert alone.width != learned.width
    with pytest.warns(LogsWarning, match="'d'"):
        again = alone.read_as(schema)
    assert again.schema == schema
    np.testing.assert_allclose(again.context, right.context, atol=1e-5)
    np.testing.assert_array_equal(again.action, right.action)
    np.testing.assert_array_equal(again.reward, right.reward)
    assert learned.read_as(learned.schema) is learned


@pytest.mark.filterwarnings("ignore::ilb.errors.RareActionWarning")
def test_a_model_means_the_same_by_logs_however_they_were_read() -> None:
    model = complete_model(IdentityEncoder(), Logs.from_frame(visits(0), **ROLES))
    table = visits(1, shift=30)
    assert model.schema is not None
    right, alone = Logs.from_frame(table, schema=model.schema), Logs.from_frame(table, **ROLES)
    expected, found = predict_ahead(model, right), predict_ahead(model, alone)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4)
    scores = [score_model(model, logs).reward_r2.value for logs in (alone, right)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)


def test_what_a_schema_does_not_know_is_refused_when_logs_are_read_again() -> None:
    schema = Logs.from_frame(visits(0), **ROLES).schema
    with pytest.raises(SchemaError, match=r"'drug' has actions that the schema does not know: 'w' \(\d+ rows\)"):
        Logs.from_frame(visits(1, drugs="xw"), **ROLES).read_as(schema)
    with pytest.raises(SchemaError, match="no column 'age'"):
        Logs.from_frame(visits(1).drop(columns="age"), **ROLES).read_as(schema)
    # An action that nobody took is no reason.
    unused = Logs.from_arrays(np.zeros((2, 2, 0)), [[0, 1]] * 2, [[0.0, 1.0]] * 2, actions=["x", "y", "w"])
    assert unused.read_as(replace(schema, context=(), time=None)).action.tolist() == [0, 1, 0, 1]
