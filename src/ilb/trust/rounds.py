"""Checks of what goes on between rounds: whether a person stays the same, and whether actions change what comes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from ilb.trust.chance import ALARM, chance_of, shown_chance
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut

MOVED = 0.2
"""Changes below this share of what people differ by are not worth a word, however sure they are."""


def check_drift(held: HeldOut) -> Check:
    """Ask whether people are the same in the first and in the last half of their rows."""
    question = "Is a person stationary?"
    bar = f"{shown_chance(ALARM).replace('=', '<')}, {MOVED:g} of what people differ by"
    logs, rng = held.logs, held.rng(5)
    late = logs.time >= (logs.lengths // 2)[logs.instance]
    odd = logs.time % 2 == 1
    parts: dict[str, tuple[np.ndarray, np.ndarray, float]] = {}
    if held.model.encoded_dim:
        spread = float(np.sqrt(np.trace(held.scatter.population_covariance)))
        parts["contexts"] = (held.encodings, np.ones(logs.rows, dtype=bool), spread)
    rewarded = np.isfinite(held.residuals)
    parts["rewards"] = (np.where(rewarded, held.residuals, 0.0)[:, None], rewarded, _reward_spread(held))
    numbers: dict[str, dict[str, float]] = {}
    said, alarms, largest = [], [], 0.0
    tests = 2 * len(parts)
    for what, (values, rows, spread) in parts.items():
        change, other = (
            _changes(values, rows & half, rows & ~half, logs.instance, logs.instances) for half in (late, odd)
        )
        both = np.all(np.isfinite(change) & np.isfinite(other), axis=1)
        change, other = change[both], other[both]
        if len(change) < 8:
            continue
        together = float(np.linalg.norm(change.mean(axis=0))) / max(spread, 1e-12)
        excess = np.sum(change**2, axis=1) - np.sum(other**2, axis=1)
        apart = float(np.sqrt(max(excess.mean(), 0.0))) / max(spread, 1e-12)
        chances = chance_of(change, rng), chance_of(excess[:, None], rng, above=True)
        numbers[what] = {"moved": max(together, apart), "together": together, "apart": apart}
        numbers[what] |= {"chance_together": chances[0], "chance_apart": chances[1]}
        said.append(
            f"{what} by {together:.2f} all together ({shown_chance(chances[0])}) and by {apart:.2f} one by one "
            f"({shown_chance(chances[1])})"
        )
        for moved, chance in ((together, chances[0]), (apart, chances[1])):
            if moved > MOVED and chance < 2 * ALARM / tests:
                alarms.append(what)
                largest = max(largest, moved)
    figure = "; ".join(f"{what} {one['moved']:.2f}" for what, one in numbers.items()) or "-"
    sentence = (
        "Between the first and the last half of their rows people moved, in units of what they differ by: "
        f"{'; '.join(said)}."
    )
    if not alarms:
        return Check("drift", question, figure, bar, Verdict.FINE, sentence, "", numbers)
    memory = float(held.model.noise.memory)
    verdict = Verdict.BROKEN if largest > 0.5 and memory == 1 else Verdict.DOUBTFUL
    remedy = (
        "The model takes a person as always the same. Name the time column (time=, --time), so that the moment may "
        "depend on it; use recent rows only; distrust what rests on old ones."
        if memory == 1
        else f"The model knows that people change: what was seen a round ago counts {memory:.2g} times as much as what "
        "is seen now. Look whether intervals hold what they say; what holds of a person holds for now, not for good."
    )
    return Check("drift", question, figure, bar, verdict, sentence, remedy, numbers)


def _reward_spread(held: HeldOut) -> float:
    """Give the standard deviation of what is expected of people and actions, in the predictions."""
    return float(np.std(held.predictions.mean)) if len(held.predictions.mean) else 1.0


def _changes(
    values: Float[np.ndarray, "rows q"],
    after: Bool[np.ndarray, " rows"],
    before: Bool[np.ndarray, " rows"],
    person: Int[np.ndarray, " rows"],
    people: int,
) -> Float[np.ndarray, "people q"]:
    """Give each person's mean over some rows less that over others; NaN for whom one of them is missing."""
    means = []
    for rows in (after, before):
        count = np.bincount(person[rows], minlength=people)[:, None]
        total = np.stack([np.bincount(person[rows], weights=c[rows], minlength=people) for c in values.T], axis=1)
        means.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    return np.asarray(means[0] - means[1])


def check_later_contexts(held: HeldOut) -> Check:
    """Ask whether an action changes what is seen, or earned, the next time."""
    question = "Does an action change what comes later?"
    bar = f"{shown_chance(ALARM).replace('=', '<')}, 1 % of the variance within people"
    logs = held.logs
    first = np.flatnonzero((logs.instance[1:] == logs.instance[:-1]) & (logs.action[:-1] >= 0))
    targets = {"contexts": (held.encodings, first)} if held.model.encoded_dim else {}
    # Less what contexts foresee: what is believed after all rewards would let earlier ones into later residuals.
    left = held.foreseen_residuals
    paid = first[np.isfinite(left[first + 1])]
    targets["rewards"] = (np.nan_to_num(left)[:, None], paid)
    numbers, said, alarms = {}, [], []
    for what, (values, rows) in targets.items():
        if len(rows) < 50:
            continue
        share, chance = effect_on_next(logs.action[rows], values[rows + 1], logs.instance[rows], held.rng(6))
        numbers[what] = {"share": share, "chance": chance}
        said.append(f"{share:.1%} of the variance of the next {what} ({shown_chance(chance)})")
        if share > 0.01 and chance < ALARM / 2:
            alarms.append(what)
    figure = "; ".join(f"{what} {one['share']:.1%}" for what, one in numbers.items()) or "-"
    sentence = (
        f"Within people, the last action explains {' and '.join(said)}." if said else "There are too few rows to tell."
    )
    verdict = Verdict.BROKEN if alarms else Verdict.FINE
    remedy = (
        f"Actions change the next {' and '.join(alarms)}: this is not a bandit, in which only the reward depends on "
        "the action. Decisions ignore what an action does to the future; leave contexts out that actions move, or use "
        "reinforcement learning."
        if alarms
        else ""
    )
    return Check("later rounds", question, figure, bar, verdict, sentence, remedy, numbers)


def effect_on_next(
    action: Int[np.ndarray, " rows"],
    values: Float[np.ndarray, "rows q"],
    person: Int[np.ndarray, " rows"],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Give the share of the variance of what comes next that goes with an action, and the chance of its scores.

    Actions may follow what came before. So what comes next is held against what comes later still, never against what
    was before (which the action may be an answer to), and the action against how often it was taken so far: of both,
    the mean product is zero if actions change nothing, however they were chosen.
    """
    later, there = less_later(values, person)
    played = np.flatnonzero(np.bincount(action) >= 5)
    taken = (action[:, None] == played[None, :]).astype(np.float64)
    who, place = _places(person)
    before = np.cumsum(taken, axis=0) - taken
    before -= before[np.arange(len(person)) - place]
    usual = taken.mean(axis=0)
    taken = (taken - (before + usual) / (place[:, None] + 1))[there]
    later, who = later[there], who[there]
    people = int(who.max()) + 1 if len(who) else 0
    if not people:
        return 0.0, 1.0
    chance = chance_of(sums_by(np.einsum("ra,rq->raq", taken, later).reshape(len(later), -1), who, people), rng)
    design = taken[:, :-1]
    fitted = design @ np.linalg.lstsq(design, later, rcond=None)[0] if design.shape[1] else np.zeros_like(later)
    total = np.maximum(np.sum(later**2, axis=0), 1e-300)
    freedom = len(later) / max(len(later) - design.shape[1], 1)
    return float(max(np.mean(1 - np.sum((later - fitted) ** 2, axis=0) / total * freedom), 0.0)), chance


def less_later(
    values: Float[np.ndarray, "rows q"], person: Int[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, "rows q"], Bool[np.ndarray, " rows"]]:
    """Subtract from each value the mean of all later ones of the person, and scale so that noise keeps its variance.

    The last of a person has none behind it, and is marked as missing.

    >>> found, there = less_later(np.array([[3.0], [1.0], [1.0], [7.0]]), np.array([0, 0, 0, 1]))
    >>> (found[:, 0] ** 2).round(3).tolist(), there.tolist()
    ([2.667, 0.0, 0.0, 0.0], [True, True, False, False])
    """
    who, place = _places(person)
    behind = np.bincount(who)[who] - place - 1
    total = sums_by(values, who, int(who.max()) + 1)[who] if len(who) else values
    before = np.cumsum(values, axis=0) - values
    before -= before[np.arange(len(person)) - place]
    mean = (total - before - values) / np.maximum(behind, 1)[:, None]
    scale = np.sqrt(behind / (behind + 1))[:, None]
    return scale * (values - mean), behind > 0


def _places(person: Int[np.ndarray, " rows"]) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Number people from zero, and the rows of each, which stand together."""
    starts = np.r_[True, person[1:] != person[:-1]] if len(person) else np.zeros(0, dtype=bool)
    who = np.cumsum(starts) - 1
    return who, np.arange(len(person)) - np.flatnonzero(starts)[who]


def effect_of_action(
    action: Int[np.ndarray, " rows"],
    values: Float[np.ndarray, "rows q"],
    person: Int[np.ndarray, " rows"],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Give the share of the variance of values within people that goes with an action, and the chance of its scores.

    For each person and pair of action and coordinate the score is the covariance of the two within the person: its mean
    is zero if they are independent given the person, whatever each does by itself.
    """
    played = np.flatnonzero(np.bincount(action) >= 5)
    _, who = np.unique(person, return_inverse=True)
    people = int(who.max()) + 1
    rows = np.bincount(who, minlength=people)[:, None]
    taken = (action[:, None] == played[None, :]).astype(np.float64)
    taken, values = (part - (sums_by(part, who, people) / rows)[who] for part in (taken, values))
    scores = np.einsum("ra,rq->raq", taken, values).reshape(len(values), -1)
    chance = chance_of(sums_by(scores, who, people), rng)
    design = taken[:, :-1]
    fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0] if design.shape[1] else np.zeros_like(values)
    freedom = max(len(values) - people, 1)
    total = np.maximum(np.sum(values**2, axis=0), 1e-300)
    share = 1 - np.sum((values - fitted) ** 2, axis=0) / total * freedom / max(freedom - design.shape[1], 1)
    return float(max(np.mean(share), 0.0)), chance


def sums_by(values: Float[np.ndarray, "rows q"], group: Int[np.ndarray, " rows"], groups: int) -> np.ndarray:
    return np.stack([np.bincount(group, weights=column, minlength=groups) for column in values.T], axis=1)
