"""Queue replay: a policy plays people of the logs, and what it chooses is paid from their own logged rewards.

For each person and action there is a queue of that person's logged rewards, in the order of the logs. No action changes
what comes later, and rewards of one person and action are alike over time, so the next one in the queue is what the
choice would have brought (Mandel et al., AAAI 2016). The order matters where whoever logged reacted to rewards: a drug
that was dropped after a bad one has a bad one among few, but the first of them was as good as any, and each next one
was fresh when it came. Where a queue is empty, what is expected of this person and action stands in, the round is
marked as not observed, and the play goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.logs import Logs
from ilb.models.moments import AbstractMoment
from ilb.offline.ahead import moment_effects
from ilb.online.policy import AbstractPolicy, State
from ilb.streams import round_key
from ilb.trust.expectations import MOST_LEVERAGE, Expectations
from ilb.trust.propensities import shares_so_far
from ilb.types import Step

CHUNK = 1024
"""People played at once."""


Numbers = Array | np.ndarray


LEAST_CHANCE = 0.05
"""Chances of a reward being left that are smaller are taken for this, so that nobody stands for more than twenty."""


class Person(NamedTuple):
    """What is known of one person, or of many, with one more axis in front.

    `queue` holds the logged rewards, less what the moment added to them, sorted by action and time: those of action a
    are at `starts[a]` to `starts[a + 1]`. `chances` say how often the action of each had been taken until then.
    `contexts` are those of the first rounds; a person with fewer meets them again.
    """

    number: Int[Numbers, "*people"]
    rounds: Int[Numbers, "*people"]
    contexts: Float[Numbers, "*people T d"]
    queue: Float[Numbers, "*people rewards"]
    chances: Float[Numbers, "*people rewards"]
    starts: Int[Numbers, "*people K+1"]
    expected: Float[Numbers, "*people K"]
    expected_std: Float[Numbers, "*people K"]
    noise_std: Float[Numbers, "*people K"]


class Replayed(NamedTuple):
    """What a policy did and got: in each round the action, its reward (or what is expected of it, where that was not
    `observed`), `surprise`, the reward less what all else in the logs of the person says of it, and `rarity`, the odds
    that such a person would have had no reward left of such an action, by what had been done until then.
    """

    action: Int[np.ndarray, "people H"]
    reward: Float[np.ndarray, "people H"]
    observed: Bool[np.ndarray, "people H"]
    surprise: Float[np.ndarray, "people H"]
    rarity: Float[np.ndarray, "people H"]


def first_rows(logs: Logs, horizon: int) -> Int[np.ndarray, "people H"]:
    """Give the first rows of each person that have a reward; of whom has fewer, the same again.

    >>> logs = Logs.from_arrays(np.zeros((2, 3, 0)), np.zeros((2, 3)), [[1.0, np.nan, 2.0], [3.0, 4.0, 5.0]])
    >>> first_rows(logs, 3).tolist()
    [[0, 2, 0], [3, 4, 5]]
    """
    rows = np.flatnonzero(logs.rewarded)
    rounds = np.bincount(logs.instance[rows], minlength=logs.instances)
    place = np.arange(horizon)[None, :] % np.maximum(rounds, 1)[:, None] + (np.cumsum(rounds) - rounds)[:, None]
    return np.asarray(rows[np.minimum(place, len(rows) - 1)])


def queue_up(logs: Logs, moment: AbstractMoment | None, expectations: Expectations, horizon: int) -> Person:
    """Put everybody's rewards into queues, the earliest first.

    Rows without action or reward are no rounds, and no more than `horizon` rewards of a queue can ever be taken.
    """
    rows = np.flatnonzero(logs.rewarded)
    person, action = logs.instance[rows].astype(np.int64), logs.action[rows].astype(np.int64)
    lasting = logs.reward[rows].astype(np.float64) - moment_effects(moment, logs)[rows]
    rounds = np.bincount(person, minlength=logs.instances)

    cell = person * logs.actions + action
    order = np.argsort(cell, kind="stable")
    counts = np.bincount(cell, minlength=logs.instances * logs.actions)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = order[place < horizon]
    counts = np.minimum(counts, horizon).reshape(logs.instances, logs.actions)
    starts = np.concatenate([np.zeros((logs.instances, 1), np.int64), np.cumsum(counts, axis=1)], axis=1)
    totals = starts[:, -1]
    queue, chances = np.zeros((2, logs.instances, max(int(totals.max()), 1)), np.float32)
    there = np.arange(queue.shape[1])[None, :] < totals[:, None]
    queue[there], chances[there] = lasting[kept], shares_so_far(logs)[kept]
    return Person(
        number=np.arange(logs.instances, dtype=np.int32),
        rounds=rounds.astype(np.int32),
        contexts=logs.context[first_rows(logs, horizon)],
        queue=queue,
        chances=chances,
        starts=starts.astype(np.int32),
        expected=expectations.mean.astype(np.float32),
        expected_std=expectations.std.astype(np.float32),
        noise_std=np.broadcast_to(np.sqrt(expectations.noise_variance), expectations.mean.shape).astype(np.float32),
    )


def replay_one(
    key: PRNGKeyArray, policy: AbstractPolicy, moment: AbstractMoment | None, person: Person
) -> tuple[Int[Array, " H"], Float[Array, " H"], Bool[Array, " H"], Float[Array, " H"], Int[Array, " H"]]:
    """Let a policy play one person; the last output counts the rewards that had been taken from the queue before."""
    actions = person.expected.shape[0]
    everything = jnp.ones(actions, dtype=bool)
    key_person, key_rounds = jr.split(key)
    # Where no reward is left the policy learns from an imagined one, drawn around one draw of the person's mean.
    believed = person.expected + person.expected_std * jr.normal(key_person, (actions,))
    # A reward that helped to form an expectation is held against what the rest says: the leverage of one reward.
    leverage = jnp.minimum((person.expected_std / person.noise_std) ** 2, MOST_LEVERAGE)

    def play_round(
        carried: tuple[State, Int[Array, " K"]], now: tuple[Array, Array]
    ) -> tuple[tuple[State, Int[Array, " K"]], tuple[Array, Array, Array, Array, Array]]:
        (state, used), (t, context) = carried, now
        key_decision, key_noise = jr.split(round_key(key_rounds, t))
        state, choice = policy.decide(key_decision, state, context, everything)
        a = choice.action
        place = person.starts[a] + used[a]
        observed = place < person.starts[a + 1]
        logged = person.queue[jnp.minimum(place, len(person.queue) - 1)]
        imagined = believed[a] + person.noise_std[a] * jr.normal(key_noise)
        added = jnp.zeros(()) if moment is None else moment(context)[a]
        state = policy.learn(state, Step(context, a, jnp.where(observed, logged, imagined) + added, t))
        reward = jnp.where(observed, logged, person.expected[a]) + added
        surprise = jnp.where(observed, (logged - person.expected[a]) / (1 - leverage[a]), 0.0)
        return (state, used.at[a].add(observed.astype(used.dtype))), (a, reward, observed, surprise, used[a])

    start = (policy.init(), jnp.zeros(actions, jnp.int32))
    numbered = (jnp.arange(len(person.contexts)), jnp.asarray(person.contexts))
    return jax.lax.scan(play_round, start, numbered)[1]


@eqx.filter_jit
def _replay_chunk(
    key: PRNGKeyArray, policy: AbstractPolicy, moment: AbstractMoment | None, people: Person
) -> tuple[Array, Array, Array, Array, Array]:
    return jax.vmap(lambda person: replay_one(jr.fold_in(key, person.number), policy, moment, person))(people)


def replay(key: PRNGKeyArray, policy: AbstractPolicy, moment: AbstractMoment | None, people: Person) -> Replayed:
    """Let a policy play everybody, each alone; nobody's play depends on who else is there."""
    count = len(people.number)
    size = min(CHUNK, 1 << (count - 1).bit_length())
    pieces = []
    for first in range(0, count, size):
        # The last chunk is filled up with its first person, so that one program serves all chunks.
        index = np.minimum(np.arange(first, first + size), count - 1)
        chunk = jax.tree.map(lambda leaf, index=index: jax.device_put(leaf[index]), people)
        played = _replay_chunk(key, policy, moment, chunk)
        pieces.append([np.asarray(part)[: min(size, count - first)] for part in played])
    action, reward, observed, surprise, used = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    # Nothing that was done after a reward may weigh it: who logs may have reacted to it.
    place = np.take_along_axis(np.asarray(people.starts), action, axis=1) + used
    chances = np.take_along_axis(np.asarray(people.chances), np.minimum(place, people.chances.shape[1] - 1), axis=1)
    from scipy.stats import binom  # slow to import, and few need it

    some_left = np.maximum(binom.sf(used, np.asarray(people.rounds)[:, None], chances), LEAST_CHANCE)
    rarity = (1 - some_left) / some_left
    return Replayed(action, reward.astype(np.float64), observed, surprise.astype(np.float64), rarity)
