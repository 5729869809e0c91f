"""People as models see them that have not seen them: what every check is computed from.

Whoever has one table and a model of it has no people left that the model does not know. So the way in which the model
was fitted is repeated without a third of the people, for each third, and everyone is looked at by the fit that left
them out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ilb.errors import FitError, IlbWarning
from ilb.logs import Logs
from ilb.logs.messages import counted
from ilb.models.drift import without_drift
from ilb.models.latent import CanonicalBasis, LatentModel, canonical_basis
from ilb.networks import NoEncoder
from ilb.offline.ahead import Predictions, join, moment_effects, predict_ahead
from ilb.offline.completion import complete_model, train_encoders
from ilb.offline.encoders.plain import PlainContexts
from ilb.offline.encodings import Scatter, encode_contexts, instance_means, measure_scatter
from ilb.offline.fit import fit_again
from ilb.offline.recipes import Recipes
from ilb.offline.rewards.person import PersonRewardRecipe
from ilb.offline.scores import align
from ilb.offline.search import ROUNDS, SOME_HIDDEN, plain_models
from ilb.offline.training import fit_keys
from ilb.seeds import as_seed
from ilb.trust.beliefs import believe
from ilb.types import Report, silent

FOLDS = 3
MOST_ROWS, MOST_PEOPLE = 20_000, 3_000
"""Of larger tables so many rows and people are looked at: more would change no verdict, only its cost."""

AMPLE_ROWS = 5_000
"""With so many rows a third of the people tells as much as is asked of encoders that are trained by the way."""

LEAST_PEOPLE = 12
"""With fewer people a third of them tells nothing."""


class Part(NamedTuple):
    """Some people, the model that looks at them, and those whom it (or what stands beside it) was fitted on."""

    model: LatentModel
    people: Int[np.ndarray, " held"]
    others: Int[np.ndarray, " kept"]


@dataclass(frozen=True)
class HeldOut:
    """The people of a table, each seen by a model that does not know them.

    `crossed` says that the model was fitted again, without those it looks at; else it looks as it is.
    """

    model: LatentModel
    logs: Logs
    parts: tuple[Part, ...]
    crossed: bool
    about: str
    seed: int = 0

    @classmethod
    def of(
        cls, model: LatentModel, logs: Logs, *, unseen: bool = False, seed: int = 0, report: Report = silent
    ) -> HeldOut:
        """Fit the model again without each third of the people, unless it is known that it has not seen them."""
        logs = model.read(logs)
        logs.require_any_reward()
        rng = np.random.default_rng(as_seed(seed))
        if logs.instances < LEAST_PEOPLE:
            raise FitError(
                f"{counted(logs.instances, 'instance')} are too few to hold any out; expected at least {LEAST_PEOPLE}."
            )
        people = counted(logs.instances, "instance")
        logs, fewer = _sampled(logs, rng)
        folds = [np.sort(fold) for fold in np.array_split(rng.permutation(logs.instances), FOLDS)]
        everyone = np.arange(logs.instances)
        others = [np.setdiff1d(everyone, fold) for fold in folds]
        looked = f"{counted(logs.instances, 'instance')} of {people}" if fewer else people
        about = f"{looked} with {counted(logs.rows, 'row')}"
        if unseen:
            parts = tuple(Part(model, fold, kept) for fold, kept in zip(folds, others, strict=True))
            return cls(model, logs, parts, False, f"{about}, whom the model is said not to have seen.", seed)
        try:
            Recipes.of(model)
        except FitError as error:
            said = f"{about}. They were looked at as if the model had not seen them: {error}"
            return cls(
                model, logs, tuple(Part(model, *both) for both in zip(folds, others, strict=True)), False, said, seed
            )
        with quietly():
            models = fit_again(model, [logs.select(kept) for kept in others], seed=seed, report=report)
        models = _with_residual_shapes(model, models, [logs.select(fold) for fold in folds])
        said = f"{about}, each looked at by a model that was fitted in the same way without them (in {FOLDS} parts)."
        return cls(model, logs, tuple(map(Part, models, folds, others)), True, said, seed)

    @property
    def some_parts(self) -> tuple[Part, ...]:
        """All parts, or one of them where that has people enough, for what takes a training of its own."""
        return self.parts if self.logs.rows < AMPLE_ROWS else self.parts[:1]

    # Encodings ------------------------------------------------------------------------------------------------------

    @cached_property
    def _own_basis(self) -> CanonicalBasis:
        n = self.model.encoded_dim
        population = np.asarray(self.model.noise.population_covariance, np.float64)[:n, :n]
        return canonical_basis(np.asarray(self.model.noise.encoding_covariance, np.float64), population)

    def _own(self, contexts: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows n"]:
        """Encode with the model itself, in its canonical basis, the widest direction first."""
        mean = np.asarray(self.model.noise.population_mean, np.float64)[: self.model.encoded_dim]
        return np.asarray((encode_contexts(self.model.encoder, contexts) - mean) @ self._own_basis.matrix[:, ::-1])

    @cached_property
    def _maps(self) -> list[Callable[[np.ndarray], np.ndarray]]:
        """From the encoding of each fit to that of the model: the affine map that the theorem leaves open.

        It is found on the people whom the fit knows, so that it does not bend to those it looks at.
        """
        maps = []
        for part in self.parts:
            context = self.logs.context[self.rows_of(part.others)]
            maps.append(align(encode_contexts(part.model.encoder, context).astype(np.float64), self._own(context)))
        return maps

    def encode(self, contexts: Float[np.ndarray, "rows d"]) -> Float[np.ndarray, "rows n"]:
        """Encode contexts of these rows, each by the fit that has not seen the person, in the basis of the model."""
        if not self.crossed or not self.model.encoded_dim:
            return self._own(contexts)
        found = np.empty((len(contexts), self.model.encoded_dim))
        for part, to_own in zip(self.parts, self._maps, strict=True):
            held = self.rows_of(part.people)
            found[held] = to_own(encode_contexts(part.model.encoder, contexts[held]).astype(np.float64))
        return found

    @cached_property
    def encodings(self) -> Float[np.ndarray, "rows n"]:
        """Encodings by fits that have not seen the person, in the model's basis: noise about one, widest first."""
        return self.encode(self.logs.context)

    @property
    def stated_variances(self) -> Float[np.ndarray, " n"]:
        """What the model says of the variance of people in each direction, in units of the noise of one encoding."""
        return np.asarray(np.maximum(self._own_basis.population_variances[::-1], 0.0))

    @cached_property
    def agreement(self) -> Float[np.ndarray, "fits n"]:
        """How much of the model's encoding each fit shares, up to an affine map: R² on people that fit has not seen.

        One for each direction of the model; none if the model was not fitted again.
        """
        n = self.model.encoded_dim
        if not self.crossed or not n:
            return np.zeros((0, n))
        own, shares = self._own(self.logs.context), []
        for part in self.parts:
            held = self.rows_of(part.people)
            left = np.mean((own[held] - self.encodings[held]) ** 2, axis=0)
            shares.append(1 - left / np.maximum(own[held].var(axis=0), 1e-300))
        return np.stack(shares)

    @property
    def learned(self) -> bool:
        """Tell whether the encoder was trained, and is not the contexts themselves; one made by hand counts as such."""
        try:
            return Recipes.of(self.model).encoder.needs_columns
        except FitError:
            return True

    @cached_property
    def scatter(self) -> Scatter:
        return measure_scatter(self.encodings, self.logs.starts)

    @cached_property
    def deviations(self) -> Float[np.ndarray, "rows n"]:
        """Encodings less their person's mean: the moment."""
        return self.centred(self.encodings)

    @cached_property
    def person_means(self) -> Float[np.ndarray, "I n"]:
        return instance_means(self.encodings, self.logs.starts)

    # Rewards --------------------------------------------------------------------------------------------------------

    @cached_property
    def predictions(self) -> Predictions:
        """Each reward one step ahead (`ilb.predict_ahead`), in the order of the rows."""
        return self._ordered([predict_ahead(p.model, self.logs.select(p.people), rounds=ROUNDS) for p in self.parts])

    def inside(self, level: float) -> Bool[np.ndarray, " predictions"]:
        """Tell of each prediction whether its interval held the reward."""
        ahead, found = self.predictions, np.zeros(len(self.predictions.rows), dtype=bool)
        for part in self.parts:
            theirs = np.isin(ahead.person, part.people)
            quantiles = np.asarray(part.model.noise.reward_quantiles, np.float64)
            some = Predictions(*(column[theirs] for column in ahead[:5]))._replace(quantiles=quantiles)
            low, high = some.interval(level)
            found[theirs] = (low <= some.reward) & (some.reward <= high)
        return found

    @cached_property
    def residuals(self) -> Float[np.ndarray, " rows"]:
        """Rewards less what is believed of the person after all of their rows; NaN where there is none.

        The belief forgets nothing and does not know the order of rows: if that does not matter, residuals are
        exchangeable.
        """
        return self._left_by(everything=True)

    @cached_property
    def foreseen_residuals(self) -> Float[np.ndarray, " rows"]:
        """Rewards less what is believed of the person from all of their contexts, and no reward."""
        return self._left_by(everything=False)

    def _left_by(self, everything: bool) -> Float[np.ndarray, " rows"]:
        left = np.full(self.logs.rows, np.nan)
        for part in self.parts:
            table = self.logs.select(part.people)
            seen = np.ones(table.rows, dtype=bool)
            means = believe(without_drift(part.model), table, seen, seen & everything).mean
            expected = means[table.instance, np.maximum(table.action, 0)] + moment_effects(part.model.moment, table)
            left[self.rows_of(part.people)] = np.where(table.rewarded, table.reward - expected, np.nan)
        return left

    @cached_property
    def references(self) -> Mapping[str, Predictions]:
        """What anybody could predict, fitted without the people predicted: plain means, contexts, rewards alone."""
        found: dict[str, list[Predictions]] = {}
        for part in self.parts:
            training, table = self.logs.select(part.others), self.logs.select(part.people)
            with quietly():
                models = plain_models(training)
                hidden = PersonRewardRecipe(min(SOME_HIDDEN, training.actions)).hastened()
                models["rewards only"] = complete_model(NoEncoder(), training, reward=hidden)
                if training.width > training.schema.clocked:
                    [plain] = train_encoders(PlainContexts(), fit_keys([self.seed]), [training], 0)
                    linear = PersonRewardRecipe(hidden=0).hastened()
                    models["plain contexts"] = complete_model(plain.encoder, training, reward=linear)
            for name, model in models.items():
                found.setdefault(name, []).append(predict_ahead(model, table, rounds=ROUNDS))
        return {name: self._ordered(predictions) for name, predictions in found.items()}

    def predicted_by(self, models: Sequence[LatentModel], logs: Logs | None = None) -> Predictions:
        """Predict with other models, one for each part (or of the first parts), or other logs of the same people."""
        table = self.logs if logs is None else logs
        return self._ordered(
            [
                predict_ahead(model, table.select(part.people), rounds=ROUNDS)
                for model, part in zip(models, self.parts, strict=False)
            ]
        )

    def _ordered(self, predictions: Sequence[Predictions]) -> Predictions:
        """Put the predictions of the parts into the order of the rows, with the numbers of rows and people here."""
        renamed = [
            one._replace(rows=self.rows_of(part.people)[one.rows], person=part.people[one.person])
            for one, part in zip(predictions, self.parts, strict=False)
        ]
        joined = join(renamed)
        order = np.argsort(joined.rows, kind="stable")
        return Predictions(*(column[order] for column in joined[:5]))

    # People ---------------------------------------------------------------------------------------------------------

    def rows_of(self, people: Int[np.ndarray, " some"]) -> Int[np.ndarray, " theirs"]:
        """Give the numbers of these people's rows, in the order of the table."""
        wanted = np.zeros(self.logs.instances, dtype=bool)
        wanted[people] = True
        return np.flatnonzero(wanted[self.logs.instance])

    def mean_by_person(
        self, values: Float[np.ndarray, " rows"], kept: Bool[np.ndarray, " rows"] | None = None
    ) -> Float[np.ndarray, " I"]:
        """Average over the rows of each person, those kept; NaN for whom there are none."""
        kept = np.ones(self.logs.rows, dtype=bool) if kept is None else kept
        person, people = self.logs.instance[kept], self.logs.instances
        rows = np.bincount(person, minlength=people)
        total = np.bincount(person, weights=values[kept], minlength=people)
        return np.asarray(np.where(rows > 0, total / np.maximum(rows, 1), np.nan))

    def centred(self, values: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows n"]:
        return np.asarray(values - instance_means(values, self.logs.starts)[self.logs.instance])

    def rng(self, number: int) -> np.random.Generator:
        """Begin a stream of random numbers for a check of its own."""
        return np.random.default_rng([self.seed, number])


def _sampled(logs: Logs, rng: np.random.Generator) -> tuple[Logs, bool]:
    order = rng.permutation(logs.instances)[:MOST_PEOPLE]
    before = np.cumsum(logs.lengths[order]) - logs.lengths[order]
    kept = np.sort(order[before < MOST_ROWS])
    return (logs, False) if len(kept) == logs.instances else (logs.select(kept), True)


def _with_residual_shapes(
    model: LatentModel, models: Sequence[LatentModel], tables: Sequence[Logs]
) -> list[LatentModel]:
    """Give each fit the shape of residuals that the other fits left, where the model has one of held-out people."""
    if not len(model.noise.reward_quantiles):
        return list(models)
    ahead = [predict_ahead(one, table, rounds=ROUNDS) for one, table in zip(models, tables, strict=True)]
    shaped = []
    for number, one in enumerate(models):
        others = [theirs for other, theirs in enumerate(ahead) if other != number]
        quantiles = jnp.asarray(join(others).residual_quantiles(), jnp.float32)
        shaped.append(replace(one, noise=eqx.tree_at(lambda noise: noise.reward_quantiles, one.noise, quantiles)))
    return shaped


@contextmanager
def quietly() -> Iterator[None]:
    """Keep what fits on parts of the table warn of from the user, who was told of the whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IlbWarning)
        yield
