"""The regression baseline's policy: greedy on what a recurrent network predicts (Section "Regression baseline").

Its state is the hidden units of the network, so a round costs the same at any time, and rewards teach it nothing.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ilb.models.recurrent import RecurrentRegression
from ilb.online.policy import AbstractBelief, BeliefPolicy, Greedy, IndependentRewards
from ilb.types import Context, Step


class RecurrentBelief(AbstractBelief):
    r"""Believe $\hat E[R \mid A = a, x_1, \dots, x_t]$, without a doubt: the network does not say how sure it is."""

    network: RecurrentRegression = eqx.field(converter=RecurrentRegression.bare)

    def init(self) -> Float[Array, "layers h"]:
        return self.network.init_state()

    def observe(self, state: Float[Array, "layers h"], context: Context) -> Float[Array, "layers h"]:
        return self.network.observe(state, context)

    def learn(self, state: Float[Array, "layers h"], step: Step) -> Float[Array, "layers h"]:
        del step  # rewards teach it nothing
        return state

    def rewards(self, state: Float[Array, "layers h"], context: Context) -> IndependentRewards:
        del context
        values = self.network.values(state)
        return IndependentRewards(values, jnp.zeros_like(values))


def regression_policy(network: RecurrentRegression) -> BeliefPolicy:
    """Regression: take the action with the largest predicted reward given all contexts so far.

    >>> import jax.random as jr
    >>> from ilb.models.recurrent import random_recurrent_regression
    >>> policy = regression_policy(random_recurrent_regression(jr.key(0), inputs=2, width=4, layers=2, actions=3))
    >>> state, choice = policy.decide(jr.key(1), policy.init(), jnp.ones(2), jnp.array([False, True, False]))
    >>> state.shape, int(choice.action)
    ((2, 4), 1)
    """
    return BeliefPolicy(RecurrentBelief(network), Greedy())
