"""Latent noise that differs between instances, which the theory excludes: `python -m benchmarks.unequal_noise`.

The standard world (n = 5, L = 2, I = 100, T = 200), ten seeds; half of the instances have latent noise of one standard
deviation and half of another. Encoders tell instances apart by the spread of their encodings, too, then.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.console import Console

from ilb import fit_many, reference_models
from ilb.environments import UniformLogging, draw_world, record
from ilb.environments.synthetic import SyntheticWorld
from ilb.environments.wrappers import AbstractWrapper
from ilb.estimates import Estimate
from ilb.offline.scores import Truth, score_model
from ilb.streams import Stream

WORLDS = range(10)
EQUAL, UNEQUAL = (1.0, 1.0), (0.7, 1.3)


class UnequalNoise(AbstractWrapper):
    """The world inside; an instance is its latent state and the standard deviation of its latent noise."""

    environment: SyntheticWorld
    stds: tuple[float, float] = eqx.field(static=True)

    def sample_instance(self, key: Any) -> Any:
        low, high = self.stds
        std = jnp.where(jr.bernoulli(jr.fold_in(key, 1)), low, high)
        return self.environment.sample_instance(key), std

    def emit(self, key: Any, instance: Any) -> Any:
        z, std = instance
        return self.environment.mixing(z + std * jr.normal(key, z.shape))

    def mean_rewards(self, instance: Any) -> Any:
        return self.environment.mean_rewards(instance[0])

    def sample_rewards(self, key: Any, instance: Any) -> Any:
        return self.environment.sample_rewards(key, instance[0])

    def latent_state(self, instance: Any) -> Any:
        return self.environment.latent_state(instance[0])


def measure(stds: tuple[float, float]) -> dict[str, Estimate]:
    """Give the R² of z after an affine map, of our recipe and of the true encoder, over the worlds."""
    worlds = [UnequalNoise(draw_world(Stream.WORLD.key(seed)), stds) for seed in WORLDS]
    logging = UniformLogging(20)
    training, test = (
        [record(stream.key(seed), world, logging, instances, 200) for seed, world in zip(WORLDS, worlds, strict=True)]
        for stream, instances in ((Stream.TRAINING_LOGS, 100), (Stream.TEST_LOGS, 500))
    )
    learned = fit_many([r.logs for r in training], latent_dim=5, seeds=WORLDS)
    true = [
        reference_models(r.logs, world.oracle().encoder)["oracle"] for r, world in zip(training, worlds, strict=True)
    ]
    found = {}
    for name, models in {"our recipe": learned, "the true encoder": true}.items():
        scores = [
            score_model(m, b.logs, Truth(b.latents, b.mean_rewards), (a.logs, Truth(a.latents, a.mean_rewards)))
            for m, a, b in zip(models, training, test, strict=True)
        ]
        found[name] = Estimate.of(np.array([score.affine_r2.value for score in scores if score.affine_r2 is not None]))
    return found


if __name__ == "__main__":
    for stds in (EQUAL, UNEQUAL):
        for name, r2 in measure(stds).items():
            Console().print(f"latent noise {stds[0]} / {stds[1]}, {name}: affine R² of z {r2}")
