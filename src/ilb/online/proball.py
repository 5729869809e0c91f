r"""ProBALL-UCB: confidence in the subspace that the logs taught, as long as its error allows, then in all K dimensions.

After "Leveraging Offline Data in Linear Latent Bandits" (Kausik, Tan, Tewari, ICML 2025, arXiv 2405.17324). They learn
from short offline trajectories a subspace in which the reward parameters of users lie, play optimistically in it, and
turn to plain LinUCB when the accumulated error of the subspace is larger than what it saves. In our notation the mean
rewards of a person are $\mu = \theta_0 + \Theta v + \delta$: the subspace is that of $\Theta$, which `fit` has learned
(in place of their SOLD), actions are the K unit vectors, and $|\delta_a| \le \Delta_a$ is what it misses. The index of
round t is one of

$$\text{subspace:} \quad
\theta_{0,a} + \theta_a^\top \hat v_t + \alpha_{1,t} \lVert\theta_a\rVert_{M_t^{-1}} + \Delta_a,
\qquad \text{all dimensions:} \quad \hat\mu_a + \alpha_{2,t} \, s_a,$$

$$\alpha_{2,t} = \sqrt{2 \ln f(t)}, \qquad
\alpha_{1,t} = \alpha_{2,t} + \sqrt{\textstyle\sum_a N_a \Delta_a^2 / \sigma_a^2}.$$

$\hat v_t$ and $M_t$ are those of least squares in the subspace; by Cauchy and Schwarz the second part of
$\alpha_{1,t}$ is how far the missed $\delta$ can have pulled it. Sums of widths grow with the root of the dimension,
so the subspace is used while $\alpha_{1,t} \sqrt{p} \le \alpha_{2,t} \sqrt{K}$, p being its dimension.

Departures: (1) the ridge of the subspace is the population of the logs, and contexts count as observations of v: their
method has no contexts that tell of a person. (2) The ridge in all dimensions is the population as well: before any
reward, $\mu_a$ has the mean $\theta_{0,a}$ and the variance that people have. (3) Intervals for each of K actions, with
$f(t) = 1 + t \ln^2 t$, stand for ellipsoids, whose radius grows with the root of the dimension. (4) Widths and
switch are derived as above, from the idea and the bounds of the paper; they are not its pseudo-code. (5) $\Delta_a$ is
not proved but measured: the standard deviation of what the model leaves unexplained in the logs. If the world has
changed since, that is no bound and regret is linear until the switch, which `missed_share` hastens. (1) and (2) favour
the method.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ilb.models.latent import LatentModel
from ilb.online.arms import ArmBelief
from ilb.online.evidence import Evidence, RewardSums
from ilb.online.latent import CalibratedBelief
from ilb.online.optimism import (
    AbstractIndexPolicy,
    confidence_width,
    explained_variance,
    missed_std,
    without_own_effects,
)
from ilb.online.policy import IndependentRewards
from ilb.types import Context, Step, Values


class BothSpaces(NamedTuple):
    """What a person has told, for the subspace, and for each action by itself."""

    evidence: Evidence
    sums: RewardSums


class ProballUCB(AbstractIndexPolicy):
    """Upper bounds in the subspace of a model while its `error` is small enough, else for each action by itself."""

    subspace: CalibratedBelief
    actions_apart: ArmBelief
    error: Float[Array, " K"]

    def init(self) -> BothSpaces:
        return BothSpaces(self.subspace.init(), self.actions_apart.init())

    def observe(self, state: BothSpaces, context: Context) -> BothSpaces:
        return state._replace(evidence=self.subspace.observe(state.evidence, context))

    def learn(self, state: BothSpaces, step: Step) -> BothSpaces:
        moment = self.subspace.model.moment
        lasting = step if moment is None else moment.taken_off(step)
        return BothSpaces(self.subspace.learn(state.evidence, step), self.actions_apart.learn(state.sums, lasting))

    def in_subspace(self, state: BothSpaces) -> Bool[Array, ""]:
        """Say whether the subspace still promises less regret than all dimensions."""
        dimension, actions = len(self.subspace.prior_precision), len(self.error)
        full = self._full_width(state)
        return (full + self._pull(state)) * jnp.sqrt(dimension) <= full * jnp.sqrt(actions)

    def index(self, state: BothSpaces, context: Context) -> Values:
        full = self._full_width(state)
        explained = self.subspace.believe(state.evidence)
        inside = explained.mean() + (full + self._pull(state)) * explained.std() + self.error
        apart = self.actions_apart.rewards(state.sums, context)
        return jnp.where(self.in_subspace(state), inside, apart.mean() + full * apart.std()) + self._moment(context)

    def rewards(self, state: BothSpaces, context: Context) -> IndependentRewards:
        """Believe the means and deviations of the space that is played in."""
        explained, apart = self.subspace.believe(state.evidence), self.actions_apart.rewards(state.sums, context)
        inside = self.in_subspace(state)
        return IndependentRewards(
            jnp.where(inside, explained.mean(), apart.mean()) + self._moment(context),
            jnp.where(inside, explained.std(), apart.std()),
        )

    def _full_width(self, state: BothSpaces) -> Float[Array, ""]:
        return confidence_width(1 + state.sums.pulls.sum())

    def _pull(self, state: BothSpaces) -> Float[Array, ""]:
        return jnp.sqrt(jnp.sum(state.sums.pulls * self.error**2 / self.subspace.reward_variance))

    def _moment(self, context: Context) -> Float[Array, " K"] | float:
        return 0.0 if self.subspace.model.moment is None else self.subspace.model.moment(context)


def proball_ucb(model: LatentModel, missed_share: ArrayLike = 0.0) -> ProballUCB:
    """Build it on a model with linear rewards; the error is that of `missed_std`.

    >>> import jax.random as jr
    >>> from ilb.environments import draw_world
    >>> policy = proball_ucb(draw_world(jr.key(0)).oracle())
    >>> bool(policy.in_subspace(policy.init()))
    True
    """
    belief = CalibratedBelief(model)
    error = missed_std(belief, missed_share)
    spread = explained_variance(belief) + error**2
    apart = ArmBelief(len(error), belief.reward_variance, belief.reward.intercept, spread)
    return ProballUCB(without_own_effects(belief), apart, error)
