"""Evidence: all that one instance has told us, as sums.

Rewards depend on the past only through the action that was taken, so these sums are sufficient for every latent policy
and every bandit without contexts. Sums commute: late and reordered rewards are harmless, and nothing drifts. Where
people change, sums fade from round to round, and a late reward counts as if it were new.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ilb.types import Step, as_real

FORGOTTEN = 1e-6
"""What has faded to so little counts as nothing."""


class RewardSums(NamedTuple):
    r"""How often each action was rewarded, $N_a$, and what it earned, $\sum_{s: a_s = a} r_s$."""

    pulls: Float[Array, " K"]
    reward_sum: Float[Array, " K"]

    @staticmethod
    def none(actions: int) -> RewardSums:
        """Start with nothing."""
        return RewardSums(as_real(np.zeros(actions)), as_real(np.zeros(actions)))

    def add(self, step: Step) -> RewardSums:
        """Count a reward for the action that earned it."""
        taken = jax.nn.one_hot(step.action, self.pulls.shape[0])
        return RewardSums(self.pulls + taken, self.reward_sum + taken * step.reward)

    def means(self) -> Float[Array, " K"]:
        """Give the mean reward of each action; of one without rewards, 0."""
        return self.reward_sum / jnp.where(self.seen, self.pulls, 1)

    @property
    def seen(self) -> Bool[Array, " K"]:
        """Which actions have rewards that are not quite forgotten."""
        return self.pulls > FORGOTTEN


class Evidence(NamedTuple):
    r"""Sums over the rounds of one instance; sufficient for $p(z \mid h_t, x_t)$ under Gaussian noise.

    `encoding_sum` is $\sum_s f(x_s)$, so $\hat z_t$ of Alg. 1, line 3 is `encoding_sum / rounds`; `rewards` is all that
    eq. loss needs. If what was fades, `rounds` and `pulls` are sums of weights; `elapsed` counts all rounds that were.
    `scatter` is $\sum_s |f(x_s) - \hat z_t|^2$ in the units of a belief that asks how noisy contexts are, and else 0.
    """

    rounds: Float[Array, ""]
    encoding_sum: Float[Array, " n"]
    rewards: RewardSums
    elapsed: Float[Array, ""]
    scatter: Float[Array, ""]

    @staticmethod
    def none(latent_dim: int, actions: int) -> Evidence:
        """Start with nothing."""
        sums = as_real(np.zeros(latent_dim)), RewardSums.none(actions)
        return Evidence(as_real(0), *sums, elapsed=as_real(0), scatter=as_real(0))

    def fade(self, memory: Float[Array, ""]) -> Evidence:
        """Let all that was count for so much of what it did."""
        rewards = RewardSums(memory * self.rewards.pulls, memory * self.rewards.reward_sum)
        sums = memory * self.rounds, memory * self.encoding_sum
        return Evidence(*sums, rewards, self.elapsed, memory * self.scatter)

    def add_encoding(self, encoding: Float[Array, " n"], scatter: ArrayLike = 0.0) -> Evidence:
        """Count a round and its encoding, and what it adds to the scatter."""
        return self._replace(
            rounds=self.rounds + 1,
            encoding_sum=self.encoding_sum + encoding,
            elapsed=self.elapsed + 1,
            scatter=self.scatter + scatter,
        )

    def add_reward(self, step: Step) -> Evidence:
        """Count a reward for the action that earned it."""
        return self._replace(rewards=self.rewards.add(step))
