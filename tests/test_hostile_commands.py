"""The command line against full disks, foreign bytes, strange numbers and impatient users."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from ilb import LatentModel
from ilb.cli import commands, console
from ilb.cli import run as run_command
from ilb.cli.console import visible
from ilb.errors import FileError, SeedError
from ilb.files import put_in_place
from ilb.offline import training
from ilb.offline.fit import fit_candidate
from ilb.seeds import as_seed
from ilb_paper import runner
from ilb_paper.command import choose
from ilb_paper.results import Results, Size
from ilb_paper.store import Store
from narrowed import known

COLUMNS = ("--instance", "who", "--action", "did", "--reward", "got")
TINY = ("--instances", 3, "--test-instances", 2, "--length", 4, "--latent-dim", 2, "--actions", 2)


@pytest.fixture
def ilb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Run a command in an empty folder; give its exit code and all that it printed."""
    monkeypatch.chdir(tmp_path)
    for one in (console.results, console.notes):
        monkeypatch.setattr(one, "_width", 200, raising=False)

    def run(*arguments: Any) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ilb", *map(str, arguments)])
        code = run_command()
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def in_a_process(code: str, *arguments: Any, cwd: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=120, check=False, **options)


PROGRAM = "from ilb.cli import main; main()"


def table(folder: Path, rows: int = 60, seed: int = 0) -> Path:
    """Ten people, two columns that vary, three actions."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "who": np.repeat(np.arange(10), rows // 10),
        "x": rng.normal(size=rows),
        "y": rng.normal(size=rows),
        "did": rng.choice(["a", "b", "c"], rows),
        "got": rng.normal(size=rows),
    }
    pyarrow.csv.write_csv(pa.table(columns), folder / "logs.csv")
    return folder / "logs.csv"


# One line, exit 2, nothing half-written


def one_line(printed: str) -> str:
    said = printed.strip()
    assert "\n" not in said
    assert "Traceback" not in said
    assert said.startswith("Error: ")
    return said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "synthetic", "--out", "n" * 300 + ".csv"), "a name of 304 bytes"),
        (("fit", "logs.csv", *COLUMNS, "--out", "m" * 300), "a name of 300 bytes"),
        (("fit", "n" * 300 + ".csv", *COLUMNS, "--out", "m"), "file name too long"),
        (("score", "n" * 300, "logs.csv"), "file name too long"),
        (("score", ".", "logs.csv"), "no manifest.json in it"),
        (("fit", "folder.csv", *COLUMNS, "--out", "m"), "is a directory"),
        (("fit", "logs.csv", *COLUMNS, "--out", "m", "--seed", 2**170), "from 0 to 2^32 - 1; got one of 171 bits"),
        (("fit", "logs.csv", *COLUMNS, "--out", "m", "--seed", 2**32), "from 0 to 2^32 - 1; got 4294967296"),
        (("fit", "logs.csv", *COLUMNS, "--out", "m", "--seed", -1), "from 0 to 2^32 - 1; got -1"),
        (("simulate", "synthetic", "--out", "x.csv", "--seed", 10**30), "from 0 to 2^32 - 1"),
        (("simulate", "synthetic", "--out", "x.csv", "--instances", 10**10), "GiB; this machine has"),
        (("simulate", "synthetic", "--out", "x.csv", "--instances", 10**30), "GiB; this machine has"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(
    ilb: Callable[..., tuple[int, str]], tmp_path: Path, arguments: tuple[Any, ...], said: str
) -> None:
    table(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    code, printed = ilb(*arguments)
    assert (code, said in one_line(printed)) == (2, True), printed
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder.csv", "logs.csv"]


def test_a_disk_that_fills_up_leaves_what_was_there(ilb: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    simulate = ("simulate", "synthetic", "--out", "logs.csv", *TINY)
    assert ilb(*simulate)[0] == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(before) == {"logs.csv", "logs.test.csv", "logs.world.json"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # the same to a program: a file can't grow any more
    try:
        code, printed = ilb(*simulate, "--seed", 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    assert "can't write logs.csv, logs.test.csv, logs.world.json: file too large" in one_line(printed)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_table_that_can_not_be_written_takes_the_others_of_its_command_with_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")

    def write_one_and_fail() -> None:
        with put_in_place(tmp_path / "a", tmp_path / "b") as (a, _):
            a.write_text("new")
            raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match="no space left"):
        write_one_and_fail()
    assert [file.read_text() for file in sorted(tmp_path.iterdir())] == ["old", "old"]
    with put_in_place(tmp_path / "a", tmp_path / "b") as (a, b):
        a.write_text("new")
        b.write_text("new")
        assert (tmp_path / "a").read_text() == "old"
    assert [file.read_text() for file in sorted(tmp_path.iterdir())] == ["new", "new"]


def test_what_is_put_in_place_keeps_its_mode_and_links(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    with put_in_place(tmp_path / "link") as (draft,):
        draft.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640


def test_output_that_nobody_can_take_is_an_error_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-c", PROGRAM, "fit", "--recipes"]
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2
    assert "no space left on device" in one_line(done.stderr.decode())


def test_a_terminal_without_our_letters_gets_others(tmp_path: Path) -> None:
    code = r"""
from ilb.cli.console import *
write_in_any_encoding()
say("R\xb2 0.5\xb10.1 \xc5sa \u2026")
tell("\u2265 1", "Error", "red")
"""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = in_a_process(code, cwd=tmp_path, env=environment)
    assert done.stdout.decode("ascii") == "R^2 0.5+-0.1 ?sa ...\n"
    assert done.stderr.decode("ascii") == "Error: >= 1\n"


def test_what_a_terminal_would_obey_is_shown_instead(ilb: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    escape = "\x1b]0;owned\x07\x1b[31m"
    text = table(tmp_path).read_text().replace('"x"', f'"{escape}x"').replace('"b"', f'"b{escape}\u202e"')
    (tmp_path / "logs.csv").write_text(text)
    code, printed = ilb("fit", "logs.csv", *COLUMNS[:-1], "rewards", "--out", "m")
    assert code == 2
    assert "\x1b" not in printed
    assert r"\x1b]0;owned\x07" in printed
    assert visible("a\tb\n\u202ec\x9b1m") == "a\tb\n\\u202ec\\x9b1m"
    code, printed = ilb("score", f"{escape}", "logs.csv")
    assert code == 2
    assert "\x1b" not in printed


# Stops


def interrupt_after(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """Let Ctrl-C come in a chunk of training steps."""
    calls: list[None] = []
    advance = training._advance

    def advance_or_stop(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) > chunks:
            raise KeyboardInterrupt
        return advance(*arguments)

    monkeypatch.setattr(training, "_advance", advance_or_stop)


FIT = ("fit", "logs.csv", *COLUMNS, "--recipe", "vae", "--latent-dim", 1, "--reward-model", "linear", "--test-share", 0)


@pytest.fixture
def without_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    from ilb.offline.choice import ModelChoice
    from ilb.offline.encoders.vae import VAERecipe
    from ilb.offline.fit import _untried

    quick = VAERecipe(width=4, neck=4, epochs=40)
    monkeypatch.setitem(commands.RECIPES, "vae", lambda: quick)
    monkeypatch.setattr(
        commands,
        "choose_model",
        lambda logs, *, latent_dim, recipe, reward, **_: ModelChoice(_untried(logs, latent_dim, recipe, reward)),
    )


@pytest.mark.usefixtures("without_comparing")
@pytest.mark.filterwarnings("ignore:training was interrupted")
@pytest.mark.parametrize("chunks", [0, 1])
@pytest.mark.parametrize("keep", [False, True])
def test_a_stop_leaves_the_old_model_and_keeps_what_was_trained_only_if_asked(
    ilb: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: int, keep: bool
) -> None:
    table(tmp_path)
    code, printed = ilb(*FIT, "--out", "model")
    assert code == 0, printed
    before = {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    interrupt_after(monkeypatch, chunks)
    code, printed = ilb(*FIT, "--out", "model", *(["--keep-interrupted"] if keep else []))
    assert code == 130, printed
    assert "saved in" not in printed
    assert {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} == before
    kept = tmp_path / "model.interrupted"
    assert kept.exists() == (keep and chunks > 0)  # never of step 0
    if kept.exists():
        provenance = known(LatentModel.load(kept).provenance)
        assert provenance.interrupted
        assert provenance.curve["step"]
        assert f"in {kept.name}" in printed


@pytest.mark.usefixtures("without_comparing")
def test_a_stop_that_goes_nowhere_is_not_lost(
    ilb: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code that calls Python may clear what the call raises; nothing hears of it then."""

    def lose_a_stop(chosen: Any, *arguments: Any, **options: Any) -> Any:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return chosen(*arguments, **options)

    table(tmp_path)
    monkeypatch.setattr(commands, "fit_candidate", partial(lose_a_stop, fit_candidate))
    code, printed = ilb(*FIT, "--out", "model")
    assert code == 130, printed
    assert "Stopped; nothing was written." in printed
    assert not (tmp_path / "model").exists()
    monkeypatch.setattr(commands, "score_table", partial(lose_a_stop, lambda *_, **__: None))
    assert ilb("score", "model", "logs.csv")[0] == 130


def test_a_stop_in_the_last_moment_leaves_no_traceback(tmp_path: Path) -> None:
    code = """
import os, signal
import ilb.cli.app as app
def run():
    os.kill(os.getpid(), signal.SIGINT)
    return 0
app.run = run
app.main()
"""
    done = in_a_process(code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, b"")


def test_stops_after_the_end_change_nothing(tmp_path: Path) -> None:
    code = """
import os, signal
import ilb.cli.app as app, ilb.cli.stopping as stopping
app.run = lambda: 0
ignore = stopping.ignore_signals
def ignore_and_send():
    ignore()
    os.kill(os.getpid(), signal.SIGINT)
stopping.ignore_signals = ignore_and_send
app.main()
"""
    done = in_a_process(code, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


# Workers


def test_forty_jobs_for_one_task_start_no_more_workers_than_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    @contextmanager
    def noted(backend: str, jobs: int, *_: Any) -> Iterator[None]:
        asked.append(jobs)
        yield

    found = Results(Store(tmp_path), Size(0.01))
    experiments = choose(["tab:test"])
    waves = runner.plan(experiments, found)
    monkeypatch.setattr(runner, "_workers", noted)
    monkeypatch.setattr(runner, "_attempts", lambda *_: iter(()))
    runner.run(experiments, found, jobs=4000)
    monkeypatch.setattr(runner, "plan", lambda *_: [waves[0][:1]])
    runner.run(experiments, found, jobs=4000)
    assert asked == [max(map(len, waves)), 1]


KILLED = """
import os, sys, time
from joblib import Parallel, delayed, parallel_config
from ilb_paper import runner

class Task:
    pass

def note_and_sleep(task, inputs):
    print(os.getpid(), flush=True)
    time.sleep(100)

def attempt(*arguments):
    runner.run_task = note_and_sleep
    runner.LOOK_EVERY = 0.1
    return runner._attempt(*arguments)

with parallel_config(backend="loky", n_jobs=2):
    Parallel(batch_size=1)(delayed(attempt)(os.getpid(), number, Task(), ()) for number in range(2))
"""


@pytest.mark.slow
def test_workers_end_with_their_parent_when_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(_is_alive, workers))
        parent.kill()
        began = time.monotonic()
        while any(map(_is_alive, workers)):
            assert time.monotonic() - began < 20
            time.sleep(0.1)


def _is_alive(process: int) -> bool:
    try:
        return not Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0].startswith("Z")
    except OSError:
        return False


# Seeds


@pytest.mark.parametrize("wrong", [1.5, "1", None, -1, 2**32, 10**400, np.float64(2.0), [1]])
def test_a_seed_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(SeedError, match=r"a seed is an integer from 0 to 2\^32 - 1; got"):
        as_seed(wrong)


@pytest.mark.parametrize("good", [0, 7, 2**32 - 1, np.int64(3), True])
def test_integers_of_any_library_are_seeds(good: Any) -> None:
    assert as_seed(good) == int(good)
    assert type(as_seed(good)) is int
