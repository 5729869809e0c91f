"""Checks of how much data there is: what more people, or more rows of a person, would bring."""

from __future__ import annotations

import numpy as np

from ilb.errors import FitError
from ilb.estimates import r_squared
from ilb.offline.ahead import mean_by_person
from ilb.offline.fit import fit_again
from ilb.trust.certainty import rewards_before
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut, quietly

ROWS = (0, 1, 2, 5, 10, 20, 50)


def check_amount(held: HeldOut) -> Check:
    """Ask what more people, and more rows of a person, would bring: fits on half of the people, and rewards in turn."""
    question, bar = "Would more people or rows help?", "R² + 0.05 from twice the people"
    ahead = held.predictions
    known = rewards_before(ahead.person)
    by_rows: list[tuple[int, float]] = []
    for first, last in zip(ROWS, (*ROWS[1:], np.inf), strict=True):
        some = (known >= first) & (known < last)
        if some.sum() >= 50 and len(np.unique(ahead.person[some])) >= 8:
            score = r_squared(ahead.mean[some], ahead.reward[some], ahead.person[some])
            by_rows.append((first, score.value))
    listed = ", ".join(f"{score:.2f} after {rows}" for rows, score in by_rows)
    said = f"R² of the next reward, by how many the person had before: {listed}."
    numbers: dict[str, list[tuple[int, float]]] = {"by_rows": by_rows, "by_people": []}
    if not held.crossed:
        said += " The model was not fitted again, so nothing can be said of more people."
        return Check("amount", question, "-", bar, Verdict.FINE, said, "", numbers)
    rng = held.rng(10)
    halves = [np.sort(rng.permutation(part.others)[: len(part.others) // 2]) for part in held.some_parts]
    try:
        with quietly():
            models = fit_again(held.model, [held.logs.select(half) for half in halves], seed=held.seed)
    except FitError as error:
        return Check("amount", question, "-", bar, Verdict.DOUBTFUL, f"{said} Half of the people are too few: {error}")
    fewer = held.predicted_by(models)
    ahead = held.predicted_by([part.model for part in held.some_parts])
    less, full = (r_squared(one.mean, one.reward, one.person) for one in (fewer, ahead))
    total = float(np.var(ahead.reward))
    saved = (fewer.reward - fewer.mean) ** 2 - (ahead.reward - ahead.mean) ** 2
    gain = mean_by_person(saved / max(total, 1e-12), ahead.person)
    people = len(held.parts[0].others)
    numbers["by_people"] = [(people // 2, less.value), (people, full.value)]
    figure = f"{gain.value:+.3f} of R² from {people // 2} to {people} people"
    said += f" With {people // 2} people to learn from it is {less.value:.3f}, with {people} it is {full.value:.3f}."
    steep = gain.value > max(2 * gain.standard_error, 0.05)
    verdict = Verdict.DOUBTFUL if steep else Verdict.FINE
    remedy = "More people: the model has not yet learned what it could." if steep else ""
    return Check("amount", question, figure, bar, verdict, said, remedy, numbers)
