"""Worlds that break what a model was fitted on: shifted latents, noisy contexts, dropped columns, another latent noise.

Each wrapper is an environment around another and passes the keys on, so that instance i of a perturbed world is
instance i of the world inside it. Logging that depends on the latent state is `ilb.environments.ConfoundedLogging`.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.environments.synthetic import LatentNoise, SyntheticWorld
from ilb.environments.wrappers import AbstractWrapper
from ilb.errors import WorldError
from ilb.models.latent import LatentModel


class ShiftedLatents(AbstractWrapper):
    r"""Instances from outside the training population: every new latent state is moved by `shift` (app:ood).

    Only for worlds whose instance is its latent vector. `oracle()` is that of the world inside: it has the true
    $g^{-1}$ and $\theta$, which hold for all z, and the population of the *training* instances, off by `shift`. CPG
    and FPG do not use the population; a calibrated belief starts from it, and has the shift to unlearn.
    """

    environment: AbstractEnvironment
    shift: Float[Array, " n"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        instance = _shape_of_instance(self.environment)
        if not isinstance(instance, jax.ShapeDtypeStruct) or instance.shape != self.shift.shape:
            raise WorldError(
                f"a shift of shape {self.shift.shape} moves instances that are latent vectors of the same shape; "
                f"those of {type(self.environment).__name__} are {jax.tree.map(lambda leaf: leaf.shape, instance)}."
            )

    def sample_instance(self, key: PRNGKeyArray) -> Float[Array, " n"]:
        """Draw a latent state and move it."""
        return jnp.asarray(self.environment.sample_instance(key) + self.shift)


def shift_by_coordinate(environment: AbstractEnvironment, amount: float) -> ShiftedLatents:
    r"""Move every coordinate by `amount`, as the released code does: the length of the move is `amount` $\sqrt n$.

    The released plots call the coordinate shifts 0.5, 1, 2 (lengths 1.1, 2.2, 4.5 at n = 5) $\Delta z = 1, 2, 4$.

    >>> from ilb.environments.synthetic import draw_world
    >>> shift_by_coordinate(draw_world(jr.key(0), latent_dim=4), 0.5).shift.tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    return ShiftedLatents(environment, jnp.full(_latent_dim(environment), amount))


def shift_by_norm(key: PRNGKeyArray, environment: AbstractEnvironment, norm: float) -> ShiftedLatents:
    r"""Move the mean of U by a vector of length `norm` in a random direction: the printed $\Delta z = 1, 2, 4$.

    One direction is drawn for the whole world; with the same key, other lengths have the same direction.

    >>> from ilb.environments.synthetic import draw_world
    >>> float(jnp.linalg.norm(shift_by_norm(jr.key(1), draw_world(jr.key(0)), 4.0).shift).round(4))
    4.0
    """
    return shift_along(environment, jr.normal(key, (_latent_dim(environment),)), norm)


def shift_along(environment: AbstractEnvironment, direction: Float[Array, " n"], norm: float) -> ShiftedLatents:
    """Move the mean of U by `norm` in a given direction; `jnp.ones(n)` moves all coordinates equally."""
    length = jnp.linalg.norm(direction)
    if length == 0:
        raise WorldError("a shift needs a direction; got the zero vector.")
    return ShiftedLatents(environment, norm * direction / length)


class NoisyContexts(AbstractWrapper):
    """Contexts seen through Gaussian noise of standard deviation `std`, added after the emission (app:emission_noise).

    `oracle()` is that of the world inside: it applies the true $g^{-1}$ to the noisy x and has the noise levels of
    clean contexts. Because $g^{-1}$ is not linear its encodings are then biased, as in the paper.
    """

    environment: AbstractEnvironment
    std: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round and add noise to it; the same draws, scaled, at every noise level."""
        key_context, key_noise = jr.split(key)
        context = self.environment.emit(key_context, instance)
        return context + self.std * jr.normal(key_noise, context.shape)


class DroppedContexts(AbstractWrapper):
    """Contexts of which only the columns `kept` are seen, in that order.

    Part of g(z) need not determine z, so there is no true model to give: `oracle()` raises `WorldError`.
    """

    environment: AbstractEnvironment
    kept: Int[Array, " kept"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        columns = jax.eval_shape(self.environment.emit, jr.key(0), _shape_of_instance(self.environment)).shape[0]
        if isinstance(self.kept, jax.core.Tracer):
            return
        kept = np.asarray(self.kept)
        if kept.ndim != 1 or kept.size == 0 or not np.issubdtype(kept.dtype, np.integer):
            raise WorldError(f"kept must list at least one column by its number; got {kept.tolist()}.")
        if len(set(kept.tolist())) < kept.size or kept.min() < 0 or kept.max() >= columns:
            raise WorldError(f"kept must list different columns from 0 to {columns - 1}; got {kept.tolist()}.")

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " kept"]:
        """Draw the context of one round and show the kept columns of it."""
        return self.environment.emit(key, instance)[self.kept]

    def oracle(self) -> LatentModel:
        """Refuse: the latent state can't be computed from part of the context."""
        raise WorldError(
            f"there is no oracle for contexts of which only {self.kept.shape[0]} columns are seen: the inverse "
            "emission needs all of them. Fit a model on logs of this world instead, or ask the world inside it "
            "(`.environment.oracle()`)."
        )


def with_latent_noise(world: SyntheticWorld, noise: LatentNoise) -> SyntheticWorld:
    r"""Give the same world with another distribution of $\eta_t$; its oracle knows the new variance.

    >>> from ilb.environments.synthetic import LaplaceNoise, draw_world
    >>> float(with_latent_noise(draw_world(jr.key(0)), LaplaceNoise(1.0)).oracle().noise.encoding_covariance[0, 0])
    2.0
    """
    return dataclasses.replace(world, noise=noise)


def _shape_of_instance(environment: AbstractEnvironment) -> Instance:
    return jax.eval_shape(environment.sample_instance, jr.key(0))


def _latent_dim(environment: AbstractEnvironment) -> int:
    latent = jax.eval_shape(environment.latent_state, _shape_of_instance(environment))
    return int(latent.shape[0])
