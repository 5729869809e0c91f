"""Decision: what to do for one instance now, with the numbers behind it and a reason in words."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do for one instance now, and why.

    `number` counts the contexts of the instance from 0 and names the decision when its reward comes. The mappings go
    from action labels to numbers: what is believed of each action's expected reward (`expected_reward`, `reward_std`),
    how probable it is that it is the best allowed one (`probability_best`), and with what probability it was to be
    chosen (`propensities`). Probabilities of being best, and those of policies that sample, are shares of
    `ilb.online.policy.PROPENSITY_POINTS` fixed points of the belief.
    """

    instance: Hashable
    number: int
    action: Hashable
    expected_reward: Mapping[Hashable, float]
    reward_std: Mapping[Hashable, float]
    probability_best: Mapping[Hashable, float]
    propensities: Mapping[Hashable, float]
    reason: str

    @property
    def propensity(self) -> float:
        """The probability with which this action was chosen."""
        return self.propensities[self.action]


def explain(
    labels: Sequence[Hashable],
    instance: Hashable,
    number: int,
    action: int,
    numbers: Float[np.ndarray, "4 K"],
    allowed: Bool[np.ndarray, " K"],
) -> Decision:
    """Put the numbers of a decision under their labels and say why it was made."""
    mean, std, best, propensity = numbers.tolist()
    return Decision(
        instance,
        number,
        labels[action],
        dict(zip(labels, mean, strict=True)),
        dict(zip(labels, std, strict=True)),
        dict(zip(labels, best, strict=True)),
        dict(zip(labels, propensity, strict=True)),
        _reason(labels, action, mean, std, best, allowed),
    )


def _reason(
    labels: Sequence[Hashable],
    action: int,
    mean: list[float],
    std: list[float],
    best: list[float],
    allowed: Bool[np.ndarray, " K"],
) -> str:
    open_actions = range(len(mean)) if allowed.all() else np.flatnonzero(allowed).tolist()
    ranked = sorted(open_actions, key=mean.__getitem__, reverse=True)[:2]
    expected = f"expected {mean[action]:.3g} ± {std[action]:.2g}"
    chosen = f"{labels[action]!r} ({expected}, best with probability {best[action]:.2f})"
    ruled_out = "" if allowed.all() else f"; ruled out: {len(mean) - len(open_actions)}"
    if len(open_actions) == 1:
        return f"{chosen} is the only allowed action{ruled_out}"
    if action != ranked[0]:
        other = ranked[0]
        return f"{chosen} is tried although {labels[other]!r} is expected to give {mean[other]:.3g}{ruled_out}"
    other = ranked[1]
    return f"{chosen} is expected to be best, ahead of {labels[other]!r} with {mean[other]:.3g}{ruled_out}"
