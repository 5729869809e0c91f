"""Hostile files and calls: how many are refused in our own words, how many survive, and whether anything else happens.

    python -m benchmarks.hostile                       # 1,000 cases of each kind
    python -m benchmarks.hostile --seconds 3600        # as many as an hour holds
    python -m benchmarks.hostile --record              # and write docs/results/hostile.json

A case is *refused* if an error of ours says so in one line, and has *survived* if what was read can be used: a model
decides, a saved person is the one that was saved and goes on, live events give finite numbers (and leave the person as
it was where one is refused), a table gives finite numbers and as many people and actions as its text has. All else is a
finding, is printed with the seed that repeats it, and makes the command fail.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ilb import IlbError, LatentModel, LinearRewardRecipe, LiveBandit, Logs, PlainContexts, fit

RECORD = Path(__file__).parents[1] / "docs" / "results" / "hostile.json"
REFUSED, SURVIVED = "refused", "survived"
CONTEXT = {"pain": 0.3, "site": "Lund"}
LONGEST_MESSAGE = 2000


class FindingError(Exception):
    """Something that is neither refused nor right."""


class Victim(NamedTuple):
    """A small model with a category and a gap, bandits on it, its table, and a person in the middle of a history."""

    model: LatentModel
    bandit: LiveBandit
    bandits: tuple[LiveBandit, ...]
    table: str
    saved: str
    manifest: dict[str, Any]
    arrays: dict[str, np.ndarray]


def make_victim() -> Victim:
    """Make what is damaged from then on."""
    rng = np.random.default_rng(0)
    rows = StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(["patient", "pain", "site", "drug", "relief"])
    for number in range(80):
        pain = "" if number == 7 else f"{rng.normal():.3f}"
        drug = ("A", "B", "C")[rng.integers(3)]
        writer.writerow([f"{number // 8:03}", pain, ("Lund", "Malmö")[rng.integers(2)], drug, f"{rng.normal():.3f}"])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "logs.csv"
        file.write_text(rows.getvalue(), encoding="utf-8")
        logs = read(file)
        model = fit(logs, latent_dim=2, recipe=PlainContexts(), reward=LinearRewardRecipe())
        model.save(Path(folder) / "model")
        manifest = json.loads((Path(folder) / "model" / "manifest.json").read_text())
        arrays = load_arrays((Path(folder) / "model" / manifest["arrays"]["file"]).read_bytes())
    bandit = LiveBandit.on(model)
    person = bandit.start("Anna")
    person.learn(person.decide(CONTEXT), 1.0)
    person.decide(CONTEXT)
    bandits = (bandit, LiveBandit.on(model, "FPG-TS"), LiveBandit.on(model, "MAB"))
    return Victim(model, bandit, bandits, rows.getvalue(), person.to_json(), manifest, arrays)


def read(file: Path) -> Logs:
    return Logs.from_frame(file, instance="patient", action="drug", reward="relief")


# Ways to damage things


def nested(depth: int, brackets: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if brackets else {"tuple": [value]}
    return value


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3.5, -1e308, 1e308, 1e-320, float("nan"), float("inf"), 2**31, 2**63, 10**400),
    *(
        "",
        "x",
        "0",
        "../../etc/passwd",
        "a\x00b",
        "\x1b[31m",
        "é" * 300,
        "x" * 70_000,
        [],
        [1],
        {},
        {"array": "nothing"},
    ),
    *({"module": "Affine", "fields": {}}, {"float": "nan"}, {"int": "0x" + "f" * 5000}, {"Decimal": "sNaN"}),
    *({"datetime": ["2020-01-01T00:00:00", "Europe", 0]}, {"datetime": ["2020-01-01", "../x", 7]}),
    *({"timedelta": [10**12, 0, 0]}, {"bytes": "zz"}, {"UUID": "no"}, nested(50, True), nested(60, False)),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List every place in a tree of JSON."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [found for key, value in inner for found in ((*path, key), *places(value, (*path, key)))]


def damage_tree(rng: random.Random, tree: Any) -> None:
    """Replace, drop, double or exchange something, up to three times."""
    for _ in range(rng.randint(1, 3)):
        every = places(tree)
        if not every:
            return
        *way, last = rng.choice(every)
        holder = tree
        for step in way:
            holder = holder[step]
        way_to_damage = rng.choice(["value", "value", "value", "drop", "double", "exchange", "nudge"])
        if way_to_damage == "drop":
            del holder[last]
        elif way_to_damage == "double" and isinstance(holder, list):
            holder.insert(last, holder[last])
        elif way_to_damage == "exchange":
            other = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            holder[last], holder[other] = holder[other], holder[last]
        elif way_to_damage == "nudge" and type(holder[last]) in (int, float) and abs(holder[last]) < 1e300:
            holder[last] = rng.choice([-1, 2, 1e10, 0.999, 1e-10]) * holder[last] + rng.choice([0, 1, -1])
        else:
            holder[last] = json.loads(json.dumps(rng.choice(VALUES)))


def damage_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    wrong = np.array(array)
    numbers = [0, 1, -1, np.nan, np.inf, 1e30, 1e-30] if wrong.dtype.kind == "f" else [0, 1, -1]
    ways: list[Callable[[], np.ndarray]] = [
        lambda: np.full_like(wrong, rng.choice(numbers)),
        lambda: wrong * wrong.dtype.type(rng.choice([-1, 0, 1000])),
        lambda: wrong[..., :-1] if wrong.ndim else wrong[None],
        lambda: wrong[:-1] if wrong.ndim else wrong,
        lambda: wrong[None],
        lambda: wrong.T,
        lambda: wrong.astype(rng.choice(["f8", "i4", "u1", "c8", "?"])),
        lambda: wrong[:0] if wrong.ndim else wrong,
    ]
    if wrong.size and wrong.dtype.kind == "f" and rng.random() < 0.4:
        wrong.reshape(-1)[rng.randrange(wrong.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e30, -1.0, 0.0])
        return wrong
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rng.choice(ways)()


BYTES = (b"", b"\x00", b"\xff\xfe", b'"', b",", b"\n", b"\r", b"{", b"9" * 30, b"\xc3", b"NaN")


def damage_bytes(rng: random.Random, content: bytes) -> bytes:
    wrong = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        first = rng.randrange(len(wrong) + 1)
        last = min(len(wrong), first + rng.choice([0, 1, 1, 4, 200]))
        wrong[first:last] = rng.choice(BYTES)
    return bytes(wrong[: rng.randrange(len(wrong) + 1)]) if rng.random() < 0.1 else bytes(wrong)


CELLS = (
    *("", "0", "1", "01", "1.0", "001", "-0", "1e400", "1e20", "nan", "NaN", "inf", "-inf", "NA", "null", "None"),
    *("12,5", "12 %", "n/m", "99999999999999999999", "99999999999999999998", "0x10", "1_000", "true", "True"),
    *("2020-01-01", "2020-01-01 10:00:00", " A", "A ", "é", "\x1b[31m", "x" * 5000, "=1+1", "𝟙", "١", "\u202e"),
)


def damage_cells(rng: random.Random, text: str) -> list[list[str]]:
    """Change cells, rows and columns of a table, leaving it a table."""
    rows = list(csv.reader(StringIO(text)))
    for _ in range(rng.randint(1, 4)):
        column = rng.randrange(len(rows[0]))
        way = rng.choice(["cell", "cell", "column", "header", "drop row", "double row", "few rows"])
        chosen = [rng.randrange(1, len(rows))] if way == "cell" else range(1, len(rows)) if way == "column" else []
        some = [rng.choice(CELLS) for _ in range(3)]
        for number in chosen:
            rows[number][column] = rng.choice(some)
        if way == "header":
            rows[0][column] = rng.choice([*rows[0], "", "é", "x" * 300])
        elif way == "drop row" and len(rows) > 2:
            del rows[rng.randrange(1, len(rows))]
        elif way == "double row":
            rows.insert(1, list(rows[rng.randrange(1, len(rows))]))
        elif way == "few rows":
            rows = rows[: rng.randint(2, len(rows))]
    return rows


# What must come of it


def judged(attempt: Callable[[], None]) -> str:
    """Run an attempt: refused by an error of ours in one line, or survived."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt()
        except IlbError as error:
            if "\n" in str(error) or len(str(error)) > LONGEST_MESSAGE:
                raise FindingError(
                    f"a refusal of {len(str(error))} letters in several lines: {str(error)[:200]!r}"
                ) from error
            return REFUSED
    return SURVIVED


def use_model(victim: Victim, folder: Path) -> None:
    """Load a model, and decide with it if it is still about the same columns."""
    model = LatentModel.load(folder)
    known = victim.model.schema
    if model.schema is None or known is None or model.schema.names != known.names:
        return
    decision = LiveBandit.on(model).start("Anna").decide(CONTEXT)
    if decision.action not in model.schema.actions:
        raise FindingError(f"the decision {decision.action!r} is none of the actions")


def try_manifest(rng: random.Random, victim: Victim, folder: Path) -> str:
    """Damage the manifest or the arrays, sign what came of it (or not), and load it."""
    manifest, arrays = json.loads(json.dumps(victim.manifest)), dict(victim.arrays)
    del manifest["content_hash"]
    way = rng.choice(["tree", "tree", "arrays", "bytes"])
    if way == "tree":
        damage_tree(rng, manifest)
    elif way == "arrays":
        name = rng.choice(sorted(arrays))
        arrays[name] = np.array(damage_array(rng, arrays[name]), order="C")
    packed = save_arrays(arrays)
    if way == "arrays":
        manifest["arrays"]["sha256"] = hashlib.sha256(packed).hexdigest()
    manifest["content_hash"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    text = json.dumps(manifest).encode()
    for old in folder.iterdir():
        old.unlink()
    (folder / "manifest.json").write_bytes(damage_bytes(rng, text) if way == "bytes" else text)
    (folder / victim.manifest["arrays"]["file"]).write_bytes(packed)
    return judged(lambda: use_model(victim, folder))


def try_state(rng: random.Random, victim: Victim, folder: Path) -> str:
    """Damage a saved person, restore it, and let it go on."""
    del folder
    way = rng.random()
    if way < 0.1:  # no damage: other programs space and order JSON in their own ways
        items = list(json.loads(victim.saved).items())
        rng.shuffle(items)
        text = json.dumps(dict(items), indent=rng.choice([None, 2]))
    elif way < 0.7:
        tree = json.loads(victim.saved)
        damage_tree(rng, tree)
        text = json.dumps(tree)
    else:
        text = damage_bytes(rng, victim.saved.encode()).decode(errors="replace")

    def go_on() -> None:
        person = victim.bandit.restore(text)
        if person.to_json() != victim.saved:
            raise FindingError("a person was restored that is not the one that was saved")
        decision = person.decide(CONTEXT)
        person.learn(decision, 0.5)
        person.to_json()

    return judged(go_on)


def any_number(rng: random.Random) -> float:
    """Draw a number of an everyday size, or of any size."""
    return rng.gauss(0, 1) if rng.random() < 0.6 else rng.choice([-1, 1]) * 10 ** rng.uniform(-320, 308)


def try_events(rng: random.Random, victim: Victim, folder: Path) -> str:
    """Let a person live through contexts and rewards of any size."""
    del folder
    person = rng.choice(victim.bandits).start("Anna")

    def live() -> None:
        for _ in range(rng.randint(1, 6)):
            before = person.to_json()
            try:
                if person.pending and rng.random() < 0.5:
                    person.learn(rng.choice(person.pending), any_number(rng), action=rng.choice("ABC"))
                else:
                    decision = person.decide({**CONTEXT, "pain": rng.choice([None, any_number(rng)])})
                    told = [*decision.expected_reward.values(), *decision.reward_std.values(), decision.propensity]
                    if not np.all(np.isfinite(told)):
                        raise FindingError(f"a decision that is none: {decision}")
            except IlbError:
                if person.to_json() != before:
                    raise FindingError("an event was refused, and the person is changed") from None
                raise

    return judged(live)


def try_table(rng: random.Random, victim: Victim, folder: Path) -> str:
    """Damage a table and read it; where it is still a table, no two labels may have become one."""
    file = folder / "logs.csv"
    rows = damage_cells(rng, victim.table) if rng.random() < 0.7 else None
    if rows is None:
        file.write_bytes(damage_bytes(rng, victim.table.encode()))
    else:
        with file.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)

    def use() -> None:
        logs = read(file)
        if not np.all(np.isfinite(logs.context)) or np.any(np.isinf(logs.reward)):
            raise FindingError("a context or reward is not finite")
        if rows is not None:
            for role, found in (("patient", logs.instance_labels), ("drug", logs.schema.actions)):
                texts = {row[rows[0].index(role)] for row in rows[1:]} - MISSING
                if len(found) != len(texts):
                    raise FindingError(f"column {role!r} has {len(texts)} texts and became {len(found)} labels")

    return judged(use)


MISSING = {"", "NA", "NaN", "nan", "null"}
"""Of `CELLS`, what pyarrow takes for empty."""

PINNED: dict[str, Any] = {"latent_dim": 1, "recipe": PlainContexts(), "reward": LinearRewardRecipe()}

CALLS: dict[str, Callable[[Victim], Any]] = {
    "a reward of 401 digits": lambda victim: _learn(victim, 10**400),
    "a reward that is a signalling NaN": lambda victim: _learn(victim, Decimal("sNaN")),
    "a reward that is text": lambda victim: _learn(victim, "much"),
    "a reward that is None": lambda victim: _learn(victim, None),
    "a context of 1e37": lambda victim: _decide(victim, {"pain": 1e37, "site": "Lund"}),
    "a context of 401 digits": lambda victim: _decide(victim, {"pain": 10**400, "site": "Lund"}),
    "a context that is a list": lambda victim: _decide(victim, {"pain": [1], "site": "Lund"}),
    "a category that is a list": lambda victim: _decide(victim, {"pain": 1, "site": ["Lund"]}),
    "a context that is no mapping": lambda victim: _decide(victim, 5),
    "allowed=5": lambda victim: _decide(victim, CONTEXT, allowed=5),
    "forbidden=0": lambda victim: _decide(victim, CONTEXT, forbidden=0),
    "allowed=[[]]": lambda victim: _decide(victim, CONTEXT, allowed=[[]]),
    "allowed=[]": lambda victim: _decide(victim, CONTEXT, allowed=[]),
    "LiveBandit.on(None)": lambda _: _on(None),
    "LiveBandit.on(path)": lambda _: _on("model"),
    "LiveBandit.on(seed=1.5)": lambda victim: _on(victim.model, seed=1.5),
    "LiveBandit.on(seed=10**400)": lambda victim: _on(victim.model, seed=10**400),
    "LiveBandit.on(policy=5)": lambda victim: _on(victim.model, policy=5),
    "LiveBandit.on(horizon=-1)": lambda victim: _on(victim.model, horizon=-1),
    "fit(path)": lambda _: fit("visits.csv"),  # type: ignore[arg-type]
    "fit(seed=1.5)": lambda victim: fit(_logs(victim), **PINNED, seed=1.5),  # type: ignore[arg-type]
    "fit(seed=2**32)": lambda victim: fit(_logs(victim), **PINNED, seed=2**32),
    "split(seed=-1)": lambda victim: _logs(victim).split_instances(seed=-1),
    "start(None)": lambda victim: victim.bandit.start(None),
    "start([])": lambda victim: victim.bandit.start([]),  # type: ignore[arg-type]
    "restore(None)": lambda victim: victim.bandit.restore(None),  # type: ignore[arg-type]
    "restore('[' * 10**5)": lambda victim: victim.bandit.restore("[" * 10**5),
    "load of a name of 300 letters": lambda _: LatentModel.load("n" * 300),
    "load of a name with a null": lambda _: LatentModel.load("a\0b"),
    "a table with a name of 300 letters": lambda _: Logs.from_frame("n" * 300 + ".csv"),
}
"""Calls that must be refused by an error of ours."""


def _on(model: Any, **options: Any) -> LiveBandit:
    return LiveBandit.on(model, **options)


def _decide(victim: Victim, context: Any, **options: Any) -> None:
    victim.bandit.start("a").decide(context, **options)


def _learn(victim: Victim, reward: Any) -> None:
    person = victim.bandit.start("a")
    person.learn(person.decide(CONTEXT), reward)


def _logs(victim: Victim) -> Logs:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logs.csv"
        file.write_text(victim.table, encoding="utf-8")
        return read(file)


TARGETS: dict[str, Callable[[random.Random, Victim, Path], str]] = {
    "models on disk": try_manifest,
    "saved people": try_state,
    "live events": try_events,
    "CSV tables": try_table,
}


def attempt(name: str, seed: int, victim: Victim, folder: Path) -> str:
    """Try one case; whatever is raised but a refusal is a finding."""
    try:
        return TARGETS[name](random.Random(seed), victim, folder)
    except FindingError:
        raise
    except Exception as error:
        raise FindingError(f"{type(error).__name__}: {str(error)[:300]}") from error


def main() -> None:
    """Try cases of each kind, print the counts, and fail if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="cases of each kind")
    parser.add_argument("--seconds", type=float, help="go on for so long instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="write docs/results/hostile.json")
    chosen = parser.parse_args()
    victim, counts, findings = make_victim(), {name: Counter[str]() for name in (*TARGETS, "calls")}, list[str]()
    began, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as place:
        while number < chosen.cases if chosen.seconds is None else time.monotonic() - began < chosen.seconds:
            for name in TARGETS:
                try:
                    counts[name][attempt(name, chosen.seed + number, victim, Path(place))] += 1
                except FindingError as finding:
                    findings.append(f"{name}, seed {chosen.seed + number}: {finding}")
                    counts[name]["finding"] += 1
            number += 1
        for name, call in CALLS.items():
            try:
                outcome = judged(lambda call=call: call(victim))  # type: ignore[misc]
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            if outcome != REFUSED:
                findings.append(f"call {name}: {outcome}")
            counts["calls"][outcome if outcome in (REFUSED, SURVIVED) else "finding"] += 1
    print(f"{'':16}{'tried':>8}{REFUSED:>10}{SURVIVED:>10}{'findings':>10}")
    for name, count in counts.items():
        print(f"{name:16}{count.total():>8,}{count[REFUSED]:>10,}{count[SURVIVED]:>10,}{count['finding']:>10,}")
    for line in findings[:20]:
        print(line)
    if chosen.record:
        numbers = {
            name: {"tried": count.total(), **{one: count[one] for one in (REFUSED, SURVIVED, "finding")}}
            for name, count in counts.items()
        }
        RECORD.write_text(json.dumps({"first_seed": chosen.seed, **numbers}, indent=1) + "\n")
    raise SystemExit(1 if findings else 0)


if __name__ == "__main__":
    main()
