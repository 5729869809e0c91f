"""What `import ilb` gives, and when."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ilb

STUB = Path(ilb.__file__).with_suffix(".pyi")
# Read a second time, and not with lazy_loader's reader: name -> the module that defines it ("" for a sub-package).
PUBLIC = {
    alias.name: node.module or ""
    for node in ast.parse(STUB.read_text()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_the_command_line_is_there_before_the_library() -> None:
    heavy = "{'jax', 'sklearn', 'pandas', 'matplotlib', 'scipy', 'numpy'}"
    assert run(f"import sys, ilb.cli; print({heavy} & set(sys.modules))").strip() == "set()"


def test_help_does_not_wait_for_jax() -> None:
    asked = "import sys; sys.argv[1:] = ['--help']; from ilb.cli import run; run(); print('jax' in sys.modules)"
    assert run(asked).split()[-1] == "False"


def test_names_are_loaded_when_they_are_asked_for() -> None:
    before, after = run("import sys, ilb; print('jax' in sys.modules); ilb.fit; print(*sys.modules)").splitlines()
    assert before == "False"
    assert "jax" in after.split()
    # Half of the time to load what fits would go into these, which few fits need.
    assert not {"sklearn", "pandas", "matplotlib", "scipy.stats"} & set(after.split())


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_that_of_the_stub_and_is_documented(name: str) -> None:
    found = getattr(ilb, name)
    home = sys.modules[f"ilb.{PUBLIC[name] or name}"]
    assert found is (getattr(home, name) if PUBLIC[name] else home)
    assert found.__doc__


def test_names_are_shown_before_they_are_loaded() -> None:
    assert run("import ilb; print(*dir(ilb))").split() == sorted(PUBLIC)


def test_a_star_imports_the_same_names() -> None:
    names = run("from ilb import *; print(*[name for name in dir() if not name.startswith('__')])").split()
    assert names == sorted(set(PUBLIC) - {"__version__"})


def test_sub_packages_lead_on() -> None:
    assert run("import ilb; print(ilb.environments.draw_world.__name__)").strip() == "draw_world"
    assert isinstance(ilb.environments, ModuleType)


def test_type_checkers_see_each_name_as_meant_for_others() -> None:
    """Without `as`, a name imported by a stub is private to it."""
    for node in ast.parse(STUB.read_text()).body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            assert alias.asname == alias.name


@pytest.mark.parametrize("name", ["nonsense", "_hidden", "fits", "api"])
def test_an_unknown_name_is_said_to_be_unknown(name: str) -> None:
    with pytest.raises(AttributeError, match=f"No ilb attribute {name}"):
        getattr(ilb, name)
