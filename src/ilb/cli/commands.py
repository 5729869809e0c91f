"""What the commands do, with progress and results on the console."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from ilb.cli.console import ahead_rows, busy, choice_table, layout, notes, progress_bar, results, say, score_rows, tell
from ilb.cli.stopping import stop_if_asked
from ilb.environments import AbstractEnvironment, Recording, Specification
from ilb.errors import IlbError, LogsError, WorldError
from ilb.estimates import Estimate
from ilb.files import put_in_place
from ilb.logs import Logs, Schema
from ilb.logs.messages import counted, near
from ilb.logs.tables import fill_table, require_writable_suffix
from ilb.models.latent import LatentModel
from ilb.networks import Affine, ComposedEncoder
from ilb.offline.ahead import AheadScores, lead, predict_ahead, score_ahead
from ilb.offline.encoders import ENCODER_RECIPES, UNTRAINED_RECIPES
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.fit import choose_model, fit_candidate
from ilb.offline.rewards import REWARD_RECIPES
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.offline.scores import FitScores, Truth, reference_models, score_model
from ilb.offline.search import plain_models
from ilb.seeds import as_seed
from ilb.types import Encoder

THIS_MODEL = "this model"

AUTO = "auto"
"""What an option is called that leaves the choice to the comparison of held-out people."""

LEAST_TEST_PEOPLE = 10
"""With fewer test people nothing is said of a model but that it can't be told."""

RECIPES: dict[str, Callable[[], EncoderRecipe]] = {**UNTRAINED_RECIPES, **ENCODER_RECIPES}

Recipe = TypeVar("Recipe")


def write_simulation(specification: Specification, out: Path) -> None:
    """Record a world and write training table, test table and the world itself."""
    world_file, test_file = out.with_suffix(".world.json"), out.with_name(f"{out.stem}.test{out.suffix}")
    require_writable_suffix(out)
    recorded = specification.record()
    parts = [(out, recorded.training), (test_file, recorded.held_out)]
    tables = {file: recording for file, recording in parts if recording is not None}
    with put_in_place(*tables, world_file) as (*drafts, world_draft):  # all three, or none
        for draft, recording in zip(drafts, tables.values(), strict=True):
            fill_table(recording.to_frame(), draft, out.suffix)
        specification.save(world_draft)
    for file, recording in tables.items():
        say(f"wrote {file}: {recording.logs.describe().sentence()}")
    say(f"wrote {world_file}: the world they come from, for `ilb score --world`")


def list_recipes() -> None:
    """Print every encoder and reward recipe by name, with what it says of itself."""
    for option, recipes in (("--recipe", RECIPES), ("--reward-model", REWARD_RECIPES)):
        say(f"{option} {AUTO}, or")
        for name, recipe in recipes.items():
            say(f"  {name:14} {(recipe.__doc__ or '').splitlines()[0]}")


def fit_table(
    path: Path,
    columns: Mapping[str, Any],
    out: Path,
    *,
    latent_dim: int | None = None,
    recipe: str = AUTO,
    reward: str = AUTO,
    test_share: float,
    seed: int,
    kept: Path | None = None,
) -> LatentModel:
    """Read a table, choose a model, score it on held-out instances, fit it on everyone, save it.

    A training that is interrupted ends the command; what it had reached is saved in `kept`, if that is given.
    """
    seed = as_seed(seed)
    encoding, rewards = named_recipes(recipe, reward, latent_dim)
    with busy(f"Reading {path}"):
        logs = Logs.from_frame(path, **columns)
    say(f"read {path}: {logs.describe().sentence()}")
    training, test = (logs, None) if test_share == 0 else logs.split_instances((1 - test_share, test_share), seed=seed)
    with progress_bar("Comparing models", notes, "log-likelihood") as report:
        choice = choose_model(
            training, latent_dim=latent_dim, recipe=encoding, reward=rewards, seed=seed, report=report
        )
    if choice.trials:
        results.print(layout(f"next rewards of {choice.people} held-out instances", *choice_table(choice.rows())))
    scores: dict[str, Any] = {}
    if test is not None and np.any(test.rewarded):
        with progress_bar("Fitting the chosen one", notes) as report:
            model = fit_candidate(training, choice, seed=seed, report=report)
        _require_whole(model, kept)
        scores = _score_ahead_of(model, training, test)
    with progress_bar("Fitting it on everyone", notes) as report:
        model = fit_candidate(logs, choice, seed=seed, report=report)
    _require_whole(model, kept)
    assert model.provenance is not None
    for note in model.provenance.notes:
        say(note)
    model = replace(model, provenance=replace(model.provenance, scores=scores))
    stop_if_asked()
    model.save(out)
    both = f"{shlex.quote(str(out))} {shlex.quote(str(path))}"
    say(f"saved in {out}. May it be trusted? ilb check {both}. All on one page: ilb report {both} --out report.html")
    return model


def _require_whole(model: LatentModel, kept: Path | None) -> None:
    """Stop if the training was interrupted: a model that is half trained must not replace a whole one."""
    if model.provenance is None or not model.provenance.interrupted:
        return
    if kept is not None:
        model.save(kept)
        say(f"saved what training had reached in {kept}: {model.provenance.notes[-1]}")
    raise KeyboardInterrupt


def named_recipes(recipe: str, reward: str, latent_dim: int | None) -> tuple[EncoderRecipe | None, RewardRecipe | None]:
    """Give what the options name, None where the choice is left to the comparison; to be asked before the work."""
    encoding = named_recipe(recipe, RECIPES, "--recipe")
    if latent_dim is not None and latent_dim < 1:
        raise IlbError(
            f"--latent-dim must be at least 1; got {latent_dim}. Leave it out to have it chosen; --recipe none does "
            "without an encoding."
        )
    if latent_dim is not None and recipe in UNTRAINED_RECIPES:
        raise IlbError(
            f"--latent-dim is the dimension of an encoding that is trained, and --recipe {recipe} trains none; got "
            f"--latent-dim {latent_dim}. Leave it out, or name another recipe: {', '.join(ENCODER_RECIPES)}."
        )
    return encoding, named_recipe(reward, REWARD_RECIPES, "--reward-model")


def named_recipe(name: str, known: Mapping[str, Callable[[], Recipe]], option: str) -> Recipe | None:
    """Give the recipe of this name; None where the choice is left to the comparison."""
    if name == AUTO:
        return None
    if name not in known:
        raise IlbError(f"{option} must be {AUTO} or one of {', '.join(known)}; got {name!r}.{near(name, known)}")
    return known[name]()


def _score_ahead_of(model: LatentModel, training: Logs, test: Logs) -> dict[str, Any]:
    """Print how well the next rewards of test people are predicted, beside what anybody could do; say it in words."""
    lines = {THIS_MODEL: predict_ahead(model, test)}
    lines.update({name: predict_ahead(plain, test) for name, plain in plain_models(training).items()})
    scores = {name: score_ahead(line) for name, line in lines.items()}
    ours = lines.pop(THIS_MODEL)
    leads = {name: lead(ours, line) for name, line in lines.items()}
    people = counted(test.instances, "test instance")
    results.print(layout(f"one step ahead, {people}", ["", *scores], ahead_rows(scores, leads)))
    paper = score_model(model, test)
    if model.encoded_dim:
        say(f"R² from whole histories of contexts, no rewards (the paper's score): {paper.reward_r2.text()}")
    say(_verdict(leads, scores))
    return {
        "one step ahead": {name: _plain_score(line) for name, line in scores.items()},
        "whole histories": _plain_score(paper),
    }


def _verdict(leads: Mapping[str, Estimate], scores: Mapping[str, AheadScores]) -> str:
    """Say whether the model beats what anybody could do; what the table can't tell is not claimed."""
    rival = max(leads, key=lambda name: scores[name].log_likelihood.value)
    ahead = leads[rival]
    people = counted(ahead.count, "test instance")
    if ahead.value == 0 and not ahead.standard_error > 0:
        return f"The model is the plain reference {rival} itself: nothing else that was tried is worth its complexity."
    figures = f"log-likelihood {ahead.value:+.3f} ± {ahead.standard_error:.3f} a reward".replace(" ± nan", "")
    if ahead.count < LEAST_TEST_PEOPLE or not np.isfinite(ahead.standard_error):
        return f"Whether the model predicts better than {rival} can't be told from {people} ({figures})."
    if ahead.value > 2 * ahead.standard_error:
        return f"The model predicts the next reward of people it has not seen better than {rival} does ({figures})."
    if ahead.value < -2 * ahead.standard_error:
        return f"The model predicts WORSE than {rival} ({figures}). Use that, or add people or columns."
    return f"The model can't be told from {rival} on {people} ({figures})."


def score_table(
    model_path: Path, logs_path: Path, *, train: Path | None, world: Path | None, as_json: bool
) -> dict[str, FitScores]:
    """Score a saved model on a table, with as many references and truths as the files given allow."""
    model = LatentModel.load(model_path)
    if model.schema is None:
        raise IlbError(f"{model_path} has no schema, so it does not say which columns of a table to read.")
    test = Logs.from_frame(logs_path, schema=model.schema)
    training = None if train is None else Logs.from_frame(train, schema=model.schema)
    truth = known = oracle = None
    if world is not None:
        recorded = Specification.load(world).record()
        truth = _truth(recorded.held_out, test, logs_path, world)
        oracle = _oracle(recorded.world, model.schema, recorded.training.logs.width)
        if training is not None:
            known = (training, _truth(recorded.training, training, train, world))
    models, people = {THIS_MODEL: model}, counted(test.instances, "instance")
    if not as_json:
        ahead = {THIS_MODEL: score_ahead(predict_ahead(model, test))}
        results.print(layout(f"one step ahead, {people}", ["", *ahead], ahead_rows(ahead, {})))
    if training is not None:
        models.update(reference_models(training, oracle))
    lines = {name: score_model(one, test, truth, known) for name, one in models.items()}
    if as_json:
        results.print_json(json.dumps(_plain_scores(lines)))
    else:
        _print_scores(f"whole histories, {people}", lines)
    return lines


def _print_scores(title: str, lines: Mapping[str, FitScores]) -> None:
    results.print(layout(title, ["", *lines], score_rows(lines)))


def _plain_scores(lines: Mapping[str, FitScores]) -> dict[str, dict[str, Any]]:
    """The scores of each model in JSON types, unknown numbers as null."""
    return {model: _plain_score(line) for model, line in lines.items()}


def _plain_score(line: FitScores | AheadScores) -> dict[str, Any]:
    return {
        name: {part: _rounded(getattr(score, part)) for part in ("value", "standard_error")}
        for name, score in line._asdict().items()
        if score is not None
    }


def _rounded(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def _oracle(world: AbstractEnvironment, schema: Schema, width: int) -> Encoder | None:
    """The true encoder, for contexts as the schema scales them."""
    try:
        encoder = world.oracle().encoder
    except WorldError as error:
        tell(f"No line for the oracle: {error}")
        return None
    if len(schema.context) != width:
        raise IlbError(
            f"the model reads {len(schema.context)} columns, the world emits {width}: the oracle needs them all."
        )
    mean, std = (jnp.asarray(numbers) for numbers in schema.numeric_scaling())
    return ComposedEncoder(Affine(jnp.diag(std), mean), encoder)


def _truth(recording: Recording | None, logs: Logs, path: Path | None, world: Path) -> Truth:
    """Look the instances of a table up in the recording they come from."""
    known = 0 if recording is None else recording.logs.instances
    strangers = [label for label in logs.instance_labels if label not in range(known)]
    if recording is None or strangers:
        raise LogsError(
            f"{path} and {world} do not belong together: the world recorded {known} such instances, numbered from 0, "
            f"and the table has {len(strangers)} others, such as {strangers[0]!r}."
        )
    order = np.array(logs.instance_labels, dtype=int)
    here, there = (_reward_sums(table) for table in (logs, recording.logs))
    if not np.allclose(here, there[order], rtol=1e-3, atol=1e-2):
        raise LogsError(
            f"{path} and {world} do not belong together: the rewards of the same instances differ. "
            "Give the table of training instances as --train and that of test instances as LOGS."
        )
    return Truth(recording.latents[order], recording.mean_rewards[order])


def _reward_sums(logs: Logs) -> np.ndarray:
    return np.bincount(logs.instance, weights=np.nan_to_num(logs.reward), minlength=logs.instances)
