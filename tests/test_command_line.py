"""The command line as a user meets it."""

import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ilb.cli.console as console_module
from ilb import LatentModel
from ilb.cli import run as run_command
from ilb.cli.commands import _verdict
from ilb.cli.console import choice_table, layout, progress_bar, show_warning, width_of
from ilb.cli.stopping import interruptible, received
from ilb.estimates import Estimate
from ilb.offline.ahead import AheadScores
from ilb.offline.encoders import ENCODER_RECIPES, UNTRAINED_RECIPES
from ilb.offline.rewards import REWARD_RECIPES
from ilb_paper.command import layout_comparison
from narrowed import known


def in_a_process(*arguments: Any, cwd: Path) -> str:
    """Run a command as a user does."""
    environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    command = [sys.executable, "-m", "ilb", *map(str, arguments)]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, cwd=cwd, env=environment, check=True, **options).stdout


@pytest.fixture
def ilb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process, as `main` does it, and give back all that it printed."""

    def run(*arguments: Any, cwd: Path, expect: int = 0) -> str:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["ilb", *map(str, arguments)])
        monkeypatch.setattr(warnings, "showwarning", show_warning)
        for console in (console_module.results, console_module.notes):
            monkeypatch.setattr(console, "_width", 200, raising=False)
        code = run_command()
        printed = capsys.readouterr()
        assert code == expect, printed.out + printed.err
        return printed.out + (printed.err if expect else "")

    return run


COLUMNS = ("--instance", "instance", "--time", "time", "--action", "action", "--reward", "reward")


@pytest.fixture
def folder(folder_of_module: Path) -> Path:
    """A folder with simulated logs, in it a model fitted to them."""
    return folder_of_module


@pytest.fixture(scope="module")
def folder_of_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    sizes = ("--instances", 60, "--test-instances", 80, "--length", 40, "--latent-dim", 2, "--actions", 4)
    output = in_a_process("simulate", "synthetic", "--out", "logs.parquet", *sizes, cwd=folder)
    assert "2,400 rows of 60 instances (40 each)" in output
    named = ("--recipe", "contexts", "--reward-model", "person")  # README compares more
    output = in_a_process("fit", "logs.parquet", *COLUMNS, *named, "--out", "model", cwd=folder)
    assert "one step ahead, 12 test instances" in output
    assert "> contexts 2" in output  # what was typed, and no name of a class
    assert "PlainContexts" not in output
    return folder


def test_simulate_fit_and_score_follow_one_another(ilb: Callable[..., str], folder: Path) -> None:
    arguments = ("model", "logs.test.parquet", "--train", "logs.parquet", "--world", "logs.world.json", "--json")
    scores = json.loads(ilb("score", *arguments, cwd=folder))
    assert set(scores) == {"this model", "oracle", "mean contexts", "best on average"}
    assert scores["this model"]["affine_r2"]["value"] > scores["mean contexts"]["affine_r2"]["value"] - 0.05
    assert scores["oracle"]["best_action"]["value"] > 0.7 > scores["best on average"]["best_action"]["value"]
    assert 0 < scores["this model"]["reward_r2"]["standard_error"] < 0.2
    assert "affine_r2" not in scores["best on average"]


def test_one_instance_is_written_in_the_singular_and_scored_without_an_error(
    ilb: Callable[..., str], folder: Path
) -> None:
    sizes = ("--instances", 1, "--test-instances", 1, "--length", 9, "--latent-dim", 2, "--actions", 4)
    output = ilb("simulate", "synthetic", "--out", "one.csv", *sizes, cwd=folder)
    assert "wrote one.csv: 9 rows of 1 instance (9 each), 2 context columns, 4 actions" in output
    output = ilb("score", "model", "one.test.csv", cwd=folder)
    assert "one step ahead, 1 instance " in output
    assert "whole histories, 1 instance " in output
    assert re.search(r"R² of rewards +-?\d\.\d{3} *\n", output), output


def test_every_recipe_is_listed_with_what_it_is(ilb: Callable[..., str], folder: Path) -> None:
    lines = ilb("fit", "--recipes", cwd=folder).splitlines()
    listed = [line for line in lines if line.startswith("  ")]
    assert [line.split()[0] for line in listed] == [*UNTRAINED_RECIPES, *ENCODER_RECIPES, *REWARD_RECIPES]
    assert all(len(line.split()) > 5 for line in listed)


def test_without_a_world_only_what_can_be_known_is_scored(ilb: Callable[..., str], folder: Path) -> None:
    scores = json.loads(ilb("score", "model", "logs.test.parquet", "--json", cwd=folder))
    assert set(scores) == {"this model"}
    assert set(scores["this model"]) == {"reward_r2"}


def test_the_saved_model_remembers_its_scores_and_columns(folder: Path) -> None:
    model = LatentModel.load(folder / "model")
    assert known(model.schema).instance == "instance"
    assert [column.name for column in known(model.schema).context] == ["x1", "x2"]
    scores = known(model.provenance).scores
    assert set(scores["one step ahead"]) == {"this model", "action mean", "own level"}
    assert known(model.provenance).rows == 2400  # fitted on everyone after scoring
    assert sum(row["chosen"] for row in known(model.provenance).choice) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "nowhere.csv", *COLUMNS, "--out", "m"), "nowhere.csv"),
        (("fit", "logs.parquet", *COLUMNS[:-1], "rewards", "--out", "m"), "no column 'rewards'.*'reward'"),
        (
            ("fit", "logs.parquet", *COLUMNS, "--recipe", "magic", "--out", "m"),
            "with-contexts, paper, vae; got 'magic'",
        ),
        (("fit", "logs.parquet", *COLUMNS, "--latent-dim", 9, "--out", "m"), "--latent-dim 9 with 2 columns"),
        (("fit", "nowhere.csv", *COLUMNS, "--latent-dim", -1, "--out", "m"), "--latent-dim must be at least 1; got -1"),
        (("evaluate", "nowhere.csv", *COLUMNS, "--latent-dim", 0), "--latent-dim must be at least 1; got 0"),
        (
            ("fit", "nowhere.csv", *COLUMNS, "--recipe", "contexts", "--latent-dim", 2, "--out", "m"),
            "--recipe contexts trains none; got --latent-dim 2. Leave it out",
        ),
        (
            ("evaluate", "nowhere.csv", *COLUMNS, "--recipe", "none", "--latent-dim", 2),
            "--recipe none trains none; got --latent-dim 2. Leave it out",
        ),
        (("score", "logs.parquet", "logs.parquet"), "not a saved model"),
        (("score", "model", "logs.parquet", "--world", "logs.test.parquet"), "not a world"),
        (
            ("simulate", "synthetic", "--out", "x.csv", "--noise", "cauchy"),
            "gaussian, laplace, uniform; got 'cauchy'",
        ),
        (
            ("simulate", "synthetic", "--out", "x.parquet", "--context-dim", 3),
            "--context-dim must be at least --latent-dim 5; got 3",
        ),
        (("simulate", "sinthetic", "--out", "x.csv"), "there are adcb, synthetic.*Did you mean 'synthetic'"),
        (("simulate", "synthetic", "--out", "x.json"), "neither .csv nor .parquet"),
        (("simulate", "synthetic", "--out", "logs.parquet/x.csv"), "needs a directory.*logs.parquet is a file"),
        (("fit", "nowhere.csv", *COLUMNS, "--out", "logs.parquet"), "needs a directory.*logs.parquet is a file"),
        (("fit", "nowhere.csv", *COLUMNS, "--out", "."), "holds other files and no model"),
        (("demo", "--out", "logs.parquet"), "needs a directory.*logs.parquet is a file"),
        (("reproduce", "fig:ATE_a", "--out", "logs.parquet/x/y"), "needs a directory.*logs.parquet is a file"),
        (("reproduce", "fig:ATE_a", "--cluster", "tcp://there"), "needs --backend dask or --backend ray"),
        (("reproduce", "fig:ATE_a", "--backend", "nonsense"), "loky, dask, ray; got 'nonsense'"),
        (("reproduce", "fig:syntetic"), "Did you mean 'fig:synthetic'"),
        (("reproduce", "--list", "fig:syntetic"), "Did you mean 'fig:synthetic'"),
    ],
)
def test_a_wrong_input_gets_one_clear_line_and_no_traceback(
    ilb: Callable[..., str], folder: Path, arguments: tuple[Any, ...], message: str
) -> None:
    output = ilb(*arguments, cwd=folder, expect=2)
    assert "Traceback" not in output
    assert re.search(message, output.replace("\n", " ")), output
    assert not (folder / "m").exists()
    assert "to run" not in output


def test_a_table_and_a_world_that_do_not_belong_together_are_refused(ilb: Callable[..., str], folder: Path) -> None:
    ilb(
        "simulate",
        "synthetic",
        "--out",
        "other.csv",
        "--test-instances",
        3,
        "--length",
        5,
        "--latent-dim",
        2,
        cwd=folder,
    )
    output = ilb("score", "model", "logs.test.parquet", "--world", "other.world.json", cwd=folder, expect=2)
    assert "do not belong together" in output.replace("\n", " ")


def test_the_training_table_is_not_scored_as_the_test_table(ilb: Callable[..., str], folder: Path) -> None:
    output = ilb("score", "model", "logs.parquet", "--world", "logs.world.json", cwd=folder, expect=2)
    assert "rewards of the same instances differ" in output.replace("\n", " ")


def test_interrupting_a_fit_leaves_the_model_that_was_there(folder: Path) -> None:
    shutil.copytree(folder / "model", folder / "kept", dirs_exist_ok=True)
    before = (folder / "kept" / "manifest.json").read_bytes()
    command = [sys.executable, "-m", "ilb", "fit", "logs.parquet", *COLUMNS]
    command += ["--latent-dim", "2", "--recipe", "paper", "--test-share", "0", "--out", "kept"]
    environment = {**os.environ, "COLUMNS": "200", "FORCE_COLOR": "1"}
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    shown, began = b"", time.monotonic()
    while not re.search(rb"log-likelihood .{0,9}-?\d", shown):
        assert time.monotonic() - began < 120
        assert process.poll() is None, shown
        shown += process.stderr.read() or b""
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"saved" not in output
    assert (folder / "kept" / "manifest.json").read_bytes() == before


def test_an_interrupt_that_a_callback_swallows_comes_again() -> None:
    class Swallows:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def lose_one_and_wait() -> None:
        Swallows()
        time.sleep(30)

    with interruptible(signal.SIGINT), pytest.raises(KeyboardInterrupt):
        lose_one_and_wait()
    assert received.pop() == signal.SIGINT


def test_a_second_signal_does_not_cut_the_tidying_up_short() -> None:
    with interruptible(signal.SIGINT):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # raises nothing
    assert [received.pop()] == [signal.SIGINT]
    assert not received


@pytest.mark.parametrize(("wrote", "said"), [(False, "nothing was written"), (True, "reported as written")])
def test_a_stop_says_whether_something_was_written(
    ilb: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrote: bool, said: str
) -> None:
    def interrupted(table: Any, columns: Any, out: Path, **options: Any) -> None:
        if wrote:
            out.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("ilb.cli.commands.fit_table", interrupted)
    assert said in ilb("fit", "logs.csv", *COLUMNS, "--out", "model", cwd=tmp_path, expect=130)


def test_numbers_of_candidates_are_not_cut_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module.results, "_width", 80, raising=False)
    name = "tied beside contexts 2, 4 hidden, linear moment with time, and more of that kind"
    row = {"candidate": name, "r2": -0.123, "log_likelihood": -1.234, "behind": -0.045, "standard_error": 0.067}
    with console_module.results.capture() as captured:
        rows = choice_table([{**row, "reference": False, "chosen": False}])
        console_module.results.print(layout("next rewards", *rows))
    shown = captured.get()
    assert "…" not in shown
    assert all(number in shown for number in ("-0.123", "-1.234", "-0.045±0.067"))
    assert " ".join(re.sub(r"[-0-9.±]{5,}", "", shown).split()).endswith(name)


def test_no_letter_of_a_long_name_is_lost_in_80_columns() -> None:
    """Names wrap, within a word if it must be, and numbers stay whole."""
    name, number = "Methylprednisolon" * 2, "-0.0899 to 0.681"
    console = Console(file=io.StringIO(), width=80)
    header = ["Patienten-Nr", "action", "expected", "95 % interval", "best", "misfit", "rounds"]
    console.print(layout("people", header, [["0001", name, "0.123", number, "0.97", "0.02", "> 64"]], words=2))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert number in printed
    assert "…" not in printed
    assert "".join(re.findall(r"[A-Za-z]{4,}", printed.split("─ ")[1])) == name


def test_a_bar_of_what_was_never_trained_is_not_left_behind() -> None:
    for reports, said in ((0, ""), (1, "Fitting")):
        written = io.StringIO()
        with progress_bar("Fitting", Console(file=written, force_terminal=False)) as report:
            for done in range(1, reports + 1):
                report(done, reports, 0.5)
        assert written.getvalue().strip()[:7] == said


def test_a_verdict_claims_no_more_than_the_test_people_show() -> None:
    def verdict(value: float, error: float, count: int) -> str:
        unknown = Estimate(0.0, 0.0, count)
        scores = AheadScores(unknown, unknown, unknown, unknown)
        return _verdict({"own level": Estimate(value, error, count)}, {"own level": scores})

    same = "The model is the plain reference own level itself: nothing else that was tried is worth its complexity."
    assert verdict(0.0, 0.0, 20) == verdict(0.0, math.nan, 1) == same
    assert "can't be told from 1 test instance (log-likelihood +0.500 a reward)" in verdict(0.5, math.nan, 1)
    assert "can't be told from 9 test instances" in verdict(0.5, 0.1, 9)
    assert "better than own level" in verdict(0.5, 0.1, 10)
    assert "can't be told from own level on 10 test instances" in verdict(0.1, 0.1, 10)
    assert "WORSE" in verdict(-0.5, 0.1, 10)


def test_scores_of_the_paper_and_ours_can_be_read_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for console in (console_module.results, console_module.notes):
        monkeypatch.setattr(console, "_width", 80, raising=False)
    header = ["model", "L", *(f"{score}, {whose}" for score in ("MCC", "R²", "% best") for whose in ("paper", "ours"))]
    header += ["R² of z, affine", "% best, all prefixes", "fits", "CPU s a fit"]
    row = ["LVM (released width)", "2", "0.89", "0.73 ± 0.08", "0.78", "-0.381 ± 0.087", "84", "25.0 ± 13.1"]
    table = layout_comparison("Fits", header, [[*row, "0.749 ± 0.044", "-", "10", "3.2"]])
    assert [column.header for column in table.columns][-2:] == ["R²", "% best"]
    assert width_of(table) <= 80
    with console_module.results.capture() as captured:
        console_module.results.print(table)
    assert "0.78 / -0.381±0.087" in captured.get()
    assert "84 / 25.0±13.1" in captured.get()


def test_reproduce_writes_a_report_and_goes_on_where_it_was(ilb: Callable[..., str], tmp_path: Path) -> None:
    command = ("reproduce", "fig:ATE_a", "fig:z_q_dist_adcb", "--scale", "0.001", "--jobs", "1")
    first = ilb(*command, cwd=tmp_path)
    assert "1 task to run, 0 stored before." in first
    assert "holds" in first
    assert "Last: latent sample" in first
    assert "nothing about the paper" in first
    page = (tmp_path / "reproduction" / "index.html").read_text()
    assert 'id="fig:ATE_a"' in page
    assert "0 tasks to run, 1 stored before." in ilb(*command, cwd=tmp_path)


def test_reproduce_lists_what_there_is(ilb: Callable[..., str], tmp_path: Path) -> None:
    listed = ilb("reproduce", "--list", cwd=tmp_path)
    assert "fig:emission_noise" in listed
    assert "0 of" in listed
    listed = ilb("reproduce", "--list", "fig:ATE_a", "fig:z_q_dist_adcb", cwd=tmp_path)
    assert "fig:emission_noise" not in listed
    assert re.search(r"0 of 1 .*0 of 1 .*together .*0 of 1 ", listed, re.DOTALL)


@pytest.mark.parametrize("labels", [(), ("fig:nothing",)])
def test_reproduce_names_the_labels_when_it_gets_none_that_it_knows(
    ilb: Callable[..., str], tmp_path: Path, labels: tuple[str, ...]
) -> None:
    said = ilb("reproduce", *labels, cwd=tmp_path, expect=2)
    assert "table:fit_results" in said
    assert "--list" in said
