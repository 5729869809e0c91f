"""Recordings of the Alzheimer world as tables with named columns, such as a clinic would have."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.environments.adcb.patients import MARITAL, adcb_parameters, as_array
from ilb.environments.adcb.world import TREATMENTS, AdcbWorld
from ilb.environments.recording import LoggingRule, draw_confounded_logging, record
from ilb.logs import Logs

ROLES = {"instance": "patient", "time": "visit", "action": "treatment", "reward": "reward"}
"""What `Logs.from_frame` and `ilb fit` must know of the table's columns; all others are context."""


class AdcbRecording(NamedTuple):
    """Logs of the Alzheimer world with the truth behind them; `latents` holds z, and `variables` the context's."""

    logs: Logs
    latents: Float[np.ndarray, "I 1"]
    mean_rewards: Float[np.ndarray, "I 8"]
    variables: tuple[str, ...]

    def to_frame(self) -> Any:
        """Write the table as a user has it: a pyarrow Table in clinical units, with text for categories.

        Its columns are patient, visit, the variables of the context, treatment and reward; `ROLES` names the parts.
        """
        logs = self.logs
        columns: dict[str, Any] = {
            "patient": np.asarray(logs.instance_labels)[logs.instance],
            "visit": np.arange(logs.rows) - logs.starts[logs.instance],
        }
        blocks = dict(zip(logs.schema.names, logs.context.T, strict=True))
        for name in self.variables:
            columns[name] = blocks[name] if name != "marital" else _categories(blocks)
        columns["treatment"] = np.array([f"treatment {number}" for number in range(TREATMENTS)])[logs.action]
        columns["reward"] = logs.reward
        return pa.table(columns)


def record_adcb(
    key: PRNGKeyArray,
    world: AdcbWorld,
    logging: LoggingRule,
    patients: int,
    visits: int | Int[np.ndarray, " I"],
) -> AdcbRecording:
    """Record `patients` histories of `visits` visits (one number, or one for each patient); see `record`.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, adcb_world
    >>> recording = record_adcb(jr.key(0), adcb_world(), UniformLogging(8), patients=3, visits=2)
    >>> recording.to_frame().column_names
    ['patient', 'visit', 'age', 'education', 'marital', 'tau', 'ptau', 'fdg', 'av45', 'mmse', 'cdrsb', 'treatment', \
'reward']
    """
    recording = record(key, world, logging, patients, visits, names=world.column_names)
    return AdcbRecording(*recording, world.variables)


class StandardisedLogging(eqx.Module):
    """A logging rule that is shown z and contexts less their means and over their standard deviations."""

    rule: LoggingRule
    latent_mean: Float[Array, " n"]
    latent_std: Float[Array, " n"]
    context_mean: Float[Array, " d"]
    context_std: Float[Array, " d"]

    def __call__(self, z: Float[Array, " n"], context: Float[Array, " d"]) -> Float[Array, " K"]:
        """Give the logits of the rule inside."""
        return self.rule((z - self.latent_mean) / self.latent_std, (context - self.context_mean) / self.context_std)


def adcb_confounded_logging(key: PRNGKeyArray, world: AdcbWorld, strength: float = 1.0) -> StandardisedLogging:
    """Draw a rule by which treatments depend on z and on the context (fig. scm, dashed), each with weight `strength`.

    Columns in clinical units differ by factors of a thousand, so they are standardised, by the published figures for a
    latent noise of 0.02; the 0/1 columns of marital status stay as they are.
    """
    numbers = adcb_parameters()["marginals"]
    names = world.column_names
    return StandardisedLogging(
        rule=draw_confounded_logging(key, TREATMENTS, 1, len(names), strength),
        latent_mean=jnp.atleast_1d(world.population.z_mean),
        latent_std=jnp.atleast_1d(world.population.z_std),
        context_mean=as_array([numbers["mean"].get(name, 0.0) for name in names]),
        context_std=as_array([numbers["std"].get(name, 1.0) for name in names]),
    )


def _categories(blocks: dict[str, np.ndarray]) -> list[str]:
    indicators = np.stack([blocks[f"marital = {category}"] for category in MARITAL], axis=1)
    return [MARITAL[code] for code in indicators.argmax(axis=1).tolist()]
