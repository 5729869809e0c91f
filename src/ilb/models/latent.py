"""LatentModel: everything that crosses from the offline stage to the online stage.

Offline writes it, online reads it, and they share nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigh

from ilb.errors import FitError
from ilb.html import html_block, html_table, html_text
from ilb.logs import Logs, Schema
from ilb.models.moments import AbstractMoment, ScaledMoment
from ilb.networks import ComposedEncoder, scale_columns, storable
from ilb.types import Encoder, RewardModel, as_real

if TYPE_CHECKING:
    from ilb.drawing import ModelPlots

SHOWN = 12
"""Actions that are named in a notebook."""


@storable
class LinearReward(eqx.Module):
    r"""Expected rewards $\hat\theta_a^\top z + \hat\theta_{0,a}$ (thm:reward), with the covariance of their estimates.

    `coefficient_covariance[a]` belongs to the n + 1 numbers (theta_a, intercept_a); it is zero for a known model. The
    state may have coordinates that no context shows, behind those of the encoder (`LatentModel`).
    """

    theta: Float[Array, "K n"]
    intercept: Float[Array, " K"]
    coefficient_covariance: Float[Array, "K n+1 n+1"]

    @classmethod
    def known(cls, theta: Float[Array, "K n"], intercept: Float[Array, " K"]) -> LinearReward:
        """Make a reward model whose coefficients are the truth, without any uncertainty."""
        actions, dim = theta.shape
        return cls(theta, intercept, as_real(np.zeros((actions, dim + 1, dim + 1))))

    def __call__(self, z: Float[Array, " n"]) -> Float[Array, " K"]:
        return self.theta @ z + self.intercept

    def on_first(self, coordinates: int) -> LinearReward:
        """Give the rewards of people who are average in all coordinates but the first ones."""
        kept = np.r_[:coordinates, self.theta.shape[1]]
        return LinearReward(
            self.theta[:, :coordinates], self.intercept, self.coefficient_covariance[:, kept[:, None], kept[None, :]]
        )

    @property
    def standard_errors(self) -> Float[Array, "K coefficients"]:
        """The standard error of each coefficient, the intercept last."""
        return jnp.sqrt(jnp.diagonal(self.coefficient_covariance, axis1=1, axis2=2))


@storable
class NoiseLevels(eqx.Module):
    r"""The variances that a calibrated belief needs, all in the latent basis of the encoder.

    $f(x_t) \mid z$ has covariance `encoding_covariance`; the state v = (z, u) has mean and covariance `population_*`
    over instances, where u is what only rewards show: it has mean zero and is uncorrelated with z, and often there is
    none. The reward of action a varies by `reward_variance[a]` around its mean for the instance, and that mean varies
    by `leftover_variance` around what the reward model says (instance x action effects that v does not explain). What
    was seen of an instance one round ago counts `memory` times as much as what is seen now: 1 where states stay.
    Where they move, `drift` is by how much variances of noise and of what only rewards show were changed for that, and
    which share of `moving_covariance` was (`ilb.models.drift`): how much of what encodings vary by within a person they
    do slowly, from row to row. `misfits` is how often each of `ilb.models.hypotheses` described people whom a fit had
    not seen, if that was asked.
    """

    encoding_covariance: Float[Array, "n n"]
    population_mean: Float[Array, " p"]
    population_covariance: Float[Array, "p p"]
    reward_variance: Float[Array, " K"]
    leftover_variance: Float[Array, ""]
    reward_quantiles: Float[Array, " levels"] = eqx.field(default_factory=lambda: as_real(np.zeros(0)))
    memory: Float[Array, ""] = eqx.field(default_factory=lambda: as_real(1))
    drift: Float[Array, " drift"] = eqx.field(default_factory=lambda: as_real(np.array([1.0, 1.0, 0.0])))
    misfits: Float[Array, " H"] = eqx.field(default_factory=lambda: as_real(np.zeros(0)))
    moving_covariance: Float[Array, "moving moving"] = eqx.field(default_factory=lambda: as_real(np.zeros((0, 0))))


class CanonicalBasis(NamedTuple):
    r"""Where noise has covariance one and the population is uncorrelated: $B^\top W B = I$, $B^\top S B = $ diagonal.

    `matrix` is B, so a latent state z is `z @ matrix` there; `back` is its inverse, transposed. The narrowest
    coordinate of the population comes first.
    """

    population_variances: Float[np.ndarray, " n"]
    matrix: Float[np.ndarray, "n n"]
    back: Float[np.ndarray, "n n"]


def canonical_basis(
    encoding_covariance: Float[np.ndarray, "n n"], population_covariance: Float[np.ndarray, "n n"]
) -> CanonicalBasis:
    """Diagonalise the covariances of noise (W) and population (S) together.

    >>> noise, population = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[5.0, 1.0], [1.0, 3.0]])
    >>> basis = canonical_basis(noise, population)
    >>> bool(np.allclose(basis.matrix.T @ noise @ basis.matrix, np.eye(2)))
    True
    >>> bool(np.allclose(basis.back * basis.population_variances @ basis.back.T, population))
    True
    """
    if not len(encoding_covariance):
        return CanonicalBasis(np.zeros(0), encoding_covariance, encoding_covariance)
    variances, matrix = eigh(population_covariance, encoding_covariance)
    return CanonicalBasis(variances, matrix, encoding_covariance @ matrix)


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from: enough to make it again, and how good it was.

    `choice` is the table of candidates that were compared (`ilb.offline.choice.ModelChoice.rows`).
    `interrupted` says that Ctrl-C ended a training: what it gave is good for a user, and not the outcome of the recipe.
    `inflation` is how many times wider each coordinate of an encoding varies within people that the training did not
    see than within those of the logs; empty where that was not measured.
    """

    version: str
    seed: int
    recipe: Mapping[str, Any]
    rows: int
    instances: int
    scores: Mapping[str, Any] = field(default_factory=dict)
    curve: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    choice: tuple[Mapping[str, Any], ...] = ()
    inflation: tuple[float, ...] = ()


class LatentModel(eqx.Module):
    """An encoder, a reward model on its encodings, the noise levels, and what the numbers mean to people.

    A state v = (z, u) begins with what the encoder shows, z; u shows in rewards alone. `moment`, if there is one, is
    what the context at hand adds to rewards.

    `schema` and `provenance` are for people and files, not for compiled programs: `bare()` leaves them out, so that
    a refitted model runs in the program that was compiled for the one before it.
    """

    encoder: Encoder
    reward: RewardModel
    noise: NoiseLevels
    schema: Schema | None = eqx.field(static=True, default=None)
    provenance: Provenance | None = eqx.field(static=True, default=None)
    moment: AbstractMoment | None = None

    @property
    def encoded_dim(self) -> int:
        """The number n of coordinates that the encoder shows."""
        return self.noise.encoding_covariance.shape[0]

    @property
    def encoded_reward(self) -> RewardModel:
        """The rewards that follow from an encoding alone: what the paper's policies act on."""
        if isinstance(self.reward, LinearReward) and self.reward.theta.shape[1] > self.encoded_dim:
            return self.reward.on_first(self.encoded_dim)
        return self.reward

    def bare(self) -> LatentModel:
        """Return the same model without labels and history."""
        return LatentModel(self.encoder, self.reward, self.noise, moment=self.moment)

    def with_memory(self, memory: float) -> LatentModel:
        """Return the model for people who change: in each round, what was seen before counts `memory` times as much.

        All variances stay. A fit that has found a memory has changed them with it: `ilb.models.drift.without_drift`
        gives such a model as if people stayed, and `Drift` any other.

        >>> import jax.random as jr
        >>> from ilb.environments import draw_world
        >>> float(draw_world(jr.key(0)).oracle().with_memory(0.9).noise.memory)
        0.8999999761581421
        """
        if not 0 < memory <= 1:
            raise FitError(f"memory is more than 0 and at most 1 (nothing is forgotten); got {memory}.")
        return replace(self, noise=replace(self.noise, memory=jnp.asarray(memory, jnp.float32)))

    def read(self, logs: Logs) -> Logs:
        """Give logs as this model reads them, whatever columns, scales and actions they were read with."""
        return logs if self.schema is None else logs.read_as(self.schema)

    def on_raw_contexts(self) -> LatentModel:
        """Return the model for contexts as they stand in the table, before the schema scales them.

        Simulated worlds emit such contexts. Only numeric columns without missing values can be scaled by a compiled
        program; other schemas raise a SchemaError.
        """
        if self.schema is None:
            return self
        scaling = scale_columns(*self.schema.numeric_scaling())
        moment = None if self.moment is None else ScaledMoment(scaling, self.moment)
        return LatentModel(ComposedEncoder(scaling, self.encoder), self.reward, self.noise, moment=moment)

    def save(self, path: str | Path) -> None:
        """Write the model into the directory `path`: `manifest.json` and its arrays (`ilb.models.storage`)."""
        from ilb.models import storage

        storage.save_model(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> LatentModel:
        """Read a model that `save` wrote; damaged, foreign or newer files raise `ModelFileError`."""
        from ilb.models import storage

        return storage.load_model(Path(path), LatentModel)

    @property
    def plot(self) -> ModelPlots:
        """Figures of this model: `people`, `belief`, `calibration`, `learning_curve` (`ilb.drawing.ModelPlots`)."""
        from ilb.drawing import ModelPlots  # a door for notebooks, and the only one from here to the rim

        return ModelPlots(self)

    def _repr_html_(self) -> str:
        """Show in a notebook where the model comes from and what it was chosen from."""
        parts, made = [], self.provenance
        if self.schema is not None:
            columns = ", ".join(column.name for column in self.schema.context) or "no context column"
            actions = ", ".join(map(str, self.schema.actions[:SHOWN])) + (
                ", …" if len(self.schema.actions) > SHOWN else ""
            )
            parts.append(html_text(f"{self.schema.reward} of {self.schema.action} ({actions}), from {columns}"))
        if made is not None and made.choice:
            rows = [
                [row["candidate"], *(_short(row[name]) for name in ("r2", "log_likelihood"))] for row in made.choice
            ]
            chosen = [number for number, row in enumerate(made.choice) if row["chosen"]]
            parts.append(html_table(["candidate", "R² of the next reward", "log-likelihood"], rows, chosen))
        parts += [] if made is None else [html_text(note) for note in made.notes]
        return html_block(repr(self), *parts)

    def __repr__(self) -> str:
        hidden = self.noise.population_mean.shape[0] - self.encoded_dim
        parts = [
            f"n={self.encoded_dim}",
            *([f"hidden={hidden}"] if hidden else []),
            f"K={self.noise.reward_variance.shape[0]}",
        ]
        if self.moment is not None:
            parts.append(f"moment={type(self.moment).__name__}")
        if float(self.noise.memory) < 1:
            parts.append(f"memory={float(self.noise.memory):.2g}")
        if self.provenance is not None:
            parts.append(f"fitted on {self.provenance.rows} rows")
        return f"LatentModel({', '.join(parts)})"


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def require_model(found: Any, who: str) -> None:
    """Raise if somebody was given something else than a fitted model."""
    if not isinstance(found, LatentModel):
        raise FitError(
            f"{who} takes a LatentModel and Logs; got {type(found).__name__!r} as the model. Give what `fit` returned "
            "or `LatentModel.load` read."
        )
