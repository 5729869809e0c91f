"""A live instance as JSON: a few dozen numbers, and the decisions that wait for their rewards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ilb.errors import DecisionError
from ilb.labels import decode_label, encode_label

if TYPE_CHECKING:
    from ilb.live import LiveBandit, LiveInstance

FORMAT = "ilb-live-instance"
FORMAT_VERSION = 1


def write_instance(instance: LiveInstance) -> str:
    """Write all that is known of an instance; float32 numbers are written so that they are read back exactly."""
    bandit = instance.bandit
    return json.dumps(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "policy": describe_policy(bandit),
            "seed": bandit.seed,
            "instance": encode_label(instance.label),
            "seen": instance.seen,
            "state": _numbers(np.asarray(instance.state)),
            "pending": {
                str(number): [waiting.action, _numbers(waiting.context)] for number, waiting in instance.pending.items()
            },
        },
        separators=(",", ":"),
    )


def read_instance(bandit: LiveBandit, text: str) -> LiveInstance:
    """Read an instance that was saved with the same kind of policy, seed and schema."""
    from ilb.live import LiveInstance, Pending

    try:
        stored: dict[str, Any] = json.loads(text)
        kind, version = stored["format"], stored["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise DecisionError(f"this is not a saved instance: {error}. Give the text that `to_json` returned.") from error
    if kind != FORMAT or not isinstance(version, int) or version > FORMAT_VERSION:
        raise DecisionError(
            f"this is {kind!r} of version {version}; expected {FORMAT!r} of version {FORMAT_VERSION} or older. "
            "Upgrade identifiable-latent-bandits, or look for the right file."
        )
    for name, here in (("policy", describe_policy(bandit)), ("seed", bandit.seed)):
        if stored.get(name) != here:
            raise DecisionError(
                f"the instance was saved with {name} {stored.get(name)!r}; this bandit has {here!r}. "
                "Restore it with the bandit it belongs to."
            )
    try:
        state = np.array(stored["state"], dtype=np.float32)
        pending = {
            int(number): Pending(np.array(context, dtype=np.float32), int(action))
            for number, (action, context) in stored["pending"].items()
        }
        label, seen = decode_label(stored["instance"]), int(stored["seen"])
    except (ValueError, KeyError, TypeError) as error:
        raise DecisionError(f"the saved instance is damaged: {error}.") from error
    wrong = [waiting for waiting in pending.values() if waiting.context.shape != (bandit.schema.width,)]
    if wrong or state.shape != bandit.nothing_known.shape:
        raise DecisionError("the saved instance is damaged: its numbers do not fit this policy and schema.")
    return LiveInstance(bandit, label, jnp.asarray(state), seen, pending)


def describe_policy(bandit: LiveBandit) -> str:
    """Name the kind of policy and its size, without its numbers: a refitted model may go on with an instance."""
    parts = [type(bandit.policy).__name__]
    parts += [
        type(getattr(bandit.policy, name)).__name__ for name in ("belief", "rule") if hasattr(bandit.policy, name)
    ]
    return f"{'/'.join(parts)}[{bandit.nothing_known.shape[0]}]"


def _numbers(values: np.ndarray) -> list[float]:
    """Write float32 numbers as the shortest decimals that round to them."""
    return [float(str(value)) for value in values.astype(np.float32)]
