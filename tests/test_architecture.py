"""The arrows of docs/architecture.md, read from the imports."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ilb"

MAY_NOT_IMPORT = {
    "offline": {"online", "simulation", "environments", "cli", "experiments", "plots", "report"},
    "online": {"offline", "simulation", "cli", "experiments", "plots", "report"},
    "environments": {"offline", "online", "cli", "experiments", "plots", "report"},
    "simulation": {"offline", "cli", "experiments", "plots", "report"},
    "logs": {"offline", "online", "environments", "simulation", "model", "networks", "cli"},
    "model": {"offline", "online", "environments", "simulation", "cli"},
    "networks": {"offline", "online", "environments", "simulation", "model", "cli"},
    "storage": {"offline", "online", "environments", "simulation", "cli"},
    "priors": {"offline", "online", "environments", "simulation", "cli"},
    "recurrent": {"offline", "online", "environments", "simulation", "cli"},
    "theory": {"offline", "online", "environments", "simulation", "cli"},
    "live": {"offline", "environments", "simulation", "cli", "experiments", "plots", "report"},
    "history": {"offline", "online", "environments", "simulation", "model", "networks", "cli"},
    "plots": {"offline", "online", "environments", "simulation", "model", "networks", "cli"},
}


def imported_parts(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("ilb.")}


def files_of(part: str) -> list[Path]:
    return sorted((SOURCE / part).rglob("*.py")) if (SOURCE / part).is_dir() else [SOURCE / f"{part}.py"]


@pytest.mark.parametrize(
    "part", [part for part in MAY_NOT_IMPORT if (SOURCE / part).exists() or (SOURCE / f"{part}.py").exists()]
)
def test_no_arrow_turns_round(part):
    for path in files_of(part):
        wrong = imported_parts(path) & MAY_NOT_IMPORT[part]
        assert not wrong, f"{path.relative_to(SOURCE)} imports {', '.join(sorted(wrong))}"


def test_the_import_reader_sees_imports():
    assert {"model", "offline"} <= imported_parts(SOURCE / "offline" / "fit.py")


def test_relative_imports_are_not_used_so_that_nothing_escapes_the_reader():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def test_every_module_stays_within_300_lines():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, path
