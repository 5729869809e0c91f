r"""The doubly robust estimate: logged rows that match what the policy would do, weighed by how likely they were.

Rows of a person come one by one, each with its own context, and the policy decides. The first row that it meets at its
n-th decision counts as

$$\hat q(a) + 1[a = a_t] (r_t - \hat q(a)) / p_t$$

with what all other rows of the person say of the action, $\hat q$, and the probability $p_t$ of the logged action.
This is right on average if either is. If the row matches, the policy learns from it and goes on to the next decision;
if not, the next row is tried. Matches that were likely to be logged are passed over at random, so that decisions are
passed at one rate whatever they are, as far as possible (Dudík et al., 2012: non-stationary policies). Rows behind the
first count for nothing: people for whom matches are rare would count for more than others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.logs import Logs
from ilb.models.moments import AbstractMoment
from ilb.online.policy import AbstractPolicy, State
from ilb.streams import Stream, round_key
from ilb.trust.crossfit import Fold, by_person
from ilb.trust.expectations import Expectations
from ilb.types import Step

CHUNK = 1024
"""People played at once."""

MOST_ROWS = 300
"""Rows of each person that are gone through; more would change nothing but the time it takes."""


class Rows(NamedTuple):
    """The rows of one person, or of many with one more axis in front; `there` marks those that exist.

    `expected` is what all rows of the person say of each action, and `leverage` how much a single one says of it.
    """

    number: Int[Array | np.ndarray, "*people"]
    context: Float[Array | np.ndarray, "*people T d"]
    action: Int[Array | np.ndarray, "*people T"]
    reward: Float[Array | np.ndarray, "*people T"]
    propensity: Float[Array | np.ndarray, "*people T"]
    there: Bool[Array | np.ndarray, "*people T"]
    expected: Float[Array | np.ndarray, "*people K"]
    leverage: Float[Array | np.ndarray, "*people K"]


class Matched(NamedTuple):
    """For each person and decision: what the first row counts as, and whether there was one; else both are zero.

    Of several orders of rows, the averages.
    """

    counted: Float[np.ndarray, "people H"]
    came: Float[np.ndarray, "people H"]

    def value(
        self,
        counts: Float[np.ndarray, "draws people"],
        expected: Float[np.ndarray, "people H"],
        rounds: int,
    ) -> Float[np.ndarray, " draws"]:
        """Average over people, then over the first decisions.

        Those who did not come to a decision count with what is `expected` of them, corrected by how far off that is
        for those who came: they may be unlike them.
        """
        off = counts @ (self.counted - self.came * expected) / (counts @ self.came)
        level = counts @ expected / counts.sum(axis=1, keepdims=True)
        return np.asarray((off + level)[:, :rounds].mean(axis=1))

    @property
    def reached(self) -> Float[np.ndarray, " H"]:
        """The share of people who come to each decision."""
        return np.asarray(self.came.mean(axis=0))


def lay_out(
    logs: Logs, expectations: Expectations, propensity: Float[np.ndarray, " N"], luck: Float[np.ndarray, " N"]
) -> Rows:
    """Lay out everybody's rewarded rows, those with the least `luck` first."""
    rows = np.flatnonzero(logs.rewarded)
    rows = rows[np.lexsort((luck[rows], logs.instance[rows]))]
    lengths = np.bincount(logs.instance[rows], minlength=logs.instances)
    first = np.cumsum(lengths) - lengths
    width = min(int(lengths.max()), MOST_ROWS)
    place = np.minimum(first[:, None] + np.arange(width)[None, :], len(rows) - 1)
    taken = rows[place]
    there = np.arange(width)[None, :] < lengths[:, None]
    return Rows(
        np.arange(logs.instances, dtype=np.int32),
        logs.context[taken],
        logs.action[taken],
        logs.reward[taken],
        propensity[taken].astype(np.float32),
        there,
        expectations.mean.astype(np.float32),
        expectations.leverage.astype(np.float32),
    )


def match_one(
    key: PRNGKeyArray,
    policy: AbstractPolicy,
    moment: AbstractMoment | None,
    rate: Float[Array, ""],
    person: Rows,
    horizon: int,
) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
    """Go through the rows of one person."""
    everything = jnp.ones(person.expected.shape[0], dtype=bool)

    def one_row(
        carried: tuple[State, Int[Array, ""], Bool[Array, ""]], row: tuple[Array, ...]
    ) -> tuple[tuple[State, Int[Array, ""], Bool[Array, ""]], tuple[Array, Array, Array]]:
        (state, decision, first), (t, context, action, reward, propensity, there) = carried, row
        key_decision, key_passing = jr.split(round_key(key, t))
        decided, choice = policy.decide(key_decision, state, context, everything)
        a = choice.action
        expected = person.expected[a] + (0.0 if moment is None else moment(context)[a])
        match = a == action
        # What all other rows say of a reward is what all say, less what it says itself.
        surprise = (reward - expected) / (1 - person.leverage[a])
        counted = jnp.where(match, reward - surprise + surprise / propensity, expected)
        going_on = there & (decision < horizon)
        passes = going_on & match & (jr.uniform(key_passing) * propensity < rate)
        step = Step(context, action, reward, decision)
        learned = policy.learn(decided, step)
        state = jax.tree.map(lambda new, old: jnp.where(passes, new, old), learned, state)
        came = going_on & first
        first = jnp.where(going_on, passes, first)
        return (state, decision + passes, first), (decision, jnp.where(came, counted, 0.0), came)

    rows = (jnp.arange(len(person.action)), *map(jnp.asarray, person[1:6]))
    start = (policy.init(), jnp.asarray(0), jnp.asarray(True))
    _, (decisions, counted, came) = jax.lax.scan(one_row, start, rows)
    # The last decision may be passed, too: what comes then belongs to none.
    total = jax.ops.segment_sum(counted, decisions, horizon + 1)[:horizon]
    return total, jax.ops.segment_sum(came.astype(jnp.float32), decisions, horizon + 1)[:horizon]


@eqx.filter_jit
def _match_chunk(
    key: PRNGKeyArray,
    policy: AbstractPolicy,
    moment: AbstractMoment | None,
    rate: Float[Array, ""],
    people: Rows,
    horizon: int,
) -> tuple[Array, Array]:
    def one(person: Rows) -> tuple[Array, Array]:
        return match_one(jr.fold_in(key, person.number), policy, moment, rate, person, horizon)

    return jax.vmap(one)(people)


def match(
    key: PRNGKeyArray, policy: AbstractPolicy, moment: AbstractMoment | None, rate: float, people: Rows, horizon: int
) -> Matched:
    """Go through everybody's rows."""
    count = len(people.number)
    size = min(CHUNK, 1 << (count - 1).bit_length())
    pieces = []
    for first in range(0, count, size):
        index = np.minimum(np.arange(first, first + size), count - 1)
        chunk = jax.tree.map(lambda leaf, index=index: jax.device_put(leaf[index]), people)
        matched = _match_chunk(key, policy, moment, jnp.asarray(rate, jnp.float32), chunk, horizon)
        pieces.append([np.asarray(part, np.float64)[: min(size, count - first)] for part in matched])
    return Matched(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))


def match_everyone(
    folds: Sequence[Fold],
    policies: Sequence[AbstractPolicy],
    propensities: Sequence[Float[np.ndarray, " N"]],
    rate: float,
    horizon: int,
    *,
    seed: int,
    repeats: int,
) -> Matched:
    """Go through the rows of all folds, in several orders."""
    parts = []
    for place, (fold, policy, propensity) in enumerate(zip(folds, policies, propensities, strict=True)):
        sums = []
        for number in range(repeats):
            luck = np.random.default_rng([seed, 3, number, place]).random(fold.logs.rows)
            key = jr.fold_in(jr.fold_in(Stream.PLAYING.key(seed), repeats + number), place)
            people = lay_out(fold.logs, fold.expectations, propensity, luck)
            sums.append(match(key, policy, fold.expecting.moment, rate, people, horizon))
        parts.append(Matched(*(np.mean(column, axis=0) for column in zip(*sums, strict=True))))
    return Matched(*(by_person(folds, column) for column in zip(*parts, strict=True)))
