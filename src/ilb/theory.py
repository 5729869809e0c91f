r"""The paper's results as functions of numbers: CPG's regret (thm:regret), its rival's, FPG's estimate (lemma:fpg).

An instance is given by the K expected rewards of its actions: $\Delta$ is the gap between the best and the second best,
$\overline\Delta$ that between the best and the worst. Every function is for one instance; `jax.vmap` does many.

What holds of thm:regret, for Gaussian $\eta$ and unit vectors $\theta_a$: let $\bar\eta_t$ be the mean noise of t
rounds and $D = \Delta - 2\epsilon$. CPG plays the best action while all $|\theta_a^\top \bar\eta_t| < D / 2$, and
$\theta_a^\top \bar\eta_t \sim N(0, \sigma^2 / t)$.

- The theorem as printed is **true, in both cases**: `cpg_regret_bound`.
- Its proof is not. thm:hoef has $e^{-\gamma^2 / s^2}$ where a Gaussian has $e^{-\gamma^2 / 2 s^2}$, and fails beyond
  $\gamma = 1.86 s$. The sum that the proof gets from it is too small, and regret can exceed it:
  `cpg_regret_sum_printed`.
- The constant 8 survives because $P(|N(0, s^2)| \ge \gamma) \le e^{-\gamma^2 / 2 s^2}$ needs no factor 2, so that
  $\sum_t P \le 1 / (e^{D^2 / 8\sigma^2} - 1) \le 8\sigma^2 / D^2$: `cpg_regret_sum_bound`. With the textbook factor 2
  the constant is 16, for all noise of sub-Gaussian variance proxy $\sigma^2$: `cpg_regret_bound_subgaussian`.
- For $2\epsilon \ge \Delta$ the proof counts the noise of one action where there are two, its own and the best one's;
  its steps give $\Delta T$ and not $\Delta T / 2$. What is printed holds all the same, as it is never below
  `cpg_regret_gapless_bound`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float


class Gaps(NamedTuple):
    """How far the best action is above the second best, and above the worst."""

    smallest: Float[Array, ""]
    largest: Float[Array, ""]


def gaps(mean_rewards: ArrayLike) -> Gaps:
    r"""Give $\Delta$ and $\overline\Delta$ of an instance with these K expected rewards.

    >>> [float(gap) for gap in gaps(jnp.array([0.0, 3.0, 2.5]))]
    [0.5, 3.0]
    """
    ordered = jnp.sort(jnp.asarray(mean_rewards, dtype=float))
    if ordered.ndim != 1 or ordered.shape[0] < 2:
        raise ValueError(f"regret needs the mean rewards of at least two actions; got the shape {ordered.shape}.")
    return Gaps(ordered[-1] - ordered[-2], ordered[-1] - ordered[0])


def cpg_regret_bound(
    mean_rewards: ArrayLike, latent_noise_variance: ArrayLike, horizon: ArrayLike, model_error: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Bound CPG's expected regret over `horizon` rounds: thm:regret (eq. regret_bound) as printed.

    $8 K \sigma^2 \overline\Delta / (\Delta - 2\epsilon)^2$ if $2\epsilon < \Delta$, else
    $8 K \sigma^2 \overline\Delta / \Delta^2 + 2 \epsilon T + \Delta T / 2$, where every predicted reward is within
    `model_error` ($\epsilon$) of the truth. True for Gaussian noise, though not by the printed proof (see the module).
    Where the $\theta_a$ are not unit vectors, pass $\sigma^2 \max_a \|\theta_a\|^2$.

    >>> float(cpg_regret_bound(jnp.array([1.0, 0.5]), latent_noise_variance=1.0, horizon=2000))
    32.0
    """
    gap = gaps(mean_rewards)
    linear = (2 * jnp.asarray(model_error) + gap.smallest / 2) * horizon
    return _two_cases(8 * jnp.asarray(mean_rewards).size, gap, latent_noise_variance, model_error, linear)


def cpg_regret_bound_subgaussian(
    mean_rewards: ArrayLike, latent_noise_variance: ArrayLike, horizon: ArrayLike, model_error: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Bound CPG's expected regret by the textbook tail $2 e^{-\gamma^2 / 2 s^2}$ and the steps of the proof, mended.

    thm:regret with 16 for its 8, and $\Delta T$ for its $\Delta T / 2$. It needs no more than sub-Gaussian noise with
    variance proxy `latent_noise_variance`: the variance of Gaussian and of uniform noise; Laplace noise has none.

    >>> float(cpg_regret_bound_subgaussian(jnp.array([1.0, 0.5]), latent_noise_variance=1.0, horizon=2000))
    64.0
    """
    gap = gaps(mean_rewards)
    linear = (2 * jnp.asarray(model_error) + gap.smallest) * horizon
    return _two_cases(16 * jnp.asarray(mean_rewards).size, gap, latent_noise_variance, model_error, linear)


def cpg_regret_sum_bound(
    mean_rewards: ArrayLike, latent_noise_variance: ArrayLike, horizon: ArrayLike, model_error: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Bound CPG's expected regret by the union bound of eq. reg-bound, before $1 / (e^x - 1) \le 1 / x$.

    With the true Gaussian tail and $x = D^2 / 8\sigma^2$ it is $K \overline\Delta \sum_{t=1}^T e^{-t x} = K
    \overline\Delta (1 - e^{-T x}) / (e^x - 1)$: never above `cpg_regret_bound`, and far below it when the gap is
    large against the noise. For $2\epsilon \ge \Delta$ the union bound says nothing and the result is infinite; use
    `cpg_regret_gapless_bound` there.
    """
    gap = gaps(mean_rewards)
    x = _margin(gap, model_error) ** 2 / (8 * jnp.asarray(latent_noise_variance))
    series = -jnp.expm1(-x * jnp.asarray(horizon)) / jnp.expm1(x)
    return _where_distinct(gap, model_error, jnp.asarray(mean_rewards).size * gap.largest * series)


def cpg_regret_sum_printed(
    mean_rewards: ArrayLike, latent_noise_variance: ArrayLike, model_error: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Give the sum that the proof of thm:regret prints before its last step. **It is not a bound.**

    $2 K \overline\Delta / (e^{D^2 / 4\sigma^2} - 1)$ comes from thm:hoef, whose exponent is twice too large: two
    opposite actions with $\Delta = 6 \sigma$ lose more than twice as much. Kept for comparison; use
    `cpg_regret_sum_bound`.
    """
    gap = gaps(mean_rewards)
    x = _margin(gap, model_error) ** 2 / (4 * jnp.asarray(latent_noise_variance))
    return _where_distinct(gap, model_error, 2 * jnp.asarray(mean_rewards).size * gap.largest / jnp.expm1(x))


def cpg_regret_gapless_bound(
    actions: ArrayLike, latent_noise_variance: ArrayLike, horizon: ArrayLike, model_error: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Bound CPG's expected regret for every instance, whatever its gaps: $2 \epsilon T + 2 \sigma \sqrt{2 T \log K}$.

    Not in the paper. An action that looks best in round t has a gap of at most $2\epsilon + \max_a \theta_a^\top
    \bar\eta_t - \theta_{a^*}^\top \bar\eta_t$; the expected maximum of K normals is at most $\sqrt{2 \log K}$
    standard deviations, here $\sigma / \sqrt t$; and $\sum_{t \le T} t^{-1/2} \le 2 \sqrt T$. As $u + v \ge 2 \sqrt{u
    v}$, the noise terms of thm:regret's second case are at least $4 \sigma \sqrt{K T}$, which is more.

    >>> float(cpg_regret_gapless_bound(actions=1, latent_noise_variance=1.0, horizon=100, model_error=0.5))
    100.0
    """
    spread = jnp.sqrt(2 * jnp.asarray(latent_noise_variance) * horizon * jnp.log(jnp.asarray(actions)))
    return 2 * jnp.asarray(model_error) * horizon + 2 * spread


def latent_bandits_revisited_bound(
    states: ArrayLike, horizon: ArrayLike, reward_std: ArrayLike, delta: ArrayLike = 0.0, epsilon: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Bound the regret with a model of `states` discrete latent states (app:comparison-latent-bandits).

    $T \delta + 3 |S| + 2 T \varepsilon + 2 \sigma \sqrt{6 |S| T \log T}$: the model's mean rewards are within
    $\varepsilon$ of the truth with probability $1 - \delta$, and $\sigma$ is the standard deviation of rewards, where
    CPG's bounds have that of latents.

    >>> float(latent_bandits_revisited_bound(states=5, horizon=1, reward_std=0.5))
    15.0
    """
    T, S = jnp.asarray(horizon, dtype=float), jnp.asarray(states, dtype=float)
    return T * delta + 3 * S + 2 * T * epsilon + 2 * jnp.asarray(reward_std) * jnp.sqrt(6 * S * T * jnp.log(T))


class FPGEstimate(NamedTuple):
    r"""The law of FPG's estimate for given pulls: normal around $f(g(z))$, moved by `bias_map` @ the encoder's bias.

    An optimal model pair has no bias. Where encodings are off by b, rewards pull the estimate back in the directions
    that were played: that is how FPG recovers from a biased encoder, while CPG stays off by b.
    """

    bias_map: Float[Array, "n n"]
    covariance: Float[Array, "n n"]


def fpg_estimator(
    theta: Float[Array, "K n"],
    pulls: ArrayLike,
    rounds: ArrayLike,
    encoding_covariance: Float[Array, "n n"],
    reward_variance: ArrayLike,
) -> FPGEstimate:
    r"""Give the mean and covariance of FPG's printed estimate of z (lemma:fpg, eq. fpg_align1) for given pulls.

    With $M = I + \sum_a N_a \theta_a \theta_a^\top$ the bias map is $M^{-1}$ and the covariance is $M^{-1} (W / t +
    \sum_a N_a \sigma_a^2 \theta_a \theta_a^\top) M^{-1}$, after t = `rounds` contexts (at decision t there are t - 1
    rewards). The lemma takes the pulls as fixed. FPG chooses them by the same rewards, whose noise then decides how
    often they are seen: for its own pulls this is an approximation.

    >>> one = fpg_estimator(jnp.array([[1.0, 0.0]]), jnp.array([3]), 4, jnp.eye(2), jnp.array([0.25]))
    >>> one.covariance.tolist()
    [[0.0625, 0.0], [0.0, 0.25]]
    """
    theta, counts = jnp.asarray(theta), jnp.asarray(pulls, dtype=float)
    bias_map = jnp.linalg.inv(jnp.eye(theta.shape[1]) + (theta.T * counts[None]) @ theta)
    noise = encoding_covariance / rounds + (theta.T * (counts * jnp.asarray(reward_variance))[None]) @ theta
    return FPGEstimate(bias_map, bias_map @ noise @ bias_map)


def _margin(gap: Gaps, model_error: ArrayLike) -> Float[Array, ""]:
    return gap.smallest - 2 * jnp.asarray(model_error)


def _confusable(gap: Gaps, model_error: ArrayLike) -> Bool[Array, ""]:
    """Say whether the model's error can hide the best action for ever: the second case of thm:regret."""
    return _margin(gap, model_error) <= 0


def _two_cases(
    factor: int, gap: Gaps, latent_noise_variance: ArrayLike, model_error: ArrayLike, linear: Float[Array, ""]
) -> Float[Array, ""]:
    confusable = _confusable(gap, model_error)
    margin = jnp.where(confusable, gap.smallest, _margin(gap, model_error))
    constant = factor * jnp.asarray(latent_noise_variance) * gap.largest / margin**2
    return _zero_if_equal(gap, constant + jnp.where(confusable, linear, 0.0))


def _where_distinct(gap: Gaps, model_error: ArrayLike, bound: Float[Array, ""]) -> Float[Array, ""]:
    return _zero_if_equal(gap, jnp.where(_confusable(gap, model_error), jnp.inf, bound))


def _zero_if_equal(gap: Gaps, bound: Float[Array, ""]) -> Float[Array, ""]:
    # Where all actions are equally good nothing can be lost, and the formulas give 0 / 0.
    return jnp.where(gap.largest == 0, 0.0, bound)
