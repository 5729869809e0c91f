"""Checks of the state: in how many directions people differ, how soon they are known, and if it is the same again."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ilb.estimates import Estimate
from ilb.models.calibration import Calibration
from ilb.models.latent import LatentModel, LinearReward, canonical_basis
from ilb.offline.completion import train_encoders
from ilb.offline.encodings import encode_contexts, measure_scatter
from ilb.offline.leading import WIDEST
from ilb.offline.recipes import Recipes
from ilb.offline.training import fit_keys
from ilb.trust.apart import NO_CONTEXTS, SHUFFLES, contrastive_gains
from ilb.trust.checks import Check, Verdict
from ilb.trust.held_out import HeldOut, quietly

STILL = 1000
"""People who differ by more than this, in units of the noise of one row, stand still within themselves."""

AGREE, DISAGREE = 0.95, 0.7
"""The R² between fits from which the state counts as the same, and below which it is another one."""

FOUND = 0.9
"""The R² between fits from which a direction counts as found again. On 50 small worlds a direction too many had 0.88 at
most, and more than 0.7 in ten of them; the last true one of three had 0.93 or more on 40."""


def check_dimensions(held: HeldOut) -> Check:
    """Ask how many directions of the state people differ in, and whether the model has as many."""
    question = "How many dimensions?"
    bar = f"95 of 100 shuffles; {FOUND} in other fits (R²); a wider encoder tells no more"
    n = held.model.encoded_dim
    if not n:
        return Check("dimensions", question, "0", bar, Verdict.FINE, NO_CONTEXTS)
    widths, rng = _widths(held.encodings, held.logs.starts), held.rng(2)
    same = held.agreement.mean(axis=0) if len(held.agreement) else np.ones(n)
    shuffled = [_widths(held.encodings[rng.permutation(held.logs.rows)], held.logs.starts)[0] for _ in range(SHUFFLES)]
    band = float(np.quantile(shuffled, 0.95))
    found = int(min(np.sum(widths > band), np.sum(same > FOUND)))
    more, wide = _gain_of_width(held)
    numbers = {"widths": widths.tolist(), "band": band, "same": same.tolist(), "wide": wide, "gain": more.value}
    figure = f"{found} of the model's {n} stand out"
    listed = ", ".join(f"{width:.2f}" if width < STILL else f"more than {STILL:,}" for width in widths[:8])
    said = (
        f"People differ by {listed} times the noise of one row (variance); shuffled people by {band:.2f} at most. "
        f"Other fits find {np.sum(same > FOUND)} of the model's {n} directions again."
    )
    if found < n and held.learned:
        remedy = f"Fewer dimensions: latent_dim={found}, --latent-dim {found}."
        if not found:
            remedy = "No direction is found again: other contexts, more people, or a model without an encoder."
        return Check("dimensions", question, figure, bar, Verdict.DOUBTFUL, said, remedy, numbers)
    if wide and more.value > max(3 * more.standard_error, 0.05):
        said += f" An encoder with {wide} tells people apart better by {more.text()} nats a row."
        remedy = "More dimensions: leave latent_dim out (--latent-dim), so that it is chosen, or give a larger one."
        return Check("dimensions", question, figure, bar, Verdict.DOUBTFUL, said, remedy, numbers)
    return Check("dimensions", question, figure, bar, Verdict.FINE, said, "", numbers)


def _widths(encodings: Float[np.ndarray, "rows n"], starts: np.ndarray) -> Float[np.ndarray, " n"]:
    """Give the variance of people in units of noise, in the directions where that is largest, the largest first."""
    scatter = measure_scatter(encodings, starts)
    return canonical_basis(scatter.encoding_covariance, scatter.population_covariance).population_variances[::-1]


def _gain_of_width(held: HeldOut) -> tuple[Estimate, int]:
    """Train a wider encoder on the same people: by how much does it tell others apart better? Zero if there is none."""
    nothing = Estimate(0.0, 0.0, 0), 0
    if not held.crossed:
        return nothing
    recipes = Recipes.of(held.model)
    columns = held.logs.width - held.logs.schema.clocked
    wide = min(WIDEST, columns, held.logs.instances // 3)
    if not held.learned or recipes.latent_dim != held.model.encoded_dim or wide <= recipes.latent_dim:
        return nothing
    parts = held.some_parts
    tables = [held.logs.select(part.others) for part in parts]
    with quietly():
        trained = train_encoders(recipes.encoder.without_cross_fit(), fit_keys([held.seed] * len(tables)), tables, wide)
    if any(result.interrupted for result in trained):
        raise KeyboardInterrupt
    encodings = np.zeros((held.logs.rows, wide))
    for part, result in zip(parts, trained, strict=True):
        rows = held.rows_of(part.people)
        encodings[rows] = encode_contexts(result.encoder, held.logs.context[rows])
    gains = contrastive_gains(held, encodings, parts=parts) - contrastive_gains(held, held.encodings, parts=parts)
    return Estimate.of(gains), wide


KNOWN = 0.8
"""The reliability from which a person counts as known."""


def check_reliability(held: HeldOut) -> Check:
    """Ask after how many rows a person is known."""
    question, bar = "How soon is a person known?", f"{KNOWN:.0%} within the median history"
    median = float(np.median(held.logs.lengths))
    widths = _widths(held.encodings, held.logs.starts) if held.model.encoded_dim else np.zeros(0)
    memory = float(held.model.noise.memory)
    visits = [_rounds_for(KNOWN / (1 - KNOWN) / width, memory) if width > 1e-3 else np.inf for width in widths]
    rounds = _rounds_until_known(held.model)
    ordinals = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
    parts = [f"{_rows(visit)} for the {name} direction" for visit, name in zip(visits, ordinals, strict=False)]
    said = f"To {KNOWN:.0%}, contexts alone need {', '.join(parts)}. " if parts else f"{NO_CONTEXTS} "
    figure = f"{_rows(visits[0])} for the first direction" if visits else "-"
    if rounds is not None:
        said += f"With rewards, the differences between actions are known to {KNOWN:.0%} after {_rows(rounds)}."
        figure = f"{_rows(rounds)} for the differences between actions"
    needed = min(visits[0] if visits else np.inf, np.inf if rounds is None else rounds)
    if not visits and rounds is None:
        said += "It expects the same action to be best for everybody, so that nothing has to be known of a person."
        needed = 0.0
    verdict = Verdict.FINE if needed <= max(median, 1.0) else Verdict.DOUBTFUL
    remedy = "" if verdict is Verdict.FINE else "Longer histories, or contexts that say more of a person."
    numbers = {
        "widths": widths.tolist(),
        "visits": [visit if np.isfinite(visit) else None for visit in visits],
        "rounds": rounds if rounds is not None and np.isfinite(rounds) else None,
        "median_history": median,
    }
    return Check("reliability", question, figure, f"{bar}, {median:g} rows", verdict, said.strip(), remedy, numbers)


def _rows(count: float) -> str:
    if not np.isfinite(count) or count > 10_000:
        return "more than 10,000 rows"
    number = max(int(np.ceil(count - 1e-9)), 1)
    return f"{number:,} row{'s' if number > 1 else ''}"


def _rounds_for(count: float, memory: float) -> float:
    """Say after how many rounds so many count, where old ones count for less; there may never be so many.

    >>> _rounds_for(3.0, 1.0), round(_rounds_for(1.75, 0.5), 6), _rounds_for(2.0, 0.5)
    (3.0, 3.0, inf)
    """
    if memory == 1:
        return float(count)
    left = 1 - count * (1 - memory)
    return float(np.log(left) / np.log(memory)) if left > 0 else float("inf")


def _rounds_until_known(model: LatentModel) -> float | None:
    """Count rounds, with actions in turn, until the model knows so much of how actions differ; None if they don't.

    Where it forgets, old rounds count for less, and it may never know so much.
    """
    if not isinstance(model.reward, LinearReward):
        return None
    numbers = Calibration.of(model, model.reward)
    apart = numbers.theta - numbers.theta.mean(axis=0)
    if not apart.size or not np.any(np.abs(apart) > 1e-9):
        return None
    shown = np.zeros(len(numbers.prior_precision))
    shown[: model.encoded_dim] = 1
    each = np.diag(shown) + numbers.theta.T / numbers.reward_variance @ numbers.theta / len(numbers.theta)
    unknown = np.sum(apart**2 / numbers.prior_precision)
    memory = float(model.noise.memory)
    for rounds in np.unique(np.round(np.geomspace(1, 10_000, 200))):
        counting = rounds if memory == 1 else (1 - memory**rounds) / (1 - memory)
        left = np.linalg.inv(np.diag(numbers.prior_precision) + counting * each)
        if 1 - np.einsum("ap,pq,aq->", apart, left, apart) / unknown >= KNOWN:
            return float(rounds)
    return float("inf")


def check_halves(held: HeldOut) -> Check:
    """Ask whether other rows of a person give the same state, as nearly as the model says they do."""
    question, bar = "Is the state the same in other rows of the person?", "the reliability that the model states"
    long = held.logs.lengths >= 2
    if not held.model.encoded_dim or long.sum() < 8:
        said = NO_CONTEXTS if not held.model.encoded_dim else "Too few people have two rows."
        return Check("halves", question, "-", bar, Verdict.FINE, said)
    odd = (held.logs.time % 2).astype(bool)
    halves = [
        np.stack([held.mean_by_person(column, rows) for column in held.encodings.T], axis=1)[long]
        for rows in (odd, ~odd)
    ]
    seen = np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(*(half.T for half in halves), strict=True)])
    lengths = held.logs.lengths[long]
    noise = np.mean(0.5 / (lengths // 2) + 0.5 / (lengths - lengths // 2))
    stated = held.stated_variances / (held.stated_variances + noise)
    error = 1 / np.sqrt(long.sum() - 3)
    behind = np.arctanh(np.clip(stated, 0, 0.999)) - np.arctanh(np.clip(seen, -0.999, 0.999))
    low = (behind > 3 * error) & (seen < stated - 0.1)
    verdict = Verdict.DOUBTFUL if np.any(low) else Verdict.FINE
    worst = int(np.argmax(stated - seen))
    figure = f"correlation {seen[worst]:.2f}"
    said = (
        f"States from odd and from even rows of the same people correlate by {', '.join(f'{r:.2f}' for r in seen[:8])}"
        f" in the directions of the model, which states {', '.join(f'{r:.2f}' for r in stated[:8])}."
    )
    remedy = "The encoder knows its own people too well: fewer dimensions, more people." if np.any(low) else ""
    numbers = {"seen": seen.tolist(), "stated": stated.tolist(), "standard_error": float(error)}
    return Check("halves", question, figure, f"{stated[worst]:.2f}, {bar}", verdict, said, remedy, numbers)


def check_other_fits(held: HeldOut) -> Check:
    """Ask whether fits on other people find the same state, up to an affine map: what the theorem promises."""
    question, bar = "Is the state the same in another fit?", f"{AGREE}"
    if not len(held.agreement):
        said = (
            NO_CONTEXTS if not held.model.encoded_dim else "The model was not fitted again, so there is no other fit."
        )
        return Check("other fits", question, "-", bar, Verdict.FINE, said)
    by_fit = held.agreement.mean(axis=1)
    share = float(by_fit.mean())
    verdict = Verdict.FINE if share >= AGREE else Verdict.DOUBTFUL if share >= DISAGREE else Verdict.BROKEN
    said = (
        f"Fits without a third of the people give these people the states that the model gives them, up to an affine "
        f"map, with an R² of {', '.join(f'{r:.3f}' for r in by_fit)}."
    )
    remedy = (
        "" if verdict is Verdict.FINE else "The state is not identified by so few data: fewer dimensions, more people."
    )
    return Check("other fits", question, f"R² {share:.3f}", bar, verdict, said, remedy, {"r2": by_fit.tolist()})
