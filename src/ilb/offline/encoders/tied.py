r"""TiedRecipe: mean-contrastive learning with tied prototypes (eq. NN_prob, eq. obj, and one step beyond).

Under the paper's assumptions the contexts of instance c have encodings $f(x) \sim N(z_c, 1)$ in a suitable basis, so
the optimal logits of eq. NN_prob are Gaussian log-densities: $q_c(x) = f(x)^\top w_c - |w_c|^2 / 2$ plus terms without
c. The bias is tied to the prototype $w_c$, and the prototype need not be a parameter at all: it is the belief about
$z_c$ after the other encodings of c in the batch. A step then costs the same for a hundred instances and for a hundred
thousand, and nothing that is learned belongs to a particular instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.models.latent import canonical_basis
from ilb.networks import Affine, ComposedEncoder, MaxoutMLP, padded_size, random_maxout_mlp
from ilb.offline.encoders.recipe import EncoderRecipe, TrainedEncoder
from ilb.offline.encodings import Unseen, encode_contexts, measure_scatter
from ilb.offline.scaling import apply_scaling, fit_whitening
from ilb.offline.training import (
    CosineAdam,
    Keys,
    Minimised,
    Schedule,
    draw_held_out,
    hold_out_each,
    minimise_many,
    pad_rows,
    split_each,
    stack,
)
from ilb.types import Report, silent

MOST_FOLDS = 10
"""Trainings, the main one included, on which it is measured how encodings vary within people that were left out."""


class Histories(NamedTuple):
    """Whitened contexts of many instances, end to end; arrays are padded, so that similar sizes share a compilation."""

    context: Float[Array | np.ndarray, "rows d"]
    start: Int[Array | np.ndarray, " instances"]
    length: Int[Array | np.ndarray, " instances"]
    instances: Int[Array | np.ndarray, ""]


def pad_histories(
    context: Float[np.ndarray, "rows d"], lengths: Int[np.ndarray, " instances"], like: tuple[int, int] = (0, 0)
) -> Histories:
    """Lay contexts (sorted by instance) out for drawing, with room for `like` rows and instances at least."""
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    rows, instances = padded_size(max(len(context), like[0])), padded_size(max(len(lengths), like[1]))
    return Histories(
        pad_rows(context, rows),
        # What is no instance begins after every row, so that starts can be searched.
        pad_rows(starts, instances, fill=np.iinfo(np.int32).max).astype(np.int32),
        pad_rows(lengths, instances).astype(np.int32),
        np.asarray(len(lengths), dtype=np.int32),
    )


class Batch(NamedTuple):
    """A batch: some rows of some instances. Draws that repeat are marked as not `fresh` and count for nothing."""

    context: Float[Array | np.ndarray, "C m d"]
    fresh: Bool[Array | np.ndarray, "C m"]
    rival: Bool[Array | np.ndarray, "C C"]


def draw_batch(key: PRNGKeyArray, histories: Histories, instances: int, rows: int, by_length: bool = False) -> Batch:
    """Draw `rows` rows of each of `instances` instances, at a cost that does not depend on the size of the logs.

    Instances have equal chances, or, `by_length`, chances in proportion to their rows. Equal chances have the few rows
    of a short history visited over and over, until the network knows them by heart.
    """
    # All randomness in one call: it is most of what a compiler would otherwise have to work through.
    numbers = jr.uniform(key, (instances + 1, rows + 2))
    context, start, length, count = (jnp.asarray(part) for part in histories)
    if by_length:
        total = start[count - 1] + length[count - 1]
        drawn = _stratified(numbers[:-1, rows], numbers[-1, 0], total)
        chosen = jnp.searchsorted(start, drawn, side="right") - 1
    else:
        chosen = _stratified(numbers[:-1, rows], numbers[-1, 0], count)
    row = jax.vmap(_stratified)(numbers[:-1, :rows], numbers[:-1, rows + 1], length[chosen])
    fresh = ~_repeats_earlier(chosen)
    return Batch(
        context[start[chosen][:, None] + row],
        fresh[:, None] & ~jax.vmap(_repeats_earlier)(row),
        fresh[None, :] & (chosen[:, None] != chosen[None, :]),
    )


def _stratified(
    offsets: Float[Array, " size"], rotation: Float[Array, ""], count: Int[Array, ""]
) -> Int[Array, " size"]:
    """Draw indices below `count`, one from each stratum of a rotated range: few repeats, if any."""
    size = offsets.shape[0]
    drawn = jnp.floor((jnp.arange(size) + offsets) * (count / size)).astype(jnp.int32)
    whole = jnp.maximum(count, 1)
    return (drawn + jnp.floor(rotation * whole).astype(jnp.int32)) % whole


def _repeats_earlier(values: Int[Array, " size"]) -> Bool[Array, " size"]:
    same = values[:, None] == values[None, :]
    return jnp.any(jnp.tril(same, k=-1), axis=1)


class TiedParams(eqx.Module):
    r"""The network f and the population of latent states, $z \sim N(m, 1/\lambda)$ in units of the noise of f(x)."""

    network: MaxoutMLP
    population_mean: Float[Array, " n"]
    log_population_precision: Float[Array, " n"]

    def losses(self, batch: Batch) -> Float[Array, "C m"]:
        """Score each context of a batch: minus the log-probability of its instance."""
        encodings = jax.vmap(jax.vmap(self.network))(jnp.asarray(batch.context))
        return contrastive_losses(encodings, batch, self.population_mean, jnp.exp(self.log_population_precision))


@dataclass(frozen=True)
class TiedContrast:
    """The loss: minus the log-probability of the true instance among the instances of a batch."""

    instances: int = 32
    rows: int = 16
    by_length: bool = False

    def __call__(self, params: TiedParams, histories: Histories, key: PRNGKeyArray) -> Float[Array, ""]:
        batch = draw_batch(key, histories, self.instances, self.rows, self.by_length)
        losses = params.losses(batch)
        # A row that is alone in its instance has no belief to be matched with: it only serves as a rival.
        counted = batch.fresh & (batch.fresh.sum(axis=1, keepdims=True) > 1)
        return jnp.sum(jnp.where(counted, losses, 0.0)) / jnp.maximum(counted.sum(), 1)


def contrastive_losses(
    encodings: Float[Array, "C m n"],
    batch: Batch,
    population_mean: Float[Array, " n"],
    population_precision: Float[Array, " n"],
) -> Float[Array, "C m"]:
    r"""Score each encoding against the beliefs about every instance of the batch (eq. obj with Gaussian logits).

    After s encodings that sum to S the belief about $z_c$ has precision $s + \lambda$ and mean
    $(S + \lambda m) / (s + \lambda)$, and a further encoding has that mean and variance $1 + 1 / (s + \lambda)$. The
    j-th encoding of an instance meets beliefs that leave out the j-th encoding of *every* instance: were it left out of
    its own alone, the true instance would stand out by its smaller s, and the truth would not be the optimum.
    """
    fresh = batch.fresh[..., None]
    kept = jnp.where(fresh, encodings, 0.0)
    prior = population_precision[None, None, :]
    precision = fresh.sum(axis=1, keepdims=True) - fresh + prior
    mean = (kept.sum(axis=1, keepdims=True) - kept + prior * population_mean[None, None, :]) / precision
    variance = 1 + 1 / precision
    # |x - mean|^2 / variance expanded, so that all pairs of encodings and instances are one product of matrices.
    features = jnp.concatenate([encodings**2, encodings], axis=-1)
    weights = jnp.concatenate([1 / variance, -2 * mean / variance], axis=-1)
    constant = (mean**2 / variance + jnp.log(variance)).sum(axis=-1)
    logits = -0.5 * (jnp.einsum("cjf,kjf->cjk", features, weights) + constant.T[None])
    instances = jnp.arange(len(encodings))
    own = logits[instances, :, instances]
    competing = batch.rival | jnp.eye(len(encodings), dtype=bool)
    return jax.nn.logsumexp(jnp.where(competing[:, None, :], logits, -jnp.inf), axis=-1) - own


@dataclass(frozen=True)
class TiedRecipe(EncoderRecipe):
    """Mean-contrastive learning with tied prototypes: more accurate and far cheaper than the paper's recipe.

    `width` is the width of hidden layers in multiples of the latent dimension. The encoder comes out in a canonical
    basis: noise of covariance one, a centred population with uncorrelated coordinates, the widest first.
    `validation_share` of the instances are held out to keep the best parameters; they are used only when there are
    fewer than `ample_rows` rows, since more rows than that leave these networks no room to overfit. With so few rows
    `cross_fit` repeats the training without other people, to measure how encodings vary within people not seen. Arrays
    have `room` for so many rows and instances at least: a training on a part then shares the program of the whole.
    Contexts that are a deeper function of the latent state deserve more layers and steps: `TiedRecipe.deep()`.
    """

    layers: int = 3
    width: int = 4
    instances_per_batch: int = 32
    rows_per_instance: int = 32
    validation_share: float = 0.1
    ample_rows: int = 10_000
    cross_fit: bool = True
    room: tuple[int, int] = (0, 0)
    training: Schedule = field(
        default_factory=lambda: Schedule(steps=1200, optimiser=CosineAdam(0.03), score_every=100)
    )

    @classmethod
    def deep(cls) -> TiedRecipe:
        """The same for contexts that are a deeper function of the latent state: a layer more, thrice the work."""
        return cls(layers=4, training=Schedule(steps=3000, optimiser=CosineAdam(0.03), score_every=100))

    def without_cross_fit(self, room: tuple[int, int] = (0, 0)) -> TiedRecipe:
        return replace(self, cross_fit=False, room=room)

    def shortened(self, effort: float) -> TiedRecipe:
        """Train with `effort` times the steps, for a look in passing."""
        return replace(self, training=self.training.shortened(effort))

    def train(self, keys: Keys, logs: Sequence[Logs], latent_dim: int, report: Report = silent) -> list[TrainedEncoder]:
        whitenings = [fit_whitening(table.context) for table in logs]
        result = self._minimise(keys, logs, whitenings, latent_dim, report)
        inflations, interrupted = self._inflations(keys, logs, whitenings, latent_dim, result)
        result = result._replace(interrupted=interrupted)
        return [
            TrainedEncoder.of(_canonical(whitening, run.params.network, table), run, inflation)
            for whitening, run, table, inflation in zip(whitenings, result.runs(), logs, inflations, strict=True)
        ]

    def _inflations(
        self, keys: Keys, logs: Sequence[Logs], whitenings: Sequence[Affine], latent_dim: int, result: Minimised
    ) -> tuple[list[tuple[float, ...]], bool]:
        """Measure how much wider encodings vary within people that were not trained on, where rows are not ample.

        Those held out are few, so the training is repeated without others, as far as the step whose parameters it gave.
        Also say whether any of the trainings was interrupted: the encoder is there then, and less is known of it.
        """
        numbers = [self._held_out(table) for table in logs]
        if not self.cross_fit or not any(numbers) or result.interrupted:
            return [()] * len(logs), result.interrupted
        steps = np.asarray(result.best_step)
        # Early steps are cheap to repeat; where the last ones are the best there is little to correct.
        affordable = np.clip(1 + self.training.steps // np.maximum(steps, 1), 3, MOST_FOLDS)
        folds = [
            min(few, table.instances // number) if number else 0
            for few, table, number in zip(affordable, logs, numbers, strict=True)
        ]
        keys_split = split_each(keys, 3)[0]
        measured: list[list[Unseen]] = [[] for _ in logs]
        for fold in range(max(folds)):
            if fold:
                stops = np.where(np.array(folds) > fold, steps, 0)
                try:
                    result = self._minimise(keys, logs, whitenings, latent_dim, silent, fold, stops)
                except KeyboardInterrupt:
                    result = result._replace(interrupted=True)
            if result.interrupted:  # whoever interrupts does not want to wait
                break
            for run, (part, table, number) in enumerate(zip(result.runs(), logs, numbers, strict=True)):
                if fold < folds[run]:
                    encoder = ComposedEncoder(whitenings[run], part.params.network)
                    held = draw_held_out(keys_split[run], table.instances, number, fold)
                    encodings = encode_contexts(encoder, table.context).astype(np.float64)
                    measured[run].append(Unseen.measure(encodings, table.starts, held))
        inflations = [(Unseen.pooled(parts, latent_dim),) * latent_dim if parts else () for parts in measured]
        return inflations, result.interrupted

    def train_params(self, keys: Keys, logs: Sequence[Logs], latent_dim: int) -> list[TiedParams]:
        """Train, and give the parameters of the loss itself, which score held-out instances."""
        whitenings = [fit_whitening(table.context) for table in logs]
        result = self._minimise(keys, logs, whitenings, latent_dim, silent)
        if result.interrupted:  # half-trained parameters must not be compared with whole ones
            raise KeyboardInterrupt
        return [run.params for run in result.runs()]

    def _minimise(
        self,
        keys: Keys,
        logs: Sequence[Logs],
        whitenings: Sequence[Affine],
        latent_dim: int,
        report: Report,
        fold: int = 0,
        stops: Int[np.ndarray, " runs"] | None = None,
    ) -> Minimised:
        keys_split, keys_network, keys_step = split_each(keys, 3)
        kept, held = hold_out_each(keys_split, logs, [self._held_out(table) for table in logs], fold)
        training = _stack_histories(whitenings, kept, self.room)
        validation = None if held is None else _stack_histories(whitenings, held)
        hidden = (self.width * latent_dim,) * (self.layers - 1)
        params = _start(hidden, keys_network, len(whitenings[0].shift), latent_dim)
        loss = self._loss(kept)
        return minimise_many(
            keys_step, loss, params, training, self.training, validation=validation, report=report, stops=stops
        )

    def _held_out(self, logs: Logs) -> int:
        number = round(self.validation_share * logs.instances)
        return 0 if number < 2 or logs.rows >= self.ample_rows else number

    def _loss(self, logs: Sequence[Logs]) -> TiedContrast:
        """Fit the shape of a batch to the logs: few instances or short histories would only be drawn repeatedly."""
        longest = max(int(table.lengths.max()) for table in logs)
        if longest < 2:
            raise FitError(
                "every instance has a single row, so nothing tells noise from the latent state. "
                "Mean-contrastive learning needs at least two contexts of some instances."
            )
        rows = min(self.rows_per_instance, longest)
        instances = self.instances_per_batch * self.rows_per_instance // rows
        unequal = any(np.ptp(table.lengths) > 0 for table in logs)
        return TiedContrast(min(instances, max(table.instances for table in logs)), rows, unequal)


@partial(jax.jit, static_argnums=(0, 2, 3))
def _start(hidden: tuple[int, ...], keys: Keys, width: int, latent_dim: int) -> TiedParams:
    """Draw a network for each key; of the population nothing is assumed but that it is as wide as the noise."""

    def start_one(key: PRNGKeyArray) -> TiedParams:
        network = random_maxout_mlp(key, width, hidden, latent_dim)
        return TiedParams(network, jnp.zeros(latent_dim), jnp.zeros(latent_dim))

    return jax.vmap(start_one)(keys)


def _stack_histories(whitenings: Sequence[Affine], logs: Sequence[Logs], room: tuple[int, int] = (0, 0)) -> Histories:
    sizes = (max(room[0], *(table.rows for table in logs)), max(room[1], *(table.instances for table in logs)))
    contexts = [apply_scaling(whitening, table) for whitening, table in zip(whitenings, logs, strict=True)]
    return stack([pad_histories(rows, table.lengths, sizes) for rows, table in zip(contexts, logs, strict=True)])


def _canonical(whitening: Affine, network: MaxoutMLP, logs: Logs) -> ComposedEncoder:
    """Turn the basis so that noise has covariance one and the population is centred, uncorrelated and ordered."""
    scatter = measure_scatter(encode_contexts(ComposedEncoder(whitening, network), logs.context), logs.starts)
    matrix = canonical_basis(scatter.encoding_covariance, scatter.population_covariance).matrix[:, ::-1]
    signs = np.where(matrix[np.abs(matrix).argmax(axis=0), np.arange(len(matrix))] < 0, -1.0, 1.0)
    matrix = matrix * signs
    shift = -scatter.population_mean @ matrix
    basis = Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(shift, jnp.float32))
    return ComposedEncoder(whitening, network.then(basis))
