"""The check of noise: whether it is normal, and as large in one person as in another."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from ilb.estimates import Estimate, jackknife_sums
from ilb.trust.chance import ALARM, chance_of, shown_chance
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut

SHAPE, UNEQUAL = 0.03, 0.25
"""Departures worth a word: of the shape of noise from a normal's, and the spread over people of the log of its size."""


def check_noise(held: HeldOut) -> Check:
    """Ask whether noise is normal, and as large in one person as in another."""
    question, bar = "Is noise normal, and the same for everyone?", f"shape 1 ± {SHAPE:g}, spread {UNEQUAL:g}"
    rewarded = np.isfinite(held.residuals)
    parts = {"contexts": (held.encodings, np.ones(held.logs.rows, dtype=bool))} if held.model.encoded_dim else {}
    parts["rewards"] = (held.residuals[:, None], rewarded)
    numbers, said, odd = {}, [], []
    for what, (values, rows) in parts.items():
        shape = shape_of_noise(values[rows], held.logs.instance[rows])
        spread, chance = spread_of_noise(values[rows], held.logs.instance[rows], held.rng(4))
        numbers[what] = {"shape": shape.value, "spread": spread, "chance": chance}
        apart = f"spread of its size over people {spread:.2f} ({shown_chance(chance)})"
        said.append(f"{what}: shape {shape.text(2)} (1 is normal, less has heavy tails), {apart}")
        if abs(shape.value - 1) > max(3 * shape.standard_error, SHAPE):
            odd.append(f"the noise of {what} is not normal")
        if spread > UNEQUAL and chance < ALARM:
            odd.append(f"the noise of {what} differs between people")
    worst = max(numbers.values(), key=lambda one: abs(one["shape"] - 1))
    figure = f"shape {worst['shape']:.2f}, spread {max(one['spread'] for one in numbers.values()):.2f}"
    sentence = f"Noise of {'; of '.join(said)}." + (f" So {' and '.join(odd)}." if odd else "")
    remedy = (
        "The state is then less exact than stated, and intervals are too wide for some and too narrow for others."
        if odd
        else ""
    )
    verdict = Verdict.DOUBTFUL if odd else Verdict.FINE
    return Check("noise", question, figure, bar, verdict, sentence, remedy, numbers)


def shape_of_noise(values: Float[np.ndarray, "rows n"], person: Int[np.ndarray, " rows"]) -> Estimate:
    """Compare the mean size of deviations within people with their root mean square; 1 is that of a normal.

    Sizes are those of each coordinate and of all together, which does not depend on the basis; the surest departure is
    given. Unlike the fourth moment, this has an error that can be trusted under heavy tails.
    """
    _, group, rows = np.unique(person, return_inverse=True, return_counts=True)
    kept = rows[group] > 2
    codes = np.unique(group[kept], return_inverse=True)[1]
    if len(codes) < 30 or not np.any(values):
        return Estimate(1.0, 0.0, 0)
    means = np.stack([np.bincount(group, weights=column) / rows for column in values.T], axis=1)
    left = (values - means[group])[kept] / np.sqrt(1 - 1 / rows[group][kept])[:, None]
    # Encodings never vary in some directions, such as the sum of the indicators of a category.
    left = left[:, np.any(left != 0, axis=0)]
    if not left.shape[1]:
        return Estimate(1.0, 0.0, 0)
    scaled = left / np.sqrt(np.mean(left**2, axis=0))
    variances, axes = np.linalg.eigh(scaled.T @ scaled / len(left))
    varying = variances > 1e-9
    together = np.linalg.norm(scaled @ axes[:, varying] / np.sqrt(variances[varying]), axis=1)
    estimates = [_shape(size, codes, 1) for size in np.abs(left).T] + [_shape(together, codes, int(varying.sum()))]
    return max(estimates, key=lambda one: abs(one.value - 1) / max(one.standard_error, 1e-12))


def _shape(size: Float[np.ndarray, " rows"], person: Int[np.ndarray, " rows"], dim: int) -> Estimate:
    """Give the mean of lengths over their root mean square, in units of what normal vectors of this dimension have."""
    normal = np.sqrt(2 / dim) * np.exp(gammaln((dim + 1) / 2) - gammaln(dim / 2))
    sums = np.stack([np.bincount(person, weights=weight) for weight in (np.ones(len(size)), size, size**2)], axis=1)

    def statistic(sums: np.ndarray) -> np.ndarray:
        count, total, square = np.moveaxis(sums, -1, 0)
        return np.asarray(total / np.sqrt(np.maximum(count * square, 1e-300)) / normal)

    return jackknife_sums(statistic, sums)


def spread_of_noise(
    values: Float[np.ndarray, "rows n"], person: Int[np.ndarray, " rows"], rng: np.random.Generator
) -> tuple[float, float]:
    """Measure by how much the (log) standard deviation within people differs between them, and the chance of it.

    Odd and even rows of a person measure it independently: only what people have in common with themselves covaries.
    """
    _, group, rows = np.unique(person, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    position = np.empty(len(group), dtype=np.int64)
    position[order] = np.arange(len(group)) - np.repeat(np.cumsum(rows) - rows, rows)
    kept = rows >= 6
    if kept.sum() < 8:
        return 0.0, 1.0
    logs = []
    for half in (0, 1):
        some = position % 2 == half
        count = np.bincount(group[some], minlength=len(rows))
        total = np.zeros(len(rows))
        for column in values.T:
            mean = np.bincount(group[some], weights=column[some], minlength=len(rows)) / np.maximum(count, 1)
            squares = np.bincount(group[some], weights=(column[some] - mean[group[some]]) ** 2, minlength=len(rows))
            total += squares / max(float(squares.sum()), 1e-300)
        spread = 0.5 * np.log(np.maximum(total / np.maximum(count - 1, 1), 1e-300))[kept]
        logs.append(spread - spread.mean())
    product = logs[0] * logs[1]
    return float(np.sqrt(max(product.mean(), 0.0))), chance_of(product[:, None], rng, above=True)
