r"""Hierarchical Thompson sampling: the logs are the prior of a new person, and the person's rewards share a level.

After "Hierarchical Bayesian Bandits" (Hong, Kveton, Zaheer, Ghavamzadeh 2022), whose Gaussian case draws a parameter
that tasks share, then that of the task given it, from their exact posteriors. Here the hierarchy is
(`RewardPopulation`)

$$m_a \sim N(\hat m_a, v_a), \quad \ell \sim N(0, \lambda^2), \quad
\mu_a = m_a + \ell + e_a, \quad e_a \sim N(0, \tau_a^2), \quad r \sim N(\mu_a, \sigma_a^2).$$

For one person the error of $\hat m_a$ can't be told from $e_a$, so both are one effect with the variance
$\omega_a^2 = v_a + \tau_a^2$. With $w_a = N_a / (\sigma_a^2 + N_a \omega_a^2)$ the level has the posterior variance
$(\lambda^{-2} + \sum_a w_a)^{-1}$, and that times $\sum_a w_a (\bar r_a - \hat m_a)$ as its mean; given the level,
actions have nothing to do with each other.

Departures: variances are not known but measured in the logs, by moments; new people do not teach anything about each
other, as every person has a belief of their own. No model and no contexts are used.
"""

from __future__ import annotations

import jax.numpy as jnp

from ilb.models.baselines import RewardPopulation
from ilb.models.latent import LinearReward
from ilb.online.evidence import RewardSums
from ilb.online.latent import LatentRewards, PartlyExplainedRewards
from ilb.online.policy import AbstractBelief, BeliefPolicy, Thompson
from ilb.types import Context, Step


class HierarchicalBelief(AbstractBelief):
    """The posterior of a person's mean rewards: an unknown level, and an effect of its own for each action."""

    population: RewardPopulation

    def init(self) -> RewardSums:
        return RewardSums.none(self.population.mean.shape[0])

    def learn(self, state: RewardSums, step: Step) -> RewardSums:
        return state.add(step)

    def rewards(self, state: RewardSums, context: Context) -> PartlyExplainedRewards:
        del context
        known = self.population
        own = known.effect_variance + known.mean_variance
        pooled = known.reward_variance + state.pulls * own
        # The level counts in units of its standard deviation, which may be zero.
        level_std = jnp.sqrt(known.level_variance)
        precision = 1 + known.level_variance * jnp.sum(state.pulls / pooled)
        level = level_std * jnp.sum((state.reward_sum - state.pulls * known.mean) / pooled) / precision
        reward = LinearReward.known(jnp.full((known.mean.shape[0], 1), level_std), known.mean)
        explained = LatentRewards(level[None], jnp.sqrt(precision)[None, None], reward)
        gain = state.pulls * own / pooled
        return PartlyExplainedRewards(
            explained, 1 - gain, gain * state.means(), jnp.sqrt(own * known.reward_variance / pooled)
        )


def hierarchical_ts(population: RewardPopulation) -> BeliefPolicy:
    """Thompson sampling with the logs as its prior.

    >>> population = RewardPopulation(jnp.zeros(3), jnp.zeros(3), jnp.asarray(1.0), jnp.ones(3), jnp.ones(3))
    >>> policy = hierarchical_ts(population)
    >>> state = policy.learn(policy.init(), Step(jnp.zeros(1), jnp.asarray(0), jnp.asarray(3.0)))
    >>> policy.rewards(state, jnp.zeros(1)).mean().round(3).tolist()  # one good reward speaks for the others, too
    [2.0, 1.0, 1.0]
    """
    return BeliefPolicy(HierarchicalBelief(population), Thompson())
