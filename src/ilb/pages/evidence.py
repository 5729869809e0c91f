"""The sections of a report on what may be believed: checks, amounts of data, and the gain."""

from __future__ import annotations

from html import escape

from ilb.pages.contents import TITLES
from ilb.pages.page import Page
from ilb.plots.portraits import (
    draw_agreement,
    draw_curve,
    draw_intervals,
)
from ilb.trust.checks import MARKS, Check, Checks
from ilb.trust.evaluation import CONTROL_HEADER, HEADER, Evaluation

NOBODY = 0.02
"""A share of people who are followed that far, after which a curve shows nothing more."""


def the_checks(page: Page, checks: Checks | None) -> None:
    """Show every check, the bad ones first."""
    page.heading(TITLES["checks"], "checks")
    if checks is None:
        page.paragraph("The checks were left out of this report.")
        return
    page.paragraph(f"{checks.sentence()} {checks.about}")
    for row in sorted(checks, key=lambda row: -row.verdict.badness):
        page.parts.append(_check(row))


def _check(row: Check) -> str:
    remedy = f"<p><b>What to do:</b> {escape(row.remedy)}</p>" if row.remedy else ""
    return (
        f'<div class="check"><div class="verdict {row.verdict}">{MARKS[row.verdict]} {row.verdict}</div>'
        f"<div><h3>{escape(row.question)}</h3><p>{escape(row.sentence)}</p>{remedy}"
        f'<p class="figure">{escape(row.figure)} · bar: {escape(row.bar)}</p></div></div>'
    )


def the_amount(page: Page, checks: Checks | None) -> None:
    """Show learning curves, and whether intervals and probabilities hold."""
    page.heading(TITLES["amount"], "amount")
    if checks is None:
        page.paragraph("This is part of the checks, which were left out of this report.")
        return
    known = {row.name: row for row in checks}
    figures = []
    if "amount" in known:
        page.paragraph(known["amount"].sentence)
        curves = {
            "by_rows": (
                "rewards seen of the person before",
                "How well the next reward is predicted as a person is known.",
            ),
            "by_people": ("people to learn from", "How well, as more people are there to learn from."),
        }
        for name, (title, caption) in curves.items():
            points = [(float(x), float(y)) for x, y in known["amount"].numbers.get(name, ())]
            if len(points) > 1:
                figures.append((draw_curve(points, (title, "R² of the next reward"), "learning curve"), caption))
    if "intervals" in known:
        after, points = _coverage(known["intervals"])
        if points:
            svg = draw_agreement(points, ("interval says", "share of rewards inside"), "do intervals hold?")
            said = f"Do intervals hold what they promise, after {after} rewards or more? On the dashed line they do."
            figures.append((svg, said))
    bins = known["probabilities"].numbers.get("bins", ()) if "probabilities" in known else ()
    if len(bins) > 1:
        svg = draw_agreement(
            [(float(says), float(came)) for says, came, _ in bins],
            ("probability that one action is better", "how often it was"),
            "do probabilities hold?",
            0.4,
        )
        figures.append((svg, "Do probabilities hold? On the dashed line they do."))
    page.figures(figures)


def _coverage(row: Check) -> tuple[int, list[tuple[float, float]]]:
    """Read the levels of intervals and the shares that they held, where most was known of a person."""
    table = row.numbers.get("coverage", ())
    after = max((int(one["after"]) for one in table), default=0)
    return after, sorted((float(one["level"]), float(one["held"])) for one in table if one["after"] == after)


def the_gain(page: Page, evaluation: Evaluation | None, left_out: str) -> None:
    """Show what would be gained, against what, and how sure that is."""
    page.heading(TITLES["gain"], "gain")
    if evaluation is None:
        page.paragraph(left_out or "The gain was left out of this report.")
        return
    for sentence in evaluation.sentences:
        page.paragraph(sentence)
    gains = [line for line in evaluation.lines if line.quantity.startswith("gain")]
    if gains:
        rows: list[tuple[str, float, float, float]] = []
        for line in gains:
            name = line.quantity.removeprefix("gain over ")
            told = f"{name}, {line.estimator}" if name in {row[0] for row in rows} else name
            rows.append((told, line.figure.value, line.figure.low, line.figure.high))
        page.figure(
            draw_intervals(rows, "gain of one decision over …", "gains with their intervals"),
            f"What {evaluation.policy} would have brought these people more than each alternative, with 95 % intervals "
            "over people. Everybody was decided for by a model that had not seen them, and paid from their own logged "
            "rewards.",
        )
    shares = evaluation.horizon.shares
    shares = shares[: next((at + 1 for at, share in enumerate(shares) if share < NOBODY), len(shares))]
    if len(shares) > 1:
        points = [(float(number), share) for number, share in enumerate(shares, start=1)]
        page.figure(
            draw_curve(points, ("decisions of a person", "share followed"), "share of people followed"),
            "How many people the logs can follow for so many decisions; the estimates stop where fewer than four in "
            "five are left.",
        )
    if evaluation.lines:
        page.table(HEADER, evaluation.rows(), folded="All numbers")
    if evaluation.controls:
        page.parts.append("<h3>Controls</h3>")
        page.paragraph("Questions whose answers are known, asked in the same way.")
        page.table(CONTROL_HEADER, evaluation.control_rows())
