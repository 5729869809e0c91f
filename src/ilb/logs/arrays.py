"""Logs from NumPy arrays: numbers that are taken as they are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from ilb.errors import LogsError
from ilb.logs.checks import find_still, warn_still
from ilb.logs.columns import NUMBERS_EXPECTED, NumericColumn
from ilb.logs.labels import as_label
from ilb.logs.messages import counted, shown
from ilb.logs.reading import Parts
from ilb.logs.schema import Schema
from ilb.logs.values import Labels, read_labels, read_numbers


def read_arrays(
    context: ArrayLike,
    action: ArrayLike,
    reward: ArrayLike,
    instance: ArrayLike | None,
    actions: int | Sequence[Hashable] | None,
    names: Sequence[str] | None = None,
) -> Parts:
    """The parts of `Logs` from [I, T, ...] arrays, or from flat arrays and the instance of each row."""
    x, a, r = _numbers("context", context), _numbers("action", action), _numbers("reward", reward)
    if instance is None:
        if x.ndim != 3:
            raise LogsError(
                f"context has shape {x.shape}; expected [instances, times, columns]. "
                "For flat arrays [rows, columns], give the instance of each row in instance=."
            )
        labels = Labels(np.repeat(np.arange(len(x)), x.shape[1]), tuple(range(len(x))))
        expected: tuple[int, ...] = x.shape[:2]
    else:
        if x.ndim != 2:
            raise LogsError(f"context has shape {x.shape}; expected [rows, columns] when instance= is given.")
        labels = read_labels("instance", instance if isinstance(instance, Sequence) else list(np.asarray(instance)))
        expected = (len(x),)
    shapes = {"action": a.shape, "reward": r.shape} | ({} if instance is None else {"instance": labels.codes.shape})
    for name, shape in shapes.items():
        if shape != expected:
            raise LogsError(f"{name} has shape {shape}; expected {expected}, as context has shape {x.shape}.")
    if x.size == 0:
        raise LogsError(f"context has shape {x.shape}; expected at least one row and one column.")
    if (labels.codes < 0).any():
        raise LogsError(f"instance is missing in {counted(int((labels.codes < 0).sum()), 'row')}; drop these rows.")
    order = np.argsort(labels.codes, kind="stable")
    codes = _codes(a.reshape(-1)[order])
    action_labels = _action_labels(actions, int(codes.max()) + 1)
    rows = x.reshape(-1, x.shape[-1])[order]
    columns = tuple(
        _column(name, values) for name, values in zip(_column_names(names, rows.shape[1]), rows.T, strict=True)
    )
    schema = Schema("instance", None, "action", "reward", columns, action_labels)
    blocks = [column.encode(values) for column, values in zip(columns, rows.T, strict=True)]
    rewards = read_numbers("reward", r.reshape(-1)[order], NUMBERS_EXPECTED).astype(np.float32)
    return Parts(schema, labels.labels, np.concatenate(blocks, axis=1), labels.codes[order], codes, rewards)


def warn_still_parts(parts: Parts) -> None:
    """Warn of columns that stand still within instances and help to tell these apart."""
    still = []
    for column, block in parts.schema.blocks(parts.context):
        values = np.where(column.missing(block), np.nan, block[:, 0].astype(np.float64))
        still.append(find_still(column.name, values, parts.instance))
    warn_still([found for found in still if found], len(parts.instance_labels), len(still))


def _column_names(names: Sequence[str] | None, width: int) -> list[str]:
    if names is None:
        return [f"x{position + 1}" for position in range(width)]
    if len(names) != width or len(set(names)) != width or not all(isinstance(name, str) for name in names):
        raise LogsError(f"names= holds {shown(names)}; expected {width} different names, one for each context column.")
    return list(names)


def _numbers(name: str, values: ArrayLike) -> Float64[np.ndarray, "..."]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LogsError(
            f"{name} can't be read as numbers ({error}); expected an array of numbers. "
            "For labels and categories, use Logs.from_frame."
        ) from error


def _column(name: str, values: Float64[np.ndarray, " N"]) -> NumericColumn:
    if np.isnan(values).all():
        raise LogsError(f"context column {name!r} is NaN in all {counted(len(values), 'row')}; leave it out.")
    return NumericColumn.as_given(name, read_numbers(name, values, NUMBERS_EXPECTED))


def _codes(action: Float64[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
    whole = np.where(np.isnan(action), -1, action)
    wrong = (whole != np.round(whole)) | (whole < -1) | np.isinf(whole)
    if wrong.any():
        raise LogsError(
            f"action has {counted(int(wrong.sum()), 'value')} that number no action, such as {whole[wrong][0]}; "
            "expected 0 to K - 1, or -1 or NaN where the action is missing."
        )
    return whole.astype(np.int64)


def _action_labels(actions: int | Sequence[Hashable] | None, played: int) -> tuple[Hashable, ...]:
    if actions is None:
        return tuple(range(played))
    labels = tuple(range(actions) if isinstance(actions, int | np.integer) else (as_label(label) for label in actions))
    if len(labels) < played:
        raise LogsError(
            f"action holds {played - 1}, but actions= says that there are {len(labels)}; expected 0 to "
            f"{len(labels) - 1}, or -1 for a missing action."
        )
    if len(set(labels)) < len(labels):
        raise LogsError(f"actions= has the same label twice: {shown(labels)}; expected one label for each action.")
    return labels
