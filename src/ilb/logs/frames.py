"""Logs as a table again, in any of the frame libraries."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float32, Int32, Int64

from ilb.errors import LogsError
from ilb.logs.messages import one_line
from ilb.logs.schema import Schema


def write_frame(
    schema: Schema,
    *,
    instance: list[Any],
    time: Int64[np.ndarray, " N"],
    context: Float32[np.ndarray, "N d"],
    action: Int32[np.ndarray, " N"],
    reward: Float32[np.ndarray, " N"],
    backend: str,
) -> Any:
    """A native frame with the columns instance, time, context, action and reward, null where missing."""
    labels = (*schema.actions, None)
    rewards: list[Any] = reward.astype(np.float64).tolist()
    for row in np.flatnonzero(np.isnan(reward)):
        rewards[row] = None
    columns: dict[str, tuple[list[Any], Any]] = {
        schema.instance: (instance, None),
        schema.time or _free_name(schema): (time.tolist(), nw.Int64),
    }
    for column, block in schema.blocks(context):
        columns[column.name] = (column.decode(block), column.dtype)
    columns[schema.action] = ([labels[code] for code in action.tolist()], None)
    columns[schema.reward] = (rewards, nw.Float64)
    return _build(columns, backend)


def _build(columns: dict[str, tuple[list[Any], Any]], backend: Any) -> Any:
    series = []
    for name, (values, dtype) in columns.items():
        try:
            series.append(nw.new_series(name, values, dtype, backend=backend))
        except Exception as error:  # each library has its own errors for what it can't hold
            raise LogsError(
                f"{backend!r} can't hold column {name!r} ({type(error).__name__}: {one_line(error)}). "
                "Install that library, or try another of 'pandas', 'polars', 'pyarrow'."
            ) from error
    return nw.concat([one.to_frame() for one in series], how="horizontal").to_native()


def _free_name(schema: Schema) -> str:
    taken = {schema.instance, schema.action, schema.reward, *(column.name for column in schema.context)}
    name = "time"
    while name in taken:
        name += "_"
    return name
