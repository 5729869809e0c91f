"""Claims: every empirical sentence of the paper, in our words, with the comparison that decides it.

A claim is made of comparisons, each a difference with its standard error, positive where it speaks for the claim. It
*holds* if every difference is positive by two standard errors, *does not hold* if one is negative by two, and is
*undecided* otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ilb.experiments.players import Player
from ilb.experiments.results import Results, clustered
from ilb.experiments.settings import Setting

Verdict = Literal["holds", "does not hold", "undecided"]
DECISIVE = 2.0
"""Standard errors that decide."""


class Comparison(NamedTuple):
    """One difference: positive speaks for the claim."""

    says: str
    difference: float
    standard_error: float

    @property
    def verdict(self) -> Verdict:
        """Judge by two standard errors; a difference without a measurable error is taken as it is."""
        margin = DECISIVE * self.standard_error if np.isfinite(self.standard_error) else 0.0
        if self.difference > margin:
            return "holds"
        return "does not hold" if self.difference < -margin else "undecided"

    def __str__(self) -> str:
        return f"{self.says}: {self.difference:+.3g} ± {self.standard_error:.2g}"


class Judgement(NamedTuple):
    """A claim's verdict and the comparisons behind it."""

    verdict: Verdict
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: where it stands, what it says, how it is tested, and what to know if it fails."""

    name: str
    where: str
    says: str
    evidence: Callable[[Results], Sequence[Comparison]]
    remark: str = ""

    def judge(self, results: Results) -> Judgement:
        """Test the claim on the results."""
        comparisons = tuple(self.evidence(results))
        return Judgement(combine([comparison.verdict for comparison in comparisons]), comparisons)


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Judge a claim by all of its comparisons."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "undecided"


def less_regret(
    results: Results, setting: Setting, better: Player, worse: Player, at: float = 1.0, horizon: int = 2000
) -> Comparison:
    """Compare two players on the same instances: positive if `better` has less regret up to a share of the horizon."""
    saved = results.regret_at(setting, worse, at, horizon) - results.regret_at(setting, better, at, horizon)
    mean, error = clustered(saved)
    rounds = max(1, round(at * results.size.horizon(horizon)))
    return Comparison(f"regret at {rounds}: {worse} minus {better}", float(mean), float(error))


def regret_grows(
    results: Results, player: Player, less: Setting, more: Setting, says: str, at: float = 1.0
) -> Comparison:
    """Compare one player in two settings: positive if `more` costs it more; worlds share seeds and are paired."""
    mean, error = clustered(results.regret_at(more, player, at) - results.regret_at(less, player, at))
    return Comparison(f"regret of {player}, {says}", float(mean), float(error))


def late_regret_grows_faster(
    results: Results, setting: Setting, slower: Player, faster: Player, since: float = 0.5
) -> Comparison:
    """Compare what is lost in the last part of the horizon: positive if `faster` loses more there."""
    late = {
        player: results.regret_at(setting, player, 1.0) - results.regret_at(setting, player, since)
        for player in (slower, faster)
    }
    mean, error = clustered(late[faster] - late[slower])
    return Comparison(
        f"regret of the last {1 - since:.0%} of rounds: {faster} minus {slower}", float(mean), float(error)
    )


def better_score(
    results: Results, metric: str, better: tuple[Setting, str], worse: tuple[Setting, str], says: str
) -> Comparison:
    """Compare a score of two learners, or of one in two settings, paired by seed."""
    difference = results.scores(*better, metric) - results.scores(*worse, metric)
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else float("nan")
    return Comparison(says, float(difference.mean()), float(error))


def small_bias(
    results: Results, setting: Setting, learned: Player, oracle: Player, online: Player, share: float = 0.1
) -> Comparison:
    """Compare what a learned model loses against the oracle with a share of what the online learner loses."""
    regret = {player: results.regret_at(setting, player, 1.0) for player in (learned, oracle, online)}
    spare = share * (regret[online] - regret[oracle]) - (regret[learned] - regret[oracle])
    mean, error = clustered(spare)
    return Comparison(
        f"{share:.0%} of ({online} minus oracle) minus ({learned} minus oracle)", float(mean), float(error)
    )


def grows_more(
    results: Results, more: Player, less: Player, settings: tuple[Setting, Setting], says: str, at: float = 1.0
) -> Comparison:
    """Compare how two players change from one setting to another: positive if `more` grows by more."""
    change = {
        player: results.regret_at(settings[1], player, at) - results.regret_at(settings[0], player, at)
        for player in (more, less)
    }
    mean, error = clustered(change[more] - change[less])
    return Comparison(f"growth of regret, {says}: {more} minus {less}", float(mean), float(error))


def rate_grows(results: Results, setting: Setting, player: Player, early: tuple[float, float]) -> Comparison:
    """Compare regret per round in the second half with that in an early stretch (shares of the horizon)."""
    first, last = early
    start = results.regret_at(setting, player, last) - results.regret_at(setting, player, first)
    end = results.regret_at(setting, player, 1.0) - results.regret_at(setting, player, 0.5)
    mean, error = clustered(end / 0.5 - start / (last - first))
    horizon = results.size.horizon()
    says = (
        f"{player}: regret a round in the second half minus that of rounds {first * horizon:.0f}–{last * horizon:.0f}"
    )
    return Comparison(says, float(mean) / horizon, float(error) / horizon)


def no_worse_than(comparison: Comparison, allowed: float) -> Comparison:
    """Allow a difference of `allowed` against the claim: for claims that two things are about equal."""
    return Comparison(
        f"{comparison.says} (+ {allowed:.3g} allowed)", comparison.difference + allowed, comparison.standard_error
    )
