"""The figures of a model, for notebooks: `model.plot.people(logs)` and its like. Tables here, drawn in `ilb.plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from ilb.errors import FitError, IlbError
from ilb.live.bandit import LiveBandit
from ilb.live.programs import BoundPolicy
from ilb.live.recall import believe_states, recall_states
from ilb.logs import Logs
from ilb.logs.histories import Histories, read_histories
from ilb.logs.messages import brief, shown
from ilb.models.latent import LatentModel, canonical_basis
from ilb.offline.ahead import Predictions, predict_ahead, score_ahead
from ilb.offline.encodings import encode_contexts, instance_means
from ilb.offline.fit import fit_again
from ilb.offline.search import plain_models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
"""Of the intervals that a figure of calibration shows."""

SHARES = (0.125, 0.25, 0.5, 1.0)
"""Of the people that a learning curve learns from."""

BAND = 1.96
"""Standard deviations on either side of what is expected: 95 %."""


class ModelPlots:
    """What `model.plot` gives: each method returns a Matplotlib figure."""

    def __init__(self, model: LatentModel) -> None:
        self._model = model

    def people(self, logs: Logs) -> Figure:
        """Draw a map of the people of logs, coloured by the action that is expected to be best for them.

        The axes are the two widest directions of the latent state, by mean encodings; of models that encode fewer
        than two, the two in which what is expected of the actions differs most.
        """
        from ilb.plots.people import plot_people

        model, logs = self._model, self._model.read(logs)
        means = self._expected(_as_histories(logs))
        if model.encoded_dim >= 2:
            places, axes = _by_encodings(model, logs), ("first latent direction", "second latent direction")
        else:
            places, axes = _widest(means), ("expected rewards, first direction", "second direction")
        return plot_people(places, means.argmax(axis=1), logs.schema.actions, axes, f"{logs.instances:,} people")

    def belief(self, history: Any, person: Any = None) -> Figure:
        """Draw what is believed of a person after each row of a table, and the rewards as they came.

        `person` says of whom; it may be left out if the table has one person.
        """
        from ilb.plots.people import plot_belief

        bound = self._bound()
        one = _of_one(read_histories(history, bound.schema), person)
        rows, actions = len(one.person), len(bound.schema.actions)
        lengths = np.arange(rows + 1)
        place = np.concatenate([np.arange(length) for length in lengths]).astype(np.int64)
        grown = Histories(
            tuple(range(rows + 1)),
            np.repeat(lengths, lengths),
            one.context[place],
            one.action[place],
            one.reward[place],
            (frozenset(),) * (rows + 1),
        )
        now, every = np.zeros((rows + 1, bound.schema.width), np.float32), np.ones((rows + 1, actions), bool)
        told = believe_states(bound, recall_states(bound, grown), now, every)
        means, stds = told[:, 1 : 1 + actions], told[:, 1 + actions : 1 + 2 * actions]
        came = np.flatnonzero(one.rewarded)
        taken = [(int(row) + 1, int(one.action[row]), float(one.reward[row])) for row in came]
        low, high = means - BAND * stds, means + BAND * stds
        return plot_belief(means, low, high, bound.schema.actions, taken, str(one.labels[0]))

    def calibration(self, logs: Logs) -> Figure:
        """Draw how often intervals of the next reward hold, on people that the model should not have seen."""
        from ilb.plots.quality import plot_calibration

        ahead = predict_ahead(self._model, self._model.read(logs))
        held, errors = coverage(ahead, LEVELS)
        people = len(np.unique(ahead.person))
        return plot_calibration(LEVELS, held, errors, f"{len(ahead.reward):,} rewards of {people:,} people")

    def learning_curve(self, logs: Logs, *, seed: int = 0) -> Figure:
        """Draw R² of the next reward of a fifth of the people, learned from ever more of the others.

        The model is fitted again, as it was fitted, on an eighth, a quarter, a half and all of the others.
        """
        from ilb.plots.quality import plot_learning_curve

        training, test = self._model.read(logs).split_instances((0.8, 0.2), seed=seed)
        order = np.random.default_rng(seed).permutation(training.instances)
        sizes = sorted({max(int(share * training.instances), 2) for share in SHARES})
        scores = []
        for size in sizes:
            try:
                (model,) = fit_again(self._model, [training.select(np.sort(order[:size]))], seed=seed)
            except FitError:  # so few people can't teach this model
                continue
            scores.append((size, score_ahead(predict_ahead(model, test)).r_squared))
        if not scores:
            raise IlbError(f"{training.instances} people are too few to fit this model on some of them.")
        plain = score_ahead(predict_ahead(plain_models(training)["own level"], test)).r_squared.value
        return plot_learning_curve(
            np.array([size for size, _ in scores]),
            np.array([score.value for _, score in scores]),
            np.array([score.standard_error for _, score in scores]),
            plain,
            f"{test.instances:,} held-out people",
        )

    def _bound(self) -> BoundPolicy:
        bandit = LiveBandit.on(self._model)
        return BoundPolicy(bandit.policy, bandit.schema, bandit.seed, None)

    def _expected(self, histories: Histories) -> Float[np.ndarray, "people K"]:
        """Give what is expected of each action after everything that is known of each person."""
        bound = self._bound()
        actions = len(bound.schema.actions)
        nowhere = np.zeros((len(histories.labels), bound.schema.width), np.float32)
        every = np.ones((len(histories.labels), actions), bool)
        told = believe_states(bound, recall_states(bound, histories), nowhere, every)
        return np.asarray(told[:, 1 : 1 + actions])


def coverage(
    ahead: Predictions, levels: Float[np.ndarray, " levels"]
) -> tuple[Float[np.ndarray, " levels"], Float[np.ndarray, " levels"]]:
    """Say which share of rewards is inside the intervals of each level, with standard errors over people."""
    held, errors = [], []
    _, person = np.unique(ahead.person, return_inverse=True)
    rows = np.bincount(person)
    for level in levels:
        low, high = ahead.interval(float(level))
        inside = ((low <= ahead.reward) & (ahead.reward <= high)).astype(np.float64)
        share = inside.mean()
        off = np.bincount(person, weights=inside - share) / rows.mean()
        held.append(share)
        errors.append(off.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan)
    return np.array(held), np.array(errors)


def _as_histories(logs: Logs) -> Histories:
    person: Int[np.ndarray, " N"] = logs.instance.astype(np.int64)
    nobody: tuple[frozenset[int], ...] = (frozenset(),) * logs.instances
    return Histories(logs.instance_labels, person, logs.context, logs.action.astype(np.int64), logs.reward, nobody)


def _by_encodings(model: LatentModel, logs: Logs) -> Float[np.ndarray, "people 2"]:
    """Place people by their mean encodings, in units of the noise of one encoding, the widest direction first."""
    n = model.encoded_dim
    noise, population = (
        np.asarray(part, np.float64) for part in (model.noise.encoding_covariance, model.noise.population_covariance)
    )
    basis = canonical_basis(noise, population[:n, :n])
    means = instance_means(encode_contexts(model.encoder, logs.context), logs.starts)
    placed = (means - np.asarray(model.noise.population_mean, np.float64)[:n]) @ basis.matrix
    return np.asarray(placed[:, ::-1][:, :2])


def _widest(means: Float[np.ndarray, "people K"]) -> Float[np.ndarray, "people 2"]:
    centred = means - means.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    placed = left * sizes
    return np.asarray(np.pad(placed, ((0, 0), (0, max(2 - placed.shape[1], 0))))[:, :2])


def _of_one(histories: Histories, person: Any) -> Histories:
    if person is None and len(histories.labels) != 1:
        raise IlbError(f"the table has {len(histories.labels)} people, {shown(histories.labels)}; say whom in person=.")
    label = histories.labels[0] if person is None else person
    if label not in histories.labels:
        raise IlbError(f"nobody in the table is called {brief(label)}; there are {shown(histories.labels)}.")
    rows = histories.person == histories.labels.index(label)
    parts = (histories.context[rows], histories.action[rows], histories.reward[rows])
    return Histories((label,), np.zeros(int(rows.sum()), np.int64), *parts, (frozenset(),))
