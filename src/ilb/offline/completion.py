"""From an encoder to a model: mean encodings, rewards, noise levels (Alg. 1, offline line 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from ilb.logs import Logs
from ilb.models.latent import LatentModel, NoiseLevels, Provenance
from ilb.networks import Affine, ComposedEncoder
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.encodings import Scatter, encode_contexts, instance_means, measure_scatter
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.recipe import RewardFit, RewardRecipe, RewardRows, RewardTask, reward_cells
from ilb.offline.training import Keys, fit_keys
from ilb.streams import Stream
from ilb.types import Encoder, Report, as_float32, silent


def complete_model(
    encoder: Encoder,
    logs: Logs,
    provenance: Provenance | None = None,
    *,
    reward: RewardRecipe | None = None,
    seed: int = 0,
    inflation: tuple[float, ...] = (),
) -> LatentModel:
    """Add to an encoder what the logs say of rewards and noise (Alg. 1, offline line 2).

    `seed` is for reward recipes that draw; least squares, the default, does not. `inflation` is how many times wider
    each coordinate varies within people that the encoder was not trained on.
    """
    reward = LinearRewardRecipe() if reward is None else reward
    [(fitted, noise)] = measure([encoder], [logs], reward, fit_keys([seed]), silent, [inflation])
    return LatentModel(encoder, fitted.reward, noise, logs.schema, provenance, fitted.moment)


def measure(
    encoders: Sequence[Encoder],
    logs: Sequence[Logs],
    reward: RewardRecipe,
    keys: Keys,
    report: Report,
    inflations: Sequence[tuple[float, ...]] | None = None,
) -> list[tuple[RewardFit, NoiseLevels]]:
    """Encode the logs of every run, fit the rewards of all runs together, and take down the noise levels."""
    scatters, tasks = [], []
    inflations = [()] * len(logs) if inflations is None else inflations
    for encoder, table, inflation in zip(encoders, logs, inflations, strict=True):
        encodings = encode_contexts(encoder, table.context).astype(np.float64)
        scatter = measure_scatter(encodings, table.starts, inflation or 1.0)
        means = instance_means(encodings, table.starts)
        scatters.append(scatter)
        tasks.append(
            RewardTask(
                means,
                reward_cells(table),
                table.schema.actions,
                scatter.encoding_covariance,
                table.lengths,
                RewardRows.of(table),
            )
        )
    fits = reward.train(jax.vmap(Stream.REWARDS.of)(keys), tasks, report)
    return [(fitted, _noise_levels(fitted, scatter)) for fitted, scatter in zip(fits, scatters, strict=True)]


def _noise_levels(fitted: RewardFit, scatter: Scatter) -> NoiseLevels:
    mean, covariance = fitted.population or (scatter.population_mean, scatter.population_covariance)
    numbers = (scatter.encoding_covariance, mean, covariance, fitted.reward_variance, fitted.leftover_variance)
    return replace(NoiseLevels(*map(as_float32, numbers)), moving_covariance=as_float32(scatter.moving_covariance))


def train_encoders(
    recipe: EncoderRecipe, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent
) -> list[TrainedEncoder]:
    """Train encoders that do not read the time, where that is among the contexts: it tells when, not who."""
    clocked = logs[0].schema.clocked
    tables = [table.without(str(table.schema.time)) for table in logs] if clocked else list(logs)
    trained = recipe.train(keys, tables, latent_dim, report)
    if not clocked:
        return trained
    return [result._replace(encoder=without_clock(result.encoder, logs[0].width)) for result in trained]


def without_clock(encoder: Encoder, width: int) -> Encoder:
    """Let an encoder that never saw the time read contexts whose last column it is."""
    return ComposedEncoder(Affine(as_float32(np.eye(width)[:, :-1]), as_float32(np.zeros(width - 1))), encoder)
