"""What would be gained: a policy plays the people of the logs, with models that have not seen them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ilb.errors import LogsError
from ilb.logs import Logs, require_logs
from ilb.logs.messages import counted
from ilb.models.latent import LatentModel
from ilb.offline.choice import Candidate, ModelChoice
from ilb.offline.encoders import word_for
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.fit import choose_model, fit_again, fit_candidate
from ilb.offline.rewards.recipe import RewardRecipe
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_policy
from ilb.seeds import as_seed
from ilb.trust.accounts import followed, of_replays, play_everyone, what_was_done
from ilb.trust.agreement import LEAST_FOLLOWED, Weighed
from ilb.trust.controls import run_controls
from ilb.trust.crossfit import LEAST_PEOPLE, Fold, cross_fit, rows_of, with_rewards
from ilb.trust.crossover import best_recorded, is_complete, recorded_regret
from ilb.trust.evaluation import CROSSOVER, GAIN_OVER_DONE, QUEUE, Control, Evaluation, Horizon, Line
from ilb.trust.propensities import Propensities, estimate, given, take_out
from ilb.trust.replay import Replayed
from ilb.trust.resampling import Resampling, Statistic, difference, mean_of
from ilb.trust.sensitivity import Surprises, bound_gain
from ilb.trust.single import BestSingle
from ilb.types import Report, silent

MOST_ROUNDS = 30
"""The longest horizon where none is asked for: later decisions are like the last of these."""

BANDIT = "MAB (centred)"
"""The bandit without a model that a policy is compared with: it starts from the scale of rewards and nothing else."""

DONE, SINGLE = "what was done", "the best single action"


def evaluate(
    logs: Logs,
    *,
    policy: str = "Adaptive",
    horizon: int | None = None,
    folds: int = 5,
    propensity: str | None = None,
    model: LatentModel | None = None,
    choice: ModelChoice | None = None,
    latent_dim: int | None = None,
    recipe: EncoderRecipe | None = None,
    reward: RewardRecipe | None = None,
    seed: int = 0,
    report: Report = silent,
) -> Evaluation:
    """Estimate what a policy would bring the people of the logs, beside what was done for them.

    People are divided into `folds` parts. For each part a model is chosen and fitted on the others, and a policy on it
    decides for those held out. With a `model` or a `choice` (of `choose_model`), that kind of model is fitted each time
    and nothing is compared; what is named of `latent_dim`, `recipe` and `reward` is not searched for, as in `fit`.
    Rewards come from the person's own logs (`ilb.trust.replay`). `horizon` is the number of decisions for each person;
    it is shortened where fewer than four in five people can be followed that far, and so is the default, 30.

    `propensity` names a context column with the probability of each row's action, where that is known; it is taken out
    of the contexts. Elsewhere it is estimated, for a second, doubly robust estimate (`ilb.trust.doubly_robust`).

    The policy is compared with what was done, with the action that is best for the others, and with a bandit without a
    model. Standard errors and intervals are over people.
    """
    require_logs(logs, "an evaluation")
    if horizon is not None and horizon < 1:
        raise LogsError(f"horizon must be a number of decisions, at least 1; got {horizon}.")
    seed, logs, chances = as_seed(seed), with_rewards(logs, folds), None
    if propensity is not None:
        logs, chances = take_out(logs, propensity)
    if logs.instances < LEAST_PEOPLE:
        return _refused(
            policy,
            logs.instances,
            Horizon(0, 0.0, 0.0, horizon, ()),
            f"{logs.instances} people have rewards, and fewer than {LEAST_PEOPLE} can't tell a gain from luck",
        )
    if choice is None and recipe is not None and reward is not None and (latent_dim or not recipe.needs_columns):
        choice = ModelChoice(Candidate(word_for(recipe), recipe, latent_dim or 0, reward))

    def fit_on(others: Logs) -> LatentModel:
        if model is not None:
            return fit_again(model, [others], seed=seed)[0]
        taken = choice or choose_model(others, latent_dim=latent_dim, recipe=recipe, reward=reward, seed=seed)
        return fit_candidate(others, taken, seed=seed)

    fitted = cross_fit(logs, fit_on, folds=folds, seed=seed, report=report)
    known = None if chances is None else [given(fold.logs, chances[rows_of(logs, fold.people)]) for fold in fitted]
    return evaluate_fitted(fitted, policy=policy, horizon=horizon, propensities=known, seed=seed)


def evaluate_fitted(
    folds: Sequence[Fold],
    *,
    policy: str = "Adaptive",
    horizon: int | None = None,
    propensities: Sequence[Propensities] | None = None,
    seed: int = 0,
) -> Evaluation:
    """Evaluate models that were fitted on other people, as `cross_fit` gives them, with controls."""
    evaluation = estimate_gain(folds, policy=policy, horizon=horizon, propensities=propensities, seed=seed)
    if evaluation.refusal is not None:
        return evaluation
    policies = [build_policy(fold.ingredients, policy) for fold in folds]
    played, rounds = len(evaluation.horizon.shares), evaluation.horizon.rounds
    controls = run_controls(folds, policies, played, rounds, Resampling(evaluation.people, seed), seed)
    sentences = (*evaluation.sentences, *_failed(controls))
    return replace(evaluation, controls=controls, sentences=sentences)


def estimate_gain(
    folds: Sequence[Fold],
    *,
    policy: str,
    horizon: int | None = None,
    propensities: Sequence[Propensities] | None = None,
    seed: int = 0,
) -> Evaluation:
    """Estimate and bound, without controls."""
    people = sum(len(fold.people) for fold in folds)
    rounds = np.concatenate([np.bincount(fold.logs.instance[fold.logs.rewarded]) for fold in folds])
    # Who has fewer rows than that can't be followed so far in any case.
    longest = max(int(np.quantile(rounds, 1 - LEAST_FOLLOWED, method="lower")), 1)
    played = min(longest, MOST_ROUNDS if horizon is None else horizon)
    names = list(dict.fromkeys([policy, BANDIT]))
    replays = {name: play_everyone(folds, name, played, seed=seed) for name in names}
    reached = _horizon(replays[policy], horizon)
    if not reached.rounds:
        return _refused(
            policy,
            people,
            reached,
            f"the policy's first choice was ever tried with only {reached.shares[0]:.0%} of people, and "
            f"{LEAST_FOLLOWED:.0%} are needed. Merge rare actions, or collect rows in which actions are tried more "
            "evenly",
        )
    resampling = Resampling(people, seed)
    policies = [build_policy(fold.ingredients, policy) for fold in folds]
    done, single = what_was_done(folds, reached.rounds), BestSingle.of(folds, reached.rounds)
    values: dict[str, Statistic] = {name: of_replays(replays[name], reached.rounds).value for name in names}
    values |= {DONE: done.value, SINGLE: single.value}
    seen = {name: float(followed(replays[name])[reached.rounds - 1]) for name in names}
    seen |= {DONE: 1.0, SINGLE: 1 - single.missing}
    lines = _queue_lines(policy, values, seen, reached.rounds, resampling)
    propensities = [estimate(fold.logs) for fold in folds] if propensities is None else propensities
    weighed = Weighed.of(folds, policies, propensities, replays[policy], reached.rounds, seed)
    second = weighed.lines(
        of_replays(replays[policy], weighed.rounds),
        what_was_done(folds, weighed.rounds),
        what_was_done(folds),
        float(followed(replays[policy])[weighed.rounds - 1]),
        resampling,
    )
    exact = _regrets(policy, folds, policies, single, reached.rounds, resampling, seed)
    hidden = bound_gain(
        lines[0].figure, replays[policy], reached.rounds, Surprises.of(folds, propensities), folds[0].logs.actions
    )
    return Evaluation(
        policy,
        people,
        reached,
        # Over as many decisions, queue replay says the same the second time.
        (*lines, *(line for line in second if line not in lines), *exact),
        (*_sentences(policy, reached, lines, people), weighed.sentence(second), hidden.sentence(), *_forgetting(folds)),
        sensitivity=hidden,
        models=tuple(str(fold.model) for fold in folds),
    )


def _regrets(
    policy: str,
    folds: Sequence[Fold],
    policies: Sequence[AbstractPolicy],
    single: BestSingle,
    rounds: int,
    resampling: Resampling,
    seed: int,
) -> tuple[Line, ...]:
    """Give regrets where everybody has tried every action."""
    if not is_complete(folds):
        return ()
    regrets = {
        policy: mean_of(recorded_regret(folds, policies, rounds, seed=seed)),
        SINGLE: difference(mean_of(best_recorded(folds, rounds)), single.value),
    }
    return tuple(
        Line(f"regret of {name}", CROSSOVER, rounds, resampling.estimate(regret)) for name, regret in regrets.items()
    )


def _forgetting(folds: Sequence[Fold]) -> list[str]:
    if all(float(fold.model.noise.memory) == 1 for fold in folds):
        return []
    return [
        "The model takes it that people change (memory below 1), so that early rewards of a person need not be like "
        "later ones, which queue replay takes for granted: take these numbers as a rough guide."
    ]


def _failed(controls: Sequence[Control]) -> list[str]:
    failed = [control.name for control in controls if not control.passed]
    if not failed:
        return [f"All {len(controls)} controls passed."]
    return [f"A control FAILED ({'; '.join(failed)}): do not believe these numbers before you know why."]


def _horizon(replays: Sequence[Replayed], asked: int | None) -> Horizon:
    """Take the longest horizon to which enough people can be followed; none at all if there is none."""
    shares = followed(replays)
    enough = np.flatnonzero(shares >= LEAST_FOLLOWED)
    rounds = int(enough[-1]) + 1 if len(enough) else 0
    observed = np.mean([played.observed[:, : max(rounds, 1)].mean() for played in replays])
    return Horizon(rounds, float(shares[max(rounds, 1) - 1]), float(observed), asked, tuple(shares.round(4).tolist()))


def _refused(policy: str, people: int, horizon: Horizon, why: str) -> Evaluation:
    refusal = f"What would be gained can't be said from these logs: {why}."
    return Evaluation(policy, people, horizon, (), (refusal,), refusal)


def _queue_lines(
    policy: str, values: Mapping[str, Statistic], seen: Mapping[str, float], rounds: int, resampling: Resampling
) -> tuple[Line, ...]:
    """Give gains and values; `seen` says for what share of people each way to decide can be followed."""
    gains = {
        f"gain over {name}": (difference(values[policy], values[name]), min(seen[policy], seen[name]))
        for name in (DONE, SINGLE, BANDIT)
        if name != policy
    }
    alone = {f"value of {name}": (value, seen[name]) for name, value in values.items()}
    return tuple(
        Line(name, QUEUE, rounds, resampling.estimate(figure), share)
        for name, (figure, share) in (gains | alone).items()
    )


def _sentences(policy: str, horizon: Horizon, lines: Sequence[Line], people: int) -> tuple[str, ...]:
    gain = next(line.figure for line in lines if line.quantity == GAIN_OVER_DONE)
    sure = (
        "would gain"
        if gain.low > 0
        else "would lose"
        if gain.high < 0
        else "can't be told from what was done: it would gain"
    )
    said = [
        f"{policy} {sure} {gain.text(sign=True)} a decision over what was done, by queue replay, in the first "
        f"{counted(horizon.rounds, 'decision')} of a person; {horizon.followed:.0%} of {people:,} people can be "
        "followed that far."
    ]
    if horizon.asked is not None and horizon.rounds < horizon.asked:
        said.append(
            f"{counted(horizon.asked, 'decision')} were asked for: too few people can be followed beyond "
            f"{horizon.rounds}."
        )
    said += [
        f"The {line.quantity} is less sure than its interval says: with that, only {line.followed:.0%} of people can "
        "be followed so far, and what is expected of the others stands in for their rewards."
        for line in lines
        if line.quantity.startswith("gain") and line.followed < LEAST_FOLLOWED
    ]
    return tuple(said)
