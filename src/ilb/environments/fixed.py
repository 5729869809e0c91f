"""A world in which everybody is the same instance: to average over what happens to one."""

from __future__ import annotations

from jaxtyping import PRNGKeyArray

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.environments.wrapper import AbstractWrapper


class FixedInstance(AbstractWrapper):
    """The world inside, where `sample_instance` always gives `instance`; contexts and rewards stay random."""

    environment: AbstractEnvironment
    instance: Instance

    def sample_instance(self, key: PRNGKeyArray) -> Instance:
        """Give the one instance."""
        del key
        return self.instance
