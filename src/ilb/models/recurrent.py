r"""RecurrentRegression: $E[R \mid A = a, X_1, \dots, X_t]$ by a recurrent network with a head for each action.

The network of the regression baseline (Section "Regression baseline"; app:training): GRU layers make a representation
of the contexts so far that all actions share, and each action reads its reward off it with a head of its own (TARNet).
Offline writes it, online reads it. It is causal: one pass over a history gives the predictions of all its prefixes,
and a round costs the same however many came before.
"""

from __future__ import annotations

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.logs import Schema
from ilb.models.latent import Provenance
from ilb.networks import Affine, scale_columns, storable


@storable
class GRULayer(eqx.Module):
    r"""Gated recurrent units: $h_t = (1 - u_t) \odot n_t + u_t \odot h_{t-1}$.

    $r_t$ and $u_t$ (reset, update) are logistic functions of $x_t W + h_{t-1} V$ plus shifts, and $n_t = \tanh(x_t W_n
    + r_t \odot (h_{t-1} V_n))$. The three blocks stand side by side, in this order, in `inputs` (W) and `memory` (V).
    """

    inputs: Affine
    memory: Affine

    @property
    def width(self) -> int:
        return self.memory.matrix.shape[0]

    def __call__(self, hidden: Float[Array, " h"], x: Float[Array, " m"]) -> Float[Array, " h"]:
        return _advance(hidden, self.inputs(x), self.memory)[0]

    def run(self, xs: Float[Array, "T m"]) -> Float[Array, "T h"]:
        """Take in a history from its beginning, and give the units after each round."""
        return _run(xs @ self.inputs.matrix + self.inputs.shift[None, :], self.memory.matrix, self.memory.shift)


def _advance(
    hidden: Float[Array, " h"], drive: Float[Array, " gates"], memory: Affine
) -> tuple[Float[Array, " h"], tuple[Array, Array, Array, Array]]:
    """Take one step, given what the input adds to the gates; also give what its derivative needs."""
    width = hidden.shape[0]
    recalled = memory(hidden)
    gates = jax.nn.sigmoid(drive[: 2 * width] + recalled[: 2 * width])
    reset, update, remembered = gates[:width], gates[width:], recalled[2 * width :]
    candidate = jnp.tanh(drive[2 * width :] + reset * remembered)
    return candidate + update * (hidden - candidate), (reset, update, candidate, remembered)


# The derivative is written out so that the backward loop carries h numbers and not the gradient of a matrix: that is
# one product over all rounds, after the loop. A step of training takes two thirds of the time.
@jax.custom_vjp
def _run(
    drives: Float[Array, "T gates"], matrix: Float[Array, "h gates"], shift: Float[Array, " gates"]
) -> Float[Array, "T h"]:
    return _forward(drives, matrix, shift)[0]


def _forward(
    drives: Float[Array, "T gates"], matrix: Float[Array, "h gates"], shift: Float[Array, " gates"]
) -> tuple[Float[Array, "T h"], tuple[Array, tuple[Array, Array, Array, Array], Array]]:
    memory = Affine(matrix, shift)

    def step(hidden: Array, drive: Array) -> tuple[Array, tuple[Array, tuple[Array, Array, Array, Array]]]:
        hidden, parts = _advance(hidden, drive, memory)
        return hidden, (hidden, parts)

    _, (hiddens, parts) = jax.lax.scan(step, jnp.zeros(matrix.shape[0], drives.dtype), drives)
    return hiddens, (hiddens, parts, matrix)


def _backward(
    kept: tuple[Array, tuple[Array, Array, Array, Array], Array], gradient: Float[Array, "T h"]
) -> tuple[Float[Array, "T gates"], Float[Array, "h gates"], Float[Array, " gates"]]:
    hiddens, (reset, update, candidate, remembered), matrix = kept
    before = jnp.concatenate([jnp.zeros_like(hiddens[:1]), hiddens[:-1]])
    # How the units of a round move with its gates, all rounds at once.
    by_candidate = (1 - update) * (1 - candidate**2)
    by_update = (before - candidate) * update * (1 - update)
    by_reset = by_candidate * remembered * reset * (1 - reset)
    slopes = jnp.stack([by_reset, by_update, by_candidate * reset], axis=1)

    def step(later: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        gradient, update, slopes = now
        total = later + gradient
        return total * update + matrix @ (slopes * total[None, :]).reshape(-1), total

    _, totals = jax.lax.scan(step, jnp.zeros_like(hiddens[0]), (gradient, update, slopes), reverse=True)
    recalled = (slopes * totals[:, None, :]).reshape(len(hiddens), -1)
    driven = jnp.concatenate([totals * by_reset, totals * by_update, totals * by_candidate], axis=1)
    return driven, before.T @ recalled, recalled.sum(axis=0)


_run.defvjp(_forward, _backward)


class RecurrentRegression(eqx.Module):
    """GRU layers, one on the other, and a linear head for each action on the last of them.

    `schema` and `provenance` are for people and files, not for compiled programs, as in `LatentModel`.
    """

    layers: tuple[GRULayer, ...]
    heads: Affine
    schema: Schema | None = eqx.field(static=True, default=None)
    provenance: Provenance | None = eqx.field(static=True, default=None)

    @property
    def actions(self) -> int:
        return self.heads.shift.shape[0]

    def init_state(self) -> Float[Array, "layers h"]:
        return jnp.zeros((len(self.layers), self.layers[0].width), jnp.float32)

    def observe(self, state: Float[Array, "layers h"], context: Float[Array, " d"]) -> Float[Array, "layers h"]:
        """Take in the context of a round."""
        units, signal = [], context
        for layer, hidden in zip(self.layers, state, strict=True):
            signal = layer(hidden, signal)
            units.append(signal)
        return jnp.stack(units)

    def values(self, state: Float[Array, "layers h"]) -> Float[Array, " K"]:
        """Give the K expected rewards after the contexts that `state` remembers."""
        return self.heads(state[-1])

    def run(self, contexts: Float[Array, "T d"]) -> Float[Array, "T K"]:
        """Give the K expected rewards after each prefix of a history."""
        signals = contexts
        for layer in self.layers:
            signals = layer.run(signals)
        return signals @ self.heads.matrix + self.heads.shift[None, :]

    def after(self, first: Affine) -> RecurrentRegression:
        """Map contexts by `first` before; the map is folded into the first layer and costs nothing."""
        lowest, *others = self.layers
        layers = (GRULayer(first.then(lowest.inputs), lowest.memory), *others)
        return RecurrentRegression(layers, self.heads, self.schema, self.provenance)

    def bare(self) -> RecurrentRegression:
        """Return the same network without labels and history."""
        return RecurrentRegression(self.layers, self.heads)

    def on_raw_contexts(self) -> RecurrentRegression:
        """Return the network for contexts as they stand in the table, as `LatentModel.on_raw_contexts` does."""
        if self.schema is None:
            return self
        return self.bare().after(scale_columns(*self.schema.numeric_scaling()))

    def save(self, path: str | Path) -> None:
        """Write the network into the directory `path`: `manifest.json` and its arrays (`ilb.models.storage`)."""
        from ilb.models import storage

        storage.save_model(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> RecurrentRegression:
        """Read a network that `save` wrote; damaged, foreign or newer files raise `ModelFileError`."""
        from ilb.models import storage

        return storage.load_model(Path(path), RecurrentRegression)

    def __repr__(self) -> str:
        origin = f", fitted on {self.provenance.rows} rows" if self.provenance else ""
        return f"RecurrentRegression(layers={len(self.layers)}, K={self.actions}{origin})"


def random_recurrent_regression(
    key: PRNGKeyArray, inputs: int, width: int, layers: int, actions: int
) -> RecurrentRegression:
    r"""Draw weights and shifts of all layers uniformly from $\pm 1 / \sqrt h$; heads start at zero.

    So the head of an action without any reward stays there, and predicts the average of all rewards.
    """
    keys = jr.split(key, layers)
    sizes = [inputs] + [width] * (layers - 1)
    heads = Affine(jnp.zeros((width, actions)), jnp.zeros(actions))
    stacked = tuple(_random_layer(key, size, width) for key, size in zip(keys, sizes, strict=True))
    return RecurrentRegression(stacked, heads)


def _random_layer(key: PRNGKeyArray, inputs: int, width: int) -> GRULayer:
    bound = width**-0.5
    numbers = jr.uniform(key, (inputs + width + 2, 3 * width), minval=-bound, maxval=bound)
    weights, shifts = numbers[:-2], numbers[-2:]
    return GRULayer(Affine(weights[:inputs], shifts[0]), Affine(weights[inputs:], shifts[1]))
