"""One table of bad input over all commands: one clear sentence, no traceback, exit code 2, nothing half-written."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from ilb.cli import console
from ilb.cli import run as run_command
from ilb.logs import Logs
from ilb.networks import IdentityEncoder
from ilb.offline.fit import complete_model

ROLES = ("--instance", "who", "--action", "did", "--reward", "got")
FIT = ("fit", "bad.csv", *ROLES, "--out", "m")
TIMED = (*FIT, "--time", "day")
EVALUATE = ("evaluate", "bad.csv", *ROLES, "--recipe", "none", "--reward-model", "person")
RECOMMEND = ("recommend", "model", "bad.csv")


def table(**others: Any) -> pd.DataFrame:
    """Ten people with six rows, two contexts and three actions; a column that is given as None is left out."""
    rng = np.random.default_rng(0)
    plain = {
        "who": np.repeat([f"p{number}" for number in range(10)], 6),
        "x": rng.normal(size=60).round(3),
        "y": rng.normal(size=60).round(3),
        "did": rng.choice(["a", "b", "c"], 60),
        "got": rng.normal(size=60).round(3),
    }
    return pd.DataFrame({name: values for name, values in {**plain, **others}.items() if values is not None})


def changed(column: str, value: Any, row: int = 7) -> pd.DataFrame:
    frame = table().astype({column: object})
    frame.loc[row, column] = value
    return frame


def csv(**others: Any) -> str:
    return table(**others).to_csv(index=False)


def _in_commas(frame: pd.DataFrame) -> str:
    return (
        frame.map(lambda cell: f"{cell:.3f}" if isinstance(cell, float) else cell)
        .to_csv(index=False, sep=";", decimal=",")
        .replace(".", ",")
        .replace("k,A,", "k.A.")
    )


class Case(NamedTuple):
    """A command with what it must say; `bad` is written as bad.csv, or does something to the folder."""

    arguments: tuple[Any, ...]
    says: str
    bad: pd.DataFrame | str | bytes | Callable[[Path], Any] = csv()


CASES = {
    # Of fit, files
    "a file that is not there": Case(("fit", "nowhere.csv", *FIT[2:]), "there is no file 'nowhere.csv'"),
    "an empty file": Case(FIT, "can't read 'bad.csv'", ""),
    "a header alone": Case(FIT, "the table has no rows", "who,x,did,got\n"),
    "a directory": Case(("fit", "folder.csv", *FIT[2:]), "it is a directory", lambda at: (at / "folder.csv").mkdir()),
    "the directory where one is": Case(("fit", ".", *FIT[2:]), "can't read '.': it is a directory"),
    "a kind of file that is unknown": Case(
        ("fit", "bad.xlsx", *FIT[2:]), r"unknown file type '.xlsx'; expected .csv, .* Save the table as one of these\.$"
    ),
    "text as gzip": Case(
        ("fit", "bad.csv.gz", *FIT[2:]), "can't read 'bad.csv.gz'", lambda at: (at / "bad.csv.gz").write_text(csv())
    ),
    "a file without a suffix": Case(("fit", "bad", *FIT[2:]), "unknown file type ''"),
    "bytes that are no table": Case(FIT, "can't read 'bad.csv'|has no column", bytes(range(128, 256)) * 40),
    "zeros": Case(FIT, "can't read 'bad.csv'|has no column|no rows", b"\0" * 500),
    "text as Parquet": Case(
        ("fit", "bad.parquet", *FIT[2:]),
        "can't read 'bad.parquet'",
        lambda at: (at / "bad.parquet").write_text("who,x"),
    ),
    "half of a Parquet file": Case(
        ("fit", "half.parquet", *FIT[2:]),
        "can't read 'half.parquet'",
        lambda at: _half_of_a_parquet(at / "half.parquet"),
    ),
    "another encoding": Case(FIT, "which is not UTF-8", csv(site=["Malmö"] * 60).encode("latin-1")),
    "another encoding of the header": Case(
        FIT, r"the name of a column has .*which is not UTF-8. Save it as UTF-8\.$", csv(Größe=1.0).encode("latin-1")
    ),
    "rows of different length": Case(FIT, "can't read 'bad.csv'", csv() + "p9,1,2\n"),
    "a quote that never ends": Case(FIT, "can't read 'bad.csv'|expected|no column", csv().replace("p3", '"p3', 1)),
    "two columns of one name": Case(FIT, "column names must differ", csv().replace("who,x,y", "who,x,x", 1)),
    "decimal commas and points": Case(FIT, "decimal comma, such as", "who;x;did;got\na;1,5;u;0.5\nb;1,5;v;0.5\n"),
    "a file name that is too long": Case(("fit", "n" * 300 + ".csv", *FIT[2:]), "file name too long"),
    # Of fit, columns
    "no such person column": Case(FIT, "no column 'who'.*Did you mean 'whom'", csv().replace("who", "whom", 1)),
    "no such action column": Case(FIT, "no column 'did'", csv(did=None)),
    "no such reward column": Case(FIT, "no column 'got'", csv(got=None)),
    "no such time column": Case(TIMED, "no column 'day'"),
    "a column with two roles": Case((*FIT, "--time", "got"), "column 'got' is used 2 times: --reward and --time"),
    "a context that is not there": Case((*FIT, "--context", "z"), "no column 'z'"),
    "a category that is no context": Case((*FIT, "--categorical", "got"), "--categorical names 'got'"),
    "dropping what is not there": Case((*FIT, "--drop", "z"), "no column 'z'"),
    "dropping the reward": Case((*FIT, "--drop", "got"), "--drop names --reward 'got'"),
    "keeping and dropping": Case((*FIT, "--drop", "x", "--context", "y"), "--context says which columns are kept"),
    # Of fit, what the columns hold
    "one person": Case(FIT, "has a single instance", csv(who="p")),
    "people who are not named": Case(FIT, "lacks the instance in 1 row", changed("who", None)),
    "one action": Case(FIT, "only the action 'a'", csv(did="a")),
    "no action": Case(FIT, "no action at all", csv(did=np.nan)),
    "amounts as actions": Case(FIT, "'did' looks continuous", csv(did=np.arange(60) / 7)),
    "rewards in words": Case(FIT, "column 'got' has 60 values .*'good'", csv(got="good")),
    "one reward in words": Case(FIT, "column 'got' has 1 value .*'see notes'", changed("got", "see notes")),
    "no reward": Case(FIT, "no row has both an action", csv(got=np.nan)),
    "a single reward": Case(FIT, "a single reward", csv(got=[1.0] + [np.nan] * 59)),
    "an infinite reward": Case(FIT, "column 'got' has 1 infinite value", changed("got", "inf")),
    "a reward beyond all others": Case(FIT, "beside it all others are the same", changed("got", 1e30)),
    "an infinite context": Case(FIT, "column 'x' has 1 infinite value", changed("x", "-inf")),
    "a code for missing": Case(FIT, "beside it all others are the same", changed("x", -9e15)),
    "a context without a value": Case(
        FIT, "column 'z' is missing in all 60 rows; .* Leave it out: --drop z", csv(z=np.nan)
    ),
    "a date": Case(FIT, "column 'day' .*name it in --time", csv(day="2024-01-31")),
    "a date as people write it": Case(FIT, "column 'day' looks like dates", csv(day="31.1.2024")),
    "free text": Case(
        FIT, "free text or an identifier", pd.concat([table(note=[f"{n} {i}" for i in range(60)]) for n in "ab"])
    ),
    "numbers with words among them": Case(FIT, "text, but .* look like numbers", changed("x", "n/a?")),
    "decimal commas with words among them": Case(
        FIT, "59 of its 60 values look like numbers; what keeps .* are 'k.A.'. Turn", _in_commas(changed("x", "k.A."))
    ),
    "rewards with decimal commas and a word": Case(
        FIT, "column 'got' has 1 value .*'k.A.'", _in_commas(changed("got", "k.A."))
    ),
    "times that are missing": Case(TIMED, "lacks the time in 1 row", csv(day=[np.nan, *range(59)])),
    "times without an order": Case(TIMED, "that have no order", csv(day="soon")),
    "times with slashes, of which nobody knows the month": Case(TIMED, "that have no order", csv(day="02/03/2021")),
    "a day that no month has": Case(TIMED, "'32.01.2021' that have no order", csv(day="32.01.2021")),
    # Of fit, options
    "no dimension": Case((*FIT, "--latent-dim", 0), "--latent-dim must be at least 1; got 0"),
    "too many dimensions": Case((*FIT, "--latent-dim", 9), "got --latent-dim 9 with 2 columns"),
    "a dimension in words": Case((*FIT, "--latent-dim", "two"), "Invalid value for '--latent-dim'"),
    "a recipe that is unknown": Case((*FIT, "--recipe", "tide"), "got 'tide'. Did you mean 'tied'"),
    "a reward model that is unknown": Case((*FIT, "--reward-model", "lin"), "--reward-model must be .* got 'lin'"),
    "an encoder without contexts": Case((*FIT, "--recipe", "tied"), "no context column", csv(x=None, y=None)),
    "a share above one": Case((*FIT, "--test-share", 1.5), "Invalid value for '--test-share'"),
    "a negative seed": Case((*FIT, "--seed", -1), "from 0 to 2.32 - 1; got -1"),
    "a seed in words": Case((*FIT, "--seed", "lucky"), "Invalid value for '--seed'"),
    "a file for a directory": Case((*FIT[:-1], "bad.csv"), "bad.csv is a file"),
    "a directory of other things": Case((*FIT[:-1], "."), "holds other files and no model"),
    "a name that no disk takes": Case((*FIT[:-1], "m" * 300), "a name of 300 bytes"),
    "an option that is missing": Case(("fit", "bad.csv", "--out", "m"), "Missing option '--instance'"),
    "an option that is unknown": Case((*FIT, "--magic"), "No such option: --magic"),
    # Of score
    "a model that is not there": Case(("score", "nothing", "bad.csv"), "nothing"),
    "a model that is a file": Case(("score", "bad.csv", "bad.csv"), "not a saved model"),
    "a manifest that is damaged": Case(
        ("score", "model2", "bad.csv"), "model2", lambda at: _damage(at, "manifest.json")
    ),
    "arrays that are damaged": Case(("score", "model2", "bad.csv"), "model2", lambda at: _damage(at, "arrays-*")),
    "a table without a column of the model": Case(("score", "model", "bad.csv"), "no column 'x'", csv(x=None)),
    "actions that the model does not know": Case(
        ("score", "model", "bad.csv"), "does not know: 'z'", changed("did", "z")
    ),
    "a world that is none": Case(("score", "model", "bad.csv", "--world", "bad.csv"), "not a world"),
    "a world that is not there": Case(("score", "model", "bad.csv", "--world", "no.json"), "no.json"),
    # Of check
    "nothing to check": Case(("check", "nothing", "bad.csv"), "nothing"),
    "nothing to check it on": Case(("check", "model", "nowhere.csv"), "there is no file 'nowhere.csv'"),
    "checks as a picture": Case(("check", "model", "bad.csv", "--out", "c.png"), "must end in .json, .csv or .parquet"),
    "checks with a negative seed": Case(("check", "model", "bad.csv", "--seed", -3), "from 0 to 2.32 - 1; got -3"),
    "checks of other actions": Case(("check", "model", "bad.csv"), "does not know: 'z'", changed("did", "z")),
    "checks into a directory": Case(
        ("check", "nothing", "bad.csv", "--out", "c.csv"), "c.csv is a directory", lambda at: (at / "c.csv").mkdir()
    ),
    "checks below a file": Case(("check", "nothing", "bad.csv", "--out", "bad.csv/c.csv"), "bad.csv is a file"),
    # Of evaluate
    "nothing to evaluate": Case(("evaluate", "nowhere.csv", *EVALUATE[2:]), "there is no file 'nowhere.csv'"),
    "evaluating one action": Case(EVALUATE, "only the action 'a'", csv(did="a")),
    "a policy that is unknown": Case((*EVALUATE, "--policy", "Adaptve"), "no policy is named 'Adaptve'.*'Adaptive'"),
    "one fold": Case((*EVALUATE, "--folds", 1), "Invalid value for '--folds'"),
    "no decision": Case((*EVALUATE, "--horizon", 0), "Invalid value for '--horizon'"),
    "more folds than people": Case((*EVALUATE, "--folds", 50), "folds"),
    "a gain into a directory": Case((*EVALUATE, "--out", "."), "--out must be the name of a file; . is a directory"),
    "a gain below a file": Case((*EVALUATE, "--out", "bad.csv/gain.json"), "bad.csv is a file"),
    # Of report
    "a report as a picture": Case(("report", "nothing", "bad.csv", "--out", "r.png"), "end in .html or .htm; got"),
    "a report in a directory": Case(("report", "nothing", "bad.csv", "--out", "."), "--out must end in .html"),
    # Of recommend
    "recommending without a model": Case(("recommend", "nothing", "bad.csv"), "nothing"),
    "recommending for nobody's file": Case(("recommend", "model", "nowhere.csv"), "there is no file 'nowhere.csv'"),
    "a history without people": Case(RECOMMEND, "no column 'who'", csv(who=None)),
    "a history without a context": Case(RECOMMEND, "no column 'y'", csv(y=None)),
    "a history with another action": Case(RECOMMEND, "does not know: 'z'", changed("did", "z")),
    "a history with a reward in words": Case(RECOMMEND, "such as 'bad'", changed("got", "bad")),
    "a history with an absurd reward": Case(RECOMMEND, "a reward must be a number between", changed("got", 1e20)),
    "a history with an absurd context": Case(RECOMMEND, "nothing can be known", changed("x", 1e18)),
    "a history of somebody": Case(RECOMMEND, "lacks the instance in 1 row", changed("who", None)),
    "forbidding what is not there": Case((*RECOMMEND, "--forbid", "z"), "unknown action 'z'"),
    "forbidding everything": Case(
        (*RECOMMEND, *("--forbid", "a", "--forbid", "b", "--forbid", "c")), "no action is left"
    ),
    "forbidding by no column": Case((*RECOMMEND, "--forbid-column", "no"), "no column 'no'"),
    "forbidding by a wrong cell": Case((*RECOMMEND, "--forbid-column", "no"), "rules out 'z'", csv(no="a;z")),
    "forbidding somebody everything": Case((*RECOMMEND, "--forbid-column", "no"), "left for 'p0'", csv(no="a;b;c")),
    "recommendations as a picture": Case((*RECOMMEND, "--out", "r.png"), "--out must end in .csv, .json"),
    "recommendations into a directory": Case(
        (*RECOMMEND, "--out", "r.csv"), "r.csv is a directory", lambda at: (at / "r.csv").mkdir()
    ),
    "recommendations below a file": Case((*RECOMMEND, "--out", "bad.csv/r.csv"), "bad.csv is a file"),
    "recommending by magic": Case((*RECOMMEND, "--policy", "magic"), "no policy is named 'magic'"),
    "recommending with logs": Case((*RECOMMEND, "--policy", "HierTS"), "needs logs"),
    "nearest of nobody": Case((*RECOMMEND, "--earlier", "nowhere.csv"), "there is no file 'nowhere.csv'"),
    "recommending never": Case((*RECOMMEND, "--horizon", 0), "Invalid value for '--horizon'"),
    # Of simulate, and what is no command
    "a world that nobody knows": Case(("simulate", "sinthetic", "--out", "x.csv"), "Did you mean 'synthetic'"),
    "a simulation as JSON": Case(("simulate", "synthetic", "--out", "x.json"), "neither .csv nor .parquet"),
    "nobody to simulate": Case(
        ("simulate", "synthetic", "--out", "x.csv", "--instances", -5), "Invalid value for '--instances'"
    ),
    "too much to simulate": Case(("simulate", "synthetic", "--out", "x.csv", "--instances", 10**12), "this machine"),
    "noise that nobody knows": Case(("simulate", "synthetic", "--out", "x.csv", "--noise", "loud"), "got 'loud'"),
    "a key for nothing": Case(("key", "boss", "anna"), "boss"),
    "a store that is not there": Case(("export", "sqlite:///nowhere.db", "--out", "x.csv"), "nowhere.db"),
    "a command that is none": Case(("recomend", "model", "bad.csv"), "No such command 'recomend'"),
}


def _half_of_a_parquet(path: Path) -> None:
    table().to_parquet(path)
    path.write_bytes(path.read_bytes()[:-300])


def _damage(folder: Path, pattern: str) -> None:
    shutil.copytree(folder / "model", folder / "model2")
    (file,) = (folder / "model2").glob(pattern)
    file.write_bytes(file.read_bytes()[:-40])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "model"
    logs = Logs.from_frame(table(), instance="who", action="did", reward="got")
    complete_model(IdentityEncoder(), logs).save(place)
    return place


@pytest.fixture
def folder(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "XLA_FLAGS"):
        monkeypatch.setenv(name, "")  # put back afterwards
    for one in (console.results, console.notes):
        monkeypatch.setattr(one, "_width", 300, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    shutil.copytree(model, tmp_path / "model")
    return tmp_path


def write(case: Case, folder: Path) -> None:
    if isinstance(case.bad, str | bytes):
        (folder / "bad.csv").write_bytes(case.bad.encode() if isinstance(case.bad, str) else case.bad)
    elif isinstance(case.bad, pd.DataFrame):
        case.bad.to_csv(folder / "bad.csv", index=False)
    else:
        (folder / "bad.csv").write_text(csv())
        case.bad(folder)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(file): file.read_bytes() if file.is_file() else None for file in sorted(folder.rglob("*"))}


@pytest.mark.filterwarnings("ignore::ilb.errors.IlbWarning")  # what is odd beside what is wrong
@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_in_one_sentence_and_leaves_nothing_behind(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    write(case, folder)
    before = contents(folder)
    monkeypatch.setattr(sys, "argv", ["ilb", *map(str, case.arguments)])
    code = run_command()
    printed = capsys.readouterr()
    said = " ".join(printed.err.split())
    assert code == 2, printed.out + said
    assert re.search(case.says, said), said
    assert "Traceback" not in said
    assert said.count("Error") == 1, said
    assert contents(folder) == before


def test_there_are_many_kinds_of_bad_input() -> None:
    assert len(CASES) >= 60
    assert len({(case.arguments, str(case.bad)) for case in CASES.values()}) == len(CASES)
