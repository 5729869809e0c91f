"""Every policy by name: a new one is one file and one line here, and the conformance tests pick it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ilb.errors import DecisionError
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.online.arms import mab, mab_centred, mab_prior, uniform
from ilb.online.discrete import mts, mucb
from ilb.online.latent import (
    calibrated,
    calibrated_ts,
    cpg,
    fpg,
    fpg_released,
    fpg_ts,
    fpg_ts_released,
)
from ilb.online.linear import lin_ts, lin_ucb, warm_lin_ts
from ilb.online.policy import AbstractPolicy
from ilb.online.recurrent import regression_policy

Builder = Callable[[Ingredients], AbstractPolicy]

LATENT_POLICIES: dict[str, Callable[[LatentModel], AbstractPolicy]] = {
    "CPG": cpg,
    "FPG": fpg,
    "FPG (released)": fpg_released,
    "FPG-TS": fpg_ts,
    "FPG-TS (released)": fpg_ts_released,
    "Calibrated": calibrated,
    "Calibrated-TS": calibrated_ts,
    "MABPrior": mab_prior,
}
"""The policies that need a `LatentModel` and nothing else."""


def _on_model(build: Callable[[LatentModel], AbstractPolicy]) -> Builder:
    return lambda given: build(given.model)


ROSTER: dict[str, Builder] = {
    **{name: _on_model(build) for name, build in LATENT_POLICIES.items()},
    "MAB": lambda given: mab(_actions(given), given.model.noise.reward_variance),
    "MAB (centred)": lambda given: mab_centred(given.reward_scale, given.model.noise.reward_variance),
    "LinUCB": lambda given: lin_ucb(_actions(given), _width(given), _noise_std(given)),
    "LinTS": lambda given: lin_ts(_actions(given), _width(given), _noise_std(given)),
    "Warm LinTS": lambda given: warm_lin_ts(given.regression, _noise_std(given)),
    "mTS (encodings)": lambda given: mts(given.encoding_states),
    "mTS (rewards)": lambda given: mts(given.reward_states),
    "mUCB (encodings)": lambda given: mucb(given.encoding_states, given.horizon),
    "mUCB (rewards)": lambda given: mucb(given.reward_states, given.horizon),
    "Regression": lambda given: regression_policy(_recurrent(given)),
    "Uniform": lambda given: uniform(_actions(given)),
}


def build_latent_policy(model: LatentModel, name: str) -> AbstractPolicy:
    """Build a policy that needs the model alone."""
    if name not in LATENT_POLICIES:
        raise DecisionError(f"no latent policy is named {name!r}; there are {', '.join(LATENT_POLICIES)}.")
    return LATENT_POLICIES[name](model)


def build_policies(given: Ingredients, names: Iterable[str] | None = None) -> dict[str, AbstractPolicy]:
    """Build the named policies (default: all that these ingredients allow)."""
    wanted = _available(given) if names is None else list(names)
    unknown = [name for name in wanted if name not in ROSTER]
    if unknown:
        raise DecisionError(f"no policy is named {unknown[0]!r}; there are {', '.join(ROSTER)}.")
    return {name: ROSTER[name](given) for name in wanted}


def _available(given: Ingredients) -> list[str]:
    return [name for name in ROSTER if name != "Regression" or given.recurrent is not None]


def _recurrent(given: Ingredients) -> RecurrentRegression:
    if given.recurrent is None:
        raise DecisionError(
            "the policy 'Regression' needs a trained network. Make one with `fit_regression` (ilb.offline.regression), "
            "and give it to `prepare_ingredients` as recurrent=."
        )
    return given.recurrent


def _actions(given: Ingredients) -> int:
    return given.regression.moment.shape[0]


def _width(given: Ingredients) -> int:
    return given.regression.moment.shape[1]


def _noise_std(given: Ingredients) -> Float[Array, ""]:
    return jnp.sqrt(given.model.noise.reward_variance.mean())
