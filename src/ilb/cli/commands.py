"""What the commands do, with progress and results on the console."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ilb.cli.console import layout, notes, progress_bar, results, say, score_rows
from ilb.environments import AbstractEnvironment, Recording, Specification
from ilb.errors import IlbError, LogsError, WorldError
from ilb.logs import Logs, Schema
from ilb.logs.messages import counted
from ilb.logs.tables import require_writable_suffix, write_table
from ilb.models.latent import LatentModel
from ilb.networks import Affine, ComposedEncoder
from ilb.offline.encoders import ENCODER_RECIPES
from ilb.offline.fit import fit
from ilb.offline.scores import FitScores, Truth, reference_models, score_model
from ilb.types import Encoder

THIS_MODEL = "this model"


def write_simulation(specification: Specification, out: Path) -> None:
    """Record a world and write training table, test table and the world itself."""
    world_file, test_file = out.with_suffix(".world.json"), out.with_name(f"{out.stem}.test{out.suffix}")
    require_writable_suffix(out)
    recorded = specification.record()
    for file, recording in ((out, recorded.training), (test_file, recorded.held_out)):
        if recording is not None:
            write_table(recording.to_frame(), file)
            say(f"wrote {file}: {recording.logs.describe().sentence()}")
    specification.save(world_file)
    say(f"wrote {world_file}: the world they come from, for `ilb score --world`")


def list_recipes() -> None:
    """Print every encoder recipe by name, with what it says of itself."""
    for name, recipe in ENCODER_RECIPES.items():
        say(f"{name:14} {(recipe.__doc__ or '').splitlines()[0]}")


def fit_table(
    path: Path,
    columns: Mapping[str, Any],
    out: Path,
    *,
    latent_dim: int | None,
    recipe: str,
    test_share: float,
    seed: int,
) -> LatentModel:
    """Read a table, learn a model from it, score it on held-out instances, save it."""
    if recipe not in ENCODER_RECIPES:
        raise IlbError(f"--recipe must be one of {', '.join(ENCODER_RECIPES)}; got {recipe!r}.")
    logs = Logs.from_frame(path, **columns)
    say(f"read {path}: {logs.describe().sentence()}")
    training, test = (logs, None) if test_share == 0 else logs.split_instances((1 - test_share, test_share), seed=seed)
    with progress_bar("Learning the encoder", notes) as report:
        model = fit(training, latent_dim=latent_dim, recipe=ENCODER_RECIPES[recipe](), seed=seed, report=report)
    assert model.provenance is not None
    for note in model.provenance.notes:
        say(note)
    if test is not None:
        models = {THIS_MODEL: model, **reference_models(training)}
        lines = {name: score_model(one, test) for name, one in models.items()}
        _print_scores(counted(test.instances, "held-out instance"), lines)
        say(_verdict(lines, recipe, bool(columns.get("drop"))))
        model = replace(model, provenance=replace(model.provenance, scores=_plain_scores(lines)))
    model.save(out)
    say(f"saved {model} in {out}")
    return model


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
    models = {THIS_MODEL: model}
    if training is not None:
        models.update(reference_models(training, oracle))
    lines = {name: score_model(one, test, truth, known) for name, one in models.items()}
    if as_json:
        results.print_json(json.dumps(_plain_scores(lines)))
    else:
        _print_scores(f"{counted(test.instances, 'instance')} of {logs_path}", lines)
    return lines


def _print_scores(title: str, lines: Mapping[str, FitScores]) -> None:
    results.print(layout(title, ["", *lines], score_rows(lines)))


def _plain_scores(lines: Mapping[str, FitScores]) -> dict[str, dict[str, Any]]:
    """The scores of each model in JSON types, unknown numbers as null."""
    return {
        model: {
            name: {part: _rounded(getattr(score, part)) for part in ("value", "standard_error")}
            for name, score in line._asdict().items()
            if score is not None
        }
        for model, line in lines.items()
    }


def _rounded(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def _oracle(world: AbstractEnvironment, schema: Schema, width: int) -> Encoder | None:
    """The true encoder, for contexts as the schema scales them."""
    try:
        encoder = world.oracle().encoder
    except WorldError as error:
        notes.print(f"No line for the oracle: {error}", highlight=False, markup=False)
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


def _verdict(lines: Mapping[str, FitScores], recipe: str, dropped: bool) -> str:
    """Say in a sentence whether the latent model was worth it, and what else to try if it was not."""
    ours, plain = lines[THIS_MODEL].reward_r2, lines["mean contexts"].reward_r2
    if ours.value > plain.value:
        return "The model predicts rewards of unseen instances better than least squares on their mean contexts."
    if ours.value > plain.value - plain.standard_error:
        return "The model is no better than least squares on mean contexts, within the error."
    ways = ["a smaller latent dimension (--latent-dim 1)" if recipe == "with-contexts" else "another --latent-dim"]
    if not dropped:
        ways.append("dropping columns that identify the instance (--drop)")
    if recipe != "with-contexts":
        ways.insert(0, "keeping the contexts beside the encoding (--recipe with-contexts)")
    return f"The model is WORSE than least squares on mean contexts. Try {', or '.join(ways)}."


def _reward_sums(logs: Logs) -> np.ndarray:
    return np.bincount(logs.instance, weights=np.nan_to_num(logs.reward), minlength=logs.instances)
