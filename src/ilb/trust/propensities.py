"""How likely each logged action was: given by the table, or estimated from who was given what, and when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import gammaln, log_softmax

from ilb.errors import LogsError
from ilb.logs import Logs

SMALLEST = 0.02
"""Propensities below this are taken for this: one row would count for more than fifty."""

MOST_OFTEN = 0.01
"""The moment is taken into account if chance would make it matter as much in fewer than one of a hundred tables."""

ROWS, COLUMNS = 20_000, 50
"""Rows and columns that the moment is judged on."""


class Propensities(NamedTuple):
    """The probability of each row's action, and in words where it comes from.

    `shares` are the probabilities of all actions for each person, whatever the moment.
    """

    logged: Float[np.ndarray, " N"]
    shares: Float[np.ndarray, "I K"]
    source: str
    by_moment: bool


def take_out(logs: Logs, column: str) -> tuple[Logs, Float[np.ndarray, " N"]]:
    """Take the propensity out of the context columns: it is about the action, and no policy may read it."""
    for name, block in ((one.name, one.decode(part)) for one, part in logs.schema.blocks(logs.context)):
        if name == column:
            values = np.array([np.nan if value is None else value for value in block], np.float64)
            bad = logs.rewarded & ~((values > 0) & (values <= 1 + 1e-6))
            if np.any(bad):
                shown = values[np.flatnonzero(bad)[0]]
                raise LogsError(
                    f"column {column!r} must hold the probability with which each row's action was taken, above 0 and "
                    f"at most 1; {int(bad.sum()):,} rows with a reward do not, such as {shown:g}."
                )
            return logs.without(column), np.minimum(values, 1.0)
    raise LogsError(f"there is no column {column!r} for the propensity among {', '.join(logs.schema.names) or 'none'}.")


def given(logs: Logs, propensity: Float[np.ndarray, " N"]) -> Propensities:
    """Take propensities as the table has them."""
    floor = np.clip(np.nan_to_num(propensity, nan=1.0), SMALLEST, 1.0)
    return Propensities(floor, person_shares(logs), "given", by_moment=True)


def estimate(logs: Logs) -> Propensities:
    """Estimate them from how often each person had each action, and from the context at hand where that matters."""
    shares = person_shares(logs)
    rows = np.flatnonzero(logs.rewarded)
    person, action = logs.instance[rows], logs.action[rows]
    offsets = np.log(shares)[person]
    moved = _moment_offsets(logs, rows, offsets, action)
    chances = log_softmax(offsets if moved is None else moved, axis=1)
    logged = np.ones(logs.rows)
    logged[rows] = np.maximum(np.exp(chances[np.arange(len(rows)), action]), SMALLEST)
    source = "estimated by person" if moved is None else "estimated by person and moment"
    return Propensities(logged, shares, source, by_moment=moved is not None)


def person_shares(logs: Logs) -> Float[np.ndarray, "I K"]:
    """Give the share of each action for each person, drawn towards those of all as far as people are alike."""
    pulls, overall, weight = _habits(logs)
    return np.asarray((pulls + weight * overall) / (pulls.sum(axis=1) + weight)[:, None])


def shares_so_far(logs: Logs) -> Float[np.ndarray, " rewards"]:
    """Give for each row with a reward the share of its action in the person's rows before it, drawn towards all's.

    Whoever logs may react to a reward: what was done after it would say how good it was.
    """
    _, overall, weight = _habits(logs)
    rows = np.flatnonzero(logs.rewarded)
    person, action = logs.instance[rows].astype(np.int64), logs.action[rows].astype(np.int64)
    same, before = (_places(group) for group in (person * logs.actions + action, person))
    return np.asarray((same + weight * overall[action]) / (before + weight))


def _places(group: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
    """Count the rows of the same group before each row.

    >>> _places(np.array([5, 2, 5, 5, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0])
    places = np.empty(len(group), dtype=np.int64)
    places[order] = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    return places


def _habits(logs: Logs) -> tuple[Float[np.ndarray, "I K"], Float[np.ndarray, " K"], float]:
    """Count actions by person, give the share of each over all, and for how many rows of a person that counts.

    How many is told by the likelihood of a Dirichlet-multinomial.
    """
    rows = np.flatnonzero(logs.rewarded)
    cell = logs.instance[rows].astype(np.int64) * logs.actions + logs.action[rows]
    pulls = np.bincount(cell, minlength=logs.instances * logs.actions).reshape(-1, logs.actions).astype(np.float64)
    overall = (pulls.sum(axis=0) + 0.5) / (pulls.sum() + 0.5 * logs.actions)
    totals = pulls.sum(axis=1)

    def likelihood(weight: float) -> float:
        prior = weight * overall
        whole = gammaln(weight) - gammaln(weight + totals)
        return float(np.sum(whole + np.sum(gammaln(prior + pulls) - gammaln(prior), axis=1)))

    return pulls, overall, float(max(np.geomspace(0.3, 3e4, 41), key=likelihood))


def _moment_offsets(
    logs: Logs, rows: Int[np.ndarray, " rows"], offsets: Float[np.ndarray, "rows K"], action: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, "rows K"] | None:
    """Add to the logits what the context's deviation from the person's mean does, if it does anything."""
    columns = min(logs.width, COLUMNS)
    if not columns or logs.actions < 2:
        return None
    context = logs.context[rows, :columns].astype(np.float64)
    person = logs.instance[rows]
    count = np.maximum(np.bincount(person, minlength=logs.instances), 1)
    means = np.stack([np.bincount(person, column, logs.instances) / count for column in context.T], axis=1)
    deviation = context - means[person]
    spread = deviation.std(axis=0)
    deviation = deviation[:, spread > 1e-6] / spread[spread > 1e-6]
    if not deviation.shape[1]:
        return None
    used = np.random.default_rng(0).permutation(len(rows))[:ROWS]
    some, base, taken = deviation[used], offsets[used], np.eye(logs.actions)[action[used]]
    shape = (deviation.shape[1], logs.actions)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        logs_of = log_softmax(base + some @ weights, axis=1)
        slope = some.T @ (np.exp(logs_of) - taken) + weights
        return float(-(logs_of * taken).sum() + 0.5 * (weights**2).sum()), slope.ravel()

    start = np.zeros(shape).ravel()
    found = minimize(loss, start, jac=True, method="L-BFGS-B")
    gained = 2 * (loss(start)[0] - found.fun)
    from scipy.stats import chi2  # slow to import, and few need it

    if gained < chi2.ppf(1 - MOST_OFTEN, shape[0] * (logs.actions - 1)):
        return None
    return np.asarray(offsets + deviation @ found.x.reshape(shape))
