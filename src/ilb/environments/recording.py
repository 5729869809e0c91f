"""Record logs in an environment: who acted in the past, how much of it, and the table that is left."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Units, at_round, follow
from ilb.errors import WorldError
from ilb.logs import Logs
from ilb.logs.reading import read_arrays
from ilb.streams import instance_keys, round_key


@runtime_checkable
class LoggingRule(Protocol):
    """How the people of the past chose: unnormalised log-probabilities of the K actions."""

    def __call__(self, z: Float[Array, " n"], context: Float[Array, " d"], /) -> Float[Array, " K"]:
        """Give the logits for an instance with latent state z in a round with this context."""
        ...


class UniformLogging(eqx.Module):
    """Every action is as likely as any other (the paper's observational policy)."""

    actions: int = eqx.field(static=True)

    def __call__(self, z: Float[Array, " n"], context: Float[Array, " d"]) -> Float[Array, " K"]:
        del z, context
        return jnp.zeros(self.actions)


class ConfoundedLogging(eqx.Module):
    """Actions depend on the latent state and the context, less mean and over deviation: fig. scm, dashed arrows."""

    latent_weights: Float[Array, "K n"]
    context_weights: Float[Array, "K d"]
    units: Units | None = None

    def __call__(self, z: Float[Array, " n"], context: Float[Array, " d"]) -> Float[Array, " K"]:
        if self.units is not None:
            z = (z - self.units.latent_mean) / self.units.latent_std
            context = (context - self.units.context_mean) / self.units.context_std
        return self.latent_weights @ z + self.context_weights @ context


def draw_confounded_logging(
    key: PRNGKeyArray, environment: AbstractEnvironment, strength: float = 1.0
) -> ConfoundedLogging:
    """Draw weights of standard deviation `strength`."""
    latent_dim, context_dim, actions = environment.sizes
    key_latent, key_context = jr.split(key)
    return ConfoundedLogging(
        strength * jr.normal(key_latent, (actions, latent_dim)),
        strength * jr.normal(key_context, (actions, context_dim)),
        environment.units,
    )


class Recording(NamedTuple):
    """Logs, and beside them the truth that a user never has; that of the first round where instances change."""

    logs: Logs
    latents: Float[np.ndarray, "I n"]
    mean_rewards: Float[np.ndarray, "I K"]
    world: AbstractEnvironment

    def to_frame(self) -> Any:
        """Write the table as a user of this world has it, as a pyarrow Table."""
        return self.world.to_frame(self.logs)


class Recorded(NamedTuple):
    """Logs to learn from and logs of other instances to score on, with the truth behind both."""

    training: Recording
    held_out: Recording | None

    @property
    def world(self) -> AbstractEnvironment:
        return self.training.world

    @property
    def test(self) -> Recording:
        """The held-out recording, where the plan asks for one."""
        if self.held_out is None:
            raise WorldError("nothing was recorded to test on: test_instances is 0.")
        return self.held_out


def record(
    key: PRNGKeyArray,
    environment: AbstractEnvironment,
    logging: LoggingRule,
    instances: int,
    length: int | Int[np.ndarray, " I"],
) -> Recording:
    """Record `instances` histories of `length` rounds (one number, or one for each instance).

    Whoever simulates knows what is in the columns of the context, so nothing is warned of as it is for a user's tables
    and arrays. Instance i depends on the key and on i alone, so a longer recording begins with the shorter one.

    >>> from ilb.environments.synthetic import draw_world
    >>> world = draw_world(jr.key(0))
    >>> recording = record(jr.key(1), world, UniformLogging(20), instances=10, length=5)
    >>> recording.logs.rows, recording.latents.shape
    (50, (10, 5))
    """
    lengths = np.broadcast_to(np.asarray(length), (instances,))
    if instances < 1 or lengths.min() < 1:
        raise WorldError(
            f"a recording needs at least one instance, and each at least one round; got instances={instances} and "
            f"length={lengths.min() if instances else length}."
        )
    histories = _record(key, environment, logging, instances, int(lengths.max()))
    latents, means, contexts, actions, rewards = (np.asarray(part) for part in histories)
    kept = np.arange(contexts.shape[1])[None, :] < lengths[:, None]
    labels = np.repeat(np.arange(instances), lengths)
    names = environment.column_names
    parts = read_arrays(contexts[kept], actions[kept], rewards[kept], labels, means.shape[1], names)
    return Recording(Logs.of_parts(parts), latents, means, environment)


@eqx.filter_jit
def _record(
    key: PRNGKeyArray, environment: AbstractEnvironment, logging: LoggingRule, instances: int, length: int
) -> tuple[Array, Array, Array, Array, Array]:
    def one_instance(number: Array) -> tuple[Array, Array, Array, Array, Array]:
        key_instance, key_rounds = instance_keys(key, number)
        instance = environment.sample_instance(key_instance)
        path = follow(environment, key_rounds, instance, length)

        def one_round(number: Array) -> tuple[Array, Array, Array]:
            key_context, key_action, key_reward = jr.split(round_key(key_rounds, number), 3)
            now = at_round(path, number)
            context = environment.emit(key_context, now)
            action = jr.categorical(key_action, logging(environment.latent_state(now), context))
            return context, action, environment.sample_rewards(key_reward, now)[action]

        return (
            environment.latent_state(instance),
            environment.mean_rewards(instance),
            *jax.vmap(one_round)(jnp.arange(length)),
        )

    outputs: Any = jax.vmap(one_instance)(jnp.arange(instances))
    return outputs  # type: ignore[no-any-return]
