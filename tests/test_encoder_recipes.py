"""One conformance suite over every encoder recipe."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ilb import FitError, LatentModel, fit, fit_many
from ilb.environments import Recording, SyntheticWorld, UniformLogging, draw_world, record
from ilb.errors import IlbWarning
from ilb.networks import random_maxout_mlp
from ilb.offline import training
from ilb.offline.encoders import ENCODER_RECIPES
from ilb.offline.encoders.paper import FreeLoss, FreeParams, LabelledRows, PaperRecipe, SoftmaxHead
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.vae import GaussianLikelihood, VAERecipe
from ilb.offline.encoders.with_contexts import WithContexts
from ilb.offline.encodings import encode_contexts, instance_means
from ilb.offline.rewards.linear import LinearRewardRecipe
from ilb.offline.scaling import Standardised
from ilb.offline.scores import align
from ilb.offline.training import Adam, CosineAdam, MomentumSGD, Schedule, fit_keys
from narrowed import known

TIED = TiedRecipe(layers=3, training=Schedule(400, CosineAdam(0.03), score_every=200))
# Smaller versions of the recipes that take long; others are tested as they are.
SMALL = {
    "tied": TIED,
    "deep": replace(TiedRecipe.deep(), training=TIED.training),
    "with-contexts": WithContexts(TIED),
    "paper": PaperRecipe(
        layers=3,
        width=2,
        head_training=Schedule(300, MomentumSGD(0.05), averaging=0.99, score_every=100),
        training=Schedule(1500, MomentumSGD(0.1), averaging=0.99, score_every=500),
    ),
    "vae": VAERecipe(
        width=8,
        neck=8,
        likelihood=GaussianLikelihood(0.1),
        scaling=Standardised(),
        optimiser=Adam(0.003, 1e-3),
        epochs=30,
        patience=30,
    ),
}


def planned_steps(recipe: EncoderRecipe, rows: int) -> int:
    """What a recipe says it will do: a number of steps, or of epochs over the rows that are not held out."""
    if isinstance(recipe, WithContexts):
        return planned_steps(recipe.recipe, rows)
    if isinstance(recipe, VAERecipe):
        return recipe.epochs * int(np.ceil(rows * (1 - recipe.validation_share) / recipe.batch))
    return recipe.training.steps  # type: ignore[attr-defined]


@pytest.fixture(params=ENCODER_RECIPES, scope="module")
def recipe(request: pytest.FixtureRequest) -> EncoderRecipe:
    whole = ENCODER_RECIPES[request.param]()
    small = SMALL.get(request.param, whole)
    assert type(small) is type(whole)
    return small


@pytest.fixture(scope="module")
def world() -> SyntheticWorld:
    return draw_world(jr.key(0), latent_dim=2, context_dim=4, layers=3, actions=3)


@pytest.fixture(scope="module")
def recording(world: SyntheticWorld) -> Recording:
    lengths = np.random.default_rng(0).integers(20, 60, size=50)
    return record(jr.key(1), world, UniformLogging(3), 50, lengths)


@pytest.fixture(scope="module")
def models(recipe: EncoderRecipe, recording: Recording) -> list[LatentModel]:
    """What the seeds 0 and 1 give, each by itself."""
    return [fit(recording.logs, latent_dim=2, recipe=recipe, seed=seed, reward=LinearRewardRecipe()) for seed in (0, 1)]


def test_it_recovers_latents_up_to_an_affine_map_when_contexts_have_more_dimensions(
    models: list[LatentModel], world: SyntheticWorld, recording: Recording
) -> None:
    model = models[0]
    test = record(jr.key(2), world, UniformLogging(3), 200, 50)
    to_latents = align(
        instance_means(encode_contexts(model.encoder, recording.logs.context), recording.logs.starts), recording.latents
    )
    estimate = to_latents(instance_means(encode_contexts(model.encoder, test.logs.context), test.logs.starts))
    unexplained = np.sum((estimate - test.latents) ** 2) / np.sum((test.latents - test.latents.mean(axis=0)) ** 2)
    assert unexplained < 0.1


def test_the_same_seed_gives_the_same_model_and_another_seed_another(
    recipe: EncoderRecipe, models: list[LatentModel], recording: Recording
) -> None:
    again, (first, other) = (
        fit(recording.logs, latent_dim=2, recipe=recipe, seed=0, reward=LinearRewardRecipe()),
        models,
    )
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    contexts = recording.logs.context[:10]
    assert not np.allclose(encode_contexts(first.encoder, contexts), encode_contexts(other.encoder, contexts))


def test_models_learned_together_are_those_learned_alone(
    recipe: EncoderRecipe, models: list[LatentModel], world: SyntheticWorld, recording: Recording
) -> None:
    other = record(jr.key(7), world, UniformLogging(3), 40, 30)
    together = fit_many([recording.logs, other.logs], latent_dim=2, recipe=recipe, seeds=[1, 2])
    first, second = (
        instance_means(encode_contexts(m.encoder, other.logs.context), other.logs.starts)
        for m in (together[0], models[1])
    )
    # Batched sums are rounded differently, and training amplifies it: the same latent space, not the same bits.
    assert np.corrcoef(align(first, second)(first).ravel(), second.ravel())[0, 1] > 0.98
    assert isinstance(together[1], LatentModel)


def test_the_model_says_where_it_comes_from(
    recipe: EncoderRecipe, models: list[LatentModel], recording: Recording
) -> None:
    provenance = known(models[1].provenance)
    assert provenance.seed == 1
    assert provenance.recipe["name"] == type(recipe).__name__
    assert provenance.recipe["latent_dim"] == 2
    assert provenance.rows == recording.logs.rows
    assert provenance.curve["step"][-1] == planned_steps(recipe, recording.logs.rows)
    assert provenance.curve["training"][-1] < provenance.curve["training"][0]
    assert not provenance.interrupted


@pytest.mark.parametrize("wrong", [0, 5])
def test_a_latent_dimension_that_can_not_be_is_refused(recipe: EncoderRecipe, recording: Recording, wrong: int) -> None:
    with pytest.raises(FitError, match=f"latent_dim={wrong} with 4 columns"):
        fit(recording.logs, latent_dim=wrong, recipe=recipe, reward=LinearRewardRecipe())


def test_too_few_instances_are_refused(recipe: EncoderRecipe, recording: Recording) -> None:
    with pytest.raises(FitError, match="2 instances can't show 2 latent dimensions"):
        fit(recording.logs.select([0, 1]), latent_dim=2, recipe=recipe, reward=LinearRewardRecipe())


def test_an_interrupted_fit_gives_a_model_and_says_so(recipe: EncoderRecipe, recording: Recording) -> None:
    def interrupt(step: int, steps: int, loss: float) -> None:
        if steps == planned_steps(recipe, recording.logs.rows):
            raise KeyboardInterrupt

    with pytest.warns(IlbWarning, match="interrupted"):
        model = fit(recording.logs, latent_dim=2, recipe=recipe, report=interrupt, reward=LinearRewardRecipe())
    assert "interrupted" in known(model.provenance).notes[0]
    assert known(model.provenance).interrupted
    assert np.all(np.isfinite(encode_contexts(model.encoder, recording.logs.context)))


def test_a_fit_that_is_interrupted_before_anything_is_trained_gives_no_model(
    recipe: EncoderRecipe, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(recording.logs, latent_dim=2, recipe=recipe, reward=LinearRewardRecipe())


def test_the_papers_loss_is_the_cross_entropy_of_the_softmax_classifier() -> None:
    """eq. NN_prob and eq. obj with the l2 penalty, in plain NumPy on the same rows."""
    rng = np.random.default_rng(0)
    network = random_maxout_mlp(jr.key(0), 3, [4], 2)
    head = SoftmaxHead(jnp.asarray(rng.normal(size=(5, 2)), jnp.float32), jnp.asarray(rng.normal(size=5), jnp.float32))
    inputs, instance = rng.normal(size=(30, 3)).astype(np.float32), rng.integers(5, size=30)
    rows = LabelledRows(jnp.asarray(inputs), jnp.asarray(instance), jnp.asarray(30))
    loss = FreeLoss(batch=64, penalty=0.01)(FreeParams(network, head), rows, jr.key(4))
    drawn = np.asarray(jr.randint(jr.key(4), (64,), 0, 30))
    before = inputs[drawn] @ np.asarray(network.hidden[0].matrix) + np.asarray(network.hidden[0].shift)
    hidden = np.maximum(before[:, :4], before[:, 4:])
    encodings = hidden @ np.asarray(network.output.matrix) + np.asarray(network.output.shift)
    logits = encodings @ np.asarray(head.weights).T + np.asarray(head.bias)
    relative = logits - logits[:, :1]  # q_1 = 0, as eq. NN_prob has it
    probability = np.exp(relative) / (1 + np.exp(relative[:, 1:]).sum(axis=1, keepdims=True))
    squares = sum(np.sum(np.asarray(w) ** 2) for w in (network.hidden[0].matrix, network.output.matrix, head.weights))
    expected = -np.log(probability[np.arange(64), instance[drawn]]).mean() + 0.005 * squares
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_the_papers_second_stage_starts_from_the_head_of_the_first(recording: Recording) -> None:
    """At rate zero the second stage only scores what it was given: the drawn network and a head trained for it.

    The best that any head can do is a logistic regression on the encodings; the first stage falls little short of it.
    """
    logs = recording.logs
    still = PaperRecipe(
        penalty=0.0,
        batch=2048,
        head_training=Schedule(1500, CosineAdam(0.3), score_every=500),
        training=Schedule(20, MomentumSGD(0.0, 0.0), score_every=20),
    )
    trained = still.train(fit_keys([0]), [logs], 2)[0]
    encodings = encode_contexts(trained.encoder, logs.context)
    best = LogisticRegression(C=1e6, max_iter=2000).fit(encodings, logs.instance)
    reached = log_loss(logs.instance, best.predict_proba(encodings))
    loss, unknowing = trained.curve.training[0], np.log(logs.instances)
    assert unknowing - reached > 0.3  # there is something to be learned
    assert loss - reached < 0.2 * (unknowing - reached)
