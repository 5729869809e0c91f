"""Checks of who chose the actions in the logs, and whether every action can be judged for every kind of person."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ilb.logs.messages import brief
from ilb.trust.beliefs import believe
from ilb.trust.chance import ALARM, chance_of, shown_chance
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut
from ilb.trust.rounds import effect_of_action, sums_by


def check_choices(held: HeldOut) -> Check:
    """Ask what the choice of an action in the logs depended on: the person (harmless), or the moment (not)."""
    question = "Who chose the action?"
    bar = f"{shown_chance(ALARM).replace('=', '<')}, 2 % of the variance within people"
    n, logs = held.model.encoded_dim, held.logs
    rows = np.flatnonzero(logs.action >= 0)
    if not n:
        said = "Without an encoding it can't be told on what choices depended."
        return Check("choices", question, "-", bar, Verdict.FINE, said)
    moment, chance = effect_of_action(logs.action[rows], held.encodings[rows], logs.instance[rows], held.rng(7))
    person = 1 - _propensities(held).entropy_left
    paid, paid_chance = _pay_of_the_moment(held)
    numbers = {"moment": moment, "chance": chance, "person": person, "paid": paid, "paid_chance": paid_chance}
    figure = f"moment {moment:.1%}, person {person:.1%}"
    said = (
        f"The action goes with {moment:.1%} of how contexts vary within people ({shown_chance(chance)}), and knowing "
        f"who the person is tells {person:.1%} of what is chosen (harmless: the model knows the person, too)."
    )
    if not (moment > 0.02 and chance < ALARM):
        said += " What nobody wrote down can't be seen here."
        return Check("choices", question, figure, bar, Verdict.FINE, said, "", numbers)
    remedy = (
        "Record why an action was chosen, or draw some actions at random; let the model know the moment (leave reward= "
        "out, --reward-model auto)."
    )
    if paid > 0.02 and paid_chance < ALARM:
        said += (
            f" Rewards depend on the moment, too ({paid:.1%} of what is left of them, {shown_chance(paid_chance)}): "
            "effects of actions are mixed up with those of the moment."
        )
        return Check("choices", question, figure, bar, Verdict.BROKEN, said, remedy, numbers)
    said += " What is left of rewards does not depend on the moment as far as can be seen."
    return Check("choices", question, figure, bar, Verdict.DOUBTFUL, said, remedy, numbers)


def _pay_of_the_moment(held: HeldOut) -> tuple[float, float]:
    """Give the share of residuals within people that the moment's deviation explains, and the chance of it."""
    rows = np.isfinite(held.residuals)
    _, who = np.unique(held.logs.instance[rows], return_inverse=True)
    people = int(who.max()) + 1
    count = np.bincount(who)[:, None]
    both = np.concatenate([held.residuals[rows][:, None], held.encodings[rows]], axis=1)
    both = both - (sums_by(both, who, people) / count)[who]
    left, moment = both[:, 0], both[:, 1:]
    chance = chance_of(sums_by(left[:, None] * moment, who, people), held.rng(8))
    fitted = moment @ np.linalg.lstsq(moment, left, rcond=None)[0]
    freedom = max(len(left) - people, 1)
    unexplained = float(np.sum((left - fitted) ** 2) / max(np.sum(left**2), 1e-300))
    return max(1 - unexplained * freedom / max(freedom - moment.shape[1], 1), 0.0), chance


MOST_ROWS = 5_000


class _Propensities(NamedTuple):
    """How probable each action that was played is for each person, and the share of the entropy of actions left."""

    chances: Float[np.ndarray, "I played"]
    played: Int[np.ndarray, " played"]
    entropy_left: float


def _propensities(held: HeldOut) -> _Propensities:
    """Estimate propensities by a logistic regression on the person's state."""
    logs = held.logs
    rows = np.flatnonzero(logs.action >= 0)
    if len(rows) > MOST_ROWS:
        rows = np.sort(held.rng(9).choice(rows, MOST_ROWS, replace=False))
    state = (held.person_means - held.person_means.mean(axis=0)) / np.maximum(held.person_means.std(axis=0), 1e-12)
    features = np.concatenate([state, np.maximum(state, 0.0)], axis=1)  # a kink, for who is chosen at the extremes
    action = logs.action[rows]
    played = np.unique(action)
    if len(played) < 2 or not features.shape[1]:
        return _Propensities(np.ones((logs.instances, len(played))) / max(len(played), 1), played, 1.0)
    from sklearn.linear_model import LogisticRegression  # slow to import, and few need it

    model = LogisticRegression(max_iter=300).fit(features[logs.instance[rows]], action)
    chances = np.asarray(model.predict_proba(features))
    column = np.searchsorted(played, action)
    told = -np.mean(np.log(np.maximum(chances[logs.instance[rows], column], 1e-12)))
    share = np.bincount(column) / len(column)
    left = float(told / max(-np.sum(share * np.log(share)), 1e-12))
    return _Propensities(chances, played, min(left, 1.0))


SUPPORT = 0.1
"""Effective rows of an action, as a share of what they would be if everybody were equally likely to get it."""


def check_overlap(held: HeldOut) -> Check:
    """Ask whether all kinds of people could have had every action."""
    question, bar = "Could everybody have had every action?", f"{SUPPORT:.0%} of the sample"
    if not held.model.encoded_dim:
        return Check("overlap", question, "-", bar, Verdict.FINE, "Without an encoding there are no kinds of people.")
    chances, played, _ = _propensities(held)
    rows = np.array([np.count_nonzero(held.logs.action == one) for one in played])
    # To learn of an action for everybody, rows count by 1 / propensity: what is left is the harmonic mean.
    share = 1 / np.mean(1 / np.maximum(chances, 1e-6), axis=0) / np.maximum(chances.mean(axis=0), 1e-12)
    worst = int(np.argmin(share))
    labels = [brief(held.logs.schema.actions[one]) for one in played]
    effective = rows * share
    low = share < SUPPORT
    figure = f"{share[worst]:.0%} for {labels[worst]}"
    said = (
        f"To judge an action for all kinds of people, the {rows[worst]:,} rows of {labels[worst]} are worth "
        f"{effective[worst]:.0f}: it was given to some kinds of people and hardly to others."
        if low[worst]
        else f"Every action was given to all kinds of people; the least even one is {labels[worst]}, whose "
        f"{rows[worst]:,} rows are worth {effective[worst]:.0f}."
    )
    numbers = {"share": dict(zip(labels, share.tolist(), strict=True))}
    if not low.any():
        return Check("overlap", question, figure, bar, Verdict.FINE, said, "", numbers)
    verdict = Verdict.BROKEN if share[worst] < SUPPORT / 5 else Verdict.DOUBTFUL
    remedy = (
        "What is said of such actions for others is extrapolated by a line. Try them on others, at random, before they "
        "are recommended."
    )
    return Check("overlap", question, figure, bar, verdict, said, remedy, numbers)


LEAST_ROWS, LEAST_PEOPLE = 10, 5


def check_support(held: HeldOut) -> Check:
    """Ask whether every action was seen often enough, and among the people for whom it is said to be best."""
    question, bar = "Is every action seen enough?", f"{LEAST_ROWS} rewards of {LEAST_PEOPLE} people"
    logs = held.logs
    seen = logs.rewarded
    rows = np.bincount(logs.action[seen], minlength=logs.actions)
    cells = np.unique(logs.instance[seen].astype(np.int64) * logs.actions + logs.action[seen])
    people = np.bincount(cells % logs.actions, minlength=logs.actions)
    best = np.zeros(logs.instances, dtype=np.int64)
    for part in held.parts:
        table = logs.select(part.people)
        everything = np.ones(table.rows, dtype=bool)
        best[part.people] = np.argmax(believe(part.model, table, everything, everything).mean, axis=1)
    wanted = np.bincount(best, minlength=logs.actions)
    rare = np.flatnonzero((rows < LEAST_ROWS) | (people < LEAST_PEOPLE))
    labels = [brief(label) for label in logs.schema.actions]
    least = int(np.argmin(rows))
    figure = f"{labels[least]}: {rows[least]:,} rewards of {people[least]:,} people"
    numbers = {
        "actions": [
            {"action": label, "rewards": int(r), "people": int(p), "best_for": int(w)}
            for label, r, p, w in zip(labels, rows, people, wanted, strict=True)
        ]
    }
    said = f"The rarest of {logs.actions} actions is {figure}."
    if not len(rare):
        return Check("support", question, figure, bar, Verdict.FINE, said, "", numbers)
    share = wanted[rare].sum() / logs.instances
    listed = ", ".join(labels[one] for one in rare[:5]) + (", …" if len(rare) > 5 else "")
    said = f"{len(rare)} of {logs.actions} actions are rare ({listed}); they are best for {share:.0%} of people."
    verdict = Verdict.BROKEN if share > 0.2 else Verdict.DOUBTFUL
    remedy = "Merge actions that are alike, leave rare ones out, or collect rows with them."
    return Check("support", question, figure, bar, verdict, said, remedy, numbers)
