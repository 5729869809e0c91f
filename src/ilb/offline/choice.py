"""What a choice is: candidates, what each predicted for people held out, and the simplest that is as good as the best.

A candidate is judged by the log-likelihood of each reward of people it has not seen, one step ahead from their own
past. Rewards with long tails make that a matter of a few rows, which then tell little of anything: of those that are as
good, it must also be as good in squared error. Long histories make it a matter of people whose rewards have told who
they are: of those that are as good, it must also be as good for people of whom only contexts are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ilb.estimates import Estimate
from ilb.logs import Logs
from ilb.models.drift import NO_DRIFT, Drift
from ilb.offline.ahead import Predictions, lead, mean_by_person
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.seeds import as_seed

MOST_LEARNED, MOST_HELD_OUT = (20_000, 3_000), (8_000, 3_000)
"""Rows and people that candidates are compared on: more would not change the choice, only its cost."""

FEW_PEOPLE = 40
"""With fewer people than this the sentence about a choice that is not clear says how little they tell."""

NEGLIGIBLE, NEGLIGIBLE_SHARE = 0.002, 0.05
"""Differences of the log-likelihood of a reward that nobody would notice: 0.4 % of the unexplained variance.

Where little can be explained at all, that may be most of it: there, such a share of what the best explains.
"""

TINY = 1e-30
"""Less than any squared error that is not zero."""


SURELY = 2.0
"""Standard errors by which a candidate is surely behind another."""


@dataclass(frozen=True)
class Candidate:
    """A way to fit: how contexts are encoded, how rewards follow, and whether the moment knows the time.

    `rank` orders candidates from simple to elaborate; a reference is what a user could write in ten lines. `inflation`
    is how many times wider each coordinate of the encoding varied within people who were held out. `drift` is how
    people change.
    """

    name: str
    encoder: EncoderRecipe
    latent_dim: int
    reward: RewardRecipe
    clocked: bool = False
    rank: int = 0
    reference: bool = False
    inflation: tuple[float, ...] = ()
    drift: Drift = NO_DRIFT


class Trial(NamedTuple):
    """What a candidate predicted for people whom it had not seen, and what if no reward of theirs had come back.

    What learns nothing from a person's rewards is the same `from_contexts`.
    """

    candidate: Candidate
    predictions: Predictions
    from_contexts: Predictions
    eligible: bool

    @property
    def log_likelihood(self) -> float:
        return float(self.predictions.log_likelihood.mean())

    @property
    def r_squared(self) -> float:
        """Not a number if the rewards never vary."""
        reward, error = self.predictions.reward, self.predictions.reward - self.predictions.mean
        total = np.sum((reward - reward.mean()) ** 2)
        return float(1 - np.sum(error**2) / total) if total > 0 else float("nan")

    @property
    def squared_error(self) -> float:
        return float(np.mean(self.predictions.squared_error))

    @property
    def negligible(self) -> float:
        """How much log-likelihood of a reward nobody would notice beside what this candidate explains of it."""
        explained = -0.5 * np.log1p(-np.clip(np.nan_to_num(self.r_squared), 0.0, 0.99))
        return min(NEGLIGIBLE, NEGLIGIBLE_SHARE * float(explained))

    def precision_over(self, other: Trial) -> Estimate:
        """Give by how much its squared error is lower than the other's, in the units of `lead_over`.

        A variance that is lower by a share s has a log-likelihood that is higher by about s / 2.
        """
        gain = other.predictions.squared_error - self.predictions.squared_error
        return mean_by_person(gain / max(2 * self.squared_error, TINY), self.predictions.person)

    def lead_over(self, other: Trial) -> Estimate:
        """Give by how much the log-likelihood of a reward is higher than the other's, with its error over people."""
        return lead(self.predictions, other.predictions)

    def lead_from_contexts_over(self, other: Trial) -> Estimate:
        """Give the lead as it would be if no reward had come back."""
        return lead(self.from_contexts, other.from_contexts)


@dataclass(frozen=True)
class ModelChoice:
    """The candidate that was taken, and those it was compared with, in the order of trying; none if people are too few.

    Scores are of `people` who were held out, at once or in so many `folds`. `misfits` is how often the chosen one was
    wrong for them, and how (`ilb.offline.misfits`).
    """

    candidate: Candidate
    trials: tuple[Trial, ...] = ()
    people: int = 0
    folds: int = 0
    misfits: tuple[float, ...] = ()

    @property
    def chosen(self) -> Trial:
        """What the chosen candidate predicted, if it was tried."""
        return next(trial for trial in self.trials if trial.candidate is self.candidate)

    @classmethod
    def of(cls, trials: Sequence[Trial], folds: int) -> ModelChoice:
        """Take the simplest within one standard error of the best; of equally simple ones, the best.

        First by log-likelihood, then, among those that are left, by squared error. Where a few rewards are far off, the
        standard error of the best may be so large that everything is within it: what another candidate surely beats is
        not as good for that. Nor is what knows surely less of newcomers than another one that is not surely worse.
        """
        allowed = [trial for trial in trials if trial.eligible]
        bar = max(allowed, key=lambda trial: trial.log_likelihood).negligible
        unbeaten = [t for t in allowed if all(_within(o.lead_over(t), bar, SURELY) for o in allowed)]
        unbeaten = [t for t in unbeaten if all(_within(o.lead_from_contexts_over(t), bar, SURELY) for o in unbeaten)]
        best = max(unbeaten, key=lambda trial: trial.log_likelihood)
        near = [trial for trial in unbeaten if _is_as_good(trial, best)]
        closest = min(near, key=lambda trial: trial.squared_error)
        near = [trial for trial in near if trial is closest or _within(closest.precision_over(trial), bar)]
        chosen = min(near, key=lambda trial: (trial.candidate.rank, trial.candidate.latent_dim, -trial.log_likelihood))
        return cls(chosen.candidate, tuple(trials), len(np.unique(best.predictions.person)), folds)

    def rows(self) -> list[dict[str, Any]]:
        """Give the table: R² and log-likelihood of a reward for each candidate, and how far behind the chosen one."""
        table = []
        for trial in self.trials:
            behind = self.chosen.lead_over(trial)
            table.append(
                {
                    "candidate": trial.candidate.name,
                    "r2": _rounded(trial.r_squared),
                    "log_likelihood": round(trial.log_likelihood, 4),
                    "behind": round(behind.value, 4),
                    "standard_error": _rounded(behind.standard_error),
                    "reference": trial.candidate.reference,
                    "eligible": trial.eligible,
                    "chosen": trial is self.chosen,
                }
            )
        return table

    def residual_quantiles(self) -> Float[np.ndarray, " levels"]:
        """Give the shape of the residuals of held-out people, if there are enough of them."""
        return self.chosen.predictions.residual_quantiles() if self.trials else np.zeros(0)

    def sentence(self) -> str:
        """Say what was taken and whether it is better than what anybody could write in ten lines."""
        chosen = self.candidate
        if not self.trials:
            return f"{chosen.name}: too few people to compare it with anything"
        how = f"{self.people} held-out people" if self.folds == 1 else f"{self.people} people, each held out once"
        best = max((trial for trial in self.trials if trial.eligible), key=lambda trial: trial.log_likelihood)
        near = [trial for trial in self.trials if trial.eligible and _is_as_good(trial, best)]
        passed_over = any(trial.candidate.rank < chosen.rank for trial in near)
        other = (
            ", but for some that others beat, that are less close or that know less of newcomers,"
            if passed_over
            else ""
        )
        said = f"{chosen.name} chosen: the simplest within one standard error of the best{other} on {how}"
        if all(trial is not self.chosen for trial in near):
            said = f"{chosen.name} chosen: within two standard errors of the best on {how}, and better for newcomers"
        if chosen.reference:
            return f"{said}. A plain reference is as good here as anything that was tried."
        references = [trial for trial in self.trials if trial.candidate.reference]
        if not references:
            return f"{said}."
        rival = max(references, key=lambda trial: trial.log_likelihood)
        ahead = self.chosen.lead_over(rival)
        beats = ahead.value > 2 * ahead.standard_error
        verdict = "better than" if beats else "not surely better than" if ahead.value > 0 else "no better than"
        few = f" {self.people} people can't tell much." if self.people < FEW_PEOPLE and not beats else ""
        return (
            f"{said}; it predicts their next reward {verdict} the best plain reference ({rival.candidate.name}): "
            f"R² {self.chosen.r_squared:.3f} against {rival.r_squared:.3f}, log-likelihood {ahead.value:+.3f} ± "
            f"{ahead.standard_error:.3f} a reward.{few}"
        )


def _is_as_good(trial: Trial, best: Trial) -> bool:
    """Tell whether the log-likelihood is within one standard error of the best, or nobody would notice."""
    return trial is best or _within(best.lead_over(trial), best.negligible)


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)


def _within(behind: Estimate, negligible: float, errors: float = 1.0) -> bool:
    return np.isnan(behind.standard_error) or behind.value <= max(errors * behind.standard_error, negligible)


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


def some_people(logs: Logs, most: int) -> Logs:
    """Draw at most so many people of a table, always the same ones; the first ones of a table may be alike."""
    if logs.instances <= most:
        return logs
    return logs.select(np.sort(np.random.default_rng(0).permutation(logs.instances)[:most]))


def _at_most(logs: Logs, people: np.ndarray, rows: int, number: int) -> np.ndarray:
    """Take at most so many of the people, whose histories have together not many more rows than this."""
    shuffled = np.random.default_rng(0).permutation(np.sort(people))[:number]
    before = np.cumsum(logs.lengths[shuffled]) - logs.lengths[shuffled]
    return np.sort(shuffled[before < rows])
