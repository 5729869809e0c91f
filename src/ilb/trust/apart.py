"""Checks of whether contexts show who a person is, and whether a single column gives that away."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ilb.estimates import Estimate
from ilb.logs.messages import shown
from ilb.models.latent import canonical_basis
from ilb.offline.encoders.tied import Batch, contrastive_losses
from ilb.offline.encodings import measure_scatter
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut, Part

SHUFFLES = 99
"""Times that rows are shuffled among people."""

MOST_COMPARED, MOST_ROWS = 64, 32
"""People of each part who are told apart from each other, and rows of each."""

MOST_APART = 1e4
"""A variance of people, in units of the noise of one row, that tells them apart as surely as can be."""

NO_CONTEXTS = "The model reads no contexts: it knows people by their rewards alone."


def check_people_apart(held: HeldOut) -> Check:
    """Ask whether contexts tell people apart whom the encoder has not seen."""
    question, bar = "Do contexts tell people apart?", "95 of 100 shuffles"
    if not held.model.encoded_dim:
        return Check("people apart", question, "-", bar, Verdict.FINE, NO_CONTEXTS)
    if not np.any(held.logs.lengths >= 2):
        said = "Nobody has two rows, so contexts of one person can't be told from those of others."
        return Check("people apart", question, "-", bar, Verdict.DOUBTFUL, said, "Histories of two rows and more.")
    gain = Estimate.of(contrastive_gains(held, held.encodings))
    rng = held.rng(1)
    shuffled = np.array([contrastive_gains(held, held.encodings, rng).mean() for _ in range(SHUFFLES)])
    limit = float(np.quantile(shuffled, 0.95))
    verdict = Verdict.FINE if gain.value > max(limit, 0.0) else Verdict.BROKEN
    said = "better than" if verdict is Verdict.FINE else "no better than"
    return Check(
        "people apart",
        question,
        f"{gain.value:+.3f} ± {gain.standard_error:.3f} nats a row over chance",
        f"{limit:+.3f}, {bar}",
        verdict,
        f"From its encoding alone, a row is matched with the right one of {MOST_COMPARED} people or fewer {said} where "
        f"rows are shuffled among people ({shuffled.mean():+.3f}).",
        ""
        if verdict is Verdict.FINE
        else "These contexts say nothing of who a person is, or rows carry the wrong person. Check the column that "
        "says who; else use other contexts, or a model of rewards alone (recipe=NoEncoding(), --recipe none).",
        {"gain": gain.value, "standard_error": gain.standard_error, "shuffled": shuffled.tolist()},
    )


def contrastive_gains(
    held: HeldOut,
    encodings: Float[np.ndarray, "rows n"],
    shuffle: np.random.Generator | None = None,
    parts: Sequence[Part] | None = None,
) -> Float[np.ndarray, " compared"]:
    """Give the log-probability of the right person over chance, averaged over the rows of each person compared.

    People are compared within their part, whose encodings come from one fit. With `shuffle`, rows are dealt anew.
    """
    gains = []
    for part in held.parts if parts is None else parts:
        rows = held.rows_of(part.people)
        table = held.logs.select(part.people)
        theirs = encodings[rows]
        if shuffle is not None:
            theirs = theirs[shuffle.permutation(len(theirs))]
        gains.append(_gains(theirs, table.starts))
    return np.concatenate(gains)


def _gains(encodings: Float[np.ndarray, "rows n"], starts: np.ndarray) -> Float[np.ndarray, " compared"]:
    lengths = np.diff(starts)
    chosen = np.flatnonzero(lengths >= 2)[:MOST_COMPARED]
    if len(chosen) < 2:
        return np.zeros(0)
    scatter = measure_scatter(encodings, starts)
    basis = canonical_basis(scatter.encoding_covariance, scatter.population_covariance)
    offsets = np.arange(min(MOST_ROWS, int(lengths[chosen].max())))
    real = offsets < lengths[chosen][:, None]
    index = np.where(real, starts[chosen][:, None] + offsets, 0)
    batch = Batch(np.zeros((*index.shape, 0)), real, ~np.eye(len(chosen), dtype=bool))
    # A column that stands still has no noise; without a bound distances would be lost in rounding.
    narrower = np.sqrt(np.maximum(basis.population_variances / MOST_APART, 1.0))
    placed = (encodings - scatter.population_mean) @ (basis.matrix / narrower)
    precision = 1 / np.clip(basis.population_variances, 1e-4, MOST_APART)
    zero = jnp.zeros(placed.shape[1])
    laid_out, precisions = (jnp.asarray(part, jnp.float32) for part in (placed[index], precision))
    losses = np.asarray(_losses(laid_out, batch, zero, precisions))
    return np.asarray(np.log(len(chosen)) - np.sum(np.where(real, losses, 0.0), axis=1) / real.sum(axis=1))


_losses = jax.jit(contrastive_losses)


STILL = 0.02
"""Under this share of its variance inside people, a column tells nearly who it is."""


def check_fingerprints(held: HeldOut) -> Check:
    """Ask whether a column gives people away, so that the encoder need not learn anything else."""
    question, bar = "Is a column a fingerprint?", f"{STILL:.0%} of its variance within people"
    if not held.model.encoded_dim:
        return Check("fingerprints", question, "-", bar, Verdict.FINE, NO_CONTEXTS)
    context, people = held.logs.context, held.logs.instances
    within = _within_shares(held)
    blocks, start = {}, 0
    for column in held.logs.schema.context:
        blocks[column.name] = np.arange(start, start + len(column.names))
        start += len(column.names)
    still = {name: float(within[part].min()) for name, part in blocks.items() if within[part].min() < STILL}
    gain = float(contrastive_gains(held, held.encodings).mean())

    def lost_without(names: Sequence[str]) -> float:
        without, columns = context.copy(), np.concatenate([blocks[name] for name in names])
        without[:, columns] = context[:, columns].mean(axis=0)
        left = float(contrastive_gains(held, held.encode(without)).mean())
        return float(np.clip(1 - left / gain, 0.0, 1.0)) if gain > 0 else 0.0

    lost = {name: lost_without([name]) for name in still}
    together = lost_without(list(still)) if still else 0.0
    numbers = {
        "within": dict(zip(held.logs.schema.names, within.tolist(), strict=True)),
        "lost": lost,
        "lost_together": together,
    }
    leading = [name for name in still if lost[name] > 0.5] or (list(still) if together > 0.5 else [])
    levels = {
        name: np.round(held.mean_by_person(context[:, blocks[name][0]].astype(np.float64)), 4) for name in leading
    }
    unique = [name for name in leading if len(np.unique(levels[name])) > people / 2]
    if not still:
        least = float(np.min(within, initial=1.0))
        said = f"Every column varies within people: the stillest has {least:.0%} of its variance there."
        return Check("fingerprints", question, f"{least:.0%} within people", bar, Verdict.FINE, said, "", numbers)
    figure = ", ".join(f"{name}: {share:.1%}" for name, share in list(still.items())[:3])
    listed = ", ".join(f"{name!r} ({lost[name]:.0%})" for name in still)
    said = (
        "These columns stand (nearly) still within people; beside each, how much of what tells them apart is lost "
        f"without it: {listed}; without all of them {together:.0%}."
    )
    remedy = f"Leave them out and see whether rewards are predicted as well: drop={leading!r}, {_drops(leading)}."
    if not held.learned or not leading:
        said += (
            " The state does not rest on them alone."
            if held.learned
            else " No encoder was trained on them here, so that does no harm."
        )
        return Check("fingerprints", question, figure, bar, Verdict.FINE, said, "", numbers)
    verdict = Verdict.BROKEN if unique else Verdict.DOUBTFUL
    said += f" The encoder tells people apart mostly by {shown(leading)}, and may have learned nothing else."
    return Check("fingerprints", question, figure, bar, verdict, said, remedy, numbers)


def _drops(names: Sequence[str]) -> str:
    return " ".join(f"--drop {shlex.quote(name)}" for name in names)


def _within_shares(held: HeldOut) -> Float[np.ndarray, " d"]:
    """Give the share of each column's variance that is within people; 1 for a column that never varies."""
    context = held.logs.context.astype(np.float64)
    total = context.var(axis=0)
    rows, people = held.logs.rows, held.logs.instances
    inside = np.sum(held.centred(context) ** 2, axis=0) / max(rows - people, 1)
    return np.asarray(np.where(total > 1e-12, inside / np.maximum(total, 1e-12), 1.0))
