"""Models that decide for people they have not seen: everybody is held out once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ilb.errors import IlbWarning, LogsError
from ilb.logs import Logs
from ilb.models.baselines import Ingredients
from ilb.models.drift import without_drift
from ilb.models.latent import LatentModel, LinearReward
from ilb.models.moments import AbstractMoment
from ilb.offline.ahead import moment_effects
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.fit import require_whole
from ilb.offline.search import plain_models
from ilb.trust.expectations import Expectations, expect
from ilb.types import Report, silent

MOST_PEOPLE = 4000
"""People who are played at most: with more, intervals would be narrower than anybody needs, and hours pass."""

LEAST_PEOPLE = 20
"""With fewer people a gain can't be told from luck."""


@dataclass(frozen=True, eq=False)
class Fold:
    """People who were held out, what was learned from all others, and what that expects of those held out.

    `effects` are those of the actions on the others, each compared with their own mean, and minus infinity where none
    of them had it. `expecting` is the model itself, as if people stayed as they are, which replays take for granted; or
    a plain one where expectations in closed form can't be had from it.
    """

    people: Int[np.ndarray, " held_out"]
    logs: Logs
    model: LatentModel
    ingredients: Ingredients
    effects: Float[np.ndarray, " K"]
    expecting: LatentModel
    expectations: Expectations

    @classmethod
    def of(
        cls,
        logs: Logs,
        people: Int[np.ndarray, " held_out"],
        model: LatentModel,
        left_out: Int[np.ndarray, " left_out"] | None = None,
    ) -> Fold:
        """Put what a model needs to be evaluated beside it; `left_out` are all it has not seen, if more than these."""
        table = model.read(logs)
        unseen = people if left_out is None else left_out
        others, held_out = table.select(np.setdiff1d(np.arange(logs.instances), unseen)), table.select(people)
        # Expectations in closed form need linear rewards; an own level for each person does for others.
        linear = isinstance(model.reward, LinearReward)
        expecting = without_drift(model) if linear else plain_models(others)["own level"]
        return cls(
            people,
            held_out,
            model,
            prepare_ingredients(model, others),
            effects_of_seen(others),
            expecting,
            expect(expecting, held_out),
        )

    @property
    def best_action(self) -> int:
        """The action that does best for the others."""
        return int(np.argmax(self.effects))


def cross_fit(
    logs: Logs, fit_on: Callable[[Logs], LatentModel], *, folds: int, seed: int = 0, report: Report = silent
) -> list[Fold]:
    """Hold out each part of the people once, and fit on the others.

    Of very many people, only some are played: what is gained is known well enough from them.
    """
    order = np.random.default_rng([seed, 0]).permutation(logs.instances)
    fitted = []
    for number, people in enumerate(np.array_split(order, folds)):
        report(number, folds, 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IlbWarning)  # each was told, or would be told five times
            model = fit_on(logs.select(np.setdiff1d(order, people)))
            require_whole(model)
            played = np.sort(people[: max(MOST_PEOPLE // folds, 1)])
            fitted.append(Fold.of(logs, played, model, np.sort(people)))
    report(folds, folds, 0.0)
    return fitted


def with_rewards(logs: Logs, folds: int) -> Logs:
    """Keep the people who have a reward, and refuse what can't be divided."""
    logs.require_any_reward()
    told = np.flatnonzero(np.bincount(logs.instance[logs.rewarded], minlength=logs.instances) > 0)
    if folds < 2 or folds > len(told) // 2:
        raise LogsError(
            f"folds must be between 2 and half the number of people with rewards; got folds={folds} with {len(told)} "
            "people."
        )
    return logs if len(told) == logs.instances else logs.select(told)


def effects_of_seen(logs: Logs) -> Float[np.ndarray, " K"]:
    """Give the effect of each action, and minus infinity where nobody had it.

    Effects are differences within people: whom an action was given to does not matter.

    >>> logs = Logs.from_arrays(np.zeros((2, 2, 0)), [[0, 1], [1, 2]], [[1.0, 2.0], [9.0, 8.2]], actions=4)
    >>> effects_of_seen(logs).round(2).tolist()
    [-0.4, 0.6, -0.2, -inf]
    """
    seen = np.bincount(logs.action[logs.rewarded], minlength=logs.actions) > 0
    return np.where(seen, action_effects(logs), -np.inf)


def action_effects(logs: Logs) -> Float[np.ndarray, " K"]:
    """Least squares of rewards on a level for each person and an effect for each action; effects sum to zero."""
    normal, moments = within_people(*cell_sums(logs))
    return np.asarray(np.linalg.pinv(normal) @ moments.sum(axis=0))


def within_people(
    pulls: Float[np.ndarray, "I K"], sums: Float[np.ndarray, "I K"]
) -> tuple[Float[np.ndarray, "K K"], Float[np.ndarray, "I K"]]:
    """Give the normal equations of these effects, levels eliminated: the matrix, and each person's share of moments."""
    shares = pulls / np.maximum(pulls.sum(axis=1, keepdims=True), 1)
    return np.diag(pulls.sum(axis=0)) - pulls.T @ shares, sums - shares * sums.sum(axis=1, keepdims=True)


def cell_sums(
    logs: Logs, moment: AbstractMoment | None = None
) -> tuple[Float[np.ndarray, "I K"], Float[np.ndarray, "I K"]]:
    """Count the rewards of each person and action, and add them up, less what the moment added to them."""
    rows = np.flatnonzero(logs.rewarded)
    lasting = logs.reward[rows] - moment_effects(moment, logs)[rows]
    cell = logs.instance[rows].astype(np.int64) * logs.actions + logs.action[rows]
    shape = (logs.instances, logs.actions)
    pulls, sums = (np.bincount(cell, weights, shape[0] * shape[1]) for weights in (None, lasting))
    return pulls.reshape(shape).astype(np.float64), sums.reshape(shape).astype(np.float64)


def rows_of(logs: Logs, people: Int[np.ndarray, " people"]) -> Int[np.ndarray, " rows"]:
    """Give the rows of these people, in the order of `Logs.select`."""
    lengths = logs.lengths[people]
    return np.asarray(np.arange(lengths.sum()) + np.repeat(logs.starts[people] - np.cumsum(lengths) + lengths, lengths))


def by_person(folds: Sequence[Fold], parts: Sequence[np.ndarray]) -> np.ndarray:
    """Put what was computed fold by fold into the order of people."""
    return np.asarray(np.concatenate(parts)[np.argsort(np.concatenate([fold.people for fold in folds]))])
