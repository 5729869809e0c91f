"""Worlds that break what a model was fitted on: shifted latents, few types, noisy or dropped columns, other noise.

A perturbation is a plain value, and `apply` puts it on a drawn world. Where that gives a wrapper, it passes the keys
on: instance i of a perturbed world is instance i of the world inside it. Logging that depends on the latent state is
`ilb.environments.ConfoundedLogging`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance, Units
from ilb.environments.synthetic import NOISES, SyntheticWorld
from ilb.environments.wrappers import AbstractWrapper
from ilb.errors import WorldError
from ilb.models.latent import LatentModel
from ilb.types import as_real


class AbstractPerturbation(ABC):
    """What is done to a world; a subclass is a frozen dataclass, whose fields say of themselves what they are."""

    @abstractmethod
    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> AbstractEnvironment:
        """Give the perturbed world; the key is for what a perturbation draws once for the whole world."""


def perturb(
    key: PRNGKeyArray, world: AbstractEnvironment, perturbations: tuple[AbstractPerturbation, ...]
) -> AbstractEnvironment:
    """Apply one perturbation after the other.

    >>> from ilb.environments.synthetic import Synthetic
    >>> world = perturb(jr.key(0), Synthetic().draw(), (ContextNoise(0.5), Shift(2.0)))
    >>> float(jnp.linalg.norm(world.shift).round(4)), float(world.environment.std)
    (2.0, 0.5)
    """
    # The first has the key itself: it draws the same, alone or with others after it.
    for number, perturbation in enumerate(perturbations):
        world = perturbation.apply(jr.fold_in(key, number) if number else key, world)
    return world


@dataclass(frozen=True)
class Shift(AbstractPerturbation):
    r"""Move the mean of U by a vector of that length in a random direction: the printed $\Delta z = 1, 2, 4$ (app:ood).

    One direction is drawn for the whole world; with the same key, other lengths have the same direction. With
    `shift_by="coordinate"` every coordinate moves by that much, as in the released code: the length of the move is then
    $\sqrt n$ times as much. The released plots call the coordinate shifts 0.5, 1, 2 (lengths 1.1, 2.2, 4.5 at n = 5)
    $\Delta z = 1, 2, 4$.
    """

    latent_shift: float
    shift_by: str = "norm"

    def __post_init__(self) -> None:
        if self.shift_by not in ("norm", "coordinate"):
            raise WorldError(f"shift_by must be one of norm, coordinate; got {self.shift_by!r}.")

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> ShiftedLatents:
        latent_dim = world.sizes.latent_dim
        if self.shift_by == "coordinate":
            return ShiftedLatents(world, jnp.full(latent_dim, self.latent_shift))
        direction = jr.normal(key, (latent_dim,))
        return ShiftedLatents(world, self.latent_shift * direction / jnp.linalg.norm(direction))


class ShiftedLatents(AbstractWrapper):
    r"""Instances from outside the training population: every new latent state is moved by `shift` (app:ood).

    Only for worlds whose instance is its latent vector. `oracle()` is that of the world inside: it has the true
    $g^{-1}$ and $\theta$, which hold for all z, and the population of the *training* instances, off by `shift`. CPG
    and FPG do not use the population; a calibrated belief starts from it, and has the shift to unlearn.
    """

    environment: AbstractEnvironment
    shift: Float[Array, " n"] = eqx.field(converter=as_real)

    def __check_init__(self) -> None:
        instance = jax.eval_shape(self.environment.sample_instance, jr.key(0))
        if not isinstance(instance, jax.ShapeDtypeStruct) or instance.shape != self.shift.shape:
            raise WorldError(
                f"a shift of shape {self.shift.shape} moves instances that are latent vectors of the same shape; "
                f"those of {type(self.environment).__name__} are {jax.tree.map(lambda leaf: leaf.shape, instance)}."
            )

    def sample_instance(self, key: PRNGKeyArray) -> Float[Array, " n"]:
        return jnp.asarray(self.environment.sample_instance(key) + self.shift)


@dataclass(frozen=True)
class FewTypes(AbstractPerturbation):
    """Let people come in so many types, each as common as the others: a latent state that is discrete.

    The types are drawn from the people of the world, once for the whole of it.
    """

    types: int

    def __post_init__(self) -> None:
        if self.types < 1:
            raise WorldError(f"types must be at least 1; got {self.types}.")

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> PeopleOfTypes:
        return PeopleOfTypes(world, jax.vmap(world.sample_instance)(jr.split(key, self.types)), self.types)


class PeopleOfTypes(AbstractWrapper):
    """The world inside, where everybody is one of `types` instances of it, at random; contexts and rewards vary.

    `oracle()` is that of the world inside: its population is the one that the types were drawn from.
    """

    environment: AbstractEnvironment
    instances: Instance
    types: int = eqx.field(static=True)

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        number = jr.randint(key, (), 0, self.types)
        return jax.tree.map(lambda leaf: leaf[number], self.instances)


@dataclass(frozen=True)
class ContextNoise(AbstractPerturbation):
    """Add Gaussian noise of this standard deviation to every context (app:emission_noise)."""

    context_noise_std: float

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> NoisyContexts:
        del key
        return NoisyContexts(world, as_real(self.context_noise_std))


class NoisyContexts(AbstractWrapper):
    """Contexts seen through Gaussian noise of standard deviation `std`, added after the emission (app:emission_noise).

    `oracle()` is that of the world inside: it applies the true $g^{-1}$ to the noisy x and has the noise levels of
    clean contexts. Because $g^{-1}$ is not linear its encodings are then biased, as in the paper.
    """

    environment: AbstractEnvironment
    std: Float[Array, ""] = eqx.field(converter=as_real)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round and add noise to it; the same draws, scaled, at every noise level."""
        key_context, key_noise = jr.split(key)
        context = self.environment.emit(key_context, instance)
        return context + self.std * jr.normal(key_noise, context.shape)


@dataclass(frozen=True)
class KeptColumns(AbstractPerturbation):
    """Show only these columns of a context, by their numbers from 0 and in this order."""

    kept_columns: tuple[int, ...]

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> DroppedContexts:
        del key
        return DroppedContexts(world, jnp.asarray(self.kept_columns))


class DroppedContexts(AbstractWrapper):
    """Contexts of which only the columns `kept` are seen, in that order.

    Part of g(z) need not determine z, so there is no true model to give: `oracle()` raises `WorldError`.
    """

    environment: AbstractEnvironment
    kept: Int[Array, " kept"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self) -> None:
        columns = self.environment.sizes.context_dim
        if isinstance(self.kept, jax.core.Tracer):
            return
        kept = np.asarray(self.kept)
        if kept.ndim != 1 or kept.size == 0 or not np.issubdtype(kept.dtype, np.integer):
            raise WorldError(f"kept must list at least one column by its number; got {kept.tolist()}.")
        if len(set(kept.tolist())) < kept.size or kept.min() < 0 or kept.max() >= columns:
            raise WorldError(f"kept must list different columns from 0 to {columns - 1}; got {kept.tolist()}.")

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " kept"]:
        return self.environment.emit(key, instance)[self.kept]

    @property
    def column_names(self) -> tuple[str, ...] | None:
        names = self.environment.column_names
        return names and tuple(names[number] for number in np.asarray(self.kept))

    @property
    def units(self) -> Units | None:
        units = self.environment.units
        return units and units._replace(
            context_mean=units.context_mean[self.kept], context_std=units.context_std[self.kept]
        )

    def oracle(self) -> LatentModel:
        raise WorldError(
            f"there is no oracle for contexts of which only {self.kept.shape[0]} columns are seen: the inverse "
            "emission needs all of them. Fit a model on logs of this world instead, or ask the world inside it "
            "(`.environment.oracle()`)."
        )


@dataclass(frozen=True)
class OtherNoise(AbstractPerturbation):
    r"""Give a synthetic world another distribution of $\eta_t$ (`NOISES`); its oracle knows the new variance.

    >>> from ilb.environments.synthetic import Synthetic
    >>> world = OtherNoise("laplace").apply(jr.key(0), Synthetic().draw())
    >>> float(world.oracle().noise.encoding_covariance[0, 0])
    2.0
    """

    other_noise: str
    other_noise_scale: float = 1.0

    def apply(self, key: PRNGKeyArray, world: AbstractEnvironment) -> SyntheticWorld:
        del key
        if not isinstance(world, SyntheticWorld):
            raise WorldError(f"only the latent noise of a SyntheticWorld can be another; got {type(world).__name__}.")
        return dataclasses.replace(world, noise=NOISES[self.other_noise](self.other_noise_scale))
