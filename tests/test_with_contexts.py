"""Encoders beside the contexts they read: for tables with columns that never change within an instance."""

from pathlib import Path

import jax.random as jr
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

from ilb import LatentModel, Logs, WithContexts, fit, reference_models, score_model
from ilb.environments import UniformLogging, draw_world, record
from ilb.errors import FitError
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encodings import encode_contexts
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.training import CosineAdam, Schedule
from narrowed import known

QUICK = TiedRecipe(layers=2, width=2, training=Schedule(150, CosineAdam(0.03), score_every=150))


def with_a_trait(key: PRNGKeyArray, instances: int) -> Logs:
    """Logs of a synthetic world with one more column that is each instance's own."""
    world = draw_world(jr.key(0), latent_dim=2, actions=3)
    logs = record(key, world, UniformLogging(3), instances, 20).logs
    trait = np.random.default_rng(instances).normal(size=instances)[logs.instance]
    with pytest.warns(match="x3"):
        return Logs.from_arrays(
            np.column_stack([logs.context, trait]), logs.action, logs.reward, instance=logs.instance, actions=3
        )


@pytest.fixture(scope="module")
def tables() -> tuple[Logs, Logs]:
    return with_a_trait(jr.key(1), 60), with_a_trait(jr.key(2), 80)


@pytest.fixture(scope="module")
def model(tables: tuple[Logs, Logs]) -> LatentModel:
    return fit(tables[0], latent_dim=2, recipe=WithContexts(QUICK), reward=LinearRewardRecipe())


def test_the_encoding_ends_with_the_standardised_context(tables: tuple[Logs, Logs], model: LatentModel) -> None:
    context = tables[0].context
    encodings = encode_contexts(model.encoder, context)
    assert encodings.shape[1] == 2 + 3
    standard = (context - context.mean(axis=0)) / context.std(axis=0)
    np.testing.assert_allclose(encodings[:, 2:], standard, atol=1e-3)


def test_it_predicts_no_worse_than_least_squares_on_mean_contexts_where_the_encoder_alone_falls(
    tables: tuple[Logs, Logs], model: LatentModel
) -> None:
    training, test = tables
    beside = score_model(model, test).reward_r2.value
    alone = score_model(fit(training, latent_dim=2, recipe=QUICK, reward=LinearRewardRecipe()), test).reward_r2.value
    plain = score_model(reference_models(training)["mean contexts"], test).reward_r2.value
    assert alone < plain - 0.1
    assert beside > plain - 0.02


def test_the_encoding_may_be_smaller_than_the_fit_says(tables: tuple[Logs, Logs]) -> None:
    model = fit(tables[0], latent_dim=2, recipe=WithContexts(QUICK, encoding_dim=1), reward=LinearRewardRecipe())
    assert encode_contexts(model.encoder, tables[0].context[:5]).shape == (5, 1 + 3)
    with pytest.raises(FitError, match="encoding_dim must be at least 1; got 0"):
        fit(tables[0], latent_dim=2, recipe=WithContexts(QUICK, encoding_dim=0), reward=LinearRewardRecipe())


def test_it_is_saved_and_said_in_the_provenance(tables: tuple[Logs, Logs], model: LatentModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = LatentModel.load(tmp_path / "model")
    context = tables[1].context
    np.testing.assert_array_equal(encode_contexts(again.encoder, context), encode_contexts(model.encoder, context))
    assert known(again.provenance).recipe["name"] == "WithContexts"
    assert known(again.provenance).recipe["recipe"]["name"] == "TiedRecipe"
