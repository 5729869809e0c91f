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

from ilb.logs.messages import counted
from ilb.plots.panels import DIRECT_FLOOR
from ilb.plots.regret import save_figure, svg_of
from ilb.report.page import Page
from ilb.version import __version__
from ilb_paper.catalogue import EXPERIMENTS
from ilb_paper.claims import Claim, Comparison, Judgement, Verdict
from ilb_paper.experiment import Exhibit, Experiment, RegretFigure, ScoreTable
from ilb_paper.results import Results
from ilb_paper.runner import Failure, plan
from ilb_paper.size import Size
from ilb_paper.tasks import PlayTask

KINDS = {"holds": "good", "does not hold": "bad", "undecided": "open"}
VERBS = {
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


def judge_all(experiments: Sequence[Experiment], results: Results) -> list[Judged]:
    """Test every claim for which the tasks that it rests on are done."""
    judged = []
    for experiment in experiments:
        for claim in experiment.claims:
            try:
                judged.append(Judged(experiment.label, claim, claim.judge(results)))
            except (KeyError, FileNotFoundError):
                continue  # not run yet
    return judged


def _begun(experiment: Experiment, results: Results) -> bool:
    """Say whether there is something to show of an experiment."""
    partial = isinstance(experiment, ScoreTable | RegretFigure)
    enough = any if partial else all
    return enough(task in results.store for task in experiment.tasks(results))


def cpu_seconds(experiments: Sequence[Experiment], results: Results, kind: type | None = None) -> float:
    """Add up what the tasks of experiments, or those of one kind, took, each once."""
    tasks = [task for task in _tasks(experiments, results) if kind is None or isinstance(task, kind)]
    return float(sum(results.store.about(task)["cpu_seconds"] for task in tasks))


def write_report(
    experiments: Sequence[Experiment], results: Results, out: Path, failures: Sequence[Failure] = ()
) -> list[Judged]:
    """Write `index.html`, the figures and `reproduction.json` into `out`; give the judged claims."""
    judged = judge_all(experiments, results)
    # Tables and curves are shown as far as they go; other figures are drawn whole or not at all.
    done = [e for e in experiments if _begun(e, results)]
    exhibits = {experiment.label: experiment.show(results) for experiment in done}
    page = Page(
        "Identifiable Latent Bandits, reproduced",
        f"{_what(done)}{_judged(judged)}.",
    )
    _write_summary(page, judged, results)
    page.contents([(experiment.label, experiment.title) for experiment in done])
    for experiment in done:
        page.heading(experiment.title, experiment.label)
        _write_exhibit(page, exhibits[experiment.label], out, folded=isinstance(experiment, RegretFigure))
        for label, claim, judgement in judged:
            if label == experiment.label:
                _write_claim(page, claim, judgement)
    _write_how(page, experiments, results, failures)
    page.write(out / "index.html", f"Made by ilb {__version__}.{_again(experiments, results)}")
    plain = {"labels": [experiment.label for experiment in experiments], **_plain(exhibits, judged, results)}
    text = json.dumps(plain, indent=1, allow_nan=False)
    (out / "reproduction.json").write_text(text + "\n")
    return judged


def _judged(judged: Sequence[Judged]) -> str:
    return f" beside what this library gives, and {counted(len(judged), 'claim')} with a verdict" if judged else ""


def _is_all(experiments: Sequence[Experiment]) -> bool:
    return {experiment.label for experiment in experiments} >= set(EXPERIMENTS)


def _what(shown: Sequence[Experiment]) -> str:
    """Name what the report holds, which may be less than what earlier commands left in the directory."""
    if _is_all(shown):
        return "All tables and figures of the paper"
    labels = ", ".join(experiment.label for experiment in shown) or "nothing yet"
    of_the_paper = all(experiment.label in EXPERIMENTS for experiment in shown)
    return f"This report holds {labels}" + (": tables and figures of the paper" if of_the_paper else "")


def _again(experiments: Sequence[Experiment], results: Results) -> str:
    """Give the command that makes the report again; experiments of one's own have none."""
    labels = [experiment.label for experiment in experiments]
    if not set(labels) <= set(EXPERIMENTS):
        return ""
    named = "all" if _is_all(experiments) else shlex.join(labels)
    return f" Make it again: ilb reproduce {named} --scale {results.size.scale:g}"


def _counts(verdicts: Sequence[Verdict]) -> str:
    """Count verdicts in a sentence.

    >>> _counts(["holds", "holds", "does not hold"])
    '2 claims hold, 1 does not hold.'
    """
    parts: list[str] = []
    for verdict, verbs in VERBS.items():
        if count := sum(verdict == found for found in verdicts):
            number = str(count) if parts else counted(count, "claim")
            parts.append(f"{number} {verbs[count > 1]}")
    return ", ".join(parts) + "." if parts else "No claim was tested."


def _write_summary(page: Page, judged: Sequence[Judged], results: Results) -> None:
    if results.size.effort < 1:
        page.paragraph(
            f"This is a run at scale {results.size.scale:g}, with shortened logs, training and horizon: it shows that "
            "everything works and says nothing about the paper."
        )
    page.paragraph(_counts([j.judgement.verdict for j in judged]))
    if judged:
        rows = [[j.judgement.verdict, j.claim.says, j.label] for j in judged]
        page.table(["verdict", "claim of the paper, in our words", "tested in"], rows, folded="All claims in one table")


def _write_exhibit(page: Page, exhibit: Exhibit, out: Path, folded: bool) -> None:
    for name, figure in exhibit.figures.items():
        save_figure(figure, out / f"{name}.png")
        page.figure(svg_of(figure), FIGURE_CAPTION if folded else "")
    for table in exhibit.tables:
        caption = f"{table.caption}: mean ± standard error / median" if folded else ""
        page.table(table.header, table.rows, folded=caption)
    for remark in exhibit.remarks:
        page.paragraph(remark)


def _write_claim(page: Page, claim: Claim, judgement: Judgement) -> None:
    among = len(judgement.comparisons)
    evidence = [f"{comparison.verdict(among)}: {comparison}" for comparison in judgement.comparisons]
    evidence += [f"for contrast, {comparison.verdict()}: {comparison}" for comparison in judgement.contrasts]
    text = f"{claim.says} ({claim.where})"
    page.verdict(KINDS[judgement.verdict], judgement.verdict.capitalize() + ":", text, evidence, claim.remark)


def _write_how(page: Page, experiments: Sequence[Experiment], results: Results, failures: Sequence[Failure]) -> None:
    size = results.size
    page.heading("How it was run")
    page.paragraph(
        f"Scale {size.scale:g}: {_worlds(size)}; figures have {counted(size.instances, 'new instance')} in each, "
        f"{_rounds(experiments, size)}. All policies meet the same instances, contexts and rewards. Standard errors "
        "are the larger of those over worlds and over instances; fits are compared seed by seed."
    )
    parts = [(experiment.label, [experiment]) for experiment in experiments]
    page.table(
        ["experiment", "CPU minutes, with the fits it shares", "of them playing"],
        [
            [name, *(f"{cpu_seconds(part, results, kind) / 60:.1f}" for kind in (None, PlayTask))]
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
        return "one world (seed 0), with a fit for every row of a table and every line of a figure"
    return (
        f"{len(size.seeds)} worlds (seeds 0 to {size.seeds[-1]}), each with fits of its own for every row of a table "
        "and every line of a figure"
    )


def _rounds(experiments: Sequence[Experiment], size: Size) -> str:
    """Say how long instances are played: the usual horizon, and where it is another one."""
    usual = size.horizon()
    figures = [experiment for experiment in experiments if isinstance(experiment, RegretFigure)]
    others = [f for f in figures if size.horizon(f.horizon) != usual]
    said = [f"{counted(size.horizon(f.horizon), 'round')} in {f.label}" for f in others]
    return ", ".join([*([] if figures and len(others) == len(figures) else [counted(usual, "round")]), *said])


def _tasks(experiments: Sequence[Experiment], results: Results) -> list[Any]:
    return [task for wave in plan(experiments, results) for task in wave if task in results.store]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain_comparisons(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    return [
        {"says": c.says, "difference": _finite(c.difference), "standard_error": _finite(c.standard_error)}
        for c in comparisons
    ]


def _plain(exhibits: dict[str, Exhibit], judged: Sequence[Judged], results: Results) -> dict[str, Any]:
    return {
        "scale": results.size.scale,
        "claims": [
            {
                "name": j.claim.name,
                "label": j.label,
                "says": j.claim.says,
                "verdict": j.judgement.verdict,
                "comparisons": _plain_comparisons(j.judgement.comparisons),
                "contrasts": _plain_comparisons(j.judgement.contrasts),
            }
            for j in judged
        ],
        "tables": {
            label: [
                {"caption": t.caption, "header": list(t.header), "rows": [list(r) for r in t.rows]} for t in e.tables
            ]
            for label, e in exhibits.items()
        },
    }
