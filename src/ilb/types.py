"""What an encoder and a reward model are, whoever made them."""

from __future__ import annotations

from typing import Protocol

from jaxtyping import Array, Float


class Encoder(Protocol):
    """f: one context to one encoding."""

    def __call__(self, context: Float[Array, " d"], /) -> Float[Array, " n"]:
        """Encode one context."""
        ...


class RewardModel(Protocol):
    """mu: one latent state to the expected reward of every action."""

    def __call__(self, z: Float[Array, " n"], /) -> Float[Array, " K"]:
        """Give the K expected rewards."""
        ...
