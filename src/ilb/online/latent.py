r"""Beliefs about the latent state of an instance, and the paper's policies on them (Algorithm 1, bottom half).

Every belief is Gaussian and computed from the sums of `Evidence` in closed form. They differ in what counts how much:

| belief       | precision                                                     | policies              |
|--------------|---------------------------------------------------------------|-----------------------|
| context      | $t W^{-1}$                                                    | CPG                   |
| printed      | $I + \sum_a N_a \theta_a \theta_a^\top$                       | FPG, FPG-TS (printed) |
| released     | $t I + \sum_a N_a \theta_a \theta_a^\top$                     | the authors' code     |
| calibrated   | $S^{-1} + t W^{-1} + \sum_a w_a \theta_a \theta_a^\top$       | measured variances    |

with $w_a = N_a / (\sigma_a^2 + N_a \tau^2)$: the rewards of one action share the effect that z leaves unexplained.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ilb.errors import DecisionError
from ilb.models.calibration import Calibration
from ilb.models.latent import LatentModel, LinearReward
from ilb.networks import Affine
from ilb.online.cholesky import add_outer, cholesky, solve_lower, solve_upper
from ilb.online.evidence import Evidence
from ilb.online.policy import AbstractBelief, AbstractRewards, Outlook
from ilb.types import Allowed, Context, RewardModel, Step, Values, as_float32


class LatentRewards(AbstractRewards):
    r"""Rewards that follow from a Gaussian latent state: $\mu(z)$ with $z \sim N(\hat z, (L L^\top)^{-1})$."""

    z: Float[Array, " n"]
    factor: Float[Array, "n n"]
    model: RewardModel

    def mean(self) -> Values:
        """Give the rewards at the expected latent state (exact when they are linear)."""
        return self.model(self.z)

    def std(self) -> Values:
        """Give the standard deviations (linearised where rewards are not linear)."""
        slopes = jax.jacfwd(self.model)(self.z)
        spread = jax.vmap(lambda slope: solve_lower(self.factor, slope))(slopes)
        return jnp.sqrt(jnp.sum(spread**2, axis=1))

    @property
    def noise_size(self) -> int:
        return self.z.shape[0]

    def at(self, noise: Float[Array, " n"]) -> Values:
        return self.model(self.z + solve_upper(self.factor, noise))


class PartlyExplainedRewards(AbstractRewards):
    """Rewards that follow from a latent state up to an effect of its own for each action.

    Given z, action a has the expected reward `share[a]` mu_a(z) + `offset[a]`, with standard deviation `own_std[a]`.
    """

    explained: LatentRewards
    share: Float[Array, " K"]
    offset: Float[Array, " K"]
    own_std: Float[Array, " K"]

    def mean(self) -> Values:
        return self.share * self.explained.mean() + self.offset

    def std(self) -> Values:
        return jnp.sqrt((self.share * self.explained.std()) ** 2 + self.own_std**2)

    @property
    def noise_size(self) -> int:
        return self.explained.noise_size + self.own_std.shape[0]

    def at(self, noise: Float[Array, " noise"]) -> Values:
        latent, own = noise[: self.explained.noise_size], noise[self.explained.noise_size :]
        return self.share * self.explained.at(latent) + self.offset + self.own_std * own


class MomentRewards(AbstractRewards):
    """What is believed of a person's rewards, and what the context at hand adds to them."""

    lasting: AbstractRewards
    moment: Float[Array, " K"]

    def mean(self) -> Values:
        return self.lasting.mean() + self.moment

    def std(self) -> Values:
        return self.lasting.std()

    @property
    def noise_size(self) -> int:
        return self.lasting.noise_size

    def at(self, noise: Float[Array, " noise"]) -> Values:
        return self.lasting.at(noise) + self.moment

    def worth_trying(self, allowed: Allowed, horizon: Float[Array, ""]) -> Values:
        """Rounds to come have other moments: only what lasts is worth knowing."""
        return self.lasting.worth_trying(allowed, horizon)

    def outlook(self) -> Outlook:
        lasting = self.lasting.outlook()
        return lasting._replace(means=lasting.means + self.moment[None])


class AbstractLatentBelief(AbstractBelief):
    """A belief whose state is `Evidence`: contexts are encoded and summed, rewards are summed by action.

    Rewards are summed without what the moment added to them, so that they tell of the person.
    """

    model: eqx.AbstractVar[LatentModel]

    @abc.abstractmethod
    def believe(self, state: Evidence) -> AbstractRewards:
        """Give what lasts: the belief about the person's rewards, without the moment."""

    def rewards(self, state: Evidence, context: Context) -> AbstractRewards:
        lasting = self.believe(state)
        return lasting if self.model.moment is None else MomentRewards(lasting, self.model.moment(context))

    def init(self) -> Evidence:
        return Evidence.none(self.model.encoded_dim, self.model.noise.reward_variance.shape[0])

    def observe(self, state: Evidence, context: Context) -> Evidence:
        """Encode the context and count it (Alg. 1, line 3); what was before fades, if the model says so."""
        state, encoding = state.fade(self.model.noise.memory), self.model.encoder(context)
        return state.add_encoding(encoding, self.scatter(state, encoding))

    def scatter(self, state: Evidence, encoding: Float[Array, " n"]) -> ArrayLike:
        """Give what an encoding adds to the scatter of those before; most beliefs do not ask how noisy contexts are."""
        del state, encoding
        return 0.0

    def learn(self, state: Evidence, step: Step) -> Evidence:
        return state.add_reward(step if self.model.moment is None else self.model.moment.taken_off(step))


class ContextBelief(AbstractLatentBelief):
    """z is the mean encoding (Alg. 1, line 4); rewards are not used, so any reward model will do."""

    model: LatentModel
    factor: Float[Array, "n n"]

    def __init__(self, model: LatentModel) -> None:
        self.model = model.bare()
        precision = np.linalg.inv(np.asarray(model.noise.encoding_covariance, np.float64))
        self.factor = jnp.asarray(np.linalg.cholesky(precision), jnp.float32)

    def believe(self, state: Evidence) -> LatentRewards:
        """Believe the mean encoding, with its sampling covariance W / t."""
        mean = state.encoding_sum / state.rounds
        return LatentRewards(mean, jnp.sqrt(state.rounds) * self.factor, self.model.encoded_reward)


class PrintedBelief(AbstractLatentBelief):
    """z minimises the squared distance to the mean encoding plus the squared reward residuals (eq. loss)."""

    model: LatentModel = eqx.field(converter=LatentModel.bare)

    def __check_init__(self) -> None:
        linear_reward(self.model)

    def believe(self, state: Evidence) -> LatentRewards:
        """Believe the minimiser (eq. fpg_close), with precision I + V."""
        return _least_squares(self.model, state, jnp.ones(()))


class ReleasedBelief(AbstractLatentBelief):
    """The posterior with unit variances and a flat prior: what the authors' code minimises."""

    model: LatentModel = eqx.field(converter=LatentModel.bare)

    def __check_init__(self) -> None:
        linear_reward(self.model)

    def believe(self, state: Evidence) -> LatentRewards:
        """Believe the Gaussian posterior in which a context counts as much as a reward."""
        return _least_squares(self.model, state, state.rounds)


class AbstractMeasuredBelief(AbstractLatentBelief):
    """A belief about v = (z, u) under what was measured in the logs (`Calibration`).

    Rewards are summed without what the population expects of their action: where rewards are large and differ little,
    float32 would lose the differences.
    """

    model: LatentModel
    to_basis: Affine
    reward: LinearReward
    prior_precision: Float[Array, " p"]
    reward_variance: Float[Array, " K"]
    own_variance: Float[Array, " K"]

    def __init__(self, model: LatentModel) -> None:
        numbers = map(as_float32, Calibration.of(model, linear_reward(model)))
        matrix, shift, theta, intercept, self.prior_precision, self.reward_variance, self.own_variance = numbers
        self.model = model.bare()
        self.to_basis = Affine(matrix, shift)
        self.reward = LinearReward.known(theta, intercept)

    def learn(self, state: Evidence, step: Step) -> Evidence:
        return super().learn(state, step._replace(reward=step.reward - self.reward.intercept[step.action]))

    def shown(self, state: Evidence) -> Float[Array, " p"]:
        """Sum the encodings in the basis where their noise is one; nothing is shown of hidden coordinates."""
        encodings = state.encoding_sum @ self.to_basis.matrix + state.rounds * self.to_basis.shift
        return jnp.concatenate([encodings, jnp.zeros(len(self.prior_precision) - len(encodings))])


class CalibratedBelief(AbstractMeasuredBelief):
    """The posterior of v under what was measured in the logs, own effects included."""

    def __init__(self, model: LatentModel) -> None:
        super().__init__(model)

    def believe(self, state: Evidence) -> PartlyExplainedRewards:
        leftover, sums = self.own_variance, state.rewards
        pooled = self.reward_variance + sums.pulls * leftover
        rounds = jnp.where(jnp.arange(len(self.prior_precision)) < self.model.encoded_dim, state.rounds, 0.0)
        precision = jnp.diag(self.prior_precision + rounds) + outer_sum(self.reward.theta, sums.pulls / pooled)
        information = self.shown(state) + (sums.reward_sum / pooled) @ self.reward.theta
        explained = _solved(precision, information, self.reward)
        # Given v, the own effect of action a is the share `gain` of how far its mean reward is from what v explains.
        gain = sums.pulls * leftover / pooled
        own = leftover * self.reward_variance / pooled
        offset = gain * (self.reward.intercept + sums.means())
        return PartlyExplainedRewards(explained, 1 - gain, offset, jnp.sqrt(own))


def linear_reward(model: LatentModel) -> LinearReward:
    """Give the rewards of a model that are linear, which closed forms need; refuse others in words."""
    if not isinstance(model.reward, LinearReward):
        raise DecisionError(
            f"this policy learns from rewards in closed form, which needs a linear reward model; this one is a "
            f"{type(model.reward).__name__}. CPG takes any."
        )
    return model.reward


def outer_sum(theta: Float[Array, "K n"], weights: Values) -> Float[Array, "n n"]:
    r"""Sum $w_a \theta_a \theta_a^\top$; as one product of matrices when instances are batched."""
    return jnp.tensordot(weights, theta[:, :, None] * theta[:, None, :], 1)


def _least_squares(model: LatentModel, state: Evidence, weight: Float[Array, ""]) -> LatentRewards:
    r"""Minimise $w |z - \hat z_t|^2 + \sum_a N_a (\theta_a^\top z + \theta_{0,a} - \bar r_a)^2$.

    Row by row, by rotations: the precision $w I + \sum_a N_a \theta_a \theta_a^\top$ is never formed. Where rewards
    are of the order of 10,000, its first term would be lost in float32 beside the second, and with it all that is
    known of directions in which no reward has come.
    """
    dim, sums = model.encoded_dim, state.rewards
    reward = linear_reward(model).on_first(dim)
    root = jnp.sqrt(weight)
    start = root * jnp.concatenate([jnp.eye(dim), state.encoding_sum[None] / state.rounds])
    residual = sums.means() - reward.intercept
    rows = jnp.sqrt(sums.pulls)[:, None] * jnp.concatenate([reward.theta, residual[:, None]], axis=1)
    turned, _ = jax.lax.scan(lambda factor, row: (add_outer(factor, row), None), start, rows)
    factor = turned[:-1]
    return LatentRewards(solve_upper(factor, turned[-1]), factor, reward)


def _solved(precision: Float[Array, "n n"], information: Float[Array, " n"], reward: LinearReward) -> LatentRewards:
    factor = cholesky(precision)
    return LatentRewards(solve_upper(factor, solve_lower(factor, information)), factor, reward)
