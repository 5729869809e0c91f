from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilb.errors import LogsError
from ilb.logs import Logs


def histories(lengths: list[int]) -> Logs:
    """Row t of instance u has the context u / 100 + t and the label "u"."""
    who = np.repeat(np.arange(len(lengths)), lengths)
    when = np.concatenate([np.arange(length) for length in lengths])
    context = (who / 100 + when)[:, None]
    return Logs.from_arrays(context, when % 3, when, instance=[f"u{u}" for u in who], actions=3)


def rows_by_label(logs: Logs) -> dict[Any, Any]:
    """Each instance's contexts, actions and rewards, looked up by `starts`."""
    parts = zip(logs.instance_labels, logs.starts[:-1], logs.starts[1:], strict=True)
    columns = np.column_stack([logs.context[:, 0], logs.action, logs.reward])
    return {label: columns[start:stop].tolist() for label, start, stop in parts}


def assert_well_formed(logs: Logs) -> None:
    np.testing.assert_array_equal(logs.instance, np.repeat(np.arange(logs.instances), logs.lengths))
    assert logs.starts[-1] == logs.rows == len(logs.context) == len(logs.action) == len(logs.reward)
    assert (logs.lengths > 0).all()
    assert logs.instance.dtype == logs.action.dtype == np.int32
    assert logs.context.dtype == logs.reward.dtype == np.float32


some_lengths = st.lists(st.integers(1, 6), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(some_lengths, st.data())
def test_selected_instances_keep_their_rows(lengths: list[int], data: st.DataObject) -> None:
    logs = histories(lengths)
    index = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, unique=True))
    part = logs.select(index)
    assert_well_formed(part)
    assert part.instance_labels == tuple(f"u{code}" for code in index)
    assert rows_by_label(part) == {f"u{code}": rows_by_label(logs)[f"u{code}"] for code in index}
    assert part.schema is logs.schema


def test_a_mask_selects_in_order_and_a_repeated_instance_becomes_two() -> None:
    logs = histories([2, 3, 1])
    assert logs.select(np.array([True, False, True])).instance_labels == ("u0", "u2")
    twice = logs.select([1, 1])
    assert_well_formed(twice)
    assert twice.lengths.tolist() == [3, 3]
    assert twice.context[:3].tolist() == twice.context[3:].tolist()


@pytest.mark.parametrize("index", [[], [3], [-1], [0.5], [[0]], [True, False], np.array(0)])
def test_instances_that_are_not_there_can_not_be_selected(index: Any) -> None:
    with pytest.raises(LogsError, match=r"can't select instances .*expected"):
        histories([2, 3, 1]).select(index)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=40), st.integers(0, 9))
def test_a_split_by_instance_is_a_partition(lengths: list[int], seed: int) -> None:
    logs = histories(lengths)
    parts = logs.split_instances(seed=seed)
    together: dict = {}
    for part in parts:
        assert_well_formed(part)
        assert part.instances >= 1
        assert not together.keys() & rows_by_label(part).keys()
        together |= rows_by_label(part)
    assert together == rows_by_label(logs)
    for part, fraction in zip(parts, (0.8, 0.1, 0.1), strict=True):
        assert abs(part.instances - fraction * len(lengths)) <= 2


def test_a_split_depends_on_the_seed_and_on_nothing_else() -> None:
    logs = histories([2] * 30)
    first, again, other = (logs.split_instances((0.5, 0.5), seed=seed)[0].instance_labels for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 15


@pytest.mark.parametrize("fractions", [(0.8, 0.1), (0.5, 0.5, 0.0), (1.2, -0.2), ()])
def test_fractions_must_make_a_whole(fractions: tuple[float, ...]) -> None:
    with pytest.raises(LogsError, match="expected positive numbers with sum 1"):
        histories([2] * 10).split_instances(fractions, seed=0)


def test_too_few_instances_can_not_be_split() -> None:
    with pytest.raises(LogsError, match="can't split 2 instances into 3 parts"):
        histories([5, 5]).split_instances(seed=0)


@settings(deadline=None, max_examples=60)
@given(some_lengths.filter(lambda lengths: max(lengths) > 1), st.floats(0.01, 0.99))
def test_a_split_by_time_cuts_each_history_once(lengths: list[int], fraction: float) -> None:
    logs = histories(lengths)
    earlier, later = logs.split_time(fraction)
    assert_well_formed(earlier)
    assert_well_formed(later)
    before, after = rows_by_label(earlier), rows_by_label(later)
    assert {label: before[label] + after.get(label, []) for label in before} == rows_by_label(logs)
    for label, length in zip(logs.instance_labels, lengths, strict=True):
        assert len(before[label]) >= 1
        assert (label in after) == (length > 1)
        assert length == 1 or abs(len(before[label]) - fraction * length) < 1


def test_histories_of_one_row_can_not_be_split_by_time() -> None:
    with pytest.raises(LogsError, match="none of the 3 instances has 2 rows"):
        histories([1, 1, 1]).split_time()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_a_split_by_time_needs_a_fraction(fraction: float) -> None:
    with pytest.raises(LogsError, match="between 0 and 1"):
        histories([2, 2]).split_time(fraction)
