"""MeanContrastive among other scikit-learn estimators."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ilb import FitError, MeanContrastive, TiedRecipe
from ilb.offline.training import Schedule

QUICK = TiedRecipe(layers=2, training=Schedule(steps=10, score_every=10))


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([MeanContrastive(n_components=1, recipe=QUICK)])
def test_it_keeps_the_contract_of_scikit_learn(
    estimator: MeanContrastive, check: Callable[[MeanContrastive], None]
) -> None:
    """No check is expected to fail."""
    check(estimator)


@pytest.fixture(scope="module")
def people() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    person = np.repeat([f"person {number}" for number in range(60)], 30)
    z = np.repeat(rng.normal(size=(60, 2)), 30, axis=0)
    X = np.tanh((z + rng.normal(size=z.shape)) @ rng.normal(size=(2, 4)))
    return X, person, z


def test_it_works_in_a_pipeline_with_names_of_people_as_targets(
    people: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    X, person, z = people
    pipeline = make_pipeline(
        MinMaxScaler(), MeanContrastive(n_components=2, recipe=TiedRecipe(layers=3, training=Schedule(300)))
    )
    encodings = pipeline.fit(X, person).transform(X)
    assert encodings.shape == (1800, 2)
    assert list(pipeline.get_feature_names_out()) == ["meancontrastive0", "meancontrastive1"]
    means = encodings.reshape(60, 30, 2).mean(axis=1)
    assert LinearRegression().fit(means, z[::30]).score(means, z[::30]) > 0.9


def test_large_offsets_do_no_harm(people: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, person, _ = people
    estimator = MeanContrastive(n_components=2, recipe=QUICK)
    plain = estimator.fit_transform(X, person)
    shifted = estimator.fit_transform(1e-3 * X + 1e6, person)
    np.testing.assert_allclose(plain, shifted, atol=2e-2)


def test_more_components_than_columns_are_refused(people: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    X, person, _ = people
    with pytest.raises(FitError, match="between 1 and the 4 columns of X; got 5"):
        MeanContrastive(n_components=5).fit(X, person)
