"""From a table of histories to a recommendation for each person, in few compiled calls for thousands of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32

from ilb.errors import DecisionError
from ilb.live.decision import DOUBTFUL, Decision, explain
from ilb.live.programs import REFUSED, BoundPolicy, unpack
from ilb.live.recall import believe_states, decide_states, expect_rewards, recall_states, streams_of
from ilb.live.recommendation import LEVEL, PARTS, Neighbour, Recommendation, Recommendations, sentence_of
from ilb.live.settling import ROUNDS, SETTLED, Settling
from ilb.live.slips import check_contexts
from ilb.logs.histories import Histories, read_histories

NEAREST = 5
"""How many earlier people are shown."""

SAME = 1e-6
"""Share of what is expected below which all people count as alike."""

NEW_PERSON = "a new person"
"""Who is decided for by a table without rows."""


class Lead(NamedTuple):
    """The runner-up, and what the lead over it rests on."""

    ahead_of: Hashable | None
    rests_on: dict[str, float]


def recommend(
    bound: BoundPolicy,
    settling: Settling | None,
    history: Any,
    *,
    allowed: Any = None,
    forbidden: Any = None,
    forbidden_column: str | None = None,
    earlier: Any = None,
) -> Recommendations:
    """Recommend an action for each person of a table; `LiveBandit.recommend` says how it is read."""
    histories = read_histories(history, bound.schema, forbidden_column)
    known = None if earlier is None else read_histories(earlier, bound.schema)
    if not histories.labels:
        histories = histories._replace(labels=(NEW_PERSON,), ruled_out=(frozenset(),))
    mask = _masks(histories, bound.mask(allowed, forbidden))
    if histories.context.size:
        whose = [histories.labels[code] for code in histories.person]
        check_contexts(bound.schema, histories.context, whose, bound.tell_far)
    decisions, after_contexts = _decide(bound, histories, mask)
    everybody = None if settling is None else settling.everybody
    leads = [
        _lead(bound.schema.actions, decision, allowed, expected, everybody)
        for decision, allowed, expected in zip(decisions, mask, after_contexts, strict=True)
    ]
    rows, rewards = (part.astype(int).tolist() for part in _counts(histories, mask.shape[1]))
    rounds = _rounds_to_settle(settling, decisions, mask, histories)
    nearest: list[tuple[Neighbour, ...]] = [()] * len(decisions)
    if known is not None:
        nearest = _nearest(bound, histories, known)
    counts = zip(rows, map(sum, rewards), strict=True)
    people = zip(decisions, mask, leads, counts, rounds, nearest, strict=True)
    return Recommendations([_put_together(*person) for person in people])


def _masks(histories: Histories, common: Bool[np.ndarray, " K"]) -> Bool[np.ndarray, "people K"]:
    masks = np.tile(common, (len(histories.labels), 1))
    for mask, ruled_out, label in zip(masks, histories.ruled_out, histories.labels, strict=True):
        mask[list(ruled_out)] = False
        if not mask.any():
            raise DecisionError(f"no action is left for {label!r}: all {len(mask)} that are known are ruled out.")
    return masks


def _decide(
    bound: BoundPolicy, histories: Histories, mask: Bool[np.ndarray, "people K"]
) -> tuple[list[Decision], Float[np.ndarray, "people K"]]:
    """Decide for everyone in the context of their last row, and say what contexts alone would lead to expect.

    The last context is taken in by the decision itself, after the reward of its row, if that has come. Who has no row
    gets what is best for the population.
    """
    starts, contexts, (people, actions) = histories.starts, _last_contexts(histories), mask.shape
    lengths = np.diff(starts)
    is_last = np.zeros(len(histories.person), bool)
    is_last[starts[1:][lengths > 0] - 1] = True
    no_reward = np.zeros(len(histories.person), bool)
    states = recall_states(bound, histories, seen=~is_last)
    by_contexts = recall_states(bound, histories, seen=~is_last, rewarded=no_reward)
    randomness = np.column_stack([streams_of(bound, histories.labels), np.maximum(lengths - 1, 0)]).astype(np.uint32)
    there, nobody = np.flatnonzero(lengths > 0), np.flatnonzero(lengths == 0)
    told = shown = None
    if len(there):
        twice = np.r_[there, there]
        both = np.concatenate([states[there], by_contexts[there]])
        told, shown = np.split(decide_states(bound, both, randomness[twice], contexts[twice], mask[twice]), 2)
    if len(nobody):
        believed = believe_states(bound, states[nobody], contexts[nobody], mask[nobody])
        told, shown = (believed if part is None else np.concatenate([part, believed]) for part in (told, shown))
    assert told is not None
    assert shown is not None
    place = np.argsort(np.r_[there, nobody])
    decisions = [
        _explained(bound, histories.labels[u], max(int(lengths[u]) - 1, 0), told[place[u]], mask[u])
        for u in range(people)
    ]
    return decisions, shown[place, 1 : 1 + actions]


def _last_contexts(histories: Histories) -> Float32[np.ndarray, "people d"]:
    """Give the last context of each person; for those without any, one in which every number is average."""
    ends = histories.starts[1:]
    contexts = np.zeros((len(ends), histories.context.shape[1]), np.float32)
    has_rows = np.diff(histories.starts) > 0
    contexts[has_rows] = histories.context[ends[has_rows] - 1]
    return contexts


def _explained(
    bound: BoundPolicy, label: Hashable, number: int, told: Float[np.ndarray, " n"], mask: Bool[np.ndarray, " K"]
) -> Decision:
    if told[0] == REFUSED or not np.all(np.isfinite(told)):
        raise DecisionError(
            f"no recommendation for {label!r}: what is believed after these rows is not finite. Check them; before the "
            "first context, not every policy has a belief."
        )
    summary, outlook = np.split(told[1:], [4 * len(mask)])
    labels, says, belief = bound.schema.actions, bound.says, unpack(bound.outlook, outlook)
    return explain(labels, says, label, number, int(told[0]), summary.reshape(4, -1), belief, mask)


def _lead(
    actions: tuple[Hashable, ...],
    decision: Decision,
    allowed: Bool[np.ndarray, " K"],
    after_contexts: Float[np.ndarray, " K"],
    everybody: Float[np.ndarray, " K"] | None,
) -> Lead:
    """Take the lead of a choice over the best of the others apart, by what each kind of evidence adds to it."""
    after_all = np.array(list(decision.expected_reward.values()))
    chosen = actions.index(decision.action)
    rivals = np.flatnonzero(allowed & (np.arange(len(actions)) != chosen))
    if not len(rivals):
        return Lead(None, {})
    rival = int(rivals[after_all[rivals].argmax()])
    known = [expected for expected in (everybody, after_contexts, after_all) if expected is not None]
    parts = np.diff([0.0, *(expected[chosen] - expected[rival] for expected in known)])
    return Lead(actions[rival], dict(zip(PARTS[-len(parts) :], parts.tolist(), strict=True)))


def _counts(
    histories: Histories, actions: int, memory: float = 1.0
) -> tuple[Float[np.ndarray, " people"], Float[np.ndarray, "people K"]]:
    """Count the rows of each person, and the rewards of each action; by their age, where what was is forgotten."""
    weight = memory ** (histories.starts[histories.person + 1] - 1.0 - np.arange(len(histories.person)))
    seen, pulls = np.zeros(len(histories.labels)), np.zeros((len(histories.labels), actions))
    rewarded = histories.rewarded
    np.add.at(seen, histories.person, weight)
    np.add.at(pulls, (histories.person[rewarded], histories.action[rewarded]), weight[rewarded])
    return seen, pulls


def _rounds_to_settle(
    settling: Settling | None,
    decisions: list[Decision],
    mask: Bool[np.ndarray, "people K"],
    histories: Histories,
) -> list[float | None]:
    """Say when each choice is settled; nothing is said where the model, or its noise, does not fit the person."""
    expected = np.array([list(decision.expected_reward.values()) for decision in decisions])
    rounds = None
    if settling is not None:
        rounds = settling.rounds(expected, mask, *_counts(histories, mask.shape[1], settling.memory))
    found: list[float | None] = []
    for person, decision in enumerate(decisions):
        if max(decision.probability_best.values()) >= SETTLED:
            found.append(0.0)
        elif rounds is None or decision.misfit > DOUBTFUL or decision.has_noisy_contexts:
            found.append(None)
        else:
            found.append(float(rounds[person]))
    return found


def _nearest(bound: BoundPolicy, histories: Histories, earlier: Histories) -> list[tuple[Neighbour, ...]]:
    """Find earlier people of whom the same is expected by their contexts, or, if these tell nothing, by everything.

    Where contexts suffice, the rewards of the earlier people have no part in it: they are evidence of their own.
    """
    theirs, ours = _expected(bound, (earlier, histories), by_rewards=False)
    if np.ptp(theirs, axis=0).max(initial=0.0) <= SAME * max(np.abs(theirs).max(initial=0.0), SAME):
        theirs, ours = _expected(bound, (earlier, histories), by_rewards=True)
    rewards = _rewards_by_action(bound, earlier)
    has_rows = np.diff(earlier.starts) > 0
    places = {label: place for place, label in enumerate(earlier.labels)}
    found: list[tuple[Neighbour, ...]] = []
    for label, expected, rows in zip(histories.labels, ours, np.diff(histories.starts), strict=True):
        if not rows:  # of somebody unknown, nobody is near
            found.append(())
            continue
        distance = np.where(has_rows, np.sqrt(np.mean((theirs - expected) ** 2, axis=1)), np.inf)
        if label in places:  # nobody is evidence for themselves
            distance[places[label]] = np.inf
        order = np.argsort(distance, kind="stable")[:NEAREST].tolist()
        near = [one for one in order if np.isfinite(distance[one])]
        found.append(tuple(Neighbour(earlier.labels[one], float(distance[one]), rewards[one]) for one in near))
    return found


def _expected(
    bound: BoundPolicy, tables: Sequence[Histories], *, by_rewards: bool
) -> list[Float[np.ndarray, "people K"]]:
    """Give what is expected of each action in an average context, without what all actions have in common.

    For the people of all tables in one call, so that one size is compiled.
    """
    states = [recall_states(bound, people, rewarded=np.full(len(people.person), by_rewards)) for people in tables]
    together = np.concatenate(states)
    means = expect_rewards(bound, together, np.zeros((len(together), bound.schema.width), np.float32))
    apart = np.asarray(means - means.mean(axis=1, keepdims=True))
    return np.split(apart, np.cumsum([len(some) for some in states])[:-1])


def _rewards_by_action(bound: BoundPolicy, histories: Histories) -> list[dict[Hashable, tuple[float, int]]]:
    actions, people, rewarded = bound.schema.actions, len(histories.labels), histories.rewarded
    place = histories.person[rewarded] * len(actions) + histories.action[rewarded]
    size = people * len(actions)
    counts = np.bincount(place, minlength=size).reshape(people, -1)
    sums = np.bincount(place, weights=histories.reward[rewarded], minlength=size).reshape(people, -1)
    return [
        {actions[a]: (float(sums[u, a] / counts[u, a]), int(counts[u, a])) for a in np.flatnonzero(counts[u]).tolist()}
        for u in range(people)
    ]


def _put_together(
    decision: Decision,
    allowed: Bool[np.ndarray, " K"],
    lead: Lead,
    counts: tuple[int, int],
    rounds: float | None,
    nearest: tuple[Neighbour, ...],
) -> Recommendation:
    ahead_of, rests_on = lead
    expected, interval = decision.expected_reward, decision.interval(LEVEL)
    return Recommendation(
        decision.instance,
        decision.action,
        expected,
        interval,
        decision.probability_best,
        decision.misfit,
        tuple(label for label, is_open in zip(expected, allowed.tolist(), strict=True) if not is_open),
        *counts,
        ahead_of,
        0.0 if ahead_of is None else expected[decision.action] - expected[ahead_of],
        rests_on,
        None if rounds is None or np.isinf(rounds) else int(rounds),
        ROUNDS[-1] if rounds is not None and np.isinf(rounds) else None,
        nearest,
        sentence_of(decision, interval[decision.action], rests_on, *counts, rounds, nearest),
        decision.reason,
    )
