r"""What only the authors' released code does, under names of its own, to explain the paper's tables and figures.

The VAE is a noisy autoencoder with a sigmoid at its end. Its divergence term is clamped to zero, so nothing keeps
$q(z \mid x)$ near the prior, and its decoder ends in a sigmoid, which can't reach the negative half of whitened
contexts. It explains the VAE rows of Table table:fit_results; `VAERecipe` is the method that the paper names.

The linear bandits of app:synthetic_stationary draw from beliefs that are far wider than their posteriors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ilb.models.baselines import ContextRegression
from ilb.offline.encoders.vae import VAERecipe
from ilb.online.adaptive import adaptive
from ilb.online.linear import LinearBelief, LinearFactors, linear_belief
from ilb.online.policy import AbstractBelief, BeliefPolicy, IndependentRewards, Thompson
from ilb.online.roster import ROSTER, Builder
from ilb.types import Step, as_real


@dataclass(frozen=True)
class SigmoidSquares:
    """Squared distance to the sigmoid of what was decoded."""

    def __call__(self, context: Float[Array, " d"], decoded: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum((context - jax.nn.sigmoid(decoded)) ** 2)


def released_vae_recipe(layers: int = 2) -> VAERecipe:
    """Give the released variant: no divergence, a sigmoid output, and n ReLUs next to the latent state."""
    return VAERecipe(layers=layers, neck=1, beta=0.0, likelihood=SigmoidSquares())


class WidenedBelief(AbstractBelief):
    r"""A linear belief whose standard deviations are widened as in the authors' code (app:synthetic_stationary).

    $\nu_t^2 = \sum_a \ln \det A_a + d \ln(1 + T)$ with T the horizon: the width of a confidence ellipsoid
    (Abbasi-Yadkori et al. 2011), but summed over the actions, so that rewards of one widen the belief about all.
    """

    linear: LinearBelief
    horizon: Float[Array, ""] = eqx.field(converter=as_real)

    def init(self) -> LinearFactors:
        return self.linear.init()

    def learn(self, state: LinearFactors, step: Step) -> LinearFactors:
        return self.linear.learn(state, step)

    def rewards(self, state: LinearFactors, context: Float[Array, " d"]) -> IndependentRewards:
        log_determinants = 2 * jnp.sum(jnp.log(jnp.diagonal(state.factor, axis1=1, axis2=2)))
        # Ridges below one can make the sum of logarithms negative; a widened belief is not narrower than the plain one.
        squared = jnp.maximum(log_determinants + context.shape[0] * jnp.log1p(self.horizon), 1.0)
        believed = self.linear.rewards(state, context)
        return IndependentRewards(believed.means, jnp.sqrt(squared) * believed.stds)


def widened_lin_ts(regression: ContextRegression, noise_std: ArrayLike, horizon: int) -> BeliefPolicy:
    """Linear Thompson sampling as in the authors' toy: draws are widened by the log-determinants of all actions."""
    return BeliefPolicy(WidenedBelief(linear_belief(regression, noise_std), as_real(horizon)), Thompson())


STUDY_ROSTER: Mapping[str, Builder] = {
    **ROSTER,
    "Adaptive": lambda given: adaptive(given.model, given.doubt, horizon=None),
    "LinTS (released)": lambda given: widened_lin_ts(
        ContextRegression.on_no_rows(given.actions, given.context_dim), given.noise_std, given.planned_rounds
    ),
    "Warm LinTS (released)": lambda given: widened_lin_ts(
        given.log_fits.regression, given.noise_std, given.planned_rounds
    ),
}
"""The policies of the library, the default one without being told the horizon, and those of the released code alone."""
