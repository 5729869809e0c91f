"""Tasks that need no fit: samples of latent states, and regret beside the bound of its theorem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pyarrow as pa

from ilb.environments.wrappers import FixedInstance
from ilb.estimates import Estimate
from ilb.models.latent import LatentModel, LinearReward
from ilb.online.latent import cpg
from ilb.simulation import simulate
from ilb.streams import Stream
from ilb.theory import cpg_regret_bound, gaps
from ilb_paper.settings import AdcbSetting, SyntheticSetting
from ilb_paper.tasks import AbstractTask, Outcome


@dataclass(frozen=True)
class LatentSampleTask(AbstractTask):
    """Draw the latent states of many instances."""

    kind: ClassVar[str] = "LatentSampleTask"
    revision: ClassVar[int] = 2

    setting: AdcbSetting
    instances: int
    seed: int = 0

    @property
    def title(self) -> str:
        return "latent sample"

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        del inputs
        world = self.setting.draw(self.seed)
        keys = jr.split(jr.key(self.seed), self.instances)
        states = jax.jit(jax.vmap(lambda key: world.latent_state(world.sample_instance(key))))(keys)
        return Outcome(pa.table({"z": np.asarray(states)[:, 0].astype(np.float64)}))

    def weight(self) -> float:
        return 1.0


@dataclass(frozen=True)
class BoundTask(AbstractTask):
    r"""Play CPG many times for each of some latent states, with predictions off by $\epsilon$, and take the bound.

    The emission is inverted exactly; every predicted reward is `model_error` too high or too low, by a coin for each
    action. That is what thm:regret allows a model to be off by.
    """

    kind: ClassVar[str] = "BoundTask"
    revision: ClassVar[int] = 3

    setting: SyntheticSetting
    model_error: float
    instances: int
    runs: int
    horizon: int
    seed: int = 0

    @property
    def title(self) -> str:
        return "regret beside its bound"

    def run(self, inputs: Sequence[Outcome]) -> Outcome:
        """Play and bound, state by state."""
        del inputs
        world, oracle = self.setting.draw(self.seed), self.setting.oracle(self.seed)
        key_states, key_signs, key_play = jr.split(Stream.THEORY.key(self.seed), 3)
        policy = cpg(_mistaken(oracle, self.model_error * jr.rademacher(key_signs, (self.setting.actions,))))
        variance = float(oracle.noise.encoding_covariance[0, 0])
        columns: dict[str, list[float]] = {"gap": [], "regret": [], "regret_se": [], "bound": [], "most": []}
        for number in range(self.instances):
            instance = world.sample_instance(jr.fold_in(key_states, number))
            key = jr.fold_in(key_play, number)
            history = simulate(key, FixedInstance(world, instance), policy, self.runs, self.horizon)
            total = Estimate.of(history.regret.sum(axis=1, dtype=np.float64))
            means = world.mean_rewards(instance)
            columns["gap"].append(float(gaps(means).smallest))
            columns["regret"].append(total.value)
            columns["regret_se"].append(total.standard_error)
            columns["most"].append(self.horizon * float(gaps(means).largest))
            columns["bound"].append(float(cpg_regret_bound(means, variance, self.horizon, self.model_error)))
        return Outcome(pa.table(columns))

    def weight(self) -> float:
        return 3 + self.instances * (0.05 + self.runs * self.horizon * 1e-6)


def _mistaken(model: LatentModel, errors: jax.Array) -> LatentModel:
    reward = model.reward
    assert isinstance(reward, LinearReward)
    wrong = eqx.tree_at(lambda r: r.intercept, reward, reward.intercept + jnp.asarray(errors, jnp.float32))
    return LatentModel(model.encoder, wrong, model.noise)
