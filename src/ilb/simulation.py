"""Play policies in environments: one round, one instance (scan), many instances (vmap), in one compiled program.

All K rewards are drawn in every round and one is revealed, and the environment's keys are not the policy's: every
policy meets the same instances, contexts and noise, and comparisons between policies are paired. Instance i uses the
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

from ilb.environments.environment import AbstractEnvironment
from ilb.errors import DecisionError
from ilb.history import History
from ilb.online.policy import AbstractPolicy
from ilb.types import Report, Step, silent

CHUNK = 1024
"""Instances played at once: wide enough for vector instructions, small enough to bound memory whatever the size."""


class Played(NamedTuple):
    """What is kept of a round."""

    action: Int[Array, ""]
    regret: Float[Array, ""]
    optimal: Bool[Array, ""]
    expected_rewards: Float[Array, " K"] | None


def play(
    key: PRNGKeyArray,
    environment: AbstractEnvironment,
    policy: AbstractPolicy,
    number: Int[Array, ""],
    horizon: int,
    beliefs: bool = False,
) -> Played:
    """Play instance `number` for `horizon` rounds (Alg. 1, bottom half)."""
    keys = instance_keys(key, number)
    instance = environment.sample_instance(keys.instance)
    means = environment.mean_rewards(instance)
    best = means.max()
    everything = jnp.ones(means.shape, dtype=bool)

    def play_round(state: Any, t: Int[Array, ""]) -> tuple[Any, Played]:
        key_context, key_reward = jr.split(jr.fold_in(keys.rounds, t))
        context = environment.emit(key_context, instance)
        state, choice = policy.decide(jr.fold_in(keys.decisions, t), state, context, everything)
        expected = policy.rewards(state, context).mean() if beliefs else None
        # All K rewards are drawn, one is revealed: every policy then meets the same noise.
        reward = environment.sample_rewards(key_reward, instance)[choice.action]
        state = policy.learn(state, Step(context, choice.action, reward))
        mean = means[choice.action]
        return state, Played(choice.action, best - mean, mean >= best, expected)

    played: Played
    _, played = jax.lax.scan(play_round, policy.init(), jnp.arange(horizon))
    return played


class InstanceKeys(NamedTuple):
    """The keys of one instance: who it is, what happens to it, and how its policy draws."""

    instance: PRNGKeyArray
    rounds: PRNGKeyArray
    decisions: PRNGKeyArray


def instance_keys(key: PRNGKeyArray, number: Int[Array, ""]) -> InstanceKeys:
    """Derive the keys of instance `number`; they depend on nothing else."""
    key_environment, key_policy = jr.split(key)
    key_instance, key_rounds = jr.split(jr.fold_in(key_environment, number))
    return InstanceKeys(key_instance, key_rounds, jr.fold_in(key_policy, number))


@eqx.filter_jit
def _play_chunk(
    key: PRNGKeyArray,
    environment: AbstractEnvironment,
    policy: AbstractPolicy,
    numbers: Int[Array, " chunk"],
    horizon: int,
    beliefs: bool,
) -> Played:
    played: Played = jax.vmap(lambda number: play(key, environment, policy, number, horizon, beliefs))(numbers)
    return played


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
    >>> from ilb.online.latent import cpg
    >>> world = draw_world(jr.key(0))
    >>> simulate(jr.key(1), world, cpg(world.oracle()), instances=4, horizon=50)
    History(4 instances, 50 rounds)
    """
    instances, horizon, chunk = map(operator.index, (instances, horizon, chunk))
    if min(instances, horizon, chunk) < 1:
        raise DecisionError(f"nothing to play: got instances={instances}, horizon={horizon}, chunk={chunk}.")
    size = min(chunk, instances)
    pieces: list[Played] = []
    for first in range(0, instances, size):
        # The last chunk is filled up with instances that are thrown away, so that one program serves all chunks.
        numbers = jnp.arange(first, first + size)
        played = _play_chunk(key, environment, policy, numbers, horizon, beliefs)
        kept = min(size, instances - first)
        pieces.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf[:kept]), played))
        done = first + kept
        report(done, instances, sum(float(piece.regret.sum()) for piece in pieces) / done)
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)
    return History(whole.action.astype(np.int32), whole.regret, whole.optimal, whole.expected_rewards)
