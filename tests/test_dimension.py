"""The latent dimension chosen from the logs."""

import jax.random as jr
import numpy as np
import pytest

from ilb import FitError, choose_latent_dim
from ilb.environments import UniformLogging, draw_world, record
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.training import CosineAdam, Schedule


@pytest.fixture(scope="module")
def logs():
    world = draw_world(jr.key(0), latent_dim=2, context_dim=4, layers=3, actions=2)
    return record(jr.key(1), world, UniformLogging(2), 120, 40).logs


def test_the_true_dimension_is_found_and_the_curve_shows_why(logs):
    recipe = TiedRecipe(layers=3, training=Schedule(150, CosineAdam(0.03), score_every=75))
    choice = choose_latent_dim(logs, seed=0, candidates=(1, 2, 3), recipe=recipe)
    assert choice.chosen == 2
    assert choice.dims == (1, 2, 3)
    one, two, three = choice.log_likelihood
    assert two > one + 4 * choice.standard_error[0]
    assert three < two + 0.1
    assert one > -np.log(24)  # better than guessing among the 24 held-out instances
    assert "latent dimension 2 chosen" in choice.sentence()


def test_too_few_instances_ask_for_the_dimension(logs):
    with pytest.raises(FitError, match="Give latent_dim"):
        choose_latent_dim(logs.select(np.arange(6)), seed=0)
