"""AbstractWrapper: a world around another, which it leaves as it is but for what a subclass says anew."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.model import LatentModel


class AbstractWrapper(AbstractEnvironment):
    """Passes everything on to `environment`, keys included: instance i is instance i of the world inside."""

    environment: eqx.AbstractVar[AbstractEnvironment]

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Draw an instance."""
        return self.environment.sample_instance(key)

    def emit(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " d"]:
        """Draw the context of one round."""
        return self.environment.emit(key, instance)

    def mean_rewards(self, instance: Instance) -> Float[Array, " K"]:
        """Give the expected reward of every action."""
        return self.environment.mean_rewards(instance)

    def sample_rewards(self, key: PRNGKeyArray, instance: Instance) -> Float[Array, " K"]:
        """Draw the rewards of all K actions."""
        return self.environment.sample_rewards(key, instance)

    def latent_state(self, instance: Instance) -> Float[Array, " n"]:
        """Give the true latent state."""
        return self.environment.latent_state(instance)

    def oracle(self) -> LatentModel:
        """Give the true model of the world inside."""
        return self.environment.oracle()
