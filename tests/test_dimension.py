"""The latent dimension chosen from the logs."""

import jax.random as jr
import numpy as np
import pytest

from ilb import FitError, choose_latent_dim
from ilb.environments import UniformLogging, draw_world, record
from ilb.logs import Logs
from ilb.offline.dimension import DimensionChoice
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.training import CosineAdam, Schedule


@pytest.fixture(scope="module")
def logs() -> Logs:
    world = draw_world(jr.key(0), latent_dim=2, context_dim=4, layers=3, actions=2)
    return record(jr.key(1), world, UniformLogging(2), 120, 40).logs


def test_the_true_dimension_is_found_and_the_curve_shows_why(logs: Logs) -> None:
    recipe = TiedRecipe(layers=3, training=Schedule(150, CosineAdam(0.03), score_every=75))
    choice = choose_latent_dim(logs, seed=0, candidates=(1, 2, 3), recipe=recipe)
    assert choice.chosen == 2
    assert choice.dims == (1, 2, 3)
    one, two, three = choice.log_likelihood
    assert two > one + 4 * choice.standard_error[0]
    assert three < two + 0.1
    assert one > -np.log(24)  # better than guessing among the 24 held-out instances
    assert "latent dimension 2 chosen" in choice.sentence()


def test_too_few_instances_ask_for_the_dimension(logs: Logs) -> None:
    with pytest.raises(FitError, match="Give latent_dim"):
        choose_latent_dim(logs.select(np.arange(6)), seed=0)


def test_the_smallest_dimension_within_one_standard_error_of_the_best_is_chosen() -> None:
    """Losses of 100 instances, by hand: what counts is the error of differences, not that of the losses."""
    hard = np.linspace(0, 10, 100)  # instances differ far more than dimensions do
    jitter = np.where(np.arange(100) % 2, 1.0, -1.0)  # of variance 100 / 99, so a difference has an error of 0.1005
    steps = {"far": 0.2, "near": 0.09, "best": 0.0, "worse": 0.3}
    losses = np.stack([hard + step + jitter * (name != "best") for name, step in steps.items()])
    choice = DimensionChoice.of((1, 2, 3, 4), losses)
    np.testing.assert_allclose(choice.standard_error, [0.1 * np.sqrt(100 / 99)] * 2 + [0.0] + [0.1 * np.sqrt(100 / 99)])
    np.testing.assert_allclose(choice.log_likelihood, [-5.2, -5.09, -5.0, -5.3])
    assert choice.chosen == 2
    assert DimensionChoice.of((1, 2, 3, 4), losses[[0, 3, 2, 1]]).chosen == 3  # where none smaller is near, the best
