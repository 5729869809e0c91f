"""Claims: every empirical sentence of the paper, in our words, with the comparison that decides it.

A claim is made of comparisons, each a difference with its standard error, positive where it speaks for the claim. It
*holds* if every difference is positive beyond its 95 % interval, *does not hold* if one is negative beyond an interval
that is wider the more comparisons there are (Bonferroni), and is *undecided* otherwise. With few worlds or fits the
interval is wider than two standard errors (Student's t); a single one decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from ilb_paper.players import Player
from ilb_paper.results import Results, clustered, common_worlds
from ilb_paper.settings import Setting, describe_setting

Verdict = Literal["holds", "does not hold", "undecided"]
TAIL = 0.025
"""A difference counts when zero is outside of its 95 % interval."""


class Comparison(NamedTuple):
    """One difference: positive speaks for the claim; without degrees of freedom it says nothing of other worlds."""

    says: str
    difference: float
    standard_error: float
    freedom: float = np.inf

    def verdict(self, among: int = 1) -> Verdict:
        """Judge by the 95 % interval; a difference without a measurable error decides nothing.

        A claim needs all its comparisons, so that none of them needs a correction to hold, and one of `among` is enough
        to make it fail, so that this one does.
        """
        if not np.isfinite(self.standard_error) or self.freedom < 1:
            return "undecided"
        above, below = (
            float(stats.t.ppf(1 - tail, self.freedom)) * self.standard_error for tail in (TAIL, TAIL / among)
        )
        if self.difference > above:
            return "holds"
        return "does not hold" if self.difference < -below else "undecided"

    def __str__(self) -> str:
        if not np.isfinite(self.difference):
            return self.says
        if not np.isfinite(self.standard_error):
            return f"{self.says}: {self.difference:+.3g} (one fit: no error)"
        alone = " over the instances of one world, which decides nothing" if self.freedom < 1 else ""
        return f"{self.says}: {self.difference:+.3g} ± {self.standard_error:.2g}{alone}"


class Judgement(NamedTuple):
    """A claim's verdict, the comparisons behind it, and those that only help to see why."""

    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    contrasts: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: where it stands, what it says, how it is tested, and what to know if it fails.

    `contrast` compares something else, such as what the released code does: it is shown and does not count.
    """

    name: str
    where: str
    says: str
    evidence: Callable[[Results], Sequence[Comparison]]
    remark: str = ""
    contrast: Callable[[Results], Sequence[Comparison]] = lambda _: ()

    def judge(self, results: Results) -> Judgement:
        """Test the claim on the results."""
        comparisons = tuple(self.evidence(results))
        verdict = combine(comparisons)
        try:
            return Judgement(verdict, comparisons, tuple(self.contrast(results)))
        except (KeyError, FileNotFoundError):
            return Judgement(verdict, comparisons)  # the contrast was not run


def compare(says: str, values: np.ndarray, unit: float = 1.0) -> Comparison:
    """Make a comparison of differences by world and instance, divided by `unit`."""
    mean, error, freedom = clustered(values / unit)
    return Comparison(says, float(mean), float(error), float(freedom))


def compare_fits(says: str, differences: np.ndarray) -> Comparison:
    """Make a comparison of differences by fit."""
    count = len(differences)
    error = differences.std(ddof=1) / np.sqrt(count) if count > 1 else float("nan")
    return Comparison(says, float(differences.mean()), float(error), count - 1.0)


def nothing_to_compare(says: str) -> Comparison:
    """Say why a claim, or a part of it, was not tested: it stays undecided."""
    return Comparison(says, float("nan"), float("nan"), 0.0)


def combine(comparisons: Sequence[Comparison]) -> Verdict:
    """Judge a claim by all of its comparisons."""
    verdicts = [comparison.verdict(among=len(comparisons)) for comparison in comparisons]
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "undecided"


def _named(setting: Setting) -> str:
    return describe_setting(setting).removesuffix("()")


def less_regret(
    results: Results,
    setting: Setting,
    better: Player,
    worse: Player,
    at: float = 1.0,
    horizon: int = 2000,
    times: float = 1.0,
) -> Comparison:
    """Compare two players on the same instances: positive if `better` has less regret up to a share of the horizon.

    With `times` 2 it must have less than half, which is what "substantially" and "much" are taken for.
    """
    less, more = common_worlds(*(results.regret_at(setting, player, at, horizon) for player in (better, worse)))
    rounds = max(1, round(at * results.size.horizon(horizon)))
    factor = "" if times == 1 else f"{times:g} × "
    return compare(f"regret at {rounds} in {_named(setting)}: {worse} minus {factor}{better}", more - times * less)


def regret_grows(
    results: Results, player: Player, less: Setting, more: Setting, says: str, at: float = 1.0
) -> Comparison:
    """Compare one player in two settings: positive if `more` costs it more; worlds share seeds and are paired."""
    before, after = common_worlds(*(results.regret_at(setting, player, at) for setting in (less, more)))
    return compare(f"regret of {player}, {says}", after - before)


def better_score(
    results: Results, metric: str, better: tuple[Setting, str], worse: tuple[Setting, str], says: str
) -> Comparison:
    """Compare a score of two learners, or of one in two settings, paired by seed."""
    first, second = results.paired_scores(metric, better, worse)
    return compare_fits(says, first - second)


def small_bias(
    results: Results, setting: Setting, learned: Player, oracle: Player, online: Player, share: float = 0.1
) -> Comparison:
    """Compare what a learned model loses against the oracle with a share of what the online learner loses."""
    ours, best, worst = common_worlds(*(results.regret_at(setting, p, 1.0) for p in (learned, oracle, online)))
    spare = share * (worst - best) - (ours - best)
    return compare(f"{share:.0%} of ({online} minus oracle) minus ({learned} minus oracle)", spare)


def grows_more(
    results: Results, more: Player, less: Player, settings: tuple[Setting, Setting], says: str, at: float = 1.0
) -> Comparison:
    """Compare how two players change from one setting to another: positive if `more` grows by more."""
    places = [(setting, player) for player in (more, less) for setting in settings]
    first, last, other_first, other_last = common_worlds(*(results.regret_at(*place, at) for place in places))
    moment = "" if at == 1 else f" up to round {round(at * results.size.horizon())}"
    growth = (last - first) - (other_last - other_first)
    return compare(f"growth of regret{moment}, {says}: {more} minus {less}", growth)


def rate_grows(results: Results, setting: Setting, player: Player, early: tuple[float, float]) -> Comparison:
    """Compare regret per round in the second half with that in an early stretch (shares of the horizon)."""
    first, last = early
    start = results.regret_at(setting, player, last) - results.regret_at(setting, player, first)
    end = results.regret_at(setting, player, 1.0) - results.regret_at(setting, player, 0.5)
    horizon = results.size.horizon()
    stretch = f"{first * horizon:.0f}–{last * horizon:.0f}"
    says = f"{player} in {_named(setting)}: regret a round in the second half minus that of rounds {stretch}"
    return compare(says, end / 0.5 - start / (last - first), unit=horizon)


def rate_falls(
    results: Results, setting: Setting, player: Player, early: float = 0.02, share: float = 0.05
) -> Comparison:
    """Compare regret per round in the second half with a small share of that at first: what converges goes flat."""
    first = results.regret_at(setting, player, early) / early
    last = (results.regret_at(setting, player, 1.0) - results.regret_at(setting, player, 0.5)) / 0.5
    says = f"{player} in {_named(setting)}: {share:.0%} of early regret a round minus late regret a round"
    return compare(says, share * first - last, unit=results.size.horizon())


def high_score(results: Results, metric: str, setting: Setting, learner: str, least: float, says: str) -> Comparison:
    """Compare a score of a learner with a number."""
    return compare_fits(says, results.scores(setting, learner, metric) - least)


def no_worse_than(comparison: Comparison, allowed: float) -> Comparison:
    """Allow a difference of `allowed` against the claim: for claims that two things are about equal."""
    return comparison._replace(
        says=f"{comparison.says} (+ {allowed:.3g} allowed)", difference=comparison.difference + allowed
    )
