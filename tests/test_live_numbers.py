"""Live numbers are right to the digits that they claim, whatever the units of rewards, or are refused."""

import json
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from ilb.errors import DecisionError, LogsWarning
from ilb.live.bandit import LiveBandit
from ilb.live.instance import LiveInstance
from ilb.live.programs import in_float64, structure_of
from ilb.live.saved import read_memory, write_memory
from ilb.live.slips import FAR
from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward
from ilb.models.moments import LinearMoment
from ilb.networks import Affine
from ilb.online.arms import mab
from ilb.online.policy import AbstractBelief, AbstractPolicy, BeliefPolicy, Greedy, IndependentRewards
from ilb.types import Step
from narrowed import known, linear

ROUNDS = 100_000
VISIT = {"x1": 0.3, "x2": -1.0, "x3": 0.5}
PATIENT = {"score": 12.5, "marker": 1.1, "sex": "f"}


def start(model: LatentModel, name: str | None = None) -> LiveInstance:
    return LiveBandit.on(model, name).start("anna")


# Rewards in other units


def in_units(model: LatentModel, offset: float = 0.0, scale: float = 1.0) -> LatentModel:
    """The same model of rewards that are `offset + scale * reward`; both can be done in float32 without rounding."""
    reward, noise = linear(model.reward), model.noise
    intercept = scale * (jnp.round(8 * reward.intercept) / 8) + offset
    reward = LinearReward(scale * reward.theta, intercept, scale**2 * reward.coefficient_covariance)
    noise = eqx.tree_at(
        lambda n: (n.population_mean, n.reward_variance, n.leftover_variance),
        noise,
        (jnp.zeros(3), scale**2 * noise.reward_variance, scale**2 * noise.leftover_variance),
    )
    return LatentModel(model.encoder, reward, noise, model.schema)


MILLION = (1e6, 1.0)
SCALED = ["Adaptive", "Calibrated-TS", "MIN-UCB (model)", "ProBALL-UCB"]
"""Policies that are the same in all units; others have priors of variance one."""


@pytest.mark.parametrize(
    ("name", "units"),
    [
        *((name, MILLION) for name in [*SCALED, "CPG", "FPG-TS", "MABPrior"]),
        *((name, (0.0, scale)) for name in SCALED for scale in (2.0**20, 2.0**-20)),
    ],
)
def test_decisions_are_the_same_in_whatever_units_rewards_are(
    name: str, units: tuple[float, float], small_model: LatentModel
) -> None:
    offset, scale = units
    one, other = start(in_units(small_model), name), start(in_units(small_model, offset, scale), name)
    rng = np.random.default_rng(0)
    for _ in range(20):
        context, reward = dict(zip(("x1", "x2", "x3"), rng.normal(size=3).tolist(), strict=True)), float(rng.normal())
        first, second = one.decide(context), other.decide(context)
        assert first.action == second.action
        for label, mean in first.expected_reward.items():
            back = (np.array([second.expected_reward[label], *second.interval()[label]]) - offset) / scale
            np.testing.assert_allclose(back, [mean, *first.interval()[label]], atol=1e-5)
            assert back[0] == pytest.approx(mean, abs=1e-7)
            assert second.reward_std[label] / scale == pytest.approx(first.reward_std[label], rel=1e-7)
        one.learn(first, reward)
        other.learn(second, offset + scale * reward)
    told = re.search(r"expected (\S+) ±", second.reason)
    assert told is not None
    assert float(told.group(1)) == pytest.approx(second.expected_reward[second.action], abs=0.1 * scale)


def learn_all(anna: LiveInstance, actions: np.ndarray, rewards: np.ndarray) -> None:
    """Give an instance rewards without decisions, through the program that every reward goes through."""
    bound = anna._bound
    context = np.asarray(bound.schema.encode(VISIT))

    def learn(state: Any, outcome: Any) -> tuple[Any, None]:
        return bound.programs.learn(bound.vector, state, context, outcome), None

    outcomes = np.stack([actions, rewards, np.zeros(len(rewards))], axis=1)
    anna._state = np.asarray(in_float64(jax.lax.scan)(learn, anna._state, outcomes)[0])


@pytest.mark.parametrize("name", ["Adaptive", "Calibrated", "FPG", "MABPrior"])
def test_what_is_expected_after_100000_rewards_around_a_million_is_right_to_what_it_is_uncertain_by(
    name: str, small_model: LatentModel
) -> None:
    """Against the same rewards less a million; a tenth of what is stated as uncertain is the promise."""
    near, far = (start(in_units(small_model, offset), name) for offset in (0.0, 1e6))
    rng = np.random.default_rng(5)
    actions = rng.integers(5, size=ROUNDS)
    # Rounded as people round: errors then have a direction and add up.
    rewards = np.round(np.array([0.7, 0.1, -0.4, 2.0, -1.3])[actions] + 0.5 * rng.normal(size=ROUNDS), 1)
    for anna, offset in ((near, 0.0), (far, 1e6)):
        anna.decide(VISIT)
        learn_all(anna, actions, rewards + offset)
    one, two = near.decide(VISIT), far.decide(VISIT)
    for label, std in one.reward_std.items():
        assert std < 0.01  # so a float32 number near a million would be off by several times that
        assert abs(two.expected_reward[label] - 1e6 - one.expected_reward[label]) < std / 100


def test_sums_of_100000_rewards_are_exact_to_twelve_digits(small_model: LatentModel) -> None:
    """Against exactly rounded sums."""
    anna = LiveBandit(mab(5, 0.25), known(small_model.schema)).start("anna")
    rng = np.random.default_rng(5)
    actions, rewards = rng.integers(5, size=ROUNDS), 1e6 + np.round(rng.normal(size=ROUNDS), 1)
    learn_all(anna, actions, rewards)
    pulls, sums = np.split(np.asarray(anna._state), 2)
    np.testing.assert_array_equal(pulls, np.bincount(actions))
    np.testing.assert_allclose(sums, [math.fsum(rewards[actions == a]) for a in range(5)], rtol=1e-12)


# What is not finite


@pytest.mark.parametrize("name", ["FPG", "FPG (released)", "FPG-TS"])
def test_huge_rewards_in_the_logs_do_not_keep_anybody_from_deciding(name: str, small_model: LatentModel) -> None:
    """The paper's policies are not the same in all units, but have numbers in all of them."""
    anna = start(in_units(small_model, scale=1e8), name)
    for number in range(10):
        decision = anna.decide(VISIT)
        assert all(np.isfinite([*decision.expected_reward.values(), *decision.reward_std.values()]))
        anna.learn(decision, 1e8 * np.sin(number))


@pytest.mark.parametrize("value", [1e17, -1e37])
def test_a_context_beyond_all_numbers_is_refused_and_changes_nothing(clinic: LatentModel, value: float) -> None:
    bandit = LiveBandit.on(clinic, "CPG")
    anna, bo = bandit.start("anna"), bandit.start("bo")
    anna.learn(anna.decide(PATIENT), 0.5)
    anna.decide(PATIENT)
    before, before_bo = anna.to_json(), bo.to_json()
    monstrous = {**PATIENT, "score": value}
    for decide in (
        lambda: anna.decide(monstrous),
        lambda: anna.observe(monstrous),
        lambda: bandit.decide_many([bo, anna], [PATIENT, monstrous]),
    ):
        with pytest.raises(DecisionError, match=r"column 'score' of 'anna' is .* nothing can be known. Nothing was"):
            decide()
    assert (anna.to_json(), bo.to_json()) == (before, before_bo)


class Runaway(AbstractBelief):
    """Somebody's own belief, which fails beyond a context or a reward of 700."""

    def init(self) -> Array:
        return jnp.zeros(5)

    def observe(self, state: Array, context: Array) -> Array:
        return state + jnp.exp(context[0])

    def learn(self, state: Array, step: Step) -> Array:
        return state + jnp.exp(step.reward)

    def rewards(self, state: Array, context: Array) -> IndependentRewards:
        return IndependentRewards(state, jnp.sqrt(1 + jnp.minimum(context[1], 0)) * jnp.ones(5))


def test_numbers_that_are_none_are_never_given_out_or_kept(small_model: LatentModel) -> None:
    bandit = LiveBandit(BeliefPolicy(Runaway(), Greedy()), known(small_model.schema))
    anna, bo = bandit.start("anna"), bandit.start("bo")
    decision = anna.decide({**VISIT, "x2": 0.0})
    before, before_bo = anna.to_json(), bo.to_json()
    for runaway in ({**VISIT, "x1": 1000.0}, {**VISIT, "x2": -5.0}):
        with pytest.raises(DecisionError, match=r"no decision for 'anna': .* would not be finite. Nothing was changed"):
            anna.decide(runaway)
        with pytest.raises(DecisionError, match="no decision for 'anna'"):
            bandit.decide_many([bo, anna], [{**VISIT, "x2": 0.0}, runaway])
    with pytest.raises(DecisionError, match=r"with the reward 1000, .* not be finite. Nothing was learned, .* still"):
        anna.learn(decision, 1000.0)
    assert (anna.to_json(), bo.to_json()) == (before, before_bo)
    anna.learn(decision, 1.0)
    assert not anna.pending


# Saved people


def test_no_two_policies_of_the_roster_share_a_fingerprint(roster: dict[str, AbstractPolicy], small_model: Any) -> None:
    fingerprints = {name: LiveBandit(policy, small_model.schema)._bound.fingerprint for name, policy in roster.items()}
    assert len(set(fingerprints.values())) == len(roster)
    # A process of another day gives the same.
    assert not any("0x" in json.dumps(structure_of(policy)) for policy in roster.values())
    again = LiveBandit(roster["Adaptive"], small_model.schema)._bound.fingerprint
    assert again == fingerprints["Adaptive"]


def changed_numbers(tree: Any) -> list[Callable[[Any], None]]:
    """One change for every number of the state and of what is pending."""

    def change(place: list[Any], position: int) -> None:
        place[position] = place[position] + 1 if place[position] != 7 else 8

    changes: list[Callable[[Any], None]] = [
        lambda tree, i=i: change(tree["state"], i)  # type: ignore[misc]
        for i in range(len(tree["state"]))
    ]
    for number, (_, context) in tree["pending"].items():
        changes += [
            lambda tree, n=number, i=i: change(tree["pending"][n][1], i)  # type: ignore[misc]
            for i in range(len(context))
        ]
        changes.append(lambda tree, n=number: tree["pending"][n].__setitem__(0, (tree["pending"][n][0] + 1) % 5))  # type: ignore[misc]
    return [
        *changes,
        lambda tree: tree.update(seen=tree["seen"] + 1),
        lambda tree: tree.update(instance="bo"),
        lambda tree: tree.update(pending={}),
        lambda tree: tree.pop("checksum"),
    ]


def test_every_change_of_a_saved_person_is_noticed(small_model: LatentModel) -> None:
    bandit = LiveBandit.on(small_model)
    anna = bandit.start("anna")
    anna.learn(anna.decide(VISIT), 0.5)
    anna.decide(VISIT)
    text = anna.to_json()
    changes = changed_numbers(json.loads(text))
    assert len(changes) > 20
    for change in changes:
        tree = json.loads(text)
        change(tree)
        with pytest.raises(DecisionError, match="checksum is another"):
            bandit.restore(json.dumps(tree))
    respaced = json.dumps(dict(reversed(json.loads(text).items())), indent=1)
    assert bandit.restore(respaced).to_json() == text


def test_a_negative_count_is_refused_at_the_decision_even_with_its_checksum_right(small_model: LatentModel) -> None:
    bandit = LiveBandit.on(small_model, "CPG")
    anna = bandit.start("anna")
    anna.decide(VISIT)
    memory = read_memory(bandit._bound, anna.to_json())
    forged = memory._replace(state=np.concatenate([[-5.0], memory.state[1:]]))
    restored = bandit.restore(write_memory(bandit._bound, forged))
    with pytest.raises(DecisionError, match="no decision for 'anna'"):
        restored.decide(VISIT)


@pytest.mark.parametrize("version", [1, 2])
def test_a_person_saved_by_an_earlier_version_is_refused_with_what_to_do(
    version: int, small_model: LatentModel
) -> None:
    bandit = LiveBandit.on(small_model)
    tree = json.loads(bandit.start("anna").to_json())
    del tree["checksum"]
    with pytest.raises(DecisionError, match="Start the instance anew and tell it its history"):
        bandit.restore(json.dumps({**tree, "format_version": version}))


# Slips


def test_deciding_for_many_warns_of_far_values_as_deciding_for_one_does(clinic: LatentModel) -> None:
    bandit = LiveBandit.on(clinic, "CPG")
    people = [bandit.start(name) for name in ("anna", "bo", "cy")]
    slip, worse = {**PATIENT, "score": 1e3}, {**PATIENT, "marker": -1e4}
    with pytest.warns(LogsWarning, match="column 'score' of 'anna' is .* standard deviations from its mean"):
        people[0].decide(slip)
    with pytest.warns(
        LogsWarning, match=r"column 'marker' of 'cy' is .* \(1 other instance with such values\)"
    ) as caught:
        bandit.decide_many(people, [PATIENT, slip, worse])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bandit.decide_many(people, [PATIENT] * 3)


def test_a_reward_far_from_those_of_the_logs_is_warned_of_and_taken(small_model: LatentModel, small_logs: Logs) -> None:
    """The logs themselves are the measure: none of their rewards is far, and fifty deviations are."""
    anna = start(small_model, "Calibrated")
    for action, reward in zip(small_logs.action[:200], small_logs.reward[:200], strict=True):
        anna.learn(anna.decide(VISIT), float(reward), action=int(action))
    center, spread = float(small_logs.reward.mean()), float(small_logs.reward.std())
    decision = anna.decide(VISIT)
    with pytest.warns(LogsWarning, match=r"the reward .* of 'anna' is .* standard deviations from what the logs"):
        anna.learn(decision, center + 50 * spread)
    assert not anna.pending


def test_a_moment_that_explains_a_reward_keeps_it_from_being_far(small_model: LatentModel) -> None:
    effects = Affine(jnp.zeros((3, 5)).at[0].set(1000.0), jnp.zeros(5))
    model = LatentModel(
        small_model.encoder, small_model.reward, small_model.noise, small_model.schema, moment=LinearMoment(effects)
    )
    anna = start(model, "Calibrated")
    decision = anna.decide(VISIT)
    scaled = known(small_model.schema).encode(VISIT)
    assert abs(1000 * scaled[0]) > FAR
    anna.learn(decision, float(1000 * scaled[0]))
    with pytest.warns(LogsWarning, match="standard deviations from what the logs"):
        anna.learn(anna.decide(VISIT), float(-1000 * scaled[0]))
