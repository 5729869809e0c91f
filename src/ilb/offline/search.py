"""The search for a model: a short list, tried on held-out people, each part beginning where the last one came to.

Whether contexts tell who a person is, whether only rewards do, whether the context of the moment matters and how: a
user does not know. The list begins with what anybody could write in ten lines, so that it shows when nothing more is
worth it. What the best of it is, `choice` says.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ilb.errors import RareActionWarning
from ilb.logs import Logs
from ilb.models.drift import NO_DRIFT
from ilb.models.latent import LatentModel, LinearReward
from ilb.networks import NoEncoder, SideBySide
from ilb.offline.ahead import Foresight, Predictions, join, predict_ahead
from ilb.offline.choice import Candidate, Fold, ModelChoice, Trial, make_folds
from ilb.offline.completion import complete_model, train_encoders, without_clock
from ilb.offline.drifts import find_drift
from ilb.offline.encoders import word_for
from ilb.offline.encoders.plain import NoEncoding, PlainContexts
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.leading import WIDEST, encoded_width, measure_inflation, narrowed
from ilb.offline.misfits import learn_misfits
from ilb.offline.progress import Steps
from ilb.offline.rewards.person import Moment, PersonRewardRecipe
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.offline.scaling import WidestAxes
from ilb.offline.training import fit_keys
from ilb.types import Encoder, Report, silent

ROUNDS = 50
"""Rewards of each held-out person that are predicted: early ones matter, and late ones cost as much."""


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
    """A trial, with the model that it gave in each fold."""

    trial: Trial
    encoding: _Encoding
    structure: _Structure
    models: Sequence[LatentModel]


SOME_HIDDEN, MANY_HIDDEN = 4, 8
"""Coordinates that only rewards show; more than the table speaks for fade by themselves."""

LEAST_DEEP = 5000
"""Rows that a deep encoder needs to be worth a try."""

LEAST_BOOSTED = 300
"""Rewards that trees need to be worth a try."""

MOST_BOOSTED_COLUMNS = 200
"""With more context columns trees would take longer than all the rest."""

LEAST_DRIFTING = 3
"""Rounds of somebody in which a change can show."""

NOTHING = _Structure()
OWN_LEVEL = _Structure(1, same_level=True)

TRY, TRAIN, TRAIN_DEEP, DRIFT = 1, 6, 15, 4
"""How long parts of the search take beside each other, for the time left: a guess."""


def plain_models(training: Logs) -> dict[str, LatentModel]:
    """Fit what anybody could write in ten lines: the mean of each action, and beside it a level for each person."""
    structures = {"action mean": NOTHING, "own level": OWN_LEVEL}
    return {
        name: complete_model(NoEncoder(), training, reward=structure.recipe(encoded=False))
        for name, structure in structures.items()
    }


def _time_varies(logs: Logs) -> bool:
    """Tell whether some action was taken at several times: else time and action can't be told apart."""
    time = logs.context[logs.rewarded, -1]
    first = np.full(logs.actions, np.nan, time.dtype)
    first[logs.action[logs.rewarded]] = time
    return bool(np.any(time != first[logs.action[logs.rewarded]]))


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
        self.timed = self.folds[0].clocked_training.width > logs.width and _time_varies(self.folds[0].clocked_training)
        self.columns = logs.width - logs.schema.clocked  # encoders never read the time
        self.encodable = self.columns > 0 and bool(logs.lengths.max() > 1)
        # An encoder learns from what varies within people; contexts that never do are known without one.
        first = logs.context[logs.starts[logs.instance], : self.columns]
        self.trainable = self.encodable and bool(np.any(logs.context[:, : self.columns] != first))
        trainings = (TRAIN + (TRAIN_DEEP if recipe is None else 0)) * len(self.folds) if self.trainable else 0
        tries = (18 if self.encodable else 9) * TRY + (3 * DRIFT if self._may_show_drift else 0)
        self.steps = Steps(report, trainings + tries * len(self.folds))

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
        self._try_drifts()
        choice = ModelChoice.of([attempt.trial for attempt in self.attempts], len(self.folds))
        misfits = self._misfits_of(choice.candidate)
        self.steps.finish()
        return replace(choice, misfits=misfits)

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
        plain = [OWN_LEVEL._replace(moment="linear")] if self.logs.width else []
        return plain + ([OWN_LEVEL._replace(moment="linear", clocked=True)] if self.timed else [])

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
            for encoding in self._train(word_for(self.recipe), self.recipe, 3, TRAIN if self.recipe.is_trained else 0):
                self._try_encoding(encoding, structure)
            return
        before = self._best
        plain = None
        if self.latent_dim is None:
            [plain] = self._train("contexts", PlainContexts(), 2, 0)
            self._try_encoding(plain, structure)
            if not self.trainable:
                return
        tied = self._train("tied", TiedRecipe(), 4, TRAIN)
        for encoding in tied:
            self._try(encoding, NOTHING)
        tied = [self._narrowest(tied)]
        self._try_encoding(tied[0], structure)
        if plain is not None and self._improves_on(before):
            beside = [SideBySide(*both) for both in zip(tied[0].encoders, plain.encoders, strict=True)]
            recipe = WithContexts(scaling=WidestAxes(), encoding_dim=tied[0].latent_dim)
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
        return next(e for e in encodings if trials[id(e)].candidate == choice.candidate)

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
        if self.timed and not boosted.clocked:
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
        shown = f"{encoding.name} {encoding.latent_dim}" if encoding.latent_dim else ""
        shown = "no encoder" if not shown and (encoded or structure == NOTHING) else shown
        name = reference or ", ".join(part for part in (shown, structure.name) if part)
        candidate = Candidate(
            name,
            encoding.recipe,
            encoding.latent_dim,
            recipe,
            structure.clocked,
            # A level for each person is one variance more, which fades by itself: without it nothing is simpler.
            max(encoding.rank + structure.rank, OWN_LEVEL.rank),
            bool(reference),
            tuple(np.mean(encoding.inflations, axis=0).tolist()) if encoding.inflations[0] else (),
        )
        models = self._models(candidate, encoding)
        trial = Trial(candidate, *self._predict(candidate, models), eligible)
        self.attempts.append(_Attempt(trial, encoding, structure, models))
        self.steps.advance(TRY * len(self.folds), self._best.trial.log_likelihood)

    def _try_drifts(self) -> None:
        """Ask whether people change: with the best so far, with the simplest that is as good, and with plain ones.

        What seems to be hidden, or of the moment, may stand in for a level or a state that drifts, which is better. A
        plain one is taken where it is the best, and not for being simple.
        """
        tried = list(self.attempts)
        choice = ModelChoice.of([attempt.trial for attempt in tried], len(self.folds))
        [simplest] = [attempt for attempt in tried if attempt.trial.candidate is choice.candidate]
        leading = {id(attempt): attempt for attempt in (self._best, simplest)}
        for attempt in leading.values():
            self.attempts += self._let_drift(attempt)
        for attempt in self._plain(tried):
            # Where nothing has changed so far, a level is asked as well, and nothing else.
            if id(attempt) in leading or (attempt.encoding.name and len(self.attempts) == len(tried)):
                continue
            best = self._best.trial.log_likelihood
            self.attempts += [found for found in self._let_drift(attempt) if found.trial.log_likelihood > best]

    @staticmethod
    def _plain(tried: Sequence[_Attempt]) -> list[_Attempt]:
        """Give the best level without any encoder, and the best of each kind of encoder with nothing beside it."""
        best: dict[str, _Attempt] = {}
        for attempt in sorted(tried, key=lambda attempt: attempt.trial.log_likelihood):
            name, structure = attempt.encoding.name, attempt.structure
            if attempt.trial.eligible and (structure == NOTHING if name else structure.same_level):
                best[name] = attempt
        return sorted(best.values(), key=lambda attempt: attempt.encoding.name)

    @cached_property
    def _may_show_drift(self) -> bool:
        """Whether somebody had an action twice, and some more rounds: else change looks like effects of actions."""
        told = self.logs.rewarded
        cells = self.logs.instance[told].astype(np.int64) * self.logs.actions + self.logs.action[told]
        return bool(self.logs.lengths.max() >= LEAST_DRIFTING and len(np.unique(cells)) < len(cells))

    def _let_drift(self, attempt: _Attempt) -> list[_Attempt]:
        """Give the attempt with people who change, if they do."""
        if not attempt.trial.eligible or not self._may_show_drift:
            return []
        candidate = attempt.trial.candidate
        pairs, units = list(zip(attempt.models, self._held_out(candidate), strict=True)), DRIFT * len(self.folds)
        drift = find_drift(pairs, ROUNDS, self.steps.within(units))
        self.steps.advance(units)
        if drift == NO_DRIFT:
            return []
        name, rank = f"{candidate.name}, memory {drift.memory:.2g}", candidate.rank + 1
        changing = replace(candidate, name=name, rank=rank, reference=False, drift=drift)
        return [attempt._replace(trial=Trial(changing, *self._predict(changing, attempt.models), eligible=True))]

    def _misfits_of(self, candidate: Candidate) -> tuple[float, ...]:
        """Ask how often, and how, the model that was chosen is wrong for people whom it has not seen."""
        models = next(attempt.models for attempt in self.attempts if attempt.trial.candidate is candidate)
        models = [candidate.drift.apply(model) for model in models]
        return tuple(learn_misfits(models, self._held_out(candidate)).tolist())

    def _predict(self, candidate: Candidate, models: Sequence[LatentModel]) -> tuple[Predictions, Predictions]:
        """Predict everyone held out from contexts and rewards so far, and from contexts so far alone."""
        ahead, from_contexts = [], []
        for number, (model, table) in enumerate(zip(models, self._held_out(candidate), strict=True)):
            if isinstance(model.reward, LinearReward):
                sight = Foresight(model, table)
                both = [sight.predict(candidate.drift, ROUNDS, from_rewards=known) for known in (True, False)]
            else:
                both = [predict_ahead(model, table, rounds=ROUNDS)] * 2
            ahead.append(both[0].of_people(number))
            from_contexts.append(both[1].of_people(number))
        return join(ahead), join(from_contexts)

    def _held_out(self, candidate: Candidate) -> list[Logs]:
        return [fold.tables(candidate.clocked)[1] for fold in self.folds]

    def _models(self, candidate: Candidate, encoding: _Encoding) -> list[LatentModel]:
        parts = zip(self.folds, encoding.encoders, encoding.inflations, strict=True)
        return [self._complete(candidate, *part) for part in parts]

    def _complete(
        self, candidate: Candidate, fold: Fold, encoder: Encoder, inflation: tuple[float, ...]
    ) -> LatentModel:
        training, _ = fold.tables(candidate.clocked)
        if candidate.clocked:
            encoder = without_clock(encoder, training.width)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RareActionWarning)
            reward = candidate.reward.hastened()
            return complete_model(encoder, training, reward=reward, seed=self.seed, inflation=inflation)

    def _train(
        self, name: str, recipe: EncoderRecipe, rank: int, units: int, latent_dim: int | None = None
    ) -> list[_Encoding]:
        """Train an encoder in each fold; without a given dimension, a wide one, and the leading coordinates of it."""
        logs = [fold.training for fold in self.folds]
        latent_dim = self.latent_dim if latent_dim is None else latent_dim
        given = latent_dim is not None or not units
        dim = latent_dim or min(WIDEST, self.columns, max(min(table.instances for table in logs) - 1, 1))
        # How encodings vary within people not seen is measured on those who are held out here.
        quick = recipe.without_cross_fit(room=(self.logs.rows, self.logs.instances))
        keys, report = fit_keys([self.seed] * len(logs)), self.steps.within(units * len(logs))
        trained = train_encoders(quick, keys, logs, dim, report)
        if any(result.interrupted for result in trained):
            raise KeyboardInterrupt
        self.steps.advance(units * len(logs))
        encoders = [result.encoder for result in trained]
        width = encoded_width(encoders[0], logs[0])
        if not units or not width:
            return [_Encoding(name, recipe, width, encoders, rank, [()] * len(logs))]
        wider = [measure_inflation(*pair) for pair in zip(encoders, self.folds, strict=True)]
        if given or width != dim:
            return [_Encoding(name, recipe, dim, encoders, rank, [(one,) * width for one in wider])]
        return [
            _Encoding(name, recipe, dim, narrow, rank, [(one,) * dim for one in wider])
            for dim, narrow in narrowed(encoders, self.folds).items()
        ]
