"""The estimator of the person model against answers computed in another way: dense Gaussians and known truths."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from ilb.offline.rewards.person_estimator import (
    TOLERANCE,
    VAGUE,
    PersonModelFit,
    PersonSums,
    _Estimator,
    fit_person_model,
)


@dataclass(frozen=True)
class Table:
    """Rows with rewards, and the encodings of all rows of each person."""

    person: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    moment: np.ndarray
    actions: int
    encodings: list[np.ndarray]
    noise: np.ndarray

    @property
    def sums(self) -> PersonSums:
        return PersonSums.of_rows(
            self.person,
            self.action,
            self.reward,
            self.moment,
            self.actions,
            np.array([len(rows) for rows in self.encodings]),
            np.stack([rows.sum(axis=0) for rows in self.encodings]),
            self.noise,
        )


def draw_table(seed: int, people: int, actions: int, longest: int, d: int, n: int, *, repeats: bool = True) -> Table:
    """Draw a table of the model, with histories of any length and a fifth of the rewards missing."""
    rng = np.random.default_rng(seed)
    noise = 0.3 * np.eye(n) + 0.2
    root = np.linalg.cholesky(noise)
    z, level = rng.normal(size=(people, n)), rng.normal(size=people)
    theta, intercept, slopes = rng.normal(size=(actions, n)), rng.normal(size=actions), rng.normal(size=(actions, d))
    own, std = 0.5 * rng.normal(size=(people, actions)), rng.uniform(0.5, 1.2, actions)
    rows, encodings = [], []
    for i in range(people):
        length = rng.integers(1, longest + 1)
        taken = rng.integers(actions, size=length) if repeats else rng.permutation(actions)[:length]
        encodings.append(z[i] + rng.normal(size=(len(taken), n)) @ root.T)
        for number, a in enumerate(taken):
            x = rng.normal(size=d)
            reward = intercept[a] + slopes[a] @ x + theta[a] @ z[i] + level[i] + own[i, a] + std[a] * rng.normal()
            if (i, number) == (0, 0) or rng.random() > 0.2:
                rows.append((i, a, reward, x))
    person, action, reward, moment = (np.array(column) for column in zip(*rows, strict=True))
    scaled = (reward - reward.mean()) / max(reward.std(), 0.1)
    return Table(person, action, scaled, moment.reshape(len(rows), d), actions, encodings, noise)


tables = st.builds(
    draw_table,
    st.integers(0, 2**31),
    people=st.integers(2, 30),
    actions=st.integers(1, 6),
    longest=st.integers(1, 8),
    d=st.integers(0, 2),
    n=st.integers(0, 2),
    repeats=st.booleans(),
)


# The bound


def row_covariance(table: Table, estimator: _Estimator) -> np.ndarray:
    """The covariance of all rewards given the people and the coefficients: noise and own effects."""
    same = (table.person[:, None] == table.person) & (table.action[:, None] == table.action)
    return np.asarray(np.diag(estimator.sigma[table.action]) + estimator.tau * same)


def encodings_log_density(table: Table) -> float:
    """The part of the likelihood of encodings that does not depend on the states, which the bound leaves out."""
    rows = np.concatenate(table.encodings)
    inverse = np.linalg.inv(table.noise)
    return float(-0.5 * np.sum(rows @ inverse * rows) - 0.5 * len(rows) * np.linalg.slogdet(2 * np.pi * table.noise)[1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("hidden", "same_level"), [(0, False), (1, True), (2, False)])
def test_the_bound_is_the_evidence_of_coefficients_when_people_are_independent_of_them(
    seed: int, hidden: int, same_level: bool
) -> None:
    """Row by row: E_q(v) of the log-likelihood is quadratic in all coefficients, whose prior is one dense Gaussian."""
    table = draw_table(seed, people=7, actions=3, longest=5, d=2, n=2)
    estimator = _Estimator(table.sums, hidden, same_level, own_effects=True)
    for _ in range(3):
        people = estimator._take_population(estimator._believe_people())
        estimator._regress(people)
        estimator._take_variances(people)
    people = estimator._take_population(estimator._believe_people())
    bound = estimator._regress(people) + estimator._of_people(people)

    p, (rows, d), size = estimator.p, table.moment.shape, estimator.p + 1 + table.moment.shape[1]
    who = people.mean[table.person]
    features = np.zeros((rows, table.actions, size))
    features[np.arange(rows), table.action] = np.concatenate([who, np.ones((rows, 1)), table.moment], axis=1)
    features = features.reshape(rows, -1)
    precision = np.linalg.inv(row_covariance(table, estimator))
    quadratic, linear = features.T @ precision @ features, features.T @ precision @ table.reward
    for i, covariance in enumerate(people.covariance):
        for one in np.flatnonzero(table.person == i):
            for other in np.flatnonzero(table.person == i):
                a, b = table.action[one] * size, table.action[other] * size
                quadratic[a : a + p, b : b + p] += precision[one, other] * covariance
    shared = np.full(size, 1 / VAGUE)
    shared[p + 1 :] = estimator.moment_scale
    shared[2 + 1 : p] = 0.0
    ones = np.ones((table.actions, table.actions))
    prior = np.kron(np.eye(table.actions), np.diag(estimator.spread)) + np.kron(ones, np.diag(shared))
    evidence = (
        0.5 * linear @ np.linalg.solve(np.eye(len(prior)) + prior @ quadratic, prior @ linear)
        - 0.5 * np.linalg.slogdet(np.eye(len(prior)) + prior @ quadratic)[1]
        - 0.5 * table.reward @ precision @ table.reward
        - 0.5 * (rows * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1])
    )
    inverse, away = np.linalg.inv(estimator.population), people.mean - estimator.mean
    noise_precision = np.linalg.inv(table.noise)
    for i, covariance in enumerate(people.covariance):
        distance = np.trace(inverse @ covariance) + away[i] @ inverse @ away[i] - p
        distance += np.linalg.slogdet(estimator.population)[1] - np.linalg.slogdet(covariance)[1]
        evidence -= 0.5 * distance
        for encoding in table.encodings[i]:
            error = encoding - people.mean[i, :2]
            evidence -= 0.5 * (error @ noise_precision @ error + np.trace(noise_precision @ covariance[:2, :2]))
            evidence -= 0.5 * np.linalg.slogdet(2 * np.pi * table.noise)[1]
    assert bound + encodings_log_density(table) == pytest.approx(evidence, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_people_are_believed_as_dense_gaussian_conditioning_says_when_coefficients_are_known(seed: int) -> None:
    table = draw_table(seed, people=6, actions=3, longest=5, d=1, n=2)
    estimator = _Estimator(table.sums, 2, False, own_effects=True)
    rng = np.random.default_rng(seed)
    estimator.beta, estimator.sigma, estimator.tau = rng.normal(size=(3, 6)), np.array([0.3, 0.5, 0.9]), 0.4
    people = estimator._believe_people()
    theta, rest = estimator.beta[:, :4], estimator.beta[:, 4:]
    for i, encodings in enumerate(table.encodings):
        mine = table.person == i
        loadings = np.concatenate([theta[table.action[mine]], np.tile(np.eye(2, 4), (len(encodings), 1))])
        told = table.reward[mine] - np.sum(rest[table.action[mine]] * np.c_[np.ones(mine.sum()), table.moment[mine]], 1)
        noise = np.zeros((len(loadings), len(loadings)))
        noise[: mine.sum(), : mine.sum()] = row_covariance(table, estimator)[np.ix_(mine, mine)]
        noise[mine.sum() :, mine.sum() :] = np.kron(np.eye(len(encodings)), table.noise)
        gain = np.linalg.solve(
            loadings @ estimator.population @ loadings.T + noise, loadings @ estimator.population
        ).T
        surprise = np.r_[told, encodings.ravel()] - loadings @ estimator.mean
        np.testing.assert_allclose(people.mean[i], estimator.mean + gain @ surprise, atol=1e-8)
        left = estimator.population - gain @ loadings @ estimator.population
        np.testing.assert_allclose(people.covariance[i], left, atol=1e-8)


def test_with_many_people_the_bound_approaches_the_dense_likelihood_of_everything() -> None:
    """Coefficients are nearly known then: what the bound loses is a few nats for each of them, whatever the rows."""
    table = draw_table(0, people=300, actions=2, longest=6, d=1, n=1)
    fitted = fit_person_model(table.sums, 1, same_level=True)
    n, p = 1, 2
    total = 0.0
    for i, encodings in enumerate(table.encodings):
        mine = table.person == i
        action = table.action[mine]
        loadings = np.concatenate([fitted.coefficients[action, :p], np.tile(np.eye(n, p), (len(encodings), 1))])
        rest = np.c_[np.ones(mine.sum()), table.moment[mine]]
        mean = loadings @ fitted.population_mean
        mean[: mine.sum()] += np.sum(fitted.coefficients[action, p:] * rest, axis=1)
        covariance = loadings @ fitted.population_covariance @ loadings.T
        block = np.diag(fitted.reward_variance[action]) + fitted.own_variance * (action[:, None] == action)
        covariance[: mine.sum(), : mine.sum()] += block
        covariance[mine.sum() :, mine.sum() :] += np.kron(np.eye(len(encodings)), table.noise)
        told = np.r_[table.reward[mine], encodings.ravel()]
        total += multivariate_normal.logpdf(told, mean, covariance)
    bound = fitted.bound[-1] + encodings_log_density(table)
    assert 0 < total - bound < 5 * fitted.coefficients.size


@settings(deadline=None, max_examples=25)
@given(tables, st.integers(0, 3), st.booleans(), st.booleans())
def test_the_bound_never_falls(table: Table, hidden: int, same_level: bool, own_effects: bool) -> None:
    hidden = min(hidden, table.actions)
    fitted = fit_person_model(table.sums, hidden, same_level=same_level, own_effects=own_effects)
    assert np.all(np.isfinite(fitted.bound))
    # Variances of actions lean on each other (ten rows of the pooled one), which no step of EM says.
    assert np.all(np.diff(fitted.bound) > -TOLERANCE * len(table.reward) - 1e-9 * np.abs(fitted.bound[:-1]))
