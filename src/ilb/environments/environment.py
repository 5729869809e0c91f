"""AbstractEnvironment: the structural causal model as conditional distributions, written for one instance."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.models.latent import LatentModel

Instance = Any
"""What an environment knows of one instance: a pytree of its own choice, such as the latent state."""


class AbstractEnvironment(eqx.Module):
    r"""$Z = U$, $X_t = g(Z + \eta_t)$, $R_t = \theta_{A_t}(Z) + \epsilon$ (eq. scm), one draw at a time."""

    @abc.abstractmethod
    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Draw an instance from the population U."""

    @abc.abstractmethod
    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round."""

    @abc.abstractmethod
    def mean_rewards(self, instance: Instance) -> Float[Array, " K"]:
        """Give the expected reward of every action."""

    @abc.abstractmethod
    def sample_rewards(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " K"]:
        """Draw the rewards of all K actions; whoever plays reveals one of them."""

    @abc.abstractmethod
    def latent_state(self, instance: Instance) -> Float[Array, " n"]:
        """Give the true latent state, for scores and for confounded logging."""

    @abc.abstractmethod
    def oracle(self) -> LatentModel:
        """Give the true model, where it is known."""
