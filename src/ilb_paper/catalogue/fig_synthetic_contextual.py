"""fig:synthetic_contextual: a toy whose contexts never change within an instance (app:synthetic_stationary)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ilb.environments import AbstractDescription, Plan, parameter
from ilb.environments.environment import AbstractEnvironment
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder
from ilb.streams import Stream
from ilb.types import as_real
from ilb_paper.claims import Claim, Comparison, compare, each, less_regret
from ilb_paper.experiment import Panel, RegretFigure
from ilb_paper.players import Group, Player
from ilb_paper.results import Results, common_worlds
from ilb_paper.settings import AbstractSetting, shrink

CONTEXT_MEAN = 0.5
CONTEXT_VARIANCE = 0.1
CONTEXT_COVARIANCE = 0.05
"""The entries of mu and of Sigma on and off its diagonal, as printed."""

THETA_RANGE = (0.3, 0.8)
"""The interval of every coefficient, as printed."""

NO_NOISE = 1e-6
"""What the oracle says of the variance of contexts around themselves: beliefs invert it, so it can't be zero."""


class StationaryWorld(AbstractEnvironment):
    r"""Rewards $\theta_a^\top X_i + \epsilon$ of a context $X_i \sim N(\mu, \Sigma)$ that is drawn once.

    An instance is its context: all rounds of a run show the same one, so nothing but rewards is learned from a second
    round, and a contextual bandit has no more to go by than one without contexts.
    """

    theta: Float[Array, "K d"]
    context_mean: Float[Array, " d"]
    context_factor: Float[Array, "d d"]
    reward_std: Float[Array, ""] = eqx.field(converter=as_real, default=0.25)

    def sample_instance(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        return self.context_mean + self.context_factor @ jr.normal(key, self.context_mean.shape)

    def emit(self, key: PRNGKeyArray, instance: Float[Array, " d"]) -> Float[Array, " d"]:
        del key
        return instance

    def mean_rewards(self, instance: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.theta @ instance

    def sample_rewards(self, key: PRNGKeyArray, instance: Float[Array, " d"]) -> Float[Array, " K"]:
        return self.theta @ instance + self.reward_std * jr.normal(key, (self.theta.shape[0],))

    def latent_state(self, instance: Float[Array, " d"]) -> Float[Array, " d"]:
        return instance

    def oracle(self) -> LatentModel:
        """Give the true model: contexts are latent states, and rewards are linear in them."""
        actions, dim = self.theta.shape
        noise = NoiseLevels(
            encoding_covariance=NO_NOISE * jnp.eye(dim),
            population_mean=self.context_mean,
            population_covariance=self.context_factor @ self.context_factor.T,
            reward_variance=jnp.full(actions, self.reward_std**2),
            leftover_variance=jnp.asarray(0.0),
        )
        return LatentModel(IdentityEncoder(), LinearReward.known(self.theta, jnp.zeros(actions)), noise)


@dataclass(frozen=True)
class Stationary(AbstractDescription):
    """The toy world, whose coefficients a seed draws; the defaults are those of the paper's figure.

    The paper prints N(0, 0.25) for the noise of rewards; as in the released code, 0.25 is its standard deviation.

    >>> world = Stationary().draw()
    >>> context = world.sample_instance(jr.key(1))
    >>> bool(jnp.all(world.emit(jr.key(2), context) == world.emit(jr.key(3), context)))
    True
    """

    actions: int = parameter(10, "Number K of actions.", least=1)
    latent_dim: int = parameter(5, "Columns of a context.", least=1)
    reward_std: float = parameter(0.25, "Standard deviation of reward noise.")

    def draw(self, seed: int = 0) -> StationaryWorld:
        low, high = THETA_RANGE
        spread = CONTEXT_VARIANCE - CONTEXT_COVARIANCE
        covariance = spread * np.eye(self.latent_dim) + CONTEXT_COVARIANCE
        return StationaryWorld(
            theta=jr.uniform(Stream.WORLD.key(seed), (self.actions, self.latent_dim), minval=low, maxval=high),
            context_mean=jnp.full(self.latent_dim, CONTEXT_MEAN),
            context_factor=jnp.asarray(np.linalg.cholesky(covariance), jnp.float32),
            reward_std=as_real(self.reward_std),
        )


PLAN = Plan(instances=500, length=1, test_instances=10)


@dataclass(frozen=True)
class StationarySetting(AbstractSetting):
    """The toy as the paper plays it: 500 logged rows for the warm start."""

    kind: ClassVar[str] = "Stationary"
    constant_columns: ClassVar[bool] = True
    warm_ridge: ClassVar[float] = 0.5  # as released
    world: Stationary = Stationary()
    plan: Plan = PLAN
    layers: ClassVar[int] = 2

    def contexts(self) -> StationarySetting:
        return self.offline()

    def shrunk(self, factor: float) -> StationarySetting:
        return replace(self, plan=shrink(self.plan, factor, instances=50))


TOY = StationarySetting()
HORIZON = 1000
MAB, COLD, WARM = Player("MAB"), Player("LinTS (released)"), Player("Warm LinTS (released)")
COLD_PLAIN, WARM_PLAIN = Player("LinTS"), Player("Warm LinTS")


def _ends_alike(results: Results) -> list[Comparison]:
    cold, warm, mab = common_worlds(
        *(
            results.regret_at(TOY, player, 1.0, HORIZON) - results.regret_at(TOY, player, 0.5, HORIZON)
            for player in (COLD, WARM, MAB)
        )
    )
    apart, between = cold - mab, cold - warm
    return [
        compare(f"late regret: (cold minus MAB) minus {factor:+d} (cold minus warm)", apart - factor * between)
        for factor in (2, -2)
    ]


EXPERIMENT = RegretFigure(
    label="fig:synthetic_contextual",
    title="Cumulative regret where contexts never change",
    panels=(Panel("K = 10, d = 5, 500 logged rows", TOY),),
    groups=(Group("", (MAB, COLD, WARM, COLD_PLAIN, WARM_PLAIN)),),
    horizon=HORIZON,
    claims=(
        Claim(
            "mab-beats-contextual-on-constant-contexts",
            "app:synthetic_stationary",
            "Thompson sampling without contexts beats linear Thompson sampling, warm-started or not, on constant "
            "contexts.",
            each(less_regret, TOY, MAB, [COLD, WARM], horizon=HORIZON),
            remark="With the widened draws of the released code. A warm-started sampler that draws from its plain "
            "posterior beats MAB (see the table): the disadvantage is that of the widening, not of the contexts. The "
            "cold one with ridge 1 hardly explores, because its prior is as narrow as the noise of rewards.",
        ),
        Claim(
            "warm-start-converges-faster",
            "app:synthetic_stationary",
            "The warm start converges faster than the cold start.",
            each(less_regret, TOY, WARM, COLD, at=0.2, horizon=HORIZON),
            remark="In the first fifth; the curves cross later.",
            contrast=each(less_regret, TOY, WARM, COLD, horizon=HORIZON),
        ),
        Claim(
            "both-contextual-samplers-end-alike",
            "app:synthetic_stationary",
            "Both contextual samplers end at a similar rate, which is far from that of the sampler without contexts.",
            _ends_alike,
        ),
    ),
)
