r"""Moments: what the context at hand adds to the expected rewards, whoever the person is.

The latent state of a person is the same in every round. What else moves a reward, such as the weather, the teacher or
the date, is a function $m_a(x_t)$ of the context at hand. Beliefs about the person rest on $r - m_a(x_t)$.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ilb.networks import Affine, storable
from ilb.types import Step


class AbstractMoment(eqx.Module):
    """What one context adds to the K expected rewards."""

    @abc.abstractmethod
    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " K"]:
        """Give the K effects."""

    def of_action(self, context: Float[Array, " d"], action: Int[Array, ""]) -> Float[Array, ""]:
        """Give the effect on one action alone."""
        return self(context)[action]

    def taken_off(self, step: Step) -> Step:
        """Give the step with what is left of its reward."""
        return step._replace(reward=step.reward - self.of_action(step.context, step.action))


@storable
class LinearMoment(AbstractMoment):
    r"""$B_a^\top x$, with coefficients of its own for each action."""

    effects: Affine

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.effects(context)


@storable
class BoostedMoment(AbstractMoment):
    """Boosted trees on the context and the action, beside linear effects.

    Trees are complete: node j of a tree asks whether column `column[j]` exceeds `threshold[j]`, and goes on to 2j + 1
    if not and to 2j + 2 if so. The number of the action stands behind the d columns of the context.
    """

    may_be_infinite: ClassVar[tuple[str, ...]] = ("threshold",)
    """A node that asks nothing: no value is beyond it."""

    effects: Affine
    column: Int[Array, "trees inner"]
    threshold: Float[Array, "trees inner"]
    value: Float[Array, "trees inner+1"]

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " K"]:
        actions = self.effects.shift.shape[0]
        numbers = jnp.arange(actions, dtype=context.dtype)[:, None]
        rows = jnp.concatenate([jnp.broadcast_to(context[None, :], (actions, context.shape[0])), numbers], axis=1)
        return self.effects(context) + jax.vmap(self._add_up)(rows)

    def of_action(self, context: Float[Array, " d"], action: Int[Array, ""]) -> Float[Array, ""]:
        row = jnp.concatenate([context, action.astype(context.dtype)[None]])
        return self.effects(context)[action] + self._add_up(row)

    def _add_up(self, row: Float[Array, " columns"]) -> Float[Array, ""]:
        inner = self.column.shape[1]
        trees = jnp.arange(self.column.shape[0])
        node = jnp.zeros_like(trees)
        for _ in range((inner + 1).bit_length() - 1):
            node = 2 * node + 1 + (row[self.column[trees, node]] > self.threshold[trees, node])
        return self.value[trees, node - inner].sum()


@storable
class ScaledMoment(AbstractMoment):
    """A moment of contexts that are mapped first: those of a simulated world, before the schema scales them."""

    scaling: Affine
    moment: AbstractMoment

    def __call__(self, context: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.moment(self.scaling(context))

    def of_action(self, context: Float[Array, " d"], action: Int[Array, ""]) -> Float[Array, ""]:
        return self.moment.of_action(self.scaling(context), action)
