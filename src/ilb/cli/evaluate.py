"""What `ilb evaluate` does: read a table, evaluate a policy on its people, and print what would be gained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ilb.cli.commands import named_recipes
from ilb.cli.console import layout, notes, progress_bar, results, say
from ilb.files import put_in_place
from ilb.logs import Logs
from ilb.logs.messages import counted
from ilb.online.roster import require_known_policy
from ilb.trust.evaluation import CONTROL_HEADER, Evaluation
from ilb.trust.gain import evaluate


def evaluate_table(
    path: Path,
    columns: Mapping[str, Any],
    *,
    recipe: str,
    reward: str,
    as_json: bool,
    out: Path | None,
    propensity: str | None = None,
    **asked: Any,
) -> Evaluation:
    """Evaluate a policy on the people of a table; print a table or JSON, and write JSON to `out` if that is given."""
    encoding, rewards = named_recipes(recipe, reward, asked["latent_dim"])
    require_known_policy(asked["policy"])
    logs = Logs.from_frame(path, **_with_propensity(columns, propensity))
    if not as_json:
        say(f"read {path}: {logs.describe().sentence()}")
    with progress_bar("Evaluating", notes, "gain") as report:
        evaluation = evaluate(logs, recipe=encoding, reward=rewards, **asked, propensity=propensity, report=report)
    text = json.dumps(evaluation.to_dict(), indent=1)
    if out is not None:
        with put_in_place(out) as (draft,):
            draft.write_text(text + "\n", encoding="utf-8")
    if as_json:
        results.print_json(text)
        return evaluation
    if evaluation.lines:
        results.print(layout(evaluation.title, *_by_estimator(evaluation)))
    if evaluation.controls:
        rows = [[name, found.replace(" (", "\n("), *rest] for name, found, *rest in evaluation.control_rows()]
        results.print(layout("controls", CONTROL_HEADER, rows))
    for sentence in evaluation.sentences:
        say(sentence)
    if out is not None:
        say(f"wrote {out}")
    return evaluation


def _by_estimator(evaluation: Evaluation) -> tuple[list[str], list[list[str]]]:
    """Lay out what was estimated so that 80 columns are enough: what lines have in common stands above them, once."""
    rows: list[list[str]] = []
    above = ("", "")
    for quantity, estimator, rounds, *figures in evaluation.rows():
        if (estimator, rounds) != above:
            above = (estimator, rounds)
            rows.append([f"{estimator}, {counted(int(rounds), 'decision')}", "", "", ""])
        rows.append([f"  {quantity}", *figures])
    return ["", "reward", "95 % interval", "followed"], rows


def _with_propensity(columns: Mapping[str, Any], propensity: str | None) -> dict[str, Any]:
    """Read the propensity, too, where contexts are listed; the library takes it out of them."""
    listed = columns["context"]
    if propensity is None or listed is None or propensity in listed:
        return dict(columns)
    return {**columns, "context": [*listed, propensity]}
