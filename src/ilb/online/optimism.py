r"""MIN-UCB: offline data as a cap on optimism, as far as a bound on their bias allows.

After "Leveraging (Biased) Information: Multi-armed Bandits with Offline Data" (Cheung, Lyu 2024, arXiv 2405.02594). The
index of an action is the smaller of two upper bounds on its mean reward: that of its N online rewards alone, and that
of all N + T rewards, of which the T offline ones may have a mean that is wrong by V,

$$\min\Big\{\bar r_a + \sigma_a\sqrt{\tfrac{2 \ln f(t)}{N_a}}, \quad \frac{N_a \bar r_a + T_a \hat x_a}{N_a + T_a} +
\sigma_a\sqrt{\tfrac{2 \ln f(t)}{N_a + T_a}} + \frac{T_a}{N_a + T_a} V_a\Big\}.$$

Where V is a bound, both hold and the smaller is the better one; a large V leaves UCB. The authors show that nothing can
beat UCB without a bound. Offline estimates here have a mean $\hat x_a$ and a variance $s_a^2$, and
$T_a = \sigma_a^2 / s_a^2$ is how many rewards they are worth. They come from the mean rewards of people in the logs
(`LoggedMeans`), as in the paper, or from what a model says of this person by their contexts (`ModelPrediction`), which
is ours.

Departures: $f(t) = 1 + t \ln^2 t$ of asymptotically optimal UCB (Lattimore & Szepesvári, chapter 8) stands for their
larger confidence, in both bounds; variances are known; V is not given, but `WIDTH` standard deviations of what the logs
leave unexplained. That is a bound for most people like those of the logs, and none if the world has changed: then
regret is linear for long, unless `missed_share` makes V larger, which costs regret where the model is right.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.models.baselines import RewardPopulation
from ilb.models.latent import LatentModel
from ilb.online.evidence import Evidence, RewardSums
from ilb.online.latent import CalibratedBelief
from ilb.online.policy import AbstractPolicy, IndependentRewards, State, choose, indicate
from ilb.types import Allowed, Choice, Context, Step, Values, as_real

WIDTH = 2.0
"""Standard deviations that a bias is taken to be below: of 20 people, one has more."""


def confidence_width(rounds: Float[Array, ""]) -> Float[Array, ""]:
    r"""Give $\sqrt{2 \ln f(t)}$ with $f(t) = 1 + t \ln^2 t$: the standard deviations of an upper bound in round t."""
    return jnp.sqrt(2 * jnp.log1p(rounds * jnp.log(rounds) ** 2))


class AbstractIndexPolicy(AbstractPolicy):
    """Take the action with the largest index, which what was seen determines."""

    @abc.abstractmethod
    def observe(self, state: State, context: Context) -> State:
        """Take in the context of a round."""

    @abc.abstractmethod
    def index(self, state: State, context: Context) -> Values:
        """Value all K actions."""

    def decide(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> tuple[State, Choice]:
        del key
        state = self.observe(state, context)
        return state, choose(self.index(state, context), allowed)

    def propensities(self, key: PRNGKeyArray, state: State, context: Context, allowed: Allowed) -> Values:
        del key
        return indicate(self.index(state, context), allowed)


class OfflineEstimate(NamedTuple):
    """What was known of a person's mean rewards before any of them came; off by `bias` at most, beyond `variance`."""

    mean: Float[Array, " K"]
    variance: Float[Array, " K"]
    bias: Float[Array, " K"]


class AbstractOffline(eqx.Module):
    """Where offline estimates come from."""

    @abc.abstractmethod
    def init(self) -> State:
        """Start a person."""

    @abc.abstractmethod
    def observe(self, state: State, context: Context) -> State:
        """Take in a context."""

    @abc.abstractmethod
    def estimate(self, state: State) -> OfflineEstimate:
        """Give the estimate of what lasts."""

    @abc.abstractmethod
    def moment(self, context: Context) -> Float[Array, " K"] | float:
        """Give what the context at hand adds to rewards."""


class LoggedMeans(AbstractOffline):
    """The mean reward of each action over the people of the logs: the same for everyone, whatever their contexts."""

    logged: OfflineEstimate

    def init(self) -> State:
        return ()

    def observe(self, state: State, context: Context) -> State:
        del context
        return state

    def estimate(self, state: State) -> OfflineEstimate:
        del state
        return self.logged

    def moment(self, context: Context) -> float:
        del context
        return 0.0


class ModelPrediction(AbstractOffline):
    """What a model says of this person by all contexts so far; it is off by effects that no state explains."""

    belief: CalibratedBelief
    bias: Float[Array, " K"]

    def init(self) -> Evidence:
        return self.belief.init()

    def observe(self, state: Evidence, context: Context) -> Evidence:
        return self.belief.observe(state, context)

    def estimate(self, state: Evidence) -> OfflineEstimate:
        predicted = self.belief.believe(state)
        return OfflineEstimate(predicted.mean(), predicted.std() ** 2, self.bias)

    def moment(self, context: Context) -> Float[Array, " K"] | float:
        return 0.0 if self.belief.model.moment is None else self.belief.model.moment(context)


class Watched(NamedTuple):
    """What was seen of the offline side, and the online rewards without their moment."""

    offline: State
    sums: RewardSums


class MinUCB(AbstractIndexPolicy):
    """The smaller of two upper bounds: without the offline estimate, and with it and its bias."""

    offline: AbstractOffline
    reward_variance: Float[Array, " K"]

    def init(self) -> Watched:
        return Watched(self.offline.init(), RewardSums.none(self.reward_variance.shape[0]))

    def observe(self, state: Watched, context: Context) -> Watched:
        return state._replace(offline=self.offline.observe(state.offline, context))

    def learn(self, state: Watched, step: Step) -> Watched:
        moment = jnp.broadcast_to(self.offline.moment(step.context), self.reward_variance.shape)
        return state._replace(sums=state.sums.add(step._replace(reward=step.reward - moment[step.action])))

    def index(self, state: Watched, context: Context) -> Values:
        sums, estimate = state.sums, self.offline.estimate(state.offline)
        width = confidence_width(1 + sums.pulls.sum())
        online_std = jnp.sqrt(self.reward_variance / jnp.where(sums.seen, sums.pulls, 1))
        mean, std, share = self._pooled(sums, estimate)
        pooled = mean + width * std + share * estimate.bias
        # An action that was never rewarded has no bound of its own.
        online = jnp.where(sums.seen, sums.means() + width * online_std, pooled)
        return jnp.minimum(online, pooled) + self.offline.moment(context)

    def rewards(self, state: Watched, context: Context) -> IndependentRewards:
        """Believe all rewards, online and offline, as if there were no bias."""
        mean, std, _ = self._pooled(state.sums, self.offline.estimate(state.offline))
        return IndependentRewards(mean + self.offline.moment(context), std)

    def _pooled(self, sums: RewardSums, estimate: OfflineEstimate) -> tuple[Values, Values, Values]:
        """Give mean and standard deviation of all rewards, and the share of the offline ones."""
        share = self.reward_variance / (self.reward_variance + sums.pulls * estimate.variance)
        return share * estimate.mean + (1 - share) * sums.means(), jnp.sqrt(share * estimate.variance), share


def min_ucb(population: RewardPopulation) -> MinUCB:
    """MIN-UCB on logged rewards: no person differs from the mean of all by more than `WIDTH` deviations.

    >>> population = RewardPopulation(jnp.array([0.0, 1.0]), jnp.zeros(2), jnp.asarray(0.0), jnp.ones(2), jnp.ones(2))
    >>> policy = min_ucb(population)
    >>> policy.index(policy.init(), jnp.zeros(1)).tolist()
    [2.0, 3.0]
    """
    bias = WIDTH * jnp.sqrt(population.level_variance + population.effect_variance)
    logged = OfflineEstimate(population.mean, population.mean_variance, bias)
    return MinUCB(LoggedMeans(logged), population.reward_variance)


def model_min_ucb(model: LatentModel, missed_share: ArrayLike = 0.0) -> MinUCB:
    """MIN-UCB on what a model predicts: no person differs from it by more than `WIDTH` deviations of what it misses."""
    belief = CalibratedBelief(model)
    bias = WIDTH * missed_std(belief, missed_share)
    return MinUCB(ModelPrediction(without_own_effects(belief), bias), belief.reward_variance)


def missed_std(belief: CalibratedBelief, missed_share: ArrayLike = 0.0) -> Float[Array, " K"]:
    """Give the standard deviation of what a model misses of a person's mean rewards.

    That is what it left unexplained in the logs and, for who doubts that the world is still that of the logs, the
    share `missed_share` of how widely the model says that mean rewards are spread.
    """
    return jnp.sqrt(belief.own_variance + as_real(missed_share) ** 2 * explained_variance(belief))


def explained_variance(belief: CalibratedBelief) -> Float[Array, " K"]:
    """Give the variance over people of the mean rewards that latent states explain."""
    return belief.reward.theta**2 @ (1 / belief.prior_precision)


def without_own_effects(belief: CalibratedBelief) -> CalibratedBelief:
    """Believe that the latent state explains all mean rewards."""
    plain: CalibratedBelief = eqx.tree_at(lambda part: part.own_variance, belief, jnp.zeros_like(belief.own_variance))
    return plain
