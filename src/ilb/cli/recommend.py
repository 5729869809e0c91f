"""`ilb recommend`: what to do for each person of a table now, on the terminal, as CSV, Parquet or JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ilb.cli.console import busy, layout, results, say

if TYPE_CHECKING:
    from ilb.live.recommendation import Recommendation, Recommendations

MOST_SHOWN = 30
"""People that the table on the terminal has room for."""

LARGE = 100_000
"""Bytes of a table from which on its people, some hundreds, take longer to decide for than programs to compile."""

QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
"""Flags with which programs compile five times as fast and run half as fast."""

ABOUT_ROUNDS = (
    "Rounds: after so many more, in which all actions that may be best are taken in turn, the better of the two "
    "hardest to tell apart can be expected to be known with probability 0.95 (0: it is known; > 64: more than are "
    "counted; -: the model can't say). The closer the two, the noisier rewards and the more actions, the more it takes."
)
"""What is said below recommendations that are not settled."""

SUFFIXES = (".csv", ".json", ".parquet")
"""What recommendations can be written as."""

IN_FULL = 3
"""So few people are shown with all their actions."""


def compile_for(history: Path) -> None:
    """Keep what JAX compiles in the user's cache, and compile hastily for a small table, unless told otherwise.

    The next start then takes a second or two. To be called before JAX is imported.
    """
    if _size(history) < LARGE and QUICK not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{QUICK} {os.environ.get('XLA_FLAGS', '')}".strip()  # of two, the last counts
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ilb" / "compiled"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(place, os.W_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(place))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except (OSError, ValueError):  # what is wrong with it will be said by whoever reads it
        return 0


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
    with busy("Recommending (the first call of a model compiles its programs)"):
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
        _explain_rounds(found)
        return
    header = [who, "action", "expected", "95 % interval", "best", "misfit", "rounds"]
    rows = [
        [
            str(one.instance),
            str(one.action),
            f"{one.expected_reward[one.action]:.3g}",
            _between(one.interval[one.action]),
            f"{one.probability_best[one.action]:.2f}",
            f"{one.misfit:.2f}",
            one.rounds_in_words,
        ]
        for one in found[:MOST_SHOWN]
    ]
    results.print(layout(f"{len(found):,} people", header, rows, words=2))
    if len(found) > MOST_SHOWN:
        say(f"{len(found) - MOST_SHOWN:,} more people are not shown; --out FILE.csv writes them all.")
    _explain_rounds(found)


def _explain_rounds(found: Recommendations) -> None:
    """Say what the rounds until a choice is settled are, if any are told."""
    if any(one.rounds_to_settle or one.unsettled_after for one in found):
        say(ABOUT_ROUNDS)


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
