"""Damaged models, saved people and tables, and calls that can't be: refused in our words, or right.

`make bench-hostile` tries more of the same, and by `ARGS='--seconds 3600'` for an hour.
"""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.hostile import CALLS, TARGETS, Victim, attempt, make_victim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def victim() -> Victim:
    return make_victim()


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_damaged_is_refused_in_our_words_or_right(
    name: str, victim: Victim, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    outcomes: Counter[str] = Counter()

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False))
    def run(rng: random.Random) -> None:
        outcomes[TARGETS[name](rng, victim, folder)] += 1

    run()
    for seed in range(200):
        outcomes[attempt(name, seed, victim, folder)] += 1
    # A target that only ever refuses, or never does, tests nothing.
    assert set(outcomes) == {"refused", "survived"}
    assert min(outcomes.values()) >= 10


def test_calls_that_can_not_be_are_refused_in_our_words() -> None:
    """In a process of its own, for tests check the types of arguments before a call reaches us."""
    command = [sys.executable, "-m", "benchmarks.hostile", "--cases", "3"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    counts = {line[:16].strip(): line[16:].split() for line in done.stdout.splitlines()}
    assert counts["calls"] == [str(len(CALLS)), str(len(CALLS)), "0", "0"], done.stdout + done.stderr
    assert done.returncode == 0
