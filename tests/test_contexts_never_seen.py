"""Contexts that no row could have had: categories nobody had, columns that disagree, constants that move."""

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ilb import LatentModel, LiveBandit, Logs, PersonRewardRecipe, PlainContexts, WithContexts, fit
from ilb.errors import IlbWarning
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encodings import encode_contexts, measure_scatter
from ilb.offline.scaling import fit_whitening, standardise
from ilb.offline.training import CosineAdam, Schedule, fit_keys

QUICK = TiedRecipe(layers=2, width=2, training=Schedule(150, CosineAdam(0.03), score_every=150))
USUAL = {"weather": "sun", "home": "town", "age": 52.0, "months": 624.0, "planet": 3.0}
STRANGE: dict[str, dict[str, Any]] = {
    "a category of the moment that nobody had": {"weather": "hail"},
    "a category of the person that nobody had": {"home": "moon"},
    "two columns that were one": {"months": 700.0},
    "a constant that moves": {"planet": 4.0},
    "all of it": {"weather": "hail", "home": "moon", "months": 700.0, "planet": 4.0},
}


@pytest.fixture(scope="module")
def logs() -> Logs:
    rng = np.random.default_rng(0)
    who, action = np.repeat(np.arange(80), 8), rng.integers(3, size=640)
    weather, home = rng.integers(3, size=640), rng.integers(3, size=80)[who]
    age = rng.normal(50, 9, size=80)[who]
    reward = np.array([[0.0, 1, 2], [2, 0, 1], [1, 2, 0]])[action, home] + 0.3 * (weather == 1) + rng.normal(size=640)
    columns = {
        "who": who,
        "weather": np.array(["sun", "rain", "snow"])[weather],
        "home": np.array(["town", "village", "farm"])[home],
        "age": age,
        "months": 12 * age,
        "planet": np.full(640, 3.0),
        "action": np.array(["A", "B", "C"])[action],
        "reward": reward,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IlbWarning)  # of columns that never vary, and identify people
        return Logs.from_frame(pa.table(columns), instance="who", action="action", reward="reward")


@pytest.fixture(
    scope="module",
    params=[PlainContexts(), PlainContexts(most=6), WithContexts(QUICK)],
    ids=["plain", "axes", "beside"],
)
def model(request: pytest.FixtureRequest, logs: Logs) -> LatentModel:
    recipe: EncoderRecipe = request.param
    return fit(logs, latent_dim=1, recipe=recipe, reward=PersonRewardRecipe(hidden=1, same_level=True))


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")
@pytest.mark.parametrize("changed", STRANGE.values(), ids=STRANGE)
def test_what_nobody_could_have_had_is_no_reason_to_doubt_the_model(
    model: LatentModel, changed: dict[str, Any]
) -> None:
    bandit = LiveBandit.on(model)
    usual, strange = bandit.start("one").decide(USUAL), bandit.start("other").decide({**USUAL, **changed})
    assert strange.misfit < usual.misfit + 0.05
    span = np.ptp(list(usual.expected_reward.values()))
    for label, value in strange.expected_reward.items():
        assert abs(value - usual.expected_reward[label]) < 2 * span


def test_a_value_far_from_all_that_varied_is_doubted_as_before(logs: Logs) -> None:
    model = fit(logs, latent_dim=1, recipe=PlainContexts(), reward=PersonRewardRecipe(hidden=1, same_level=True))
    bandit = LiveBandit.on(model)
    with pytest.warns(match="age"):
        far = bandit.start("far").decide({**USUAL, "age": 52.0 + 200, "months": 12 * 252.0})
    assert far.misfit > 0.9


def test_rows_of_the_logs_are_encoded_column_by_column(logs: Logs) -> None:
    context = logs.context.astype(np.float64)
    std = context.std(axis=0)
    varies = std > 1e-6
    scaled = (context - context.mean(axis=0)) / np.where(varies, std, np.inf)
    [trained] = PlainContexts().train(fit_keys([0]), [logs], 1)
    np.testing.assert_allclose(encode_contexts(trained.encoder, logs.context), scaled, atol=2e-5)


@pytest.mark.parametrize("kind", ["indicators", "a column twice", "a sum of columns", "a constant"])
def test_no_scaling_leaves_the_plane_that_rows_are_in(kind: str) -> None:
    """Least squares on the scaled rows finds the same plane as on the rows: what is off it is not seen."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 4)) * [1.0, 20.0, 0.1, 1.0] + 3
    off = np.zeros(4)
    if kind == "indicators":
        rows[:, :3] = np.eye(3)[rng.integers(3, size=200)]
        off[:3] = 1
    elif kind == "a column twice":
        rows[:, 1] = -2.5 * rows[:, 0] + 1
        off[:2] = [2.5, 1]
    elif kind == "a sum of columns":
        rows[:, 3] = rows[:, 0] + rows[:, 1] - rows[:, 2]
        off[:] = [1, 1, -1, -1]
    else:
        rows[:, 2] = 0.3
        off[2] = 1
    for scaling in (standardise(rows), fit_whitening(rows)):
        matrix = np.asarray(scaling.matrix, np.float64)
        seen = (rows - rows.mean(axis=0)) @ matrix
        # In units of each column, the normal of the plane is `off`; moving along it, as they see it, changes nothing.
        units = np.where(rows.std(axis=0) > 1e-9, rows.std(axis=0), 1.0)
        assert np.abs(off * units**2 @ matrix).max() < 1e-4 * np.abs(seen).max() * np.abs(off * units).max()
        assert np.linalg.matrix_rank(matrix, tol=1e-4 * np.linalg.norm(matrix, 2)) <= 3


def test_a_constant_beside_columns_that_agree_stays_one() -> None:
    rng = np.random.default_rng(0)
    home = np.eye(4)[rng.integers(3, size=300)]  # nobody is of the last category
    rows = np.c_[rng.normal(size=(300, 5)), home, np.full(300, 0.1)]
    scaled = standardise(rows)
    seen = rows @ np.asarray(scaled.matrix, np.float64)
    assert not np.any(np.asarray(scaled.matrix)[:, [8, 9]])
    scatter = measure_scatter(seen, np.arange(0, 301, 10))
    assert np.linalg.eigvalsh(scatter.encoding_covariance)[0] > 0
