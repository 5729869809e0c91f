"""Every policy by name: a new one is one file and one line here, and the conformance tests pick it up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from ilb.errors import DecisionError
from ilb.logs.messages import near
from ilb.models.baselines import Ingredients, MissingIngredientError
from ilb.models.latent import LatentModel
from ilb.online.adaptive import adaptive
from ilb.online.arms import FirstContextBelief, mab, mab_centred, uniform
from ilb.online.balancing import calibrated_or_mab
from ilb.online.discrete import mts, mucb
from ilb.online.hierarchical import hierarchical_ts
from ilb.online.latent import CalibratedBelief, ContextBelief, PrintedBelief, ReleasedBelief
from ilb.online.linear import lin_ts, lin_ucb, warm_lin_ts
from ilb.online.optimism import min_ucb, model_min_ucb
from ilb.online.policy import (
    AbstractBelief,
    AbstractPolicy,
    AbstractRule,
    BeliefPolicy,
    Greedy,
    IndependentThompson,
    Thompson,
)
from ilb.online.proball import proball_ucb
from ilb.online.recurrent import regression_policy

Builder = Callable[[Ingredients], AbstractPolicy]


def _on_model(belief: Callable[[LatentModel], AbstractBelief], rule: AbstractRule) -> Builder:
    return lambda given: BeliefPolicy(belief(given.model), rule)


ROSTER: Mapping[str, Builder] = {
    "Adaptive": lambda given: adaptive(given.model, given.doubt, given.horizon),
    "CPG": _on_model(ContextBelief, Greedy()),
    "FPG": _on_model(PrintedBelief, Greedy()),
    "FPG (released)": _on_model(ReleasedBelief, Greedy()),
    "FPG-TS": _on_model(PrintedBelief, IndependentThompson()),
    "FPG-TS (released)": _on_model(ReleasedBelief, Thompson()),
    "Calibrated": _on_model(CalibratedBelief, Greedy()),
    "Calibrated-TS": _on_model(CalibratedBelief, Thompson()),
    "ProBALL-UCB": lambda given: proball_ucb(given.staying_model),
    "ProBALL-UCB (wary)": lambda given: proball_ucb(given.staying_model, missed_share=0.25),
    "MIN-UCB (model)": lambda given: model_min_ucb(given.staying_model),
    "MIN-UCB (wary)": lambda given: model_min_ucb(given.staying_model, missed_share=1.0),
    "Regret balancing": lambda given: calibrated_or_mab(given.model, given.reward_variance),
    "MABPrior": lambda given: BeliefPolicy(FirstContextBelief(given.staying_model), Thompson()),
    "MAB": lambda given: mab(given.actions, given.reward_variance),
    "MAB (centred)": lambda given: mab_centred(given.log_fits.reward_scale, given.reward_variance),
    "MIN-UCB": lambda given: min_ucb(given.log_fits.reward_population),
    "HierTS": lambda given: hierarchical_ts(given.log_fits.reward_population),
    "LinUCB": lambda given: lin_ucb(given.actions, given.context_dim, given.noise_std),
    "LinTS": lambda given: lin_ts(given.actions, given.context_dim, given.noise_std),
    "Warm LinTS": lambda given: warm_lin_ts(given.log_fits.regression, given.noise_std),
    "mTS (encodings)": lambda given: mts(given.encoding_states),
    "mTS (rewards)": lambda given: mts(given.log_fits.reward_states),
    "mUCB (encodings)": lambda given: mucb(given.encoding_states, given.planned_rounds),
    "mUCB (rewards)": lambda given: mucb(given.log_fits.reward_states, given.planned_rounds),
    "Regression": lambda given: regression_policy(given.network),
    "Uniform": lambda given: uniform(given.actions),
}


def require_known_policy(name: str, known: Collection[str] = ROSTER) -> None:
    """Raise unless a policy has this name."""
    if name not in known:
        raise DecisionError(f"no policy is named {name!r}; there are {', '.join(known)}.{near(name, known)}")


def build_policy(given: Ingredients, name: str, roster: Mapping[str, Builder] = ROSTER) -> AbstractPolicy:
    """Build one policy; only what it asks for is computed."""
    if name not in roster:
        # With logs all but a few can be built, and finding out which would fit every baseline to them.
        require_known_policy(name, roster if given.has_logs else build_policies(given, roster=roster))
    try:
        return roster[name](given)
    except MissingIngredientError as missing:
        raise MissingIngredientError(f"the policy {name!r} needs {missing}") from None


def build_policies(
    given: Ingredients, names: Iterable[str] | None = None, roster: Mapping[str, Builder] = ROSTER
) -> dict[str, AbstractPolicy]:
    """Build the named policies (default: all that these ingredients allow)."""
    if names is not None:
        return {name: build_policy(given, name, roster) for name in names}
    policies = {}
    for name in roster:
        with suppress(MissingIngredientError):
            policies[name] = build_policy(given, name, roster)
    return policies


def policy_on(model: LatentModel, name: str) -> AbstractPolicy:
    """Build a policy that needs a model and nothing else."""
    return build_policy(Ingredients(model), name)
