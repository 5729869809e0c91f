"""A world in which everybody is the same instance: to average over what happens to one."""

from __future__ import annotations

from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.model import LatentModel


class FixedInstance(AbstractEnvironment):
    """The world inside, where `sample_instance` always gives `instance`; contexts and rewards stay random."""

    environment: AbstractEnvironment
    instance: Instance

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Give the one instance."""
        del key
        return self.instance

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
        """Give the true model."""
        return self.environment.oracle()
