import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ilb.errors import IdentifiabilityWarning, LogsError, LogsWarning
from ilb.logs import Logs

ROLES: dict[str, Any] = {"instance": "who", "time": "when", "action": "did", "reward": "got"}


def table(instances: int = 10, visits: int = 4, **changes: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = instances * visits
    columns = {
        "who": np.repeat(np.arange(instances), visits),
        "when": np.tile(np.arange(visits), instances),
        "x": rng.normal(size=rows),
        "sex": rng.choice(["F", "M"], rows),
        "did": np.arange(rows) % 2,
        "got": rng.normal(size=rows),
    }
    return pd.DataFrame(columns | changes)


def replaced(name: str, positions: Any, value: Any) -> pd.DataFrame:
    column = table()[name].tolist()
    for position in positions:
        column[position] = value
    return table(**{name: column})


def refused(frame: Any, message: str, **roles: Any) -> None:
    with pytest.raises(LogsError, match=message):
        Logs.from_frame(frame, **(ROLES | roles))


def warned(frame: Any, message: str, category: type[Warning] = LogsWarning, **roles: Any) -> Logs:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logs = Logs.from_frame(frame, **(ROLES | roles))
    assert [(item.category, item.filename) for item in caught] == [(category, __file__)]
    assert re.search(message, str(caught[0].message))
    return logs


def test_dropped_columns_are_no_context() -> None:
    assert Logs.from_frame(table(), **ROLES, drop="sex").schema.names == ("x",)
    assert Logs.from_frame(table(), **ROLES, drop=("x",)).schema.names == ("sex = F", "sex = M")


def test_what_can_not_be_dropped_is_named() -> None:
    refused(table(), r"no column 'agee'", drop=["agee"])
    refused(table(), r"drop= names action='did'; expected context columns", drop=["x", "did"])
    refused(table(), r"context= says which columns are kept, and drop= which are not: 'sex'", context=["x"], drop="sex")
    schema = Logs.from_frame(table(), **ROLES).schema
    with pytest.raises(LogsError, match=r"schema= says which columns are context; leave out .* and drop="):
        Logs.from_frame(table(), schema=schema, drop="x")


def test_logs_without_a_column_are_those_of_a_table_without_it() -> None:
    frame = table(y=np.arange(40) % 7)
    whole = Logs.from_frame(frame, **ROLES)
    for dropped in ("sex", ["x", "y"], ["x", "y", "sex"]):
        expected = Logs.from_frame(frame, **ROLES, drop=dropped)
        found = whole.without(dropped)
        assert found.schema == expected.schema
        np.testing.assert_array_equal(found.context, expected.context)
        np.testing.assert_array_equal(found.reward, expected.reward)
    with pytest.raises(LogsError, match="no column 'z'"):
        whole.without("z")


def test_a_clean_table_gives_no_warning() -> None:
    assert Logs.from_frame(table(), **ROLES).rows == 40


def test_a_missing_column_is_named_with_the_ones_there_are() -> None:
    message = r"no column 'whom'; its columns are 'who', 'when', 'x', 'sex', 'did', 'got'\. Did you mean 'who'\?"
    refused(table(), message, instance="whom")
    refused(table(), "no column 'y'", context=["x", "y"])


def test_roles_must_be_named() -> None:
    with pytest.raises(LogsError, match="no column is named for action= and reward=; the table has 'who'"):
        Logs.from_frame(table(), instance="who")


def test_a_column_has_one_role() -> None:
    refused(table(), r"column 'did' is used 2 times: action= and reward=; expected one role", reward="did")
    refused(table(), r"column 'who' is used 2 times: instance= and context=", context=["x", "who"])
    refused(table(), r"column 'x' is used 2 times: context= and context=", context=["x", "x"])


def test_a_categorical_column_must_be_context() -> None:
    refused(table(), r"categorical= names 'sexe', which is no context column; those are 'x', 'sex'", categorical="sexe")
    refused(table(), "categorical= names 'did'", categorical=["did"])


def test_duplicated_column_names_are_refused() -> None:
    names = ["who", "when", "x", "x", "did", "got"]
    for doubled in (table().set_axis(names, axis=1), pa.Table.from_pandas(table()).rename_columns(names)):
        refused(doubled, r"column names must differ.*'x' 2 times\. Rename")


def test_column_names_must_be_text() -> None:
    refused(table().rename(columns={"x": 7}), r"1 column names are not text: 7; expected text\. Rename")


def test_what_is_no_table_is_refused() -> None:
    refused({"who": [1]}, r"can't read a table from 'dict'; expected a pandas, polars or pyarrow frame, or the path")


def test_an_empty_table_is_refused() -> None:
    refused(table().iloc[:0], "the table has no rows, only the columns 'who'")


def test_a_single_instance_is_refused() -> None:
    refused(table(who=3), r"column 'who' has a single instance, 3, in all 40 rows; expected at least 2.*Add")


def test_missing_instances_are_counted() -> None:
    refused(replaced("who", [1, 2], None), r"column 'who' lacks the instance in 2 rows; expected a label.*Drop")


@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas])
def test_missing_times_are_counted(library: Callable[[Any], Any], missing: float | None) -> None:
    refused(library(replaced("when", [1, 2], missing)), r"column 'when' lacks the time in 2 rows; expected.*leave out")


def test_missing_dates_are_counted() -> None:
    dates = pd.date_range("2020", periods=40).to_series(index=range(40)).mask(lambda day: day.dt.day == 1)
    refused(table(when=dates), r"column 'when' lacks the time in 2 rows")


def test_times_without_an_order_are_refused() -> None:
    refused(
        table(when=["1/2/2020", "12/31/2019"] * 20), r"such as '1/2/2020' that have no order; expected numbers, dates"
    )
    refused(table(when=[1, "2020-01-01"] * 20), "have no order")
    refused(table(when=["2020-01-01", "20xx-01-02"] * 20), "such as '20xx-01-02' that have no order")


def test_duplicate_times_are_counted_and_keep_the_order_of_the_table() -> None:
    logs = warned(replaced("when", [1, 2], 0), r"column 'when' has 3 rows that share their time.*order of the table")
    np.testing.assert_array_equal(logs.reward, table()["got"].astype(np.float32))


def test_the_same_time_in_two_instances_is_no_duplicate() -> None:
    frame = table(instances=3, visits=2, when=[0, 1, 1, 2, 2, 3])
    assert Logs.from_frame(frame, **ROLES, context=["x"]).rows == 6


@pytest.mark.parametrize("name", ["x", "got"])
def test_infinite_values_are_counted(name: str) -> None:
    refused(replaced(name, [0, 5], float("-inf")), rf"column '{name}' has 2 infinite values .*expected finite.*Replace")


def test_a_reward_must_be_a_number() -> None:
    refused(
        table(got="good"), r"column 'got' has 40 values of type 'str', such as 'good'; expected numbers\. .*success"
    )
    refused(table(got=pd.Timestamp("2020-01-01")), "column 'got' has 40 values .*expected numbers")


def test_a_boolean_reward_is_a_number() -> None:
    logs = Logs.from_frame(table(got=np.arange(40) % 3 == 0), **ROLES)
    assert logs.reward.tolist() == [1.0, 0.0, 0.0] * 13 + [1.0]


def test_logs_without_any_reward_are_for_the_encoder_only() -> None:
    logs = warned(table(got=np.nan), r"column 'got' lacks all 40 rewards: .*not the reward model")
    assert np.isnan(logs.reward).all()


def test_rewards_without_an_action_are_counted() -> None:
    logs = warned(replaced("did", [3, 4, 5], None), r"column 'did' lacks the action in 3 rows that have a reward")
    assert np.flatnonzero(logs.action < 0).tolist() == [3, 4, 5]
    assert not np.isnan(logs.reward).any()


def test_an_action_without_a_reward_is_no_cause_for_a_warning() -> None:
    logs = Logs.from_frame(replaced("got", [3, 4], None), **ROLES)
    assert np.flatnonzero(np.isnan(logs.reward)).tolist() == [3, 4]
    assert (logs.action >= 0).all()


def test_an_action_that_was_never_rewarded_is_named() -> None:
    frame = replaced("did", [3, 4], 7)
    frame.loc[[3, 4], "got"] = None
    logs = warned(frame, r"1 action of column 'did' without any reward in 'got': 7 \(2 rows\)")
    assert logs.schema.actions == (0, 1, 7)


def test_one_action_leaves_nothing_to_decide() -> None:
    refused(table(did="a"), r"column 'did' has only the action 'a' in 40 rows; expected at least 2.*nothing to decide")


def test_logs_without_any_action_are_refused() -> None:
    refused(table(did=None), "column 'did' has no action at all in 40 rows")


def test_a_context_column_without_any_value_is_refused() -> None:
    for nothing in (np.nan, None, pd.NaT):
        refused(table(x=nothing), r"column 'x' is missing in all 40 rows; expected some values\. Leave it out")
    refused(pl.from_pandas(table()).with_columns(x=pl.lit(None)), "column 'x' is missing in all 40 rows")


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_dates_in_the_context_are_refused_with_the_way_out(library: Callable[[Any], Any]) -> None:
    for moment in (pd.Timestamp("2020-01-01"), pd.Timedelta("1h"), pd.Timestamp("2020-01-01").date()):
        refused(library(table(x=moment)), r"column 'x' has 40 values .*expected numbers\. .*days since a start date")


def test_text_with_many_values_is_refused() -> None:
    frame = table(instances=30, visits=4, sex=[f"note {n}" for n in range(120)])
    refused(frame, r"column 'sex' has 120 different values, such as 'note 0', .*at most 100.*identifier: drop it")


def test_a_hundred_categories_are_not_too_many() -> None:
    frame = table(instances=50, visits=4, sex=[f"note {n % 100}" for n in range(200)])
    assert Logs.from_frame(frame, **ROLES).width == 101


def test_mixed_text_and_numbers_are_refused() -> None:
    refused(replaced("x", [3, 9], "high"), r"column 'x' has 2 values of type 'str', such as 'high'; .*categorical=")


def test_lists_in_the_context_are_refused() -> None:
    refused(pl.from_pandas(table()).with_columns(x=pl.lit([1.0, 2.0])), r"column 'x' has 40 values of type 'list'")
    refused(table(did=[[1]] * 40), r"column 'did' has labels of type 'list', such as \[1\]; expected labels that can")


def test_a_constant_column_is_kept_at_zero() -> None:
    logs = warned(
        table(x=0.1), r"column 'x' has the same value in all 40 rows that have one.*kept; leave it out with drop="
    )
    assert (logs.context[:, 0] == 0).all()
    warned(table(sex="F"), "column 'sex' has the same value in all 40 rows")


def test_the_age_of_the_paper_identifies_the_instance() -> None:
    age = np.repeat(60.0 + np.arange(10), 4)
    message = (
        r"column 'x' never changes within an instance and has 10 distinct values for 10 instances, so it identifies "
        r"them: an encoder, which learns by telling instances apart, may learn nothing else "
        r"\(the paper's Age variable\)\. "
        r"fit\(\) compares ways to read contexts by held-out rewards; an encoder that you name \(recipe=, --recipe\) "
        r"is not compared with doing without\. To leave it out: drop=\('x',\) in Logs\.from_frame, "
        r"`ilb fit --drop x`, or logs\.without\(\['x'\]\)\.$"
    )
    warned(table(x=age), message, IdentifiabilityWarning)
    warned(table(sex=[f"site {n}" for n in np.repeat(np.arange(10), 4)]), "column 'sex' never", IdentifiabilityWarning)


def test_an_identifying_column_is_found_beside_missing_values_and_short_histories() -> None:
    age = np.repeat(60.0 + np.arange(10), 4)
    age[[1, 6, 7]] = np.nan
    frame = table(x=age).drop(index=[1, 2, 3])  # the first instance has one row
    warned(frame, "column 'x' never changes", IdentifiabilityWarning)


def test_a_column_that_hardly_changes_identifies_the_instance() -> None:
    age = np.repeat(60.0 + np.arange(10), 4) + np.tile(np.arange(4) / 365, 10)
    share = (1.25 / 365**2) / (8.25 + 1.25 / 365**2)  # variance of 0..3 over variance of 0..9, by hand
    message = re.escape(f"column 'x' hardly changes ({share:.1e} of its variance is) within an instance")
    warned(table(x=age), message, IdentifiabilityWarning)


def test_traits_shared_by_many_instances_are_named_in_one_warning_with_the_way_out() -> None:
    traits = {"x": np.repeat(np.arange(10) % 5, 4), "sex": np.repeat(["F", "M"], 20)}
    frame = table(10, 4, **traits, y=np.arange(40) % 7)
    message = (
        r"^Columns that never change within an instance: 'x' \(5 values\), 'sex' \(2 values\)\. They help .* "
        r"To leave them out: drop=\('x', 'sex'\) in Logs\.from_frame, `ilb fit --drop x --drop sex`"
    )
    warned(frame, message, IdentifiabilityWarning)
    age = np.repeat(60.0 + np.arange(10), 4)
    message = (
        r"column 'age' never .*Age variable\)\. These stand still, too: .*To leave them out: drop=\('age', 'x', 'sex'\)"
    )
    warned(frame.assign(age=age), message, IdentifiabilityWarning)
    assert Logs.from_frame(frame.assign(age=age), **ROLES, drop=["age", "x", "sex"]).schema.names == ("y",)


def test_where_everything_stands_still_dropping_is_no_advice() -> None:
    frame = table(x=np.repeat(60.0 + np.arange(10), 4)).drop(columns="sex")
    warned(frame, r"Age variable\)\. No other column is left", IdentifiabilityWarning)


def test_a_trait_in_a_few_rows_is_not_judged() -> None:
    frame = table(instances=9, visits=3, sex=np.repeat(["F", "M", "M"], 9))  # 18 rows could have shown a change
    Logs.from_frame(frame, **ROLES)


def test_arrays_are_checked_like_tables_and_names_are_theirs() -> None:
    contexts = np.stack([np.arange(40) % 7, np.repeat(60.0 + np.arange(10), 4)], axis=1).reshape(10, 4, 2)
    arrays = (contexts, np.arange(40).reshape(10, 4) % 2, np.zeros((10, 4)))
    for names, name in ((None, "x2"), (["mmse", "age"], "age")):
        with pytest.warns(
            IdentifiabilityWarning, match=rf"column '{name}' never changes.*drop=\('{name}',\)"
        ) as caught:
            logs = Logs.from_arrays(*arrays, names=names)
        assert [item.filename for item in caught] == [__file__]
        left = logs.without(name)
        np.testing.assert_array_equal(left.context, logs.context[:, :1])
    with pytest.raises(LogsError, match="names= holds 'age'; expected 2 different names"):
        Logs.from_arrays(*arrays, names=["age"])


def test_a_trait_that_changes_in_time_is_no_identity() -> None:
    age = np.repeat(60.0 + np.arange(10), 4) + np.tile(np.arange(4), 10)
    Logs.from_frame(table(x=age), **ROLES)


def test_a_column_seen_once_in_each_instance_can_not_be_judged() -> None:
    Logs.from_frame(table(instances=10, visits=1), **ROLES)


def test_checks_of_learning_are_not_made_of_held_out_logs() -> None:
    schema = Logs.from_frame(table(), **ROLES).schema
    held_out = Logs.from_frame(table(instances=1, x=0.5, did=1), schema=schema)
    assert (held_out.instances, held_out.actions) == (1, 2)
