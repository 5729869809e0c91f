"""What a test knows and a type leaves open: that rewards are linear, that an optional value is there."""

from typing import TypeVar

from ilb.models.latent import LinearReward
from ilb.types import RewardModel

T = TypeVar("T")


def known(value: T | None) -> T:
    assert value is not None
    return value


def linear(reward: RewardModel) -> LinearReward:
    assert isinstance(reward, LinearReward)
    return reward
