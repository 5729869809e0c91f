"""Tables as new users have them: other delimiters, columns that are no contexts, numbers that can't be read."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from ilb.cli import console
from ilb.cli.wording import in_options
from ilb.errors import LogsError, LogsWarning, RareActionWarning
from ilb.logs import Logs
from ilb.logs.layouts import Layout, layout_of
from ilb.networks import IdentityEncoder
from ilb.offline.fit import complete_model
from ilb.offline.scores import reference_models

ROLES: dict[str, Any] = {"instance": "who", "action": "did", "reward": "got"}


def table(people: int = 12, visits: int = 5, **others: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = people * visits
    plain = {
        "who": np.repeat([f"{number:03}" for number in range(people)], visits),
        "x": rng.normal(size=rows).round(3),
        "did": rng.choice(["a", "b", "c"], rows),
        "got": rng.normal(size=rows).round(3),
    }
    return pd.DataFrame({**plain, **others})


# What stands between columns, and in numbers


@pytest.mark.parametrize(
    ("delimiter", "decimal", "said"),
    [
        (";", ",", "semicolons between columns and decimal commas in numbers"),
        (";", ".", "semicolons between columns; it is read so"),
        ("\t", ".", "tabs between columns"),
        ("\t", ",", "tabs between columns and decimal commas"),
        ("|", ".", "vertical bars between columns"),
        (",", ",", "commas between columns and decimal commas in numbers"),
    ],
)
def test_other_layouts_are_read_as_they_are_meant_and_said(
    tmp_path: Path, delimiter: str, decimal: str, said: str
) -> None:
    frame = table()
    frame.to_csv(tmp_path / "plain.csv", index=False)
    frame.to_csv(tmp_path / "other.csv", index=False, sep=delimiter, decimal=decimal)
    expected = Logs.from_frame(tmp_path / "plain.csv", **ROLES)
    with pytest.warns(LogsWarning, match=said):
        found = Logs.from_frame(tmp_path / "other.csv", **ROLES)
    np.testing.assert_array_equal(found.context, expected.context)
    np.testing.assert_array_equal(found.reward, expected.reward)
    assert found.schema == expected.schema
    assert found.instance_labels[:2] == ("000", "001")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a,b;c", "1,2;3"], Layout()),  # a comma as good as a semicolon is a comma
        (["who,note", '1,"a; b"', '2,"c"'], Layout()),
        (["who;x", "1;1,234", "2;5,678"], Layout(";", ".")),  # thousands, perhaps: refused later, as text
        (["who;x", "1;0,234", "2;5,678"], Layout(";", ",")),
        (["who", "1", "2"], Layout()),
        (["a,b", "1,2,3"], Layout()),
        ([], Layout()),
        (['"a;b","c"', '"1;2",3'], Layout()),
    ],
)
def test_a_layout_is_found_by_the_rows_that_it_makes(lines: list[str], expected: Layout) -> None:
    assert layout_of(lines) == expected


def test_numbers_of_both_kinds_are_refused_with_one_of_each(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who;x;did;got\n1;1,5;a;2.5\n2;1,5;a;2\n")
    with pytest.raises(LogsError, match=r"decimal comma, such as '1,5', and others a decimal point, such as '2\.5'"):
        Logs.from_frame(tmp_path / "t.csv", **ROLES)


# Numbers that can't be read


def test_a_number_that_can_not_be_read_is_shown_and_not_one_that_can(tmp_path: Path) -> None:
    frame = table().astype({"got": object})
    frame.loc[7, "got"] = "see notes"
    for one in (frame, frame.to_csv(tmp_path / "t.csv", index=False) or tmp_path / "t.csv"):
        with pytest.raises(LogsError, match=r"column 'got' has 1 value of type 'str', such as 'see notes'"):
            Logs.from_frame(one, **ROLES)


# Columns that are no contexts


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


SUSPECTS: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "a copy of the reward": (lambda t: t["got"], "is a copy of the reward 'got'"),
    "the reward in other units": (lambda t: 7 - 100 * t["got"], "is a copy of the reward 'got'"),
    "a row id": (lambda t: np.arange(len(t)) + 17, "numbers the rows of the table"),
    "a visit": (lambda t: np.tile(np.arange(5), 12), "numbers the rows of each instance"),
    "a code of the action": (lambda t: t["did"].map({"a": 0.2, "b": 0.5, "c": 0.3}), "so it says what was done"),
    "a text for the action": (lambda t: t["did"].map({"a": "A!", "b": "B!", "c": "C!"}), "so it says what was done"),
    "days as numbers": (lambda t: 20240100 + rng().integers(1, 31, len(t)), "looks like dates written as numbers"),
}


@pytest.mark.parametrize("what", SUSPECTS)
def test_a_column_that_is_no_context_is_named_with_the_way_out(what: str) -> None:
    make, said = SUSPECTS[what]
    frame = table()
    with pytest.warns(LogsWarning, match=f"column 'odd' .*{said}.* --drop odd"):
        Logs.from_frame(frame.assign(odd=make(frame)), **ROLES)


def test_a_propensity_is_known_by_its_name() -> None:
    frame = table(propensity=rng().uniform(0.1, 0.9, 60))
    with pytest.warns(LogsWarning, match="column 'propensity' looks like the probability of the action"):
        Logs.from_frame(frame, **ROLES)


@pytest.mark.parametrize(
    "dates", [["31.12.2024", "1.2.2025"], ["12/31/2024", "1/2/2025"], ["2024-12-31", "2025-01-02"]]
)
def test_dates_among_the_contexts_are_named(tmp_path: Path, dates: list[str]) -> None:
    table(day=np.resize(dates, 60)).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(LogsError, match=r"column 'day' .*If it says when, .*name it in time="):
        Logs.from_frame(tmp_path / "t.csv", **ROLES)


def test_contexts_as_they_should_be_are_not_suspected() -> None:
    """Counts, flags, codes shared by actions, a noisy copy of the reward, ids of sites, whole numbers."""
    frame = table(visits=20)
    draw, rows = rng(), len(frame)
    good = {
        "count": draw.poisson(30, rows),
        "flag": draw.integers(2, size=rows),
        "share": draw.uniform(size=rows),
        "before": frame["got"] + 0.1 * draw.normal(size=rows),
        "code": np.where(draw.random(rows) < 0.9, frame["did"].map({"a": 1, "b": 2, "c": 3}), 2),
        "amount": draw.integers(19_000_000, 21_000_000, rows),
    }
    Logs.from_frame(frame.assign(**good), **ROLES)  # warnings are errors here


# Rewards and actions


def test_a_reward_that_is_summed_up_is_named() -> None:
    frame = table(visits=20)
    frame["got"] = frame["got"].abs().groupby(frame["who"]).cumsum()
    with pytest.warns(LogsWarning, match="column 'got' grows from row to row within an instance: it rises in"):
        Logs.from_frame(frame, **ROLES)


def test_a_reward_that_grows_in_most_rows_only_is_not() -> None:
    frame = table(visits=20)
    frame["got"] = frame["got"] + 0.05 * np.tile(np.arange(20), 12)
    Logs.from_frame(frame, **ROLES)


WITH_COMMAS = np.array([f"{number / 7:.3f}".replace(".", ",") for number in range(60)])


@pytest.mark.parametrize("doses", [rng().uniform(size=60), rng().permutation(60), WITH_COMMAS])
def test_an_action_of_thousands_of_values_looks_continuous(doses: np.ndarray) -> None:
    with pytest.raises(LogsError, match="column 'did' looks continuous: it has 60 different numbers in 60 rows"):
        Logs.from_frame(table(did=doses), **ROLES)


def test_many_items_that_come_often_are_actions() -> None:
    items = np.resize(np.arange(40), 240)
    assert Logs.from_frame(table(visits=20, did=items), **ROLES).actions == 40


# Messages of the command line


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("Give latent_dim.", "Give --latent-dim."),
        (
            "latent_dim must be 1; got latent_dim=9 with 2 columns.",
            "--latent-dim must be 1; got --latent-dim 9 with 2 columns.",
        ),
        ("name the column in categorical=.", "name the column in --categorical."),
        ("drop= names reward='got'; keep it.", "--drop names --reward 'got'; keep it."),
        ("Leave it out: drop=, --drop age.", "Leave it out: --drop age."),
        ("an encoder that you name (recipe=, --recipe) is", "an encoder that you name (--recipe) is"),
        (
            "To leave it out: drop=('a b',) in Logs.from_frame, `ilb fit --drop 'a b'`, or logs.without(['a b']).",
            "To leave it out: `ilb fit --drop 'a b'`.",
        ),
        (
            "drop=('a (c)', 'b') in Logs.from_frame, `ilb fit --drop 'a (c)' --drop b`, or logs.without(['a (c)']).",
            "`ilb fit --drop 'a (c)' --drop b`.",
        ),
        ("Save it as UTF-8, or read it yourself, with its encoding, and pass the frame.", "Save it as UTF-8."),
        ("column 'time=' is x=3", "column 'time=' is x=3"),
    ],
)
def test_the_command_line_names_options_and_not_arguments(library: str, command: str) -> None:
    assert in_options(library) == command


def test_something_is_shown_while_the_library_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(console, "notes", Console(file=written, force_terminal=True))
    with console.busy("Reading [a].csv"):
        pass
    assert "Reading [a].csv" in written.getvalue()
    written.truncate(0)
    monkeypatch.setattr(console, "notes", Console(file=written, force_terminal=False))
    with console.busy("Reading"):
        pass
    assert "Reading" not in written.getvalue()


def test_what_is_wrong_with_a_reference_is_not_told_as_if_it_were_the_users_model() -> None:
    frame = table()
    frame.loc[3, "did"] = "once"
    logs = Logs.from_frame(frame, **ROLES)
    with pytest.warns(RareActionWarning):
        complete_model(IdentityEncoder(), logs)
    assert set(reference_models(logs)) == {"mean contexts", "best on average"}  # warnings are errors here
