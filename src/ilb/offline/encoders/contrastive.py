r"""Mean-contrastive learning with tied prototypes: the default encoder (eq. NN_prob, eq. obj, and one step beyond).

Under the paper's assumptions the contexts of instance c have encodings $f(x) \sim N(z_c, 1)$ in a suitable basis, so
the optimal logits of eq. NN_prob are Gaussian log-densities: $q_c(x) = f(x)^\top w_c - |w_c|^2 / 2$ plus terms without
c. The bias is tied to the prototype $w_c$, and the prototype need not be a parameter at all: it is the belief about
$z_c$ after the other encodings of c in the batch. A step then costs the same for a hundred instances and for a hundred
thousand, and nothing that is learned belongs to a particular instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ilb.networks import MaxoutMLP, padded_size


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
        np.pad(context, ((0, rows - len(context)), (0, 0))),
        np.pad(starts, (0, instances - len(starts))).astype(np.int32),
        np.pad(lengths, (0, instances - len(lengths))).astype(np.int32),
        np.asarray(len(lengths), dtype=np.int32),
    )


class Episode(NamedTuple):
    """A batch: some rows of some instances. Draws that repeat are marked as not `fresh` and count for nothing."""

    context: Float[Array | np.ndarray, "C m d"]
    fresh: Bool[Array | np.ndarray, "C m"]
    rival: Bool[Array | np.ndarray, "C C"]


def draw_episode(key: PRNGKeyArray, histories: Histories, instances: int, rows: int) -> Episode:
    """Draw `rows` rows of each of `instances` instances, at a cost that does not depend on the size of the logs."""
    # All randomness in one call: it is most of what a compiler would otherwise have to work through.
    numbers = jr.uniform(key, (instances + 1, rows + 2))
    context, start, length, count = (jnp.asarray(part) for part in histories)
    chosen = _stratified(numbers[:-1, rows], numbers[-1, 0], count)
    row = jax.vmap(_stratified)(numbers[:-1, :rows], numbers[:-1, rows + 1], length[chosen])
    fresh = ~_repeats_earlier(chosen)
    return Episode(
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


@dataclass(frozen=True)
class TiedContrast:
    """The loss: minus the log-probability of the true instance among the instances of a batch."""

    instances: int = 32
    rows: int = 16

    def __call__(self, params: TiedParams, histories: Histories, key: PRNGKeyArray) -> Float[Array, ""]:
        """Draw an episode and score it."""
        episode = draw_episode(key, histories, self.instances, self.rows)
        encodings = jax.vmap(jax.vmap(params.network))(jnp.asarray(episode.context))
        losses = contrastive_losses(
            encodings, episode, params.population_mean, jnp.exp(params.log_population_precision)
        )
        # A row that is alone in its instance has no belief to be matched with: it only serves as a rival.
        counted = episode.fresh & (episode.fresh.sum(axis=1, keepdims=True) > 1)
        return jnp.sum(jnp.where(counted, losses, 0.0)) / jnp.maximum(counted.sum(), 1)


def contrastive_losses(
    encodings: Float[Array, "C m n"],
    episode: Episode,
    population_mean: Float[Array, " n"],
    population_precision: Float[Array, " n"],
) -> Float[Array, "C m"]:
    r"""Score each encoding against the beliefs about every instance of the episode (eq. obj with Gaussian logits).

    After s encodings that sum to S the belief about $z_c$ has precision $s + \lambda$ and mean
    $(S + \lambda m) / (s + \lambda)$, and a further encoding has that mean and variance $1 + 1 / (s + \lambda)$. The
    j-th encoding of an instance meets beliefs that leave out the j-th encoding of *every* instance: were it left out of
    its own alone, the true instance would stand out by its smaller s, and the truth would not be the optimum.
    """
    fresh = episode.fresh[..., None]
    kept = jnp.where(fresh, encodings, 0.0)
    precision = fresh.sum(axis=1, keepdims=True) - fresh + population_precision
    mean = (kept.sum(axis=1, keepdims=True) - kept + population_precision * population_mean) / precision
    variance = 1 + 1 / precision
    # |x - mean|^2 / variance expanded, so that all pairs of encodings and instances are one product of matrices.
    features = jnp.concatenate([encodings**2, encodings], axis=-1)
    weights = jnp.concatenate([1 / variance, -2 * mean / variance], axis=-1)
    constant = (mean**2 / variance + jnp.log(variance)).sum(axis=-1)
    logits = -0.5 * (jnp.einsum("cjf,kjf->cjk", features, weights) + constant.T)
    instances = jnp.arange(len(encodings))
    own = logits[instances, :, instances]
    competing = episode.rival | jnp.eye(len(encodings), dtype=bool)
    return jax.nn.logsumexp(jnp.where(competing[:, None, :], logits, -jnp.inf), axis=-1) - own
