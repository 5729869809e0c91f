"""LatentModel: everything that crosses from the offline stage to the online stage.

Offline writes it, online reads it, and they share nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ilb.logs import Schema
from ilb.networks import ComposedEncoder, scale_columns
from ilb.types import Encoder, RewardModel


class LinearReward(eqx.Module):
    r"""Expected rewards $\hat\theta_a^\top z + \hat\theta_{0,a}$ (thm:reward), with the covariance of their estimates.

    `coefficient_covariance[a]` belongs to the n + 1 numbers (theta_a, intercept_a); it is zero for a known model.
    """

    theta: Float[Array, "K n"]
    intercept: Float[Array, " K"]
    coefficient_covariance: Float[Array, "K n+1 n+1"]

    @classmethod
    def known(cls, theta: Float[Array, "K n"], intercept: Float[Array, " K"]) -> Self:
        """Make a reward model whose coefficients are the truth, without any uncertainty."""
        actions, dim = theta.shape
        return cls(theta, intercept, jnp.zeros((actions, dim + 1, dim + 1)))

    def __call__(self, z: Float[Array, " n"]) -> Float[Array, " K"]:
        """Give the K expected rewards of latent state z."""
        return self.theta @ z + self.intercept

    @property
    def standard_errors(self) -> Float[Array, "K n+1"]:
        """The standard error of each coefficient, the intercept last."""
        return jnp.sqrt(jnp.diagonal(self.coefficient_covariance, axis1=1, axis2=2))


class NoiseLevels(eqx.Module):
    r"""The variances that a calibrated belief needs, all in the latent basis of the encoder.

    $f(x_t) \mid z$ has covariance `encoding_covariance`; z has mean and covariance `population_*` over instances; the
    reward of action a varies by `reward_variance[a]` around its mean for the instance, and that mean varies by
    `leftover_variance` around what the reward model says (instance x action effects that z does not explain).
    """

    encoding_covariance: Float[Array, "n n"]
    population_mean: Float[Array, " n"]
    population_covariance: Float[Array, "n n"]
    reward_variance: Float[Array, " K"]
    leftover_variance: Float[Array, ""]


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from: enough to make it again, and how good it was."""

    version: str
    seed: int
    recipe: Mapping[str, Any]
    rows: int
    instances: int
    scores: Mapping[str, Any] = field(default_factory=dict)
    curve: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended a training: what it gave is good for a user, and not the outcome of the recipe."""
        return any("interrupted" in note for note in self.notes)


class LatentModel(eqx.Module):
    """An encoder, a reward model on its encodings, the noise levels, and what the numbers mean to people.

    `schema` and `provenance` are for people and files, not for compiled programs: `bare()` leaves them out, so that
    a refitted model runs in the program that was compiled for the one before it.
    """

    encoder: Encoder
    reward: RewardModel
    noise: NoiseLevels
    schema: Schema | None = eqx.field(static=True, default=None)
    provenance: Provenance | None = eqx.field(static=True, default=None)

    def bare(self) -> LatentModel:
        """Return the same model without labels and history."""
        return LatentModel(self.encoder, self.reward, self.noise)

    def on_raw_contexts(self) -> LatentModel:
        """Return the model for contexts as they stand in the table, before the schema scales them.

        Simulated worlds emit such contexts. Only numeric columns without missing values can be scaled by a compiled
        program; other schemas raise a SchemaError.
        """
        if self.schema is None:
            return self
        scaling = scale_columns(*self.schema.numeric_scaling())
        return LatentModel(ComposedEncoder(scaling, self.encoder), self.reward, self.noise)

    def save(self, path: str | Path) -> None:
        """Write the model into the directory `path`: `manifest.json` and its arrays (`ilb.models.storage`)."""
        from ilb.models import storage

        storage.save_model(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> LatentModel:
        """Read a model that `save` wrote; damaged, foreign or newer files raise `ModelFileError`."""
        from ilb.models import storage

        return storage.load_model(Path(path))

    def __repr__(self) -> str:
        dim = self.noise.population_mean.shape[0]
        actions = self.noise.reward_variance.shape[0]
        origin = f", fitted on {self.provenance.rows} rows" if self.provenance else ""
        return f"LatentModel(n={dim}, K={actions}{origin})"
