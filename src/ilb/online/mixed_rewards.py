r"""What rewards are expected under several hypotheses at once, and what it is worth to try an action.

Given a hypothesis, and whether an action is sound or has changed, its expected reward is Gaussian: a mixture of
Gaussians for each action, with what is shared between actions kept as the factor of a precision.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from ilb.online.cholesky import solve_upper
from ilb.online.policy import AbstractRewards, Outlook
from ilb.types import Allowed, Values

AHEAD = 2.0
"""Rounds that are taken to be ahead where the horizon is unknown, for each one that was.

It is the mean if a horizon up to seven times the rounds that were is as likely as any other on a logarithmic scale.
"""

TINY = 1e-12
"""What is added to variances that may be zero, in units of the variance of rewards."""


class MixedRewards(AbstractRewards):
    """Rewards under each hypothesis, where each action is sound or has changed (the axis of two).

    Given hypothesis and soundness, action a has the expected reward `means`, plus the share `share` of what the state,
    whose precision has the factor `factor`, is off by, plus an own effect with variance `own_variance`; without own
    effects it would be `explained`. `variance` is that of what the state explains, and `lasting` the part of it that
    contexts to come will not tell. An own effect beyond `noticeable` makes an action doubtful. Of the `elapsed` rounds,
    as many as `rounds` still count, and what is learned now will count for `lifetime` rounds. `context_noise` is how
    noisy contexts are beside those of the logs.
    """

    hypotheses: Float[Array, " H"]
    soundness: Float[Array, "H 2 K"]
    means: Float[Array, "H 2 K"]
    share: Float[Array, "H 2 K"]
    own_variance: Float[Array, "H 2 K"]
    factor: Float[Array, "H p p"]
    variance: Float[Array, "H K"]
    lasting: Float[Array, "H K"]
    explained: Float[Array, "H K"]
    theta: Float[Array, "K p"]
    reward_variance: Float[Array, " K"]
    noticeable: Float[Array, " K"]
    rounds: Float[Array, ""]
    elapsed: Float[Array, ""]
    lifetime: Float[Array, ""]
    context_noise: Float[Array, ""]

    def mean(self) -> Values:
        return self._average(self.means)

    def std(self) -> Values:
        variance = self._average(self._variances() + (self.means - self.mean()[None, None]) ** 2)
        return jnp.sqrt(variance)

    @property
    def noise_size(self) -> int:
        actions, dim = self.theta.shape
        return 1 + 2 * actions + dim

    def at(self, noise: Float[Array, " noise"]) -> Values:
        actions = self.theta.shape[0]
        which, kind, own, state = jnp.split(noise, (1, 1 + actions, 1 + 2 * actions))
        # The first number says which hypothesis holds, those of `kind` which actions have changed.
        h = jnp.minimum(jnp.searchsorted(jnp.cumsum(self.hypotheses), _below(which[0])), len(self.hypotheses) - 1)
        changed = _below(kind) > self.soundness[h, 0]
        mean, share, variance = (
            jnp.where(changed, x[h, 1], x[h, 0]) for x in (self.means, self.share, self.own_variance)
        )
        off = self.theta @ solve_upper(self.factor[h], state)
        return mean + share * off + jnp.sqrt(variance) * own

    def outlook(self) -> Outlook:
        rows = (-1, self.means.shape[-1])
        return Outlook(
            (self.hypotheses[:, None, None] * self.soundness).reshape(rows),
            self.means.reshape(rows),
            jnp.sqrt(self._variances()).reshape(rows),
            self.hypotheses,
            self._average(self._noticed()),
            self.context_noise,
        )

    def worth_trying(self, allowed: Allowed, horizon: Float[Array, ""]) -> Values:
        r"""Multiply the rounds ahead by what one round gains if the action's reward is known, for each play that takes.

        Under each hypothesis, knowing that action a has the reward $m + s y$ improves on its rival, the best of the
        other actions, by $s f((m - m_*) / s)$ on average, $f(x) = x \Phi(x) + \phi(x)$, and takes some
        $1 + \sigma^2 / s^2$ plays. Only that variance $s^2$ counts that contexts will not resolve by themselves.
        """
        mean = jnp.where(allowed, self.mean(), -jnp.inf)
        best = jnp.argmax(mean)
        is_best = jnp.arange(len(mean)) == best
        second = jnp.argmax(jnp.where(is_best, -jnp.inf, mean))
        level = jnp.sum(self.soundness * self.means, axis=1)
        rival = jnp.where(is_best[None], level[:, second, None], level[:, best, None])[:, None]
        variance = self.own_variance + self.share**2 * self.lasting[:, None] + TINY * self.reward_variance[None, None]
        spread = jnp.sqrt(variance)
        ahead = (self.means - rival) / spread
        # Knowing the best better pays where it turns out to be worse than the second.
        ahead = jnp.where(is_best[None, None], -ahead, ahead)
        gain = spread * (ahead * _below(ahead) + norm.pdf(ahead))
        left = jnp.where(jnp.isinf(horizon), AHEAD * self.rounds, jnp.maximum(horizon - self.elapsed, 0.0))
        return jnp.minimum(left, self.lifetime) * self._average(
            gain / (1 + self.reward_variance[None, None] / variance)
        )

    def _noticed(self) -> Float[Array, "H 2 K"]:
        """Give the probability of an own effect, up or down, that is worth a remark."""
        effect = self.means - self.explained[:, None]
        std = jnp.sqrt(self.own_variance + TINY * self.reward_variance[None, None])
        least = self.noticeable[None, None]
        return _below((effect - least) / std) + _below((-effect - least) / std)

    def _average(self, values: Float[Array, "H 2 K"]) -> Values:
        # Not by `einsum`, which would move the axis of two to the end, where no loop over it is worth while.
        return jnp.sum(self.hypotheses[:, None, None] * self.soundness * values, axis=(0, 1))

    def _variances(self) -> Float[Array, "H 2 K"]:
        return self.own_variance + self.share**2 * self.variance[:, None]


def _below(x: Array) -> Array:
    r"""Give $\Phi(x)$; `norm.cdf` computes two functions and takes one of them."""
    return 0.5 * erfc(-np.sqrt(0.5).astype(x.dtype) * x)
