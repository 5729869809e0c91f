"""Values and rewards that are nowhere near those of the logs, mostly slips of the keyboard: warned of, or refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ilb.errors import DecisionError, LogsWarning
from ilb.logs import Schema
from ilb.logs.messages import counted, shown, warn
from ilb.models.calibration import Calibration
from ilb.models.latent import LatentModel, LinearReward
from ilb.models.moments import AbstractMoment

FAR = 10.0
"""Standard deviations from the mean of the logs beyond which a value is taken for a slip."""

LARGEST = 1e15
"""The largest value and reward that is taken: beside a larger one, sums of all others would have no digits left."""


def warn_of_it(what: str) -> None:
    """Take in what is far from the logs, with a warning."""
    warn(f"{what}. Check it; if it is wrong, restore an earlier saved state.", LogsWarning)


def refuse_it(what: str) -> None:
    """Do not take in what is far from the logs."""
    raise DecisionError(f"{what}. Nothing was changed: check it; a bandit with far='warn' takes it in with a warning.")


Telling = Callable[[str], None]
"""What to do about something that is far from the logs."""

WAYS: dict[str, Telling] = {"warn": warn_of_it, "refuse": refuse_it}


def way_of(far: str) -> Telling:
    """Give what to do about what is far from the logs, by its name."""
    if far not in WAYS:
        raise DecisionError(f"far= is what to do about values far from the logs, {shown(list(WAYS))}; got {far!r}.")
    return WAYS[far]


def check_contexts(
    schema: Schema, rows: Float[np.ndarray, "rows d"], labels: Sequence[Hashable], tell: Telling
) -> None:
    """Tell of scaled contexts in which a value is far from those that the model was fitted on; refuse absurd ones."""
    distance = np.abs(rows)
    if distance.max(initial=0.0) <= FAR:
        return
    row, column = np.unravel_index(distance.argmax(), rows.shape)
    farthest, name, label = distance[row, column], schema.names[column], labels[row]
    if farthest > LARGEST:
        raise DecisionError(
            f"column {name!r} of {label!r} is {farthest:.3g} standard deviations from its mean in the logs, where "
            "nothing can be known. Nothing was changed: check the value, or give None where there is none."
        )
    # Columns that were not scaled have no mean to be far from.
    if any(getattr(column, "mean", 0) != 0 for column in schema.context):
        others = int((distance.max(axis=1) > FAR).sum()) - 1
        more = f" ({counted(others, 'other instance')} with such values)" if others else ""
        tell(
            f"column {name!r} of {label!r} is {farthest:.3g} standard deviations from its mean in the logs{more}, "
            "where the encoder knows nothing"
        )


class UsualRewards:
    """What the rewards of each action are about, over all people of the logs, and how far they vary."""

    def __init__(
        self, mean: Float[np.ndarray, " K"], std: Float[np.ndarray, " K"], moment: AbstractMoment | None
    ) -> None:
        self._mean: list[float] = mean.tolist()
        self._std: list[float] = std.tolist()
        self._moment = None if moment is None else eqx.filter_jit(moment)

    @staticmethod
    def of(model: LatentModel) -> UsualRewards | None:
        """Read them off a model with linear rewards; others do not say how rewards vary."""
        if not isinstance(model.reward, LinearReward):
            return None
        known = Calibration.of(model, model.reward)
        variance = known.theta**2 @ (1 / known.prior_precision) + known.own_variance + known.reward_variance
        return UsualRewards(known.intercept, np.sqrt(variance), model.moment)

    def check(
        self, reward: float, action: int, label: Hashable, context: Float[np.ndarray, " d"], tell: Telling
    ) -> None:
        """Tell of a reward that is far from those of its action in the logs."""
        mean, std = self._mean[action], self._std[action]
        if abs(reward - mean) <= FAR * std:
            return
        if self._moment is not None:  # what the moment adds may explain it, and is computed only now
            mean += float(self._moment(jnp.asarray(context))[action])
        if abs(reward - mean) > FAR * std:
            tell(
                f"the reward {reward:g} of {label!r} is {abs(reward - mean) / std:.3g} standard deviations from what "
                f"the logs lead to expect ({mean:.6g} ± {std:.2g})"
            )
