"""Checks of stated certainty: whether intervals hold what they say, and what is probably better is better."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr

from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.offline.ahead import mean_by_person, moment_effects
from ilb.trust.beliefs import believe
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut

LEVELS = (0.5, 0.8, 0.95)
KNOWN_BEFORE = (0, 1, 5, 20)

FORGOTTEN = 0.01
"""What counts for less than this share of what it did is as good as forgotten."""


def check_intervals(held: HeldOut) -> Check:
    """Ask whether stated intervals hold as many rewards as they say, after few rows and after many."""
    question, bar = "Are stated intervals right?", "nominal, within 5 points"
    ahead = held.predictions
    known = rewards_before(ahead.person)
    table, worst = [], (0.0, 0.8, 0.8, 0)
    for level in LEVELS:
        inside = held.inside(level).astype(np.float64)
        for number, first in enumerate(KNOWN_BEFORE):
            last = KNOWN_BEFORE[number + 1] if number + 1 < len(KNOWN_BEFORE) else np.inf
            some = (known >= first) & (known < last)
            if np.count_nonzero(some) < 50:
                continue
            share = mean_by_person(inside[some], ahead.person[some])
            off = share.value - level
            table.append({"level": level, "after": first, "held": share.value, "standard_error": share.standard_error})
            if abs(off) > max(3.5 * share.standard_error, 0.05) and abs(off) > abs(worst[0]):
                worst = (off, level, share.value, first)
    overall = held.inside(0.8).mean() if len(ahead.rows) else np.nan
    figure = f"80 % intervals hold {overall:.1%}"
    listed = "; ".join(
        f"after {first} rewards " + ", ".join(f"{row['held']:.0%}" for row in table if row["after"] == first)
        for first in KNOWN_BEFORE
        if any(row["after"] == first for row in table)
    )
    said = f"Intervals of 50, 80 and 95 % hold these shares of the next rewards: {listed}."
    verdict, remedy = Verdict.FINE, ""
    if worst[0]:
        verdict = Verdict.BROKEN if worst[0] < -0.12 else Verdict.DOUBTFUL
        side = "too narrow" if worst[0] < 0 else "too wide"
        said += f" Those of {worst[1]:.0%} after {worst[3]} rewards are {side}: they hold {worst[2]:.1%}."
        remedy = "Do not take stated certainty at its word" + (
            ": the model is surer than it should be." if worst[0] < 0 else ", though it errs on the side of caution."
        )
    return Check("intervals", question, figure, bar, verdict, said, remedy, {"coverage": table})


def rewards_before(person: Int[np.ndarray, " predictions"]) -> Int[np.ndarray, " predictions"]:
    """Count how many rewards of the same person stand before each (people in order)."""
    position = np.arange(len(person))
    starts = np.flatnonzero(np.r_[True, person[1:] != person[:-1]]) if len(person) else position
    return np.asarray(position - np.repeat(starts, np.diff(np.r_[starts, len(person)])))


def came_true(
    difference: Float[np.ndarray, " pairs"], expected: Float[np.ndarray, " pairs"]
) -> Float[np.ndarray, " pairs"]:
    """Say of each pair whether the one that was expected to do better did; where the two did the same, a half.

    >>> came_true(np.array([1.0, -1.0, 0.0]), np.array([0.2, 0.3, 0.4])).tolist()
    [1.0, 0.0, 0.5]
    """
    return np.asarray((1 + np.sign(difference) * np.sign(expected)) / 2)


def _first_of_cells(logs: Logs, some: Bool[np.ndarray, " rows"]) -> Bool[np.ndarray, " rows"]:
    """Keep of these rows the first of each person and action."""
    rows = np.flatnonzero(some)
    _, first = np.unique(logs.instance[rows].astype(np.int64) * logs.actions + logs.action[rows], return_index=True)
    kept = np.zeros(logs.rows, dtype=bool)
    kept[rows[first]] = True
    return kept


def _later_difference(
    model: LatentModel,
    logs: Logs,
    early: Bool[np.ndarray, " rows"],
    who: Int[np.ndarray, " cells"],
    action: Int[np.ndarray, " cells"],
    age: Float[np.ndarray, " cells"],
    first: Int[np.ndarray, " pairs"],
) -> tuple[np.ndarray, np.ndarray]:
    r"""Give mean and variance of how much better a cell is than the next one, each so many rounds after the early rows.

    What is known fades until then, as for a live person of whom nothing is heard. The states of two moments that are k
    rounds apart are taken to be correlated by $m^k$ with the memory m: by more than that in an autoregression whose
    filter forgets so fast, so differences are rather less certain than the model could say.
    """
    if not len(first):
        return np.zeros(0), np.zeros(0)
    second, memory = first + 1, float(model.noise.memory)
    faded = np.minimum(age, np.ceil(np.log(FORGOTTEN) / np.log(memory)))
    parts = []
    for rounds in np.unique(faded):
        belief, now = believe(model, logs, early, early, later=int(rounds)), np.flatnonzero(faded == rounds)
        cell = who[now], action[now]
        covariance = belief.state_covariance[who[now]]
        parts.append((now, belief.mean[cell], belief.own_variance[cell], belief.loading[cell], covariance))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    mean, own, loading, covariance = (column[np.argsort(columns[0])] for column in columns[1:])
    apart = np.einsum("cp,cpq,cq->c", loading, covariance, loading) + own
    earlier = np.where((age[first] < age[second])[:, None, None], covariance[first], covariance[second])
    together = np.einsum("ip,ipq,iq->i", loading[first], earlier, loading[second])
    together *= memory ** np.abs(age[first] - age[second])
    return mean[first] - mean[second], apart[first] + apart[second] - 2 * together


def check_probabilities(held: HeldOut) -> Check:
    """Ask whether what is said to be probably better turns out better as often as that."""
    question, bar = "Is what is said to be probably better, better?", "as often as stated, within 5 points"
    stated, right, person = [], [], []
    for part in held.parts:
        table = held.logs.select(part.people)
        early = table.time < table.lengths[table.instance] // 2
        memory = float(part.model.noise.memory)
        late = ~early & table.rewarded
        if memory < 1:  # who changes is someone else later on: the first reward of each action is one of a moment
            late = _first_of_cells(table, late)
        left = table.reward - moment_effects(part.model.moment, table)
        cell = table.instance[late].astype(np.int64) * table.actions + table.action[late]
        cells, index, rows = np.unique(cell, return_inverse=True, return_counts=True)
        mean = np.bincount(index, weights=left[late]) / rows if len(cells) else np.zeros(0)
        who, action = cells // table.actions, cells % table.actions
        # Each cell beside the next one of the same person: no pair is counted twice.
        first = np.flatnonzero(who[1:] == who[:-1]) if len(who) > 1 else np.zeros(0, dtype=np.int64)
        second = first + 1
        variance = np.asarray(part.model.noise.reward_variance, np.float64)[action] / rows
        if memory < 1:
            age = np.zeros(len(cells))
            age[index] = table.time[late] - table.lengths[table.instance[late]] // 2 + 1
            expected, doubt = _later_difference(part.model, table, early, who, action, age, first)
        else:
            belief = believe(part.model, table, early, early)
            expected, doubt = belief.difference(who[first], action[first], action[second])
        spread = np.sqrt(doubt + variance[first] + variance[second])
        chance = ndtr(np.abs(expected) / np.maximum(spread, 1e-12))
        stated.append(chance)
        right.append(came_true(mean[first] - mean[second], expected))
        person.append(part.people[who[first]])
    says, came, units = (np.concatenate(one) for one in (stated, right, person))
    if len(says) < 50:
        said = "Too few people have rewards of two actions in their second half."
        return Check("probabilities", question, "-", bar, Verdict.FINE, said)
    gap = mean_by_person(came - says, units)
    bins = []
    for low, high in ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01)):
        some = (says >= low) & (says < high)
        if some.sum() >= 20:
            bins.append((float(says[some].mean()), float(came[some].mean()), int(some.sum())))
    # To be right more often than stated does no harm, unless it is much more often.
    off = -gap.value > max(3 * gap.standard_error, 0.05) or gap.value > max(3 * gap.standard_error, 0.1)
    verdict = Verdict.FINE if not off else Verdict.DOUBTFUL
    figure = f"{came.mean():.1%} of the time; stated {says.mean():.1%}"
    said = (
        f"From the first half of each history the model says which of two actions will do better in the second half: "
        f"with a probability of {says.mean():.1%} on average, and it is right {came.mean():.1%} of the time."
    )
    remedy = "" if not off else "Do not take the probability of being best at its word."
    numbers = {"stated": float(says.mean()), "true": float(came.mean()), "bins": bins}
    return Check("probabilities", question, figure, bar, verdict, said, remedy, numbers)
