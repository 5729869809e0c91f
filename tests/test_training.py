"""The training loop on problems whose answers are known."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array, PRNGKeyArray

from ilb.errors import FitError
from ilb.offline.training import CosineAdam, MomentumSGD, Optimiser, Schedule, minimise, minimise_many


def squared_distance(params: Array, data: tuple[Array, Array], key: PRNGKeyArray) -> Array:
    """Least squares on a minibatch of 32 rows."""
    inputs, targets = data
    index = jr.randint(key, (32,), 0, len(targets))
    return jnp.mean((inputs[index] @ params - targets[index]) ** 2)


@pytest.fixture(scope="module")
def regression() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(500, 3)).astype(np.float32)
    targets = (inputs @ np.array([1.0, -2.0, 0.5]) + 0.1 * rng.normal(size=500)).astype(np.float32)
    return jnp.asarray(inputs), jnp.asarray(targets)


@pytest.mark.parametrize("optimiser", [CosineAdam(0.05), MomentumSGD(0.02)])
@pytest.mark.parametrize("averaging", [0.0, 0.99])
def test_it_finds_the_least_squares_solution(
    regression: tuple[Array, Array], optimiser: Optimiser, averaging: float
) -> None:
    result = minimise(
        jr.key(0), squared_distance, jnp.zeros(3), regression, Schedule(1500, optimiser, averaging, score_every=500)
    )
    expected = np.linalg.lstsq(np.asarray(regression[0]), np.asarray(regression[1]), rcond=None)[0]
    np.testing.assert_allclose(result.params, expected, atol=0.03)


def test_a_run_in_company_is_the_run_alone(regression: tuple[Array, Array]) -> None:
    schedule = Schedule(300, score_every=100)
    starts = jnp.stack([jnp.zeros(3), jnp.ones(3)])
    keys = jr.split(jr.key(1), 2)
    together = minimise_many(
        keys, squared_distance, starts, jax.tree.map(lambda x: jnp.stack([x, x]), regression), schedule
    )
    alone = [
        minimise(key, squared_distance, start, regression, schedule) for key, start in zip(keys, starts, strict=True)
    ]
    np.testing.assert_allclose(together.params, np.stack([run.params for run in alone]), atol=1e-5)
    np.testing.assert_allclose(together.curve.training, np.stack([run.curve.training for run in alone]), rtol=1e-4)


def test_the_same_key_gives_the_same_numbers(regression: tuple[Array, Array]) -> None:
    schedule = Schedule(200, score_every=100)
    first, second = (minimise(jr.key(3), squared_distance, jnp.zeros(3), regression, schedule) for _ in range(2))
    np.testing.assert_array_equal(first.params, second.params)


def test_scoring_more_often_does_not_change_the_path(regression: tuple[Array, Array]) -> None:
    often, seldom = (
        minimise(jr.key(3), squared_distance, jnp.zeros(3), regression, Schedule(250, score_every=every)).params
        for every in (30, 250)
    )
    np.testing.assert_allclose(often, seldom, atol=1e-6)


def test_the_steps_are_those_of_optax_by_hand() -> None:
    def loss(params: Array, data: Array, key: PRNGKeyArray) -> Array:
        return jnp.sum((params - data) ** 2)

    schedule = Schedule(7, MomentumSGD(0.01, 0.9), averaging=0.5, score_every=3)
    result = minimise(jr.key(0), loss, jnp.zeros(2), jnp.array([1.0, 2.0]), schedule)
    params, average = jnp.zeros(2), jnp.zeros(2)
    optimiser = optax.sgd(0.01, momentum=0.9)
    state = optimiser.init(params)
    for number in range(7):
        updates, state = optimiser.update(2 * (params - jnp.array([1.0, 2.0])), state)
        params = params + updates
        decay = min(0.5, (1 + number) / (10 + number))
        average = decay * average + (1 - decay) * params
    np.testing.assert_allclose(result.params, average, rtol=1e-5)
    assert result.curve.step.tolist() == [3, 6, 7]


@dataclass(frozen=True)
class WrongWay:
    """A training loss that leads away from where the validation data are."""

    def __call__(self, params: Array, data: Any, key: PRNGKeyArray) -> Array:
        return (params - data) ** 2


def test_the_parameters_with_the_best_validation_loss_are_kept_and_patience_ends_the_run() -> None:
    schedule = Schedule(2000, MomentumSGD(0.001, 0.0), score_every=10, patience=5)
    result = minimise(jr.key(0), WrongWay(), jnp.asarray(0.0), jnp.asarray(1.0), schedule, validation=jnp.asarray(0.3))
    assert abs(float(result.params) - 0.3) < 0.02
    assert len(result.curve.step) < 60
    best = int(np.argmin(result.curve.validation))
    assert result.best_step == result.curve.step[best]
    assert len(result.curve.step) == best + 1 + 5


def test_a_stopped_run_does_not_change_while_others_go_on() -> None:
    schedule = Schedule(400, MomentumSGD(0.001, 0.0), score_every=10, patience=3)
    run = lambda held_out: minimise_many(  # noqa: E731
        jr.split(jr.key(0), 2), WrongWay(), jnp.zeros(2), jnp.ones(2), schedule, validation=jnp.array([0.1, held_out])
    )
    np.testing.assert_array_equal(run(0.12).params[0], run(5.0).params[0])


def test_runs_can_be_told_where_to_stop_whatever_the_validation_data_say() -> None:
    schedule = Schedule(400, MomentumSGD(0.001, 0.0), score_every=10)
    arguments = (jr.split(jr.key(0), 2), WrongWay(), jnp.zeros(2), jnp.ones(2), schedule)
    result = minimise_many(*arguments, validation=jnp.zeros(2), stops=np.array([20, 50]))
    np.testing.assert_allclose(result.params, 1 - (1 - 0.002) ** np.array([20, 50]), rtol=1e-4)
    assert result.curve.step.tolist() == [10, 20, 30, 40, 50]


def test_interrupting_keeps_the_best_so_far(regression: tuple[Array, Array]) -> None:
    def interrupt_at_200(step: int, steps: int, loss: float) -> None:
        if step == 200:
            raise KeyboardInterrupt

    result = minimise(
        jr.key(0),
        squared_distance,
        jnp.zeros(3),
        regression,
        Schedule(10_000, score_every=100),
        report=interrupt_at_200,
    )
    assert result.interrupted
    assert result.best_step == 200
    assert result.curve.step.tolist() == [100, 200]
    assert np.all(np.isfinite(result.params))


def test_a_loss_that_explodes_says_what_to_do(regression: tuple[Array, Array]) -> None:
    with pytest.raises(FitError, match="Lower the learning rate"):
        minimise(
            jr.key(0), squared_distance, jnp.zeros(3), regression, Schedule(500, MomentumSGD(1e6, 0.9), score_every=100)
        )


def test_equal_losses_and_recipes_compile_once(regression: tuple[Array, Array]) -> None:
    traces = []

    @dataclass(frozen=True)
    class Counting:
        scale: float

        def __call__(self, params: Array, data: Any, key: PRNGKeyArray) -> Array:
            traces.append(1)
            return self.scale * squared_distance(params, data, key)

    for seed in range(3):
        minimise(jr.key(seed), Counting(1.0), jnp.zeros(3), regression, Schedule(50, score_every=25))
    once = len(traces)
    minimise(jr.key(9), Counting(1.0), jnp.ones(3), regression, Schedule(50, score_every=25))
    assert len(traces) == once
