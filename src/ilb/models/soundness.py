"""Whether the parts of a model belong together: sizes, finite numbers, variances that are variances.

A file may be whole, with every hash right, and still describe no model. What is asked here is asked when a model is
saved and again when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, get_type_hints

import equinox as eqx
import jax
import numpy as np
from jaxtyping import AbstractArray, Float, jaxtyped

from ilb.errors import ModelFileError
from ilb.logs import Schema
from ilb.logs.messages import brief
from ilb.models.latent import LatentModel, NoiseLevels, Provenance
from ilb.models.recurrent import RecurrentRegression

SLACK = 1e-3
"""The share of its largest entry by which a covariance may miss being symmetric and positive: float32 and sums."""


def require_sound(model: LatentModel | RecurrentRegression) -> None:
    """Raise unless the model can be computed with."""
    flaw = next(_flaws(model), None)
    if flaw is not None:
        raise ModelFileError(f"this is not a sound model: {flaw}. Restore a copy or fit the model again.")


def _flaws(model: LatentModel | RecurrentRegression) -> Iterator[str]:
    for part in fields(model):
        if part.name not in ("schema", "provenance"):
            yield from _flaws_within(getattr(model, part.name), part.name)
    if model.provenance is not None:
        yield from _flaws_of_provenance(model.provenance)
    yield from _FLAWS[type(model)](model)


def _flaws_within(value: Any, name: str) -> Iterator[str]:
    """Find numbers that are not finite, and arrays that are not what the fields of a module say of them."""
    if isinstance(value, jax.Array | np.ndarray):
        if not np.all(np.isfinite(np.asarray(value))):
            yield f"{name} has numbers that are not finite"
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _flaws_within(item, f"{name}.{number}")
    elif isinstance(value, eqx.Module):
        endless = getattr(value, "may_be_infinite", ())
        for part in fields(value):
            inner = getattr(value, part.name)
            if part.name in endless and not np.any(np.isnan(np.asarray(inner))):
                continue
            yield from _flaws_within(inner, f"{name}.{part.name}")
        yield from _misshapen(value, name)


def _misshapen(module: eqx.Module, name: str) -> Iterator[str]:
    """Hold the arrays of a module against their annotations, in which a letter is one size throughout."""
    try:
        hints = get_type_hints(type(module))
    except NameError:  # a class of a user, defined where its names can't be looked up
        return
    with jaxtyped("context"):
        for part in fields(module):
            hint = hints.get(part.name)
            value = getattr(module, part.name)
            if isinstance(hint, type) and issubclass(hint, AbstractArray) and not isinstance(value, hint):
                found = f"{value.dtype} of shape {value.shape}" if hasattr(value, "shape") else type(value).__name__
                yield f"{name}.{part.name} is {found}, which does not go with {hint.dim_str!r}"


def _flaws_of_provenance(provenance: Provenance) -> Iterator[str]:
    for name in ("seed", "rows", "instances"):
        value = getattr(provenance, name)
        if type(value) is not int or (name != "seed" and value < 0):
            yield f"its provenance has {name} {brief(value)}"
    if type(provenance.version) is not str or type(provenance.interrupted) is not bool:
        yield "its provenance has a version or an interruption that is none"
    if not all(type(note) is str for note in provenance.notes):
        yield "its provenance has notes that are not text"
    if not all(type(value) in (int, float) and 0 <= value < np.inf for value in provenance.inflation):
        yield "its provenance has an inflation that is no number"


def _flaws_of_latent_model(model: LatentModel) -> Iterator[str]:
    noise = model.noise
    if np.ndim(noise.encoding_covariance) != 2 or np.ndim(noise.reward_variance) != 1:
        yield "its noise levels have the wrong shape"
        return
    (n, p), actions = (len(noise.encoding_covariance), len(noise.population_mean)), len(noise.reward_variance)
    if p < n:
        yield f"the population has {p} coordinates and the encoding {n}"
    for name in ("encoding_covariance", "population_covariance"):
        if not _is_covariance(getattr(noise, name)):
            yield f"noise.{name} is no covariance"
    if n and not _is_regular(noise.encoding_covariance):
        yield "noise.encoding_covariance is singular: some direction of the encoding would have no noise at all"
    if not (np.all(np.asarray(noise.reward_variance) >= 0) and float(noise.leftover_variance) >= 0):
        yield "a variance of the noise is negative"
    yield from _flaws_of_drift(noise, n)
    misfits = np.asarray(noise.misfits, np.float64)
    if len(misfits) and not (np.all(misfits >= 0) and abs(misfits.sum() - 1) < 1e-3):
        yield "its misfits are no shares of people"
    coefficients = getattr(model.reward, "coefficient_covariance", None)
    if coefficients is not None and not all(map(_is_covariance, coefficients)):
        yield "reward.coefficient_covariance is no covariance"
    yield from _other_size("reward", model.reward, p, actions, "actions of the noise levels")
    if model.schema is None:
        return
    yield from _other_size("encoder", model.encoder, model.schema.width, n, "coordinates of the noise levels")
    if model.moment is not None:
        yield from _other_size("moment", model.moment, model.schema.width, actions, "actions of the noise levels")
    yield from _other_actions(model.schema, actions)


def _flaws_of_drift(noise: NoiseLevels, n: int) -> Iterator[str]:
    if not 0 < float(noise.memory) <= 1:
        yield f"its memory is {float(noise.memory):g}, not more than 0 and at most 1"
    drift = np.asarray(noise.drift)
    # What moves was not told from noise before, and there were two numbers.
    if drift.shape not in ((2,), (3,)) or not (np.all(drift[:2] > 0) and np.all((drift[2:] >= 0) & (drift[2:] <= 1))):
        yield "its drift is not two positive numbers and a share"
    if np.shape(noise.moving_covariance) not in ((0, 0), (n, n)) or not _is_covariance(noise.moving_covariance):
        yield "noise.moving_covariance is no covariance of the encoding"


def _flaws_of_regression(model: RecurrentRegression) -> Iterator[str]:
    if not model.layers:
        yield "it has no layers"
        return
    if model.schema is not None:
        yield from _other_size("network", _after_one_context(model), model.schema.width, model.actions, "heads")
        yield from _other_actions(model.schema, model.actions)


def _after_one_context(model: RecurrentRegression) -> Callable[[Any], Any]:
    return lambda context: model.values(model.observe(model.init_state(), context))


def _other_actions(schema: Schema, actions: int) -> Iterator[str]:
    if len(schema.actions) != actions:
        yield f"its schema names {len(schema.actions)} actions and its numbers are for {actions}"


def _other_size(name: str, part: Any, inputs: int, outputs: int, of_what: str) -> Iterator[str]:
    """Ask what comes out of a part, without computing it."""
    try:
        found = jax.eval_shape(part, np.zeros(inputs, np.float32))
    except Exception as error:  # whatever a part of a stranger raises
        yield f"{name} does not take {inputs} numbers ({type(error).__name__})"
        return
    if not isinstance(found, jax.ShapeDtypeStruct) or found.shape != (outputs,):
        yield f"{name} gives {brief(getattr(found, 'shape', found))}; expected the {outputs} {of_what}"


def _is_covariance(matrix: Float[Any, "m m"]) -> bool:
    values = np.asarray(matrix, np.float64)
    slack = SLACK * np.abs(values).max(initial=0.0)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or np.abs(values - values.T).max(initial=0.0) > slack:
        return False
    return len(values) == 0 or bool(np.linalg.eigvalsh(values)[0] >= -slack)


def _is_regular(covariance: Float[Any, "n n"]) -> bool:
    """Tell whether every direction varies, each coordinate in its own units, which may be far from the others'."""
    values = np.asarray(covariance, np.float64)
    stds = np.sqrt(np.maximum(np.diag(values), 0.0))
    return bool(np.all(stds > 0) and np.linalg.eigvalsh(values / np.outer(stds, stds))[0] > 0)


_FLAWS: dict[type[eqx.Module], Callable[[Any], Iterator[str]]] = {
    LatentModel: _flaws_of_latent_model,
    RecurrentRegression: _flaws_of_regression,
}
