"""Checks of what is predicted: whether it is better than what anybody could, and whether a line is enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from ilb.estimates import r_squared
from ilb.logs import Logs
from ilb.offline.ahead import lead, mean_by_person
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut

INSTEAD = {
    "rewards only": " (recipe=NoEncoding(), --recipe none)",
    "plain contexts": " (recipe=PlainContexts(), --recipe contexts)",
}
"""How to fit the reference that turned out to be better."""


def check_rewards(held: HeldOut) -> Check:
    """Ask whether the model predicts rewards better than what anybody could write in ten lines."""
    question = "Does the state explain rewards?"
    ahead, references = held.predictions, held.references
    scores = {name: r_squared(one.mean, one.reward, one.person).value for name, one in references.items()}
    ours = r_squared(ahead.mean, ahead.reward, ahead.person)
    leads = {name: lead(ahead, one) for name, one in references.items()}
    rival = min(leads, key=lambda name: leads[name].value)
    # What knows nothing of people: a model that does not beat it has found nothing.
    plain = leads["action mean"]
    shuffled = held.predicted_by([part.model for part in held.parts], _with_contexts_of_others(held))
    chance = r_squared(shuffled.mean, shuffled.reward, shuffled.person).value
    figure, bar = f"R² {ours.text()}", f"R² {scores[rival]:.3f} ({rival})"
    listed = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
    said = (
        f"R² of the next reward of people not seen: {ours.text()}; beside it {listed}; with the contexts of other "
        f"people {chance:.3f}."
    )
    numbers = {
        "r2": ours.value,
        "references": scores,
        "leads": {name: [one.value, one.standard_error] for name, one in leads.items()},
        "contexts_of_others": chance,
    }
    worse, error = leads[rival].value, leads[rival].standard_error
    if worse < -3 * error and worse < -0.005:
        said += f" The model is worse than {rival} (log-likelihood {worse:+.3f} ± {error:.3f} a reward)."
        remedy = f"Use {rival} instead{INSTEAD.get(rival, '')}, or leave out what was named, so that it is chosen."
        return Check("rewards", question, figure, bar, Verdict.BROKEN, said, remedy, numbers)
    if not plain.value > 2 * plain.standard_error:
        said += " It can't be told from predicting the same for everybody."
        remedy = "More people or rows, or other contexts; until then the best action on average is as good a guess."
        return Check("rewards", question, figure, bar, Verdict.DOUBTFUL, said, remedy, numbers)
    return Check("rewards", question, figure, bar, Verdict.FINE, said, "", numbers)


def _with_contexts_of_others(held: HeldOut) -> Logs:
    """Give everyone the contexts of another person of the table, over and over if they are fewer."""
    logs, order = held.logs, held.rng(3).permutation(held.logs.instances)
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    row = logs.starts[other[logs.instance]] + logs.time % logs.lengths[other[logs.instance]]
    return replace(logs, context=logs.context[row])


def check_linearity(held: HeldOut) -> Check:
    """Ask whether squares and products of the state would explain what the linear model leaves."""
    question, bar = "Are rewards linear in the state?", "R² + 0.03"
    n = held.model.encoded_dim
    if not n:
        return Check("linearity", question, "-", bar, Verdict.FINE, "There is no encoding that rewards could bend in.")
    seen = np.isfinite(held.foreseen_residuals)
    left, person, action = held.foreseen_residuals[seen], held.logs.instance[seen], held.logs.action[seen]
    bends = _bends(held.person_means[:, : min(n, 6)])
    gained, fold = np.zeros(len(left)), np.zeros(held.logs.instances, dtype=np.int64)
    for number, part in enumerate(held.parts):
        fold[part.people] = number
    for number in range(len(held.parts)):
        out = fold[person] == number
        predicted = np.zeros(out.sum())
        for one in range(held.logs.actions):
            fit_on, use_on = ~out & (action == one), action[out] == one
            if fit_on.sum() < 5 or not use_on.any():
                continue
            x, y = bends[person[fit_on]], left[fit_on]
            centre = y.mean()
            ridge = x.T @ x + max(10.0, 0.02 * len(x)) * np.eye(x.shape[1])
            predicted[use_on] = bends[person[out][use_on]] @ np.linalg.solve(ridge, x.T @ (y - centre))
        gained[out] = left[out] ** 2 - (left[out] - predicted) ** 2
    total = float(np.var(held.logs.reward[held.logs.rewarded], dtype=np.float64))
    gain = mean_by_person(gained / max(total, 1e-12), person)
    bent = gain.value > max(3 * gain.standard_error, 0.03)
    verdict = Verdict.FINE if not bent else Verdict.BROKEN if gain.value > 0.25 else Verdict.DOUBTFUL
    said = (
        f"Squares and products of the state, fitted on other people, add {gain.text()} to the R² of rewards that "
        "contexts foresee."
    )
    remedy = (
        ""
        if not bent
        else "Rewards by a network (reward=MLPRewardRecipe(), --reward-model mlp), or hidden coordinates."
    )
    return Check("linearity", question, f"{gain.value:+.3f} of R²", bar, verdict, said, remedy, {"gain": gain.value})


def _bends(means: Float[np.ndarray, "I n"]) -> Float[np.ndarray, "I q"]:
    """Give squares and products of the coordinates, less what a linear function of them explains, scaled to one."""
    scaled = (means - means.mean(axis=0)) / np.maximum(means.std(axis=0), 1e-12)
    scaled = np.clip(scaled, -3, 3)  # a few odd people must not decide
    rows, columns = np.triu_indices(scaled.shape[1])
    squares = scaled[:, rows] * scaled[:, columns]
    linear = np.concatenate([np.ones((len(scaled), 1)), scaled], axis=1)
    left = squares - linear @ np.linalg.lstsq(linear, squares, rcond=None)[0]
    return np.asarray(left / np.maximum(left.std(axis=0), 1e-12))
