"""The time column as numbers, and as one more context column."""

import json
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilb.errors import IlbWarning, LogsError, LogsWarning, SchemaError
from ilb.live.bandit import LiveBandit
from ilb.logs import ClockColumn, Logs, Schema
from ilb.models.baselines import Ingredients
from ilb.online.roster import build_policy

ROLES: dict[str, Any] = {"instance": "who", "time": "when", "action": "did", "reward": "got"}
DAY = 18262.0  # of 2020-01-01: 50 years of 365 days, and 12 leap days


def visits(when: Any = (3.5, 1.0, 2.0, 7.0)) -> pd.DataFrame:
    columns = {"who": ["a", "a", "b", "b"], "when": when, "x": [1.0, 2.0, 3.0, 5.0], "did": [0, 1, 0, 1], "got": 0.5}
    return pd.DataFrame(columns)


def clocked() -> Logs:
    return Logs.from_frame(visits(), **ROLES).with_clock()


def clock_of(frame: Any) -> list[float] | None:
    clock = Logs.from_frame(frame, **ROLES).clock
    assert clock is None or clock.dtype == np.float64
    return None if clock is None else clock.tolist()


LIBRARIES = [
    pd.DataFrame,
    pl.from_pandas,
    pa.Table.from_pandas,
    lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
]
EAST = timezone(timedelta(hours=6))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ([3, 1, 2, 7], [1, 3, 2, 7]),
        ([3.5, -1.25, 2.0, 1e12], [-1.25, 3.5, 2, 1e12]),
        ([date(2020, 1, 3), date(2020, 1, 1), date(1969, 12, 31), date(2020, 1, 2)], [DAY, DAY + 2, -1, DAY + 1]),
        (
            [datetime(2020, 1, 3, 12), datetime(2020, 1, 1, 6), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 27)],
            [DAY + 0.25, DAY + 2.5, 0, 27 / 86400],
        ),
        (
            [datetime(2020, 1, 3, 3, tzinfo=EAST), datetime(2020, 1, 2, 18, tzinfo=EAST)] * 2,
            [DAY + 1.5, DAY + 1.875] * 2,
        ),
        (["2020-01-03", "2020-01-01T18:00", "2020-01-02", "2020-01-04"], [DAY + 0.75, DAY + 2, DAY + 1, DAY + 3]),
        (["03.01.2020", "1.1.2020 18:00", "2.1.2020", "2020-01-04"], [DAY + 0.75, DAY + 2, DAY + 1, DAY + 3]),
        (["2020-01-03T00:00Z", "2020-01-02T03:00+06:00"] * 2, [DAY + 0.875, DAY + 2] * 2),
    ],
)
def test_times_are_numbers_and_dates_are_days_since_1970(
    library: Callable[[Any], Any], when: list[Any], expected: list[float]
) -> None:
    assert clock_of(library(visits(when))) == expected


def test_decimals_are_numbers_too() -> None:
    assert clock_of(visits([Decimal("3.5"), Decimal(1), Decimal(2), Decimal(7)])) == [1, 3.5, 2, 7]


@pytest.mark.parametrize(
    "when", [[timedelta(1), timedelta(2)] * 2, pd.PeriodIndex(["2020-01", "2020-02"] * 2, freq="M")]
)
def test_times_that_are_neither_numbers_nor_dates_are_no_clock(when: Any) -> None:
    logs = Logs.from_frame(visits(when), **ROLES)
    assert logs.clock is None
    with pytest.raises(LogsError, match="a time column 'when' without numbers or dates in all rows"):
        logs.with_clock()


def test_without_a_time_column_there_is_no_clock() -> None:
    logs = Logs.from_frame(visits(), **(ROLES | {"time": None}), drop="when")
    assert logs.clock is None
    with pytest.raises(LogsError, match=r"no time column, so time can't be context\. Name a column"):
        logs.with_clock()


def test_arrays_may_come_with_their_times_and_keep_their_order() -> None:
    context, action, reward = np.arange(8.0).reshape(2, 2, 2), [[0, 1], [1, 0]], [[0.0, 1.0], [2.0, 3.0]]
    assert Logs.from_arrays(context, action, reward).clock is None
    logs = Logs.from_arrays(context, action, reward, time=[[9, 3], [2, 5]])
    assert logs.clock is not None
    assert (logs.clock.tolist(), logs.reward.tolist()) == ([9, 3, 2, 5], [0, 1, 2, 3])
    flat = Logs.from_arrays(np.zeros((4, 1)), [0] * 4, range(4), instance=list("uvuv"), time=[4, 3, 2, 1])
    assert flat.clock is not None
    assert (flat.instance_labels, flat.clock.tolist()) == (("u", "v"), [4, 2, 3, 1])
    days = np.array([["2020-01-01", "2020-01-02"]] * 2, dtype="datetime64[D]")
    dated = Logs.from_arrays(context, action, reward, time=days).clock
    assert dated is not None
    assert dated.tolist() == [DAY, DAY + 1] * 2
    assert Logs.from_arrays(context, action, reward, time=np.array([[9, np.nan], [2, 5]])).clock is None
    with pytest.raises(LogsError, match=r"time has shape \(2,\); expected \(2, 2\)"):
        Logs.from_arrays(context, action, reward, time=[1, 2])


def test_the_clock_of_arrays_has_a_name_of_its_own() -> None:
    grid = np.arange(4.0).reshape(2, 2)
    logs = Logs.from_arrays(grid[:, :, None], grid % 2, grid, names=["time"], time=grid).with_clock()
    assert logs.schema.names == ("time", "time_")
    frame = logs.to_frame()
    assert frame["time_"].tolist() == frame["time"].tolist() == [0, 1, 2, 3]


def test_the_clock_is_the_last_context_column_and_scaled() -> None:
    logs = Logs.from_frame(visits(), **ROLES)
    both = logs.with_clock()
    assert (logs.schema.clocked, both.schema.clocked) == (False, True)
    assert both.schema.names == ("x", "when")
    times = np.array([1.0, 3.5, 2.0, 7.0])
    np.testing.assert_allclose(both.context[:, 1], (times - times.mean()) / times.std(), rtol=1e-6)
    np.testing.assert_array_equal(both.context[:, :1], logs.context)
    assert both.context.dtype == np.float32
    assert both.with_clock() is both
    assert both.describe().context_columns == 2
    means, stds = both.schema.numeric_scaling()
    np.testing.assert_allclose([means[1], stds[1]], [times.mean(), times.std()], rtol=1e-6)


def test_the_scale_of_the_clock_is_that_of_the_rows_it_is_added_to() -> None:
    late = Logs.from_frame(visits(), **ROLES).select([1]).with_clock()
    assert late.schema.context[-1] == ClockColumn("when", mean=4.5, std=2.5)
    still = Logs.from_frame(visits([2, 2.5, 2, 2.5]), **ROLES).split_time(0.5)[0].with_clock()
    assert still.schema.context[-1] == ClockColumn("when", mean=2.0, std=1.0)


def test_the_clock_goes_with_its_rows() -> None:
    logs = Logs.from_frame(visits(), **ROLES)

    def clock(part: Logs) -> list[float]:
        assert part.clock is not None
        return list(part.clock.tolist())

    assert clock(logs.select([1, 0, 1])) == [2, 7, 1, 3.5, 2, 7]
    assert [clock(part) for part in logs.split_time(0.5)] == [[1, 2], [3.5, 7]]
    assert sorted(clock(part) for part in logs.split_instances((0.5, 0.5), seed=0)) == [[1, 3.5], [2, 7]]
    assert clock(logs.without("x")) == clock(logs)
    both = logs.with_clock()
    bare = both.without("when")
    assert (bare.schema, bare.schema.clocked, clock(bare)) == (logs.schema, False, clock(logs))
    np.testing.assert_array_equal(bare.context, logs.context)
    alone = both.without("x")
    assert (alone.schema.names, alone.schema.clocked) == (("when",), True)


def test_time_alone_may_be_context() -> None:
    logs = Logs.from_frame(visits(), **ROLES, context=()).with_clock()
    assert (logs.width, logs.schema.names) == (1, ("when",))


def test_times_beyond_all_bounds_are_no_context() -> None:
    for time in (np.inf, 1e300):
        with pytest.raises(LogsError, match="column 'when' has 1 infinite value"):
            Logs.from_frame(visits([1.0, 2.0, 3.0, time]), **ROLES).with_clock()


MOMENTS = [
    DAY + 1.5,
    datetime(2020, 1, 2, 12),
    datetime(2020, 1, 2, 12, tzinfo=UTC),
    datetime(2020, 1, 2, 18, tzinfo=EAST),
    pd.Timestamp("2020-01-02T12:00"),
    pd.Timestamp("2020-01-02T18:00+06:00"),
    np.datetime64("2020-01-02T12"),
    np.datetime64("2020-01-02T12:00:00.000000000"),
    np.array("2020-01-02T12", dtype="datetime64[ns]"),
    "2020-01-02T12:00",
    "2020-01-02T12:00:00Z",
    "2.1.2020 12:00:00",
    Decimal("18263.5"),
    np.float64(DAY + 1.5),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{type(moment).__name__} {moment}")
def test_a_moment_may_be_given_in_any_way(moment: Any) -> None:
    schema = Schema("who", "when", "did", "got", (ClockColumn("when", DAY, 0.5),), (0, 1))
    assert schema.encode({"when": moment}).tolist() == [3.0]
    assert schema.encode([{"when": moment}, {"when": DAY}]).tolist() == [[3.0], [0.0]]
    assert schema.encode(pd.DataFrame({"when": [moment]})).tolist() == [[3.0]]


def test_a_day_is_its_midnight() -> None:
    column = ClockColumn("when", DAY, 1.0)
    days = [
        date(2020, 1, 2),
        np.datetime64("2020-01-02"),
        "2020-01-02",
        np.datetime64("2020-02"),
        np.datetime64("2021"),
    ]
    assert column.encode(days)[:, 0].tolist() == [1, 1, 1, 31, 366]


ABSENT: list[Callable[[dict[str, Any]], Any]] = [
    lambda row: row,
    lambda row: [row, row, row],
    lambda row: pd.DataFrame([row] * 3),
    lambda row: pl.DataFrame([row] * 3),
]


@pytest.mark.parametrize("shape", ABSENT)
@pytest.mark.parametrize("missing", [{}, {"when": None}, {"when": float("nan")}, {"when": pd.NaT}])
def test_a_time_that_is_not_given_is_the_average_with_one_warning(
    shape: Callable[[dict[str, Any]], Any], missing: dict[str, Any]
) -> None:
    schema = clocked().schema
    if missing.get("when") is pd.NaT and shape is ABSENT[-1]:
        missing = {"when": None}  # polars has no NaT
    rows = shape({"x": 1.0, **missing})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = schema.encode(rows)
    assert [(item.category, item.filename) for item in caught] == [(LogsWarning, __file__)]
    assert issubclass(LogsWarning, IlbWarning)
    count = "1 row" if isinstance(rows, dict) else "3 rows"
    assert f"column 'when' lacks the time in {count}, where one was expected; its average" in str(caught[0].message)
    assert np.atleast_2d(found)[:, 1].tolist() == [0.0] * (1 if isinstance(rows, dict) else 3)


def test_other_columns_are_still_needed() -> None:
    schema = clocked().schema
    for rows in ({"when": 1}, [{"when": 1}], pd.DataFrame({"when": [1]})):
        with pytest.raises(SchemaError, match="'x'"):
            schema.encode(rows)


def test_times_far_from_all_that_was_seen_are_no_error() -> None:
    schema = clocked().schema
    for far in (1e9, -1e30, 1e300, "9999-12-31", datetime(1, 1, 1, tzinfo=EAST)):
        one, many = schema.encode({"x": 1.0, "when": far}), schema.encode([{"x": 1.0, "when": far}])
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, many[0])


@pytest.mark.parametrize("wrong", ["soon", timedelta(3), [1], np.array([1.0, 2.0]), 3j])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    for rows in ({"x": 1.0, "when": wrong}, [{"x": 1.0, "when": wrong}]):
        with pytest.raises(
            LogsError, match=r"column 'when' has 1 value of type .*; expected times: numbers, dates or ISO"
        ):
            clocked().schema.encode(rows)


@pytest.mark.parametrize("infinite", [np.inf, -np.inf, 10**400])
def test_an_infinite_time_is_refused(infinite: float) -> None:
    for rows in ({"x": 1.0, "when": infinite}, [{"x": 1.0, "when": infinite}]):
        with pytest.raises(LogsError, match="column 'when' has 1 infinite value"):
            clocked().schema.encode(rows)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_a_frame_has_the_time_once_with_its_values(backend: str) -> None:
    logs = clocked()
    frame = pd.DataFrame(pa.table(logs.to_frame(backend)).to_pydict())
    assert frame.columns.tolist() == ["who", "when", "x", "did", "got"]
    assert frame["when"].tolist() == [1, 3.5, 2, 7]
    plain = Logs.from_frame(visits(), **ROLES).to_frame("pyarrow")
    assert plain["when"].to_pylist() == [0, 1, 0, 1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_logs_with_dates_survive_a_file(tmp_path: Path, suffix: str) -> None:
    when = pd.to_datetime(["2020-01-03T07:13:11.123456", "2020-01-01", "2020-01-02", "2021-05-05"], format="ISO8601")
    logs = Logs.from_frame(visits(when), **ROLES).with_clock()
    logs.write(tmp_path / f"logs{suffix}")
    for back in (
        Logs.from_frame(tmp_path / f"logs{suffix}", schema=logs.schema),
        Logs.from_frame(visits(when), schema=logs.schema),
    ):
        np.testing.assert_array_equal(back.context[:, 1], logs.context[:, 1])
        np.testing.assert_allclose(back.context, logs.context, rtol=1e-6)
        assert back.clock is not None
        np.testing.assert_array_equal(back.clock, logs.clock)


def test_a_table_read_as_a_schema_says_needs_its_times() -> None:
    schema = clocked().schema
    with pytest.raises(SchemaError, match="no column 'when'"):
        Logs.from_frame(visits().drop(columns="when"), schema=schema)
    with pytest.raises(LogsError, match="column 'when' lacks the time in 1 row"):
        Logs.from_frame(visits([1.0, None, 2.0, 3.0]), schema=schema)


moments = st.one_of(
    # Clocks have a finest step.
    st.lists(st.floats(-1e6, 1e6).map(lambda time: round(time, 9)), min_size=4, max_size=4),
    st.lists(st.integers(-(10**6), 10**6), min_size=4, max_size=4),
    st.lists(st.dates(date(1700, 1, 1), date(2250, 1, 1)), min_size=4, max_size=4),
    st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1)), min_size=4, max_size=4),
    st.lists(
        st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1), timezones=st.sampled_from([UTC, EAST])).map(
            datetime.isoformat
        ),
        min_size=4,
        max_size=4,
    ),
)


@settings(deadline=None, max_examples=80)
@given(moments)
@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")  # equal times
def test_clocked_logs_survive_frames_json_and_single_rows(when: list[Any]) -> None:
    table = pl.DataFrame({**visits().drop(columns="when").to_dict("list"), "when": when})
    logs = Logs.from_frame(table, **ROLES).with_clock()
    assert logs.clock is not None
    schema = Schema.from_json(json.loads(json.dumps(logs.schema.to_json(), allow_nan=False)))
    assert schema == logs.schema
    assert schema.clocked
    for frame in (table, table.to_pandas(), logs.to_frame("polars")):
        back = Logs.from_frame(frame, schema=schema)
        np.testing.assert_array_equal(back.clock, logs.clock)
        np.testing.assert_array_equal(back.context[:, 1], logs.context[:, 1])
    one_by_one = np.stack([schema.encode(row) for row in table.to_dicts()])
    np.testing.assert_array_equal(one_by_one, schema.encode(table))
    np.testing.assert_array_equal(one_by_one, schema.encode(table.to_dicts()))
    column = schema.context[-1]
    np.testing.assert_allclose(
        column.decode(logs.context[:, 1:]), logs.clock, rtol=1e-6, atol=1e-5 * np.ptp(logs.clock)
    )


def test_live_decisions_take_the_time_or_do_without() -> None:
    policy = build_policy(Ingredients(actions=2, context_dim=2, reward_variance=1.0), "LinUCB")
    anna = LiveBandit(policy, clocked().schema).start("anna")
    decision = anna.decide({"x": 1.0, "when": 4})
    anna.learn(decision, reward=1.0)
    mean = clocked().schema.numeric_scaling()[0][1]
    expected = anna.decide({"x": 2.0, "when": mean})
    with pytest.warns(IlbWarning, match="column 'when' lacks the time in 1 row"):
        found = anna.decide({"x": 2.0})
    assert found.expected_reward == pytest.approx(expected.expected_reward)
    later = anna.decide({"x": 2.0, "when": 9.0})
    assert later.expected_reward != pytest.approx(expected.expected_reward)
