"""Evidence: all that one instance has told us, as sums.

Rewards depend on the past only through the action that was taken, so these sums are sufficient for every latent policy
and every bandit without contexts. Sums commute: late and reordered rewards are harmless, and nothing drifts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ilb.types import Step


class Evidence(NamedTuple):
    r"""Sums over the rounds of one instance; sufficient for $p(z \mid h_t, x_t)$ under Gaussian noise.

    `encoding_sum` is $\sum_s f(x_s)$, so $\hat z_t$ of Alg. 1, line 3 is `encoding_sum / rounds`; `pulls` and
    `reward_sum` are $N_a$ and $\sum_{s: a_s = a} r_s$, which is all that eq. loss needs. `reward_square_sum` tells how
    well a model explains the rewards.
    """

    rounds: Float[Array, ""]
    encoding_sum: Float[Array, " n"]
    pulls: Float[Array, " K"]
    reward_sum: Float[Array, " K"]
    reward_square_sum: Float[Array, " K"]


def no_evidence(latent_dim: int, actions: int) -> Evidence:
    """Start with nothing."""
    none = jnp.zeros(actions)
    return Evidence(jnp.asarray(0.0), jnp.zeros(latent_dim), none, none, none)


def add_encoding(evidence: Evidence, encoding: Float[Array, " n"]) -> Evidence:
    """Count a round and its encoding."""
    return evidence._replace(rounds=evidence.rounds + 1, encoding_sum=evidence.encoding_sum + encoding)


def add_reward(evidence: Evidence, step: Step) -> Evidence:
    """Count a reward for the action that earned it."""
    taken = jax.nn.one_hot(step.action, evidence.pulls.shape[0])
    return evidence._replace(
        pulls=evidence.pulls + taken,
        reward_sum=evidence.reward_sum + taken * step.reward,
        reward_square_sum=evidence.reward_square_sum + taken * step.reward**2,
    )
