"""Environments of this project as Gymnasium environments: one instance, or many in one compiled call.

An episode is an instance: `reset` draws one, the observation is the context of the round, the reward is the revealed
noisy one, and the episode is truncated at the horizon. The mean reward and the regret of an action are in `info`, for
scores and not for learners. Needs the extra `gym`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from ilb.environments.environment import AbstractEnvironment, Instance
from ilb.errors import WorldError
from ilb.streams import Stream, instance_keys, round_key

try:
    import gymnasium
    from gymnasium.error import InvalidAction, ResetNeeded
    from gymnasium.spaces import Box, Discrete
    from gymnasium.utils import seeding
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise ImportError(
        "ilb.environments.gymnasium needs Gymnasium: pip install identifiable-latent-bandits[gym]"
    ) from error

Observation = np.ndarray[Any, np.dtype[np.float32]]
Integer = Int[Array, ""] | Int[np.ndarray, ""]


class EpisodeState(NamedTuple):
    """Where an episode stands. The seed gives `key`; episode after episode of the same seed is counted by `number`."""

    key: PRNGKeyArray
    number: Integer
    instance: Instance
    round: Int[Array, ""]


class Shown(NamedTuple):
    """What a step shows: the next context, and of the action taken the reward, its mean and its regret."""

    context: Float[Array, " d"]
    reward: Float[Array, ""]
    mean_reward: Float[Array, ""]
    regret: Float[Array, ""]


def _begin(
    environment: AbstractEnvironment, key: PRNGKeyArray, number: Integer
) -> tuple[EpisodeState, Float[Array, " d"]]:
    key_instance, key_rounds = instance_keys(key, number)
    instance = environment.sample_instance(key_instance)
    key_context, _ = jr.split(round_key(key_rounds, 0))
    return EpisodeState(key, number, instance, jnp.asarray(0)), environment.emit(key_context, instance)


def _step(
    environment: AbstractEnvironment, horizon: Integer, episode: EpisodeState, action: Integer
) -> tuple[EpisodeState, Shown]:
    """Take the action in this round and show the next; or, if the episode is over, begin the next one instead."""
    over = episode.round >= horizon
    _, key_rounds = instance_keys(episode.key, episode.number)
    key_round = round_key(key_rounds, episode.round)
    _, key_reward = jr.split(key_round)
    means = environment.mean_rewards(episode.instance)
    # All K rewards are drawn, one is revealed: every policy then meets the same noise.
    reward = environment.sample_rewards(key_reward, episode.instance)[action]

    number = episode.number + over
    key_instance, key_rounds = instance_keys(episode.key, number)
    moved = environment.advance(Stream.DRIFT.of(key_round), episode.instance)
    instance = _select(over, environment.sample_instance(key_instance), moved)
    next_round = jnp.where(over, 0, episode.round + 1)
    key_context, _ = jr.split(round_key(key_rounds, next_round))
    context = environment.emit(key_context, instance)
    shown = (jnp.where(over, 0.0, value) for value in (reward, means[action], means.max() - means[action]))
    return EpisodeState(episode.key, number, instance, next_round), Shown(context, *shown)


def _select(which: Bool[Array, ""], first: Instance, second: Instance) -> Instance:
    return jax.tree.map(lambda one, other: jnp.where(which, one, other), first, second)


_begin_one = eqx.filter_jit(_begin)
_step_one = eqx.filter_jit(_step)
_begin_all = eqx.filter_jit(eqx.filter_vmap(_begin, in_axes=(None, 0, 0)))
_step_all = eqx.filter_jit(eqx.filter_vmap(_step, in_axes=(None, None, 0, 0)))
_select_all = eqx.filter_jit(eqx.filter_vmap(_select))


@jax.jit
def _key_of_words(words: UInt[Array, " 2"]) -> PRNGKeyArray:
    return jr.fold_in(jr.key(words[0]), words[1])


def _words(generator: np.random.Generator) -> UInt[np.ndarray, " 2"]:
    """Draw the 64 bits from which the keys of a seed's episodes follow."""
    return generator.integers(2**32, size=2, dtype=np.uint32)


def _spaces(environment: AbstractEnvironment) -> tuple[Any, Discrete]:
    _, context_dim, actions = environment.sizes
    return Box(-np.inf, np.inf, (context_dim,), np.float32), Discrete(actions)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise WorldError(f"{name} must be at least 1; got {count}.")


class BanditEnv(gymnasium.Env[Observation, np.int64]):
    """One instance at a time as a `gymnasium.Env`.

    >>> from ilb.environments.synthetic import draw_world
    >>> env = BanditEnv(draw_world(jr.key(0)), horizon=100)
    >>> context, _ = env.reset(seed=1)
    >>> context, reward, terminated, truncated, info = env.step(3)
    >>> sorted(info)
    ['mean_reward', 'regret']
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium declares it as an instance variable)

    def __init__(self, environment: AbstractEnvironment, horizon: int) -> None:
        self.environment = environment
        self.horizon = horizon
        self._horizon = np.asarray(horizon)
        _check_counts(horizon=horizon)
        self.observation_space, self.action_space = _spaces(environment)
        self._key: PRNGKeyArray | None = None
        self._number = 0
        self._episode: EpisodeState | None = None
        self._round = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw an instance and show its first context; without a seed, the next instance of the last seed."""
        super().reset(seed=seed, options=options)
        self._number += 1
        if self._key is None or seed is not None:
            self._key, self._number = _key_of_words(_words(self.np_random)), 0
        self._episode, context = _begin_one(self.environment, self._key, np.asarray(self._number))
        self._round = 0
        return np.array(context, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action; the observation is the context of the next round."""
        if self._episode is None or self._round >= self.horizon:
            raise ResetNeeded(f"call reset() before the first step and after {self.horizon} steps.")
        if not self.action_space.contains(action):
            raise InvalidAction(f"an action is one of {self.action_space}; got {action!r}.")
        self._episode, outcome = _step_one(self.environment, self._horizon, self._episode, np.asarray(action))
        self._round += 1
        context, reward, mean, regret = jax.device_get(tuple(outcome))
        info = {"mean_reward": float(mean), "regret": float(regret)}
        return np.array(context, dtype=np.float32), float(reward), False, self._round >= self.horizon, info


class BanditVectorEnv(VectorEnv[Observation, np.ndarray[Any, Any], np.ndarray[Any, Any]]):
    """Many instances at a time as a `gymnasium.vector.VectorEnv`; one compiled call steps them all.

    Observations, rewards, infos and seeds are those of a `SyncVectorEnv` of `BanditEnv`: with `reset(seed=s)`,
    environment i is `BanditEnv` with seed s + i. The step after the last of an episode begins the next one and ignores
    the action (`AutoresetMode.NEXT_STEP`). `reset(options={"reset_mask": mask})` resets some of them.

    >>> from ilb.environments.synthetic import draw_world
    >>> envs = BanditVectorEnv(draw_world(jr.key(0)), num_envs=64, horizon=100)
    >>> contexts, _ = envs.reset(seed=1)
    >>> contexts, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    >>> contexts.shape, rewards.shape
    ((64, 5), (64,))
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  (as above)

    def __init__(self, environment: AbstractEnvironment, num_envs: int, horizon: int) -> None:
        self.environment = environment
        self.horizon = horizon
        self._horizon = np.asarray(horizon)
        self.num_envs = num_envs
        _check_counts(horizon=horizon, num_envs=num_envs)
        self.single_observation_space, self.single_action_space = _spaces(environment)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._words: UInt[np.ndarray, "envs 2"] | None = None
        self._current: tuple[EpisodeState, Array] | None = None
        self._rounds = np.zeros(num_envs, dtype=int)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw an instance for every environment, or for those of `options["reset_mask"]`, and show all contexts."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        mask = self._mask(options)
        seeded = self._take_seeds(seed, mask)
        if self._current is None:
            numbers = np.zeros(self.num_envs, dtype=int)
        else:
            numbers = np.where(seeded, 0, np.asarray(self._current[0].number) + 1)
        keys = jax.vmap(_key_of_words)(self._words)
        begun = _begin_all(self.environment, keys, numbers)
        self._current = begun if self._current is None else _select_all(mask, begun, self._current)
        self._rounds[mask] = 0
        return np.array(self._current[1], dtype=np.float32), {}

    def step(self, actions: Any) -> tuple[Observation, Any, Any, Any, dict[str, Any]]:
        """Take an action in every environment; those whose episode was over begin the next one."""
        if self._current is None:
            raise ResetNeeded("call reset() before the first step.")
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise InvalidAction(f"actions are {self.num_envs} of {self.single_action_space}; got {actions!r}.")
        taken = self._rounds < self.horizon
        episodes, outcome = _step_all(self.environment, self._horizon, self._current[0], actions)
        self._current = episodes, outcome.context
        self._rounds = np.where(taken, self._rounds + 1, 0)
        context, reward, mean, regret = jax.device_get(tuple(outcome))
        infos: dict[str, Any] = {}
        if taken.any():  # Gymnasium's layout: beside each value, under an underscore, which environments have it
            for name, value in (("mean_reward", mean), ("regret", regret)):
                infos |= {name: np.array(value, dtype=float), f"_{name}": taken.copy()}
        contexts, rewards = np.array(context, dtype=np.float32), np.array(reward, dtype=float)
        return contexts, rewards, np.zeros(self.num_envs, dtype=bool), self._rounds >= self.horizon, infos

    def _mask(self, options: dict[str, Any] | None) -> Bool[np.ndarray, " envs"]:
        everything = np.ones(self.num_envs, dtype=bool)
        mask: Bool[np.ndarray, " envs"] = np.asarray((options or {}).get("reset_mask", everything))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(f"options['reset_mask'] must be {self.num_envs} booleans, not all False; got {mask!r}.")
        if self._current is None and not mask.all():
            raise ResetNeeded("the first reset() must reset all environments; leave options['reset_mask'] out.")
        return mask

    def _take_seeds(
        self, seed: int | Sequence[int | None] | None, mask: Bool[np.ndarray, " envs"]
    ) -> Bool[np.ndarray, " envs"]:
        """Turn new seeds into words, and say which environments start from their first episode."""
        if isinstance(seed, int):
            seed = [seed + number for number in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be one number or {self.num_envs} of them; got {len(seeds)}.")
        if self._words is None:
            self._words = np.stack([_words(self.np_random) for _ in seeds])
        seeded: Bool[np.ndarray, " envs"] = mask & np.array([one is not None for one in seeds])
        for number in np.flatnonzero(seeded):
            self._words[number] = _words(seeding.np_random(seeds[number])[0])
        return seeded
