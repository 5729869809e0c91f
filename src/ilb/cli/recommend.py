"""`ilb recommend`: what to do for each person of a table now, on the terminal, as CSV, Parquet or JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ilb.cli.console import layout, require_directory, results, say
from ilb.errors import IlbError

if TYPE_CHECKING:
    from ilb.live.recommendation import Recommendation, Recommendations

MOST_SHOWN = 30
"""People that the table on the terminal has room for."""

IN_FULL = 3
"""So few people are shown with all their actions."""


def keep_compiled_programs() -> None:
    """Keep what JAX compiles in the user's cache, unless it is told otherwise: the next start takes a second or two.

    To be called before JAX is imported.
    """
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ilb" / "compiled"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(place, os.W_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(place))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def require_place(out: Path) -> None:
    """Raise unless recommendations can be written under this name: to be asked before the work."""
    if out.suffix.lower() not in (".csv", ".json", ".parquet"):
        raise IlbError(f"--out must end in .csv, .json or .parquet; got {out.name!r}.")
    if out.is_dir():
        raise IlbError(f"--out must be the name of a file; {out} is a directory.")
    require_directory(out.parent)


def recommend_for_table(
    model_path: Path,
    history: Path,
    *,
    forbidden: Sequence[str],
    forbidden_column: str | None,
    earlier: Path | None,
    policy: str | None,
    horizon: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Read model and histories, recommend, and show or write what comes of it."""
    from ilb.live.bandit import LiveBandit
    from ilb.models.latent import LatentModel

    bandit = LiveBandit.on(LatentModel.load(model_path), policy, horizon=horizon, seed=seed)
    by_text = {str(label): label for label in bandit.schema.actions}
    found = bandit.recommend(
        history,
        forbidden=[by_text.get(name, name) for name in forbidden],
        forbidden_column=forbidden_column,
        earlier=earlier,
    )
    if out is not None:
        _write(found, out)
    if as_json:
        results.print_json(found.to_json())
    else:
        _show(found, bandit.schema.instance)
    if out is not None and not as_json:
        say(f"wrote {out}")


def _write(found: Recommendations, out: Path) -> None:
    from ilb.files import put_in_place
    from ilb.logs.tables import write_table

    if out.suffix.lower() == ".json":
        with put_in_place(out) as (draft,):
            draft.write_text(f"{found.to_json()}\n", encoding="utf-8")
    else:
        write_table(found.to_frame("pyarrow"), out)


def _show(found: Recommendations, who: str) -> None:
    if len(found) <= IN_FULL:
        for one in found:
            results.print(layout(f"{who} {one.instance}", *_by_action(one)))
            say(one.sentence)
        return
    header = [who, "action", "expected", "95 % interval", "best", "misfit", "rows", "more rounds"]
    rows = [
        [
            str(one.instance),
            str(one.action),
            f"{one.expected_reward[one.action]:.3g}",
            _between(one.interval[one.action]),
            f"{one.probability_best[one.action]:.2f}",
            f"{one.misfit:.2f}",
            f"{one.rows:,}",
            "-" if one.rounds_to_settle is None else f"{one.rounds_to_settle}",
        ]
        for one in found[:MOST_SHOWN]
    ]
    results.print(layout(f"{len(found):,} people", header, rows))
    if len(found) > MOST_SHOWN:
        say(f"{len(found) - MOST_SHOWN:,} more people are not shown; --out FILE.csv writes them all.")


def _by_action(one: Recommendation) -> tuple[list[str], list[list[str]]]:
    header = ["action", "expected", "95 % interval", "best"]
    ranked = sorted(one.expected_reward, key=one.expected_reward.__getitem__, reverse=True)
    rows = []
    for label in ranked:
        mark = "> " if label == one.action else "  "
        ruled_out = " (ruled out)" if label in one.ruled_out else ""
        best = f"{one.probability_best[label]:.2f}"
        cells = [f"{one.expected_reward[label]:.3g}", _between(one.interval[label]), best]
        rows.append([f"{mark}{label}{ruled_out}", *cells])
    return header, rows


def _between(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3g} to {bounds[1]:.3g}"
