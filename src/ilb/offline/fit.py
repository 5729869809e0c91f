"""Logs in, LatentModel out: encoder, mean encodings, rewards, noise levels (Algorithm 1, top half)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ilb.errors import FitError, IlbWarning, LogsWarning
from ilb.logs import Logs, require_logs
from ilb.models.drift import Drift
from ilb.models.latent import LatentModel, Provenance
from ilb.models.recurrent import RecurrentRegression
from ilb.offline.choice import Candidate, ModelChoice
from ilb.offline.completion import complete_model, measure, train_encoders
from ilb.offline.dimension import choose_latent_dim
from ilb.offline.encoders import word_for
from ilb.offline.encoders.plain import NoEncoding
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.progress import first_part, last_part
from ilb.offline.recipes import Recipes
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.offline.search import Search
from ilb.offline.training import describe_recipe, fit_keys
from ilb.types import Report, silent
from ilb.version import __version__

__all__ = ["choose_model", "complete_model", "fit", "fit_again", "fit_candidate", "fit_many", "refit_rewards"]

LEAST_PEOPLE = 6
"""With fewer people who have rewards, holding some out tells nothing, and nothing is compared."""


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

    What is not given is chosen by how well the rewards of held-out people are predicted, one step ahead from their own
    past (`ilb.offline.search`): `recipe`, how contexts are encoded (the paper's way is `PaperRecipe()`);
    `latent_dim`, the number n of coordinates of the encoding; `reward`, how rewards follow (`PersonRewardRecipe()`;
    `LinearRewardRecipe()` is the paper's; `MLPRewardRecipe()` is a network, on which of the paper's policies CPG alone
    runs). What was compared is kept in `model.provenance.choice`, and what came of it is said in
    `model.provenance.notes`. The same logs, recipes and seed give the same model on one kind of processor, with one
    number of threads: sums are split among them, and training carries their last digits on. `ilb fit` uses one thread;
    in Python, set the environment variable `NPROC=1` before JAX starts for a model that does not depend on it.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> from ilb.offline.encoders import TiedRecipe
    >>> from ilb.offline.rewards import LinearRewardRecipe
    >>> world = draw_world(jr.key(0), latent_dim=2, actions=3)
    >>> logs = record(jr.key(1), world, UniformLogging(3), instances=40, length=50).logs
    >>> fit(logs, latent_dim=2, recipe=TiedRecipe(), reward=LinearRewardRecipe())
    LatentModel(n=2, K=3, fitted on 2000 rows)
    """
    if latent_dim is not None and recipe is not None and reward is not None:
        return fit_many([logs], latent_dim=latent_dim, recipe=recipe, reward=reward, seeds=[seed], report=report)[0]
    choice = choose_model(
        logs, latent_dim=latent_dim, recipe=recipe, reward=reward, seed=seed, report=first_part(report)
    )
    return fit_candidate(logs, choice, seed=seed, report=last_part(report))


def choose_model(
    logs: Logs,
    *,
    latent_dim: int | None = None,
    recipe: EncoderRecipe | None = None,
    reward: RewardRecipe | None = None,
    seed: int = 0,
    report: Report = silent,
) -> ModelChoice:
    """Compare what `fit` would compare, and say what it would take; with too few people, say that without comparing."""
    _check(logs, latent_dim)
    if logs.width == logs.schema.clocked and recipe is not None and recipe.needs_columns:
        raise FitError(
            f"the logs have no context column, so the recipe {word_for(recipe)!r} has nothing to encode. Leave it "
            "out, or give recipe=NoEncoding(), --recipe none."
        )
    people = len(np.unique(logs.instance[logs.rewarded]))
    if people < LEAST_PEOPLE:
        return ModelChoice(_untried(logs, latent_dim, recipe, reward))
    return Search(logs, recipe=recipe, reward=reward, latent_dim=latent_dim, seed=seed, report=report).run()


def fit_candidate(logs: Logs, choice: ModelChoice, *, seed: int = 0, report: Report = silent) -> LatentModel:
    """Fit what was chosen on all of the logs; the notes say how it was chosen."""
    candidate = choice.candidate
    table = logs.with_clock() if candidate.clocked else logs
    run = _Run(table, seed, candidate.latent_dim, (choice.sentence(),), candidate.inflation)
    encoder = candidate.encoder.without_cross_fit() if candidate.inflation else candidate.encoder
    [model] = _fit_alike([run], encoder, candidate.reward, report)
    quantiles = jnp.asarray(choice.residual_quantiles(), jnp.float32)
    misfits = jnp.asarray(choice.misfits, jnp.float32)
    noise = replace(model.noise, reward_quantiles=quantiles, misfits=misfits)
    assert model.provenance is not None
    model = replace(model, noise=noise, provenance=replace(model.provenance, choice=tuple(choice.rows())))
    return candidate.drift.apply(model)


def fit_again(
    model: LatentModel, logs: Sequence[Logs], *, seed: int = 0, latent_dim: int | None = None, report: Report = silent
) -> list[LatentModel]:
    """Fit other people the way this model was fitted, with nothing chosen anew: one model for each table.

    That is what tells how good the way is on people whom a fit has not seen. Memory and misfits are the model's: a few
    numbers that were found on people held out. Rewards stop a little earlier, as where candidates are compared.
    `latent_dim` is another number of coordinates than the model's.
    """
    recipes, provenance = Recipes.of(model), model.provenance
    assert provenance is not None
    tables = [model.read(table) for table in logs]
    inflation = provenance.inflation if latent_dim is None else ()
    encoder = recipes.encoder
    if inflation or latent_dim is not None:
        encoder = encoder.without_cross_fit(
            room=(max(table.rows for table in tables), max(table.instances for table in tables))
        )
    dim = recipes.latent_dim if latent_dim is None else latent_dim
    runs = [_Run(table, seed, dim, (), inflation) for table in tables]
    models = _fit_alike(runs, encoder, recipes.reward.hastened(), report)
    require_whole(*models)
    return [_as_forgetful_and_doubtful(fitted, model) for fitted in models]


def _as_forgetful_and_doubtful(fitted: LatentModel, model: LatentModel) -> LatentModel:
    """Take over what the comparison found of people who change, and of those for whom the model is wrong."""
    fitted = Drift.of(model).apply(fitted)
    return replace(fitted, noise=replace(fitted.noise, misfits=model.noise.misfits))


def require_whole(*models: LatentModel | RecurrentRegression) -> None:
    """Raise `KeyboardInterrupt` if a training was interrupted: nothing is to be concluded from a half-trained model."""
    if any(model.provenance is not None and model.provenance.interrupted for model in models):
        raise KeyboardInterrupt


def _untried(
    logs: Logs, latent_dim: int | None, recipe: EncoderRecipe | None, reward: RewardRecipe | None
) -> Candidate:
    """Say what to fit where nothing can be compared: an own level for each person, unless more was asked for."""
    reward = PersonRewardRecipe(1, same_level=True) if reward is None else reward
    if recipe is None and latent_dim is None:
        return Candidate("own level", NoEncoding(), 0, reward)
    recipe = TiedRecipe() if recipe is None else recipe
    return Candidate(word_for(recipe), recipe, latent_dim or min(2, logs.width), reward)


def fit_many(
    logs: Sequence[Logs],
    *,
    latent_dim: int | None = None,
    recipe: EncoderRecipe | None = None,
    reward: RewardRecipe | None = None,
    seeds: Sequence[int],
    report: Report = silent,
) -> list[LatentModel]:
    """Learn many models of one kind at once, one for each table and seed; encoders train in one program.

    Nothing is compared here: the default is the encoder of `TiedRecipe()` with the paper's linear rewards. Without
    `latent_dim` every table chooses its own, by how well contexts tell held-out instances apart.
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
    """A model to learn, what is to be noted of how it was chosen, and its inflation if that is known."""

    logs: Logs
    seed: int
    latent_dim: int
    notes: tuple[str, ...] = ()
    inflation: tuple[float, ...] = ()

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
    trained = train_encoders(recipe, keys, logs, latent_dim, report)
    inflations = [run.inflation or result.inflation for run, result in zip(runs, trained, strict=True)]
    measured = measure([result.encoder for result in trained], logs, reward, keys, report, inflations)
    described = {**describe_recipe(recipe), "latent_dim": latent_dim, "reward": describe_recipe(reward)}
    models = []
    for run, result, inflation, (fitted, noise) in zip(runs, trained, inflations, measured, strict=True):
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
            inflation=inflation,
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
    measured = measure([model.encoder for model in models], logs, reward, fit_keys(seeds), report, inflations)
    again = []
    for model, (fitted, noise), table in zip(models, measured, logs, strict=True):
        provenance = model.provenance
        if provenance is not None:
            described = {**provenance.recipe, "reward": describe_recipe(reward)}
            notes, interrupted = (*provenance.notes, *fitted.notes), provenance.interrupted or fitted.interrupted
            provenance = replace(provenance, recipe=described, notes=notes, interrupted=interrupted)
        again.append(LatentModel(model.encoder, fitted.reward, noise, table.schema, provenance, fitted.moment))
    return again


def _check(logs: Logs, latent_dim: int | None) -> None:
    require_logs(logs, "a fit")
    if latent_dim is not None and not 1 <= latent_dim <= logs.width:
        raise FitError(
            f"latent_dim must be between 1 and the number of context columns (assumption A2: n <= d); "
            f"got latent_dim={latent_dim} with {logs.width} columns."
        )
    logs.require_any_reward()
    _require_differences(logs)
    if logs.instances < 2:
        raise FitError("the logs have a single instance, and how people differ can't be learned from one. Add others.")
    if latent_dim is not None and logs.instances < latent_dim + 1:
        raise FitError(
            f"{logs.instances} instances can't show {latent_dim} latent dimensions (assumption A3: the latent states "
            f"must span them). Lower latent_dim below {logs.instances} or add instances."
        )


def _require_differences(logs: Logs) -> None:
    """Refuse a single reward, and tell of rewards that are all the same: nothing says how much others may differ."""
    rewards = logs.reward[logs.rewarded]
    if len(rewards) < 2:
        raise FitError(
            f"the logs have a single reward (column {logs.schema.reward!r}) with an action, so nothing tells how much "
            "rewards vary, and any certainty would come from nowhere. Add rows with rewards."
        )
    if np.ptp(rewards) == 0:
        warnings.warn(
            f"all {len(rewards):,} rewards (column {logs.schema.reward!r}) are {rewards[0]:g}: no action can be told "
            "from another, and what decisions say of their certainty means nothing. Check the name of the column.",
            LogsWarning,
            stacklevel=4,
        )
