"""Play policies in environments: one round, one instance (scan), many instances (vmap), in compiled programs.

What happens to instances is drawn first, by one program for a world, then played, by one program for a policy. All K
rewards of every round are drawn and one is revealed, and the environment's keys are not the policy's: every policy
meets the same instances, contexts and noise, and comparisons between policies are paired. Instance i uses the
key folded with i and round t that folded with t, so results do not depend on how many are played.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, at_round, follow
from ilb.errors import DecisionError
from ilb.history import History
from ilb.online.policy import AbstractPolicy
from ilb.streams import instance_keys, round_key
from ilb.types import Report, Step, silent

CHUNK = 1024
"""Instances played at once: wide enough for vector instructions."""

BLOCK = 20_000
"""Contexts drawn at once."""

MEMORY = 1 << 28
"""Bytes of drawn rounds at most: fewer instances are played at once where they are long or wide."""


class Played(NamedTuple):
    """What is kept of a round."""

    action: Int[Array, ""]
    regret: Float[Array, ""]
    optimal: Bool[Array, ""]
    expected_rewards: Float[Array, " K"] | None


class Rounds(NamedTuple):
    """All that could happen to instances: no action changes what comes later, so it is drawn before any is taken.

    Time comes first: what a round needs of all instances lies together in memory. Where the world stands still, one
    row of `mean_rewards` stands for all rounds.
    """

    contexts: Float[Array, "T *instances d"]
    rewards: Float[Array, "T *instances K"]
    mean_rewards: Float[Array, "T_or_1 *instances K"]


def draw_rounds(
    key: PRNGKeyArray, environment: AbstractEnvironment, numbers: Int[Array, " instances"], horizon: int
) -> Rounds:
    """Draw instances, their contexts in every round, and what each action would bring there."""
    count = len(numbers)
    keys = jax.vmap(lambda number: play_keys(key, number))(numbers)
    instances = jax.vmap(environment.sample_instance)(keys.instance)
    path = jax.vmap(lambda key, start: follow(environment, key, start, horizon), out_axes=1)(keys.rounds, instances)

    def draw(t: Int[Array, ""], key: PRNGKeyArray, instance: Any) -> tuple[Float[Array, " d"], Float[Array, " K"]]:
        key_context, key_reward = jr.split(round_key(key, t))
        return environment.emit(key_context, instance), environment.sample_rewards(key_reward, instance)

    # Some rounds of all instances at once: enough to vectorise, few enough to stay in the processor's cache.
    block = max(1, min(horizon, BLOCK // count))
    keys_of_block = jnp.tile(keys.rounds, block)

    def draw_block(first: Int[Array, ""]) -> tuple[Float[Array, "rows d"], Float[Array, "rows K"]]:
        times = first + jnp.arange(block)
        states = jax.vmap(at_round, in_axes=(None, 0))(path, times)
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), states)
        return jax.vmap(draw)(jnp.repeat(times, count), keys_of_block, rows)

    drawn = jax.lax.map(draw_block, jnp.arange(0, horizon, block))
    contexts, rewards = (rows.reshape(-1, count, rows.shape[-1])[:horizon] for rows in drawn)
    return Rounds(contexts, rewards, jax.lax.map(jax.vmap(environment.mean_rewards), path))


def play(key: PRNGKeyArray, policy: AbstractPolicy, rounds: Rounds, beliefs: bool = False) -> Played:
    """Play one instance (Alg. 1, bottom half)."""
    best = rounds.mean_rewards.max(axis=1)
    everything = jnp.ones(rounds.mean_rewards.shape[1], dtype=bool)

    def play_round(state: Any, now: tuple[Array, Array, Array]) -> tuple[Any, Played]:
        t, context, rewards = now
        state, choice = policy.decide(round_key(key, t), state, context, everything)
        expected = policy.rewards(state, context).mean() if beliefs else None
        state = policy.learn(state, Step(context, choice.action, rewards[choice.action], t))
        means, most = at_round((rounds.mean_rewards, best), t)
        mean = means[choice.action]
        return state, Played(choice.action, most - mean, mean >= most, expected)

    played: Played
    numbered = (jnp.arange(len(rounds.contexts)), rounds.contexts, rounds.rewards)
    _, played = jax.lax.scan(play_round, policy.init(), numbered)
    return played


class PlayKeys(NamedTuple):
    """The keys of one instance: who it is, what happens to it, and how its policy draws."""

    instance: PRNGKeyArray
    rounds: PRNGKeyArray
    decisions: PRNGKeyArray


def play_keys(key: PRNGKeyArray, number: Int[Array, ""]) -> PlayKeys:
    """Derive the keys of instance `number`; they depend on nothing else."""
    key_environment, key_policy = jr.split(key)
    return PlayKeys(*instance_keys(key_environment, number), jr.fold_in(key_policy, number))


_draw_chunk = eqx.filter_jit(draw_rounds)


@eqx.filter_jit
def _play_chunk(
    key: PRNGKeyArray, policy: AbstractPolicy, numbers: Int[Array, " chunk"], rounds: Rounds, beliefs: bool
) -> Played:
    """Play drawn rounds: the same program for a policy, whatever world they come from."""
    played: Played = jax.vmap(
        lambda number, drawn: play(play_keys(key, number).decisions, policy, drawn, beliefs),
        in_axes=(0, 1),
    )(numbers, rounds)
    return played


def _bytes_of_instance(environment: AbstractEnvironment, horizon: int) -> int:
    shapes = eqx.filter_eval_shape(draw_rounds, jr.key(0), environment, jnp.arange(1), horizon)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def simulate(
    key: PRNGKeyArray,
    environment: AbstractEnvironment,
    policy: AbstractPolicy,
    instances: int,
    horizon: int,
    *,
    beliefs: bool = False,
    chunk: int = CHUNK,
    report: Report = silent,
) -> History:
    """Play `instances` new instances for `horizon` rounds each.

    The same key lets every policy meet the same instances, contexts and noise. `beliefs` keeps the rewards that the
    policy expects in each round, too.

    >>> from ilb.environments import draw_world
    >>> from ilb.online.roster import policy_on
    >>> world = draw_world(jr.key(0))
    >>> simulate(jr.key(1), world, policy_on(world.oracle(), "CPG"), instances=4, horizon=50)
    History(4 instances, 50 rounds)
    """
    instances, horizon, chunk = map(operator.index, (instances, horizon, chunk))
    if min(instances, horizon, chunk) < 1:
        raise DecisionError(f"nothing to play: got instances={instances}, horizon={horizon}, chunk={chunk}.")
    size = min(chunk, instances, max(1, MEMORY // _bytes_of_instance(environment, horizon)))
    pieces: list[Played] = []
    for first in range(0, instances, size):
        # The last chunk is filled up with instances that are thrown away, so that one program serves all chunks.
        numbers = jnp.arange(first, first + size)
        played = _play_chunk(key, policy, numbers, _draw_chunk(key, environment, numbers, horizon), beliefs)
        kept = min(size, instances - first)
        pieces.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf[:kept]), played))
        done = first + kept
        report(done, instances, sum(float(piece.regret.sum()) for piece in pieces) / done)
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)
    return History(whole.action.astype(np.int32), whole.regret, whole.optimal, whole.expected_rewards)
