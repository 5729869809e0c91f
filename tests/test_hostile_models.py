"""Models on disk against everything but good will: others who save, strangers' files, numbers that can't be."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ilb.environments import UniformLogging, draw_world, record
from ilb.errors import ModelFileError
from ilb.logs import Logs
from ilb.models import storage
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression, random_recurrent_regression
from ilb.networks import IdentityEncoder
from ilb.offline.fit import complete_model
from narrowed import known

DIM, ACTIONS = 2, 3


@pytest.fixture(scope="module")
def logs() -> Logs:
    world = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS)
    return record(jr.key(1), world, UniformLogging(ACTIONS), instances=20, length=10).logs


@pytest.fixture(scope="module")
def model(logs: Logs) -> LatentModel:
    return complete_model(IdentityEncoder(), logs)


@pytest.fixture(scope="module")
def models(model: LatentModel) -> list[LatentModel]:
    """Four models that can be told apart by the intercept of their first action."""
    return [
        eqx.tree_at(lambda one: one.reward.intercept, model, jnp.full(ACTIONS, number, jnp.float32))
        for number in range(4)
    ]


def number_of(model: LatentModel) -> int:
    return int(model.reward.intercept[0])  # type: ignore[attr-defined]


# Many at once


def test_threads_that_save_and_load_one_model_lose_nothing(models: list[LatentModel], tmp_path: Path) -> None:
    models[0].save(tmp_path)
    failures: list[BaseException] = []
    loaded: list[int] = []

    def save_often(model: LatentModel) -> None:
        for _ in range(10):
            model.save(tmp_path)

    def load_often() -> None:
        for _ in range(30):
            loaded.append(number_of(LatentModel.load(tmp_path)))

    def noting(work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    tasks = [*((save_often, one) for one in models), (load_often,), (load_often,)]
    threads = [threading.Thread(target=noting, args=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(loaded) <= set(range(4))
    assert number_of(LatentModel.load(tmp_path)) in range(4)
    assert len(list(tmp_path.iterdir())) == 2


HOLD = """
import sys
from pathlib import Path
from ilb.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_save_waits_for_that_of_another_process(models: list[LatentModel], tmp_path: Path) -> None:
    models[0].save(tmp_path)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        saving = threading.Thread(target=models[1].save, args=(tmp_path,))
        saving.start()
        saving.join(0.3)
        assert saving.is_alive()
        assert number_of(LatentModel.load(tmp_path)) == 0  # readers need not wait
        other.communicate()
    saving.join(20)
    assert number_of(LatentModel.load(tmp_path)) == 1


def test_a_reader_between_whose_two_files_a_save_comes_looks_again(
    models: list[LatentModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models[0].save(tmp_path)
    read = storage._read_manifest
    reads: list[int] = []

    def read_and_be_overtaken(path: Path, expected: str) -> dict[str, Any]:
        manifest = read(path, expected)
        reads.append(len(reads))
        if len(reads) < 4:
            models[len(reads)].save(tmp_path)
        return manifest

    monkeypatch.setattr(storage, "_read_manifest", read_and_be_overtaken)
    assert number_of(LatentModel.load(tmp_path)) == 3
    assert len(reads) == 4


def test_what_a_killed_save_left_is_swept_by_the_next_one(models: list[LatentModel], tmp_path: Path) -> None:
    models[0].save(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *args, **kwargs: None)  # a killed process tidies nothing
        moved = Path.replace

        def die_before_the_manifest(source: Path, target: Path) -> Path:
            if target.name == "manifest.json":
                raise KeyboardInterrupt
            return moved(source, target)

        patch.setattr(Path, "replace", die_before_the_manifest)
        with pytest.raises(KeyboardInterrupt):
            models[1].save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4  # two models' arrays, a manifest and the draft of another
    assert number_of(LatentModel.load(tmp_path)) == 0
    models[2].save(tmp_path)
    assert number_of(LatentModel.load(tmp_path)) == 2
    assert len(list(tmp_path.iterdir())) == 2


# Files of others


@pytest.mark.parametrize("name", ["arrays-mine.safetensors", "arrays-0123456789abcdef.safetensors", "notes.draft"])
def test_saving_deletes_no_file_of_a_stranger(models: list[LatentModel], tmp_path: Path, name: str) -> None:
    models[0].save(tmp_path)
    (tmp_path / name).write_text("mine")
    models[1].save(tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_manifest_that_names_another_file_does_not_get_it_deleted(models: list[LatentModel], tmp_path: Path) -> None:
    models[0].save(tmp_path)
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("mine")
    text = (tmp_path / "manifest.json").read_text()
    named = json.loads(text)["arrays"]["file"]
    (tmp_path / "manifest.json").write_text(text.replace(named, thesis.name))
    models[1].save(tmp_path)
    assert thesis.read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    [
        '{"name": "shop", "note": "made with ilb-latent-model"}',
        '["ilb-latent-model"]',
        '{"format": "ilb-latent-model"}',
    ],
)
def test_a_manifest_that_only_mentions_our_format_is_not_overwritten(
    model: LatentModel, tmp_path: Path, content: str
) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ModelFileError, match="no ILB model"):
        model.save(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == content


def test_a_directory_called_manifest_is_in_the_way(model: LatentModel, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(ModelFileError, match="no ILB model"):
        model.save(tmp_path)
    with pytest.raises(ModelFileError, match="is not a saved model"):
        LatentModel.load(tmp_path)


# Disks


def test_a_full_disk_leaves_the_old_model_and_says_so_in_a_line(
    models: list[LatentModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models[0].save(tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match=r"can't save a model in .*: no space left on device\. A model that was"):
        models[1].save(tmp_path)
    assert number_of(LatentModel.load(tmp_path)) == 0
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["n" * 300, "a\0b"], ids=["too long", "null"])
def test_a_name_that_no_disk_takes_is_refused_in_a_line(model: LatentModel, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match="can't save a model"):
        model.save(tmp_path / name)
    with pytest.raises(ModelFileError, match=r"is not a (whole|saved) model|can.t read a model"):
        LatentModel.load(tmp_path / name)


# Numbers that can't be, with every hash right


def forge(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], object]) -> None:
    """Change manifest and arrays, and sign both as `save` would."""
    (old,) = path.glob("arrays-*")
    arrays = load_file(old)
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["content_hash"]
    change(manifest, arrays)
    save_file({name: np.array(array, order="C") for name, array in arrays.items()}, old)
    manifest["arrays"]["sha256"] = hashlib.sha256(old.read_bytes()).hexdigest()
    manifest["content_hash"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"tuple": [value]}
    return value


def test_coordinates_in_far_smaller_units_than_others_are_no_flaw(model: LatentModel, tmp_path: Path) -> None:
    units = jnp.asarray([1.0, 1e-15])
    small = 0.999 * jnp.ones((2, 2)) + 0.001 * jnp.eye(2)
    close = eqx.tree_at(lambda m: m.noise.encoding_covariance, model, small * jnp.outer(units, units))
    assert np.linalg.eigvalsh(np.asarray(close.noise.encoding_covariance, np.float64))[0] < 1e-30
    close.save(tmp_path / "small")
    flat = eqx.tree_at(lambda m: m.noise.encoding_covariance, model, jnp.ones((2, 2)))
    with pytest.raises(ModelFileError, match="singular"):
        flat.save(tmp_path / "flat")


FORGERIES: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], object]] = {
    "NaN in the rewards": lambda m, a: a["reward.theta"].__setitem__((0, 0), np.nan),
    "an infinite intercept": lambda m, a: a["reward.intercept"].__setitem__(0, np.inf),
    "NaN in the noise": lambda m, a: a["noise.encoding_covariance"].fill(np.nan),
    "a negative variance": lambda m, a: a["noise.reward_variance"].fill(-1.0),
    "a negative leftover": lambda m, a: a.update({"noise.leftover_variance": np.array(-1.0, "f")}),
    "a covariance that is not positive": lambda m, a: a.update({"noise.encoding_covariance": -np.eye(2, dtype="f")}),
    "a covariance that is not symmetric": lambda m, a: a["noise.population_covariance"].__setitem__((0, 1), 9.0),
    "coefficients that vary negatively": lambda m, a: a.update(
        {"reward.coefficient_covariance": -a["reward.coefficient_covariance"]}
    ),
    "one action fewer in the rewards": lambda m, a: a.update({"reward.theta": a["reward.theta"][:-1]}),
    "one action fewer in the noise": lambda m, a: a.update({"noise.reward_variance": a["noise.reward_variance"][:-1]}),
    "one action fewer in all numbers": lambda m, a: a.update(
        {
            name: a[name][:-1]
            for name in (
                "reward.theta",
                "reward.intercept",
                "reward.coefficient_covariance",
                "noise.reward_variance",
            )
        }
    ),
    "an intercept of one number for all": lambda m, a: a.update({"reward.intercept": a["reward.intercept"][:1]}),
    "a coordinate fewer in the rewards": lambda m, a: a.update({"reward.theta": a["reward.theta"][:, :-1]}),
    "a population without coordinates": lambda m, a: a.update({"noise.population_mean": np.zeros(0, "f")}),
    "integers where floats belong": lambda m, a: a.update({"reward.theta": a["reward.theta"].astype("i4")}),
    "complex rewards": lambda m, a: a.update({"reward.theta": a["reward.theta"].astype("c8")}),
    "a column fewer in the schema": lambda m, a: m["schema"]["context"].pop(),
    "a scale of zero": lambda m, a: m["schema"]["context"][0].update(std=0.0),
    "a negative scale": lambda m, a: m["schema"]["context"][0].update(std=-1.0),
    "a scale that is NaN": lambda m, a: m["schema"]["context"][0].update(std=float("nan")),
    "a scale that is text": lambda m, a: m["schema"]["context"][0].update(std="1"),
    "a mean beyond all floats": lambda m, a: m["schema"]["context"][0].update(mean=10**400),
    "an infinite fill": lambda m, a: m["schema"]["context"][0].update(fill=float("inf")),
    "a flag that is 2": lambda m, a: m["schema"]["context"][0].update(flagged=2),
    "two columns of one name": lambda m, a: m["schema"]["context"][0].update(name="x2"),
    "a column named 5": lambda m, a: m["schema"]["context"][0].update(name=5),
    "a reward column that is a list": lambda m, a: m["schema"].update(reward=["r"]),
    "two actions of one label": lambda m, a: m["schema"].update(actions=[0, 1, 1]),
    "an action that is 1 and 1.0": lambda m, a: m["schema"].update(actions=[0, 1, {"float": "1.0"}]),
    "an action that is missing": lambda m, a: m["schema"].update(actions=[0, 1, None]),
    "an action that is NaN": lambda m, a: m["schema"].update(actions=[0, 1, {"float": "nan"}]),
    "an action that is a signalling NaN": lambda m, a: m["schema"].update(actions=[0, 1, {"Decimal": "sNaN"}]),
    "an action of a million digits": lambda m, a: m["schema"].update(actions=[0, 1, {"int": "0x" + "f" * 10**6}]),
    "an action nested without end": lambda m, a: m["schema"].update(actions=[0, 1, nested(400)]),
    "a zone that is a path": lambda m, a: m["schema"].update(
        actions=[0, 1, {"datetime": ["2020-01-01T00:00:00", "../../etc/passwd", 0]}]
    ),
    "a zone that is a directory": lambda m, a: m["schema"].update(
        actions=[0, 1, {"datetime": ["2020-01-01T00:00:00", "Europe", 0]}]
    ),
    "a zone that is a number": lambda m, a: m["schema"].update(
        actions=[0, 1, {"datetime": ["2020-01-01T00:00:00", 7, 0]}]
    ),
    "a fold of 9": lambda m, a: m["schema"].update(actions=[0, 1, {"datetime": ["2020-01-01T00:00:00", None, 9]}]),
    "version 0": lambda m, a: m.update(format_version=0),
    "version -1": lambda m, a: m.update(format_version=-1),
    "version true": lambda m, a: m.update(format_version=True),
    "version of 300 digits": lambda m, a: m.update(format_version=10**300),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_model_is_refused_in_one_line_although_its_hashes_are_right(
    model: LatentModel, tmp_path: Path, name: str
) -> None:
    model.save(tmp_path)
    forge(tmp_path, FORGERIES[name])
    with pytest.raises(ModelFileError) as refused:
        LatentModel.load(tmp_path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_forgery_that_changes_nothing_is_no_forgery(model: LatentModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    forge(tmp_path, lambda manifest, arrays: None)
    assert LatentModel.load(tmp_path).schema == model.schema


@pytest.mark.parametrize("depth", [900, 100_000])
def test_brackets_without_end_are_refused(model: LatentModel, tmp_path: Path, depth: int) -> None:
    model.save(tmp_path)
    text = '{"format": "ilb-latent-model", "format_version": 4, "model": ' + "[" * depth + "]" * depth + "}"
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"damaged|changed after it was saved"):
        LatentModel.load(tmp_path)


def test_a_network_with_other_heads_than_its_schema_has_actions_is_refused(logs: Logs, tmp_path: Path) -> None:
    network = replace(random_recurrent_regression(jr.key(0), DIM, 4, 1, ACTIONS), schema=logs.schema)
    network.save(tmp_path)
    assert RecurrentRegression.load(tmp_path).actions == ACTIONS
    forge(
        tmp_path,
        lambda m, a: a.update({"heads.matrix": a["heads.matrix"][:, :-1], "heads.shift": a["heads.shift"][:-1]}),
    )
    with pytest.raises(ModelFileError, match="names 3 actions and its numbers are for 2"):
        RecurrentRegression.load(tmp_path)


def test_a_model_that_could_not_be_loaded_is_not_saved(model: LatentModel, tmp_path: Path) -> None:
    broken = eqx.tree_at(lambda one: one.reward.intercept, model, jnp.full(ACTIONS, jnp.nan))
    with pytest.raises(ModelFileError, match=r"reward\.intercept has numbers that are not finite"):
        broken.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert known(model.schema).actions == (0, 1, 2)
