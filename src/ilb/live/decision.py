"""Decision: what to do for one instance now, with the numbers behind it and a reason in words."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr

from ilb.errors import DecisionError
from ilb.html import html_block, html_table, html_text
from ilb.online.policy import Outlook

DOUBTFUL = 0.5
"""The probability from which a doubt is put into words."""

NOISY = 1.5
"""How many times as widely as in the logs contexts must scatter for a remark."""

BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do for one instance now, and why.

    `number` counts the contexts of the instance from 0 and names the decision when its reward comes. The mappings go
    from action labels to numbers: what is believed of each action's expected reward (`expected_reward`, `reward_std`,
    and `interval`), how probable it is that it is the best allowed one (`probability_best`), with what probability it
    was to be chosen (`propensities`), and how probable it is that it is not what the logs say (`doubts`). `misfit` is
    the probability that the model is not right for this person; policies that never doubt it say 0. Probabilities of
    being best, and those of policies that sample, are shares of `ilb.online.policy.PROPENSITY_POINTS` fixed points of
    the belief.
    """

    instance: Hashable
    number: int
    action: Hashable
    expected_reward: Mapping[Hashable, float]
    reward_std: Mapping[Hashable, float]
    probability_best: Mapping[Hashable, float]
    propensities: Mapping[Hashable, float]
    reason: str
    doubts: Mapping[Hashable, float] = field(default_factory=dict)
    misfit: float = 0.0
    _outlook: Outlook | None = field(default=None, repr=False, compare=False)

    @property
    def propensity(self) -> float:
        """The probability with which this action was chosen."""
        return self.propensities[self.action]

    @property
    def has_noisy_contexts(self) -> bool:
        """Whether the contexts of this person scatter much more widely than those of the logs."""
        return self._outlook is not None and self._outlook.context_scatter > NOISY

    def interval(self, level: float = 0.95) -> dict[Hashable, tuple[float, float]]:
        """Say between what bounds the expected reward of each action is believed to be, with this probability."""
        if not 0 < level < 1:
            raise DecisionError(f"the level of an interval is between 0 and 1; got {level!r}.")
        if self._outlook is None:
            raise DecisionError("this decision was not made by a LiveInstance: there is no belief behind it.")
        bounds = quantiles(self._outlook, np.array([(1 - level) / 2, (1 + level) / 2]))
        return dict(zip(self.expected_reward, map(tuple, bounds.T.tolist()), strict=True))

    def _repr_html_(self) -> str:
        """Show in a notebook what to do, why, and what is believed of every action, the best expected first."""
        ranked = sorted(self.expected_reward, key=self.expected_reward.__getitem__, reverse=True)
        bounds = {} if self._outlook is None else self.interval()
        rows = [
            [
                label,
                f"{self.expected_reward[label]:.3g}",
                "{:.3g} to {:.3g}".format(*bounds[label]) if bounds else "-",
                f"{self.probability_best[label]:.2f}",
            ]
            for label in ranked
        ]
        header = ["action", "expected reward", "95 % interval", "probability best"]
        table = html_table(header, rows, [ranked.index(self.action)])
        return html_block(f"{self.action} for {self.instance}", html_text(self.reason), table)


def quantiles(outlook: Outlook, levels: Float[np.ndarray, " levels"]) -> Float[np.ndarray, "levels K"]:
    """Invert the distribution function of the mixture of each action, by bisection."""
    weights, means, stds = (np.asarray(part, np.float64) for part in outlook[:3])
    stds = np.maximum(stds, np.finfo(np.float32).tiny)
    reach = 12 * stds
    low, high = (
        np.tile((means - reach).min(axis=0), (len(levels), 1)),
        np.tile((means + reach).max(axis=0), (len(levels), 1)),
    )
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = np.sum(weights * ndtr((middle[:, None] - means) / stds), axis=1) < levels[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def explain(
    labels: Sequence[Hashable],
    says: Sequence[str],
    instance: Hashable,
    number: int,
    action: int,
    numbers: Float[np.ndarray, "4 K"],
    outlook: Outlook,
    allowed: Bool[np.ndarray, " K"],
) -> Decision:
    """Put the numbers of a decision under their labels and say why it was made; `says` has words for hypotheses."""
    mean, std, best, propensity = numbers.tolist()
    doubts = outlook.doubts.tolist()
    reason = _reason(labels, action, mean, std, best, allowed)
    return Decision(
        instance,
        number,
        labels[action],
        dict(zip(labels, mean, strict=True)),
        dict(zip(labels, std, strict=True)),
        dict(zip(labels, best, strict=True)),
        dict(zip(labels, propensity, strict=True)),
        "; ".join([reason, *_doubts_in_words(labels, says, outlook)]),
        dict(zip(labels, doubts, strict=True)),
        float(1 - outlook.hypotheses[0]),
        outlook,
    )


def _doubts_in_words(
    labels: Sequence[Hashable],
    says: Sequence[str],
    outlook: Outlook,
) -> list[str]:
    words, hypotheses = [], np.asarray(outlook.hypotheses)
    likeliest = int(np.argmax(hypotheses))
    if likeliest and 1 - hypotheses[0] > DOUBTFUL:
        words.append(f"the model does not fit this person (probability {1 - hypotheses[0]:.2f}): {says[likeliest]}")
    changed = [f"{labels[a]!r} ({doubt:.2f})" for a, doubt in enumerate(outlook.doubts.tolist()) if doubt > DOUBTFUL]
    if changed:
        words.append(f"rewards here are not what the logs say of {', '.join(changed)}")
    if (scatter := outlook.context_scatter) > NOISY:
        words.append(f"the contexts of this person scatter {scatter:.1f} times as widely as in the logs")
    return words


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
    expected = f"expected {_rounded(mean[action], std[action])} ± {std[action]:.2g}"
    chosen = f"{labels[action]!r} ({expected}, best with probability {best[action]:.2f})"
    ruled_out = "" if allowed.all() else f"; ruled out: {len(mean) - len(open_actions)}"
    if len(open_actions) == 1:
        return f"{chosen} is the only allowed action{ruled_out}"
    if action != ranked[0]:
        other = ranked[0]
        better = _rounded(mean[other], std[other])
        return f"{chosen} is tried although {labels[other]!r} is expected to give {better}{ruled_out}"
    other = ranked[1]
    worse = _rounded(mean[other], std[other])
    return f"{chosen} is expected to be best, ahead of {labels[other]!r} with {worse}{ruled_out}"


def _rounded(mean: float, std: float) -> str:
    """Write a mean in three digits, or in as many as its standard deviation leaves.

    >>> _rounded(0.28571, 0.58), _rounded(1000000.4567, 0.02)
    ('0.286', '1000000.457')
    """
    told = math.ceil(math.log10(abs(mean) / std)) + 2 if mean and std else 3
    return f"{mean:.{min(max(told, 3), 15)}g}"
