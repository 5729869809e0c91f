"""Live decisions as an application makes them."""

import inspect
import json
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilb.environments import UniformLogging, draw_world, record
from ilb.errors import DecisionError, LogsError, LogsWarning, SchemaError
from ilb.live.bandit import LiveBandit
from ilb.live.programs import decision_key, instance_stream, pack, packing_of, unpack
from ilb.models.latent import LatentModel
from ilb.offline.fit import complete_model
from ilb.online.arms import mab, uniform
from ilb.online.policy import PROPENSITY_POINTS, AbstractPolicy
from ilb.online.roster import policy_on
from ilb.types import Step, as_real
from narrowed import known


@pytest.fixture(scope="module", params=["Calibrated", "Calibrated-TS", "CPG"])
def bandit(request: pytest.FixtureRequest, clinic: LatentModel) -> LiveBandit:
    return LiveBandit.on(clinic, request.param, seed=3)


def unchecked(method: Any) -> Any:
    """Take off the type checker, where there is one: programs that come without are to be answered in words, too."""
    return partial(inspect.unwrap(method.__func__), method.__self__)


VISIT = {"score": 12.5, "marker": 1.1, "sex": "f"}


def visits(number: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"score": 10 + rng.normal(), "marker": rng.normal(), "sex": "f"} for _ in range(number)]


def test_a_decision_says_everything_by_label(bandit: LiveBandit) -> None:
    decision = bandit.start("anna").decide(VISIT)
    labels = {"aspirin", "placebo", "statin"}
    assert decision.action in labels
    for mapping in (decision.expected_reward, decision.reward_std, decision.probability_best, decision.propensities):
        assert set(mapping) == labels
    assert sum(decision.probability_best.values()) == pytest.approx(1, abs=1e-5)
    assert sum(decision.propensities.values()) == pytest.approx(1, abs=1e-5)
    assert decision.propensity == decision.propensities[decision.action] > 0
    assert repr(decision.action) in decision.reason
    assert (decision.instance, decision.number) == ("anna", 0)


def test_the_numbers_are_those_of_the_policy(bandit: LiveBandit, clinic: LatentModel) -> None:
    """Against direct calls of the policy, without packing and labels."""
    policy, anna = bandit.policy, bandit.start("anna")
    state = policy.init()
    everything = jnp.ones(3, bool)
    for number, visit in enumerate(visits(5)):
        decision = anna.decide(visit)
        randomness = jnp.asarray([*instance_stream(3, "anna"), number], jnp.uint32)
        key_draw, _ = jr.split(decision_key(randomness))
        row = jnp.asarray(known(clinic.schema).encode(visit))
        state, choice = policy.decide(key_draw, state, row, everything)
        assert decision.action == known(clinic.schema).actions[int(choice.action)]
        np.testing.assert_allclose(
            list(decision.expected_reward.values()), policy.rewards(state, row).mean(), atol=1e-5
        )
        np.testing.assert_allclose(list(decision.reward_std.values()), policy.rewards(state, row).std(), atol=1e-5)
        anna.learn(decision, 0.3 * number)
        state = policy.learn(state, Step(row, choice.action, jnp.asarray(0.3 * number)))


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(6)))
def test_rewards_in_any_order_give_the_same_belief(clinic: LatentModel, order: list[int]) -> None:
    bandit = LiveBandit(policy_on(clinic, "Calibrated"), known(clinic.schema))
    prompt, late = bandit.start("anna"), bandit.start("anna")
    decisions = [late.decide(visit) for visit in visits(6)]
    for number in order:
        late.learn(decisions[number], float(number))
    waiting = [prompt.decide(visit) for visit in visits(6)]
    for number in range(6):
        prompt.learn(waiting[number], float(number))
    first, second = prompt.decide(VISIT), late.decide(VISIT)
    assert first.expected_reward == pytest.approx(second.expected_reward, abs=1e-5)


def test_going_on_after_a_restore_equals_never_having_stopped(bandit: LiveBandit) -> None:
    through, stopped = bandit.start("anna"), bandit.start("anna")
    late = []
    for number, visit in enumerate(visits(12)):
        one, two = through.decide(visit), stopped.decide(visit)
        assert one == two
        if number % 3 == 0:
            late.append(number)
        else:
            through.learn(one, 0.1 * number)
            stopped.learn(two, 0.1 * number)
        text = stopped.to_json()
        stopped = bandit.restore(text)
    for number in late:
        through.learn(number, 1.0)
        stopped.learn(number, 1.0)
    assert through.decide(VISIT) == stopped.decide(VISIT)


def test_a_decision_can_be_made_again_from_seed_instance_and_number(clinic: LatentModel) -> None:
    """Another process replays the same events and gets the same decisions; another seed or name does not."""

    def replay(seed: int, name: str) -> list[Hashable]:
        anna = LiveBandit(policy_on(clinic, "Calibrated-TS"), known(clinic.schema), seed=seed).start(name)
        actions = []
        for visit in visits(30):
            decision = anna.decide(visit)
            anna.learn(decision, 0.0)
            actions.append(decision.action)
        return actions

    assert replay(1, "anna") == replay(1, "anna")
    assert replay(1, "anna") != replay(2, "anna")
    assert replay(1, "anna") != replay(1, "bo")


def test_ruled_out_actions_are_not_chosen(bandit: LiveBandit) -> None:
    anna = bandit.start("anna")
    for visit in visits(20):
        decision = anna.decide(visit, forbidden=["aspirin"])
        assert decision.action != "aspirin"
        assert decision.propensities["aspirin"] == decision.probability_best["aspirin"] == 0
    only = anna.decide(VISIT, allowed=["placebo"])
    assert only.action == "placebo"
    assert only.propensity == pytest.approx(1)
    assert "only allowed" in only.reason
    with pytest.raises(DecisionError, match="no action is left"):
        anna.decide(VISIT, forbidden=["aspirin", "placebo", "statin"])
    with pytest.raises(SchemaError, match="'heroin'"):
        anna.decide(VISIT, forbidden=["heroin"])


def test_contexts_count_without_rewards(clinic: LatentModel) -> None:
    bandit = LiveBandit(policy_on(clinic, "CPG"), known(clinic.schema))
    seen, decided = bandit.start("anna"), bandit.start("anna")
    for visit in visits(5):
        seen.observe(visit)
        decided.decide(visit)
    assert seen.decide(VISIT).expected_reward == decided.decide(VISIT).expected_reward
    assert not [number for number in seen.pending if number < 5]


def test_missing_values_are_fine_and_wrong_ones_are_named(bandit: LiveBandit) -> None:
    anna = bandit.start("anna")
    assert anna.decide({**VISIT, "marker": None}).action
    with pytest.warns(LogsWarning, match="'sex'"):
        anna.decide({**VISIT, "sex": "unknown"})
    with pytest.raises(SchemaError, match="marker"):
        anna.decide({"score": 1.0, "sex": "f"})
    with pytest.raises(LogsError, match="score"):
        anna.decide({**VISIT, "score": float("inf")})


def test_a_reward_that_belongs_to_no_open_decision_is_refused_and_nothing_is_lost(bandit: LiveBandit) -> None:
    anna, bo = bandit.start("anna"), bandit.start("bo")
    decision = anna.decide(VISIT)
    bo.decide(VISIT)
    with pytest.raises(DecisionError, match="never made"):
        anna.learn(7, 1.0)
    with pytest.raises(DecisionError, match="for 'anna'; this instance is 'bo'"):
        bo.learn(decision, 1.0)
    for reward in (float("nan"), float("inf"), 1e39, "much", None, [1.0, 2.0]):
        with pytest.raises(DecisionError, match="must be a number"):
            unchecked(anna.learn)(decision, reward)
    for wrong in ("first", None, 0.5):
        with pytest.raises(DecisionError, match="a decision or its number"):
            unchecked(anna.learn)(wrong, 1.0)
    anna.learn(decision, 1.0)
    before = anna.to_json()
    with pytest.raises(DecisionError, match="already has its reward"):
        anna.learn(decision, 1.0)
    assert anna.to_json() == before


def test_deciding_for_many_equals_deciding_for_each(bandit: LiveBandit) -> None:
    names = [f"person {i}" for i in range(7)]
    contexts = visits(7, seed=4)
    together = [bandit.start(name) for name in names]
    alone = [bandit.start(name) for name in names]
    for _ in range(3):
        many = bandit.decide_many(together, contexts)
        each = [instance.decide(context) for instance, context in zip(alone, contexts, strict=True)]
        assert [d.action for d in many] == [d.action for d in each]
        for one, two in zip(many, each, strict=True):
            assert one.expected_reward == pytest.approx(two.expected_reward, abs=1e-5)
        for instances, decisions in ((together, many), (alone, each)):
            for instance, decision in zip(instances, decisions, strict=True):
                instance.learn(decision, 0.5)
    assert bandit.decide_many(together, pl.DataFrame(contexts))[0].number == 3
    with pytest.raises(DecisionError, match="7 instances need as many contexts; got 6"):
        bandit.decide_many(together, contexts[:6])
    with pytest.raises(DecisionError, match="named twice"):
        bandit.decide_many([alone[0], alone[0]], contexts[:2])


EVERY_KIND = (
    "CPG",
    "FPG-TS (released)",
    "Calibrated-TS",
    "MAB",
    "LinTS",
    "MIN-UCB (model)",
    "ProBALL-UCB",
    "Regret balancing",
    "mTS (encodings)",
    "mUCB (encodings)",
    "Regression",
    "Uniform",
)
"""Every kind of belief, rule and state; the other policies of the roster are made of the same ones."""


def test_live_decisions_are_those_of_the_policy_and_a_saved_instance_is_small(
    roster: dict[str, AbstractPolicy], small_model: LatentModel
) -> None:
    """Labels, packing and files against direct calls with the same keys."""
    everything = jnp.ones(5, bool)
    decide = jax.jit(lambda policy, *arguments: policy.decide(*arguments))
    learn = jax.jit(lambda policy, *arguments: policy.learn(*arguments))
    for name in EVERY_KIND:
        policy = roster[name]
        instance, state = LiveBandit(policy, known(small_model.schema)).start("anna"), policy.init()
        for number in range(12):
            row = np.array([0.1 * number, np.sin(number), -1.0], np.float32)
            decision = instance.decide(dict(zip(("x1", "x2", "x3"), row.tolist(), strict=True)))
            randomness = jnp.asarray([*instance_stream(0, "anna"), number], jnp.uint32)
            state, choice = decide(policy, jr.split(decision_key(randomness))[0], state, row, everything)
            assert decision.action == int(choice.action), name
            instance.learn(decision, 0.5 * np.cos(number))
            state = learn(policy, state, Step(jnp.asarray(row), choice.action, as_real(0.5 * np.cos(number))))
        assert len(instance.to_json()) < 4000


def test_a_saved_instance_stays_small_at_the_papers_size() -> None:
    world = draw_world(jr.key(0))
    model = complete_model(world.oracle().encoder, record(jr.key(1), world, UniformLogging(20), 100, 200).logs)
    anna = LiveBandit.on(model).start("anna")
    for number in range(40):
        anna.learn(anna.decide({f"x{j}": 0.123456 * number - j for j in range(1, 6)}), 0.123456 * number)
    open_ones = [anna.decide({f"x{j}": 0.1 for j in range(1, 6)}) for _ in range(20)]
    assert len(anna.to_json()) < 4000
    for decision in open_ones:
        anna.forget(decision)
    assert not anna.pending


def test_evidence_of_one_model_is_not_read_by_another(clinic: LatentModel) -> None:
    """Encodings of another fit have another basis, even if the shapes agree."""
    anna = LiveBandit.on(clinic).start("anna")
    anna.decide(VISIT)
    noise = eqx.tree_at(lambda n: n.population_mean, clinic.noise, clinic.noise.population_mean + 1)
    turned = LatentModel(clinic.encoder, clinic.reward, noise, clinic.schema)
    for other in (LiveBandit.on(turned), LiveBandit.on(clinic, "CPG"), LiveBandit.on(clinic, seed=1)):
        with pytest.raises(DecisionError, match="another meaning"):
            other.restore(anna.to_json())


def test_a_reward_is_not_booked_on_another_action_than_the_decision_names(clinic: LatentModel) -> None:
    bandit = LiveBandit.on(clinic)
    anna, again = bandit.start("anna"), bandit.start("anna")
    decision = anna.decide(VISIT, allowed=["statin"])
    again.decide(VISIT, allowed=["placebo"])
    with pytest.raises(DecisionError, match="was for 'placebo' here; this one is for 'statin'"):
        again.learn(decision, 1.0)


def test_threads_lose_nothing(clinic: LatentModel) -> None:
    bandit = LiveBandit.on(clinic, "CPG")
    anna = bandit.start("anna")
    with ThreadPoolExecutor(4) as pool:
        for decision in pool.map(lambda _: anna.decide(VISIT), range(100)):
            anna.learn(decision, 1.0)
    stored = json.loads(anna.to_json())
    state = unpack(packing_of(bandit.policy.init()), jnp.asarray(stored["state"]))
    assert stored["seen"] == float(state.rounds) == float(state.rewards.pulls.sum()) == 100


def test_what_is_not_a_context_or_a_name_is_refused(clinic: LatentModel) -> None:
    bandit = LiveBandit.on(clinic)
    with pytest.raises(DecisionError, match="a mapping from columns to values"):
        unchecked(bandit.start("anna").decide)([VISIT])
    with pytest.raises(DecisionError, match="a list with a mapping for each instance"):
        bandit.decide_many([bandit.start("anna")], VISIT)
    with pytest.raises(DecisionError, match="another bandit"):
        bandit.decide_many([LiveBandit.on(clinic, seed=5).start("anna")], [VISIT])
    with pytest.raises(DecisionError, match="needs a name"):
        bandit.start(float("nan"))
    with pytest.raises(DecisionError, match="no policy is named 'UCB1'; there are Adaptive, CPG"):
        LiveBandit.on(clinic, "UCB1")
    assert type(bandit.start(np.int64(3)).label) is int


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stored: "no json", "not a saved instance"),
        (lambda stored: json.dumps({**stored, "format": "other"}), "expected 'ilb-live-instance'"),
        (lambda stored: json.dumps({**stored, "format_version": 99}), "Upgrade"),
        (lambda stored: json.dumps({**stored, "seed": 77}), "saved with seed 77"),
        (lambda stored: json.dumps({**stored, "bandit": "other"}), "saved with bandit 'other'"),
        (lambda stored: json.dumps({**stored, "pending": []}), "damaged"),
        (lambda stored: json.dumps({**stored, "seen": -1}), "do not fit"),
        (lambda stored: json.dumps({**stored, "pending": {"0": [99, [0.0]]}}), "do not fit"),
        (lambda stored: json.dumps({**stored, "state": stored["state"][:-1]}), "do not fit"),
        (lambda stored: json.dumps({k: v for k, v in stored.items() if k != "seen"}), "damaged"),
    ],
)
def test_a_wrong_file_is_refused(bandit: LiveBandit, change: Callable[[Any], str], message: str) -> None:
    anna = bandit.start("anna")
    anna.decide(VISIT)
    with pytest.raises(DecisionError, match=message):
        bandit.restore(change(json.loads(anna.to_json())))


def test_propensities_of_thompson_sampling_match_what_many_people_get(clinic: LatentModel) -> None:
    """The same history for 500 people; the shares of their next actions against the stated propensities."""
    bandit = LiveBandit(policy_on(clinic, "Calibrated-TS"), known(clinic.schema))
    crowd = [bandit.start(number) for number in range(500)]
    decisions = bandit.decide_many(crowd, [VISIT] * len(crowd))
    shares = decisions[0].propensities
    for label in shares:
        seen = np.mean([decision.action == label for decision in decisions])
        assert seen == pytest.approx(shares[label], abs=5 * np.sqrt(0.25 / 500 + 0.25 / PROPENSITY_POINTS))


def test_what_a_user_sees_is_what_the_guide_offers(clinic: LatentModel) -> None:
    bandit = LiveBandit.on(clinic)
    shown = {name for name in dir(bandit) if not name.startswith("_")}
    assert shown == {
        *("decide_many", "fingerprint", "from_history", "on", "policy"),
        *("recommend", "restore", "schema", "seed", "start"),
    }
    shown = {name for name in dir(bandit.start("anna")) if not name.startswith("_")}
    assert shown == {"decide", "forget", "label", "learn", "observe", "pending", "to_json"}


def test_policies_without_logs_are_played_by_name_and_others_say_what_they_need(clinic: LatentModel) -> None:
    for name, other in (
        ("MAB", mab(3, clinic.noise.reward_variance)),
        ("CPG", policy_on(clinic, "CPG")),
        ("Uniform", uniform(3)),
    ):
        named, built = (
            one.start("anna") for one in (LiveBandit.on(clinic, name), LiveBandit(other, known(clinic.schema)))
        )
        assert named.decide(VISIT) == built.decide(VISIT)
    with pytest.raises(DecisionError, match=r"the policy 'mTS \(rewards\)' needs logs. Give them to `prepare_ingred"):
        LiveBandit.on(clinic, "mTS (rewards)")
    with pytest.raises(DecisionError, match="the policy 'Regression' needs a trained network"):
        LiveBandit.on(clinic, "Regression")


def test_packing_keeps_every_number_and_type() -> None:
    tree = {"a": jnp.arange(3), "b": (jnp.ones((2, 2)), jnp.asarray(True)), "c": jnp.asarray(2.5)}
    again = unpack(packing_of(tree), pack(tree))
    for first, second in zip(jax.tree.leaves(tree), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(first, second)
        assert first.dtype == second.dtype
    assert hash(packing_of(tree)) == hash(packing_of(again))


def test_keys_that_the_model_does_not_know_are_named(clinic: LatentModel, bandit: LiveBandit) -> None:
    schema = known(clinic.schema)
    with pytest.warns(LogsWarning, match="keys that the model does not know: 'scroe'; ignored"):
        row = schema.encode({**VISIT, "scroe": 3})
    np.testing.assert_array_equal(row, schema.encode({**VISIT, "patient": "anna", "drug": None, "response": None}))
    with pytest.warns(LogsWarning, match="keys that the model does not know: 'weight'"):
        bandit.start("anna").decide({**VISIT, "weight": 70})
    with pytest.warns(LogsWarning, match="does not know: 'weight'"):
        bandit.decide_many([bandit.start("bo")], [{**VISIT, "weight": 70}])


def test_what_is_far_from_the_logs_can_be_refused_before_it_is_taken_in(clinic: LatentModel) -> None:
    careful = LiveBandit.on(clinic, "Calibrated", far="refuse")
    anna = careful.start("anna")
    decision = anna.decide(VISIT)
    before = anna.to_json()
    with pytest.raises(DecisionError, match=r"column 'score' of 'anna' is .* Nothing was changed"):
        anna.decide({**VISIT, "score": 1250.0})
    with pytest.raises(DecisionError, match="column 'score' of 'anna'"):
        careful.decide_many([anna], [{**VISIT, "score": 1250.0}])
    with pytest.raises(DecisionError, match=r"the reward 1000 of 'anna' is .* Nothing was changed"):
        anna.learn(decision, 1000.0)
    assert anna.to_json() == before
    anna.learn(decision, 1.0)
    with pytest.raises(DecisionError, match="far= is what to do about values far from the logs, 'warn', 'refuse'"):
        LiveBandit.on(clinic, far="ignore")
