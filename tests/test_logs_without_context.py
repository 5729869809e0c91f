"""Tables that say who, what was done and what came of it, but nothing else: crossovers, item tests, ratings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilb.errors import FitError, LogsError, LogsWarning
from ilb.live.bandit import LiveBandit
from ilb.logs import Logs, Schema
from ilb.models.baselines import Ingredients
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.fit import fit
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.online.roster import build_policy

ROLES: dict[str, Any] = {"instance": "who", "action": "did", "reward": "got"}
FRAME = pd.DataFrame(
    {"who": ["b", "a", "b", "a"], "did": ["y", "x", "x", "y"], "got": [1.0, 2.0, None, 4.0], "when": [2, 1, 1, 2]}
)


def crossover(instances: int = 12, periods: int = 4) -> Logs:
    shape = (instances, periods)
    return Logs.from_arrays(np.zeros((*shape, 0)), np.arange(48).reshape(shape) % 3, np.arange(48.0).reshape(shape))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_a_table_without_any_context_column_is_read_without_a_warning(library: Callable[[Any], Any]) -> None:
    logs = Logs.from_frame(library(FRAME), time="when", **ROLES)
    assert (logs.width, logs.context.shape) == (0, (4, 0))
    assert logs.context.dtype == np.float32
    assert (logs.schema.names, logs.schema.context) == ((), ())
    assert logs.instance_labels == ("b", "a")
    np.testing.assert_array_equal(logs.action, [0, 1, 0, 1])
    np.testing.assert_array_equal(logs.reward, np.array([np.nan, 1, 2, 4], np.float32))
    assert repr(logs) == "Logs(4 rows of 2 instances, 0 context columns, 2 actions, 3 rewards)"


def test_naming_no_context_column_is_as_good_as_having_none() -> None:
    bare = Logs.from_frame(FRAME.drop(columns="when"), **ROLES)
    choices: list[dict[str, Any]] = [{"context": ()}, {"context": []}, {"drop": "when"}]
    for chosen in choices:
        logs = Logs.from_frame(FRAME, **ROLES, **chosen)
        assert logs.schema == bare.schema
        assert logs.context.shape == (4, 0)
        np.testing.assert_array_equal(logs.reward, bare.reward)


def test_arrays_without_a_context_column_give_the_same_logs_flat_or_not() -> None:
    action, reward = np.arange(6).reshape(3, 2) % 2, np.arange(6.0).reshape(3, 2)
    whole = Logs.from_arrays(np.zeros((3, 2, 0)), action, reward)
    mixed = np.array([4, 0, 2, 5, 1, 3])  # rows of one instance stay in order
    flat = Logs.from_arrays(np.zeros((6, 0)), action.ravel()[mixed], reward.ravel()[mixed], (mixed // 2).tolist())
    flat = flat.select([flat.instance_labels.index(label) for label in whole.instance_labels])
    for logs in (whole, flat):
        assert logs.context.shape == (6, 0)
        assert logs.context.dtype == np.float32
        np.testing.assert_array_equal(logs.reward, np.arange(6))
        np.testing.assert_array_equal(logs.action, [0, 1, 0, 1, 0, 1])
    assert Logs.from_arrays(np.zeros((3, 2, 0)), action, reward, names=[]).schema == whole.schema
    with pytest.raises(LogsError, match="expected 0 different names"):
        Logs.from_arrays(np.zeros((3, 2, 0)), action, reward, names=["x"])


def test_no_rows_are_still_refused() -> None:
    with pytest.raises(LogsError, match="at least one row"):
        Logs.from_arrays(np.zeros((0, 2, 0)), np.zeros((0, 2)), np.zeros((0, 2)))


def test_a_context_without_columns_is_encoded_as_no_numbers() -> None:
    schema = Logs.from_frame(FRAME, time="when", **ROLES).schema
    one = schema.encode({})
    assert one.shape == (0,)
    assert one.dtype == np.float32
    with pytest.warns(LogsWarning, match="'ignored'"):
        assert schema.encode({"ignored": 3}).shape == (0,)
    tables: list[Any] = [[{}, {}, {}], FRAME[:3], pl.from_pandas(FRAME[:3]), pd.DataFrame(index=range(3))]
    for rows in tables:
        many = schema.encode(rows)
        assert many.shape == (3, 0)
        assert many.dtype == np.float32
    assert [numbers.shape for numbers in schema.numeric_scaling()] == [(0,), (0,)]


def test_all_columns_may_be_taken_away() -> None:
    logs = Logs.from_arrays(np.arange(12.0).reshape(3, 2, 2), np.zeros((3, 2)), np.ones((3, 2)), names=["age", "pain"])
    left = logs.without(["age", "pain"])
    assert (left.width, left.context.shape, left.schema.encode({}).shape) == (0, (6, 0), (0,))
    assert left.without(()).schema == left.schema
    with pytest.raises(LogsError, match="no column 'age'"):
        left.without("age")


def test_rewards_alone_are_described_selected_and_split() -> None:
    logs = crossover()
    summary = logs.describe()
    assert (summary.rows, summary.context_columns, summary.missing_contexts) == (48, 0, 0)
    assert summary.sentence() == "48 rows of 12 instances (4 each), 0 context columns, 3 actions"
    assert logs.select([5, 2]).reward.tolist() == [20, 21, 22, 23, 8, 9, 10, 11]
    for parts in (logs.split_instances((0.5, 0.5), seed=0), logs.split_time(0.5)):
        assert [part.context.shape for part in parts] == [(24, 0), (24, 0)]
        assert sorted(np.concatenate([part.reward for part in parts])) == list(range(48))


rewards_only = st.lists(
    st.fixed_dictionaries(
        {
            "who": st.integers(0, 3),
            "did": st.sampled_from(["a", "b", "c", None]),
            "got": st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)),
        }
    ),
    max_size=8,
).map(lambda rows: [{"who": 0, "did": d, "got": 0.0} for d in "abc"] + [{"who": 9, "did": "a", "got": None}, *rows])


@settings(deadline=None, max_examples=40)
@given(rewards_only)
@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")
def test_rewards_alone_survive_frames_and_json(rows: Any) -> None:
    logs = Logs.from_frame(pl.DataFrame(rows, infer_schema_length=None), **ROLES)
    schema = Schema.from_json(json.loads(json.dumps(logs.schema.to_json(), allow_nan=False)))
    assert schema == logs.schema
    for backend in ("pandas", "polars", "pyarrow"):
        frame = logs.to_frame(backend)
        assert len(frame) == logs.rows
        back = Logs.from_frame(frame, schema=schema)
        assert back.instance_labels == logs.instance_labels
        for name in ("context", "instance", "action", "reward"):
            np.testing.assert_array_equal(getattr(back, name), getattr(logs, name))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rewards_alone_are_written_and_read(tmp_path: Path, suffix: str) -> None:
    logs = crossover()
    logs.write(tmp_path / f"logs{suffix}")
    back = Logs.from_frame(tmp_path / f"logs{suffix}", schema=logs.schema)
    np.testing.assert_array_equal(back.reward, logs.reward)
    assert back.context.shape == (48, 0)


def test_an_encoder_can_not_be_trained_without_contexts() -> None:
    with pytest.raises(FitError, match="with 0 columns"):
        fit(crossover(), latent_dim=1, seed=0, recipe=TiedRecipe(), reward=LinearRewardRecipe())


def test_live_decisions_need_no_context() -> None:
    policy = build_policy(Ingredients(actions=3, reward_variance=1.0), "MAB")
    bandit = LiveBandit(policy, crossover().schema)
    anna, ben = bandit.start("anna"), bandit.start("ben")
    decision = anna.decide({})
    assert decision.action in (0, 1, 2)
    anna.learn(decision, reward=1.0)
    anna.decide({})
    assert bandit.restore(anna.to_json()).pending == (1,)
    assert len(bandit.decide_many([anna, ben], [{}, {}])) == 2
