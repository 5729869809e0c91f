"""Tables that would be read as something else than they say: labels, numbers, letters, and far too many columns."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

from ilb import (
    FitError,
    LatentModel,
    LinearRewardRecipe,
    LiveBandit,
    Logs,
    LogsError,
    LogsWarning,
    PersonRewardRecipe,
    SchemaError,
    check,
    evaluate,
    report,
)
from ilb.errors import RareActionWarning
from ilb.offline.encoders.plain import PlainContexts
from ilb.offline.fit import fit
from ilb.offline.scaling import MOST_AXES, fit_whitening

ROLES: dict[str, Any] = {"instance": "who", "action": "did", "reward": "got"}


def columns(rows: int = 60, **others: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    plain = {
        "who": [f"p{number // 6}" for number in range(rows)],
        "x": rng.normal(size=rows),
        "did": [f"d{number // 2 % 3}" for number in range(rows)],
        "got": rng.normal(size=rows),
    }
    return {**plain, **others}


def write(path: Path, **others: Any) -> Path:
    """Write the values as they are, without a quote or a type."""
    table = {name: list(map(str, values)) for name, values in columns(**others).items()}
    lines = [",".join(table), *map(",".join, zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# Labels in CSV files


@pytest.mark.parametrize(
    "labels",
    [
        [str(12345678901234567890 + number) for number in range(30)],  # floats would make 8 people of them
        ["01", "1", "001"],
        ["1", "1.0"],
        ["0x10", "16", "1e1", "10"],
        ["1", "2", "x"],
        ["1.50", "1.5"],
        ["true", "True", "TRUE"],
        ["2020-01-01", "2020-1-1"],
        ["+1", "1"],
        ["-0", "0"],
    ],
    ids=lambda labels: " ".join(labels[:3]),
)
@pytest.mark.parametrize("role", ["who", "did"])
def test_no_two_labels_of_a_file_become_one(tmp_path: Path, labels: list[str], role: str) -> None:
    many = [labels[number % len(labels)] for number in range(60)]
    logs = Logs.from_frame(write(tmp_path / "logs.csv", **{role: many}), **ROLES)
    found = logs.instance_labels if role == "who" else logs.schema.actions
    assert sorted(map(str, found)) == sorted(labels)


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["3", "1", "2"], {1, 2, 3}),
        (["0.5", "1.5"], {0.5, 1.5}),
        (["-7", "12"], {-7, 12}),
        (["true", "false"], {True, False}),
        (["True", "False"], {True, False}),
        (["007", "8"], {"007", "8"}),
    ],
)
def test_labels_that_survive_are_what_they_were_written_from(
    tmp_path: Path, texts: list[str], labels: set[Any]
) -> None:
    many = [texts[number % len(texts)] for number in range(60)]
    logs = Logs.from_frame(write(tmp_path / "logs.csv", did=many), **ROLES)
    assert set(logs.schema.actions) == labels
    assert {type(label) for label in logs.schema.actions} == {type(label) for label in labels}


def test_a_file_is_read_with_the_labels_of_the_schema(tmp_path: Path) -> None:
    fitted = Logs.from_frame(
        write(tmp_path / "logs.csv", did=["01", "2", "3"] * 20, site=["1", "02"] * 30), **ROLES, categorical=["site"]
    )
    assert fitted.schema.actions == ("01", "2", "3")
    # Here every label alone could be a number.
    test = write(tmp_path / "test.csv", did=["2", "3", "3"] * 20, site=["1", "1"] * 30)
    again = Logs.from_frame(test, schema=fitted.schema)
    assert set(again.action.tolist()) == {1, 2}
    np.testing.assert_array_equal(again.context[:, 1:], np.tile([0.0, 1.0], (60, 1)))  # '02' and '1', in this order
    np.testing.assert_array_equal(fitted.schema.encode(test)[:, 1:], np.tile([0.0, 1.0], (60, 1)))
    whole = Logs.from_frame(pd.DataFrame(columns(did=[1, 2, 3] * 20)), **ROLES)
    with pytest.raises(SchemaError, match="actions that the schema does not know: '01'"):
        Logs.from_frame(tmp_path / "logs.csv", schema=whole.schema.without([])[0])


def test_categories_named_as_such_are_not_merged(tmp_path: Path) -> None:
    path = write(tmp_path / "logs.csv", code=["01", "1", "10"] * 20)
    logs = Logs.from_frame(path, **ROLES, categorical=["code"])
    assert logs.schema.names == ("x", "code = 01", "code = 1", "code = 10")


# Numbers that are no numbers


@pytest.mark.parametrize(
    "stray",
    ["n/m", "12,5", "13 %", "<5", "1.234,5", "?"],
    ids=["text", "comma", "percent", "below", "thousands", "mark"],
)
def test_a_column_of_numbers_with_a_few_other_cells_is_named(stray: str) -> None:
    values = [str(number / 7) for number in range(58)] + [stray] * 2
    with pytest.raises(LogsError, match=r"column 'bmi' is text, but \d+ of its 60 values look like numbers") as refused:
        Logs.from_frame(pd.DataFrame(columns(bmi=values)), **ROLES)
    assert repr(stray) in str(refused.value)
    assert "categorical=" in str(refused.value)


def test_a_few_codes_among_words_that_recur_are_categories_with_a_warning() -> None:
    frame = pd.DataFrame(columns(ladder=["1", "1", "2", "APPR", "1", "PROB"] * 10))
    with pytest.warns(LogsWarning, match="column 'ladder' has words such as 'APPR' among few numbers"):
        logs = Logs.from_frame(frame, **ROLES)
    assert [name for name in logs.schema.names if "ladder" in name] == [
        f"ladder = {code}" for code in ("1", "2", "APPR", "PROB")
    ]
    for stray in (["?"], ["5 %", "5 %"]):
        cells = ["1", "2"] * 29 + ["1"] * (2 - len(stray)) + stray
        with pytest.raises(LogsError, match="look like numbers"):
            Logs.from_frame(pd.DataFrame(columns(ladder=cells)), **ROLES)


def test_percent_signs_do_not_make_categories() -> None:
    with pytest.raises(LogsError, match="column 'share' is text, but 60 of its 60 values look like numbers"):
        Logs.from_frame(pd.DataFrame(columns(share=[f"{number} %" for number in range(60)])), **ROLES)


def test_numbers_that_a_frame_holds_as_text_are_told_of_and_read_as_categories_if_that_is_said() -> None:
    frame = pd.DataFrame(columns(grade=["1", "2", "3"] * 20))
    with pytest.warns(LogsWarning, match="column 'grade' has numbers as text, such as '1'"):
        Logs.from_frame(frame, **ROLES)
    assert Logs.from_frame(frame, **ROLES, categorical=["grade"]).width == 4


@pytest.mark.parametrize("words", [["a1", "b2"], ["1a", "x"], ["low", "5", "high"], ["A", "B"]])
def test_words_are_categories_as_before(words: list[str]) -> None:
    many = [words[number % len(words)] for number in range(60)]
    assert Logs.from_frame(pd.DataFrame(columns(word=many)), **ROLES).width == 1 + len(words)


# Letters of another encoding


@pytest.mark.parametrize("column", ["who", "did", "site"])
def test_bytes_that_are_no_letters_are_named(tmp_path: Path, column: str) -> None:
    path = write(tmp_path / "logs.csv", **{column: ["Malmö", "Lund", "Ystad"] * 20})
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    with pytest.raises(LogsError, match=rf"column '{column}' has b'Malm\\xf6', which is not UTF-8\. Save it as"):
        Logs.from_frame(path, **ROLES)


def test_a_header_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "logs.csv", **{"höjd": ["1"] * 30 + ["2"] * 30})
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    with pytest.raises(LogsError, match=r"can't read .*logs\.csv"):
        Logs.from_frame(path, **ROLES)


# Values far out


@pytest.mark.parametrize("column", ["x", "got"])
def test_one_value_that_makes_all_others_equal_is_refused(column: str) -> None:
    values = columns()[column].copy()
    values[7] = 1e20
    with pytest.raises(LogsError, match=rf"column '{column}' has the value 1e\+20.*all others are the same number"):
        Logs.from_frame(pd.DataFrame(columns(**{column: values})), **ROLES)


def test_one_value_that_decides_the_scale_is_told_of() -> None:
    values = columns()["x"].copy()
    values[7] = 999999.0
    with pytest.warns(LogsWarning, match=r"column 'x' has the value 999999.*decides the scale"):
        Logs.from_frame(pd.DataFrame(columns(x=values)), **ROLES)
    with pytest.warns(LogsWarning, match=r"column 'x1' has the value 999999"):
        Logs.from_arrays(values.reshape(10, 6, 1), np.zeros((10, 6)), np.ones((10, 6)), actions=2)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: np.exp(2 * rng.normal(size=60)),
        lambda rng: rng.standard_cauchy(size=60),
        lambda rng: np.r_[np.zeros(50), rng.exponential(size=10)],
        lambda rng: 1e9 + rng.normal(size=60),
        lambda rng: np.where(rng.random(60) < 0.5, 1.0, 1.0 + 1e-15),
    ],
    ids=["lognormal", "Cauchy", "mostly zero", "large offset", "rounding"],
)
def test_heavy_tails_and_large_offsets_are_no_slips(draw: Callable[[np.random.Generator], np.ndarray]) -> None:
    Logs.from_frame(pd.DataFrame(columns(x=draw(np.random.default_rng(1)))), **ROLES)


# Certainty


def test_a_single_reward_is_not_enough_to_be_certain_of_anything() -> None:
    with pytest.warns(LogsWarning, match="without any reward"):
        logs = Logs.from_frame(pa.table(columns(got=[1.5, *[None] * 59])), **ROLES)
    with pytest.raises(FitError, match=r"a single reward .* any certainty would come from nowhere"):
        fit(logs)


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning", "ignore::ilb.errors.RareActionWarning")
def test_two_rewards_of_one_person_and_action_do_not_make_certain() -> None:
    rewards: list[float | None] = [None] * 60
    rewards[0], rewards[3] = 1.5, 1.0  # the same person, the same action
    logs = Logs.from_frame(pa.table(columns(got=rewards)), **ROLES)
    for recipe in (LinearRewardRecipe(), PersonRewardRecipe()):
        model = fit(logs, latent_dim=1, recipe=PlainContexts(), reward=recipe)
        decision = LiveBandit.on(model).start("a").decide({"x": 0.0})
        assert min(decision.reward_std.values()) > 0.1
        assert max(decision.probability_best.values()) < 0.7


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning", "ignore::ilb.errors.RareActionWarning")
def test_contexts_that_never_change_teach_nothing_and_claim_nothing() -> None:
    logs = Logs.from_frame(pa.table(columns(x=np.ones(60), y=np.zeros(60))), **ROLES)
    for recipe in (LinearRewardRecipe(), PersonRewardRecipe()):
        model = fit(logs, latent_dim=2, recipe=PlainContexts(), reward=recipe)
        decision = LiveBandit.on(model).start("a").decide({"x": 1.0, "y": 0.0})
        # Twenty rewards of variance one for each action.
        assert min(decision.reward_std.values()) > 0.1
        assert max(decision.probability_best.values()) < 0.95


def test_rewards_that_are_all_the_same_are_told_of() -> None:
    logs = Logs.from_frame(pa.table(columns(got=np.ones(60))), **ROLES)
    with pytest.warns((LogsWarning, RareActionWarning), match="all 60 rewards .* are 1: no action can be told"):
        fit(logs, latent_dim=1, recipe=PlainContexts(), reward=LinearRewardRecipe())


# Wide tables


def test_a_wide_table_is_whitened_without_the_square_of_its_columns() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 10_000))
    began = time.perf_counter()
    whitening = fit_whitening(rows)
    assert time.perf_counter() - began < 20
    assert whitening.matrix.shape == (10_000, MOST_AXES)
    whitened = rows @ np.asarray(whitening.matrix, np.float64) + np.asarray(whitening.shift)
    covariance = np.cov(whitened[:, -59:], rowvar=False, bias=True)
    np.testing.assert_allclose(covariance, np.eye(59), atol=1e-3)
    assert not np.any(whitened[:, :-60])


@pytest.mark.parametrize("rows", [200, 400])
def test_the_axes_of_a_wide_table_are_those_of_its_whole_correlation(rows: int) -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(rows, 300)) * np.geomspace(1, 100, 300)
    table[:, 10] += table[:, 11] / 10
    whitening = fit_whitening(table)
    standard = (table - table.mean(axis=0)) / table.std(axis=0)
    variances, directions = np.linalg.eigh(standard.T @ standard / rows)
    found = (table - table.mean(axis=0)) @ np.asarray(whitening.matrix, np.float64)
    floor = np.maximum(variances, 1e-3 * variances[-1])
    expected = standard @ directions / np.sqrt(floor)
    kept = min(MOST_AXES, rows - 1)
    np.testing.assert_allclose(np.abs(found[:, -kept:]), np.abs(expected[:, -kept:]), atol=5e-3)


def test_a_column_that_pandas_keeps_as_its_index_is_said_to_be_that() -> None:
    frame = pd.DataFrame({"who": list("aabb"), "x": range(4), "did": list("uvuv"), "got": [0.0, 1.0, 2.0, 3.0]})
    with pytest.raises(LogsError, match=r"'who' is the index of the frame; .* frame\.reset_index\(\)"):
        Logs.from_frame(frame.set_index("who"), instance="who", action="did", reward="got")
    with pytest.raises(LogsError, match="no column 'who'"):
        Logs.from_frame(frame.drop(columns="who"), instance="who", action="did", reward="got")


def test_a_table_that_is_not_read_yet_is_no_logs(
    small_model: LatentModel, small_logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # tests check types, users do not
    frame: Any = pd.DataFrame({"who": [1]})
    for call in (fit, evaluate, lambda logs: check(small_model, logs), lambda logs: report(small_model, logs)):
        with pytest.raises(LogsError, match=r"takes Logs; got 'DataFrame'\. Read .* with Logs\.from_frame"):
            call(frame)
    asked: Any
    for asked in (check, report):
        with pytest.raises(FitError, match="takes a LatentModel and Logs; got 'Logs' as the model"):
            asked(small_logs, small_model)
