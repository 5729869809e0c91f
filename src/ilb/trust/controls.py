"""Three questions whose answers are known, asked on every run: an estimator that fails one is not to be believed here.

Replaying what was done must give what was done; rewards that were shuffled have nothing to be gained; and in worlds of
the same shape, drawn from the models themselves, intervals must hold what is true there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ilb.models.moments import AbstractMoment
from ilb.offline.ahead import moment_effects
from ilb.online.evidence import Evidence
from ilb.online.latent import CalibratedBelief
from ilb.online.policy import AbstractPolicy, AbstractRewards, IndependentRewards, choose
from ilb.streams import Stream
from ilb.trust.accounts import of_replays, play_once, what_was_done
from ilb.trust.crossfit import Fold, by_person, cell_sums
from ilb.trust.evaluation import Control
from ilb.trust.expectations import expect, gather
from ilb.trust.replay import Replayed, first_rows, queue_up, replay
from ilb.trust.resampling import Resampling, Statistic, difference, mean_of
from ilb.types import Allowed, Choice, Context, Step, Values

WORLDS, LEAST_HELD = 10, 8
"""Simulated worlds, and how many must be covered: fewer would be in one run of ninety if intervals were right."""

ERRORS = 3.0
"""Standard errors that a number may be away from what it must be."""


class AsLogged(AbstractPolicy):
    """Take the actions that were taken: behind the columns of a context stands a one for the action, among zeros."""

    width: int = eqx.field(static=True)

    def init(self) -> tuple[()]:
        return ()

    def decide(
        self, key: PRNGKeyArray, state: tuple[()], context: Context, allowed: Allowed
    ) -> tuple[tuple[()], Choice]:
        del key
        return state, choose(context[self.width :], allowed)

    def learn(self, state: tuple[()], step: Step) -> tuple[()]:
        del step
        return state

    def rewards(self, state: tuple[()], context: Context) -> AbstractRewards:
        del state
        return IndependentRewards(context[self.width :], jnp.ones_like(context[self.width :]))

    def propensities(self, key: PRNGKeyArray, state: tuple[()], context: Context, allowed: Allowed) -> Values:
        del key, state
        return jax.nn.one_hot(choose(context[self.width :], allowed).action, len(allowed))


class _OfColumns(AbstractMoment):
    """A moment that does not see what stands behind the columns of a context."""

    moment: AbstractMoment
    width: int = eqx.field(static=True)

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.moment(context[: self.width])

    def of_action(self, context: Float[Array, " d"], action: Int[Array, ""]) -> Float[Array, ""]:
        return self.moment.of_action(context[: self.width], action)


def run_controls(
    folds: Sequence[Fold],
    policies: Sequence[AbstractPolicy],
    played: int,
    rounds: int,
    resampling: Resampling,
    seed: int,
) -> tuple[Control, ...]:
    """Ask the three questions, with the models as they are; a play has `played` rounds, of which the first count."""
    return (
        logging_as_target(folds, rounds, resampling, seed),
        shuffled_rewards(folds, policies, played, rounds, resampling, seed),
        simulated_worlds(folds, policies, played, rounds, resampling, seed),
    )


def logging_as_target(folds: Sequence[Fold], rounds: int, resampling: Resampling, seed: int) -> Control:
    """Replay what was done in the first rounds.

    Who logs may have learned, and have done other things later: as much as other actions let expect is taken off. What
    is left is not zero if the first rewards of a person are unlike later ones.
    """
    parts, changed = [], []
    for place, fold in enumerate(folds):
        logs, moment, expected = fold.logs, fold.expecting.moment, fold.expectations.mean
        taken = logs.action[first_rows(logs, rounds)]
        people = queue_up(logs, moment, fold.expectations, rounds)
        shown = np.concatenate([people.contexts, np.eye(logs.actions, dtype=np.float32)[taken]], axis=2)
        seen = None if moment is None else _OfColumns(moment, logs.width)
        key = jr.fold_in(Stream.PLAYING.key(seed), place)
        parts.append(replay(key, AsLogged(logs.width), seen, people._replace(contexts=shown)))
        pulls, _ = cell_sums(logs)
        usual = (pulls * expected).sum(axis=1) / pulls.sum(axis=1)
        changed.append(np.take_along_axis(expected, taken.astype(np.int64), axis=1).mean(axis=1) - usual)
    account = of_replays([_joined(folds, parts)], rounds)
    gain = difference(account.value, what_was_done(folds, rounds).value)
    other_actions = mean_of(by_person(folds, changed))
    return _must_be_zero("what was done, replayed, less what was done", difference(gain, other_actions), resampling)


def shuffled_rewards(
    folds: Sequence[Fold],
    policies: Sequence[AbstractPolicy],
    played: int,
    rounds: int,
    resampling: Resampling,
    seed: int,
) -> Control:
    """Deal the rewards out anew among all rows: no action is better than another for anybody, at any moment.

    What the moment added to them is taken off before, and nothing is added after.
    """
    dealt = []
    for place, fold in enumerate(folds):
        reward = (fold.logs.reward - moment_effects(fold.expecting.moment, fold.logs)).astype(np.float32)
        rows = np.flatnonzero(fold.logs.rewarded)
        reward[rows] = np.random.default_rng([seed, 5, place]).permutation(reward[rows])
        dealt.append(_with_rewards(replace(fold, expecting=replace(fold.expecting, moment=None)), reward))
    account = of_replays([play_once(dealt, policies, played, seed=seed)], rounds)
    gain = difference(account.value, what_was_done(dealt, rounds).value)
    return _must_be_zero("gain where rewards were shuffled", gain, resampling)


def simulated_worlds(
    folds: Sequence[Fold],
    policies: Sequence[AbstractPolicy],
    played: int,
    rounds: int,
    resampling: Resampling,
    seed: int,
) -> Control:
    """Draw rewards for the rows as they are from the models, and look whether intervals hold what is true then."""
    truths, figures = [], []
    for number in range(WORLDS):
        drawn, true_policy, true_done = [], [], []
        for place, (fold, policy) in enumerate(zip(folds, policies, strict=True)):
            key = jr.fold_in(jr.fold_in(Stream.WORLD.key(seed), number), place)
            key_means, key_play = jr.split(key)
            means = _draw_means(fold, key_means)
            rng = np.random.default_rng([seed, 6, number, place])
            noise = rng.normal(size=fold.logs.rows) * np.sqrt(fold.expectations.noise_variance)[fold.logs.action]
            moments = moment_effects(fold.expecting.moment, fold.logs)
            reward = means[fold.logs.instance, fold.logs.action] + moments + noise
            world = _with_rewards(fold, np.where(fold.logs.rewarded, reward, np.nan).astype(np.float32))
            drawn.append(world)
            true_policy.append(_play_true(world, policy, means, played, key_play)[:, :rounds].mean(axis=1))
            pulls, _ = cell_sums(fold.logs)
            # In the contexts that the policy meets, on both sides.
            added = moments[first_rows(fold.logs, rounds)].mean(axis=1)
            true_done.append((pulls * means).sum(axis=1) / pulls.sum(axis=1) + added)
        truths.append(float(np.mean(np.concatenate(true_policy) - np.concatenate(true_done))))
        account = of_replays([play_once(drawn, policies, played, seed=seed, number=number)], rounds)
        figures.append(resampling.estimate(difference(account.value, what_was_done(drawn, rounds).value)))
    truth = float(np.mean(truths))
    held = sum(figure.holds(truth) for figure in figures)
    off = float(np.mean([figure.value for figure in figures])) - truth
    return Control(
        "true gain held in simulated worlds of this shape",
        f"{held} of {WORLDS} (off by {off:+.3f} on average)",
        f"{LEAST_HELD} or more",
        held >= LEAST_HELD,
    )


def _must_be_zero(name: str, statistic: Statistic, resampling: Resampling) -> Control:
    figure = resampling.estimate(statistic)
    small = abs(figure.value) <= ERRORS * figure.standard_error + 1e-9
    return Control(name, figure.estimate.text(), "0", bool(small))


def _joined(folds: Sequence[Fold], parts: Sequence[Replayed]) -> Replayed:
    return Replayed(*(by_person(folds, column) for column in zip(*parts, strict=True)))


def _with_rewards(fold: Fold, reward: Float[np.ndarray, " N"]) -> Fold:
    logs = replace(fold.logs, reward=reward)
    return replace(fold, logs=logs, expectations=expect(fold.expecting, logs, fold.expectations.shares))


def _draw_means(fold: Fold, key: PRNGKeyArray) -> Float[np.ndarray, "I K"]:
    """Draw everybody's expected rewards from what their contexts say of them."""
    silent = replace(fold.logs, reward=np.full_like(fold.logs.reward, np.nan))
    evidence = gather(CalibratedBelief(fold.expecting), silent)
    return np.asarray(_draw(CalibratedBelief(fold.expecting), evidence, jr.split(key, fold.logs.instances)), np.float64)


@eqx.filter_jit
def _draw(belief: CalibratedBelief, evidence: Evidence, keys: Array) -> Float[Array, "I K"]:
    return jax.vmap(lambda state, key: belief.believe(state).draw(key))(evidence, keys)


def _play_true(
    fold: Fold, policy: AbstractPolicy, means: Float[np.ndarray, "I K"], played: int, key: PRNGKeyArray
) -> Float[np.ndarray, "I H"]:
    """Play with queues that are empty and expectations that are true: every reward is drawn, and its mean is kept."""
    people = queue_up(fold.logs, fold.expecting.moment, fold.expectations, played)
    people = people._replace(
        starts=np.zeros_like(people.starts),
        expected=means.astype(np.float32),
        expected_std=np.zeros_like(people.expected_std),
    )
    return replay(key, policy, fold.expecting.moment, people).reward
