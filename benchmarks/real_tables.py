"""Real tables of people: `make bench-real`, or `python -m benchmarks.real_tables --help`.

People are split at random, and each reward of those held out is predicted one step ahead, from their own past.
`benchmarks.real_catalogue` says which tables there are.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.measuring import RESULTS, Rows, table_of
from benchmarks.real_catalogue import FURTHER, Table, find_tables
from benchmarks.real_references import REFERENCES, Forecast, PersonActions, action_means, some_people
from ilb import LiveBandit, fit
from ilb.estimates import Estimate, standard_error
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.offline.ahead import Predictions, predict_ahead
from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.version import __version__

OURS, PAPER = "ours", "paper's recipe"
LEVELS = (0.8, 0.95)

PAPER_SPLITS, PAPER_PEOPLE = 1, 100
"""Splits in which the paper's recipe is fitted, and people it learns from: its steps cost more with each of them."""


class HeldOut(NamedTuple):
    """Forecasts of the rewards of people held out in one split, by every method, and what the fit said."""

    person: np.ndarray
    reward: np.ndarray
    forecasts: dict[str, Forecast]
    inside: dict[float, np.ndarray]
    chosen: str
    said: str
    choice: Sequence[Mapping[str, Any]]
    seconds: float


def hold_out(table: Table, seed: int, note: Callable[[str], None]) -> tuple[HeldOut, Rows]:
    """Learn from some people and predict the others; if it is a crossover, play for them, too."""
    train_frame, test_frame = table.split(seed)
    train = table.logs(train_frame)
    test = Logs.from_frame(test_frame, schema=train.schema)
    started = time.process_time()
    model = fit(train, seed=seed)
    seconds = time.process_time() - started
    predictions = predict_ahead(model, Logs.from_frame(test_frame, schema=model.schema))
    forecasts = {OURS: Forecast(predictions.mean, predictions.std)}
    if train.width and seed < PAPER_SPLITS:
        dim, some = min(2, train.width), some_people(train, PAPER_PEOPLE)
        paper = fit(some, recipe=PaperRecipe(), reward=LinearRewardRecipe(), latent_dim=dim, seed=seed)
        by_paper = predict_ahead(paper, test)
        forecasts[PAPER] = Forecast(by_paper.mean, by_paper.std)
    forecasts |= {name: reference(train, test) for name, reference in REFERENCES.items()}
    provenance = model.provenance
    choice = [] if provenance is None or provenance.choice is None else list(provenance.choice)
    said = "" if provenance is None else provenance.notes[0]
    chosen = next((row["candidate"] for row in choice if row["chosen"]), said.split(":")[0])
    labels = np.array(test.instance_labels, dtype=object)[test.instance]
    inside = {level: _inside(predictions, level) for level in LEVELS}
    held = HeldOut(labels, test.reward.astype(np.float64), forecasts, inside, chosen, said, choice, seconds)
    note(f"{table.name}, split {seed}: {chosen}, R² {summarise_r2([held], OURS):.3f}, {seconds:.0f} CPU s")
    return held, play(table, model, train, test_frame) if table.crossover else []


def _inside(predictions: Predictions, level: float) -> np.ndarray:
    low, high = predictions.interval(level)
    return (predictions.reward >= low) & (predictions.reward <= high)


def summarise_r2(splits: Sequence[HeldOut], method: str) -> float:
    """Give one minus the squared errors of all splits over the squared deviations from the splits' own means."""
    splits = [held for held in splits if method in held.forecasts]
    errors = sum(float(np.sum((held.reward - held.forecasts[method].mean) ** 2)) for held in splits)
    return 1 - errors / sum(float(np.sum((held.reward - held.reward.mean()) ** 2)) for held in splits)


def summarise_log_likelihood(splits: Sequence[HeldOut], method: str) -> float:
    """Give the mean log-density of a reward, if rewards were normal."""
    parts = []
    for held in (held for held in splits if method in held.forecasts):
        mean, std = held.forecasts[method]
        parts.append(-0.5 * (((held.reward - mean) / std) ** 2 + np.log(2 * np.pi)) - np.log(std))
    return float(np.mean(np.concatenate(parts)))


def lead(splits: Sequence[HeldOut], first: str, second: str) -> Estimate:
    """Give by how much the first method's R² is higher; people, wherever they were held out, are the units."""
    splits = [held for held in splits if first in held.forecasts and second in held.forecasts]
    person = np.unique(np.concatenate([held.person for held in splits]), return_inverse=True)[1]
    gained, spread = [], []
    for held in splits:
        errors = ((held.reward - held.forecasts[method].mean) ** 2 for method in (second, first))
        gained.append(next(errors) - next(errors))
        spread.append((held.reward - held.reward.mean()) ** 2)
    gain, total = (np.bincount(person, weights=np.concatenate(parts)) for parts in (gained, spread))
    value = gain.sum() / total.sum()
    error = standard_error((gain - value * total) * len(total) / total.sum())
    return Estimate(float(value), float(error), len(total))


def play(table: Table, model: LatentModel, train: Logs, test_frame: Any) -> Rows:
    """For each person held out, pick half of the actions, each once, and give the mean rewards of several ways to.

    Everyone tried everything, so what a pick would have given is known. Thompson sampling from scratch, with
    independent arms, learns nothing of what was not tried: on average it has the person's mean.
    """
    means = action_means(train)
    actions = np.array(train.schema.actions, dtype=object)
    popular = actions[np.argsort(-means, kind="stable")]
    gaussian = PersonActions.fit(train)
    bandit = LiveBandit.on(model, "Calibrated")
    rows = []
    for person, own in test_frame.groupby(table.instance):
        if len(own) < len(actions):
            continue
        rewards = dict(zip(own[table.action], own[table.reward], strict=True))
        given = np.array([rewards[action] for action in actions], dtype=np.float64)
        half = len(actions) // 2
        rows.append(
            {
                "person": person,
                OURS: float(np.mean([rewards[action] for action in _live_picks(table, bandit, own, rewards, half)])),
                "person × action": float(np.mean(given[_gaussian_picks(gaussian, given, half)])),
                "popularity": float(np.mean([rewards[action] for action in popular[:half]])),
                "Thompson sampling": float(given.mean()),
                "hindsight": float(np.mean(np.sort(given)[-half:])),
            }
        )
    return rows


def _live_picks(table: Table, bandit: LiveBandit, own: Any, rewards: dict[Any, float], picks: int) -> Iterator[Any]:
    """Give the untried action of the highest expected reward, again and again, as a live person's rewards come in."""
    instance = bandit.start(own[table.instance].iloc[0])
    columns = [column.name for column in bandit.schema.context]
    times = None if table.time is None else np.sort(own[table.time].to_numpy())
    context = {name: own[name].iloc[0] for name in columns if name != table.time}
    untried = list(rewards)
    for number in range(picks):
        now = {str(table.time): times[number]} if times is not None and bandit.schema.clocked else {}
        decision = instance.decide({**context, **now}, allowed=untried)
        instance.learn(decision, rewards[decision.action])
        untried.remove(decision.action)
        yield decision.action


def _gaussian_picks(model: PersonActions, given: np.ndarray, picks: int) -> list[int]:
    counts, residuals = np.zeros((2, 1, len(given)))
    chosen: list[int] = []
    for _ in range(picks):
        expected = model.mean + model.posterior(counts, residuals)[0][0]
        expected[chosen] = -np.inf
        best = int(np.argmax(expected))
        chosen.append(best)
        counts[0, best] = 1
        residuals[0, best] = given[best] - model.mean[best]
    return chosen


def gains(plays: Rows) -> dict[str, Any]:
    """Compare mean rewards of a pick over people; a person of several splits counts once, with their mean."""
    people = pd.DataFrame(plays).groupby("person").mean()
    summary: dict[str, Any] = {"people": len(people)}
    for name in people.columns:
        summary[name] = float(people[name].mean())
    for rival in ("popularity", "Thompson sampling", "person × action"):
        gain = Estimate.of((people[OURS] - people[rival]).to_numpy())
        summary |= {f"gain over {rival}": gain.value, f"gain over {rival}_se": gain.standard_error}
    return summary


def measure(table: Table, splits: int, note: Callable[[str], None]) -> dict[str, Any]:
    """Measure a table, for the record."""
    held: list[HeldOut] = []
    plays: Rows = []
    for seed in range(splits):
        one, played = hold_out(table, seed, note)
        held.append(one)
        plays += played
    methods = list(held[0].forecasts)
    r2 = {method: summarise_r2(held, method) for method in methods}
    best = max(REFERENCES, key=lambda name: r2[name])
    frame = table.frame
    return {
        "table": table.name,
        "source": table.source,
        "rows": len(frame),
        "people": int(frame[table.instance].nunique()),
        "actions": int(frame[table.action].nunique()),
        "splits": splits,
        "r2": r2,
        "log_likelihood": {method: summarise_log_likelihood(held, method) for method in methods},
        "coverage": {
            f"{level:.0%}": float(np.mean(np.concatenate([one.inside[level] for one in held]))) for level in LEVELS
        },
        "best_reference": best,
        "ahead": asdict(lead(held, OURS, best)),
        "ahead_of_paper": asdict(lead(held, OURS, PAPER)) if PAPER in methods else None,
        "chosen": [one.chosen for one in held],
        "said": [one.said for one in held],
        "choice_of_first_split": list(held[0].choice),
        "cpu_seconds_of_fit": float(np.mean([one.seconds for one in held])),
        "gains": gains(plays) if plays else None,
    }


def show(results: Sequence[dict[str, Any]], out: Console) -> None:
    """Print what was measured."""
    for title, field in (("R², one step ahead", "r2"), ("log-likelihood of a reward", "log_likelihood")):
        rows = [
            {"method": method} | {result["table"]: f"{result[field].get(method, np.nan):.3f}" for result in results}
            for method in (OURS, PAPER, *REFERENCES)
        ]
        out.print(table_of(title, rows))
    rows = []
    for result in results:
        rows.append(
            {
                "table": result["table"],
                "best reference": result["best_reference"],
                "ours ahead by (R²)": _signed(result["ahead"]),
                "of the paper's recipe": _signed(result["ahead_of_paper"]),
                **{f"in {level} intervals": f"{share:.1%}" for level, share in result["coverage"].items()},
                "chosen": ", ".join(dict.fromkeys(result["chosen"])),
                "CPU s of a fit": f"{result['cpu_seconds_of_fit']:.0f}",
            }
        )
    out.print(table_of("ours against the best reference", rows))
    crossovers = [{"table": result["table"], **result["gains"]} for result in results if result["gains"]]
    if crossovers:
        out.print(table_of("crossovers: mean reward of the first half of the actions", crossovers))


def _signed(ahead: Mapping[str, float] | None) -> str:
    return "-" if ahead is None else f"{ahead['value']:+.3f} ± {ahead['standard_error']:.3f}"


def keep(results: Sequence[dict[str, Any]], command: str) -> None:
    """Write the results into docs/results; tables that were not measured this time stay as they are there."""
    path = RESULTS / "real-tables.json"
    before = json.loads(path.read_text())["tables"] if path.exists() else []
    measured = {result["table"]: result for result in [*before, *results]}
    kept = {"version": __version__, "command": command, "tables": list(measured.values())}
    path.write_text(json.dumps(kept, indent=1, default=str, ensure_ascii=False) + "\n")


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Tables; if none is named, all but further ones.")] = None,
    splits: Annotated[int, typer.Option(min=1, help="How often people are split anew.")] = 5,
    further: Annotated[bool, typer.Option(help="Take the further tables, which no choice of ours rests on.")] = False,
    record: Annotated[bool, typer.Option(help="Write the results into docs/results.")] = False,
    tables: Annotated[
        Path | None,
        typer.Option(envvar="ILB_REAL_TABLES", exists=True, file_okay=False, help="A directory with more tables."),
    ] = None,
) -> None:
    """Predict and play for held-out people of real tables, beside what anybody could write in ten lines."""
    apart = {table.name for table in FURTHER}
    found = find_tables(tables)
    unknown = [name for name in names or () if name not in found]
    if unknown:
        raise typer.BadParameter(f"there is no table {', '.join(unknown)}; there are {', '.join(found)}.")
    notes, out = Console(stderr=True), Console()
    results = []
    for name in names or [name for name in found if (name in apart) == further]:
        # Matrices are small, and threads that share one of them only wait for each other.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            results.append(measure(found[name], splits, lambda text: notes.print(f"· {text}", highlight=False)))
        if record:
            keep(results, f"make bench-real ARGS='--splits {splits} --record'")
    show(results, out)


if __name__ == "__main__":
    typer.run(main)
