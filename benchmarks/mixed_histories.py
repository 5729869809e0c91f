"""Short histories beside long ones, as real tables have them: `python -m benchmarks.mixed_histories`.

The standard world (n = 5, L = 2), five draws; the affine R² of z on 1,000 people nobody has seen (200 rows each, the
map fitted on 1,000 others), learned from all histories, and from those of 20 rows or more alone. Short histories say
little of a person, but a recipe should not be the worse for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from ilb import TiedRecipe
from ilb.environments import Recording, UniformLogging, draw_world, record
from ilb.estimates import Estimate
from ilb.offline.encoders.recipe import TrainedEncoder
from ilb.offline.encodings import encode_contexts, instance_means
from ilb.offline.scores import align
from ilb.offline.training import fit_keys
from ilb.streams import Stream

DRAWS = range(5)
LONG = 20
MIXES = {
    "50 × 2 + 20 × 800": np.repeat([2, 800], [50, 20]),
    "50 × 5 + 50 × 200": np.repeat([5, 200], [50, 50]),
    "300 × 2 + 50 × 200": np.repeat([2, 200], [300, 50]),
    "50 × 2 + 30 × 20 + 20 × 800": np.repeat([2, 20, 800], [50, 30, 20]),
    "100 lognormal, median 30": np.ceil(30 * np.random.default_rng(0).lognormal(0, 1.2, 100)).astype(int),
}


def affine_r2(trained: TrainedEncoder, test: Recording) -> float:
    """Share of the variance of z explained for one half of the people by an affine map fitted to the other half."""
    means = instance_means(encode_contexts(trained.encoder, test.logs.context), test.logs.starts)
    half = len(means) // 2
    truth = test.latents[half:]
    error = truth - align(means[:half], test.latents[:half])(means[half:])
    return float(1 - np.sum(error**2) / np.sum((truth - truth.mean(axis=0)) ** 2))


def measure(lengths: np.ndarray, recipe: TiedRecipe, draws: Sequence[int] = DRAWS) -> tuple[np.ndarray, np.ndarray]:
    """Give the affine R² of every draw, with the short histories and without."""
    worlds = [draw_world(Stream.WORLD.key(seed)) for seed in draws]
    training, test = (
        [
            record(stream.key(seed), world, UniformLogging(20), len(each), each)
            for seed, world in zip(draws, worlds, strict=True)
        ]
        for stream, each in ((Stream.TRAINING_LOGS, lengths), (Stream.TEST_LOGS, np.full(2000, 200)))
    )
    everyone = [recording.logs for recording in training]
    without = [logs.select(logs.lengths >= LONG) for logs in everyone]
    with_short, long_only = (
        np.array([affine_r2(trained, people) for trained, people in zip(encoders, test, strict=True)])
        for encoders in (recipe.train(fit_keys(draws), logs, 5) for logs in (everyone, without))
    )
    return with_short, long_only


if __name__ == "__main__":
    table = Table("people × rows", "all histories", f"{LONG} rows or more", "difference", title="affine R² of z")
    for name, lengths in MIXES.items():
        both, long_only = measure(lengths, TiedRecipe())
        table.add_row(name, *(str(Estimate.of(numbers)) for numbers in (both, long_only, both - long_only)))
    Console().print(table)
