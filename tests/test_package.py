"""What `import ilb` gives, and when."""

import subprocess
import sys

import pytest

import ilb
from ilb import api


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_command_line_is_there_before_the_library():
    heavy = "{'jax', 'sklearn', 'pandas', 'matplotlib', 'scipy'}"
    assert run(f"import sys, ilb.cli; print({heavy} & set(sys.modules))").strip() == "set()"


def test_names_are_loaded_when_they_are_asked_for():
    for name in api.__all__:
        assert getattr(ilb, name) is getattr(api, name)
    assert set(api.__all__) <= set(dir(ilb))
    assert ilb.environments.draw_world is not None


def test_a_star_imports_the_same_names():
    names = run("from ilb import *; print(*sorted(name for name in dir() if not name.startswith('__')))").split()
    assert names == sorted(set(api.__all__) - {"__version__"})


@pytest.mark.parametrize("name", ["nonsense", "_hidden", "fits"])
def test_an_unknown_name_is_said_to_be_unknown(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(ilb, name)


def test_every_public_name_is_documented():
    assert all(getattr(ilb, name).__doc__ for name in api.__all__)
