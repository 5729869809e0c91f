r"""The person model: rewards from what contexts show, what only rewards show, the moment, and person × action.

For person i, action a and a moment with features x (contexts, a date),

$$r = c_a + B_a^\top x + \theta_a^\top v_i + \delta_{ia} + \epsilon, \qquad v_i = (z_i, u_i).$$

$z_i$ is what contexts show: $f(x_t) = z_i$ + noise of covariance W, with $z \sim N(\mu, S)$. $u_i \sim N(0, I)$ is what
only rewards show, $\delta_{ia} \sim N(0, \tau^2)$ belongs to one person and one action, $\epsilon \sim N(0,
\sigma_a^2)$ is noise. The coefficients $\beta_a = (\theta_a, c_a, B_a)$ of the actions are draws from $N(\bar\beta,
\mathrm{diag}\, G)$: an action with few rewards borrows from the others, and directions that nothing speaks for fade.
The first coordinate of u is a level that actions share, $\bar\theta \ne 0$; the others have $\bar\theta = 0$.

Special cases: the mean of each action (no v); own level (one u with the same loading for all actions); ridge on
contexts, with and without own level; a Gaussian of any covariance between actions (as many u as actions); least squares
on mean encodings as T grows, with the errors of these means accounted for where T is small.

All is Gaussian, so EM needs only sums over (person, action) cells. People and coefficients are taken as independent
given the rewards (variational Bayes), $\delta$ and the hierarchy of coefficients are integrated out exactly, and every
step raises one lower bound of the log-likelihood. When coefficients are known, that bound is the log-likelihood.
$\tau$, too, is found with $\delta$ integrated out: knowing $\delta$, EM would take forever where there is none. Two
things are no steps of EM and may lower it a little on tables of a few rows: variances of actions lean on the pooled
one, and the vague prior of a shared level is not rescaled with u.

All actions have one noise variance until that and $\tau$ have settled. Only then each moves towards its own, as far as
they are seen to differ by more than chance, and $\tau$ stays: with free variances from the start, the action that
happens to vary least would leave no room for $\tau$, which all actions share.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ilb.offline.rewards.leaps import Leaps
from ilb.offline.rewards.person_sums import Kinds, PersonSums, incidence, summed_squares

STEPS = 200
TOLERANCE = 2e-6
"""EM stops when a step changes the bound by less than this for each reward, in nats."""

VAGUE = 1e-3
"""Prior precision, in units of standardised rewards, of what all actions share: next to nothing."""

LEAST_POOLED_ROWS = 10
"""Least weight, in rows, of the pooled reward variance in the variance of one action."""

LEAST_OWN = 1e-5
"""The least variance of own effects, in units of that of noise."""

SCORINGS = 2
"""Steps towards the variance of own effects, for each one of everything else."""

LEAST_LEFT = 0.01
"""The least share of a variance of coefficients that a leap leaves."""

UNTOLD_SHARE = 0.1
"""Share of the unexplained variance called person × action where no action was ever repeated: the table can't tell."""


class PersonModelFit(NamedTuple):
    r"""The estimate: $\beta_a$ with their covariance, the population of v, the variances, the bound after each step."""

    coefficients: Float[np.ndarray, "K m"]
    covariance: Float[np.ndarray, "K m m"]
    population_mean: Float[np.ndarray, " p"]
    population_covariance: Float[np.ndarray, "p p"]
    reward_variance: Float[np.ndarray, " K"]
    own_variance: float
    bound: Float[np.ndarray, " steps"]
    levels: Float[np.ndarray, " cells"]
    """What each person may expect of each action they took, before the moment: what their rewards say, shrunk."""


def fit_person_model(
    sums: PersonSums,
    hidden: int,
    *,
    same_level: bool = False,
    own_effects: bool = True,
    steps: int = STEPS,
    tolerance: float = TOLERANCE,
) -> PersonModelFit:
    """Fit the model with so many hidden coordinates u; rewards and moments should have a scale of about one.

    With `same_level` the first of them moves the rewards of all actions by the same amount: a random intercept. Without
    `own_effects` there is no variance of person × action.
    """
    estimator = _Estimator(sums, hidden, same_level, own_effects)
    if hidden and estimator.n:
        # What contexts show is theirs to explain: hidden coordinates that start first would keep it.
        shown = _Estimator(sums, 0, False, own_effects)
        shown.run(steps // 2, tolerance)
        estimator.begin_with(shown)
    return estimator.run(steps, tolerance)


class _People(NamedTuple):
    """What is believed of v: the mean for each person, the covariance for each kind of people."""

    mean: Float[np.ndarray, "I p"]
    kind: Int[np.ndarray, " I"]
    covariance: Float[np.ndarray, "kinds p p"]

    def summed_covariance(self, weight: Float[np.ndarray, " I"]) -> Float[np.ndarray, "p p"]:
        """Add up the covariances of everyone, some of whom count for more than others."""
        weights = np.bincount(self.kind, weights=weight, minlength=len(self.covariance))
        return np.asarray(np.tensordot(weights, self.covariance, 1))


class _Parameters(NamedTuple):
    """All that a step of EM changes and the next one begins with."""

    beta: Float[np.ndarray, "K m"]
    covariance: Float[np.ndarray, "K m m"]
    mean: Float[np.ndarray, " p"]
    population: Float[np.ndarray, "p p"]
    sigma: Float[np.ndarray, " K"]
    tau: float
    spread: Float[np.ndarray, " m"]
    moment_scale: float


class _Estimator:
    """One run of EM: the sums that never change, and the parameters as they are by now."""

    def __init__(self, sums: PersonSums, hidden: int, same_level: bool, own_effects: bool) -> None:
        self.order = np.argsort(sums.action, kind="stable")
        of_cells = (sums.person, sums.action, sums.rows, sums.reward_sum, sums.moment_sum)
        self.sums = sums = PersonSums(*(values[self.order] for values in of_cells), *sums[len(of_cells) :])
        self.same_level = same_level
        self.people, self.actions = sums.people, sums.actions
        self.n, self.p = sums.encoding_sum.shape[1], sums.encoding_sum.shape[1] + hidden
        self.hidden = slice(self.n, self.p)
        self.features = slice(self.p, None)
        self.moment = slice(self.p + 1, None)
        self._sum_features()
        self._start(hidden, own_effects)

    def _sum_features(self) -> None:
        """Sum (1, x) and its squares: weights of a cell depend on its action and its number of rows alone."""
        sums, actions = self.sums, self.actions
        self.by_person = incidence(sums.person, self.people)
        self.by_action = incidence(sums.action, actions)
        ends = np.cumsum(np.bincount(sums.action, minlength=actions)).tolist()
        self.cells_of = [slice(*ends) for ends in itertools.pairwise([0, *ends])]
        self.kinds = Kinds.among(sums)
        self.kind = self.kinds.of[sums.person]
        self.kinds_of = [np.unique(self.kind[cells], return_inverse=True) for cells in self.cells_of]
        self.contexts_of_kinds = np.bincount(self.kinds.of, weights=sums.contexts) / self.kinds.size
        self.one = np.concatenate([sums.rows[:, None], sums.moment_sum], axis=1)
        self.mean_features = self.one / sums.rows[:, None]
        self.sizes, self.size = np.unique(sums.rows, return_inverse=True)
        group = sums.action.astype(np.int64) * len(self.sizes) + self.size
        by_group = incidence(group, actions * len(self.sizes))
        width = self.one.shape[1]
        self.squares = summed_squares(group, actions * len(self.sizes), self.one)
        self.squares = self.squares.reshape(actions, len(self.sizes), width, width)
        self.within = sums.moment_square - np.sum(self.squares[:, :, 1:, 1:] / self.sizes[:, None, None], axis=1)
        products = by_group @ (self.one * sums.reward_sum[:, None])
        self.products = products.reshape(actions, len(self.sizes), width)
        self.total = self.by_action @ sums.rows
        self.gram = np.zeros((actions, width, width))
        self.gram[:, 0, 0], self.gram[:, 1:, 1:] = self.total, sums.moment_square
        self.gram[:, 0, 1:] = self.gram[:, 1:, 0] = self.by_action @ sums.moment_sum
        self.correlated = np.concatenate([(self.by_action @ sums.reward_sum)[:, None], sums.moment_reward], axis=1)

    def _start(self, hidden: int, own_effects: bool) -> None:
        sums, size = self.sums, self.p + self.one.shape[1]
        self.sigma, self.tau = np.full(self.actions, 0.5), 0.05 if own_effects else 0.0
        self.pooled_rows = np.inf  # weight of the pooled variance in that of one action
        self.beta = np.zeros((self.actions, size))
        self.beta[:, self.p] = self.correlated[:, 0] / np.maximum(self.total, 1)
        self.beta[:, self.hidden] = 0.2 * np.random.default_rng(0).standard_normal((self.actions, hidden))
        self.covariance = np.zeros((self.actions, size, size))
        self.spread = np.full(size, 0.1)  # G
        self.moment_scale = 0.1
        self.shared = np.ones(size, dtype=bool)  # coordinates whose mean over actions is not zero
        self.shared[self.n + 1 : self.p] = False
        if hidden:
            self.beta[:, self.n] = 0.5
        if hidden and self.same_level:
            self.spread[self.n] = 0.0
        self.mean, self.population = np.zeros(self.p), np.eye(self.p)
        seen = sums.contexts > 0
        if self.n and np.any(seen):
            means = sums.encoding_sum[seen] / sums.contexts[seen, None]
            self.mean[: self.n] = means.mean(axis=0)
            self.population[: self.n, : self.n] = np.cov(means, rowvar=False).reshape(self.n, self.n)
            self._keep_population_positive()

    def begin_with(self, shown: _Estimator) -> None:
        """Take over what was found without hidden coordinates, and let these start small."""
        kept = np.r_[: self.n, self.p : self.beta.shape[1]]
        self.beta[:, kept] = shown.beta
        self.covariance[:, kept[:, None], kept[None, :]] = shown.covariance
        self.spread[kept], self.moment_scale = shown.spread, shown.moment_scale
        self.beta[:, self.hidden] *= 0.5
        self.sigma, self.tau = np.full(len(self.total), self.total @ shown.sigma / self.total.sum()), shown.tau
        self.mean[: self.n], self.population[: self.n, : self.n] = shown.mean, shown.population

    def run(self, steps: int, tolerance: float) -> PersonModelFit:
        bounds: list[float] = []
        least, leaps = 7, Leaps()
        before: _Parameters | None = None  # where a leap began, until it has proved its worth
        for step in range(1, steps + 1):
            people = self._believe_people()
            people = self._take_population(people)
            bound = self._regress(people) + self._of_people(people)
            if before is not None and not bound >= bounds[-1]:
                self._parameters = before
                leaps.refuse(self._free)
                before = None
                continue
            bounds.append(bound)
            self._take_variances(people)
            settled = before is None and step >= least and abs(bounds[-1] - bounds[-2]) < tolerance * self.total.sum()
            before = None
            if np.isinf(self.pooled_rows) and (settled or step >= steps // 2) and self._let_variances_differ():
                least, leaps = step + 7, Leaps()
            elif settled:
                break
            further = leaps.after(self._free)
            if further is not None and step < steps:
                before = self._parameters
                self._free = further
        return PersonModelFit(
            self.beta,
            self.covariance,
            self.mean,
            self.population,
            self.sigma,
            self.tau,
            np.array(bounds),
            self.levels[np.argsort(self.order)],
        )

    @property
    def _parameters(self) -> _Parameters:
        return _Parameters(
            self.beta,
            self.covariance,
            self.mean.copy(),
            self.population.copy(),
            self.sigma,
            self.tau,
            self.spread.copy(),
            self.moment_scale,
        )

    @_parameters.setter
    def _parameters(self, values: _Parameters) -> None:
        self.beta, self.covariance, self.mean, self.population = values[:4]
        self.sigma, self.tau, self.spread, self.moment_scale = values[4:]

    @property
    def _free(self) -> Float[np.ndarray, " free"]:
        """All parameters as numbers without bounds, but for how well coefficients are known: that follows from them."""
        n = self.n
        root = np.linalg.cholesky(self.population[:n, :n]) if n else np.zeros((0, 0))
        scales = np.r_[self.sigma, self.tau or 1.0, np.diag(root)]
        spread = np.sqrt(np.r_[self.spread, self.moment_scale])
        return np.concatenate([self.beta.ravel(), self.mean[:n], root[np.tril_indices(n, -1)], spread, np.log(scales)])

    @_free.setter
    def _free(self, values: Float[np.ndarray, " free"]) -> None:
        n, size = self.n, self.beta.shape[1]
        lengths = [self.beta.size, n, n * (n - 1) // 2, size + 1, self.actions, 1, n]
        beta, mean, below, spread, sigma, tau, diagonal = np.split(values, np.cumsum(lengths)[:-1])
        self.beta, self.mean[:n] = beta.reshape(self.beta.shape), mean
        root = np.diag(np.exp(diagonal))
        root[np.tril_indices(n, -1)] = below
        self.population[:n, :n] = root @ root.T
        # What fades may fade faster, but not beyond zero.
        least = LEAST_LEFT * np.r_[self.spread, self.moment_scale]
        spread = np.maximum(np.maximum(spread, 0.0) ** 2, least)
        self.spread, self.moment_scale = spread[:-1], float(spread[-1])
        self.sigma, self.tau = np.exp(sigma), float(np.exp(tau[0])) if self.tau else 0.0

    @property
    def _spread_of_cells(self) -> Float[np.ndarray, " cells"]:
        r"""The variance of the sum of a cell's rewards over its rows, $\sigma_a^2 + N \tau^2$."""
        return np.asarray(self.sigma[self.sums.action] + self.sums.rows * self.tau)

    def _believe_people(self) -> _People:
        """Update what is believed of every person, given the coefficients."""
        sums, n, p = self.sums, self.n, self.p
        theta, weight = self.beta[:, :p], sums.rows / self._spread_of_cells
        prior = np.linalg.inv(self.population)
        loadings = theta[:, :, None] * theta[:, None, :] + self.covariance[:, :p, :p]
        told = self.kinds.by_action(weight) @ loadings.reshape(self.actions, p * p)
        precision = prior + told.reshape(len(self.kinds.size), p, p)
        means = sums.reward_sum / sums.rows
        said = np.empty((len(means), p))
        for action, cells in enumerate(self.cells_of):
            features = self.mean_features[cells]
            residual = means[cells] - features @ self.beta[action, self.features]
            said[cells] = residual[:, None] * theta[action] - features @ self.covariance[action, self.features, :p]
        information = self.by_person @ (weight[:, None] * said)
        information += prior @ self.mean
        precision[:, :n, :n] += self.contexts_of_kinds[:, None, None] * sums.encoding_precision
        information[:, :n] += sums.encoding_sum @ sums.encoding_precision
        covariance = np.linalg.inv(precision)
        return _People(self.kinds.times(covariance, information), self.kinds.of, covariance)

    def _take_population(self, people: _People) -> _People:
        """Take the population from the people; u is rescaled to variance one, which its loadings will make up for."""
        n, unit = self.n, np.ones(self.p)
        second = (people.summed_covariance(np.ones(self.people)) + people.mean.T @ people.mean) / self.people
        if n:
            self.mean[:n] = people.mean[:, :n].mean(axis=0)
            self.population[:n, :n] = second[:n, :n] - np.outer(self.mean[:n], self.mean[:n])
            self._keep_population_positive()
        scale = np.sqrt(np.diag(second)[self.hidden])
        unit[self.hidden] = 1 / scale
        self.spread[self.hidden] *= scale**2
        return _People(people.mean * unit, people.kind, people.covariance * unit[:, None] * unit)

    def _keep_population_positive(self) -> None:
        block = self.population[: self.n, : self.n]
        # Encodings that never vary have no scale of their own.
        block += max(1e-8 * np.trace(block) / self.n, 1e-10) * np.eye(self.n)

    def _of_people(self, people: _People) -> float:
        """Give the part of the bound about people: how likely their contexts are, and how far from the prior.

        Left out is what does not depend on people: how encodings scatter around the mean of each person.
        """
        sums, n = self.sums, self.n
        if not self.p:
            return 0.0
        away = people.mean - self.mean
        squares = people.summed_covariance(np.ones(self.people)) + away.T @ away
        distance = (
            np.sum(np.linalg.inv(self.population) * squares) + self.people * np.linalg.slogdet(self.population)[1]
        )
        distance -= self.kinds.size @ np.linalg.slogdet(people.covariance)[1] + self.people * self.p
        missed = people.mean[:, :n] - sums.encoding_sum / np.maximum(sums.contexts, 1)[:, None]
        second = people.summed_covariance(sums.contexts)[:n, :n] + (sums.contexts[:, None] * missed).T @ missed
        return float(-0.5 * np.sum(sums.encoding_precision * second) - 0.5 * distance)

    def _regress(self, people: _People) -> float:
        """Update the coefficients given the people; give the part of the bound that is about rewards."""
        sums, p, size = self.sums, self.p, self.beta.shape[1]
        spread, who = self._spread_of_cells, people.mean[self.sums.person]
        weights = self.kinds.by_action(self.kinds.size[self.kind] * sums.rows / spread).T
        gram, moment = np.zeros((self.actions, size, size)), np.zeros((self.actions, size))
        gram[:, :p, :p] = (weights @ people.covariance.reshape(len(people.covariance), p * p)).reshape(
            self.actions, p, p
        )
        beside = np.concatenate([sums.rows[:, None] * who, self.one, sums.reward_sum[:, None]], axis=1)
        beside /= spread[:, None]
        for action, cells in enumerate(self.cells_of):
            products = who[cells].T @ beside[cells]
            gram[action, :p] += products[:, :-1]
            moment[action, :p] = products[:, -1]
        gram[:, self.features, :p] = np.swapaxes(gram[:, :p, self.features], 1, 2)
        # The rows of a cell share delta: the inverse of their covariance is (1 - shrink 11') / sigma^2.
        shrink = self.tau / (self.sigma[:, None] + self.sizes * self.tau)
        gram[:, self.features, self.features] = self.gram - np.einsum("as,asij->aij", shrink, self.squares)
        gram[:, self.features, self.features] /= self.sigma[:, None, None]
        moment[:, self.features] = (self.correlated - np.einsum("as,asi->ai", shrink, self.products)) / self.sigma[
            :, None
        ]

        # beta_a | bar and bar, jointly and exactly; a coordinate without spread is the same for all actions.
        share = np.linalg.inv(np.eye(size) + gram * self.spread)
        vague = np.full(size, VAGUE)
        vague[self.moment] = 1 / self.moment_scale
        kept = np.ix_(self.shared, self.shared)
        precision = (share @ gram).sum(axis=0)[kept] + np.diag(vague[self.shared])
        information = np.einsum("aij,aj->i", share, moment)[self.shared]
        self.bar_covariance = np.zeros((size, size))
        self.bar_covariance[kept] = np.linalg.inv(precision)
        self.bar = np.zeros(size)
        self.bar[self.shared] = self.bar_covariance[kept] @ information
        self.own = _symmetric(self.spread[:, None] * share)
        self.beta = self.bar + np.einsum("aij,aj->ai", self.own, moment - gram @ self.bar)
        self.follows = np.eye(size) - self.own @ gram  # how beta_a moves with bar
        self.covariance = _symmetric(self.own + self.follows @ self.bar_covariance @ np.swapaxes(self.follows, 1, 2))

        alone = sums.reward_square / self.sigma
        together = shrink[sums.action, self.size] * sums.reward_sum**2 / self.sigma[sums.action]
        scatter = (sums.rows - 1) * np.log(self.sigma[sums.action]) + np.log(spread) + sums.rows * np.log(2 * np.pi)
        found = np.einsum("ai,aij,aj->", moment, self.own, moment) + information @ self.bar[self.shared]
        volume = np.linalg.slogdet(share)[1].sum() - np.linalg.slogdet(precision)[1] + np.log(vague[self.shared]).sum()
        return float(0.5 * (found + volume - alone.sum() + together.sum() - scatter.sum()))

    def _take_variances(self, people: _People) -> None:
        """Update the spread of coefficients over actions, noise, and person × action."""
        sums, p = self.sums, self.p
        still = np.eye(self.beta.shape[1]) - self.follows
        unsure = np.diagonal(self.own, axis1=1, axis2=2)
        unsure = unsure + np.einsum("aij,jk,aik->ai", still, self.bar_covariance, still)
        self.spread = np.maximum(((self.beta - self.bar) ** 2 + unsure).mean(axis=0), 1e-10)
        if sums.moment_sum.shape[1]:
            self.spread[self.moment] = self.spread[self.moment].mean()
            means = self.bar[self.moment] ** 2 + np.diag(self.bar_covariance)[self.moment]
            self.moment_scale = max(float(means.mean()), 1e-8)
        if self.p > self.n and self.same_level:
            self.spread[self.n] = 0.0

        who, action, spread = people.mean[sums.person], sums.action, self._spread_of_cells
        theta, slopes = self.beta[:, :p], self.beta[:, self.moment]
        of_person = np.sum(theta[action] * who, axis=1) + self.beta[action, p]
        of_moment = np.sum(sums.moment_sum * slopes[action], axis=1)
        features = np.concatenate([who, self.mean_features], axis=1)
        doubt = self._coefficient_doubt(features) + self._person_doubt(people)
        gain = sums.rows * self.tau / spread
        off = (sums.reward_sum - of_moment) / sums.rows - of_person
        left = self.tau * self.sigma[action] / spread  # variance of delta once the rewards are known
        self.levels = level = of_person + gain * off
        square = sums.reward_square - 2 * np.sum(slopes * sums.moment_reward, axis=1)
        square += np.einsum("ai,aij,aj->a", slopes, sums.moment_square, slopes)
        square += self.by_action @ (sums.rows * level**2 - 2 * level * (sums.reward_sum - of_moment))
        unknown = (1 - gain) ** 2 * doubt + left  # variance of a cell's level once the rewards are known
        square += self.by_action @ (sums.rows * unknown)
        square += np.einsum("aij,aij->a", self.within, self.covariance[:, self.moment, self.moment])
        self._score_variances(square, unknown)
        pooled = square.sum() / self.total.sum()
        equal = np.isinf(self.pooled_rows)
        share = self.total / (self.total + self.pooled_rows)
        self.sigma = np.maximum(pooled + share * (square / np.maximum(self.total, 1) - pooled), 1e-8)
        if self.tau and equal:
            self.tau = self._own_variance(off**2 + doubt)
        if self.tau and equal and self.sizes[-1] == 1:
            whole = self.sigma.mean() + self.tau
            self.sigma *= (1 - UNTOLD_SHARE) * whole / self.sigma.mean()
            self.tau = UNTOLD_SHARE * whole

    def _own_variance(self, missed: Float[np.ndarray, " cells"]) -> float:
        r"""Find the variance of own effects, given what cells miss on average: $\tau + \sigma_a^2 / N$ in expectation.

        By Fisher's scoring with own effects integrated out, as far as it raises the bound: a step of EM, which knows
        them, goes a share $\tau^2$ of the way, and never arrives where there are none.
        """
        noise = self.sigma[self.sums.action] / self.sums.rows

        def height(tau: float) -> float:
            return float(-np.sum(np.log(tau + noise) + missed / (tau + noise)))

        least = LEAST_OWN * float(self.sigma.mean())
        tau = max(self.tau, least)
        for _ in range(SCORINGS):
            weight = (tau + noise) ** -2
            step = float(weight @ (missed - tau - noise) / weight.sum())
            now = height(tau)
            while abs(step) > 1e-3 * tau and height(max(tau + step, least)) < now:
                step /= 2
            tau = max(tau + step, least)
        return tau

    def _score_variances(self, square: Float[np.ndarray, " K"], unknown: Float[np.ndarray, " cells"]) -> None:
        r"""Take the gradient of the log-likelihood by each $\log \sigma_a^2$, and its variance if $\sigma_a^2$ is true.

        Of a cell with N rows N - 1 directions show nothing but noise; the mean shows it as far as its level is known
        without it.
        """
        rows, sigma = self.sums.rows, self.sigma[self.sums.action]
        shown = rows - 1 + np.maximum(1 - rows * unknown / sigma, 0.0) ** 2
        self.gradient, self.information = 0.5 * (square / self.sigma - self.total), 0.5 * self.by_action @ shown

    def _let_variances_differ(self) -> bool:
        r"""Tell whether noise variances differ between actions; from now on each then leans towards its own.

        How far follows from the variance of $\log \sigma_a^2$ over actions beyond that of chance, by moments.
        """
        information, squares = self.information, float(np.sum(self.information**2))
        chance = np.sum(information) - squares / max(np.sum(information), 1e-12)
        excess = float(np.sum(self.gradient**2) - chance)
        if excess > 0:
            self.pooled_rows = max(2 * squares / excess, LEAST_POOLED_ROWS)
        return excess > 0

    def _coefficient_doubt(self, features: Float[np.ndarray, "cells m"]) -> Float[np.ndarray, " cells"]:
        r"""Give $\phi^\top C_a \phi$ for each cell, action by action."""
        doubt = np.empty(len(features))
        for action, cells in enumerate(self.cells_of):
            doubt[cells] = np.sum((features[cells] @ self.covariance[action]) * features[cells], axis=1)
        return doubt

    def _person_doubt(self, people: _People) -> Float[np.ndarray, " cells"]:
        r"""Give $\langle C_a + \theta_a \theta_a^\top, V_i \rangle$ for each cell, action by action."""
        theta = self.beta[:, : self.p]
        both = (self.covariance[:, : self.p, : self.p] + theta[:, :, None] * theta[:, None, :]).reshape(len(theta), -1)
        flat = people.covariance.reshape(len(people.covariance), -1)
        doubt = np.empty(len(self.sums.person))
        for action, cells in enumerate(self.cells_of):
            kinds, place = self.kinds_of[action]
            doubt[cells] = (flat[kinds] @ both[action])[place]
        return doubt


def _symmetric(matrices: Float[np.ndarray, "K m m"]) -> Float[np.ndarray, "K m m"]:
    return np.asarray((matrices + np.swapaxes(matrices, 1, 2)) / 2)
