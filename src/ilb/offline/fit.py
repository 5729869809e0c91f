"""Logs in, LatentModel out: encoder, mean encodings, rewards, noise levels (Algorithm 1, top half)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ilb.errors import FitError, IlbWarning
from ilb.logs import Logs
from ilb.models.latent import LatentModel, NoiseLevels, Provenance
from ilb.offline.choice import choose_latent_dim
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encodings import Scatter, encode_contexts, instance_means, measure_scatter
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.recipe import RewardFit, RewardRecipe, RewardRows, RewardTask, reward_cells
from ilb.offline.training import Keys, describe_recipe, fit_keys
from ilb.streams import Stream
from ilb.types import Encoder, Report, silent
from ilb.version import __version__


def fit(
    logs: Logs,
    *,
    latent_dim: int | None = None,
    recipe: EncoderRecipe | None = None,
    reward: RewardRecipe | None = None,
    seed: int = 0,
    report: Report = silent,
) -> LatentModel:
    """Learn a `LatentModel` from logs.

    `latent_dim` is n; None chooses it by held-out contrastive likelihood. `recipe` is how the encoder is learned
    (default `TiedRecipe()`; the paper's is `PaperRecipe()`), `reward` how rewards follow from encodings (default
    `LinearRewardRecipe()`; `MLPRewardRecipe()` is a network, on which of the paper's policies CPG alone runs). The same
    logs, recipes and seed give the same model.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> world = draw_world(jr.key(0), latent_dim=2, actions=3)
    >>> logs = record(jr.key(1), world, UniformLogging(3), instances=40, length=50).logs
    >>> model = fit(logs, latent_dim=2)
    >>> model
    LatentModel(n=2, K=3, fitted on 2000 rows)
    """
    return fit_many([logs], latent_dim=latent_dim, recipe=recipe, reward=reward, seeds=[seed], report=report)[0]


def fit_many(
    logs: Sequence[Logs],
    *,
    latent_dim: int | None = None,
    recipe: EncoderRecipe | None = None,
    reward: RewardRecipe | None = None,
    seeds: Sequence[int],
    report: Report = silent,
) -> list[LatentModel]:
    """Learn many models at once, one for each table and seed; encoders of the same dimension train in one program.

    Without `latent_dim` every table chooses its own.
    """
    recipe = TiedRecipe() if recipe is None else recipe
    reward = LinearRewardRecipe() if reward is None else reward
    for table in logs:
        _check(table, latent_dim)
    runs = [_Run.plan(table, seed, latent_dim, report) for table, seed in zip(logs, seeds, strict=True)]
    models: dict[int, LatentModel] = {}
    for dim in dict.fromkeys(run.latent_dim for run in runs):
        alike = [number for number, run in enumerate(runs) if run.latent_dim == dim]
        models.update(zip(alike, _fit_alike([runs[number] for number in alike], recipe, reward, report), strict=True))
    return [models[number] for number in range(len(runs))]


class _Run(NamedTuple):
    """A model to learn, and what is to be noted of how its dimension was found."""

    logs: Logs
    seed: int
    latent_dim: int
    notes: tuple[str, ...] = ()

    @classmethod
    def plan(cls, logs: Logs, seed: int, latent_dim: int | None, report: Report) -> _Run:
        if latent_dim is not None:
            return cls(logs, seed, latent_dim)
        choice = choose_latent_dim(logs, seed=seed, report=report)
        return cls(logs, seed, choice.chosen, (choice.sentence(),))


def _fit_alike(runs: Sequence[_Run], recipe: EncoderRecipe, reward: RewardRecipe, report: Report) -> list[LatentModel]:
    """Learn models of one latent dimension together."""
    logs, latent_dim = [run.logs for run in runs], runs[0].latent_dim
    keys = fit_keys([run.seed for run in runs])
    trained = recipe.train(keys, logs, latent_dim, report)
    inflations = [result.inflation for result in trained]
    measured = _measure([result.encoder for result in trained], logs, reward, keys, report, inflations)
    described = {**describe_recipe(recipe), "latent_dim": latent_dim, "reward": describe_recipe(reward)}
    models = []
    for run, result, (fitted, noise) in zip(runs, trained, measured, strict=True):
        notes = [*run.notes]
        if result.interrupted:
            notes.append(f"training was interrupted; the parameters are those of step {result.best_step}")
            warnings.warn(notes[-1], IlbWarning, stacklevel=4)
        provenance = Provenance(
            version=__version__,
            seed=run.seed,
            recipe=described,
            rows=run.logs.rows,
            instances=run.logs.instances,
            curve=result.curve.plain(),
            notes=(*notes, *fitted.notes),
            interrupted=result.interrupted or fitted.interrupted,
            inflation=result.inflation,
        )
        models.append(LatentModel(result.encoder, fitted.reward, noise, run.logs.schema, provenance, fitted.moment))
    return models


def refit_rewards(
    models: Sequence[LatentModel],
    logs: Sequence[Logs],
    *,
    reward: RewardRecipe | None = None,
    seeds: Sequence[int],
    report: Report = silent,
) -> list[LatentModel]:
    """Keep the encoders, and learn the rewards anew: from another outcome, or other actions, of the same contexts.

    An encoder never sees a reward, so the models are those that `fit_many` gives with these logs, for a fraction of the
    time.
    """
    reward = LinearRewardRecipe() if reward is None else reward
    inflations = [() if model.provenance is None else model.provenance.inflation for model in models]
    measured = _measure([model.encoder for model in models], logs, reward, fit_keys(seeds), report, inflations)
    again = []
    for model, (fitted, noise), table in zip(models, measured, logs, strict=True):
        provenance = model.provenance
        if provenance is not None:
            described = {**provenance.recipe, "reward": describe_recipe(reward)}
            notes, interrupted = (*provenance.notes, *fitted.notes), provenance.interrupted or fitted.interrupted
            provenance = replace(provenance, recipe=described, notes=notes, interrupted=interrupted)
        again.append(LatentModel(model.encoder, fitted.reward, noise, table.schema, provenance, fitted.moment))
    return again


def complete_model(
    encoder: Encoder,
    logs: Logs,
    provenance: Provenance | None = None,
    *,
    reward: RewardRecipe | None = None,
    seed: int = 0,
) -> LatentModel:
    """Add to an encoder what the logs say of rewards and noise (Alg. 1, offline line 2).

    `seed` is for reward recipes that draw; least squares, the default, does not.
    """
    reward = LinearRewardRecipe() if reward is None else reward
    [(fitted, noise)] = _measure([encoder], [logs], reward, fit_keys([seed]), silent)
    return LatentModel(encoder, fitted.reward, noise, logs.schema, provenance, fitted.moment)


def _measure(
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
    mean, covariance = fitted.population or scatter[1:]
    numbers = (scatter.encoding_covariance, mean, covariance, fitted.reward_variance, fitted.leftover_variance)
    return NoiseLevels(*(jnp.asarray(number, jnp.float32) for number in numbers))


def _check(logs: Logs, latent_dim: int | None) -> None:
    if latent_dim is not None and not 1 <= latent_dim <= logs.width:
        raise FitError(
            f"latent_dim must be between 1 and the number of context columns (assumption A2: n <= d); "
            f"got latent_dim={latent_dim} with {logs.width} columns."
        )
    logs.require_any_reward()
    needed = 2 if latent_dim is None else latent_dim + 1
    if logs.instances < needed:
        raise FitError(
            f"{logs.instances} instances can't show {needed - 1} latent dimensions (assumption A3: the latent states "
            f"must span them). Lower latent_dim below {logs.instances} or add instances."
        )
