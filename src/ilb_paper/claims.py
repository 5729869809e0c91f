"""Claims: every empirical sentence of the paper, in our words, with the comparison that decides it.

A claim is made of comparisons, each a difference with its standard error, positive where it speaks for the claim. It
*holds* if every difference is positive beyond its 95 % interval, *does not hold* if one is negative beyond an interval
that is wider the more comparisons there are (Bonferroni), and is *undecided* otherwise.

Two rules must agree on a difference between worlds before it counts, because a few worlds often carry most of a mean:

- Student's t, with the degrees of freedom of worlds (or of fits) where these differ more than instances do;
- sign flips: of all the ways to turn the signs of the worlds' means, at most 2.5 % may give a mean as large. That is
  exact for differences that are symmetric about zero, however heavy their tails. Fewer than six worlds can't reach it,
  so that they decide nothing.

Neither is exact where differences are skewed: of ten exponential ones with mean zero, both rules together are wrong in
9 % of cases on the side away from the long tail, and of ten lognormal ones in 15 %, instead of 2.5 %. No rule that sees
ten worlds can know of the rare one that was not drawn. The worlds' means are kept with every comparison
(`reproduction.json`), so that other rules can be tried without another run.

Some claims can't fail here, whatever the paper says (`by_construction`), and some are ours (`ours`). Both are shown,
and neither is counted among the claims of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from ilb.estimates import Estimate
from ilb_paper.players import ORACLE, Player
from ilb_paper.results import Results, clustered_error, common_worlds
from ilb_paper.settings import AbstractSetting, describe_setting
from ilb_paper.store import NotRunError

Verdict = Literal["holds", "does not hold", "undecided"]
TAIL = 0.025
"""A difference counts when zero is outside of its 95 % interval."""
FEWEST_WORLDS = 6
"""Five worlds agree on a sign by chance once in 32 times, which is more often than `TAIL`."""
ENUMERATED = 12
"""Up to so many worlds all sign flips are tried, and beyond so many random ones."""


@lru_cache(maxsize=1024)
def sign_flip_tail(worlds: tuple[float, ...]) -> float:
    """Give the share of all sign flips of the worlds whose mean is at least the one observed: a one-sided p-value.

    >>> sign_flip_tail((1.0, 2.0, 3.0))
    0.125
    >>> sign_flip_tail((1.0, 2.0, -3.0))
    0.625
    """
    count = len(worlds)
    if count <= ENUMERATED:
        signs = 1 - 2 * (np.arange(2**count)[:, None] >> np.arange(count) & 1)
    else:  # the first row is what was observed, so that the share is never 0
        signs = np.random.default_rng(0).choice([-1, 1], size=(2**ENUMERATED, count))
        signs[0] = 1
    sums = signs @ np.asarray(worlds)
    rounding = 1e-9 * float(np.abs(worlds).sum())  # sums that are equal may differ in their last digits
    return float(np.mean(sums >= sums[0] - rounding))


class Comparison(NamedTuple):
    """One difference: positive speaks for the claim.

    `worlds` are its means in each world, or the differences of each fit. It is empty where something else was averaged
    (patients, or repetitions of one game), and where a file of an earlier version does not have them: the rule of sign
    flips is left out then. Without degrees of freedom a difference says nothing of other worlds.
    """

    says: str
    difference: float
    standard_error: float
    freedom: float = np.inf
    worlds: tuple[float, ...] = ()

    def verdict(self, among: int = 1) -> Verdict:
        """Judge by the 95 % interval and the sign flips; a difference without a measurable error decides nothing.

        A claim needs all its comparisons, so that none of them needs a correction to hold, and one of `among` is enough
        to make it fail, so that this one does. Sign flips can't reach any level: where so many comparisons ask for one
        below $2^{-worlds}$, all worlds must be on one side.
        """
        if not np.isfinite(self.standard_error) or self.freedom < 1 or self._too_few_worlds():
            return "undecided"
        above, below = (float(stdtrit(self.freedom, 1 - tail)) * self.standard_error for tail in (TAIL, TAIL / among))
        if self.difference > above and self._flips(1) <= TAIL:
            return "holds"
        if self.difference < -below and self._flips(-1) <= max(TAIL / among, 2.0 ** -min(len(self.worlds), ENUMERATED)):
            return "does not hold"
        return "undecided"

    def _too_few_worlds(self) -> bool:
        return 0 < len(self.worlds) < FEWEST_WORLDS

    def _flips(self, side: int) -> float:
        return sign_flip_tail(tuple(side * world for world in self.worlds)) if self.worlds else 0.0

    def __str__(self) -> str:
        if not np.isfinite(self.difference):
            return self.says
        if not np.isfinite(self.standard_error):
            return f"{self.says}: {self.difference:+.3g} (one fit: no error)"
        said = f"{self.says}: {self.difference:+.3g} ± {self.standard_error:.2g}"
        if self.freedom < 1:
            return f"{said} over the instances of one world, which decides nothing"
        if self._too_few_worlds():
            return f"{said} over {len(self.worlds)} worlds, which decide nothing"
        return f"{said}, sign flips {self._flips(1 if self.difference > 0 else -1):.2g}" if self.worlds else said


class Judgement(NamedTuple):
    """The comparisons behind a verdict, the same with the encoder of the released width, and what helps to see why.

    The encoder is judged as printed, with hidden layers of width n; the released code has 2n. `released_width` is empty
    where that makes no difference, or was not run. Neither it nor the contrasts count.
    """

    comparisons: tuple[Comparison, ...]
    released_width: tuple[Comparison, ...] = ()
    contrasts: tuple[Comparison, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return combine(self.comparisons)


Evidence = Callable[[Results], Sequence[Comparison]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper: where it stands, what it says, how it is tested, and what to know if it fails.

    `contrast` compares something else, such as what the released code does: it is shown and does not count.
    `by_construction` says why a claim can't fail here, or says nothing that another one does not; `ours` is a sentence
    of our own. Both are shown and do not count, either.
    """

    name: str
    where: str
    says: str
    evidence: Evidence
    remark: str = ""
    contrast: Evidence = lambda _: ()
    by_construction: str = ""
    ours: bool = False

    @property
    def counts(self) -> bool:
        return not self.by_construction and not self.ours

    def judge(self, results: Results) -> Judgement:
        comparisons = tuple(self.evidence(results))
        released = _if_run(self.evidence, results.at_released_width())
        if [c.difference for c in released] == [c.difference for c in comparisons]:
            released = ()  # no encoder of the paper is in it
        return Judgement(comparisons, released, _if_run(self.contrast, results))


def _if_run(evidence: Evidence, results: Results) -> tuple[Comparison, ...]:
    try:
        return tuple(evidence(results))
    except NotRunError:
        return ()


def compare(says: str, values: np.ndarray, unit: int = 1) -> Comparison:
    """Make a comparison of differences by world and instance, divided by `unit`."""
    values = values.astype(np.float64) / unit
    error, freedom = clustered_error(values)
    worlds = values.mean(axis=1)
    return Comparison(says, float(worlds.mean()), float(error), float(freedom), tuple(worlds.tolist()))


def compare_fits(says: str, differences: np.ndarray) -> Comparison:
    mean = Estimate.of(differences)
    return Comparison(says, mean.value, mean.standard_error, mean.count - 1.0, tuple(differences.tolist()))


def combine(comparisons: Sequence[Comparison]) -> Verdict:
    """Judge a claim by all of its comparisons."""
    verdicts = [comparison.verdict(among=len(comparisons)) for comparison in comparisons]
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "undecided"


def each(comparison: Callable[..., Comparison], *arguments: Any, **options: Any) -> Evidence:
    """Give as evidence a comparison for every combination of arguments: lists are gone through, the last one fastest.

    `each(less_regret, SETTING, [CPG, FPG], [MAB, LIN_UCB], at=0.05)` makes four comparisons.
    """
    choices = [argument if isinstance(argument, list) else [argument] for argument in arguments]
    return lambda results: [comparison(results, *chosen, **options) for chosen in product(*choices)]


def together(*parts: Evidence) -> Evidence:
    return lambda results: [comparison for part in parts for comparison in part(results)]


def _named(setting: AbstractSetting) -> str:
    return describe_setting(setting).removesuffix("()")


def less_regret(
    results: Results,
    setting: AbstractSetting,
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
    names = f"{results.player(worse)} minus {factor}{results.player(better)}"
    return compare(f"regret at {rounds} in {_named(setting)}: {names}", more - times * less)


def regret_grows(
    results: Results, player: Player, less: AbstractSetting, more: AbstractSetting, says: str, at: float = 1.0
) -> Comparison:
    """Compare one player in two settings: positive if `more` costs it more; worlds share seeds and are paired."""
    before, after = common_worlds(*(results.regret_at(setting, player, at) for setting in (less, more)))
    return compare(f"regret of {results.player(player)}, {says}", after - before)


def better_score(
    results: Results, metric: str, better: tuple[AbstractSetting, str], worse: tuple[AbstractSetting, str], says: str
) -> Comparison:
    """Compare a score of two learners, or of one in two settings, paired by seed; `says` may name the `{metric}`."""
    first, second = common_worlds(*(results.scores(*place, metric) for place in (better, worse)))
    return compare_fits(says.format(metric=metric), first - second)


def better_model(results: Results, setting: AbstractSetting, policy: str, better: str, worse: str) -> Comparison:
    return less_regret(results, setting, Player(policy, better), Player(policy, worse))


def better_policy(results: Results, setting: AbstractSetting, model: str, better: str, worse: str) -> Comparison:
    return less_regret(results, setting, Player(better, model), Player(worse, model))


def small_bias(
    results: Results, setting: AbstractSetting, policy: str, model: str, online: Player, share: float = 0.1
) -> Comparison:
    """Compare what a policy loses on a learned model, against the oracle, with a share of what an online one loses."""
    learned, oracle = Player(policy, model), Player(policy, ORACLE)
    ours, best, worst = common_worlds(*(results.regret_at(setting, p, 1.0) for p in (learned, oracle, online)))
    spare = share * (worst - best) - (ours - best)
    says = f"{share:.0%} of ({results.player(online)} minus oracle) minus ({results.player(learned)} minus oracle)"
    return compare(says, spare)


def grows_more(
    results: Results,
    more: Player,
    less: Player,
    settings: tuple[AbstractSetting, AbstractSetting],
    says: str,
    at: float = 1.0,
) -> Comparison:
    """Compare how two players change from one setting to another: positive if `more` grows by more."""
    places = [(setting, player) for player in (more, less) for setting in settings]
    first, last, other_first, other_last = common_worlds(*(results.regret_at(*place, at) for place in places))
    moment = "" if at == 1 else f" up to round {round(at * results.size.horizon())}"
    growth = (last - first) - (other_last - other_first)
    return compare(f"growth of regret{moment}, {says}: {results.player(more)} minus {results.player(less)}", growth)


def _late_rate(results: Results, setting: AbstractSetting, player: Player) -> np.ndarray:
    half, whole = (results.regret_at(setting, player, at) for at in (0.5, 1.0))
    return np.asarray((whole - half) / 0.5)


def rate_grows(results: Results, setting: AbstractSetting, player: Player, early: tuple[float, float]) -> Comparison:
    """Compare regret per round in the second half with that in an early stretch (shares of the horizon)."""
    first, last = early
    start = results.regret_at(setting, player, last) - results.regret_at(setting, player, first)
    horizon = results.size.horizon()
    stretch = f"{first * horizon:.0f}–{last * horizon:.0f}"
    where = f"{results.player(player)} in {_named(setting)}"
    says = f"{where}: regret a round in the second half minus that of rounds {stretch}"
    return compare(says, _late_rate(results, setting, player) - start / (last - first), unit=horizon)


def rate_falls(
    results: Results, setting: AbstractSetting, player: Player, early: float = 0.02, share: float = 0.05
) -> Comparison:
    """Compare regret per round in the second half with a small share of that at first: what converges goes flat."""
    first = results.regret_at(setting, player, early) / early
    where = f"{results.player(player)} in {_named(setting)}"
    says = f"{where}: {share:.0%} of early regret a round minus late regret a round"
    return compare(says, share * first - _late_rate(results, setting, player), unit=results.size.horizon())


def high_score(
    results: Results, metric: str, setting: AbstractSetting, learner: str, least: float, says: str
) -> Comparison:
    return compare_fits(says, results.scores(setting, learner, metric) - least)


def no_worse_than(comparison: Comparison, allowed: float) -> Comparison:
    """Allow a difference of `allowed` against the claim: for claims that two things are about equal."""
    return comparison._replace(
        says=f"{comparison.says} (+ {allowed:.3g} allowed)",
        difference=comparison.difference + allowed,
        worlds=tuple(world + allowed for world in comparison.worlds),
    )
