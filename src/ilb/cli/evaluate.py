"""What `ilb evaluate` does: read a table, evaluate a policy on its people, and print what would be gained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ilb.cli.commands import RECIPES, named_recipe
from ilb.cli.console import layout, notes, progress_bar, results, say
from ilb.files import put_in_place
from ilb.logs import Logs
from ilb.offline.rewards import REWARD_RECIPES
from ilb.online.roster import require_known_policy
from ilb.trust.evaluation import CONTROL_HEADER, HEADER, Evaluation
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
    pinned: dict[str, Any] = {
        "recipe": named_recipe(recipe, RECIPES, "--recipe"),
        "reward": named_recipe(reward, REWARD_RECIPES, "--reward-model"),
    }
    require_known_policy(asked["policy"])
    logs = Logs.from_frame(path, **_with_propensity(columns, propensity))
    if not as_json:
        say(f"read {path}: {logs.describe().sentence()}")
    with progress_bar("Evaluating", notes, "gain") as report:
        evaluation = evaluate(logs, **pinned, **asked, propensity=propensity, report=report)
    text = json.dumps(evaluation.to_dict(), indent=1)
    if out is not None:
        with put_in_place(out) as (draft,):
            draft.write_text(text + "\n", encoding="utf-8")
    if as_json:
        results.print_json(text)
        return evaluation
    if evaluation.lines:
        results.print(layout(evaluation.title, HEADER, evaluation.rows()))
    if evaluation.controls:
        results.print(layout("controls", CONTROL_HEADER, evaluation.control_rows()))
    for sentence in evaluation.sentences:
        say(sentence)
    if out is not None:
        say(f"wrote {out}")
    return evaluation


def _with_propensity(columns: Mapping[str, Any], propensity: str | None) -> dict[str, Any]:
    """Read the propensity, too, where contexts are listed; the library takes it out of them."""
    listed = columns["context"]
    if propensity is None or listed is None or propensity in listed:
        return dict(columns)
    return {**columns, "context": [*listed, propensity]}
