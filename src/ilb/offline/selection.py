"""Which model, by how well it predicts held-out people: each reward one step ahead, from the person's own past.

Whether contexts tell who a person is, whether only rewards do, whether the context of the moment matters and how: a
user does not know. A short list is compared on people that were held out, and the simplest within one standard error of
the best is taken. The list begins with what anybody could write in ten lines, so that it shows when nothing more is
worth it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from threadpoolctl import threadpool_limits

from ilb.errors import RareActionWarning
from ilb.estimates import Estimate
from ilb.logs import Logs
from ilb.models.latent import LatentModel, canonical_basis
from ilb.networks import Affine, NoEncoder, SideBySide
from ilb.offline.ahead import Predictions, join, lead, predict_ahead
from ilb.offline.completion import complete_model, train_encoders, without_clock
from ilb.offline.encoders.plain import NoEncoding, PlainContexts
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.encodings import Unseen, encode_contexts, measure_scatter
from ilb.offline.rewards.person import Moment, PersonRewardRecipe
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.offline.training import fit_keys
from ilb.seeds import as_seed
from ilb.types import Encoder, Report, silent

ROUNDS = 50
"""Rewards of each held-out person that are predicted: early ones matter, and late ones cost as much."""

MOST_LEARNED, MOST_HELD_OUT = (20_000, 3_000), (8_000, 3_000)
"""Rows and people that candidates are compared on: more would not change the choice, only its cost."""

WIDEST = 8
"""Coordinates of the encoder that dimensions are read off; those that tell people apart by little are dropped."""


@dataclass(frozen=True)
class Candidate:
    """A way to fit: how contexts are encoded, how rewards follow, and whether the moment knows the time.

    `rank` orders candidates from simple to elaborate; a reference is what a user could write in ten lines. `inflation`
    is how many times wider each coordinate of the encoding varied within people who were held out.
    """

    name: str
    encoder: EncoderRecipe
    latent_dim: int
    reward: RewardRecipe
    clocked: bool = False
    rank: int = 0
    reference: bool = False
    inflation: tuple[float, ...] = ()


class Trial(NamedTuple):
    """What a candidate predicted for people whom it had not seen."""

    candidate: Candidate
    predictions: Predictions
    eligible: bool

    @property
    def log_likelihood(self) -> float:
        return float(self.predictions.log_likelihood.mean())

    @property
    def r_squared(self) -> float:
        reward, error = self.predictions.reward, self.predictions.reward - self.predictions.mean
        return float(1 - np.sum(error**2) / np.sum((reward - reward.mean()) ** 2))

    def lead_over(self, other: Trial) -> Estimate:
        """Give by how much the log-likelihood of a reward is higher than the other's, with its error over people."""
        return lead(self.predictions, other.predictions)


@dataclass(frozen=True)
class ModelChoice:
    """The candidates that were compared, in the order of trying, and the one that was taken."""

    trials: tuple[Trial, ...]
    chosen: Trial
    people: int
    folds: int

    @property
    def candidate(self) -> Candidate:
        return self.chosen.candidate

    @classmethod
    def of(cls, trials: Sequence[Trial], folds: int) -> ModelChoice:
        """Take the simplest within one standard error of the best; of equally simple ones, the best."""
        allowed = [trial for trial in trials if trial.eligible]
        best = max(allowed, key=lambda trial: trial.log_likelihood)
        near = [trial for trial in allowed if trial is best or _within(best.lead_over(trial))]
        chosen = min(near, key=lambda trial: (trial.candidate.rank, trial.candidate.latent_dim, -trial.log_likelihood))
        return cls(tuple(trials), chosen, len(np.unique(best.predictions.person)), folds)

    def rows(self) -> list[dict[str, Any]]:
        """Give the table: R² and log-likelihood of a reward for each candidate, and how far behind the chosen one."""
        table = []
        for trial in self.trials:
            behind = self.chosen.lead_over(trial)
            table.append(
                {
                    "candidate": trial.candidate.name,
                    "r2": round(trial.r_squared, 4),
                    "log_likelihood": round(trial.log_likelihood, 4),
                    "behind": round(behind.value, 4),
                    "standard_error": None if np.isnan(behind.standard_error) else round(behind.standard_error, 4),
                    "reference": trial.candidate.reference,
                    "eligible": trial.eligible,
                    "chosen": trial is self.chosen,
                }
            )
        return table

    def sentence(self) -> str:
        """Say what was taken and whether it is better than what anybody could write in ten lines."""
        chosen = self.chosen.candidate
        how = f"{self.people} held-out people" if self.folds == 1 else f"{self.people} people, each held out once"
        said = f"{chosen.name} chosen: the simplest within one standard error of the best on {how}"
        if chosen.reference:
            return f"{said}. A plain reference is as good here as anything that was tried."
        references = [trial for trial in self.trials if trial.candidate.reference]
        if not references:
            return f"{said}."
        rival = max(references, key=lambda trial: trial.log_likelihood)
        ahead = self.chosen.lead_over(rival)
        beats = ahead.value > 2 * ahead.standard_error
        verdict = "better than" if beats else "not surely better than" if ahead.value > 0 else "no better than"
        few = f" {self.people} people can't tell much." if self.people < FEW_PEOPLE else ""
        return (
            f"{said}; it predicts their next reward {verdict} the best plain reference ({rival.candidate.name}): "
            f"R² {self.chosen.r_squared:.3f} against {rival.r_squared:.3f}, log-likelihood {ahead.value:+.3f} ± "
            f"{ahead.standard_error:.3f} a reward.{few}"
        )


FEW_PEOPLE = 40
"""With fewer people than this the sentence about a choice says how little they tell."""


NEGLIGIBLE = 0.002
"""Differences of the log-likelihood of a reward that nobody would notice: 0.4 % of the unexplained variance."""


def _within(behind: Estimate) -> bool:
    return np.isnan(behind.standard_error) or behind.value <= max(behind.standard_error, NEGLIGIBLE)


class Fold(NamedTuple):
    """People to learn from and people to predict, with and without the time among their contexts."""

    training: Logs
    held_out: Logs
    clocked_training: Logs
    clocked_held_out: Logs

    def tables(self, clocked: bool) -> tuple[Logs, Logs]:
        return (self.clocked_training, self.clocked_held_out) if clocked else (self.training, self.held_out)


def make_folds(logs: Logs, seed: int) -> list[Fold]:
    """Hold out three tenths of the people once, or each of few people once, in three parts."""
    clocked = logs.with_clock() if logs.clock is not None else logs
    told = np.flatnonzero(np.bincount(logs.instance[logs.rewarded], minlength=logs.instances) > 0)
    order = np.random.default_rng(as_seed(seed)).permutation(told)
    if len(order) < 100 or logs.rows < 5000:
        parts = np.array_split(order, min(3, len(order)))
    else:
        parts = [order[: round(0.3 * len(order))]]
    folds = []
    for part in parts:
        held, kept = _at_most(logs, part, *MOST_HELD_OUT), _at_most(logs, np.setdiff1d(order, part), *MOST_LEARNED)
        folds.append(Fold(logs.select(kept), logs.select(held), clocked.select(kept), clocked.select(held)))
    return folds


def _at_most(logs: Logs, people: np.ndarray, rows: int, number: int) -> np.ndarray:
    """Take at most so many of the people, whose histories have together not many more rows than this."""
    shuffled = np.random.default_rng(0).permutation(np.sort(people))[:number]
    before = np.cumsum(logs.lengths[shuffled]) - logs.lengths[shuffled]
    return np.sort(shuffled[before < rows])


class _Leading(eqx.Module):
    """The widest coordinates of an encoding."""

    encoder: Encoder
    basis: Affine

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " n"]:
        return self.basis(self.encoder(context))


class _Encoding(NamedTuple):
    """A way to encode, and the encoder that it gave in each fold."""

    name: str
    recipe: EncoderRecipe
    latent_dim: int
    encoders: Sequence[Encoder]
    rank: int
    inflations: Sequence[tuple[float, ...]]


class _Structure(NamedTuple):
    """How rewards follow from the state: what only they show, and the moment."""

    hidden: int = 0
    same_level: bool = False
    moment: Moment = "none"
    clocked: bool = False

    def recipe(self, encoded: bool) -> PersonRewardRecipe:
        # Without any state an own effect would be all there is of a person: the mean of each action has none.
        return PersonRewardRecipe(self.hidden, self.same_level, self.moment, own_effects=encoded or self.hidden > 0)

    @property
    def name(self) -> str:
        state = "own level" if self.same_level else f"{self.hidden} hidden" if self.hidden else ""
        moment = "" if self.moment == "none" else f"{self.moment} moment{' with time' if self.clocked else ''}"
        return ", ".join(part for part in (state, moment) if part)

    @property
    def rank(self) -> int:
        hidden = 0 if not self.hidden else 1 if self.same_level else 2 if self.hidden <= SOME_HIDDEN else 3
        return hidden + {"none": 0, "linear": 1, "boosted": 3}[self.moment] + int(self.clocked)


class _Attempt(NamedTuple):
    trial: Trial
    encoding: _Encoding
    structure: _Structure


SOME_HIDDEN, MANY_HIDDEN = 4, 8
"""Coordinates that only rewards show; more than the table speaks for fade by themselves."""

LEAST_DEEP = 5000
"""Rows that a deep encoder needs to be worth a try."""

LEAST_BOOSTED = 300
"""Rewards that trees need to be worth a try."""

MOST_BOOSTED_COLUMNS = 200
"""With more context columns trees would take longer than all the rest."""

NOTHING = _Structure()
OWN_LEVEL = _Structure(1, same_level=True)

TRY, TRAIN, TRAIN_DEEP = 1, 6, 15
"""How long parts of the search take beside each other, for the time left: a guess."""

WHOLE, SEARCHING = 1000, 800
"""Units of progress of a fit, and those before the last training."""


def first_part(report: Report) -> Report:
    """Give the search its part of the progress of a fit."""
    return lambda done, total, value: report(round(SEARCHING * done / max(total, 1)), WHOLE, value)


def last_part(report: Report) -> Report:
    """Give the training after the search the rest."""
    rest = WHOLE - SEARCHING
    return lambda done, total, value: report(SEARCHING + round(rest * done / max(total, 1)), WHOLE, value)


class _Steps:
    """Progress of a search, in units of a try; parts that turn out not to be needed are skipped at the end."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total, self._done = report, total, 0
        self._value = float("nan")

    def advance(self, units: int, value: float | None = None) -> None:
        self._value = self._value if value is None else value
        self._done = min(self._done + units, self._total - 1)
        self._report(self._done, self._total, self._value)

    def within(self, units: int) -> Report:
        """Give what a training is to call, whose own steps are worth so many units here; they are added at its end."""

        def report(done: int, total: int, value: float) -> None:
            del value
            part = min(round(units * done / max(total, 1)), units)
            self._report(min(self._done + part, self._total - 1), self._total, self._value)

        return report

    def finish(self) -> None:
        self._report(self._total, self._total, self._value)


def without_cross_fit(recipe: EncoderRecipe) -> EncoderRecipe:
    """Leave out what a recipe would repeat to measure its noise: held-out people have shown it."""
    if isinstance(recipe, WithContexts):
        return replace(recipe, recipe=without_cross_fit(recipe.recipe))
    return replace(recipe, cross_fit=False) if isinstance(recipe, TiedRecipe) else recipe


def plain_models(training: Logs) -> dict[str, LatentModel]:
    """Fit what anybody could write in ten lines: the mean of each action, and beside it a level for each person."""
    structures = {"action mean": NOTHING, "own level": OWN_LEVEL}
    return {
        name: complete_model(NoEncoder(), training, reward=structure.recipe(encoded=False))
        for name, structure in structures.items()
    }


class Search:
    """The comparison: what is not given is looked for, part by part, each beginning where the last one came to."""

    def __init__(
        self,
        logs: Logs,
        *,
        recipe: EncoderRecipe | None = None,
        reward: RewardRecipe | None = None,
        latent_dim: int | None = None,
        seed: int = 0,
        report: Report = silent,
    ) -> None:
        self.logs, self.recipe, self.reward, self.latent_dim, self.seed = logs, recipe, reward, latent_dim, seed
        self.folds = make_folds(logs, seed)
        self.attempts: list[_Attempt] = []
        self.columns = logs.width - logs.schema.clocked  # encoders never read the time
        self.encodable = self.columns > 0 and bool(logs.lengths.max() > 1)
        trainings = (TRAIN + (TRAIN_DEEP if recipe is None else 0)) * len(self.folds) if self.encodable else 0
        self.steps = _Steps(report, trainings + (18 if self.encodable else 9) * TRY * len(self.folds))

    def run(self) -> ModelChoice:
        # Matrices here are small: threads that share one of them only wait for each other.
        with threadpool_limits(1):
            return self._run()

    def _run(self) -> ModelChoice:
        nothing = _Encoding("", NoEncoding(), 0, [NoEncoder()] * len(self.folds), 0, [()] * len(self.folds))
        self._try_structures(nothing)
        if self.encodable or self.recipe is not None:
            self._try_encoders(self._best.structure)
        if self.reward is None and self._features:
            self._try_boosting()
        self.steps.finish()
        return ModelChoice.of([attempt.trial for attempt in self.attempts], len(self.folds))

    @property
    def _free(self) -> bool:
        """Nothing was said of encoders, so that none at all may be taken."""
        return self.recipe is None and self.latent_dim is None

    @property
    def _best(self) -> _Attempt:
        allowed = [attempt for attempt in self.attempts if attempt.trial.eligible]
        return max(allowed or self.attempts, key=lambda attempt: attempt.trial.log_likelihood)

    @property
    def _features(self) -> list[_Structure]:
        """What a linear moment could depend on: contexts, and contexts with the time."""
        timed = self.folds[0].clocked_training.width > self.logs.width
        plain = [OWN_LEVEL._replace(moment="linear")] if self.logs.width else []
        return plain + ([OWN_LEVEL._replace(moment="linear", clocked=True)] if timed else [])

    def _try_structures(self, nothing: _Encoding) -> None:
        """Compare what only rewards show, and the moment, without any encoder; the plain references are among these."""
        self._try(nothing, NOTHING, "action mean")
        self._try(nothing, OWN_LEVEL, "own level")
        for structure in self._features:
            self._try(nothing, structure, f"ridge{' with time' if structure.clocked else ''} + own level")
        if self.reward is not None:
            if self._free:
                self._try(nothing, NOTHING)
            return
        best = self._best.structure
        for hidden in dict.fromkeys(min(number, self.logs.actions) for number in (SOME_HIDDEN, MANY_HIDDEN)):
            self._try(nothing, best._replace(hidden=hidden, same_level=False))
        best = self._best.structure
        if best.moment != "none" and best.hidden > 1:
            self._try(nothing, best._replace(moment="none", clocked=False))
        elif self._features and best.hidden > 1:
            self._try(nothing, best._replace(moment="linear", clocked=self._features[-1].clocked))

    def _try_encoders(self, structure: _Structure) -> None:
        if self.recipe is not None:
            name = type(self.recipe).__name__
            for encoding in self._train(name, self.recipe, 3, TRAIN):
                self._try_encoding(encoding, structure)
            return
        before = self._best
        plain = None
        if self.latent_dim is None:
            [plain] = self._train("contexts", PlainContexts(), 2, 0)
            self._try_encoding(plain, structure)
        tied = self._train("tied", TiedRecipe(), 4, TRAIN)
        for encoding in tied:
            self._try(encoding, NOTHING)
        tied = [self._narrowest(tied)]
        self._try_encoding(tied[0], structure)
        if plain is not None and self._improves_on(before):
            beside = [SideBySide(*both) for both in zip(tied[0].encoders, plain.encoders, strict=True)]
            recipe = WithContexts(encoding_dim=tied[0].latent_dim)
            inflations = [(*wider, *[1.0] * plain.latent_dim) for wider in tied[0].inflations]
            named = "tied beside contexts"
            self._try_encoding(_Encoding(named, recipe, tied[0].latent_dim, beside, 5, inflations), structure)
        # Where the two can't be told apart the deep one is taken: with everyone's rows it gains more.
        if self._improves_on(before) and self.logs.rows >= LEAST_DEEP:
            [deep] = self._train("deep", TiedRecipe.deep(), 3, TRAIN_DEEP, tied[0].latent_dim)
            self._try_encoding(deep, structure)

    def _narrowest(self, encodings: Sequence[_Encoding]) -> _Encoding:
        """Give the smallest dimension that is as good as the best, of those that were tried."""
        trials = {id(a.encoding): a.trial for a in self.attempts}
        choice = ModelChoice.of([trials[id(encoding)]._replace(eligible=True) for encoding in encodings], 1)
        return next(e for e in encodings if trials[id(e)].candidate == choice.chosen.candidate)

    def _improves_on(self, before: _Attempt) -> bool:
        """Tell whether an encoder is worth it so far, so that more of its kind may be."""
        lead = self._best.trial.lead_over(before.trial)
        return not before.trial.eligible or lead.value > lead.standard_error

    def _try_encoding(self, encoding: _Encoding, structure: _Structure) -> None:
        """Try the encoding with all that rewards alone have shown to be worth it, and as the paper has it."""
        self._try(encoding, structure)
        self._try(encoding, NOTHING)

    def _try_boosting(self) -> None:
        best = self._best
        rewards = min(np.count_nonzero(fold.training.rewarded) for fold in self.folds)
        if rewards < LEAST_BOOSTED or self.logs.width > MOST_BOOSTED_COLUMNS:
            return
        boosted = best.structure._replace(moment="boosted", clocked=best.structure.clocked or not self.logs.width)
        self._try(best.encoding, boosted)
        timed = self.folds[0].clocked_training.width > self.logs.width
        if timed and not boosted.clocked:
            self._try(best.encoding, boosted._replace(clocked=True))

    def _try(self, encoding: _Encoding, structure: _Structure, reference: str = "") -> None:
        encoded = bool(encoding.name)
        recipe: RewardRecipe = structure.recipe(encoded)
        if self.reward is not None and not reference:
            recipe, structure = self.reward, NOTHING
        tried = [(a.trial.candidate.reward, a.structure.clocked) for a in self.attempts if a.encoding is encoding]
        if (recipe, structure.clocked) in tried:
            return
        eligible = encoded or (self._free and (self.reward is None or not reference))
        shown = f"{encoding.name} {encoding.latent_dim}" if encoded else "no encoder" if structure == NOTHING else ""
        name = reference or ", ".join(part for part in (shown, structure.name) if part)
        candidate = Candidate(
            name,
            encoding.recipe,
            encoding.latent_dim,
            recipe,
            structure.clocked,
            encoding.rank + structure.rank,
            bool(reference),
            tuple(np.mean(encoding.inflations, axis=0).tolist()) if encoding.inflations[0] else (),
        )
        parts = zip(self.folds, encoding.encoders, encoding.inflations, strict=True)
        predictions = [self._predict(candidate, *part).of_people(number) for number, part in enumerate(parts)]
        trial = Trial(candidate, join(predictions), eligible)
        self.attempts.append(_Attempt(trial, encoding, structure))
        self.steps.advance(TRY * len(self.folds), self._best.trial.log_likelihood)

    def _predict(self, candidate: Candidate, fold: Fold, encoder: Encoder, inflation: tuple[float, ...]) -> Predictions:
        training, held_out = fold.tables(candidate.clocked)
        if candidate.clocked:
            encoder = without_clock(encoder, training.width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RareActionWarning)
            reward = (
                candidate.reward.hastened() if isinstance(candidate.reward, PersonRewardRecipe) else candidate.reward
            )
            model = complete_model(encoder, training, reward=reward, seed=self.seed, inflation=inflation)
        return predict_ahead(model, held_out, rounds=ROUNDS)

    def _train(
        self, name: str, recipe: EncoderRecipe, rank: int, units: int, latent_dim: int | None = None
    ) -> list[_Encoding]:
        """Train an encoder in each fold; without a given dimension, a wide one, and the leading coordinates of it."""
        logs = [fold.training for fold in self.folds]
        latent_dim = self.latent_dim if latent_dim is None else latent_dim
        given = latent_dim is not None or not units
        dim = latent_dim or min(WIDEST, self.columns, max(min(table.instances for table in logs) - 1, 1))
        # How encodings vary within people not seen is measured on those who are held out here.
        quick = without_cross_fit(recipe)
        if isinstance(quick, TiedRecipe):
            quick = replace(quick, room=(self.logs.rows, self.logs.instances))
        keys, report = fit_keys([self.seed] * len(logs)), self.steps.within(units * len(logs))
        trained = train_encoders(quick, keys, logs, dim, report)
        if any(result.interrupted for result in trained):
            raise KeyboardInterrupt
        self.steps.advance(units * len(logs))
        encoders = [result.encoder for result in trained]
        if not units:
            return [_Encoding(name, recipe, _width(encoders[0], logs[0]), encoders, rank, [()] * len(logs))]
        if not _width(encoders[0], logs[0]):
            return [_Encoding(name, recipe, 0, encoders, rank, [()] * len(logs))]
        wider = [_inflation(*pair) for pair in zip(encoders, self.folds, strict=True)]
        if given or _width(encoders[0], logs[0]) != dim:
            inflations = [(one,) * _width(encoders[0], logs[0]) for one in wider]
            return [_Encoding(name, recipe, dim, encoders, rank, inflations)]
        bases, widths = zip(*(_leading(*pair) for pair in zip(encoders, self.folds, strict=True)), strict=True)
        widths = np.mean(widths, axis=0)
        dims = [int(np.sum(widths > share * widths[0])) for share in SHARES]
        found = []
        for dim in dict.fromkeys(max(dim, 1) for dim in dims):
            leading = [_Leading(*pair) for pair in zip(encoders, (_first(basis, dim) for basis in bases), strict=True)]
            found.append(_Encoding(name, recipe, dim, leading, rank, [(one,) * dim for one in wider]))
        return found


SHARES = (0.5, 0.3, 0.1)
"""Coordinates are kept whose variance over people, in units of noise, is at least this share of the widest one's."""


def _leading(encoder: Encoder, fold: Fold) -> tuple[Affine, Float[np.ndarray, " n"]]:
    """Find the basis of uncorrelated coordinates, widest first, and how wide they are among held-out people."""
    seen, fresh = (
        measure_scatter(encode_contexts(encoder, table.context), table.starts)
        for table in (fold.training, fold.held_out)
    )
    matrix = canonical_basis(seen.encoding_covariance, seen.population_covariance).matrix[:, ::-1]
    noise, spread = (np.einsum("ij,ik,kj->j", matrix, part, matrix) for part in (fresh[0], fresh[2]))
    basis = Affine(jnp.asarray(matrix, jnp.float32), jnp.asarray(-seen.population_mean @ matrix, jnp.float32))
    return basis, spread / np.maximum(noise, 1e-12)


def _inflation(encoder: Encoder, fold: Fold) -> float:
    """Measure how many times wider encodings vary within people that the encoder was not trained on."""
    tables = (fold.training, fold.held_out)
    encodings = np.concatenate([encode_contexts(encoder, table.context) for table in tables]).astype(np.float64)
    starts = np.concatenate([fold.training.starts, fold.training.rows + fold.held_out.starts[1:]])
    unseen = np.repeat([False, True], [table.instances for table in tables])
    return Unseen.pooled([Unseen.measure(encodings, starts, unseen)], encodings.shape[1])


def _width(encoder: Encoder, logs: Logs) -> int:
    return int(encode_contexts(encoder, logs.context[:1]).shape[1])


def _first(basis: Affine, dim: int) -> Affine:
    return Affine(basis.matrix[:, :dim], basis.shift[:dim])
