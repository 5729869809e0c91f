"""The estimator of the person model against answers computed in another way: dense Gaussians and known truths."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from ilb.offline.rewards import person_estimator, person_sums
from ilb.offline.rewards.leaps import Leaps
from ilb.offline.rewards.person_estimator import VAGUE, PersonModelFit, _Estimator, fit_person_model
from ilb.offline.rewards.person_sums import PersonSums


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
    rows = np.concatenate([one - one.mean(axis=0) for one in table.encodings])
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

    p, rows, size = estimator.p, len(table.reward), estimator.beta.shape[1]
    who = people.mean[table.person]
    features = np.zeros((rows, table.actions, size))
    features[np.arange(rows), table.action] = np.concatenate([who, np.ones((rows, 1)), table.moment], axis=1)
    features = features.reshape(rows, -1)
    precision = np.linalg.inv(row_covariance(table, estimator))
    quadratic, linear = features.T @ precision @ features, features.T @ precision @ table.reward
    for i, covariance in enumerate(people.covariance[people.kind]):
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
    for i, covariance in enumerate(people.covariance[people.kind]):
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
        gain = np.linalg.solve(loadings @ estimator.population @ loadings.T + noise, loadings @ estimator.population).T
        surprise = np.r_[told, encodings.ravel()] - loadings @ estimator.mean
        np.testing.assert_allclose(people.mean[i], estimator.mean + gain @ surprise, atol=1e-8)
        left = estimator.population - gain @ loadings @ estimator.population
        np.testing.assert_allclose(people.covariance[people.kind[i]], left, atol=1e-8)


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


def assert_rises(table: Table, hidden: int, same_level: bool, own_effects: bool, fall: float) -> None:
    hidden = min(hidden, table.actions)
    bound = fit_person_model(table.sums, hidden, same_level=same_level, own_effects=own_effects, steps=80).bound
    assert np.all(np.isfinite(bound))
    assert np.all(np.diff(bound) > -fall - 1e-9 * np.abs(bound[:-1]))
    assert bound[-1] > bound[0]


@settings(deadline=None, max_examples=15)
@given(tables, st.integers(0, 3), st.booleans(), st.booleans())
def test_the_bound_never_falls_while_all_actions_have_one_variance(
    table: Table, hidden: int, same_level: bool, own_effects: bool
) -> None:
    assume(len(np.unique(table.action)) == table.actions)
    # The vague prior of a shared level stays as it is when u is rescaled.
    fall = 2e-3 if hidden else 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(person_estimator._Estimator, "_let_variances_differ", lambda self: False)
        assert_rises(table, hidden, same_level, own_effects, fall)


@settings(deadline=None, max_examples=15)
@given(tables, st.integers(0, 3), st.booleans(), st.booleans())
def test_the_bound_falls_by_less_than_it_matters_if_variances_lean_on_each_other(
    table: Table, hidden: int, same_level: bool, own_effects: bool
) -> None:
    assert_rises(table, hidden, same_level, own_effects, fall=0.1)


# Special cases


def without_contexts(
    person: np.ndarray, action: np.ndarray, reward: np.ndarray, people: int, actions: int
) -> PersonSums:
    moment, shown = np.zeros((len(person), 0)), np.zeros((people, 0))
    return PersonSums.of_rows(person, action, reward, moment, actions, np.zeros(people), shown, np.zeros((0, 0)))


def restricted_likelihood(sums: PersonSums, person: np.ndarray, action: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """REML of a random intercept for each person and a fixed effect for each action, densely: (level, noise)."""
    # All covariances, level * same + noise * identity, have the eigenvectors of `same`.
    same = (person[:, None] == person).astype(float)
    eigenvalues, basis = np.linalg.eigh(same)
    design, response = basis.T @ np.eye(sums.actions)[action], basis.T @ reward

    def loss(logs: np.ndarray) -> float:
        level, noise = np.exp(logs)
        variances = level * eigenvalues + noise
        solved = np.c_[design, response] / variances[:, None]
        gram, moment = design.T @ solved[:, :-1], design.T @ solved[:, -1]
        volume = np.log(variances).sum() + np.linalg.slogdet(gram)[1]
        return float(volume + response @ solved[:, -1] - moment @ np.linalg.solve(gram, moment))

    return np.exp(minimize(loss, np.log([0.5, 0.5]), method="Nelder-Mead").x)


def test_own_level_is_the_random_intercept_of_a_mixed_model() -> None:
    rng = np.random.default_rng(0)
    people, actions = 80, 4
    person = np.repeat(np.arange(people), rng.integers(2, 8, people))
    action = rng.integers(actions, size=len(person))
    reward = 0.8 * rng.normal(size=people)[person] + np.array([-0.5, 0.0, 0.3, 0.6])[action]
    reward = reward + 0.6 * rng.normal(size=len(person))
    sums = without_contexts(person, action, reward, people, actions)
    fitted = fit_person_model(sums, 1, same_level=True, own_effects=False)
    level, noise = restricted_likelihood(sums, person, action, reward)
    assert np.ptp(fitted.coefficients[:, 0]) < 1e-9
    assert fitted.own_variance == 0
    assert fitted.coefficients[0, 0] ** 2 == pytest.approx(level, rel=0.03)
    # Each action has a variance of its own here, which leans on the pooled one.
    assert np.average(fitted.reward_variance, weights=np.bincount(action)) == pytest.approx(noise, rel=0.03)
    # What both say of a new person after 1, 2 and 5 rewards of one above what is usual.
    for told in (1, 2, 5):
        loading, variance = fitted.coefficients[0, 0], fitted.reward_variance[0]
        ours = loading**2 / (loading**2 + variance / told)
        assert ours == pytest.approx(level / (level + noise / told), rel=0.05)


def fit_covariance(reward: np.ndarray, steps: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Plain EM for a Gaussian of any covariance, with missing rewards as nan."""
    mean, covariance = np.nanmean(reward, axis=0), np.diag(np.nanvar(reward, axis=0))
    patterns, which = np.unique(~np.isnan(reward), axis=0, return_inverse=True)
    for _ in range(steps):
        filled, doubt = np.empty_like(reward), np.zeros_like(covariance)
        for number, seen in enumerate(patterns):
            alike = which == number
            gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[seen]).T
            filled[alike] = mean + (reward[alike][:, seen] - mean[seen]) @ gain.T
            doubt += alike.sum() * (covariance - gain @ covariance[seen])
        mean = filled.mean(axis=0)
        covariance = np.cov(filled, rowvar=False, bias=True) + doubt / len(filled)
    return mean, covariance


def losses_of_covariances(seed: int, people: int, actions: int) -> tuple[float, float]:
    """Nats that a new reward is less likely under our model, and under plain EM, than under the truth: exactly."""
    rng = np.random.default_rng(seed)
    root = 0.6 * rng.normal(size=(actions, actions))
    mean, covariance = 0.5 * rng.normal(size=actions), root @ root.T + 0.3 * np.eye(actions)
    reward = rng.multivariate_normal(mean, covariance, size=people)
    reward[rng.random(reward.shape) < 0.25] = np.nan
    person, action = np.nonzero(~np.isnan(reward))
    fitted = fit_person_model(without_contexts(person, action, reward[person, action], people, actions), actions)
    theta = fitted.coefficients[:, :actions]

    def loss(guess: np.ndarray, spread: np.ndarray) -> float:
        away, ratio = guess - mean, np.linalg.solve(spread, covariance)
        distance = np.trace(ratio) - actions - np.linalg.slogdet(ratio)[1] + away @ np.linalg.solve(spread, away)
        return float(distance / 2 / actions)

    ours = theta @ theta.T + np.diag(fitted.reward_variance + fitted.own_variance)
    return loss(fitted.coefficients[:, actions], ours), loss(*fit_covariance(reward[~np.isnan(reward).all(axis=1)]))


def test_as_many_hidden_coordinates_as_actions_make_a_gaussian_of_any_covariance() -> None:
    """On average over tables: in one of 300 people either estimate may be ahead by 0.01."""
    ours, plain = np.mean([losses_of_covariances(seed, 300, 4) for seed in range(100, 106)], axis=0)
    assert ours < 0.02
    assert ours < plain + 0.005
    ours, _ = np.mean([losses_of_covariances(seed, 1200, 4) for seed in range(100, 102)], axis=0)
    assert ours < 0.005


# Recovery of a known truth


@dataclass(frozen=True)
class Recovered:
    """An estimate in the units of the truth, beside what least squares on mean encodings makes of the same rows."""

    slope: float
    plain_slope: float
    reward_variance: float
    own_variance: float


NOISE, OWN = 0.25, 0.1


def recover(seed: int, people: int, length: int, actions: int, blur: float, *, repeats: bool = True) -> Recovered:
    """Simulate people whose encodings have the noise variance `blur`, and fit; the slope of theta should be 1."""
    rng = np.random.default_rng(seed)
    z, theta = rng.normal(size=(people, 2)), rng.normal(size=(actions, 2))
    encodings = z[:, None] + np.sqrt(blur) * rng.normal(size=(people, length, 2))
    action = rng.integers(actions, size=(people, length))
    if not repeats:
        action = np.stack([rng.permutation(actions)[:length] for _ in range(people)])
    own = np.sqrt(OWN) * rng.normal(size=(people, actions))
    reward = np.take_along_axis(z @ theta.T + rng.normal(size=actions) + own, action, axis=1)
    reward = reward + np.sqrt(NOISE) * rng.normal(size=reward.shape)
    means = encodings.mean(axis=1)
    person, scale = np.repeat(np.arange(people), length), reward.std()
    sums = PersonSums.of_rows(
        person,
        action.ravel(),
        ((reward - reward.mean()) / scale).ravel(),
        np.zeros((person.size, 0)),
        actions,
        np.full(people, length),
        encodings.sum(axis=1),
        blur * np.eye(2),
    )
    fitted = fit_person_model(sums, 0)
    plain = np.zeros((actions, 2))
    for a in range(actions):
        rows = np.flatnonzero(action.ravel() == a)
        features = np.c_[means[person[rows]], np.ones(len(rows))]
        plain[a] = np.linalg.lstsq(features, reward.ravel()[rows], rcond=None)[0][:2]
    return Recovered(
        float(np.sum(scale * fitted.coefficients[:, :2] * theta) / np.sum(theta**2)),
        float(np.sum(plain * theta) / np.sum(theta**2)),
        float(scale**2 * fitted.reward_variance.mean()),
        scale**2 * fitted.own_variance,
    )


def averages(results: list[Recovered]) -> Recovered:
    return Recovered(*np.mean([list(vars(result).values()) for result in results], axis=0))


@pytest.mark.parametrize(("length", "people"), [(2, 1000), (3, 600), (5, 400)])
def test_theta_is_not_shrunk_by_the_noise_of_short_histories(length: int, people: int) -> None:
    mean = averages([recover(seed, people, length, 5, blur=1.0) for seed in range(6)])
    assert 0.6 < mean.plain_slope < 0.86
    assert mean.slope == pytest.approx(1, abs=0.05)
    assert mean.reward_variance == pytest.approx(NOISE, rel=0.1)
    assert mean.own_variance == pytest.approx(OWN, rel=0.3)


def test_few_repeats_among_many_actions_do_not_make_a_wild_reward_variance() -> None:
    """100 people with 2 rows of 20 actions: some five repeats in all, which alone would leave an error of 60 %."""
    results = [recover(seed, 100, 2, 20, blur=0.1) for seed in range(10)]
    mean = averages(results)
    assert mean.reward_variance == pytest.approx(NOISE, rel=0.2)
    assert mean.own_variance == pytest.approx(OWN, rel=0.4)  # its standard error over ten draws is 13 %
    assert np.std([result.reward_variance for result in results]) < 0.5 * NOISE


def noise_of_actions(seed: int, people: int, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimated variances of actions that everybody had twice, beside those of differences within people."""
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(people, 1, 1)) + np.sqrt(true) * rng.normal(size=(people, 2, len(true)))
    person, action = np.repeat(np.arange(people), 2 * len(true)), np.tile(np.arange(len(true)), 2 * people)
    sums = without_contexts(person, action, reward.ravel() / 2, people, len(true))
    fitted = fit_person_model(sums, 1, same_level=True)
    return 4 * fitted.reward_variance, np.mean((reward[:, 0] - reward[:, 1]) ** 2 / 2, axis=0)


def test_actions_have_noise_of_their_own_where_the_table_shows_it() -> None:
    true = np.array([1.0, 1.0, 4.0, 4.0])
    np.testing.assert_allclose(noise_of_actions(0, 200, true)[0], true, rtol=0.25)


def test_noise_of_actions_that_differs_by_chance_is_drawn_together() -> None:
    spreads = [[np.log(each).std() for each in noise_of_actions(seed, 10, np.ones(6))] for seed in range(8)]
    ours, plain = np.mean(spreads, axis=0)
    assert ours < plain / 3


def test_actions_that_vary_alike_by_chance_leave_room_for_own_effects() -> None:
    """40 actions with some ten rows each: free variances would let the smallest bound the own effects from above."""
    rng = np.random.default_rng(1)
    people, actions = 200, 40
    person, action = np.repeat(np.arange(people), 4), np.repeat(rng.integers(actions, size=(people, 2)), 2)
    own = rng.normal(size=(people, actions))
    reward = own[person, action] + rng.normal(size=len(person))
    fitted = fit_person_model(without_contexts(person, action, reward, people, actions), 0)
    assert fitted.own_variance == pytest.approx(1, rel=0.2)
    assert fitted.reward_variance.mean() == pytest.approx(1, rel=0.15)


@pytest.mark.parametrize("own", [0.0, 0.05, 0.5])
def test_the_variance_of_own_effects_is_that_of_the_likelihood_even_where_there_are_none(own: float) -> None:
    """Cells of mean zero with a known variance of noise: the likelihood of the cells' means has one parameter."""
    rng = np.random.default_rng(5)
    people, actions, repeats = 300, 4, 6
    person, action, _ = np.indices((people, actions, repeats)).reshape(3, -1)
    reward = own * rng.normal(size=(people, actions))[person, action] + rng.normal(size=len(person))
    nothing = np.zeros((len(person), 0))
    encodings = [np.zeros((actions * repeats, 0))] * people
    table = Table(person, action, reward, nothing, actions, encodings, np.zeros((0, 0)))
    found = fit_person_model(table.sums, hidden=0)
    means = reward.reshape(people, actions, repeats).mean(axis=2)
    means -= means.mean(axis=0)
    noise = found.reward_variance.mean() / repeats
    total = np.sum(means**2) / (people - 1) / actions  # the best variance of a mean, which is noise and own effects
    assert found.own_variance == pytest.approx(max(total - noise, 0), rel=0.05, abs=1e-3)
    patient = fit_person_model(table.sums, hidden=0, steps=3000, tolerance=1e-12)
    assert found.own_variance == pytest.approx(patient.own_variance, rel=0.02, abs=2e-4)


def test_a_table_without_any_repeat_still_leaves_room_for_own_effects() -> None:
    mean = averages([recover(seed, 300, 4, 6, blur=0.3, repeats=False) for seed in range(4)])
    assert mean.reward_variance + mean.own_variance == pytest.approx(NOISE + OWN, rel=0.1)
    assert mean.own_variance > 0.05 * NOISE


def test_the_order_of_rows_does_not_matter() -> None:
    table = draw_table(3, people=20, actions=4, longest=6, d=2, n=1)
    order = np.random.default_rng(0).permutation(len(table.reward))
    columns = (table.person[order], table.action[order], table.reward[order], table.moment[order])
    mixed = Table(*columns, table.actions, table.encodings, table.noise)
    one, other = fit_person_model(table.sums, 2), fit_person_model(mixed.sums, 2)
    np.testing.assert_allclose(one.bound, other.bound, rtol=1e-6)
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-6)
    np.testing.assert_allclose(one.reward_variance, other.reward_variance, atol=1e-6)


def test_a_fit_does_not_depend_on_where_people_stand() -> None:
    table = draw_table(4, people=20, actions=3, longest=6, d=1, n=1)
    order = np.random.default_rng(0).permutation(20)
    place = np.argsort(order)
    moved = Table(
        place[table.person],
        table.action,
        table.reward,
        table.moment,
        3,
        [table.encodings[i] for i in order],
        table.noise,
    )
    one: PersonModelFit = fit_person_model(table.sums, 2)
    np.testing.assert_allclose(one.coefficients, fit_person_model(moved.sums, 2).coefficients, atol=1e-6)


# People who are known equally well


@pytest.mark.parametrize("few", [0, 10**9])
def test_people_of_a_kind_had_the_same_actions_as_often_and_as_many_contexts(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = draw_table(3, people=60, actions=2, longest=4, d=1, n=2)
    kinds = _Estimator(table.sums, 1, False, own_effects=True).kinds
    had = [np.bincount(table.action[table.person == i], minlength=2).tolist() for i in range(60)]
    known = [(len(rows), *counts) for rows, counts in zip(table.encodings, had, strict=True)]
    assert len(kinds.size) == len(set(known)) < 60
    for i in range(60):
        assert [known[j] == known[i] for j in range(60)] == (kinds.of == kinds.of[i]).tolist()
        assert kinds.size[kinds.of[i]] == known.count(known[i])
    monkeypatch.setattr(person_sums, "FEW_KINDS", few)
    rng = np.random.default_rng(0)
    matrices, vectors = rng.normal(size=(len(kinds.size), 3, 3)), rng.normal(size=(60, 3))
    one_by_one = [matrices[kind] @ vector for kind, vector in zip(kinds.of, vectors, strict=True)]
    np.testing.assert_allclose(kinds.times(matrices, vectors), one_by_one, atol=1e-12)


def test_contexts_that_never_vary_within_people_do_not_drown_the_bound() -> None:
    """Their noise is next to nothing, so how likely they are is a huge number, whose last digits would end a fit."""
    table = draw_table(0, people=200, actions=4, longest=6, d=0, n=1)
    states = [np.repeat(rows[:1], len(rows), axis=0) for rows in table.encodings]
    fits = [
        fit_person_model(replace(table, encodings=states, noise=np.array([[noise]])).sums, 2) for noise in (1e-6, 1e-11)
    ]
    assert len(fits[0].bound) == len(fits[1].bound) > 20
    np.testing.assert_allclose(fits[0].own_variance, fits[1].own_variance, rtol=1e-4)
    np.testing.assert_allclose(fits[0].coefficients, fits[1].coefficients, atol=1e-4)


# Leaps


def test_a_leap_ends_where_steps_of_one_rate_would_end() -> None:
    limit, point = np.array([1.0, -0.5]), np.array([0.8, 0.1])
    leaps = Leaps()
    for _ in range(2):
        assert leaps.after(point) is None
        point = limit + 0.7 * (point - limit)
    end = leaps.after(point)
    assert end is not None
    np.testing.assert_allclose(end, limit, atol=1e-12)


def test_a_leap_goes_no_farther_than_it_may_and_farther_once_that_was_worth_it() -> None:
    def leap(leaps: Leaps) -> float:
        found = [leaps.after(np.array([x])) for x in (0.0, 1e-3, 1e-3 + 0.99e-3)]
        assert found[2] is not None
        return float(found[2][0])

    leaps = Leaps()
    assert leap(leaps) < leap(leaps) < 0.1
    leaps.refuse(np.array([0.0]))
    assert leaps.after(np.array([1e-3])) is None
    careful = leaps.after(np.array([1e-3 + 0.99e-3]))
    assert careful is not None
    assert careful[0] < 0.01


def test_a_leap_is_no_wider_than_numbers_of_about_one_go() -> None:
    leaps = Leaps()
    assert [leaps.after(np.array([x])) for x in (0.0, 10.0)] == [None, None]
    farther = leaps.after(np.array([19.9]))
    assert farther is not None
    assert 19.9 < farther[0] < 24


@pytest.mark.parametrize(("hidden", "same_level"), [(0, False), (1, True), (3, False)])
def test_leaps_end_where_many_small_steps_end_and_sooner(
    hidden: int, same_level: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = draw_table(5, people=80, actions=3, longest=7, d=1, n=1).sums
    monkeypatch.setattr(_Estimator, "_let_variances_differ", lambda self: False)
    usual = fit_person_model(sums, hidden, same_level=same_level)
    quick = fit_person_model(sums, hidden, same_level=same_level, steps=3000, tolerance=1e-11)
    monkeypatch.setattr(Leaps, "after", lambda self, point: None)
    slow = fit_person_model(sums, hidden, same_level=same_level, steps=20_000, tolerance=1e-11)
    usual_slow = fit_person_model(sums, hidden, same_level=same_level)
    assert len(quick.bound) < len(slow.bound)
    near = 1e-5 * sums.rows.sum()  # nats, of all rewards
    assert quick.bound[-1] == pytest.approx(slow.bound[-1], abs=near)
    np.testing.assert_allclose(quick.reward_variance, slow.reward_variance, rtol=2e-3)
    assert quick.own_variance == pytest.approx(slow.own_variance, rel=2e-3, abs=1e-5)
    # With the tolerance of a fit they stop no lower.
    assert usual.bound[-1] > usual_slow.bound[-1] - near
    assert len(usual.bound) <= len(usual_slow.bound)
