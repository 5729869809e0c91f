"""The Alzheimer world against what is known of it: docs/adcb.md, and integrals over z that need no simulation."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from scipy import stats

from ilb.cli import run as run_command
from ilb.environments import (
    Adcb,
    AdcbWorld,
    Plan,
    Recording,
    Specification,
    UniformLogging,
    draw_confounded_logging,
    record,
)
from ilb.environments.adcb.biomarkers import interpolate
from ilb.environments.adcb.patients import AdcbPatient, adcb_parameters
from ilb.environments.adcb.world import ROLES
from ilb.errors import IdentifiabilityWarning, WorldError
from ilb.logs import Logs
from ilb.offline.scores import reference_models
from ilb.types import as_real

Drawn: TypeAlias = tuple[AdcbPatient, dict[str, np.ndarray], np.ndarray]


def adcb_world(**values: Any) -> AdcbWorld:
    return Adcb(**values).draw()


NUMBERS = adcb_parameters()
PATIENTS = 20_000
VISITS = 20
WORLDS = {std: adcb_world(latent_noise_std=std) for std in (0.02, 0.1)}
NAMES = WORLDS[0.02].column_names


@eqx.filter_jit
@eqx.filter_vmap(in_axes=(None, 0))
def draw_patient(world: AdcbWorld, number: Array) -> tuple[AdcbPatient, Array, Array]:
    key_patient, key_visits = jr.split(jr.fold_in(jr.key(1), number))
    patient = world.sample_instance(key_patient)
    contexts = eqx.filter_vmap(lambda key: world.emit(key, patient))(jr.split(key_visits, VISITS))
    return patient, contexts, world.mean_rewards(patient)


def draw_all(world: AdcbWorld) -> Drawn:
    """Patients, [patients, visits] measurements by name, and mean rewards; compiled once for all worlds of a kind."""
    patients, contexts, means = draw_patient(world, np.arange(PATIENTS))
    columns = {name: np.asarray(contexts[..., i], np.float64) for i, name in enumerate(NAMES)}
    return type(patients)(*map(np.asarray, patients)), columns, np.asarray(means, np.float64)


@pytest.fixture(scope="module")
def drawn() -> dict[float, Drawn]:
    """What `draw_all` gives at both levels of latent noise."""
    return {std: draw_all(world) for std, world in WORLDS.items()}


def mixture() -> tuple[np.ndarray, np.ndarray]:
    """The nodes and weights of an integral over z, by a fine grid."""
    latent = NUMBERS["latent_continuous"]
    z = np.linspace(-0.1, 0.4, 100_001)
    parts = zip(latent["mixture_weights"], latent["mixture_means"], latent["mixture_std"], strict=True)
    density = sum(weight * stats.norm.pdf(z, mean, std) for weight, mean, std in parts)
    return z, density / density.sum()


def rewards_over_z(name: str, z: np.ndarray) -> np.ndarray:
    """The K rewards by the formula of app:adcb_ate, from the average effects and intercepts alone."""
    numbers = NUMBERS["reward"]
    intercept = np.asarray(numbers["intercept_gamma"]) * {"released": 1, "printed": -1}[name]
    slope = (np.asarray(numbers["average_effect"]) - intercept) / NUMBERS["latent_continuous"]["mean"]
    return intercept + z[:, None] * slope


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, shares: list[float]) -> np.ndarray:
    order = np.argsort(values)
    return np.interp(shares, np.cumsum(weights[order]), values[order])


CHECKS: dict[str, dict[str, Any]] = {
    "released": {
        "optimal": [0, 0, 0, 0.399, 0.391, 0.049, 0, 0.161],
        "gap": 0.242,
        "gaps": [0.016, 0.031, 0.077, 0.188, 0.330, 0.562, 0.682],
        "regret": [3.402, 1.452, 0.922, 0.372, 0.202, 1.392, 2.112, 0.712],
        "uniform": 1.321,
    },
    "printed": {
        "optimal": [0.0002, 0, 0, 0.512, 0.488, 0, 0, 0],
        "gap": 0.324,
        "gaps": [0.062, 0.121, 0.246, 0.339, 0.417, 0.513, 0.527],
        "regret": [3.403, 1.453, 0.923, 0.373, 0.203, 1.393, 2.113, 0.713],
        "uniform": 1.322,
    },
}
QUANTILES = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]


def statistics(means: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    ordered = np.sort(means, axis=1)
    gap = ordered[:, -1] - ordered[:, -2]
    regret = weights @ (ordered[:, -1:] - means)
    return {
        "optimal": np.bincount(means.argmax(axis=1), weights=weights, minlength=8),
        "gap": weights @ gap,
        "gaps": weighted_quantiles(gap, weights, QUANTILES),
        "regret": regret,
        "uniform": regret.mean(),
    }


# Rewards


@pytest.mark.parametrize("name", CHECKS)
def test_rewards_integrated_over_the_mixture_have_the_published_check_values(name: str) -> None:
    z, weights = mixture()
    means = np.asarray(eqx.filter_vmap(adcb_world(rewards=name).reward)(jnp.asarray(z, jnp.float32)[:, None]))
    np.testing.assert_allclose(means, rewards_over_z(name, z), atol=2e-5)
    for what, value in statistics(means.astype(float), weights).items():
        np.testing.assert_allclose(value, CHECKS[name][what], atol=1.1e-3, err_msg=what)


@pytest.mark.parametrize("name", CHECKS)
def test_rewards_of_drawn_patients_agree_with_the_integral(drawn: dict[float, Drawn], name: str) -> None:
    means = drawn[0.02][2] if name == "printed" else draw_all(adcb_world(rewards=name))[2]
    found = statistics(means, np.full(PATIENTS, 1 / PATIENTS))
    z, weights = mixture()
    expected = statistics(rewards_over_z(name, z), weights)
    # Shares have standard errors of at most 0.0036, regrets of 0.01 and quantiles of 0.008 with so many patients.
    for what, atol in (("optimal", 0.014), ("gap", 0.006), ("gaps", 0.03), ("regret", 0.04), ("uniform", 0.02)):
        np.testing.assert_allclose(found[what], expected[what], atol=atol, err_msg=what)


def test_the_average_effect_of_each_treatment_is_the_published_one_in_both_tables() -> None:
    z, weights = mixture()
    for name in CHECKS:
        np.testing.assert_allclose(weights @ rewards_over_z(name, z), NUMBERS["reward"]["average_effect"], atol=1e-4)


def test_rewards_depend_on_the_ratio_of_the_patient_and_on_nothing_else_about_them(
    drawn: dict[float, Drawn],
) -> None:
    patients, _, means = drawn[0.02]
    np.testing.assert_allclose(means, rewards_over_z("printed", np.asarray(patients.z)), atol=1e-4)


# Patients


def test_the_ratio_is_the_mixture(drawn: dict[float, Drawn]) -> None:
    z, weights = mixture()
    distribution = stats.kstest(drawn[0.02][0].z, lambda values: np.interp(values, z, np.cumsum(weights)))
    assert distribution.pvalue > 1e-4
    world = WORLDS[0.02]
    np.testing.assert_allclose(world.population.z_mean, weights @ z, atol=1e-5)
    np.testing.assert_allclose(world.population.z_std, np.sqrt(weights @ (z - weights @ z) ** 2), atol=1e-5)


def test_age_is_skew_normal_in_tenths_of_a_year(
    drawn: dict[float, Drawn],
) -> None:
    age = np.asarray(drawn[0.02][0].age, np.float64)
    np.testing.assert_allclose(age, np.round(age, 1), atol=1e-4)
    numbers = NUMBERS["age"]
    skewed = stats.skewnorm(numbers["shape"], numbers["location"], numbers["scale"])
    uniform = np.random.default_rng(0).uniform(-0.05, 0.05, PATIENTS)  # undoes the rounding
    assert stats.kstest(age + uniform, skewed.cdf).pvalue > 1e-4


def test_traits_have_the_published_frequencies(
    drawn: dict[float, Drawn],
) -> None:
    patients = drawn[0.02][0]
    # Binomial standard errors are at most 0.0036 here; the published figures have one of the same size.
    np.testing.assert_allclose(np.mean(patients.sex), 0.523, atol=0.015)
    np.testing.assert_allclose(np.bincount(patients.race) / PATIENTS, 1 / 7, atol=0.01)
    np.testing.assert_allclose(np.bincount(patients.ethnicity) / PATIENTS, 1 / 3, atol=0.014)
    np.testing.assert_allclose(np.bincount(patients.apoe4) / PATIENTS, [0.58, 0.40, 0.02], atol=0.018)
    np.testing.assert_allclose(np.mean(np.asarray(patients.marital) == 0), 0.759, atol=0.015)
    education = np.asarray(patients.education)
    np.testing.assert_allclose([education.mean(), education.std()], [8.03, 2.51], atol=0.07)


def test_conditional_tables_are_read_with_the_right_index(
    drawn: dict[float, Drawn],
) -> None:
    """Shares of APOE4 and of education in each group, against the tables and the softmax by hand."""
    patients = drawn[0.02][0]
    table = np.asarray(NUMBERS["apoe4"]["probability_table_ethnicity_race_sex_allele"])
    numbers = NUMBERS["education"]
    weights, intercepts = np.asarray(numbers["coefficients_code_by_feature"]), np.asarray(numbers["intercepts"])
    for ethnicity, race, sex in ((0, 0, 0), (0, 0, 1), (1, 3, 0), (2, 5, 1), (1, 1, 1), (2, 6, 0)):
        group = (patients.ethnicity == ethnicity) & (patients.race == race) & (patients.sex == sex)
        size = int(group.sum())
        features = [ethnicity == 1, ethnicity == 2, *(race == code for code in range(1, 7)), sex == 1]
        scores = np.exp(weights @ np.asarray(features, float) + intercepts)
        for values, expected in (
            (patients.apoe4, table[ethnicity, race, sex]),
            (patients.education, scores / scores.sum()),
        ):
            shares = np.bincount(np.asarray(values)[np.asarray(group)], minlength=len(expected)) / size
            np.testing.assert_allclose(shares, expected, atol=4.5 * np.sqrt(0.25 / size))


def test_everybody_may_be_married_as_in_the_released_generator() -> None:
    patients, columns, _ = draw_all(adcb_world(marital="married"))
    assert not patients.marital.any()
    assert (columns["marital = married"] == 1).all()


# Measurements


TABLE = {  # mean, standard deviation, correlation with z; of an independent program that has the same numbers
    "age": (72.61, 7.08, 0.0),
    "education": (8.05, 2.51, 0.01),
    "tau": (279.1, 63.8, -0.933),
    "ptau": (26.50, 7.77, -0.935),
    "fdg": (1.262, 0.053, 0.722),
    "av45": (1.222, 0.136, -0.918),
    "mmse": (28.29, 0.48, 0.784),
    "cdrsb": (0.937, 0.335, -0.808),
}


@pytest.fixture(scope="module")
def unrounded() -> Drawn:
    """The world with ratings in steps so fine that they are not rounded."""
    ratings = lambda world: (world.biomarkers.mmse.step, world.biomarkers.cdrsb.step)  # noqa: E731
    return draw_all(eqx.tree_at(ratings, WORLDS[0.02], (as_real(1e-3), as_real(1e-3))))


@pytest.mark.parametrize("name", TABLE)
def test_columns_have_the_marginals_of_an_independent_program(unrounded: Drawn, name: str) -> None:
    patients, columns, _ = unrounded
    values = columns[name][:, 0]
    mean, std, correlation = TABLE[name]
    # Both come from 20,000 patients: five standard errors of a difference, for each of the three.
    error = std * np.sqrt(2 / PATIENTS)
    np.testing.assert_allclose(values.mean(), mean, atol=5 * error + 5e-4)
    np.testing.assert_allclose(values.std(), std, atol=5 * error + 5e-4)
    np.testing.assert_allclose(np.corrcoef(values, patients.z)[0, 1], correlation, atol=0.05 if name == "age" else 0.04)


def test_most_of_the_ratio_can_be_read_off_one_visit_but_little_of_it_in_the_noisy_variant(
    drawn: dict[float, Drawn],
) -> None:
    for std, expected, atol in ((0.02, 0.887, 0.01), (0.1, 0.218, 0.03)):
        patients, columns, _ = drawn[std]
        design = np.stack(
            [columns[name][:, 0] for name in ("tau", "ptau", "fdg", "av45")] + [np.ones(PATIENTS)], axis=1
        )
        left = patients.z - design @ np.linalg.lstsq(design, patients.z, rcond=None)[0]
        np.testing.assert_allclose(1 - left.var() / patients.z.var(), expected, atol=atol)


@pytest.mark.parametrize(
    ("std", "within", "between"),
    [
        (0.02, {"tau": 16.3, "ptau": 1.99, "fdg": 0.012, "av45": 0.033}, {"tau": 60.5, "ptau": 7.38, "av45": 0.129}),
        (0.1, {"tau": 61.4, "ptau": 7.49, "fdg": 0.040, "av45": 0.125}, {"tau": 33.1, "ptau": 4.00, "av45": 0.064}),
    ],
)
def test_measurements_vary_within_and_between_patients_as_published(
    drawn: dict[float, Drawn],
    std: float,
    within: dict[str, float],
    between: dict[str, float],
) -> None:
    _, columns, _ = drawn[std]
    for name, expected in within.items():
        # Published are means of the standard deviations of some hundred patients, hence the wide limits.
        found = columns[name].std(axis=1, ddof=1).mean()
        np.testing.assert_allclose(found, expected, rtol=0.1)
    for name, expected in between.items():
        squared = columns[name].mean(axis=1).var() - columns[name].var(axis=1, ddof=1).mean() / VISITS
        np.testing.assert_allclose(np.sqrt(squared), expected, rtol=0.05)


def test_age_education_and_marital_status_never_change(
    drawn: dict[float, Drawn],
) -> None:
    _, columns, _ = drawn[0.1]
    for name, values in columns.items():
        still = name in ("age", "education") or name.startswith("marital")
        assert (np.ptp(values, axis=1) == 0).all() == still


def test_ratings_are_rounded_and_have_the_published_shares(
    drawn: dict[float, Drawn],
) -> None:
    _, columns, _ = drawn[0.02]
    mmse, cdrsb = columns["mmse"], columns["cdrsb"]
    np.testing.assert_array_equal(mmse, np.round(mmse))
    np.testing.assert_array_equal(cdrsb, np.round(2 * cdrsb) / 2)
    shares = [np.mean(mmse == rating) for rating in (27, 28, 29)]
    np.testing.assert_allclose(shares, [0.07, 0.49, 0.44], atol=0.03)  # published for a smaller sample
    assert np.isin(cdrsb, [0.5, 1.0, 1.5]).mean() > 0.999


def by_hand(patient: AdcbPatient, z: float) -> tuple[float, float, float]:
    """tau, fdg and the exact mmse of one patient, with NumPy and the tables."""
    share, tau, fdg, adas, mmse = (NUMBERS[name] for name in ("share_function", "tau", "fdg", "adas13", "mmse"))
    nodes = share["u_nodes"]
    low, high = share["mean_sigmoid_component_low_ratio"], share["mean_sigmoid_component_high_ratio"]
    u = (1 / (1 + np.exp(-(z - share["centre"]) / share["width"])) - low) / (high - low)
    black, other, male = patient.race == 1, patient.ethnicity != 1, patient.sex == 1
    negative = tau["amyloid_negative_if_apoe4_at_least_1"]
    if patient.apoe4 == 0:
        negative = np.interp(patient.age, tau["age_nodes"], tau["amyloid_negative_if_apoe4_is_0_by_age"])
        negative += black * tau["add_to_negative_if_apoe4_is_0_and_race_black"]
        negative += other * tau["add_to_negative_if_apoe4_is_0_and_ethnicity_not_1"]
    positive = tau["amyloid_positive_by_apoe4"][patient.apoe4]
    glucose = np.interp(u, nodes, fdg["table_by_apoe4"][patient.apoe4]) + other * fdg["add_if_ethnicity_not_1"]
    glucose += black * np.interp(u, nodes, fdg["add_if_race_black"])
    adas13 = np.interp(u, nodes, adas["table_by_apoe4"][patient.apoe4])
    for belongs, group in ((black, "race_black"), (other, "ethnicity_not_1"), (male, "male")):
        adas13 += belongs * np.interp(u, nodes, adas[f"add_if_{group}"])
    adas13 += adas["add_by_education_code"][patient.education]
    rating = np.interp(adas13, mmse["adas13_nodes"], mmse["table"]) + mmse["add_by_education_code"][patient.education]
    return positive + (negative - positive) * u, glucose, rating


def test_measurements_are_those_of_the_tables() -> None:
    patients, columns, _ = draw_all(adcb_world(latent_noise_std=0.0))
    several = [type(patients)(*(part[number] for part in patients)) for number in range(100)]
    tau, fdg, rating = np.transpose([by_hand(patient, float(patient.z)) for patient in several])
    np.testing.assert_allclose(columns["tau"][:100, 0], tau, rtol=1e-4)
    np.testing.assert_allclose(columns["fdg"][:100, 0], fdg, rtol=1e-4)
    assert (np.abs(columns["mmse"][:100, 0] - rating) <= 0.5 + 1e-3).all()
    # Without latent noise, a patient is always the same.
    for values in columns.values():
        np.testing.assert_allclose(values, values[:, :1].repeat(VISITS, axis=1), rtol=1e-6)


def test_interpolation_is_that_of_numpy() -> None:
    nodes = np.asarray(NUMBERS["share_function"]["u_nodes"], np.float32)
    values = np.asarray(NUMBERS["adas13"]["table_by_apoe4"][1], np.float32)
    x = np.linspace(-0.5, 1.5, 300, dtype=np.float32)
    found = eqx.filter_vmap(lambda one: interpolate(one, jnp.asarray(nodes), jnp.asarray(values)))(jnp.asarray(x))
    np.testing.assert_allclose(found, np.interp(x, nodes, values), rtol=1e-5)


# The world as an environment


def test_contexts_have_a_name_for_each_number_and_the_smaller_ones_are_part_of_the_nine(
    drawn: dict[float, Drawn],
) -> None:
    assert len(NAMES) == 13
    assert [name for name in NAMES if not name.startswith("marital")] == [
        *("age", "education", "tau", "ptau", "fdg", "av45", "mmse", "cdrsb")
    ]
    world = adcb_world(context="biomarkers")
    _, contexts, _ = draw_patient(world, np.arange(5))
    for i, name in enumerate(world.column_names):
        np.testing.assert_allclose(contexts[..., i], drawn[0.02][1][name][:5], rtol=1e-5)
    assert "age" not in adcb_world(context="without_age").column_names


def test_other_numbers_do_not_compile_again() -> None:
    traces = []

    @eqx.filter_jit
    def rewards(world: AdcbWorld, key: PRNGKeyArray) -> Array:
        traces.append(world)
        return world.sample_rewards(key, world.sample_instance(key))

    for std, name, marital in ((0.0, "printed", "sampled"), (0.1, "released", "married")):
        rewards(adcb_world(latent_noise_std=std, rewards=name, marital=marital, reward_std=std), jr.key(0))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": "paper"}, "rewards must be one of printed, released; got 'paper'"),
        ({"context": "ten"}, "context must be one of nine, without_age, biomarkers"),
        ({"marital": "single"}, "marital must be one of"),
        ({"latent_noise_std": -1.0}, "latent_noise_std must be a number, at least 0"),
        ({"reward_std": float("nan")}, "reward_std must be a number"),
    ],
)
def test_what_is_no_such_world_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldError, match=message):
        adcb_world(**options)


def test_there_is_no_oracle() -> None:
    with pytest.raises(WorldError, match="no oracle: the biomarkers level off"):
        WORLDS[0.02].oracle()


# Recordings and tables


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(jr.key(2), WORLDS[0.02], UniformLogging(8), 30, 12)


def test_a_recording_has_the_names_of_the_columns_and_the_rewards_of_its_patients(recording: Recording) -> None:
    assert recording.logs.schema.names == NAMES
    np.testing.assert_allclose(
        recording.mean_rewards, rewards_over_z("printed", recording.latents[:, 0].astype(float)), atol=1e-4
    )


@pytest.fixture(scope="module")
def confounded() -> dict[float, Recording]:
    """Recordings of more patients with the same key, where treatments depend on z and context, or on neither."""
    world = WORLDS[0.02]
    rules = {strength: draw_confounded_logging(jr.key(4), world, strength) for strength in (0.0, 1.0)}
    return {strength: record(jr.key(2), world, rule, 300, 10) for strength, rule in rules.items()}


def test_the_first_patients_do_not_depend_on_how_many_there_are_or_on_who_treats_them(
    recording: Recording, confounded: dict[float, Recording]
) -> None:
    few = recording.logs.context.reshape(30, 12, -1)
    for more in confounded.values():
        np.testing.assert_allclose(more.logs.context.reshape(300, 10, -1)[:30], few[:, :10], rtol=1e-5)


def test_the_table_gives_the_same_contexts_up_to_the_scale_of_each_column(recording: Recording) -> None:
    table = recording.to_frame()
    assert set(table["marital"].to_pylist()) <= {"married", "never", "widowed", "divorced", "unknown"}
    assert table["treatment"].to_pylist()[0] == f"treatment {recording.logs.action[0]}"
    with pytest.warns(IdentifiabilityWarning, match=r"'age' never changes.*drop=\('age', 'education', 'marital'\)"):
        logs = Logs.from_frame(table, **ROLES)  # type: ignore[arg-type]
    assert logs.schema.actions == tuple(f"treatment {number}" for number in range(8))
    np.testing.assert_array_equal(logs.reward, recording.logs.reward)
    np.testing.assert_array_equal(logs.action, recording.logs.action)
    raw = dict(zip(NAMES, recording.logs.context.T, strict=True))
    for name, values in zip(logs.schema.names, logs.context.T, strict=True):
        if name.startswith("marital"):
            np.testing.assert_array_equal(values, raw[name])
        else:
            np.testing.assert_allclose(values, (raw[name] - raw[name].mean()) / raw[name].std(), atol=2e-3)


def test_age_is_named_as_identifying_in_arrays_too(recording: Recording) -> None:
    logs = recording.logs
    with pytest.warns(IdentifiabilityWarning, match=r"column 'age' never changes .*drop=\('age', 'education'"):
        Logs.from_arrays(logs.context, logs.action, logs.reward, logs.instance, names=NAMES)


def test_confounded_treatments_depend_on_the_ratio_and_unconfounded_ones_do_not(
    confounded: dict[float, Recording],
) -> None:
    for strength, recorded in confounded.items():
        z = np.repeat(recorded.latents[:, 0], 10)
        by_action = [z[recorded.logs.action == action] for action in range(8)]
        assert min(len(values) for values in by_action) > 30  # no treatment dies out: contexts are standardised
        assert (stats.kruskal(*by_action).pvalue < 1e-6) == (strength > 0)


SPECIFICATION = Specification(Adcb(context="biomarkers"), Plan(instances=30, length=16, test_instances=30), seed=5)


def test_a_specification_gives_the_same_recordings_from_its_file(tmp_path: Path) -> None:
    SPECIFICATION.save(tmp_path / "world.json")
    again = Specification.load(tmp_path / "world.json")
    assert again == SPECIFICATION
    first, second = SPECIFICATION.record(), again.record()
    np.testing.assert_array_equal(first.test.logs.reward, second.test.logs.reward)
    assert first.training.logs.instances == 30
    assert not np.isin(first.test.latents, first.training.latents).any()
    (tmp_path / "world.json").write_text('{"environment": "adcb", "colour": 1}')
    with pytest.raises(WorldError, match="is not a world that"):
        Specification.load(tmp_path / "world.json")


def test_a_file_of_the_first_version_gives_the_same_world_and_sizes(tmp_path: Path) -> None:
    stored = {"seed": 5, "latent_noise_std": 0.02, "rewards": "printed", "context": "biomarkers", "reward_std": 0.25}
    sizes = {"confounding": 0.0, "patients": 30, "test_patients": 30, "visits": 16}
    (tmp_path / "world.json").write_text(json.dumps({"environment": "adcb", **stored, **sizes}))
    assert Specification.load(tmp_path / "world.json") == SPECIFICATION
    (tmp_path / "world.json").write_text(json.dumps({"environment": "adcb", "patients": 0}))
    with pytest.raises(WorldError, match="instances must be an integer, at least 1; got 0"):
        Specification.load(tmp_path / "world.json")


# The command line


@pytest.fixture
def ilb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[str, Any]]:
    """Run a command in an empty folder and give back all that it printed, and the status."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any) -> tuple[str, Any]:
        monkeypatch.setattr(sys, "argv", ["ilb", *map(str, arguments)])
        code = run_command()
        printed = capsys.readouterr()
        return " ".join((printed.out + printed.err).split()), code

    return run


def test_simulated_tables_are_those_of_the_specification_and_are_scored_with_their_world(
    ilb: Callable[..., tuple[str, Any]],
) -> None:
    sizes = ("--patients", 30, "--visits", 16, "--test-patients", 30, "--context", "biomarkers", "--seed", 5)
    printed, status = ilb("simulate", "adcb", "--out", "visits.csv", *sizes)
    assert (status, "wrote visits.csv: 480 rows of 30 instances" in printed) == (0, True)
    recorded = SPECIFICATION.record()
    logs = Logs.from_frame("visits.csv", **ROLES)  # type: ignore[arg-type]
    np.testing.assert_allclose(logs.reward, recorded.training.logs.reward, rtol=1e-5)
    reference_models(logs)["mean contexts"].save(Path("model"))
    printed, status = ilb("score", "model", "visits.test.csv", "--train", "visits.csv", "--world", "visits.world.json")
    assert (status, "best action named" in printed) == (0, True)
    assert "No line for the oracle: the ADCB world has no oracle" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "adcb", "--out", "t.csv", "--rewards", "paper"), "rewards must be one of printed, released"),
        (("simulate", "adcb", "--out", "t.xls"), "neither .csv nor .parquet"),
        (("fit", "t.csv", "--drop", "agee", "--out", "m"), "no column 'agee'"),
    ],
)
def test_a_wrong_command_gets_one_clear_line(
    ilb: Callable[..., tuple[str, Any]], arguments: tuple[str, ...], message: str
) -> None:
    Path("t.csv").write_text("patient,visit,mmse,treatment,reward\n1,0,24,a,1.0\n")
    roles = [part for role, name in ROLES.items() for part in (f"--{role}", name)] if arguments[0] == "fit" else []
    printed, status = ilb(*arguments, *roles)
    assert (status, message in printed) == (2, True)
