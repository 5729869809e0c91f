"""The arrows of docs/architecture.md, read from the imports."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ilb"

RIM = {"cli", "client", "plots", "pages", "serve", "trust"}
MAY_NOT_IMPORT = {
    "logs": {"models", "networks", "offline", "online", "environments", "simulation", "live", *RIM},
    "networks": {"models", "offline", "online", "environments", "simulation", "live", *RIM},
    "models": {"offline", "online", "environments", "simulation", "live", *RIM},
    "theory": {"offline", "online", "environments", "simulation", "live", *RIM},
    "history": {"models", "networks", "offline", "online", "environments", "simulation", "live", *RIM},
    "offline": {"online", "environments", "simulation", "live", *RIM},
    "online": {"offline", "simulation", "live", *RIM},
    "environments": {"offline", "online", "live", *RIM},
    "simulation": {"offline", "live", *RIM},
    "live": {"offline", "environments", "simulation", *RIM},
    "client": {"logs", "networks", "models", "offline", "online", "environments", "simulation", "live", *RIM}
    - {"client", "serve"},
    "trust": {"cli", "plots", "pages", "serve"},
    "serve": {"client", "offline", "environments", "simulation", "cli", "plots", "pages", "trust"},
    "pages": {"networks", "offline", "online", "environments", "simulation", "live", "serve", "client", "cli"},
    "plots": {"models", "networks", "offline", "online", "environments", "simulation", "live", "serve", "trust", "cli"},
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


@pytest.mark.parametrize("part", MAY_NOT_IMPORT)
def test_no_arrow_turns_round(part: str) -> None:
    for path in files_of(part):
        wrong = imported_parts(path) & MAY_NOT_IMPORT[part]
        assert not wrong, f"{path.relative_to(SOURCE)} imports {', '.join(sorted(wrong))}"


def test_the_import_reader_sees_imports() -> None:
    assert {"models", "offline"} <= imported_parts(SOURCE / "offline" / "fit.py")


def test_the_library_does_not_know_the_study_of_the_paper_but_for_the_command_that_starts_it() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        mentions = [node for node in ast.walk(ast.parse(path.read_text())) if _imports_study(node)]
        assert not mentions or path == SOURCE / "cli" / "app.py", path


def _imports_study(node: ast.AST) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.split(".")[0] == "ilb_paper" for name in names)


def test_relative_imports_are_not_used_so_that_nothing_escapes_the_reader() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def test_every_module_has_its_place_in_the_tree_of_the_page_and_nothing_else_has() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page[page.index("```text\nsrc/ilb/") :].split("```")[1]
    named = Counter(re.findall(r"\b(\w+\.py)\b", tree))
    there = Counter(path.name for path in SOURCE.parent.rglob("*.py") if path.parent.name != "catalogue")
    there["__init__.py"] = named["__init__.py"]  # those of the packages are named where they hold something
    assert named - there == Counter()
    assert there - named == Counter()
