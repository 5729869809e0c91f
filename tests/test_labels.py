import enum
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilb.errors import LogsError
from ilb.logs.labels import as_label, decode_label, encode_label, is_missing

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))])),
    st.datetimes(timezones=st.just(ZoneInfo("Europe/Stockholm"))),
    st.dates(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
labels = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=8,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal type all the way down: 1, 1.0 and True are not the same."""
    return one == other and form(one) == form(other)


def form(label: Any) -> tuple[str, Any]:
    if isinstance(label, tuple):
        return ("tuple", [form(item) for item in label])
    if isinstance(label, frozenset):
        return ("frozenset", sorted((form(item) for item in label), key=repr))
    return (type(label).__name__, repr(label))


@settings(deadline=None, max_examples=300)
@given(labels)
def test_a_label_survives_json_with_its_type(label: Any) -> None:
    text = json.dumps(encode_label(label), allow_nan=False)
    assert same(decode_label(json.loads(text)), label)


def test_equal_sets_give_the_same_json_whatever_their_history() -> None:
    one = frozenset([8, 0, "a", "b"])
    other = frozenset(["b", "a", 0, 8])
    assert json.dumps(encode_label(one)) == json.dumps(encode_label(other))


def test_floats_that_json_does_not_know_survive() -> None:
    for label in (float("inf"), float("-inf"), -0.0):
        assert repr(decode_label(json.loads(json.dumps(encode_label(label), allow_nan=False)))) == repr(label)
    missing = decode_label(encode_label(float("nan")))
    assert isinstance(missing, float)
    assert np.isnan(missing)


def test_the_fold_of_a_repeated_hour_survives() -> None:
    label = datetime(2023, 10, 29, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Stockholm"))
    back = decode_label(encode_label(label))
    assert isinstance(back, datetime)
    assert back.fold == 1
    assert back.utcoffset() == label.utcoffset() == timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (np.int64(3), 3),
        (np.uint8(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.datetime64("2020-01-02"), date(2020, 1, 2)),
        (np.datetime64("2020-01-02T03:04:05.000006000", "ns"), datetime(2020, 1, 2, 3, 4, 5, 6)),
        (np.timedelta64(1_000_000, "ns"), timedelta(milliseconds=1)),
        (pd.Timestamp("2020-01-02 03:04", tz="UTC"), datetime(2020, 1, 2, 3, 4, tzinfo=UTC)),
        (pd.Timedelta("1h"), timedelta(hours=1)),
        ((np.int64(1), frozenset([np.str_("a")])), (1, frozenset(["a"]))),
    ],
)
def test_numpy_and_pandas_scalars_become_python_objects(value: Any, label: Any) -> None:
    assert same(as_label(value), label)
    assert same(decode_label(encode_label(value)), label)


def test_times_finer_than_a_microsecond_are_not_rounded() -> None:
    for fine in (pd.Timestamp("2020-01-01T00:00:00.000000001"), np.datetime64(1, "ns"), pd.Timedelta(1, "ns")):
        assert as_label(fine) is fine


@pytest.mark.parametrize("value", [None, float("nan"), np.nan, np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT")])
def test_all_ways_to_say_missing_are_understood(value: Any) -> None:
    assert is_missing(value)
    assert as_label(value) is None or np.isnan(value)


@pytest.mark.parametrize("value", [0, 0.0, False, "", b"", (), "nan", Decimal(0), UUID(int=0)])
def test_empty_values_are_not_missing(value: Any) -> None:
    assert not is_missing(value)


class Drug(enum.Enum):
    A = 1


def test_a_label_that_can_not_be_saved_says_what_can() -> None:
    with pytest.raises(LogsError, match=r"'Drug' can't be saved; expected str, bool, None, int.*UUID.*str\(\)"):
        encode_label((1, Drug.A))


@pytest.mark.parametrize("saved", [{"float": "x"}, {"pickle": "x"}, {}, {"a": 1, "b": 2}, [1], {"tuple": 3}, 1.5])
def test_what_is_no_saved_label_is_refused(saved: Any) -> None:
    with pytest.raises(LogsError, match="not a saved label"):
        decode_label(saved)
