"""Complete crossovers: everybody has tried every action, so that nothing has to be guessed and regret is exact."""

from __future__ import annotations

from collections.abc import Sequence

import jax.random as jr
import numpy as np
from jaxtyping import Float

from ilb.online.policy import AbstractPolicy
from ilb.streams import Stream
from ilb.trust.crossfit import Fold, by_person, cell_sums
from ilb.trust.replay import queue_up, replay


def is_complete(folds: Sequence[Fold]) -> bool:
    """Say whether everybody has a reward of every action."""
    return all(bool((cell_sums(fold.logs)[0] > 0).all()) for fold in folds)


def recorded_regret(
    folds: Sequence[Fold], policies: Sequence[AbstractPolicy], rounds: int, *, seed: int
) -> Float[np.ndarray, " people"]:
    """Give everybody's mean regret of a decision, against the action with the best recorded mean.

    An action brings what was recorded of it for this person, however often it is taken.
    """
    parts = []
    for place, (fold, policy) in enumerate(zip(folds, policies, strict=True)):
        table = recorded_means(fold)
        people = queue_up(fold.logs, None, fold.expectations, rounds, np.zeros(fold.logs.rows))
        # With empty queues an action brings what is expected of it, here without any doubt or noise.
        people = people._replace(
            starts=np.zeros_like(people.starts),
            expected=table.astype(np.float32),
            expected_std=np.zeros_like(people.expected_std),
            noise_std=np.full_like(people.noise_std, 1e-12),
        )
        played = replay(jr.fold_in(Stream.PLAYING.key(seed), place), policy, None, people)
        taken = np.take_along_axis(table, played.action, axis=1)
        parts.append((table.max(axis=1, keepdims=True) - taken).mean(axis=1))
    return by_person(folds, parts)


def regret_of_single(folds: Sequence[Fold]) -> Float[np.ndarray, " people"]:
    """Give the regret of the action that is best for the people of other folds."""
    tables = [recorded_means(fold) for fold in folds]
    return by_person(
        folds, [table.max(axis=1) - table[:, fold.best_action] for fold, table in zip(folds, tables, strict=True)]
    )


def recorded_means(fold: Fold) -> Float[np.ndarray, "people K"]:
    """Give the mean reward of each person and action."""
    pulls, sums = cell_sums(fold.logs)
    return np.asarray(sums / pulls)
