"""What several tests share: one small world, its logs, a model, and every policy of the roster built on it.

Fixtures import what they need: with pytest-xdist the process that hands out tests reads this file, too, and has no use
for JAX.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ilb.threads import compute_on_one_thread

# Tests compile much and compute little. What one process has compiled, however small, the others, and the next run,
# need not compile again. The compiler's slower passes would cost more than they save; without the quicker ones, an
# encoder is trained for twice as long. One thread: every core has a process of its own. Set before JAX starts.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
compute_on_one_thread()
# A vector that is silently taken for a row of a matrix is a bug more often than not. Shapes and types are checked, too:
# --jaxtyping-packages in pyproject.toml.
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")

import pytest

if TYPE_CHECKING:
    from ilb.environments import SyntheticWorld
    from ilb.logs import Logs
    from ilb.models.baselines import Ingredients
    from ilb.models.latent import LatentModel
    from ilb.models.recurrent import RecurrentRegression
    from ilb.online.policy import AbstractPolicy

pytest.register_assert_rewrite("policy_conformance")


def pytest_collection_finish() -> None:
    """Collect garbage less often, and never search for it among the modules."""
    gc.freeze()
    gc.set_threshold(5000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def _forget_programs() -> Iterator[None]:
    """Give back the memory of compiled programs, a megabyte or two each; few are of use to two files."""
    import jax

    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def small_world() -> SyntheticWorld:
    import jax.random as jr

    from ilb.environments import draw_world

    return draw_world(jr.key(0), latent_dim=3, context_dim=3, actions=5)


@pytest.fixture(scope="session")
def small_logs(small_world: SyntheticWorld) -> Logs:
    import jax.random as jr

    from ilb.environments import UniformLogging, record

    return record(jr.key(1), small_world, UniformLogging(5), 80, 60).logs


@pytest.fixture(scope="session")
def small_model(small_world: SyntheticWorld, small_logs: Logs) -> LatentModel:
    """The true encoder, with rewards and noise levels as measured in the logs."""
    from ilb.offline.fit import complete_model

    return complete_model(small_world.oracle().encoder, small_logs)


@pytest.fixture(scope="session")
def small_network(small_logs: Logs) -> RecurrentRegression:
    """A recurrent regression with few units and little training: just enough to beat chance."""
    from ilb.offline.regression import RegressionRecipe, fit_regression
    from ilb.offline.training import CosineAdam, Schedule

    recipe = RegressionRecipe(layers=1, hidden=8, training=Schedule(80, CosineAdam(0.03), score_every=40))
    return fit_regression(small_logs, recipe)


@pytest.fixture(scope="session")
def ingredients(small_model: LatentModel, small_logs: Logs, small_network: RecurrentRegression) -> Ingredients:
    from ilb.offline.baselines import prepare_ingredients

    return prepare_ingredients(small_model, small_logs, horizon=200, states=6, recurrent=small_network)


@pytest.fixture(scope="session")
def roster(ingredients: Ingredients) -> dict[str, AbstractPolicy]:
    from ilb.online.roster import build_policies

    return build_policies(ingredients)
