"""The report of a reproduction: one self-contained page, its figures as PNG, and every number as JSON."""

from __future__ import annotations

import json
import math
import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ilb.errors import IlbError
from ilb.files import write_whole
from ilb.logs.messages import counted, shown
from ilb.pages.page import Page
from ilb.plots.regret import save_figure, svg_of
from ilb.version import __version__
from ilb_paper.catalogue import EXPERIMENTS
from ilb_paper.claims import FEWEST_WORLDS, Claim, Comparison, Judgement, Verdict, combine
from ilb_paper.experiment import AbstractExperiment, Exhibit
from ilb_paper.plots import DIRECT_FLOOR
from ilb_paper.results import Results, Size
from ilb_paper.runner import Failure, plan
from ilb_paper.store import NotRunError
from ilb_paper.tasks import AbstractTask

KINDS = {"holds": "good", "does not hold": "bad", "undecided": "open"}
VERBS: dict[Verdict, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "undecided": ("is undecided", "are undecided"),
}
FIGURE_CAPTION = (
    f"Lines are means, from where they exceed {DIRECT_FLOOR:g}; bands are one standard error, dots medians at the end "
    "unless they are nearly 0."
)
VERSIONS = ("jax", "equinox", "optax", "numpy", "scipy", "scikit-learn")


class Judged(NamedTuple):
    """A claim, where it was tested, and what came of it."""

    label: str
    claim: Claim
    judgement: Judgement

    @property
    def shown_verdict(self) -> str:
        return self.judgement.verdict if self.claim.counts else f"{self.judgement.verdict} (not counted)"


def judge_all(experiments: Sequence[AbstractExperiment], results: Results) -> list[Judged]:
    """Test every claim for which the tasks that it rests on are done."""
    judged = []
    for experiment in experiments:
        for claim in experiment.claims:
            try:
                judged.append(Judged(experiment.label, claim, claim.judge(results)))
            except NotRunError:
                continue
    return judged


Untested = dict[str, str]
"""A claim for which tasks were not run: its name, where it would have been tested (label), and what it says."""


def untested(experiments: Sequence[AbstractExperiment], judged: Sequence[Judged]) -> list[Untested]:
    tested = {one.claim.name for one in judged}
    return [
        {"name": claim.name, "label": experiment.label, "says": claim.says}
        for experiment in experiments
        for claim in experiment.claims
        if claim.name not in tested
    ]


class Earlier(NamedTuple):
    """Another run, to be shown beside this one: what it is called, and its verdict on every claim, by name."""

    title: str
    verdicts: dict[str, Verdict]


def read_earlier(file: Path) -> Earlier:
    """Read the verdicts of another run from its `reproduction.json`."""
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        verdicts = {claim["name"]: claim["verdict"] for claim in plain["claims"]}
        first = plain.get("first_seed", 0)
        seeds = Size(plain["scale"], first).seeds
    except OSError as error:
        raise IlbError(f"--beside {file} can't be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IlbError(f"--beside {file} is not a reproduction.json that `ilb reproduce` wrote.") from error
    return Earlier(_seeds(seeds), verdicts)


def _begun(experiment: AbstractExperiment, results: Results) -> bool:
    enough = any if experiment.shows_parts else all
    return enough(task in results.store for task in experiment.tasks(results))


def cpu_seconds(experiments: Sequence[AbstractExperiment], results: Results, with_fits: bool = True) -> float:
    """Add up what the tasks of experiments took, each once."""
    tasks = [task for task in _tasks(experiments, results) if with_fits or not task.is_fit]
    return float(sum(results.store.about(task)["cpu_seconds"] for task in tasks))


def write_report(
    experiments: Sequence[AbstractExperiment],
    results: Results,
    out: Path,
    failures: Sequence[Failure] = (),
    earlier: Earlier | None = None,
) -> list[Judged]:
    """Write `index.html`, the figures and `reproduction.json` into `out`; give the judged claims."""
    judged = judge_all(experiments, results)
    missing = untested(experiments, judged)
    # Tables and curves are shown as far as they go; other figures are drawn whole or not at all.
    done = [e for e in experiments if _begun(e, results)]
    exhibits = {experiment.label: experiment.show(results) for experiment in done}
    tested = f" beside what this library gives, and {counted(len(judged), 'claim')} with a verdict" if judged else ""
    page = Page("Identifiable Latent Bandits, reproduced", f"{_what(done)}{tested}.")
    write_summary(page, judged, missing, results.size, earlier)
    page.contents([(experiment.label, experiment.title) for experiment in done])
    for experiment in done:
        page.heading(experiment.title, experiment.label)
        _write_exhibit(page, exhibits[experiment.label], out, experiment.is_regret)
        for one in judged:
            if one.label == experiment.label:
                write_claim(page, one)
    _write_how(page, experiments, results, failures)
    page.write(out / "index.html", f"Made by ilb {__version__}.{_again(experiments, results)}")
    plain = {
        "labels": [experiment.label for experiment in experiments],
        "scale": results.size.scale,
        "first_seed": results.size.first_seed,
        "claims": plain_claims(judged),
        "not_tested": missing,
        "tables": {label: [table._asdict() for table in shown.tables] for label, shown in exhibits.items()},
    }
    write_json(out / "reproduction.json", plain)
    return judged


def _is_all(experiments: Sequence[AbstractExperiment]) -> bool:
    return {experiment.label for experiment in experiments} >= set(EXPERIMENTS)


def _what(shown: Sequence[AbstractExperiment]) -> str:
    """Name what the report holds, which may be less than what earlier commands left in the directory."""
    if _is_all(shown):
        return "All tables and figures of the paper"
    labels = ", ".join(experiment.label for experiment in shown) or "nothing yet"
    of_the_paper = all(experiment.label in EXPERIMENTS for experiment in shown)
    return f"This report holds {labels}" + (": tables and figures of the paper" if of_the_paper else "")


def _again(experiments: Sequence[AbstractExperiment], results: Results) -> str:
    """Give the command that makes the report again; experiments of one's own have none."""
    labels = [experiment.label for experiment in experiments]
    if not set(labels) <= set(EXPERIMENTS):
        return ""
    named = "all" if _is_all(experiments) else shlex.join(labels)
    size = results.size
    elsewhere = f" --first-seed {size.first_seed}" if size.first_seed else ""
    return f" Make it again: ilb reproduce {named} --scale {size.scale:g}{elsewhere}"


def count_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Count verdicts in a sentence.

    >>> count_verdicts(["holds", "holds", "does not hold"])
    '2 claims hold, 1 does not hold.'
    """
    parts: list[str] = []
    for verdict, verbs in VERBS.items():
        if count := sum(verdict == found for found in verdicts):
            number = str(count) if parts else counted(count, "claim")
            parts.append(f"{number} {verbs[count > 1]}")
    return ", ".join(parts) + "." if parts else "No claim was tested."


def summarise(judged: Sequence[Judged], missing: Sequence[Untested]) -> list[str]:
    """Count what counts, with the encoder's released width, too, and what does not; name what was not tested."""
    said = [count_verdicts([j.judgement.verdict for j in judged if j.claim.counts])]
    wide = [j.judgement.released_width for j in judged if j.claim.counts and j.judgement.released_width]
    if wide:
        verdicts = count_verdicts([combine(comparisons) for comparisons in wide])
        said.append(
            "The encoder is judged as printed, with hidden layers of width n. With the width 2n of the released code, "
            f"which stands below each claim that depends on it and does not count: {verdicts}"
        )
    compared = [c for j in judged if j.claim.counts for c in j.judgement.comparisons]
    without_worlds = sum(not c.worlds for c in compared)
    if without_worlds:
        said.append(
            f"Sign flips could not be applied to {without_worlds} of {counted(len(compared), 'comparison')}, whose "
            "means in each world were not kept: they are judged by Student's t alone."
        )
    for claims, why in (
        ([j for j in judged if j.claim.by_construction], "so by construction, or say what another says"),
        ([j for j in judged if j.claim.ours], "our own, about our recipe"),
    ):
        if claims:
            said.append(f"Shown and not counted, because they are {why}: {counted(len(claims), 'claim')}.")
    if missing:
        names = shown([one["name"] for one in missing])
        said.append(f"Not tested, because tasks behind them were not run: {counted(len(missing), 'claim')} ({names}).")
    return said


def write_summary(
    page: Page, judged: Sequence[Judged], missing: Sequence[Untested], size: Size, earlier: Earlier | None = None
) -> None:
    if size.effort < 1:
        page.paragraph(
            f"This is a run at scale {size.scale:g}, with shortened logs, training and horizon: it shows that "
            "everything works and says nothing about the paper."
        )
    for sentence in summarise(judged, missing):
        page.paragraph(sentence)
    rows = {j.claim.name: [j.shown_verdict, j.claim.says, j.label] for j in judged}
    rows |= {one["name"]: ["not tested", one["says"], one["label"]] for one in missing}
    header = ["verdict", "claim of the paper, in our words", "tested in"]
    if earlier is not None:
        page.paragraph(compare_verdicts(judged, earlier))
        header = [f"verdict, {_seeds(size.seeds)}", f"verdict, {earlier.title}", *header[1:]]
        rows = {name: [row[0], earlier.verdicts.get(name, "not tested"), *row[1:]] for name, row in rows.items()}
    if rows:
        page.table(header, list(rows.values()), folded="All claims in one table")


def compare_verdicts(judged: Sequence[Judged], earlier: Earlier) -> str:
    """Count the claims that got the same verdict in another run, and name those that changed sides."""
    both = [j for j in judged if j.claim.counts and j.claim.name in earlier.verdicts]
    same = [j for j in both if j.judgement.verdict == earlier.verdicts[j.claim.name]]
    sides = {"holds", "does not hold"}
    turned = [j.claim.name for j in both if {j.judgement.verdict, earlier.verdicts[j.claim.name]} == sides]
    opposite = f"{counted(len(turned), 'claim')} changed sides ({shown(turned)})" if turned else "none changed sides"
    return (
        f"Beside {earlier.title}: of {counted(len(both), 'claim')} that count and were tested in both runs, "
        f"{len(same)} have the same verdict; {opposite}, and the others became decided or undecided."
    )


def _write_exhibit(page: Page, exhibit: Exhibit, out: Path, is_regret: bool) -> None:
    for name, figure in exhibit.figures.items():
        save_figure(figure, out / f"{name}.png")
        page.figure(svg_of(figure), FIGURE_CAPTION if is_regret else "")
    for table in exhibit.tables:
        caption = f"{table.caption}: mean ± standard error / median" if is_regret else ""
        page.table(table.header, table.rows, folded=caption)
    for remark in exhibit.remarks:
        page.paragraph(remark)


def write_claim(page: Page, judged: Judged) -> None:
    _, claim, judgement = judged
    among, wide = len(judgement.comparisons), judgement.released_width
    evidence = [f"{comparison.verdict(among)}: {comparison}" for comparison in judgement.comparisons]
    if wide:
        evidence.append(f"With the encoder's released width, which does not count: {combine(wide)}.")
        evidence += [f"released width, {comparison.verdict(len(wide))}: {comparison}" for comparison in wide]
    evidence += [f"for contrast, {comparison.verdict()}: {comparison}" for comparison in judgement.contrasts]
    if claim.by_construction:
        evidence.append(f"Does not count: {claim.by_construction}")
    if claim.ours:
        evidence.append("Does not count: this sentence is ours and not the paper's.")
    kind = KINDS[judgement.verdict] if claim.counts else "open"
    shown = judged.shown_verdict
    page.verdict(kind, f"{shown[0].upper()}{shown[1:]}:", f"{claim.says} ({claim.where})", evidence, claim.remark)


def _write_how(
    page: Page, experiments: Sequence[AbstractExperiment], results: Results, failures: Sequence[Failure]
) -> None:
    size = results.size
    page.heading("How it was run")
    page.paragraph(
        f"Scale {size.scale:g}: {_worlds(size)}; figures have {counted(size.instances, 'new instance')} in each, "
        f"{_rounds(experiments, size)}. All policies meet the same instances, contexts and rewards. Standard errors "
        "are the larger of those over worlds and over instances; fits are compared seed by seed. A difference counts "
        f"if Student's t and the sign flips of worlds agree, which takes {FEWEST_WORLDS} worlds at least."
    )
    parts = [(experiment.label, [experiment]) for experiment in experiments]
    page.table(
        ["experiment", "CPU minutes, with the fits it shares", "of them playing"],
        [
            [name, *(f"{cpu_seconds(part, results, with_fits) / 60:.1f}" for with_fits in (True, False))]
            for name, part in [*parts, ("all, each task once", list(experiments))]
        ],
    )
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    page.paragraph(f"ilb {__version__}, Python {platform.python_version()}, {versions}; {platform.machine()}.")
    warned = sorted({text for task in _tasks(experiments, results) for text in results.store.about(task)["warnings"]})
    if warned:
        page.table(["what the library warned of"], [[text] for text in warned], folded="Warnings during the run")
    for failure in failures:
        page.paragraph(f"Failed: {failure.task}. {failure.error}")


def _worlds(size: Size) -> str:
    if len(size.seeds) == 1:
        return f"one world ({_seeds(size.seeds)}), with a fit for every row of a table and every line of a figure"
    return (
        f"{len(size.seeds)} worlds ({_seeds(size.seeds)}), each with fits of its own for every row of a table "
        "and every line of a figure"
    )


def _seeds(seeds: range) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _rounds(experiments: Sequence[AbstractExperiment], size: Size) -> str:
    """Say how long instances are played: the usual horizon, and where it is another one."""
    usual = size.horizon()
    horizons = {e.label: size.horizon(e.horizon) for e in experiments if e.horizon is not None}
    others = [f"{counted(rounds, 'round')} in {label}" for label, rounds in horizons.items() if rounds != usual]
    return ", ".join([*([] if horizons and len(others) == len(horizons) else [counted(usual, "round")]), *others])


def _tasks(experiments: Sequence[AbstractExperiment], results: Results) -> list[AbstractTask]:
    return [task for wave in plan(experiments, results) for task in wave if task in results.store]


def plain_claims(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Write judged claims as plain values; `read_claims` in `ilb_paper.rejudge` reads them."""
    return [
        {
            "name": claim.name,
            "label": label,
            "says": claim.says,
            "verdict": judgement.verdict,
            "counts": claim.counts,
            "by_construction": claim.by_construction,
            "ours": claim.ours,
            "comparisons": _plain_comparisons(judgement.comparisons),
            "released_width": _plain_comparisons(judgement.released_width),
            "contrasts": _plain_comparisons(judgement.contrasts),
        }
        for label, claim, judgement in judged
    ]


def _plain_comparisons(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Leave out what is not finite; without degrees of freedom, the quantiles are those of the normal distribution."""
    numbers = ("difference", "standard_error", "freedom")
    return [c._asdict() | {name: None for name in numbers if not math.isfinite(getattr(c, name))} for c in comparisons]


def write_json(path: Path, plain: dict[str, Any]) -> None:
    write_whole(path, json.dumps(plain, indent=1, allow_nan=False) + "\n")
