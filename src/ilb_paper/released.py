r"""The VAE as the authors' released code trains it: a noisy autoencoder with a sigmoid at its end.

Its divergence term is clamped to zero, so nothing keeps $q(z \mid x)$ near the prior, and its decoder ends in a
sigmoid, which can't reach the negative half of whitened contexts. It is kept under its own name to explain the VAE rows
of Table table:fit_results; `VAERecipe` is the method that the paper names.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ilb.offline.encoders.vae import VAERecipe


@dataclass(frozen=True)
class SigmoidSquares:
    """Squared distance to the sigmoid of what was decoded."""

    def __call__(self, context: Float[Array, " d"], decoded: Float[Array, " d"]) -> Float[Array, ""]:
        """Sum over columns."""
        return jnp.sum((context - jax.nn.sigmoid(decoded)) ** 2)


def released_vae_recipe(layers: int = 2) -> VAERecipe:
    """Give the released variant: no divergence, a sigmoid output, and n ReLUs next to the latent state."""
    return VAERecipe(layers=layers, neck=1, beta=0.0, likelihood=SigmoidSquares())
