"""What several tests share: one small world, its logs, a model, and every policy of the roster built on it."""

import os
from pathlib import Path

# Tests compile much and compute little: the compiler's slower passes cost more than they save. Set before JAX starts.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# Matrices are tiny and every core has a process of its own: further threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What one process has compiled, the others, and the next run, need not compile again.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# A vector that is silently taken for a row of a matrix is a bug more often than not. Shapes and types are checked, too:
# --jaxtyping-packages in pyproject.toml.
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")

import jax.random as jr
import pytest

pytest.register_assert_rewrite("policy_conformance")

from ilb.environments import SyntheticWorld, UniformLogging, draw_world, record
from ilb.logs import Logs
from ilb.models.baselines import Ingredients
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.fit import complete_model
from ilb.offline.regression import RegressionRecipe, fit_regression
from ilb.offline.training import CosineAdam, Schedule
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_policies


@pytest.fixture(scope="session")
def small_world() -> SyntheticWorld:
    return draw_world(jr.key(0), latent_dim=3, context_dim=3, actions=5)


@pytest.fixture(scope="session")
def small_logs(small_world: SyntheticWorld) -> Logs:
    return record(jr.key(1), small_world, UniformLogging(5), 80, 60).logs


@pytest.fixture(scope="session")
def small_model(small_world: SyntheticWorld, small_logs: Logs) -> LatentModel:
    """The true encoder, with rewards and noise levels as measured in the logs."""
    return complete_model(small_world.oracle().encoder, small_logs)


@pytest.fixture(scope="session")
def small_network(small_logs: Logs) -> RecurrentRegression:
    """A recurrent regression with few units and little training: just enough to beat chance."""
    recipe = RegressionRecipe(layers=1, hidden=8, training=Schedule(80, CosineAdam(0.03), score_every=40))
    return fit_regression(small_logs, recipe)


@pytest.fixture(scope="session")
def ingredients(small_model: LatentModel, small_logs: Logs, small_network: RecurrentRegression) -> Ingredients:
    return prepare_ingredients(small_model, small_logs, horizon=200, states=6, recurrent=small_network)


@pytest.fixture(scope="session")
def roster(ingredients: Ingredients) -> dict[str, AbstractPolicy]:
    return build_policies(ingredients)
