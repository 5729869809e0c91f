r"""Regret balancing: several policies, played so that none can have lost more than another, and dropped if it did.

After "Regret Bound Balancing and Elimination for Model Selection in Bandits and RL" (Pacchiano, Dann, Gentile, Bartlett
2020, arXiv 2012.13045), which refines Abbasi-Yadkori, Pacchiano and Phan (2020). Each base policy i has a bound
$R_i(n)$ on its regret in n rounds that may hold or not. A round is played by the remaining base with the smallest
$R_i(n_i)$. With $U_i$ the rewards of its $n_i$ rounds, base i is dropped for good when

$$\frac{U_i}{n_i} + \frac{R_i(n_i)}{n_i} + c\sqrt{\frac{\ln(M \ln n_i / \delta)}{n_i}} <
\max_j \frac{U_j}{n_j} - c\sqrt{\frac{\ln(M \ln n_j / \delta)}{n_j}}:$$

had its bound held, the best action would pay less than another base has earned.

Here the bases are the calibrated posterior, greedy, and MAB, with $R_i(n) = \sigma \sqrt{2 d_i n \ln K}$: the Bayesian
bound of Thompson sampling (Russo, Van Roy 2016) with d the latent dimension for the first and K for the second.
So MAB plays about $d / (K + d)$ of the rounds as long as the calibrated posterior is not dropped: that is the price.

Departures: (1) every base learns from all rewards, not only from those of its own rounds, which no proof covers.
(2) Greedy play of the calibrated posterior has no such bound; contexts resolve what Thompson sampling would explore.
(3) $c = 2 \sigma$, $\delta = 0.05$. (4) A late reward is booked on the base that last chose its action. (5) Rewards are
compared as they come: what the moment of a round adds to them is noise to MAB and to the test.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.models.latent import LatentModel
from ilb.online.arms import mab
from ilb.online.latent import CalibratedBelief
from ilb.online.policy import AbstractPolicy, AbstractRewards, BeliefPolicy, Greedy, State, choose
from ilb.types import Allowed, Choice, Context, Step, Values, as_real

DELTA = 0.05
"""The probability of dropping a base whose bound holds."""


class SelectedRewards(AbstractRewards):
    """What one of several bases believes."""

    bases: tuple[AbstractRewards, ...]
    selected: Int[Array, ""]

    def mean(self) -> Values:
        return jnp.stack([base.mean() for base in self.bases])[self.selected]

    def std(self) -> Values:
        return jnp.stack([base.std() for base in self.bases])[self.selected]

    @property
    def noise_size(self) -> int:
        return max(base.noise_size for base in self.bases)

    def at(self, noise: Float[Array, " noise"]) -> Values:
        return jnp.stack([base.at(noise[: base.noise_size]) for base in self.bases])[self.selected]


class Balance(NamedTuple):
    """What the bases remember, which of them last chose each action, and what each has earned in how many rounds."""

    bases: tuple[State, ...]
    chosen_by: Int[Array, " K"]
    rounds: Float[Array, " M"]
    reward_sum: Float[Array, " M"]
    kept: Bool[Array, " M"]


class RegretBalancing(AbstractPolicy):
    r"""Several policies with bounds $R_i(n) = $ `slopes[i]` $\sqrt n$ on their regret, balanced and eliminated."""

    bases: tuple[AbstractPolicy, ...]
    slopes: Float[Array, " M"]
    noise_std: Float[Array, ""] = eqx.field(converter=as_real)
    actions: int = eqx.field(static=True)

    def init(self) -> Balance:
        nothing = jnp.zeros(len(self.bases))
        return Balance(
            tuple(base.init() for base in self.bases), jnp.zeros(self.actions, int), nothing, nothing, nothing == 0
        )

    def selected(self, state: Balance) -> Int[Array, ""]:
        """Give the base that has the least to lose."""
        return jnp.argmin(jnp.where(state.kept, self.slopes * jnp.sqrt(state.rounds), jnp.inf))

    def decide(self, key: PRNGKeyArray, state: Balance, context: Context, allowed: Allowed) -> tuple[Balance, Choice]:
        """Let every base see the context, and take the action of the selected one."""
        keys = jr.split(key, len(self.bases))
        decided = [
            base.decide(own_key, each, context, allowed)
            for base, own_key, each in zip(self.bases, keys, state.bases, strict=True)
        ]
        selected = self.selected(state)
        choice = choose(jnp.stack([each.values for _, each in decided])[selected], allowed)
        taken = jnp.arange(self.actions) == choice.action
        return state._replace(
            bases=tuple(after for after, _ in decided), chosen_by=jnp.where(taken, selected, state.chosen_by)
        ), choice

    def learn(self, state: Balance, step: Step) -> Balance:
        """Teach every base, book the reward, and drop bases that promised more."""
        booked = jax.nn.one_hot(state.chosen_by[step.action], len(self.bases))
        rounds, reward_sum = state.rounds + booked, state.reward_sum + step.reward * booked
        return Balance(
            tuple(base.learn(each, step) for base, each in zip(self.bases, state.bases, strict=True)),
            state.chosen_by,
            rounds,
            reward_sum,
            state.kept & ~self._broken(rounds, reward_sum, state.kept),
        )

    def rewards(self, state: Balance, context: Context) -> SelectedRewards:
        believed = tuple(base.rewards(each, context) for base, each in zip(self.bases, state.bases, strict=True))
        return SelectedRewards(believed, self.selected(state))

    def propensities(self, key: PRNGKeyArray, state: Balance, context: Context, allowed: Allowed) -> Values:
        shares = [
            base.propensities(key, each, context, allowed) for base, each in zip(self.bases, state.bases, strict=True)
        ]
        return jnp.stack(shares)[self.selected(state)]

    def _broken(
        self, rounds: Float[Array, " M"], reward_sum: Float[Array, " M"], kept: Bool[Array, " M"]
    ) -> Bool[Array, " M"]:
        """Mark bases whose bound can't hold, given what another one has earned."""
        played = jnp.maximum(rounds, 1)
        log = jnp.log(len(self.bases) * jnp.maximum(jnp.log(played), 1) / DELTA)
        radius = jnp.where(rounds > 0, 2 * self.noise_std * jnp.sqrt(log / played), jnp.inf)
        mean = reward_sum / played
        earned = jnp.max(jnp.where(kept, mean - radius, -jnp.inf))
        return mean + self.slopes / jnp.sqrt(played) + radius < earned


def calibrated_or_mab(model: LatentModel, reward_variance: Float[Array, " K"]) -> RegretBalancing:
    """Balance the calibrated posterior and MAB, with a prior N(0, 1) and known variances as in `mab`."""
    actions = len(reward_variance)
    noise_std = jnp.sqrt(reward_variance.mean())
    dimensions = jnp.asarray([max(model.noise.population_mean.shape[0], 1), actions], float)
    return RegretBalancing(
        (BeliefPolicy(CalibratedBelief(model), Greedy()), mab(actions, reward_variance)),
        noise_std * jnp.sqrt(2 * dimensions * math.log(max(actions, 2))),
        noise_std,
        actions,
    )
