"""The adaptive belief against brute force, and what its policy does where the model is wrong."""

import itertools
from collections.abc import Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array
from scipy.integrate import quad
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, norm

from compiled import compiled
from ilb.environments import SyntheticWorld
from ilb.environments.changed_rewards import ChangedAction, IrrelevantModel, OwnEffects
from ilb.errors import DecisionError
from ilb.live.bandit import LiveBandit
from ilb.live.decision import quantiles
from ilb.logs import Logs, Schema
from ilb.models.hypotheses import HYPOTHESES, Hypothesis
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder, NoEncoder
from ilb.offline.misfits import log_likelihoods
from ilb.online.adaptive import CHANGE, LASTING, LEAST_NOISE, AdaptiveBelief, adaptive
from ilb.online.arms import ArmBelief
from ilb.online.latent import AbstractMeasuredBelief, CalibratedBelief
from ilb.online.mixed_rewards import MixedRewards
from ilb.online.policy import AbstractRewards, Outlook
from ilb.online.roster import policy_on
from ilb.simulation import simulate
from ilb.types import Step

SHOWN, ACTIONS, ROUNDS = 2, 4, 12


class Past(NamedTuple):
    """Contexts (which are encodings here), actions and rewards; the last action was never taken."""

    encodings: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray


def model_with(hidden: int) -> LatentModel:
    rng = np.random.default_rng(0)
    dim = SHOWN + hidden
    array = lambda x: jnp.asarray(np.asarray(x, np.float32))  # noqa: E731
    population = np.diag(rng.uniform(0.5, 2.0, size=dim))
    return LatentModel(
        IdentityEncoder(),
        LinearReward(
            array(rng.normal(size=(ACTIONS, dim))),
            array(rng.normal(size=ACTIONS)),
            array(np.zeros((ACTIONS, dim + 1, dim + 1))),
        ),
        NoiseLevels(
            array(np.eye(SHOWN)),
            array(np.zeros(dim)),
            array(population),
            array(rng.uniform(0.2, 1.0, size=ACTIONS)),
            array(0.1),
        ),
    )


@pytest.fixture(scope="module", params=[0, 1], ids=["no hidden coordinate", "a hidden coordinate"])
def model(request: pytest.FixtureRequest) -> LatentModel:
    return model_with(request.param)


@pytest.fixture(scope="module")
def past() -> Past:
    rng = np.random.default_rng(1)
    return Past(rng.normal(size=(ROUNDS, SHOWN)) + 1, rng.integers(ACTIONS - 1, size=ROUNDS), rng.normal(size=ROUNDS))


def told(belief: Any, encodings: Array, actions: Array, rewards: Array) -> Any:
    def tell(state: Any, row: tuple[Array, Array, Array]) -> tuple[Any, None]:
        encoding, action, reward = row
        return belief.learn(belief.observe(state, encoding), Step(jnp.zeros(SHOWN), action, reward)), None

    return jax.lax.scan(tell, belief.init(), (encodings, actions, rewards))[0]


def seen_by(belief: AbstractMeasuredBelief | ArmBelief, past: Past) -> Any:
    encodings, actions, rewards = past
    return compiled(told, belief, np.float32(encodings), np.int32(actions), np.float32(rewards))


def believed(belief: AdaptiveBelief, past: Past) -> MixedRewards:
    return compiled(belief.believe, seen_by(belief, past))


def moments(rewards: AbstractRewards) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(compiled(rewards.mean)), np.asarray(compiled(rewards.std))


def sure_of_actions(belief: AdaptiveBelief, change_probability: float = 0.0) -> AdaptiveBelief:
    """Take away the doubts about each action, and about the noise of contexts."""
    doubts = jnp.asarray(change_probability), jnp.asarray(0.0)
    return eqx.tree_at(lambda b: (b.change_probability, b.noise_doubt), belief, doubts)


class Conditioned(NamedTuple):
    mean: np.ndarray
    variance: np.ndarray
    log_likelihood: float


def spread_of(model: LatentModel) -> float:
    assert isinstance(model.reward, LinearReward)
    theta, intercept = np.asarray(model.reward.theta), np.asarray(model.reward.intercept)
    # Actions less their mean, as a product with a matrix: a level that actions share does not count.
    centring = np.eye(ACTIONS) - 1 / ACTIONS
    covariance = centring @ theta @ np.asarray(model.noise.population_covariance) @ theta.T @ centring
    covariance += centring * float(model.noise.leftover_variance)  # own effects less their mean; coefficients are known
    return float(np.trace(covariance) / ACTIONS + np.mean((centring @ intercept) ** 2))


def intercept_of(model: LatentModel) -> np.ndarray:
    assert isinstance(model.reward, LinearReward)
    return np.asarray(model.reward.intercept, np.float64)


def condition(
    model: LatentModel,
    past: Past,
    hypothesis: Hypothesis,
    changed: tuple[int, ...] = (),
    context_noise: float = 1.0,
    lasting: float = 0.0,
) -> Conditioned:
    """State, bias, own effects, all contexts and all rewards in one joint Gaussian, conditioned in float64."""
    assert isinstance(model.reward, LinearReward)
    theta = np.array(model.reward.theta, np.float64)
    population = np.diag(np.asarray(model.noise.population_covariance, np.float64))
    lost = np.zeros(ACTIONS)
    if hypothesis.any_effect:
        lost += np.trace(theta @ np.diag(population) @ theta.T) / ACTIONS + float(model.noise.leftover_variance)
        lost += np.mean((intercept_of(model) - intercept_of(model).mean()) ** 2)
    if not hypothesis.relevant:
        lost += np.diag(theta[:, :SHOWN] @ np.diag(population[:SHOWN]) @ theta[:, :SHOWN].T)
        theta[:, :SHOWN] = 0
    intercept = intercept_of(model)
    dim, rho = theta.shape[1], spread_of(model)
    own = (
        float(model.noise.leftover_variance)
        + lost
        + hypothesis.own**2 * rho
        + CHANGE**2 * rho * np.isin(range(ACTIONS), changed)
    )
    state = hypothesis.wider * population
    prior = np.diag(np.concatenate([state, np.full(SHOWN, max(context_noise, 1) * hypothesis.bias**2 + lasting), own]))
    contexts = np.zeros((SHOWN, dim + SHOWN + ACTIONS))
    contexts[:, :SHOWN] = contexts[:, dim : dim + SHOWN] = np.eye(SHOWN)
    to_rewards = np.concatenate([theta, np.zeros((ACTIONS, SHOWN)), np.eye(ACTIONS)], axis=1)
    design = np.concatenate([*([contexts] * len(past.encodings)), to_rewards[past.actions]])
    observed = np.concatenate([past.encodings.ravel(), past.rewards - intercept[past.actions]])
    noise = np.concatenate(
        [np.full(past.encodings.size, context_noise), np.asarray(model.noise.reward_variance)[past.actions]]
    )
    total = design @ prior @ design.T + np.diag(noise)
    gain = prior @ design.T @ np.linalg.inv(total)
    covariance = to_rewards @ (prior - gain @ design @ prior) @ to_rewards.T
    likelihood = multivariate_normal(np.zeros(len(total)), total).logpdf(observed)
    return Conditioned(to_rewards @ gain @ observed + intercept, np.diag(covariance), float(likelihood))


def test_a_fit_weighs_hypotheses_by_the_likelihood_of_the_joint_gaussian(model: LatentModel, past: Past) -> None:
    rewards = np.where(np.arange(ROUNDS) == 3, np.nan, past.rewards)  # nobody wrote this one down
    written = Past(past.encodings, np.delete(past.actions, 3), np.delete(rewards, 3))
    dense = np.array([condition(model, written, hypothesis).log_likelihood for hypothesis in HYPOTHESES])
    people = (np.repeat(x[None], 2, axis=0) for x in (past.encodings, past.actions, rewards))
    [found, twin] = log_likelihoods(model, Logs.from_arrays(*people, actions=ACTIONS))
    np.testing.assert_allclose(found - found[0], dense - dense[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found, twin)


def test_without_doubt_it_is_the_calibrated_posterior(model: LatentModel, past: Past) -> None:
    calibrated, sure = CalibratedBelief(model), AdaptiveBelief(model, doubt=0.0)
    expected, found = compiled(calibrated.believe, seen_by(calibrated, past)), believed(sure, past)
    np.testing.assert_allclose(moments(found), moments(expected), atol=1e-5)
    assert float(found.hypotheses[0]) == 1


def test_with_full_doubt_it_is_a_bandit_from_scratch(past: Past) -> None:
    model = model_with(0)
    nothing = HYPOTHESES[-1]._replace(any_effect=False)
    belief = sure_of_actions(AdaptiveBelief(model, hypotheses=(nothing,)))
    assert isinstance(model.reward, LinearReward)
    theta = np.asarray(model.reward.theta)
    explained = np.diag(theta @ np.asarray(model.noise.population_covariance) @ theta.T)
    variance = float(model.noise.leftover_variance) + explained
    arms = ArmBelief(ACTIONS, model.noise.reward_variance, model.reward.intercept, jnp.asarray(variance, jnp.float32))
    expected, found = compiled(arms.rewards, seen_by(arms, past), np.zeros(SHOWN, np.float32)), believed(belief, past)
    np.testing.assert_allclose(moments(found), moments(expected), atol=1e-5)


def test_a_level_that_people_differ_in_is_no_reason_to_doubt_actions_more() -> None:
    """Rewards of some people are higher by a lot, whatever is done: nothing is known less of what is best."""
    model = model_with(1)
    assert isinstance(model.reward, LinearReward)
    level = jnp.zeros_like(model.reward.theta).at[:, SHOWN].set(100.0)
    lifted = eqx.tree_at(lambda m: m.reward.theta, model, model.reward.theta + level)
    changes = [np.diff(np.asarray(AdaptiveBelief(one).scales.own_variance), axis=1) for one in (model, lifted)]
    np.testing.assert_allclose(changes[1], changes[0], rtol=1e-2)


@pytest.mark.parametrize("hypothesis", HYPOTHESES, ids=lambda hypothesis: hypothesis.says)
def test_each_hypothesis_is_gaussian_conditioning(hypothesis: Hypothesis, model: LatentModel, past: Past) -> None:
    expected = condition(model, past, hypothesis)
    alone = hypothesis._replace(says="this alone")  # the same words, so that all share a program
    found = believed(sure_of_actions(AdaptiveBelief(model, hypotheses=(alone,))), past)
    np.testing.assert_allclose(moments(found), (expected.mean, np.sqrt(expected.variance)), atol=2e-4)


def test_hypotheses_are_weighed_by_their_likelihood(model: LatentModel, past: Past) -> None:
    belief = sure_of_actions(AdaptiveBelief(model, doubt=0.6))
    likelihoods = np.array([condition(model, past, hypothesis).log_likelihood for hypothesis in HYPOTHESES])
    found = np.asarray(compiled(belief.log_evidence, seen_by(belief, past)))
    np.testing.assert_allclose(found - found[0], likelihoods - likelihoods[0], atol=5e-3)
    weights = np.array([hypothesis.weight for hypothesis in HYPOTHESES[1:]])
    prior = np.array([0.4, *(0.6 * weights / weights.sum())])
    np.testing.assert_allclose(believed(belief, past).hypotheses, softmax(np.log(prior) + likelihoods), atol=1e-3)


@pytest.mark.parametrize("times", [0.1, 0.7, 1.0, 4.0])
def test_contexts_that_scatter_more_or_less_than_those_of_the_logs_count_for_less_or_more(
    times: float, model: LatentModel, past: Past
) -> None:
    """By hand: as if 1 / doubt numbers had been seen that vary as in the logs; then the joint Gaussian."""
    doubt, mean = 0.2, past.encodings.mean(axis=0)
    other = past._replace(encodings=mean + times * (past.encodings - mean))
    apart = np.sum((other.encodings - mean) ** 2)
    noise = max((1 / doubt + apart) / (1 / doubt + SHOWN * (ROUNDS - 1)), LEAST_NOISE)
    for hypothesis in (HYPOTHESES[0], HYPOTHESES[3]):
        alone = (hypothesis._replace(says="this alone"),)
        belief = eqx.tree_at(lambda b: b.noise_doubt, sure_of_actions(AdaptiveBelief(model, hypotheses=alone)), doubt)
        assert float(compiled(belief.context_noise, seen_by(belief, other))) == pytest.approx(noise, rel=1e-4)
        expected = condition(model, other, hypothesis, (), noise, LASTING * max(noise - 1, 0))
        found = moments(believed(belief, other))
        np.testing.assert_allclose(found, (expected.mean, np.sqrt(expected.variance)), atol=2e-4)
    with_doubt, calibrated = AdaptiveBelief(model, doubt=0.0), CalibratedBelief(model)
    trusting = compiled(calibrated.believe, seen_by(calibrated, other))
    np.testing.assert_allclose(moments(believed(with_doubt, other)), moments(trusting), atol=1e-5)


def test_the_scatter_of_contexts_is_right_far_from_all_others_and_in_any_order() -> None:
    belief = AdaptiveBelief(model_with(0))
    rng = np.random.default_rng(0)
    near = rng.normal(size=(500, SHOWN))
    rows = np.zeros(500, np.int32), np.zeros(500)
    expected = np.sum((near - near.mean(axis=0)) ** 2)
    for encodings in (near, near[::-1], near + 1e4):
        found = float(seen_by(belief, Past(encodings, *rows)).scatter)
        assert found == pytest.approx(expected, rel=1e-2)


def test_contexts_that_were_copied_count_for_little_more_than_contexts(past: Past) -> None:
    belief = AdaptiveBelief(model_with(0))
    copied = past._replace(encodings=np.repeat(past.encodings[:1], ROUNDS, axis=0))
    assert float(seen_by(belief, copied).scatter) == pytest.approx(0, abs=1e-9)
    assert float(compiled(belief.context_noise, seen_by(belief, copied))) >= LEAST_NOISE


def test_noise_is_not_measured_where_people_move_or_columns_never_change(past: Past) -> None:
    """Of two coordinates one hardly ever changes within a person: this one's other contexts scatter nine times."""
    model = model_with(0)
    rarely = eqx.tree_at(lambda m: m.noise.encoding_covariance, model, jnp.diag(jnp.array([1e-6, 1.0])))
    encodings = np.stack([np.ones(ROUNDS), 3 * np.resize([1.0, -1.0], ROUNDS)], axis=1)
    belief = AdaptiveBelief(rarely, doubt=0.2)
    found = float(compiled(belief.context_noise, seen_by(belief, past._replace(encodings=encodings))))
    assert found == pytest.approx((5 + 9 * ROUNDS) / (5 + ROUNDS - 1), rel=1e-3)
    moving = AdaptiveBelief(model.with_memory(0.9), doubt=0.2)
    assert float(compiled(moving.context_noise, seen_by(moving, past))) == 1
    nothing_yet = AdaptiveBelief(model)
    assert float(compiled(nothing_yet.context_noise, nothing_yet.init())) == 1


def test_doubts_about_actions_come_close_to_all_ways_in_which_actions_may_have_changed(past: Past) -> None:
    """Enumeration over the 2^K sets of actions that may have changed; one of them did."""
    model, chance, usual = model_with(0), 0.1, HYPOTHESES[0]
    rewards = np.where(past.actions == 1, past.rewards + 5, past.rewards)
    odd = past._replace(rewards=rewards)
    sets = [changed for size in range(ACTIONS + 1) for changed in itertools.combinations(range(ACTIONS), size)]
    results = [condition(model, odd, usual, changed) for changed in sets]
    prior = np.array([len(changed) * np.log(chance) + (ACTIONS - len(changed)) * np.log1p(-chance) for changed in sets])
    joint = prior + np.array([result.log_likelihood for result in results])
    weights = softmax(joint)
    doubts = np.array(
        [sum(w for w, changed in zip(weights, sets, strict=True) if a in changed) for a in range(ACTIONS)]
    )
    belief = sure_of_actions(AdaptiveBelief(model, hypotheses=(usual,)), chance)
    found = believed(belief, odd)
    changed = np.asarray(found.soundness)[0, 1]
    np.testing.assert_allclose(changed, doubts, atol=0.12)
    assert changed[1] > 0.9
    assert changed[ACTIONS - 1] == pytest.approx(chance)
    means = sum(w * r.mean for w, r in zip(weights, results, strict=True))
    np.testing.assert_allclose(compiled(found.mean), means, atol=0.25)
    # The evidence is a bound, up to the constant that both leave out.
    bounds = [float(compiled(b.log_evidence, seen_by(b, odd)).item()) for b in (belief, sure_of_actions(belief))]
    constant = condition(model, odd, usual).log_likelihood - bounds[1]
    assert bounds[0] + constant <= logsumexp(joint) + 1e-3


def mixed(past: Past, doubt: float = 0.5) -> MixedRewards:
    return believed(AdaptiveBelief(model_with(1), doubt=doubt), past)


def test_draws_have_the_moments_of_the_belief(past: Past) -> None:
    rewards = mixed(past)
    draws = np.asarray(compiled(lambda rewards: jax.vmap(rewards.draw)(jr.split(jr.key(0), 40_000)), rewards))
    mean, std = moments(rewards)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.05)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.05)


def test_the_parts_of_the_outlook_make_up_the_belief(past: Past) -> None:
    rewards = mixed(past)
    weights, means, *_ = (np.asarray(part) for part in compiled(rewards.outlook))
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(np.sum(weights * means, axis=0), compiled(rewards.mean), atol=1e-5)


def test_doubts_are_probabilities_of_own_effects_that_are_worth_a_remark(past: Past) -> None:
    hypothesis = Hypothesis("own", own=1.0)
    rewards = believed(sure_of_actions(AdaptiveBelief(model_with(0), hypotheses=(hypothesis,))), past)
    effect = np.asarray(compiled(rewards.mean)) - np.asarray(rewards.explained)[0]
    std = np.sqrt(np.asarray(rewards.own_variance)[0, 0])
    bound = max(
        0.5 * np.sqrt(spread_of(model_with(0))), 2 * np.sqrt(0.1)
    )  # own effects of the logs have a variance of 0.1
    expected = norm.sf(bound, effect, std) + norm.cdf(-bound, effect, std)
    np.testing.assert_allclose(compiled(rewards.outlook).doubts, expected, atol=1e-5)


def test_own_effects_of_the_size_that_the_logs_have_are_what_the_logs_say(past: Past) -> None:
    known = eqx.tree_at(lambda m: m.noise.leftover_variance, model_with(0), jnp.asarray(5.0))
    nothing_yet = AdaptiveBelief(known)
    doubts = compiled(compiled(nothing_yet.believe, nothing_yet.init()).outlook).doubts
    assert np.all(np.asarray(doubts) < 0.1)


def test_quantiles_are_where_the_distribution_function_of_the_mixture_says(past: Past) -> None:
    outlook = compiled(mixed(past).outlook)
    levels = np.array([0.025, 0.3, 0.975])
    found = quantiles(outlook, levels)
    weights, means, stds = (np.asarray(part, np.float64) for part in outlook[:3])
    for level, row in zip(levels, found, strict=True):
        np.testing.assert_allclose(np.sum(weights * norm.cdf(row, means, stds), axis=0), level, atol=1e-6)


def worth_trying(rewards: MixedRewards, horizon: float, without: tuple[int, ...] = ()) -> np.ndarray:
    return np.asarray(compiled(rewards.worth_trying, ~np.isin(range(ACTIONS), without), np.array(horizon, np.float32)))


def test_a_trial_is_worth_what_integration_says(past: Past) -> None:
    """One hypothesis, no change: the gain of a round is an integral over what the action may turn out to be."""
    belief = sure_of_actions(AdaptiveBelief(model_with(0), hypotheses=(Hypothesis("own", own=1.0),)))
    rewards = believed(belief, past)
    worth, mean = worth_trying(rewards, 112.0), np.asarray(compiled(rewards.mean))
    order = np.argsort(-mean)
    for action in range(ACTIONS):
        rival = mean[order[1]] if action == order[0] else mean[order[0]]
        sign = -1 if action == order[0] else 1
        variance = float(np.asarray(rewards.own_variance)[0, 0, action])
        ahead, reach = sign * (mean[action] - rival), np.sqrt(variance)
        gain, _ = quad(lambda y, a=ahead, s=reach: max(a + s * y, 0) * norm.pdf(y), -12, 12, limit=200)
        plays = 1 + float(np.asarray(belief.reward_variance)[action]) / variance
        assert worth[action] == pytest.approx((112 - ROUNDS) * gain / plays, rel=1e-3, abs=1e-4)
    # With an unknown horizon, twice as much is ahead as there was.
    unknown = worth_trying(rewards, np.inf)
    np.testing.assert_allclose(unknown, worth * 2 * ROUNDS / (112 - ROUNDS), rtol=1e-5)


def test_what_contexts_will_tell_is_not_worth_a_trial(past: Past) -> None:
    model = eqx.tree_at(lambda m: m.noise.leftover_variance, model_with(0), jnp.asarray(0.0))
    rewards = believed(AdaptiveBelief(model, doubt=0.0), past)
    np.testing.assert_allclose(worth_trying(rewards, 1000.0), 0, atol=1e-3)


def test_who_differs_by_more_than_actions_did_in_the_logs_is_found_out() -> None:
    """In the logs people differ in a level and hardly in what actions do to them; to this one they do much."""
    array = lambda x: jnp.asarray(np.asarray(x, np.float32))  # noqa: E731
    level = LatentModel(
        NoEncoder(),
        LinearReward(array([[1.0], [1.1], [0.9]]), array(np.zeros(3)), array(np.zeros((3, 2, 2)))),
        NoiseLevels(array(np.zeros((0, 0))), array(np.zeros(1)), array(np.eye(1)), array(np.full(3, 0.1)), array(1e-4)),
        Schema("who", None, "did", "got", (), (0, 1, 2)),
    )
    person, rng = LiveBandit.on(level).start("anna"), np.random.default_rng(0)
    known_effects: dict[Hashable, float] = {0: 2.0, 1: -2.0, 2: 0.0}
    for _ in range(60):
        decision = person.decide({})
        person.learn(decision, known_effects[decision.action] + 0.3 * rng.normal())
    assert person.decide({}).action == 0


def test_only_allowed_actions_are_rivals(past: Past) -> None:
    rewards = mixed(past)
    best = int(np.argmax(compiled(rewards.mean)))
    with_all, without = (worth_trying(rewards, 100.0, taken_out) for taken_out in ((), (best,)))
    rest = np.arange(ACTIONS) != best
    assert np.all(without[rest] >= with_all[rest] - 1e-5)


def test_at_the_end_of_a_known_horizon_nothing_is_tried(past: Past) -> None:
    policy = adaptive(model_with(1), doubt=0.5, horizon=ROUNDS)
    state = seen_by(policy.belief, past)  # type: ignore[arg-type]
    context = np.float32(past.encodings[0])
    state, choice = compiled(policy.decide, jr.key(0), state, context, np.ones(ACTIONS, dtype=bool))
    mean = compiled(lambda policy, *seen: policy.rewards(*seen).mean(), policy, state, context)
    assert int(choice.action) == int(np.argmax(mean))


@pytest.mark.parametrize("doubt", [-0.1, 1.5])
def test_a_doubt_that_is_no_probability_is_refused(doubt: float) -> None:
    with pytest.raises(DecisionError, match="doubt is a probability"):
        AdaptiveBelief(model_with(0), doubt=doubt)


@pytest.mark.parametrize(
    ("wrong", "share"), [(IrrelevantModel(), 0.5), (OwnEffects(1.0), 0.8), (ChangedAction(0, 2.0), 0.8)]
)
def test_where_the_model_is_wrong_it_loses_less_than_who_never_doubts(
    wrong: IrrelevantModel | OwnEffects | ChangedAction,
    share: float,
    small_world: SyntheticWorld,
    small_model: LatentModel,
) -> None:
    world = wrong.apply(jr.key(0), small_world)
    doubting, trusting = (
        simulate(jr.key(1), world, policy_on(small_model, name), 60, 400).regret_at(400).value
        for name in ("Adaptive", "Calibrated")
    )
    assert doubting < share * trusting


def test_a_person_from_elsewhere_is_noticed_and_told(small_world: SyntheticWorld, small_model: LatentModel) -> None:
    usual, strange = (LiveBandit.on(small_model).start(name) for name in ("usual", "strange"))
    instance = small_world.sample_instance(jr.key(4))

    def context(number: int, instance: Array) -> dict[str, float]:
        return {f"x{i + 1}": float(x) for i, x in enumerate(small_world.emit(jr.key(number), instance))}

    for number in range(5):
        at_home, abroad = usual.decide(context(number, instance)), strange.decide(context(number, instance + 8.0))
    assert at_home.misfit < 0.2
    assert abroad.misfit > 0.5
    assert "does not fit this person" in abroad.reason
    assert "does not fit" not in at_home.reason


def test_contexts_that_scatter_more_than_those_of_the_logs_are_told_of(
    small_world: SyntheticWorld, small_model: LatentModel
) -> None:
    usual, noisy = (LiveBandit.on(small_model).start(name) for name in ("usual", "noisy"))
    instance, rng = small_world.sample_instance(jr.key(4)), np.random.default_rng(0)
    for number in range(30):
        row = np.asarray(small_world.emit(jr.key(number), instance))
        other = row + 3 * rng.normal(size=row.shape)
        at_home, abroad = (
            person.decide({f"x{i + 1}": float(x) for i, x in enumerate(contexts)})
            for person, contexts in ((usual, row), (noisy, other))
        )
    assert "scatter" not in at_home.reason
    said = abroad.reason.split("the contexts of this person scatter ")[1]
    assert float(said.split(" times as widely")[0]) > 1.5


def test_an_action_that_is_not_what_the_logs_say_is_named(
    small_world: SyntheticWorld, small_model: LatentModel
) -> None:
    person = LiveBandit.on(small_model, doubt=0.2).start("anna")
    instance = small_world.sample_instance(jr.key(4))
    means = np.asarray(small_world.mean_rewards(instance))
    worst = int(np.argmin(means))
    assert small_model.schema is not None
    labels = small_model.schema.actions
    for number in range(30):
        row = small_world.emit(jr.key(number), instance)
        decision = person.decide({f"x{i + 1}": float(x) for i, x in enumerate(row)}, allowed=[labels[number % 5]])
        person.learn(decision, means[number % 5] + (4.0 if number % 5 == worst else 0.0))
    decision = person.decide({f"x{i + 1}": float(x) for i, x in enumerate(row)})
    assert decision.doubts[labels[worst]] > 0.5
    assert repr(labels[worst]) in decision.reason.split("not what the logs say of")[1]
    low, high = decision.interval(0.95)[labels[worst]]
    assert low < means[worst] + 4 < high


def test_intervals_of_decisions_widen_with_their_level(small_model: LatentModel) -> None:
    decision = LiveBandit.on(small_model).start("anna").decide({"x1": 0.1, "x2": 0.2, "x3": 0.0})
    for action in decision.expected_reward:
        narrow, wide = decision.interval(0.5)[action], decision.interval(0.95)[action]
        assert wide[0] < narrow[0] < narrow[1] < wide[1]
    with pytest.raises(DecisionError, match="between 0 and 1"):
        decision.interval(1.5)


def test_the_state_of_a_person_stays_small(small_model: LatentModel) -> None:
    person = LiveBandit.on(small_model).start("anna")
    person.decide({"x1": 0.1, "x2": 0.2, "x3": 0.0})
    assert len(person.to_json()) < 4096


def test_an_outlook_of_a_gaussian_belief_is_one_part(small_model: LatentModel) -> None:
    decision = LiveBandit.on(small_model, "Calibrated").start("anna").decide({"x1": 0.1, "x2": 0.2, "x3": 0.0})
    for action, (low, high) in decision.interval(0.95).items():
        center, reach = decision.expected_reward[action], 1.959964 * decision.reward_std[action]
        assert (low, high) == pytest.approx((center - reach, center + reach), abs=1e-5)
    assert decision.misfit == 0
    assert isinstance(decision._outlook, Outlook)
