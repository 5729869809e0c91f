"""Every block of code in README and docs runs, and prints what the page says it prints.

A page's Python and shell blocks run in order, in one namespace and one empty directory. A `text` block below one that
prints is its output: words must be the same, numbers nearly. What would take too long is made smaller by `SMALLER`, and
blocks that can't run here say so in a comment, `<!-- not run: reason -->`.

Of shell lines, `ilb` and `python -m` run in this process. `ilb reproduce` with labels is planned (`--list`), since fits
take minutes; those of `REPRODUCED` run. `ilb serve` runs in a process of its own until the page ends. For
`make`, `pip` and `source` it is checked that what they name is there.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ilb.cli import console
from ilb.cli import run as run_the_program
from ilb.serve.metrics import Metrics
from serving import free_port

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"python", "sh", "text"}

SMALLER = {
    "ilb simulate adcb": "--patients 30 --visits 10 --test-patients 0",
    "ilb fit visits.parquet": "--recipe contexts --reward-model linear",  # README compares models
    "ilb evaluate logs.csv": "--policy 'MAB (centred)' --recipe none",  # one program instead of four
    "ilb evaluate log.parquet": "--policy Uniform",  # nothing to compile; tests/test_gain.py has the others
    "instances=100, length=200": "instances=30, length=10",
    "Size(0.1)": "Size(0.001)",
    "jobs=2": "jobs=1",
    'Player("Calibrated", OURS)': 'Player("Calibrated", "oracle")',
}
"""What a line is to be replaced by, or, for a command, what is to be added to it."""

REPRODUCED = {"fig:ATE_a"}
ADDRESS = "127.0.0.1:8000"
"""Where pages serve; here it is a port that is free."""
NOT_RUN = 6
"""Blocks with a `not run` comment, in all pages."""

FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?^ *```(?P<language>[^\n]*)\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start("code")), found["language"], found["code"], found["reason"])
        for found in FENCE.finditer(text)
    ]


BLOCKS = {page: blocks_of(page) for page in PAGES}


def runnable(page: Path) -> bool:
    return any(block.language in {"python", "sh"} for block in BLOCKS[page])


SERVERS: list[subprocess.Popen[str]] = []


@pytest.fixture
def port() -> Iterator[int]:
    """A port to serve at; who serves there is stopped at the end."""
    yield free_port()
    while SERVERS:
        with SERVERS.pop() as server:
            server.terminate()


@pytest.mark.slow  # README compares models, as a newcomer would
@pytest.mark.filterwarnings("default::ilb.errors.IlbWarning")  # a page may be warned of what it shows
@pytest.mark.parametrize(
    "page", [page for page in PAGES if runnable(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_a_page_shows_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", console.show_warning)
    monkeypatch.setattr(console.results, "_width", 80, raising=False)
    monkeypatch.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"])  # `ilb reproduce` adds to it
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block, following in zip(BLOCKS[page], [*BLOCKS[page][1:], None], strict=True):
        if block.not_run is not None or block.language == "text":
            continue
        if block.language == "python":
            source = block.code.replace(ADDRESS, f"127.0.0.1:{port}")
            for text, smaller in SMALLER.items():
                source = source.replace(text, smaller)
            # Lines of a traceback are those of the page.
            exec(compile("\n" * block.line + source, str(page), "exec"), namespace)
            printed = capsys.readouterr().out
            assert not printed or (following is not None and following.language == "text"), f"{block} prints {printed}"
        else:
            for command in commands_of(block):
                run_command(command, monkeypatch, port)
            printed = capsys.readouterr().out
        if following is not None and following.language == "text" and following.not_run is None:
            assert_same(printed, following)


def commands_of(block: Block) -> list[list[str]]:
    lines = block.code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_command(words: list[str], monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    if words[:2] == ["ilb", "serve"] and "--verify" not in words:
        serve(words[1:], port)
    elif words[0] == "ilb":
        run_ilb(words, monkeypatch)
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {words[1]}"
    elif words[:2] == ["pip", "install"]:
        assert_installable(words[-1])
    elif words[:2] == ["python", "-m"]:
        shutil.copytree(ROOT / "docs" / "results" / "reproduction", "reproduction")  # what a reproduction leaves
        monkeypatch.setattr(sys, "argv", words[2:])
        monkeypatch.delitem(sys.modules, words[2], raising=False)  # another test of this process may have loaded it
        runpy.run_module(words[2], run_name="__main__")
    else:
        assert words == ["source", ".venv/bin/activate"], f"nobody knows how to check {shlex.join(words)}"


def serve(words: list[str], port: int) -> None:
    """Start a server beside the test, and wait until it has said that it answers."""
    command = [sys.executable, "-m", "ilb", *words, "--port", str(port), "--deadline", "30"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    SERVERS.append(server)
    assert server.stdout is not None
    assert " answers at " in server.stdout.readline(), shlex.join(words)


def run_ilb(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    added = [SMALLER[" ".join(words[:3])]] if " ".join(words[:3]) in SMALLER else []
    if words[1] == "reproduce":
        labels = {word for word in words[2:] if ":" in word or word == "all"}
        added = ["--scale 0.01 --jobs 1"] if labels and labels <= REPRODUCED else ["--list"]
    monkeypatch.setattr(sys, "argv", [*words, *shlex.split(" ".join(added))])
    assert run_the_program() == 0, shlex.join(words)


def assert_installable(requirement: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, _, extra = requirement.removesuffix("]").partition("[")
    assert name in {".", project["name"]}
    assert not extra or extra in project["optional-dependencies"], requirement


def assert_same(printed: str, expected: Block) -> None:
    """Hold words against words and numbers against numbers; blank lines and trailing spaces mean nothing."""
    ours, theirs = ([line.rstrip() for line in text.splitlines() if line.strip()] for text in (printed, expected.code))
    assert [words(line) for line in ours] == [words(line) for line in theirs], (
        f"{expected} shows other output:\n{printed}"
    )
    for line, shown in zip(ours, theirs, strict=True):
        # A tenth, and a little for rounding: 1.1 may stand for 1.0.
        assert numbers(line) == pytest.approx(numbers(shown), rel=0.101, abs=0.05), f"{expected}: {line}"


def words(line: str) -> list[str]:
    return NUMBER.sub("#", line).split()


def numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for blocks in BLOCKS.values() for block in blocks if block.language not in LANGUAGES] == []


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    left_out = {
        str(block): block.not_run for blocks in BLOCKS.values() for block in blocks if block.not_run is not None
    }
    assert len(left_out) == NOT_RUN, left_out
    comments = sum(len(re.findall("^<!-- not run", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)
    assert comments == NOT_RUN, "a comment stands before no block, or gives no reason"


def test_nothing_is_made_smaller_that_no_page_shows() -> None:
    code = "\n".join(block.code for blocks in BLOCKS.values() for block in blocks)
    assert [text for text in (*SMALLER, *REPRODUCED) if text not in code] == []


def test_the_reader_of_pages_sees_blocks_and_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("words\n```python\nx = 1\n```\n<!-- not run: no cluster here -->\n```sh\ndask scheduler\n```\n")
    first, second = blocks_of(page)
    assert (first.language, first.code, first.line, first.not_run) == ("python", "x = 1\n", 2, None)
    assert (second.language, second.not_run) == ("sh", "no cluster here")


def test_output_is_held_against_the_page() -> None:
    shown = Block(PAGES[0], 0, "text", "best 'C' 1.10 ± 0.32\n", None)
    assert_same("best 'C' 1.11 ± 0.32   \n\n", shown)
    with pytest.raises(AssertionError):
        assert_same("best 'A' 1.10 ± 0.32\n", shown)
    with pytest.raises(AssertionError):
        assert_same("best 'C' 1.30 ± 0.32\n", shown)


def test_every_test_that_a_page_names_is_there() -> None:
    page = (ROOT / "docs" / "what-can-go-wrong.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    there = {name for file in (ROOT / "tests").glob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 40
    assert named <= there, named - there


def test_what_the_guide_of_the_service_starts_and_watches_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = ROOT / "docs" / "serve.md"
    text = page.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["ilb", "serve", "--help"])
    run_the_program()
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    unit, container = (block.code for block in BLOCKS[page] if block.not_run is not None)
    for code in (unit, container.split("ENTRYPOINT", maxsplit=1)[1]):
        options = set(re.findall(r"--[a-z-]+", code))
        assert {"--store", "--keys", "--host"} <= options <= known
    counted = Metrics().text().decode()
    named = set(re.findall(r"`(ilb_\w+)`", text))
    assert len(named) > 8
    assert {name for name in named if f"# TYPE {name} " not in counted} == set()
    checker = shutil.which("systemd-analyze")
    if checker is not None:
        file = tmp_path / "ilb.service"
        file.write_text(unit.replace("/opt/ilb/bin/ilb", "/bin/true"))
        done = subprocess.run([checker, "verify", str(file)], capture_output=True, text=True, check=False)
        assert "ilb.service" not in done.stderr, done.stderr
