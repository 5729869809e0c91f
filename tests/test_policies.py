"""The roster: every policy of it through one conformance suite, and what it takes to build them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from ilb.environments import SyntheticWorld
from ilb.errors import DecisionError
from ilb.logs import Logs
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.offline import baselines
from ilb.offline.baselines import LogFits, fit_context_regression, prepare_ingredients
from ilb.offline.discrete_states import fit_states_on_encodings, fit_states_on_rewards
from ilb.offline.fit import complete_model
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import ROSTER, build_policies, build_policy, policy_on
from ilb.simulation import simulate
from policy_conformance import PolicyConformance


class TestPoliciesOfTheRoster(PolicyConformance):
    @pytest.fixture(params=list(ROSTER))
    def name(self, request: pytest.FixtureRequest) -> str:
        return request.param

    @pytest.fixture
    def policy(self, name: str, roster: dict[str, AbstractPolicy]) -> AbstractPolicy:
        return roster[name]

    @pytest.fixture
    def refitted(self, name: str, refitted_roster: dict[str, AbstractPolicy]) -> AbstractPolicy:
        return refitted_roster[name]

    @pytest.fixture
    def least_share(self, name: str) -> float:
        return 0.15 if name == "Uniform" else 0.3


@pytest.fixture(scope="module")
def refitted_roster(
    small_world: SyntheticWorld, small_logs: Logs, small_network: RecurrentRegression
) -> dict[str, AbstractPolicy]:
    """Every policy, built from the same logs in another order."""
    other_logs = small_logs.select(np.arange(79, -1, -1))
    refitted = complete_model(small_world.oracle().encoder, other_logs)
    network = jax.tree.map(lambda leaf: 2 * leaf, small_network)
    return build_policies(prepare_ingredients(refitted, other_logs, horizon=300, states=6, seed=1, recurrent=network))


def test_uniform_play_is_as_good_as_chance(roster: dict[str, AbstractPolicy], small_world: SyntheticWorld) -> None:
    share = simulate(jax.random.key(3), small_world, roster["Uniform"], 64, 150).optimal_share(100)
    assert share.value == pytest.approx(0.2, abs=4 * share.standard_error)


# Building


def test_an_unknown_name_is_answered_with_the_known_ones(ingredients: Ingredients) -> None:
    with pytest.raises(DecisionError, match="no policy is named 'UCB1'; there are Adaptive, CPG"):
        build_policies(ingredients, ["CPG", "UCB1"])


def test_a_misspelt_name_is_answered_with_the_nearest_of_those_that_can_be_built(small_model: LatentModel) -> None:
    with pytest.raises(
        DecisionError, match=r"there are Adaptive, CPG.*, MABPrior\. Did you mean 'Calibrated'"
    ) as error:
        policy_on(small_model, "Calibratd")
    assert not any(name in str(error.value) for name in ("Regression", "LinUCB", "mTS"))


NEEDS = {
    "a latent model": {"CPG", "FPG", "FPG (released)", "FPG-TS", "FPG-TS (released)", "Calibrated", "Calibrated-TS"}
    | {"Adaptive", "ProBALL-UCB", "ProBALL-UCB (wary)", "MIN-UCB (model)", "MIN-UCB (wary)", "Regret balancing"}
    | {"MABPrior", "mTS (encodings)", "mUCB (encodings)"},
    "logs": {"MAB (centred)", "MIN-UCB", "HierTS", "Warm LinTS"}
    | {"mTS (rewards)", "mUCB (rewards)", "mTS (encodings)", "mUCB (encodings)"},
    "a trained network": {"Regression"},
    "the number of actions": {"MAB", "LinUCB", "LinTS", "Uniform"},
    "the number of context columns": {"LinUCB", "LinTS"},
}


def test_what_is_missing_is_named_by_the_policies_that_need_it_and_keeps_no_other_from_being_built(
    small_model: LatentModel, small_logs: Logs, small_network: RecurrentRegression
) -> None:
    whole: dict[str, Any] = {
        "model": small_model,
        "log_fits": LogFits(lambda: small_logs, states=3),
        "network": small_network,
        "actions": 5,
        "context_dim": 3,
    }
    for part, (what, needing) in zip(whole, NEEDS.items(), strict=True):
        given = Ingredients(**{name: value for name, value in whole.items() if name != part})
        assert set(ROSTER) - set(build_policies(given)) == needing
        for name in needing:
            with pytest.raises(DecisionError) as refused:
                build_policy(given, name)
            assert str(refused.value).startswith(f"the policy {name!r} needs {what}. ")


def test_a_policy_without_anything_is_told_where_the_variance_of_rewards_comes_from() -> None:
    with pytest.raises(DecisionError, match=r"the policy 'MAB' needs the variance of rewards. Give reward_variance="):
        build_policy(Ingredients(actions=3), "MAB")
    policy: Any = build_policy(Ingredients(actions=3, reward_variance=0.25), "MAB")
    assert policy.belief.actions == 3


def test_only_what_a_policy_asks_for_is_fitted_and_that_once(
    small_model: LatentModel, small_logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []

    def noted(fit: Callable[..., Any]) -> Callable[..., Any]:
        def fit_and_note(*arguments: Any) -> Any:
            fitted.append(fit.__name__)
            return fit(*arguments)

        return fit_and_note

    for fit in (fit_context_regression, fit_states_on_encodings, fit_states_on_rewards):
        monkeypatch.setattr(baselines, fit.__name__, noted(fit))
    given = prepare_ingredients(small_model, small_logs, states=3)
    build_policies(given, ["CPG", "Calibrated", "MAB", "LinUCB", "LinTS", "MAB (centred)", "Uniform"])
    assert fitted == []
    build_policies(given, ["mTS (encodings)", "mUCB (encodings)"])
    assert fitted == ["fit_states_on_encodings"]
    build_policies(given)
    assert sorted(fitted) == ["fit_context_regression", "fit_states_on_encodings", "fit_states_on_rewards"]


def test_the_variance_of_rewards_is_the_given_one_or_that_of_the_model_or_that_of_the_logs(
    small_model: LatentModel, small_logs: Logs
) -> None:
    """What the model knows was measured in the logs, so it is the same without a model."""
    measured, without_model, told = (
        prepare_ingredients(model, small_logs, reward_variance=variance)
        for model, variance in ((small_model, None), (None, None), (small_model, 0.3))
    )
    np.testing.assert_array_equal(measured.reward_variance, small_model.noise.reward_variance)
    np.testing.assert_allclose(without_model.reward_variance, small_model.noise.reward_variance, rtol=1e-5)
    assert float(measured.noise_std) == pytest.approx(np.sqrt(small_model.noise.reward_variance.mean()), rel=1e-6)
    np.testing.assert_array_equal(told.reward_variance, np.full(5, 0.3, np.float32))
    assert float(told.noise_std) == np.float32(np.sqrt(0.3))
    for name in ("MAB", "MAB (centred)"):
        arms: Any = build_policy(told, name)
        np.testing.assert_array_equal(arms.belief.reward_variance, told.reward_variance)
    for name in ("LinUCB", "LinTS", "Warm LinTS"):
        regressions: Any = build_policy(told, name)
        assert regressions.belief.noise_std == told.noise_std
