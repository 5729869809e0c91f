"""What baselines learn from logs, and all that a policy may be built from: offline writes it, online reads it."""

from __future__ import annotations

import abc
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ilb.errors import DecisionError
from ilb.models.drift import without_drift
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.types import as_real

HORIZON = 2000
"""Rounds that mUCB plans for where nothing else is said: those of the paper's figures."""

DOUBT = 0.05
"""The probability, before anything is seen of a person, that the model is not right for them."""


class ContextRegression(eqx.Module):
    r"""A ridge regression of rewards on contexts for each action, as sums.

    `precision` is $A_a = \lambda I + X_a^\top X_a$ and `moment` is $b_a = X_a^\top r_a$. The coefficients
    $A_a^{-1} b_a$ have the covariance $\sigma^2 A_a^{-1}$ when rewards have the variance $\sigma^2$.
    """

    precision: Float[Array, "K d d"]
    moment: Float[Array, "K d"]

    @staticmethod
    def on_no_rows(actions: int, context_dim: int, ridge: float = 1.0) -> ContextRegression:
        """Know only the ridge."""
        return ContextRegression(
            as_real(np.tile(ridge * np.eye(context_dim), (actions, 1, 1))), as_real(np.zeros((actions, context_dim)))
        )


class DiscreteStates(eqx.Module):
    r"""A latent state that is one of S: $s \sim$ `weights`, $r \mid s, a \sim N(\mu_{s,a}, \sigma_a^2)$."""

    weights: Float[Array, " S"]
    mean_rewards: Float[Array, "S K"]
    reward_variance: Float[Array, " K"]


class RewardPopulation(NamedTuple):
    r"""How the mean rewards of people are spread: $\mu_{ia} = m_a + \ell_i + e_{ia}$, without contexts.

    `mean` is $m_a$, known from logs up to `mean_variance`; the level $\ell_i$ of a person has the variance
    `level_variance`, and what action a does to them beyond that, $e_{ia}$, the variance `effect_variance[a]`. Rewards
    vary by `reward_variance[a]` around $\mu_{ia}$.
    """

    mean: Float[Array, " K"]
    mean_variance: Float[Array, " K"]
    level_variance: Float[Array, ""]
    effect_variance: Float[Array, " K"]
    reward_variance: Float[Array, " K"]


class RewardScale(NamedTuple):
    """Mean and variance of all logged rewards, whatever the instance and action."""

    mean: float
    variance: float


class AbstractLogFits(abc.ABC):
    """What baselines learn from logs; `ilb.offline.baselines.LogFits` fits each part when it is first asked for."""

    @property
    @abc.abstractmethod
    def regression(self) -> ContextRegression: ...

    @property
    @abc.abstractmethod
    def reward_scale(self) -> RewardScale:
        """How large rewards are."""

    @property
    @abc.abstractmethod
    def reward_variance(self) -> Float[Array, " K"]:
        """How much the rewards of an action vary in one instance."""

    @property
    @abc.abstractmethod
    def reward_population(self) -> RewardPopulation:
        """How the mean rewards of people are spread around those of all."""

    @property
    @abc.abstractmethod
    def reward_states(self) -> DiscreteStates:
        """Discrete states from rewards alone."""

    @abc.abstractmethod
    def encoding_states(self, model: LatentModel) -> DiscreteStates:
        """Discrete states from the encodings and predictions of a model."""


class MissingIngredientError(DecisionError):
    """A policy asks for something that was not given; the message says what, and where it comes from."""


Part = TypeVar("Part")


class Ingredients:
    """All that policies are built from. Parts may be missing; a policy that asks for one is refused in words.

    `reward_variance`, one number or one for each action, is the variance of an instance's rewards around their mean
    that bandits from scratch (MAB, LinUCB, LinTS) are told. Unless it is given, it is that of the model or of the logs.
    `horizon` is the number of rounds that an instance will have, where that is known. `doubt` is the probability that
    the model is wrong for a person, for policies that reckon with that.
    """

    def __init__(
        self,
        model: LatentModel | None = None,
        log_fits: AbstractLogFits | None = None,
        *,
        network: RecurrentRegression | None = None,
        actions: int | None = None,
        context_dim: int | None = None,
        reward_variance: ArrayLike | None = None,
        horizon: int | None = None,
        doubt: float = DOUBT,
    ) -> None:
        self.horizon = horizon
        self.doubt = doubt
        self._model = model
        self._log_fits = log_fits
        self._network = network
        self._actions = actions
        self._context_dim = context_dim
        self._reward_variance = None if reward_variance is None else np.asarray(reward_variance, np.float64)

    @staticmethod
    def on(
        fitted: LatentModel | RecurrentRegression | None, log_fits: AbstractLogFits | None = None, **rest: Any
    ) -> Ingredients:
        """Put what was fitted, of either kind, in its place."""
        if isinstance(fitted, RecurrentRegression):
            return Ingredients(None, log_fits, network=fitted, **rest)
        return Ingredients(fitted, log_fits, **rest)

    @property
    def model(self) -> LatentModel:
        return _given(self._model, "a latent model. Fit one with `fit`, and give it to `prepare_ingredients`.")

    @cached_property
    def staying_model(self) -> LatentModel:
        """The model of people who stay as they are: its variances are those that policies need which forget nothing."""
        return without_drift(self.model)

    @property
    def log_fits(self) -> AbstractLogFits:
        return _given(
            self._log_fits, "logs. Give them to `prepare_ingredients`, and what it returns to `build_policies`."
        )

    @property
    def has_logs(self) -> bool:
        return self._log_fits is not None

    @property
    def network(self) -> RecurrentRegression:
        return _given(
            self._network,
            "a trained network. Make one with `fit_regression` (ilb.offline.regression), "
            "and give it to `prepare_ingredients` as recurrent=.",
        )

    @property
    def actions(self) -> int:
        return _given(self._actions, "the number of actions. Give actions=.")

    @property
    def context_dim(self) -> int:
        return _given(self._context_dim, "the number of context columns. Give context_dim=.")

    @property
    def planned_rounds(self) -> int:
        """The rounds to plan for, by policies that must plan."""
        return HORIZON if self.horizon is None else self.horizon

    @property
    def usual_policy(self) -> str:
        """What to play where no policy is named."""
        return "Adaptive" if self._network is None else "Regression"

    @cached_property
    def encoding_states(self) -> DiscreteStates:
        """Discrete states from encodings, which need both a model and logs."""
        return self.log_fits.encoding_states(self.staying_model)

    @cached_property
    def reward_variance(self) -> Float[Array, " K"]:
        """The variance of rewards by action."""
        if self._reward_variance is not None:
            return jnp.broadcast_to(jnp.asarray(self._reward_variance, jnp.float32), (self.actions,))
        if self._model is not None:
            return self.staying_model.noise.reward_variance
        return _given(
            self._log_fits, "the variance of rewards. Give reward_variance=, or a model or logs that it is measured in."
        ).reward_variance

    @cached_property
    def noise_std(self) -> Float[Array, ""]:
        """One standard deviation of rewards for all actions."""
        if self._reward_variance is not None:
            return jnp.asarray(np.sqrt(self._reward_variance.mean()), jnp.float32)
        return jnp.sqrt(self.reward_variance.mean())


def _given(part: Part | None, what: str) -> Part:
    if part is None:
        raise MissingIngredientError(what)
    return part
