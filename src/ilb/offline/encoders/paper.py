"""PaperRecipe: mean-contrastive learning with a free softmax head, as the paper does it (eq. NN_prob, eq. obj)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.logs import Logs
from ilb.networks import Affine, ComposedEncoder, MaxoutMLP, encode_rows, random_maxout_mlp
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.scaling import Scaling, Whitened, apply_scaling
from ilb.offline.training import Keys, MomentumSGD, Schedule, minimise_many, pad_rows, split_each, stack
from ilb.types import Report, silent


class LabelledRows(NamedTuple):
    """Inputs and the instance of each; rows from `rows` on are padding."""

    inputs: Float[Array | np.ndarray, "rows d"]
    instance: Int[Array | np.ndarray, " rows"]
    rows: Int[Array | np.ndarray, ""]


class SoftmaxHead(eqx.Module):
    r"""Logits $q_c = W_c^\top f(x) + b_c$ of eq. NN_prob; only differences between instances matter."""

    weights: Float[Array, "I n"]
    bias: Float[Array, " I"]

    def __call__(self, encoding: Float[Array, " n"]) -> Float[Array, " I"]:
        return self.weights @ encoding + self.bias

    def squares(self) -> Float[Array, ""]:
        """Sum the squares of what the l2 penalty is on: weights, not biases."""
        return jnp.sum(self.weights**2)


class FreeParams(eqx.Module):
    """Feature extractor and classifier, trained together in the second stage."""

    network: MaxoutMLP
    head: SoftmaxHead

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " I"]:
        return self.head(self.network(context))

    def squares(self) -> Float[Array, ""]:
        layers = (*self.network.hidden, self.network.output)
        return sum(jnp.sum(layer.matrix**2) for layer in layers) + self.head.squares()


@dataclass(frozen=True)
class FreeLoss:
    """Cross-entropy of the instance plus the l2 penalty (eq. obj): of a head on encodings, or of both on contexts."""

    batch: int
    penalty: float

    def __call__(self, params: SoftmaxHead | FreeParams, rows: LabelledRows, key: PRNGKeyArray) -> Float[Array, ""]:
        index = jr.randint(key, (self.batch,), 0, rows.rows)
        logits = jax.vmap(params)(rows.inputs[index])
        chosen = jnp.take_along_axis(logits, rows.instance[index][:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen) + 0.5 * self.penalty * params.squares()


@dataclass(frozen=True)
class PaperRecipe(EncoderRecipe):
    """The paper's own recipe, under its own name (app:training, "Training details for LVM").

    An MLP of `layers` layers whose hidden width is `width` times the latent dimension (printed: 1; the released code
    uses 2), a free softmax head, first the head alone and then both, SGD with momentum and weight averaging. The number
    of steps, the batch and the penalty are not printed and are those of the released code, which whitens contexts, or
    scales them to [0, 1] for ADCB (`scaling`). The cost of a step grows with the number of instances.
    """

    layers: int = 2
    width: int = 1
    batch: int = 512
    penalty: float = 1e-4
    scaling: Scaling = field(default_factory=Whitened)
    head_training: Schedule = field(
        default_factory=lambda: Schedule(10_000, MomentumSGD(0.01, 0.9), averaging=0.9999, score_every=1000)
    )
    training: Schedule = field(
        default_factory=lambda: Schedule(20_000, MomentumSGD(0.01, 0.9), averaging=0.9999, score_every=500)
    )

    def shortened(self, effort: float) -> PaperRecipe:
        """Train with `effort` times the steps, for a look in passing."""
        head, whole = self.head_training.shortened(effort), self.training.shortened(effort)
        return replace(self, head_training=head, training=whole)

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        """Train one encoder for each key and table of logs: two stages, two calls of `minimise_many`."""
        whitenings = [self.scaling.fit(table.context) for table in logs]
        keys_network, keys_head, keys_step = split_each(keys, 3)
        hidden = [self.width * latent_dim] * (self.layers - 1)
        inputs = len(whitenings[0].shift)
        networks = jax.vmap(lambda key: random_maxout_mlp(key, inputs, hidden, latent_dim))(keys_network)
        instances = max(table.instances for table in logs)
        heads = stack([SoftmaxHead(jnp.zeros((instances, latent_dim)), jnp.zeros(instances))] * len(logs))
        rows = _stack_rows(whitenings, logs)
        encodings = rows._replace(inputs=jax.vmap(encode_rows)(networks, jnp.asarray(rows.inputs)))
        loss = FreeLoss(self.batch, self.penalty)
        head = minimise_many(keys_head, loss, heads, encodings, self.head_training, report=report)
        if head.interrupted:  # the networks are still those that were drawn
            raise KeyboardInterrupt
        start = FreeParams(networks, head.params)
        result = minimise_many(keys_step, loss, start, rows, self.training, report=report)
        return [
            TrainedEncoder.of(ComposedEncoder(whitening, run.params.network), run)
            for whitening, run in zip(whitenings, result.runs(), strict=True)
        ]


def _stack_rows(whitenings: Sequence[Affine], logs: Sequence[Logs]) -> LabelledRows:
    """Lay out the whitened contexts of many runs, padded to the longest."""
    most = max(table.rows for table in logs)
    return stack(
        [
            LabelledRows(
                pad_rows(apply_scaling(whitening, table), most),
                pad_rows(table.instance, most),
                np.asarray(table.rows),
            )
            for whitening, table in zip(whitenings, logs, strict=True)
        ]
    )
