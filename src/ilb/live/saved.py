"""What is known of a live instance, and as JSON: a few dozen numbers, and decisions that wait for their rewards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ilb.errors import DecisionError
from ilb.live.programs import BoundPolicy, Vector
from ilb.logs.labels import decode_label, encode_label
from ilb.logs.messages import brief, one_line

FORMAT = "ilb-live-instance"
FORMAT_VERSION = 3
"""Version 1 kept other sums, told fewer policies apart and had no checksum; 2 kept no scatter of contexts."""
MOST_ROUNDS = 2**32
"""The number of a decision is folded into its key as 32 bits."""


class Pending(NamedTuple):
    """A decision whose reward has not come yet: all that learning from it needs."""

    context: Float[np.ndarray, " d"]
    action: int


class Memory(NamedTuple):
    """All that is known of an instance; `seen` counts its contexts, and numbers the decisions that are `pending`."""

    label: Hashable
    state: Vector
    seen: int
    pending: dict[int, Pending]


def write_memory(bound: BoundPolicy, memory: Memory) -> str:
    """Write all that is known of an instance; numbers are written so that they are read back exactly."""
    return json.dumps(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "bandit": bound.fingerprint,
            "seed": bound.seed,
            "checksum": checksum(memory),
            "instance": encode_label(memory.label),
            "seen": memory.seen,
            "state": np.asarray(memory.state).tolist(),
            "pending": {
                str(number): [waiting.action, _shortest(waiting.context)] for number, waiting in memory.pending.items()
            },
        },
        separators=(",", ":"),
        allow_nan=False,
    )


def checksum(memory: Memory) -> str:
    """Sum up what is known of an instance, however it is spaced and ordered as JSON."""
    pending = sorted(memory.pending.items())
    words = [encode_label(memory.label), memory.seen, [(number, waiting.action) for number, waiting in pending]]
    numbers = [np.asarray(memory.state), *(waiting.context for _, waiting in pending)]
    content = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for part in numbers:
        content.update(part.astype("<f8").tobytes())
    return content.hexdigest()[:16]


def read_memory(bound: BoundPolicy, text: str) -> Memory:
    """Read an instance that was saved with the same policy, seed and schema."""
    try:
        stored: dict[str, Any] = json.loads(text)
        kind, version = stored["format"], stored["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DecisionError(f"this is not a saved instance: {error}. Give the text that `to_json` returned.") from error
    if kind == FORMAT and type(version) is int and 1 <= version < FORMAT_VERSION:
        raise DecisionError(
            "the instance was saved by an earlier version of identifiable-latent-bandits, whose sums mean something "
            "else. Start the instance anew and tell it its history: decide for each context, then learn what was done."
        )
    if kind != FORMAT or type(version) is not int or version != FORMAT_VERSION:
        raise DecisionError(
            f"this is {brief(kind)} of version {brief(version)}; expected {FORMAT!r} of version {FORMAT_VERSION}. "
            "Upgrade identifiable-latent-bandits, or look for the right file."
        )
    for name, here in (("bandit", bound.fingerprint), ("seed", bound.seed)):
        if stored.get(name) != here:
            raise DecisionError(
                f"the instance was saved with {name} {brief(stored.get(name))}; this one has {here!r}. Another model, "
                "policy, schema or seed gives its numbers another meaning: restore it with what it was saved with."
            )
    try:
        state = np.array(stored["state"], dtype=np.float64)
        pending = {
            int(number): Pending(np.array(context, dtype=np.float32), int(action))
            for number, (action, context) in stored["pending"].items()
        }
        label, seen = decode_label(stored["instance"]), int(stored["seen"])
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DecisionError(f"the saved instance is damaged: {one_line(error)[:200]}.") from error
    whole = state.shape == bound.start.shape and np.all(np.isfinite(state)) and 0 <= seen < MOST_ROUNDS
    fitting = all(
        0 <= number < seen
        and 0 <= waiting.action < len(bound.schema.actions)
        and waiting.context.shape == (bound.schema.width,)
        and np.all(np.isfinite(waiting.context))
        for number, waiting in pending.items()
    )
    if not (whole and fitting):
        raise DecisionError("the saved instance is damaged: its numbers do not fit this policy and schema.")
    memory = Memory(label, state, seen, pending)
    if stored.get("checksum") != checksum(memory):
        raise DecisionError(
            "the saved instance was changed after it was saved: its checksum is another. Restore a copy that was not."
        )
    return memory


def _shortest(values: Float[np.ndarray, " d"]) -> list[float]:
    """Write float32 numbers as the shortest decimals that round to them."""
    return [float(str(value)) for value in values]
