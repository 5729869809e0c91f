r"""VAERecipe: a $\beta$-VAE whose posterior mean is the encoder (app:training, "Training details for VAE").

A variational autoencoder looks at one context at a time and never at whose it is, so nothing tells the noise of a round
from the latent state of an instance: the mean over rounds has to do that afterwards. It is the paper's baseline of an
encoder without identifiability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.logs import Logs
from ilb.networks import Affine, ComposedEncoder, DenseMLP, random_dense_mlp
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.scaling import Scaling, Whitened, apply_scaling
from ilb.offline.training import Adam, Keys, Schedule, hold_out_each, minimise_many, pad_rows, split_each, stack
from ilb.types import Report, silent


class ContextRows(NamedTuple):
    """Scaled contexts, whoever they belong to; rows from `rows` on are padding."""

    inputs: Float[Array | np.ndarray, "rows d"]
    rows: Int[Array | np.ndarray, ""]


class VAEParams(eqx.Module):
    r"""The encoder $x \mapsto (\mu, \log s^2)$ of $q(z \mid x)$ and the decoder $z \mapsto \hat x$."""

    encoder: DenseMLP
    decoder: DenseMLP


@runtime_checkable
class Likelihood(Protocol):
    """A frozen dataclass that tells how surprising a context is, given what was decoded."""

    def __call__(self, context: Float[Array, " d"], decoded: Float[Array, " d"]) -> Float[Array, ""]:
        r"""Give $-\log p(x \mid z)$."""
        ...


@dataclass(frozen=True)
class GaussianLikelihood:
    r"""$x \mid z \sim \mathcal N(\hat x(z), \sigma^2 I)$ with a fixed `std` $\sigma$, in units of the scaled contexts.

    Whitened contexts have variance one in all directions, so with $\sigma = 1$ noise alone explains their covariance
    and a linear decoder does best to leave the latent state unused. A learned $\sigma$ is not safe either:
    when n = d, any split of the unit covariance into signal and noise is equally likely to a linear decoder, and
    where training ended depended on where $\sigma$ started (reward R² of 0.1 from 1, 0.6 from 0.3, 0.7 from 0.1, over
    three worlds with L = 2). A small fixed $\sigma$ makes every coordinate worth its price.
    """

    std: float = 0.1

    def __call__(self, context: Float[Array, " d"], decoded: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(0.5 * ((context - decoded) / self.std) ** 2 + math.log(self.std * math.sqrt(2 * math.pi)))


def divergence_from_prior(mean: Float[Array, " n"], log_variance: Float[Array, " n"]) -> Float[Array, ""]:
    r"""Give $\mathrm{KL}(\mathcal N(\mu, \mathrm{diag}\, s^2) \,\|\, \mathcal N(0, I))$.

    >>> float(divergence_from_prior(jnp.array([2.0, 0.0]), jnp.zeros(2)))
    2.0
    """
    return 0.5 * jnp.sum(mean**2 + jnp.exp(log_variance) - 1 - log_variance)


@dataclass(frozen=True)
class NegativeELBO:
    r"""$E_q[-\log p(x \mid z)] + \beta\, \mathrm{KL}(q(z \mid x) \,\|\, \mathcal N(0, I))$, with one draw of each z."""

    batch: int
    beta: float
    likelihood: Likelihood

    def __call__(self, params: VAEParams, rows: ContextRows, key: PRNGKeyArray) -> Float[Array, ""]:
        key_rows, key_latent = jr.split(key)
        contexts = rows.inputs[jr.randint(key_rows, (self.batch,), 0, rows.rows)]
        mean, log_variance = jnp.split(jax.vmap(params.encoder)(contexts), 2, axis=1)
        z = mean + jnp.exp(0.5 * log_variance) * jr.normal(key_latent, mean.shape)
        surprise = jax.vmap(self.likelihood)(contexts, jax.vmap(params.decoder)(z))
        return jnp.mean(surprise + self.beta * jax.vmap(divergence_from_prior)(mean, log_variance))


@dataclass(frozen=True)
class VAERecipe(EncoderRecipe):
    r"""The paper's VAE baseline as a real $\beta$-VAE (app:training, "Training details for VAE").

    The encoder has `layers` hidden ReLU layers of `width` times the latent dimension, the one next to the latent state
    of `neck` times; `layers=0` is probabilistic PCA. The decoder mirrors it. The released code has `neck=1`: n ReLUs
    must then carry n signed coordinates, and some fits come out much worse (reward R² of 0.49 to 0.75 over five worlds
    with L = 2, against 0.73 to 0.75). `beta` weighs the divergence from the prior; with a likelihood of deviation
    $\sigma$ what counts, but for the decay of weights, is $\beta \sigma^2$.

    Optimiser, epochs and patience are the paper's, the batch is that of the released code. `validation_share` of the
    instances are held out, and training stops after `patience` epochs without a better loss on them. Batches are drawn
    with replacement; an epoch is as many draws as the longest table has rows to train on.
    """

    layers: int = 2
    width: int = 2
    neck: int = 2
    beta: float = 1.0
    likelihood: Likelihood = field(default_factory=GaussianLikelihood)
    scaling: Scaling = field(default_factory=Whitened)
    optimiser: Adam = field(default_factory=lambda: Adam(1e-3, 1e-3))
    batch: int = 32
    epochs: int = 100
    patience: int = 5
    validation_share: float = 0.1

    def shortened(self, effort: float) -> VAERecipe:
        """Train with `effort` times the epochs, for a look in passing."""
        return replace(self, epochs=max(1, round(self.epochs * effort)))

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        scalings = [self.scaling.fit(table.context) for table in logs]
        keys_split, keys_network, keys_step = split_each(keys, 3)
        numbers = [max(1, round(self.validation_share * table.instances)) for table in logs]
        kept, held = hold_out_each(keys_split, logs, numbers)
        # As many rows as there are in all, so that shapes do not depend on who is held out: another seed would
        # otherwise have everything compiled anew.
        most = max(table.rows for table in logs)
        training = stack_contexts(scalings, kept, most)
        validation = None if held is None else stack_contexts(scalings, held, most)
        loss = NegativeELBO(self.batch, self.beta, self.likelihood)
        start = _start(self, keys_network, len(scalings[0].shift), latent_dim)
        result = minimise_many(
            keys_step, loss, start, training, self._training(most), validation=validation, report=report
        )
        return [
            TrainedEncoder.of(ComposedEncoder(scaling, run.params.encoder.first_outputs(latent_dim)), run)
            for scaling, run in zip(scalings, result.runs(), strict=True)
        ]

    def _training(self, rows: int) -> Schedule:
        epoch = math.ceil((1 - self.validation_share) * rows / self.batch)
        return Schedule(self.epochs * epoch, self.optimiser, score_every=epoch, patience=self.patience)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _start(recipe: VAERecipe, keys: Keys, width: int, latent_dim: int) -> VAEParams:
    multiples = [*[recipe.width] * (recipe.layers - 1), recipe.neck][: recipe.layers]
    hidden = [multiple * latent_dim for multiple in multiples]

    def start_one(key: PRNGKeyArray) -> VAEParams:
        key_encoder, key_decoder = jr.split(key)
        return VAEParams(
            random_dense_mlp(key_encoder, width, hidden, 2 * latent_dim),
            random_dense_mlp(key_decoder, latent_dim, hidden[::-1], width),
        )

    return jax.vmap(start_one)(keys)


def stack_contexts(scalings: Sequence[Affine], logs: Sequence[Logs], rows: int) -> ContextRows:
    """Lay out the scaled contexts of many runs, padded to `rows` rows each."""
    return stack(
        [
            ContextRows(pad_rows(apply_scaling(scaling, table), rows), np.asarray(table.rows))
            for scaling, table in zip(scalings, logs, strict=True)
        ]
    )
