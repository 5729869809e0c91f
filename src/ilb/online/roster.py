"""Every policy by name: a new one is one file and one line here, and the conformance tests pick it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ilb.errors import DecisionError
from ilb.online.arms import mab, mab_prior, uniform
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
from ilb.priors import Ingredients

Builder = Callable[[Ingredients], AbstractPolicy]

ROSTER: dict[str, Builder] = {
    "CPG": lambda given: cpg(given.model),
    "FPG": lambda given: fpg(given.model),
    "FPG (released)": lambda given: fpg_released(given.model),
    "FPG-TS": lambda given: fpg_ts(given.model),
    "FPG-TS (released)": lambda given: fpg_ts_released(given.model),
    "Calibrated": lambda given: calibrated(given.model),
    "Calibrated-TS": lambda given: calibrated_ts(given.model),
    "MAB": lambda given: mab(_actions(given), given.model.noise.reward_variance),
    "MABPrior": lambda given: mab_prior(given.model),
    "LinUCB": lambda given: lin_ucb(_actions(given), _width(given), _noise_std(given)),
    "LinTS": lambda given: lin_ts(_actions(given), _width(given), _noise_std(given)),
    "Warm LinTS": lambda given: warm_lin_ts(given.regression, _noise_std(given)),
    "mTS (encodings)": lambda given: mts(given.encoding_states),
    "mTS (rewards)": lambda given: mts(given.reward_states),
    "mUCB (encodings)": lambda given: mucb(given.encoding_states, given.horizon),
    "mUCB (rewards)": lambda given: mucb(given.reward_states, given.horizon),
    "Uniform": lambda given: uniform(_actions(given)),
}


def build_policies(given: Ingredients, names: Iterable[str] | None = None) -> dict[str, AbstractPolicy]:
    """Build the named policies (default: all of them)."""
    wanted = list(ROSTER) if names is None else list(names)
    unknown = [name for name in wanted if name not in ROSTER]
    if unknown:
        raise DecisionError(f"no policy is named {unknown[0]!r}; there are {', '.join(ROSTER)}.")
    return {name: ROSTER[name](given) for name in wanted}


def _actions(given: Ingredients) -> int:
    return given.regression.moment.shape[0]


def _width(given: Ingredients) -> int:
    return given.regression.moment.shape[1]


def _noise_std(given: Ingredients) -> Float[Array, ""]:
    return jnp.sqrt(given.model.noise.reward_variance.mean())
