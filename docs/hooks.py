"""What the site needs beyond mkdocs: README as its home, the API reference, doctests as code, formulas as MathML."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from html import unescape
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import ilb

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
NO_REFERENCE = {"cli", "version"}


# Pages that are not in docs/ ------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the reference to the navigation."""
    pages = [{room: f"api/{room}.md"} for room in _rooms()]
    assert config.nav is not None
    config.nav.insert(2, {"API reference": [{"Public names": "api/index.md"}, *pages]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README, the project's pages, and the reference."""
    pages = {"index.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    pages |= {name: (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    # These three lie above docs/, the site's root.
    pages = {name: text.replace("](docs/", "](") for name, text in pages.items()}
    pages["index.md"] = _link_files_outside(pages["index.md"])
    pages["api/index.md"] = _public_names()
    pages |= {f"api/{room}.md": _reference(room) for room in _rooms()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def _link_files_outside(text: str) -> str:
    """Name files that are not part of the site instead of linking them."""
    return re.sub(r"\[([^]]+)\]\((CITATION\.cff|LICENSE)\)", r"\1", text)


def _rooms() -> list[str]:
    """Find the packages and modules of `ilb`, then `ilb_paper`; the command line explains itself with --help."""
    children = sorted((SOURCE / "ilb").iterdir(), key=lambda path: path.stem)
    found = [path.stem for path in children if (path / "__init__.py").is_file() or path.suffix == ".py"]
    return [*(f"ilb.{name}" for name in found if not name.startswith("_") and name not in NO_REFERENCE), "ilb_paper"]


def _reference(room: str) -> str:
    """Show every module of a room, from its docstrings; the room itself is the title."""
    path = SOURCE / Path(*room.split("."))
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    names = [".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for file in files]
    shown = [name for name in names if not any(part.startswith("_") for part in name.split(".")[1:])]
    levels = (1 if name == room else 2 for name in shown)
    return "\n\n".join(
        f"::: {name}\n    options:\n      heading_level: {level}" for name, level in zip(shown, levels, strict=True)
    )


def _public_names() -> str:
    """List what `import ilb` gives, by room: each name with its first line and a link to the rest."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name in ilb.__all__:
        found = getattr(ilb, name)
        if inspect.ismodule(found) or name.startswith("_"):
            continue
        home = f"{found.__module__}.{found.__qualname__}"
        first = (inspect.getdoc(found) or "").splitlines()[0].replace("|", "\\|")
        rooms[".".join(home.split(".")[:2])].append(f"| [`{name}`][{home}] | {first} |")
    lines = ["# Public names", "", "What `import ilb` gives. A name is loaded at its first use."]
    for room in sorted(rooms, key=lambda room: (room == "ilb.errors", room)):
        lines += ["", f"## {room}", "", "| name | what it is |", "|---|---|", *rooms[room]]
    return "\n".join(lines)


# How docstrings are shown ---------------------------------------------------------------------------------------------


DOCTEST = re.compile(r"^>>> .+?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Fence the examples in docstrings: bare `>>>` would be quotations in Markdown. Leave out what says nothing."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Drop `self.x = x` where neither a type nor a word goes with it."""
        for name, member in list(cls.members.items()):
            if member.is_attribute and member.annotation is None and member.docstring is None:
                del cls.members[name]

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"\n```pycon\n\g<0>\n```", obj.docstring.value)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn formulas into MathML, which browsers draw by themselves."""
    del page, config, files
    return re.sub(
        r'<(span|div) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>',
        lambda found: convert(unescape(found[2]), display="block" if found[1] == "div" else "inline"),
        html,
        flags=re.DOTALL,
    )
