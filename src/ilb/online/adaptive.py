r"""The adaptive belief: hypotheses on how wrong the model is for this person, weighed by what the person has shown.

Under a hypothesis $h = (\kappa, \beta, \tau, \gamma)$, in the basis of `Calibration` (noise of one encoding is one):

$$v \sim N(0, \kappa S), \quad \bar e_t \mid v \sim N(v + b, \lambda^2 I / t), \quad
  b \sim N(0, \beta_\lambda^2 I), \quad
  \bar r_a \mid v \sim N(\gamma \theta_{a,z}^\top z + \theta_{a,u}^\top u + c_a + \delta_a, \sigma_a^2 / N_a), \quad
  \delta_a \sim (1 - \epsilon) N(0, \omega_a + \tau^2 \rho^2) + \epsilon N(0, \omega_a + (\tau^2 + \Delta^2) \rho^2)$$

with v = (z, u), of which contexts show z, the own effects $\omega_a$ (those of the logs; where effects may have any
size, and all that people and actions differ by; where contexts say nothing, $\gamma = 0$, and what they would have
explained, $\theta_{a,z}^\top S \theta_{a,z}$), and the spread $\rho$ of what is expected of the actions for one
person. Bias and own effects are integrated out, so everything is a function of the sums of `Evidence`.

How noisy the contexts of this person are beside those of the logs, $\lambda^2$, is read off how far their encodings are
from each other (in the coordinates `COUNTED`; it is taken to hold in all), as if 1 / doubt numbers had been seen before
that vary as in the logs. Contexts that repeat themselves may have been copied: $\lambda^2$ is no less than
`LEAST_NOISE`. Bias is in units of this noise if that is larger than in the logs, and contexts that are noisier mislead,
too: $\beta_\lambda^2 = \max(\lambda^2, 1) \beta^2 + \ell (\lambda^2 - 1)_+$.

Whether an action has changed ($\epsilon$) is judged for each action against what all else says of it, with the others'
judgements held fixed (`PASSES` times).

Without doubt only the first hypothesis is left, which is `CalibratedBelief`.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import rel_entr
from jaxtyping import Array, Bool, Float

from ilb.errors import DecisionError
from ilb.models.baselines import DOUBT
from ilb.models.calibration import Calibration
from ilb.models.hypotheses import HYPOTHESES, Hypothesis, expected_spread, own_variances, prior_weights
from ilb.models.latent import LatentModel
from ilb.online.cholesky import cholesky, half_of_inverse, solve_lower, solve_upper
from ilb.online.evidence import Evidence
from ilb.online.latent import AbstractMeasuredBelief, linear_reward
from ilb.online.mixed_rewards import MixedRewards
from ilb.online.policy import BeliefPolicy, WorthTrying
from ilb.types import Values, as_float32, as_real

CHANGE = 1.0
r"""$\Delta$: how much an action may have changed since the logs, in units of the spread of expected rewards."""

NOTICEABLE, UNUSUAL = 0.5, 2.0
"""An own effect is reported that is larger than the first in the same units, and the second in deviations of the logs'.

Where the logs have own effects, to have one is just what they say.
"""

PASSES = 2
"""How often the actions are judged one by one."""

CHANGED = 1 / 20
"""The probability that a single action has changed, as a share of the doubt."""

LASTING = 0.03
r"""$\ell$: how much of the variance that contexts have beyond those of the logs lasts, and misleads."""

LEAST_NOISE = 0.25
"""The least variance of contexts, in units of that in the logs: no context counts for more than four of the logs."""

COUNTED = (0.01, 100.0)
"""Noise is measured in coordinates where people vary, in units of it, by a variance in between.

Others, such as columns that never change for a person, say of it only how rare their changes are.
"""

KNOWN = 1e12
"""The precision of what is as good as known, in the basis of `Calibration`."""


class _Posterior(NamedTuple):
    """What follows under one hypothesis; `log_evidence` is a lower bound of its log-likelihood, up to a constant."""

    log_evidence: Float[Array, ""]
    soundness: Float[Array, "2 K"]
    means: Float[Array, "2 K"]
    share: Float[Array, "2 K"]
    own_variance: Float[Array, "2 K"]
    factor: Float[Array, "p p"]
    variance: Float[Array, " K"]
    lasting: Float[Array, " K"]
    explained: Float[Array, " K"]


class _Scales(NamedTuple):
    """The numbers of a hypothesis, the variance of its bias among them; with an axis in front, those of all."""

    wider: Float[Array, "*H"]
    bias: Float[Array, "*H"]
    relevant: Bool[Array, "*H"]
    own_variance: Float[Array, "*H 2 K"]


class AdaptiveBelief(AbstractMeasuredBelief):
    """What is believed of a person if the model may be wrong for them, with probability `doubt` at least to begin with.

    It is wrong more often to begin with if it was for people whom its fit had not seen (`NoiseLevels.misfits`). A
    twentieth of `doubt` is the probability that a single action is not what the logs say.
    """

    noise_doubt: Float[Array, ""]
    counted: Float[Array, " n"]
    log_prior: Float[Array, " H"]
    change_probability: Float[Array, ""]
    scales: _Scales
    noticeable: Float[Array, " K"]
    _says: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self, model: LatentModel, doubt: float = DOUBT, hypotheses: tuple[Hypothesis, ...] = HYPOTHESES
    ) -> None:
        super().__init__(model)
        if not 0 <= doubt <= 1:
            raise DecisionError(f"doubt is a probability, from 0 (the model is right) to 1; got {doubt}.")
        self._says = tuple(hypothesis.says for hypothesis in hypotheses)
        prior = prior_weights(doubt, hypotheses, np.asarray(model.noise.misfits, np.float64))
        with np.errstate(divide="ignore"):
            self.log_prior = as_float32(np.log(prior))
        self.change_probability = as_float32(CHANGED * doubt)
        # Where states move, what moves would pass for noise.
        self.noise_doubt = as_float32(doubt if float(model.noise.memory) == 1 else 0.0)
        numbers = Calibration.of(model, linear_reward(model))
        population = 1 / numbers.prior_precision[: model.encoded_dim]
        self.counted = as_float32((population > COUNTED[0]) & (population < COUNTED[1]))
        spread = expected_spread(numbers)
        self.noticeable = as_real(np.maximum(NOTICEABLE * np.sqrt(spread), UNUSUAL * np.sqrt(numbers.own_variance)))
        wider, bias, relevant = (
            np.array([getattr(hypothesis, name) for hypothesis in hypotheses]) for name in ("wider", "bias", "relevant")
        )
        sound = np.stack([own_variances(hypothesis, numbers) for hypothesis in hypotheses])
        own_variance = np.stack([sound, sound + CHANGE**2 * spread], axis=1)
        self.scales = _Scales(as_float32(wider), as_float32(bias**2), jnp.asarray(relevant), as_float32(own_variance))

    @property
    def says(self) -> tuple[str, ...]:
        return self._says

    def scatter(self, state: Evidence, encoding: Float[Array, " n"]) -> Float[Array, ""]:
        # Around the mean so far, so that nothing cancels for people who are far from all others.
        apart = (encoding - state.encoding_sum / jnp.maximum(state.rounds, 1)) @ self.to_basis.matrix
        return state.rounds / (state.rounds + 1) * jnp.sum(self.counted * apart**2)

    def believe(self, state: Evidence) -> MixedRewards:
        context_noise = self.context_noise(state)
        posterior = self._under_each(state, context_noise)
        hypotheses = jax.nn.softmax(self.log_prior + posterior.log_evidence)
        return MixedRewards(
            hypotheses,
            *posterior[1:],
            self.reward.theta,
            self.reward_variance,
            self.noticeable,
            state.rounds,
            state.elapsed,
            1 / (1 - self.model.noise.memory),
            context_noise,
        )

    def log_evidence(self, state: Evidence) -> Float[Array, " H"]:
        """Say how well each hypothesis explains what was seen, in nats, up to a constant."""
        return self._under_each(state, self.context_noise(state)).log_evidence

    def context_noise(self, state: Evidence) -> Float[Array, ""]:
        r"""Give $\lambda^2$: the variance of a person's contexts around their state, in units of that in the logs."""
        freedom = jnp.maximum(state.rounds - 1, 0.0) * jnp.sum(self.counted)
        noise = (1 + self.noise_doubt * state.scatter) / (1 + self.noise_doubt * freedom)
        return jnp.maximum(noise, LEAST_NOISE)

    def _under_each(self, state: Evidence, context_noise: Float[Array, ""]) -> _Posterior:
        excess = jnp.maximum(context_noise - 1, 0.0)
        bias = (1 + excess) * self.scales.bias + LASTING * excess
        return jax.vmap(lambda scales: self._under(scales, state, context_noise))(self.scales._replace(bias=bias))

    def _under(self, scales: _Scales, state: Evidence, context_noise: Float[Array, ""]) -> _Posterior:
        """Infer v, own effects and which actions have changed, under one hypothesis."""
        n, rounds, pulls = self.model.encoded_dim, state.rounds, state.rewards.pulls
        is_shown = jnp.arange(len(self.prior_precision)) < n
        theta = self.reward.theta
        # One product of matrices with all instances and hypotheses as rows is faster than many small ones.
        outer = (theta[:, :, None] * theta[:, None, :]).reshape(len(theta), -1)
        # Of a covariance the lower half is enough, with what is beside the diagonal counted twice.
        i, j = np.tril_indices(theta.shape[1])
        half = theta[:, i] * theta[:, j] * jnp.where(i == j, 1.0, 2.0)[None]
        trust = 1 / (context_noise + scales.bias * rounds)
        prior = self.prior_precision / scales.wider
        # What contexts show has no part in rewards that it says nothing of: there it is as if known to be zero.
        told = jnp.where(scales.relevant, trust * rounds, KNOWN)
        before = prior + jnp.where(is_shown, told, 0.0)
        shown = scales.relevant * trust * self.shown(state)
        seen = state.rewards.seen
        residual = state.rewards.means()
        noise = self.reward_variance / jnp.where(seen, pulls, 1)
        pooled = scales.own_variance + noise[None]
        log_odds = jnp.log(self.change_probability) - jnp.log1p(-self.change_probability)
        changed = jnp.zeros_like(pulls)
        for _ in range(PASSES):
            weights = jnp.where(seen, (1 - changed) / pooled[0] + changed / pooled[1], 0.0)
            rewards = (weights @ outer).reshape(theta.shape[1], -1)
            factor = cholesky(jnp.diag(before) + rewards)
            information = shown + (weights * residual) @ theta
            v = solve_upper(factor, solve_lower(factor, information))
            covariance = half_of_inverse(factor)
            variance = half @ covariance
            miss = residual - theta @ v
            # What all but its own rewards say of an action: its mean reward is off by `alone` with variance `others`.
            left = jnp.maximum(1 - weights * variance, 1e-6)
            alone, others = miss / left, (variance / left)[None] + pooled
            ratio = -0.5 * (jnp.log(others[1] / others[0]) + alone**2 * (1 / others[1] - 1 / others[0]))
            judged, changed = changed, jax.nn.sigmoid(log_odds + jnp.where(seen, ratio, 0.0))
        log_evidence = self._evidence_of_contexts(scales, state, context_noise) + _evidence_of_rewards(
            jnp.where(seen, judged, self.change_probability),
            self.change_probability,
            jnp.where(seen[None], pooled, 1.0),
            2 * jnp.sum(jnp.log(jnp.diag(factor) / jnp.sqrt(before))),
            jnp.sum(weights * miss**2) + jnp.sum(before * (v - shown / before) ** 2),
        )
        gain = jnp.where(seen[None], scales.own_variance / pooled, 0.0)
        expected = self.reward.intercept + theta @ v
        means = expected[None] + gain * miss[None]
        own = scales.own_variance * jnp.where(seen[None], noise[None] / pooled, 1.0)
        # Of what contexts say of v, the noise goes away with more of them and the bias stays.
        kept = jnp.where(is_shown, jnp.sqrt(scales.bias * rounds * trust), 1.0)
        lasting = half @ (kept[i] * covariance * kept[j])
        soundness = jnp.where(jnp.arange(2)[:, None] == 0, 1 - changed, changed)
        return _Posterior(log_evidence, soundness, means, 1 - gain, own, factor, variance, lasting, expected)

    def _evidence_of_contexts(
        self, scales: _Scales, state: Evidence, context_noise: Float[Array, ""]
    ) -> Float[Array, ""]:
        n, count = self.model.encoded_dim, jnp.maximum(state.rounds, 1)
        variance = scales.wider / self.prior_precision[:n] + scales.bias + context_noise / count
        mean = self.shown(state)[:n] / count
        return -0.5 * jnp.sum(jnp.log(variance) + mean**2 / variance) * (state.rounds > 0)


def adaptive(model: LatentModel, doubt: float = DOUBT, horizon: int | None = None) -> BeliefPolicy:
    """Doubt the model as far as a person gives cause to, and try what is worth trying over the rounds to come.

    With an unknown `horizon` twice as many rounds are taken to be ahead as there were.
    """
    return BeliefPolicy(AdaptiveBelief(model, doubt), WorthTrying(as_real(np.inf if horizon is None else horizon)))


def _evidence_of_rewards(
    changed: Values, prior: Float[Array, ""], pooled: Float[Array, "2 K"], log_volume: Array, misfit: Array
) -> Float[Array, ""]:
    """Bound the log-likelihood of the mean rewards, given contexts and judgements of which actions have changed."""
    scale = jnp.sum((1 - changed) * jnp.log(pooled[0]) + changed * jnp.log(pooled[1]))
    surprise = jnp.sum(rel_entr(changed, prior) + rel_entr(1 - changed, 1 - prior))
    return -0.5 * (log_volume + scale + misfit) - surprise
