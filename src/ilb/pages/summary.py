"""The cards on top of a report: the four things that a reader wants to know first."""

from __future__ import annotations

from html import escape

import numpy as np

from ilb.logs.messages import counted
from ilb.models.latent import LatentModel
from ilb.pages.page import Page
from ilb.trust.checks import Checks, Verdict
from ilb.trust.evaluation import Evaluation
from ilb.trust.portrait import Portrait


def in_short(
    page: Page, portrait: Portrait, model: LatentModel, checks: Checks | None, evaluation: Evaluation | None
) -> None:
    """Say the four things that a reader wants to know first."""
    cards = [_card_of_choice(model), _card_of_checks(checks), _card_of_gain(evaluation), _card_of_people(portrait)]
    page.parts.append(f'<div class="cards">{"".join(cards)}</div>')


def _card(kind: str, head: str, strong: str, text: str) -> str:
    return (
        f'<div class="card {kind}"><b>{escape(head)}</b><strong>{escape(strong)}</strong>'
        f"<span>{escape(text)}</span></div>"
    )


def _card_of_choice(model: LatentModel) -> str:
    rows = () if model.provenance is None else model.provenance.choice
    chosen = next((row for row in rows if row["chosen"]), None)
    plain = [row for row in rows if row["reference"] and not row["chosen"]]
    head = "Does the model predict?"
    if chosen is None:
        return _card("", head, "Not compared", "Nothing was compared when it was fitted; see the checks.")
    score = "-" if chosen["r2"] is None else f"{chosen['r2']:.2f}"
    said = f"R² of the next reward of held-out people: {score}"
    if chosen["reference"] or not plain:
        return _card("doubtful", head, "A plain model does as well", f"{said}.")
    rival = max(plain, key=lambda row: row["log_likelihood"])
    other = "-" if rival["r2"] is None else f"{rival['r2']:.2f}"
    sure = rival["behind"] > 2 * (rival["standard_error"] or np.inf)
    strong = "Better than plain models" if sure else "Not surely better than plain models"
    return _card("fine" if sure else "doubtful", head, strong, f"{said}, against {other} of {rival['candidate']}.")


def _card_of_checks(checks: Checks | None) -> str:
    head = "May it be believed?"
    if checks is None:
        return _card("", head, "Not checked", "The checks were left out of this report.")
    strong = {
        Verdict.FINE: "All checks are fine",
        Verdict.DOUBTFUL: "With some doubts",
        Verdict.BROKEN: "Something is broken",
    }[checks.verdict]
    return _card(str(checks.verdict), head, strong, checks.sentence())


def _card_of_gain(evaluation: Evaluation | None) -> str:
    head = "What would be gained?"
    if evaluation is None:
        return _card("", head, "Not estimated", "The gain was left out of this report.")
    if evaluation.gain is None:
        return _card("doubtful", head, "The logs can't say", evaluation.refusal or "")
    gain = evaluation.gain
    kind = "fine" if gain.low > 0 else "broken" if gain.high < 0 else "doubtful"
    text = (
        f"a decision more than what was done (95 %: {gain.low:+.3g} to {gain.high:+.3g}), over the first "
        f"{counted(evaluation.horizon.rounds, 'decision')} of a person."
    )
    failed = [control.name for control in evaluation.controls if not control.passed]
    if failed:
        kind, text = "broken", f"{text} A control failed: do not believe it yet."
    return _card(kind, head, f"{gain.value:+.3g}", text)


def _card_of_people(portrait: Portrait) -> str:
    order = sorted(portrait.actions, key=lambda line: -line.best_for)
    several = [line for line in order if line.best_for > 0]
    strong = "One action for all" if len(several) < 2 else f"{len(several)} actions, by person"
    listed = ", ".join(f"{line.action} for {line.best_for:.0%}" for line in several[:4])
    more = f", {len(several) - 4} more" if len(several) > 4 else ""
    return _card("", "What is best, and for whom?", strong, f"Expected to be best: {listed}{more}.")
