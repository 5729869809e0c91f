"""Play policies in environments: one round, one instance (scan), many instances (vmap), in one compiled program.

All K rewards are drawn in every round and one is revealed, and the environment's keys are not the policy's: every policy
meets the same instances, contexts and noise, and comparisons between policies are paired. Instance i uses the key
folded with i and round t that folded with t, so results do not depend on how many are played.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment
from ilb.online.policy import AbstractPolicy
from ilb.types import Step

CHUNK = 256
"""Instances played at once: wide enough for vector instructions, small enough to bound memory whatever the size."""


class Played(NamedTuple):
    """What is kept of a round."""

    action: Int[Array, ""]
    regret: Float[Array, ""]
    optimal: Bool[Array, ""]


def play(
    key: PRNGKeyArray, environment: AbstractEnvironment, policy: AbstractPolicy, number: Int[Array, ""], horizon: int
) -> Played:
    """Play one instance for `horizon` rounds (Alg. 1, bottom half)."""
    key_environment, key_policy = jr.split(key)
    key_instance, key_rounds = jr.split(jr.fold_in(key_environment, number))
    key_decisions = jr.fold_in(key_policy, number)
    instance = environment.sample_instance(key_instance)
    means = environment.mean_rewards(instance)
    best = means.max()
    everything = jnp.ones(means.shape, dtype=bool)

    def play_round(state: Any, t: Int[Array, ""]) -> tuple[Any, Played]:
        key_context, key_reward = jr.split(jr.fold_in(key_rounds, t))
        context = environment.emit(key_context, instance)
        state, choice = policy.decide(jr.fold_in(key_decisions, t), state, context, everything)
        # All K rewards are drawn, one is revealed: every policy then meets the same noise.
        reward = environment.sample_rewards(key_reward, instance)[choice.action]
        state = policy.learn(state, Step(context, choice.action, reward))
        mean = means[choice.action]
        return state, Played(choice.action, best - mean, mean >= best)

    _, played = jax.lax.scan(play_round, policy.init(), jnp.arange(horizon))
    return played  # type: ignore[no-any-return]


@eqx.filter_jit
def _play_chunk(
    key: PRNGKeyArray,
    environment: AbstractEnvironment,
    policy: AbstractPolicy,
    numbers: Int[Array, " chunk"],
    horizon: int,
) -> Played:
    played: Played = jax.vmap(lambda number: play(key, environment, policy, number, horizon))(numbers)
    return played
