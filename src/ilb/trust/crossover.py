"""Complete crossovers: everybody has tried every action, so that nothing has to be guessed and regret is exact."""

from __future__ import annotations

from collections.abc import Sequence

import jax.random as jr
import numpy as np
from jaxtyping import Float

from ilb.offline.ahead import every_effect
from ilb.online.policy import AbstractPolicy
from ilb.streams import Stream
from ilb.trust.crossfit import Fold, by_person, cell_sums
from ilb.trust.replay import first_rows, queue_up, replay


def is_complete(folds: Sequence[Fold]) -> bool:
    """Say whether everybody has a reward of every action."""
    return all(bool((cell_sums(fold.logs)[0] > 0).all()) for fold in folds)


def recorded_regret(
    folds: Sequence[Fold], policies: Sequence[AbstractPolicy], rounds: int, *, seed: int
) -> Float[np.ndarray, " people"]:
    """Give everybody's mean regret of a decision, against the action with the best recorded mean at that moment.

    An action brings what was recorded of it for this person, however often it is taken, and what the moment adds.
    """
    parts = []
    for place, (fold, policy) in enumerate(zip(folds, policies, strict=True)):
        moment, table, values = fold.expecting.moment, recorded_means(fold), recorded_values(fold, rounds)
        people = queue_up(fold.logs, moment, fold.expectations, rounds)
        # With empty queues an action brings what is expected of it, here without any doubt or noise.
        people = people._replace(
            starts=np.zeros_like(people.starts),
            expected=table.astype(np.float32),
            expected_std=np.zeros_like(people.expected_std),
            noise_std=np.full_like(people.noise_std, 1e-12),
        )
        played = replay(jr.fold_in(Stream.PLAYING.key(seed), place), policy, moment, people)
        taken = np.take_along_axis(values, played.action[..., None].astype(np.int64), axis=2)[..., 0]
        parts.append((values.max(axis=2) - taken).mean(axis=1))
    return by_person(folds, parts)


def best_recorded(folds: Sequence[Fold], rounds: int) -> Float[np.ndarray, " people"]:
    """Give what the best recorded action of each moment would have brought everybody."""
    return by_person(folds, [recorded_values(fold, rounds).max(axis=2).mean(axis=1) for fold in folds])


def recorded_means(fold: Fold) -> Float[np.ndarray, "people K"]:
    """Give the mean reward of each person and action, less what the moment added."""
    pulls, sums = cell_sums(fold.logs, fold.expecting.moment)
    return np.asarray(sums / pulls)


def recorded_values(fold: Fold, rounds: int) -> Float[np.ndarray, "people H K"]:
    """Give the mean reward of each person and action as it would be in each of their first contexts."""
    shown = fold.logs.context[first_rows(fold.logs, rounds)]
    added = every_effect(fold.expecting.moment, shown, fold.logs.actions)
    return np.asarray(recorded_means(fold)[:, None, :] + added)
