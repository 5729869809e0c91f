"""What several tests share: one small world, its logs, a model, and every policy of the roster built on it.

Fixtures import what they need: with pytest-xdist the process that hands out tests reads this file, too, and has no use
for JAX.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ilb.threads import compute_on_one_thread

# Tests compile much and compute little. What one process has compiled, however small, the others, the next run and the
# next clone need not compile again; without caches of XLA's own, whose place would be part of every key. The compiler's
# slower passes would cost more than they save; without the quicker ones, an encoder is trained for twice as long. One
# thread: every core has a process of its own.
# A vector that is silently taken for a row of a matrix is a bug more often than not. Shapes and types are checked, too:
# --jaxtyping-packages in pyproject.toml.
COMPILED = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ilb-tests"
SETTINGS = {
    "jax_compilation_cache_dir": str(COMPILED),
    "jax_persistent_cache_enable_xla_caches": "none",
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_numpy_rank_promotion": "raise",
}
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false")
for name, value in SETTINGS.items():
    # For the processes that tests start, and for this one, where pytest's plugins have begun JAX already.
    if os.environ.setdefault(name.upper(), str(value)) == str(value) and "jax" in sys.modules:
        sys.modules["jax"].config.update(name, value)
compute_on_one_thread()

import pytest
from hypothesis import settings

# The same examples in every run: what is green stays green. `make bench-hostile` tries new ones.
settings.register_profile("steady", derandomize=True)
settings.load_profile("steady")

# A shell without job control starts what it puts in the background with Ctrl-C ignored, and programs that tests start
# would inherit that: they are stopped by it in some tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Throw away compiled programs that no run has made for a month."""
    if not hasattr(session.config, "workerinput") and COMPILED.is_dir():
        long_ago = time.time() - 30 * 24 * 3600
        for program in COMPILED.iterdir():
            with contextlib.suppress(OSError):
                if program.stat().st_mtime < long_ago:
                    program.unlink()


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


@pytest.fixture(scope="session")
def clinic() -> LatentModel:
    """Patients with a score, a marker that is sometimes missing, and a sex; drugs with names."""
    import numpy as np
    import polars as pl

    from ilb.logs import Logs
    from ilb.networks import IdentityEncoder
    from ilb.offline.fit import complete_model

    rng = np.random.default_rng(0)
    patients, visits = 60, 20
    z = np.repeat(rng.normal(size=patients), visits)
    drugs = np.array(["aspirin", "placebo", "statin"])
    drug = rng.integers(3, size=z.size)
    marker = z + rng.normal(size=z.size)
    table = pl.DataFrame(
        {
            "patient": np.repeat([f"p{i}" for i in range(patients)], visits),
            "score": 10 + 2 * (z + rng.normal(size=z.size)),
            "marker": [
                None if missing else value for missing, value in zip(rng.random(z.size) < 0.1, marker, strict=True)
            ],
            "sex": np.where(rng.random(z.size) < 0.5, "f", "m"),
            "drug": drugs[drug],
            "response": np.array([1.0, 0.0, -1.0])[drug] * z + 0.5 * rng.normal(size=z.size),
        }
    )
    logs = Logs.from_frame(table, instance="patient", action="drug", reward="response")
    return complete_model(IdentityEncoder(), logs)
