"""The networks of the project: each is written for one vector and batched by `vmap`.

A saved model names the classes it is made of. Those marked `storable` can be named, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.errors import ModelFileError
from ilb.types import Encoder

STORABLE: dict[str, type[eqx.Module]] = {}
"""The classes that a file may name; `storable` puts them here, and nothing else is ever made from a file."""

Kind = TypeVar("Kind", bound=type[eqx.Module])


def storable(kind: Kind) -> Kind:
    """Let a module be part of a saved model: a class decorator, for encoders and reward models of your own, too.

    Its fields are arrays, storable modules, or tuples of these. A file names the class without its module, so the name
    must be free; whoever loads the file imports the class first.

    >>> @storable
    ... class Doubled(eqx.Module):
    ...     def __call__(self, context):
    ...         return 2 * context
    """
    known = STORABLE.get(kind.__name__, kind)
    # Defined anew at the same place, as when a notebook cell runs again, a class replaces itself.
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ModelFileError(
            f"{known.__module__}.{known.__qualname__} is saved under the name {kind.__name__!r} already. "
            f"Rename {kind.__module__}.{kind.__qualname__}."
        )
    STORABLE[kind.__name__] = kind
    return kind


@storable
class Affine(eqx.Module):
    """`x -> x @ matrix + shift`: a linear layer, a whitening, or a change of latent basis."""

    matrix: Float[Array, "inputs outputs"]
    shift: Float[Array, " outputs"]

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return x @ self.matrix + self.shift

    def then(self, after: Affine) -> Affine:
        """Compose: first this map, then `after`, as one map."""
        return Affine(self.matrix @ after.matrix, self.shift @ after.matrix + after.shift)


def scale_columns(centre: Float[np.ndarray, " d"], spread: Float[np.ndarray, " d"]) -> Affine:
    """Give the map `x -> (x - centre) / spread`, column by column."""
    return Affine(jnp.asarray(np.diag(1 / spread), jnp.float32), jnp.asarray(-centre / spread, jnp.float32))


def random_affine(key: PRNGKeyArray, inputs: int, outputs: int) -> Affine:
    """Draw weights of variance 1 / inputs, which keep the scale of whitened vectors; no shift."""
    return Affine(jr.normal(key, (inputs, outputs)) / jnp.sqrt(inputs), jnp.zeros(outputs))


@storable
class MaxoutMLP(eqx.Module):
    """Hidden maxout layers of two pieces each, then an affine output (app:training, "Training details for LVM")."""

    hidden: tuple[Affine, ...]
    output: Affine

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        for layer in self.hidden:
            first, second = jnp.split(layer(x), 2)
            x = jnp.maximum(first, second)
        return self.output(x)

    def then(self, after: Affine) -> MaxoutMLP:
        """Map the outputs on; the map is folded into the last layer and costs nothing."""
        return MaxoutMLP(self.hidden, self.output.then(after))


def random_maxout_mlp(key: PRNGKeyArray, inputs: int, hidden: Sequence[int], outputs: int) -> MaxoutMLP:
    return MaxoutMLP(*_random_layers(key, inputs, hidden, outputs, pieces=2))


def _random_layers(
    key: PRNGKeyArray, inputs: int, hidden: Sequence[int], outputs: int, pieces: int
) -> tuple[tuple[Affine, ...], Affine]:
    widths = (inputs, *hidden)
    *keys, key_output = jr.split(key, len(widths))
    layers = tuple(random_affine(k, a, pieces * b) for k, (a, b) in zip(keys, pairwise(widths), strict=True))
    return layers, random_affine(key_output, widths[-1], outputs)


@storable
class DenseMLP(eqx.Module):
    """Hidden ReLU layers, then an affine output: the networks of the autoencoder (app:training, "Details for VAE")."""

    hidden: tuple[Affine, ...]
    output: Affine

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        for layer in self.hidden:
            x = jnp.maximum(layer(x), 0)
        return self.output(x)

    def first_outputs(self, number: int) -> DenseMLP:
        """Keep the first outputs only; the rest is not computed any more."""
        return DenseMLP(self.hidden, Affine(self.output.matrix[:, :number], self.output.shift[:number]))


def random_dense_mlp(key: PRNGKeyArray, inputs: int, hidden: Sequence[int], outputs: int) -> DenseMLP:
    return DenseMLP(*_random_layers(key, inputs, hidden, outputs, pieces=1))


@storable
class SideBySide(eqx.Module):
    """Two encodings of the same context, one after the other."""

    first: Encoder
    second: Encoder

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        return jnp.concatenate([self.first(x), self.second(x)])


@storable
class LeakyMixing(eqx.Module):
    """The emission g: stages of leaky ReLU and a matrix with orthonormal columns (Section "Environments").

    Each stage applies the leaky ReLU first and the matrix after it, so L layers are L - 1 stages. When the context
    has more dimensions than the latent state, the first stage lifts into them, and the stages after it bend the
    n-dimensional image, so that g is injective but not linear in its extra dimensions.
    """

    matrices: tuple[Float[Array, "_ _"], ...]
    slope: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, z: Float[Array, " n"]) -> Float[Array, " d"]:
        for matrix in self.matrices:
            z = matrix @ jnp.where(z > 0, z, self.slope * z)
        return z

    def inverse(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        """Recover z from g(z): the left inverse."""
        for matrix in reversed(self.matrices):
            x = matrix.T @ x
            x = jnp.where(x > 0, x, x / self.slope)
        return x


def random_leaky_mixing(key: PRNGKeyArray, latent_dim: int, context_dim: int, layers: int, slope: float) -> LeakyMixing:
    """Draw an emission of `layers` layers with independent orthogonal matrices."""
    matrices = []
    inputs = latent_dim
    for key_stage in jr.split(key, layers - 1):
        orthogonal = jr.orthogonal(key_stage, context_dim)
        matrices.append(orthogonal[:, :inputs])
        inputs = context_dim
    return LeakyMixing(tuple(matrices), jnp.asarray(slope))


@storable
class InverseMixing(eqx.Module):
    """The oracle's encoder: the left inverse of an emission (f = g⁻¹)."""

    mixing: LeakyMixing

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        return self.mixing.inverse(x)


@storable
class LeakyReward(eqx.Module):
    r"""Nonlinear rewards $\theta_a^\top \mathrm{leakyReLU}(M z)$ (app:nonlinear_reward, "two layered MLP")."""

    hidden: Float[Array, "h n"]
    theta: Float[Array, "K h"]
    slope: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, z: Float[Array, " n"]) -> Float[Array, " K"]:
        hidden = self.hidden @ z
        return self.theta @ jnp.where(hidden > 0, hidden, self.slope * hidden)


@storable
class LeakyMLP(eqx.Module):
    """Affine layers with leaky ReLUs between them and none after the last: learned rewards (app:nonlinear_reward)."""

    layers: tuple[Affine, ...]
    slope: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            hidden = layer(x)
            x = jnp.where(hidden > 0, hidden, self.slope * hidden)
        return self.layers[-1](x)

    def between(self, before: Affine, after: Affine) -> LeakyMLP:
        """Map the inputs first and the outputs after; both maps are folded into layers and cost nothing."""
        first, *rest = self.layers
        *most, last = (before.then(first), *rest)
        return LeakyMLP((*most, last.then(after)), self.slope)


def random_leaky_mlp(key: PRNGKeyArray, inputs: int, hidden: Sequence[int], outputs: int, slope: float) -> LeakyMLP:
    """Draw hidden layers of the given widths, whose weights keep the scale; the outputs start at zero."""
    widths = (inputs, *hidden)
    gain = jnp.sqrt(2 / (1 + slope**2))  # makes up for what the leaky ReLU takes off the second moment
    keys = jr.split(key, len(hidden))
    drawn = [random_affine(k, a, b) for k, (a, b) in zip(keys, pairwise(widths), strict=True)]
    layers = tuple(Affine(gain * layer.matrix, layer.shift) for layer in drawn)
    zero = Affine(jnp.zeros((widths[-1], outputs)), jnp.zeros(outputs))
    return LeakyMLP((*layers, zero), jnp.asarray(slope, jnp.float32))


@storable
class IdentityEncoder(eqx.Module):
    """f(x) = x: the reference line without any network."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return x


@storable
class NoEncoder(eqx.Module):
    """An encoding without coordinates: contexts say nothing of the person."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        return x[:0]


@storable
class ComposedEncoder(eqx.Module):
    """f: an affine map (a whitening, a scaling), then an encoder."""

    first: Affine
    second: Encoder

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " n"]:
        return self.second(self.first(context))


def padded_size(count: int) -> int:
    """Give the next power of two: arrays that grow are padded to it, so that few sizes are ever compiled.

    >>> [padded_size(count) for count in (0, 1, 2, 5, 8)]
    [1, 1, 2, 8, 8]
    """
    return 1 << max(count - 1, 0).bit_length()


@eqx.filter_jit
def encode_rows(encoder: Encoder, contexts: Float[Array, "rows d"]) -> Float[Array, "rows n"]:
    encodings: Float[Array, "rows n"] = jax.vmap(encoder)(contexts)
    return encodings
