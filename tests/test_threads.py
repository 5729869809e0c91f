"""What the program computes does not depend on how many cores there are."""

import os
import subprocess
import sys

import pytest

# A small fit in the place of a command. Without `compute_on_one_thread` its last digits differ between cores.
FIT = """
import hashlib, os, sys
if sys.argv[1] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from ilb.cli import app

def fit_and_print():
    import jax, numpy as np
    from ilb import Logs, LinearRewardRecipe, TiedRecipe, fit
    from ilb.offline.training import CosineAdam, Schedule
    rng = np.random.default_rng(0)
    person = rng.normal(size=(40, 1, 5))
    contexts = person + rng.normal(size=(40, 60, 5))
    actions = rng.integers(3, size=(40, 60))
    logs = Logs.from_arrays(contexts, actions, contexts.sum(2) * (actions - 1))
    recipe = TiedRecipe(cross_fit=False, training=Schedule(60, CosineAdam(0.03), score_every=30))
    model = fit(logs, latent_dim=5, recipe=recipe, reward=LinearRewardRecipe())
    print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model))).hexdigest())
    return 0

app.run = fit_and_print
app.main()
"""


def printed(cores: str) -> str:
    # The tests' own settings spare time on small matrices; a user does not have them.
    settings = ("XLA_FLAGS", "NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in settings}
    command = [sys.executable, "-c", FIT, cores]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment).stdout


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")
def test_a_fit_on_one_core_is_the_fit_on_all_of_them() -> None:
    hashes = printed("one"), printed("all")
    assert len(hashes[0]) == 65
    assert hashes[0] == hashes[1]
