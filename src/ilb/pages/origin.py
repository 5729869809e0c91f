"""The sections of a report on where it comes from: the data, the choice of model, how it was made."""

from __future__ import annotations

import platform
from datetime import datetime
from html import escape
from importlib import metadata

import numpy as np

from ilb.logs import Logs
from ilb.logs.columns import ClockColumn, NumericColumn
from ilb.models.latent import LatentModel
from ilb.pages.contents import MOST_ROWS, TITLES
from ilb.pages.page import Page
from ilb.plots.portraits import (
    draw_histogram,
)


def the_data(page: Page, logs: Logs) -> None:
    """Tell what the table holds."""
    schema = logs.schema
    page.heading(TITLES["data"], "data")
    when = f", in the order of “{schema.time}”" if schema.time else ""
    page.paragraph(
        f"Each row is one occasion{when}: “{schema.instance}” says who, “{schema.action}” what was done, and "
        f"“{schema.reward}” what came of it; larger is taken to be better."
    )
    rewards = logs.reward[logs.rewarded].astype(np.float64)
    figures = [draw_histogram(rewards, schema.reward, "how rewards are distributed")] if len(rewards) else []
    rows = logs.lengths.astype(np.float64)
    if rows.min() < rows.max():
        figures.append(draw_histogram(rows, "rows of a person", "how many rows people have", whole=True))
    page.parts.append(f'<div class="pair">{"".join(f"<figure>{svg}</figure>" for svg in figures)}</div>')
    if not schema.context:
        page.paragraph("There are no context columns: a person is known by the rewards alone.")
        return
    table = []
    for column, block in schema.blocks(logs.context):
        own = _own_share(block.astype(np.float64), logs)
        categories = "category" if len(column.labels) == 1 else "categories"
        kind = f"{len(column.labels)}\N{NO-BREAK SPACE}{categories}" if column.labels else "number"
        scaling = ""
        if isinstance(column, NumericColumn | ClockColumn):  # of the values that are there
            scaling = f"{column.mean:.4g}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{column.std:.3g}"
        missing = float(np.mean(column.missing(block)))
        table.append([column.name, kind, scaling or "-", f"{missing:.1%}" if missing else "-", f"{own:.0%}"])
    page.table(["column", "kind", "mean ± std", "missing", "between people"], table[:MOST_ROWS])
    left = f" {len(table) - MOST_ROWS} more columns are not shown." if len(table) > MOST_ROWS else ""
    page.note(
        "“Between people” is the share of a column's variation that is there between people rather than from row to "
        f"row: 100 % never changes within a person, and little says little about who it is.{left}",
    )


def _own_share(block: np.ndarray, logs: Logs) -> float:
    sums = np.zeros((logs.instances, block.shape[1]))
    np.add.at(sums, logs.instance, block)
    means = sums / np.maximum(logs.lengths, 1)[:, None]
    total = float(np.var(block, axis=0).sum())
    return float(np.var(means[logs.instance], axis=0).sum()) / total if total > 0 else 0.0


def the_choice(page: Page, model: LatentModel) -> None:
    """Tell which models were compared, and what was taken."""
    page.heading(TITLES["choice"], "choice")
    made = model.provenance
    for note in () if made is None else made.notes:
        page.paragraph(note[:1].upper() + note[1:])
    if made is None or not made.choice:
        page.paragraph("All parts of the model were named when it was fitted, so nothing was compared.")
        return
    rows = []
    for row in made.choice:
        behind = f"{row['behind']:.3f}"
        if row["standard_error"] is not None:
            behind = f"{behind}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{row['standard_error']:.3f}"
        name = f"{row['candidate']}{' (plain)' if row['reference'] else ''}"
        r2 = "-" if row["r2"] is None else f"{row['r2']:.3f}"
        rows.append([name, r2, f"{row['log_likelihood']:.3f}", "chosen" if row["chosen"] else behind])
    best = [number for number, row in enumerate(made.choice) if row["chosen"]]
    page.table(["candidate", "R²", "log-likelihood", "behind"], rows, best)
    page.note(
        "Each candidate predicted the next reward of people whom it had not seen, from their own past. “Behind” is by "
        "how much its log-likelihood of a reward is below that of the chosen one, with its standard error over people; "
        "the simplest within one standard error of the best is taken. Plain ones are what anybody could write in ten "
        "lines: “action mean” expects the same of everybody, “own level” adds a level for each person, “ridge” the "
        "context at hand. “Contexts” and “tied” say how contexts tell of the person (as they are, or by a learned "
        "encoder with so many coordinates), “hidden” are coordinates that only rewards show, and “moment” is what the "
        "context of the day adds.",
    )


def how_it_was_made(page: Page, model: LatentModel, source: str, command: str, made: datetime | None) -> None:
    """Write down what is needed to make the report again, and what it is not good for."""
    page.heading(TITLES["making"], "making")
    rows = [["table", source or "-"], ["model", repr(model)]]
    if model.provenance is not None:
        was = model.provenance
        rows += [
            ["fitted by", f"ILB {was.version}, seed {was.seed}, on {was.rows:,} rows of {was.instances:,} people"],
            ["encoder", f"{was.recipe.get('name', '-')}, {was.recipe.get('latent_dim', '-')} coordinates"],
            ["rewards", _named(was.recipe.get("reward"))],
        ]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "numpy", "scipy"))
    rows.append(["software", f"Python {platform.python_version()}, {versions}"])
    if made is not None:
        rows.append(["made", f"{made:%Y-%m-%d %H:%M} UTC"])
    page.table(["", ""], [[name, value] for name, value in rows])
    if command:
        page.parts.append(f"<pre>{escape(command)}</pre>")
    page.paragraph(
        "Limits. The model takes a person's state to stay as it is (or to change as slowly as was measured), and what "
        "was done to depend on nothing hidden of the moment; reasons that belong to the person, and show in contexts "
        "or rewards, are accounted for. It knows only people like those in the table. This is research software and "
        "not a medical device: whoever decides is responsible, and should know the people better than this page does."
    )


def _named(recipe: object) -> str:
    if not isinstance(recipe, dict):
        return "-"
    told = [f"{name} {value}" for name, value in recipe.items() if name != "name" and isinstance(value, str | int)]
    return f"{recipe.get('name', '-')} ({', '.join(told)})" if told else str(recipe.get("name", "-"))
