"""One self-contained HTML page: headings, paragraphs, tables and figures, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from ilb.files import write_whole

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1a1a1a; }
body { max-width: 62rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; }
p.lead { color: #444; font-size: 1.05rem; margin-top: 0; }
table { border-collapse: collapse; font-size: .88rem; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th { text-align: right; border-bottom: 2px solid #333; padding: .3rem .7rem; vertical-align: bottom; }
td { text-align: right; border-bottom: 1px solid #e3e3e3; padding: .28rem .7rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tr.best td { background: #eef5fb; font-weight: 600; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .88rem; }
footer { margin-top: 3rem; color: #777; font-size: .82rem; border-top: 1px solid #ddd; padding-top: .6rem; }
.scroll { overflow-x: auto; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: #0072b2; font-size: .92rem; }
code { font-size: .88em; color: #555; }
div.verdict { border-left: 4px solid #999; padding: .15rem .9rem; margin: .8rem 0; }
div.verdict p { margin: .2rem 0; }
div.verdict.good { border-color: #009e73; }
div.verdict.bad { border-color: #d55e00; }
div.verdict b { font-weight: 650; }
div.verdict small { color: #555; display: block; }
nav { columns: 2; font-size: .92rem; }
nav a { display: block; color: #0072b2; text-decoration: none; }
"""


@dataclass
class Page:
    """A page in the making; text is escaped, figures are SVG elements."""

    title: str
    lead: str = ""
    parts: list[str] = field(default_factory=list)
    style: str = STYLE

    def heading(self, text: str, label: str = "") -> None:
        """Begin a section; a label is shown beside it and can be linked to."""
        code = f" <code>{escape(label)}</code>" if label else ""
        anchor = f' id="{escape(label)}"' if label else ""
        self.parts.append(f"<h2{anchor}>{escape(text)}{code}</h2>")

    def contents(self, sections: Sequence[tuple[str, str]]) -> None:
        """Link to sections by (label, text)."""
        links = "".join(f'<a href="#{escape(label)}">{escape(text)}</a>' for label, text in sections)
        self.parts.append(f"<nav>{links}</nav>")

    def verdict(self, kind: str, title: str, text: str, evidence: Sequence[str], remark: str = "") -> None:
        """Add a judgement (kind: good, bad or open) with what it rests on."""
        lines = "".join(f"<small>{escape(line)}</small>" for line in evidence)
        note = f"<p>{escape(remark)}</p>" if remark else ""
        self.parts.append(
            f'<div class="verdict {kind}"><p><b>{escape(title)}</b> {escape(text)}</p>{lines}{note}</div>'
        )

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(f"<p>{escape(text)}</p>")

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[int] = (), folded: str = ""
    ) -> None:
        """Add a table; the rows numbered in `best` stand out; `folded` is what to click on to see it."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join(
            f"<tr{' class=best' if number in best else ''}>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in row)
            + "</tr>"
            for number, row in enumerate(rows)
        )
        table = f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
        if folded:
            table = f"<details><summary>{escape(folded)}</summary>{table}</details>"
        self.parts.append(table)

    def figure(self, svg: str, caption: str) -> None:
        """Add a figure with its caption, if it has one."""
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        self.parts.append(f"<figure>{svg}{below}</figure>")

    def note(self, text: str) -> None:
        """Add a paragraph that explains, in a softer tone."""
        self.parts.append(f'<p class="note">{escape(text)}</p>')

    def figures(self, drawn: Sequence[tuple[str, str]]) -> None:
        """Add figures with their captions, side by side where there is room."""
        each = "".join(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in drawn)
        self.parts.append(f'<div class="pair">{each}</div>')

    def text(self, footer: str) -> str:
        """Give the page as one text, to be written to a file."""
        lead = f'<p class="lead">{escape(self.lead)}</p>' if self.lead else ""
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{self.style}</style></head>'
            f"<body><h1>{escape(self.title)}</h1>{lead}{''.join(self.parts)}"
            f"<footer>{escape(footer)}</footer></body></html>\n"
        )

    def write(self, path: Path, footer: str) -> None:
        """Write the page as one file."""
        write_whole(path, self.text(footer))
