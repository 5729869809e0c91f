"""LatentModel on disk: what comes back, what is refused, and what a crash leaves behind."""

import hashlib
import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from jaxtyping import Array

from ilb.environments import UniformLogging, draw_leaky_reward, draw_world, record
from ilb.errors import ModelFileError
from ilb.live.bandit import LiveBandit
from ilb.logs import Logs
from ilb.models.latent import LatentModel, NoiseLevels, Provenance
from ilb.models.recurrent import RecurrentRegression
from ilb.networks import STORABLE, Affine, ComposedEncoder, IdentityEncoder, InverseMixing, random_maxout_mlp, storable
from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.fit import complete_model
from ilb.offline.training import describe_recipe
from narrowed import known

DIM, ACTIONS = 3, 4
WORLD = draw_world(jr.key(0), latent_dim=DIM, actions=ACTIONS)
PROVENANCE = Provenance(
    version="0.1.0",
    seed=7,
    recipe={"name": "TiedRecipe", "training": {"steps": 4000, "learning_rate": 0.1 + 0.2, "patience": None}},
    rows=1200,
    instances=40,
    scores={"reward_r2": [0.8, 1e-17]},
    curve={"step": [200, 400], "training": [1.5, 1.25]},
    notes=("n was chosen", "μ̂ is fine"),
)


def recorded(seed: int) -> Logs:
    return record(jr.key(seed), WORLD, UniformLogging(ACTIONS), instances=40, length=30).logs


def maxout_encoder(seed: int) -> ComposedEncoder:
    scaling = Affine(jnp.eye(DIM) * (1 + seed), jnp.full(DIM, 0.1 * seed, jnp.float32))
    return ComposedEncoder(scaling, random_maxout_mlp(jr.key(seed), DIM, [4, 4], DIM))


def labelled_logs() -> Logs:
    """Logs with labels of several types, a category, and values that are missing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "patient": np.repeat([f"p{number}" for number in range(20)], 20),
            "mmse": np.where(rng.random(400) < 0.1, np.nan, rng.normal(25, 3, 400)),
            "site": rng.choice(["Lund", "Malmö"], 400),
            "drug": rng.choice(["placebo", "α-blocker"], 400),
            "gain": rng.normal(size=400),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Logs.from_frame(frame, instance="patient", action="drug", reward="gain")


@pytest.fixture(scope="module")
def oracle_model() -> LatentModel:
    return complete_model(WORLD.oracle().encoder, recorded(1), PROVENANCE)


@pytest.fixture(scope="module")
def maxout_model() -> LatentModel:
    return complete_model(maxout_encoder(1), recorded(1), PROVENANCE)


@pytest.fixture
def saved(oracle_model: LatentModel, tmp_path: Path) -> Path:
    oracle_model.save(tmp_path / "model")
    return tmp_path / "model"


def assert_same(first: LatentModel, second: LatentModel) -> None:
    """The same modules, the same arrays to the bit, the same labels and history."""
    assert jax.tree.structure(first) == jax.tree.structure(second)  # type: ignore[operator]
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert first.schema == second.schema
    assert first.provenance == second.provenance


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], *, sign: bool = True) -> None:
    """Change the manifest and, if `sign`, give it the content hash of what it now says."""
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["content_hash"]
    change(manifest)
    if sign:
        text = json.dumps(manifest, sort_keys=True)
        manifest["content_hash"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(manifest))


def arrays_file(path: Path) -> Path:
    (file,) = path.glob("arrays-*")
    return file


# What comes back


@pytest.mark.parametrize("name", ["oracle_model", "maxout_model"])
def test_a_model_comes_back_as_it_was(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model")
    assert_same(LatentModel.load(tmp_path / "model"), model)


def test_scalars_come_back_as_scalars(oracle_model: LatentModel, saved: Path) -> None:
    assert LatentModel.load(saved).noise.leftover_variance.shape == ()
    encoder = LatentModel.load(saved).encoder
    assert isinstance(encoder, InverseMixing)
    assert encoder.mixing.slope.shape == ()


def test_labels_and_categories_come_back(tmp_path: Path) -> None:
    logs = labelled_logs()
    model = complete_model(IdentityEncoder(), logs)
    model.save(tmp_path / "model")
    loaded = LatentModel.load(tmp_path / "model")
    assert_same(loaded, model)
    assert known(loaded.schema).actions[known(loaded.schema).action_index("α-blocker")] == "α-blocker"
    row = {"mmse": None, "site": "Malmö"}
    np.testing.assert_array_equal(known(loaded.schema).encode(row), logs.schema.encode(row))


def test_a_model_without_labels_or_history_comes_back(maxout_model: LatentModel, tmp_path: Path) -> None:
    maxout_model.bare().save(tmp_path / "model")
    loaded = LatentModel.load(tmp_path / "model")
    assert_same(loaded, maxout_model.bare())
    assert (loaded.schema, loaded.provenance) == (None, None)


def test_a_nonlinear_oracle_comes_back(tmp_path: Path) -> None:
    world = draw_world(jr.key(3), latent_dim=DIM, layers=3, actions=ACTIONS, draw_reward=draw_leaky_reward)
    world.oracle().save(tmp_path / "model")
    loaded = LatentModel.load(tmp_path / "model")
    assert_same(loaded, world.oracle())
    context = jnp.ones(DIM)
    np.testing.assert_array_equal(
        loaded.reward(loaded.encoder(context)), world.oracle().reward(world.oracle().encoder(context))
    )


def test_a_loaded_model_can_be_saved_and_gives_the_same_files(saved: Path, tmp_path: Path) -> None:
    LatentModel.load(saved).save(tmp_path / "copy")
    for file in saved.iterdir():
        assert (tmp_path / "copy" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("recipe", [TiedRecipe(), PaperRecipe()], ids=["tied", "paper"])
def test_the_description_of_a_recipe_survives_json(recipe: EncoderRecipe) -> None:
    described = describe_recipe(recipe)
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def test_a_path_may_be_text_and_its_parents_need_not_exist(
    oracle_model: LatentModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    oracle_model.save("a/b/model")
    assert_same(LatentModel.load("a/b/model"), oracle_model)
    monkeypatch.chdir(tmp_path / "a" / "b" / "model")
    assert_same(LatentModel.load("."), oracle_model)


# Older files


FORMAT_1 = Path(__file__).parent / "data" / "format-1"
"""Written by the code of commit 473fe2b, together with what its models predict."""


@pytest.mark.parametrize("name", ["fitted", "built", "oracle", "recurrent"])
def test_models_saved_in_format_1_still_load_and_predict_the_same(name: str, tmp_path: Path) -> None:
    kind: Any = RecurrentRegression if name == "recurrent" else LatentModel
    frozen = json.loads((FORMAT_1 / "values.json").read_text())
    contexts = jnp.asarray(frozen["contexts"], jnp.float32)
    model = kind.load(FORMAT_1 / name)
    values = model.run(contexts) if name == "recurrent" else [model.reward(model.encoder(x)) for x in contexts]
    np.testing.assert_allclose(values, frozen["values"][name], rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "again")
    assert_same(kind.load(tmp_path / "again"), model)


def test_format_1_told_of_an_interruption_in_its_notes() -> None:
    assert known(LatentModel.load(FORMAT_1 / "fitted").provenance).interrupted
    assert not known(LatentModel.load(FORMAT_1 / "built").provenance).interrupted


FORMAT_2 = Path(__file__).parent / "data" / "format-2"
"""Written by the code of commit 5eaea33, together with what its models decided round after round."""

DECIDED_2 = json.loads((FORMAT_2 / "decisions.json").read_text())


@pytest.mark.parametrize("name", DECIDED_2["decisions"])
def test_models_saved_in_format_2_still_load_and_decide_the_same(name: str, tmp_path: Path) -> None:
    directory, policy = name.split("/")
    kind: Any = RecurrentRegression if directory == "recurrent" else LatentModel
    model = kind.load(FORMAT_2 / directory)
    person = LiveBandit.on(model, policy).start("anna")
    # Since then the calibrated belief counts the doubt about coefficients, so rewards (their std is 2) move it more.
    exact = 0.05 if policy == "Calibrated" else 1e-5
    rounds = zip(DECIDED_2["contexts"], DECIDED_2["rewards"], DECIDED_2["decisions"][name], strict=True)
    for context, reward, decided in rounds:
        decision = person.decide(context)
        assert decision.action == decided["action"]
        assert decision.expected_reward == pytest.approx(decided["expected_reward"], rel=1e-4, abs=exact)
        person.learn(decision, reward=reward)
    model.save(tmp_path / "again")
    assert_same(kind.load(tmp_path / "again"), model)


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_interruption_is_a_fact_and_not_a_word_in_a_note(
    maxout_model: LatentModel, tmp_path: Path, interrupted: bool
) -> None:
    provenance = Provenance(
        "0.1.0", 0, {}, 1, 1, notes=("the study was interrupted in spring",), interrupted=interrupted
    )
    LatentModel(maxout_model.encoder, maxout_model.reward, maxout_model.noise, None, provenance).save(tmp_path)
    assert LatentModel.load(tmp_path).provenance == provenance


# Classes of others


@storable
class Rotated(eqx.Module):
    """A user's encoder: not known to the package, but for its mark."""

    turn: jax.Array
    inner: tuple[Affine, ...]

    def __call__(self, context: Array) -> Array:
        for layer in self.inner:
            context = layer(context)
        return self.turn @ context


@pytest.fixture
def rotated(oracle_model: LatentModel) -> LatentModel:
    encoder = Rotated(jnp.roll(jnp.eye(DIM), 1, axis=0), (Affine(2 * jnp.eye(DIM), jnp.ones(DIM)),))
    return LatentModel(encoder, oracle_model.reward, oracle_model.noise)


def test_a_storable_class_from_outside_the_package_comes_back(rotated: LatentModel, tmp_path: Path) -> None:
    rotated.save(tmp_path)
    loaded = LatentModel.load(tmp_path)
    assert_same(loaded, rotated)
    np.testing.assert_array_equal(loaded.encoder(jnp.arange(3.0)), [5.0, 1.0, 3.0])


def test_a_class_that_nobody_has_marked_is_not_made_from_a_file(
    rotated: LatentModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated.save(tmp_path)
    monkeypatch.delitem(STORABLE, "Rotated")
    with pytest.raises(
        ModelFileError, match=r"encoder is a 'Rotated', which this ILB does not know.*import the module"
    ):
        LatentModel.load(tmp_path)


def test_two_storable_classes_can_not_share_a_name() -> None:
    with pytest.raises(
        ModelFileError, match=r"ilb\.networks\.Affine is saved under the name 'Affine' already\. Rename"
    ):
        storable(type("Affine", (eqx.Module,), {"__module__": "elsewhere"}))
    assert STORABLE["Affine"] is Affine


def test_a_class_that_is_defined_again_takes_its_own_place(monkeypatch: pytest.MonkeyPatch) -> None:
    again = type("Rotated", (eqx.Module,), {"__module__": Rotated.__module__})
    monkeypatch.setitem(STORABLE, "Rotated", Rotated)
    assert storable(again) is STORABLE["Rotated"] is again


# What is in the files


def test_the_arrays_file_holds_a_header_of_json_and_raw_numbers_only(maxout_model: LatentModel, tmp_path: Path) -> None:
    maxout_model.save(tmp_path)
    content = arrays_file(tmp_path).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    numbers = [entry for name, entry in header.items() if name != "__metadata__"]
    assert {entry["dtype"] for entry in numbers} == {"F32"}
    assert 4 * sum(int(np.prod(entry["shape"])) for entry in numbers) == len(content) - 8 - length
    assert len(numbers) == len(jax.tree.leaves(maxout_model))


def test_nothing_is_ever_pickled(oracle_model: LatentModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    oracle_model.save(tmp_path / "model")
    assert_same(LatentModel.load(tmp_path / "model"), oracle_model)


def test_the_hash_in_the_manifest_is_that_of_the_arrays_file(saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["format_version"] == 4
    assert manifest["arrays"]["sha256"] == hashlib.sha256(arrays_file(saved).read_bytes()).hexdigest()


def test_saving_again_leaves_only_the_new_files(
    oracle_model: LatentModel, maxout_model: LatentModel, saved: Path
) -> None:
    before = arrays_file(saved).name
    maxout_model.save(saved)
    assert sorted(file.name for file in saved.iterdir()) == sorted(["manifest.json", arrays_file(saved).name])
    assert arrays_file(saved).name != before
    assert_same(LatentModel.load(saved), maxout_model)


def test_saving_the_same_numbers_with_another_history_keeps_the_arrays(oracle_model: LatentModel, saved: Path) -> None:
    again = LatentModel(oracle_model.encoder, oracle_model.reward, oracle_model.noise, oracle_model.schema)
    before = arrays_file(saved).name
    again.save(saved)
    assert arrays_file(saved).name == before
    assert_same(LatentModel.load(saved), again)


# What is refused


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_arrays_file_is_refused(saved: Path, kept: int) -> None:
    file = arrays_file(saved)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ModelFileError, match=r"arrays-.* is damaged.*cut short.*restore a copy or fit the model again"):
        LatentModel.load(saved)


@pytest.mark.parametrize("position", [3, 50, -1])
def test_one_flipped_bit_is_noticed(saved: Path, position: int) -> None:
    file = arrays_file(saved)
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match="is damaged"):
        LatentModel.load(saved)


def test_an_edited_number_in_the_manifest_is_noticed(saved: Path) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["schema"]["context"][0]["fill"] += 1.0

    rewrite(saved, edit, sign=False)
    with pytest.raises(ModelFileError, match=r"manifest\.json was changed after it was saved"):
        LatentModel.load(saved)
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(text[: len(text) // 2])
    with pytest.raises(ModelFileError, match=r"manifest\.json is damaged.*Restore a copy"):
        LatentModel.load(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b'"ilb-latent-model"',
        b"{}",
        b'{"name": "My web app", "icons": []}',
        b"\xff\xfe\x00",
        b"\x80\x04.",
    ],
)
def test_a_foreign_file_under_our_name_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"manifest\.json is (not the manifest of a LatentModel|damaged)"):
        LatentModel.load(tmp_path)


@pytest.mark.parametrize("version", [5, 99, "4", None, 1.5])
def test_a_newer_format_asks_for_an_upgrade(saved: Path, version: Any) -> None:
    rewrite(saved, lambda manifest: manifest.update(format_version=version))
    with pytest.raises(ModelFileError, match=r"reads up to 4\. Upgrade identifiable-latent-bandits"):
        LatentModel.load(saved)


def test_a_newer_format_is_named_even_if_its_hash_is_made_otherwise(saved: Path) -> None:
    rewrite(saved, lambda manifest: manifest.update(format_version=5), sign=False)
    with pytest.raises(ModelFileError, match="format version 5"):
        LatentModel.load(saved)


def test_a_missing_path_a_file_and_an_empty_directory_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, seen in [("nowhere", "no such directory"), ("file", "it is a file"), ("empty", r"no manifest\.json")]:
        with pytest.raises(ModelFileError, match=rf"{name} is not a saved model \({seen}.*Give the directory"):
            LatentModel.load(tmp_path / name)


def test_a_missing_arrays_file_is_named(saved: Path) -> None:
    file = arrays_file(saved)
    file.unlink()
    with pytest.raises(ModelFileError, match=rf"'{file.name}', which is not there\. Copy the whole directory"):
        LatentModel.load(saved)


@pytest.mark.parametrize("kind", ["parent", "absolute", "deeper", "up", "empty"])
def test_arrays_outside_the_directory_are_refused(saved: Path, tmp_path: Path, kind: str) -> None:
    file = arrays_file(saved)
    (saved / "inner").mkdir()
    for place in (tmp_path, saved / "inner"):
        (place / file.name).write_bytes(file.read_bytes())
    names = {
        "parent": f"../{file.name}",
        "absolute": str(tmp_path / file.name),
        "deeper": f"inner/{file.name}",
        "up": "..",
        "empty": "",
    }
    rewrite(saved, lambda manifest: manifest["arrays"].update(file=names[kind]))
    with pytest.raises(ModelFileError, match="names its arrays as"):
        LatentModel.load(saved)


@pytest.mark.parametrize("module", ["os.system", "Path", "LatentModel", "Provenance", "__import__"])
def test_an_unknown_module_is_named_with_its_place(saved: Path, module: str) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["model"]["encoder"]["fields"]["mixing"]["module"] = module

    rewrite(saved, change)
    with pytest.raises(ModelFileError, match=f"encoder.mixing is a '{module}', which this ILB does not know"):
        LatentModel.load(saved)


WRONG_CONTENTS = {
    "no arrays": lambda manifest: manifest.pop("arrays"),
    "arrays are text": lambda manifest: manifest.update(arrays="arrays.safetensors"),
    "arrays without a name": lambda manifest: manifest["arrays"].pop("file"),
    "arrays without a hash": lambda manifest: manifest["arrays"].pop("sha256"),
    "no model": lambda manifest: manifest.pop("model"),
    "model is a list": lambda manifest: manifest.update(model=[]),
    "model lacks a part": lambda manifest: manifest["model"].pop("noise"),
    "model has one part more": lambda manifest: manifest["model"].update(policy=manifest["model"]["reward"]),
    "model has a second schema": lambda manifest: manifest["model"].update(schema=manifest["model"]["reward"]),
    "part is null": lambda manifest: manifest["model"].update(reward=None),
    "field is null": lambda manifest: manifest["model"]["reward"]["fields"].update(theta=None),
    "part is text": lambda manifest: manifest["model"].update(reward="array"),
    "module is a list": lambda manifest: manifest["model"]["reward"].update(module=[]),
    "fields are a list": lambda manifest: manifest["model"]["reward"].update(fields=[]),
    "field is not there": lambda manifest: manifest["model"]["reward"]["fields"].pop("theta"),
    "field is unknown": lambda manifest: manifest["model"]["reward"]["fields"].update(bias={"array": "reward.theta"}),
    "array is unknown": lambda manifest: manifest["model"]["reward"]["fields"].update(theta={"array": "nowhere"}),
    "no schema": lambda manifest: manifest.pop("schema"),
    "schema is text": lambda manifest: manifest.update(schema="x"),
    "schema lacks actions": lambda manifest: manifest["schema"].pop("actions"),
    "no provenance": lambda manifest: manifest.pop("provenance"),
    "provenance is a list": lambda manifest: manifest.update(provenance=[1]),
    "provenance is from elsewhere": lambda manifest: manifest["provenance"].update(author="me"),
    "provenance lacks notes": lambda manifest: manifest["provenance"].pop("notes"),
}


@pytest.mark.parametrize("name", WRONG_CONTENTS)
def test_a_manifest_with_wrong_contents_is_refused_even_if_its_hash_is_right(saved: Path, name: str) -> None:
    rewrite(saved, WRONG_CONTENTS[name])
    with pytest.raises(ModelFileError):
        LatentModel.load(saved)


def test_a_part_that_is_null_is_named(saved: Path) -> None:
    assert json.loads((saved / "manifest.json").read_text())["model"]["moment"] is None
    rewrite(saved, WRONG_CONTENTS["part is null"])
    with pytest.raises(ModelFileError, match=r"reward is null.*Restore a copy or fit the model again"):
        LatentModel.load(saved)


def test_saving_onto_a_file_is_refused(oracle_model: LatentModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelFileError, match=r"is a file.*a model is saved as a directory"):
        oracle_model.save(tmp_path / "file")
    with pytest.raises(ModelFileError, match="is a file"):
        oracle_model.save(tmp_path / "file" / "model")
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_among_other_files_is_refused(oracle_model: LatentModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ModelFileError, match="holds other files and no ILB model"):
        oracle_model.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_saving_over_the_manifest_of_something_else_is_refused(oracle_model: LatentModel, tmp_path: Path) -> None:
    web_app = '{"name": "My web app", "icons": []}'
    (tmp_path / "manifest.json").write_text(web_app)
    with pytest.raises(ModelFileError, match="no ILB model"):
        oracle_model.save(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == web_app


def test_saving_over_a_damaged_model_mends_it(oracle_model: LatentModel, saved: Path) -> None:
    arrays_file(saved).write_bytes(b"")
    oracle_model.save(saved)
    assert_same(LatentModel.load(saved), oracle_model)


def test_an_encoder_that_has_no_place_in_a_file_is_refused_by_name(oracle_model: LatentModel, tmp_path: Path) -> None:
    class Homemade(eqx.Module):
        def __call__(self, context: Array) -> Array:
            return context

    model = LatentModel(ComposedEncoder(Affine(jnp.eye(3), jnp.zeros(3)), Homemade()), oracle_model.reward, NOISE)
    with pytest.raises(ModelFileError, match=r"encoder\.second is a Homemade, which ILB can't save"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


NOISE = NoiseLevels(jnp.eye(3), jnp.zeros(3), jnp.eye(3), jnp.ones(ACTIONS), jnp.asarray(0.0))


@pytest.mark.parametrize("value", [np.nan, np.inf, object()], ids=["nan", "inf", "object"])
def test_a_history_that_json_cannot_hold_is_refused_and_the_old_model_stays(
    oracle_model: LatentModel, maxout_model: LatentModel, saved: Path, value: Any
) -> None:
    provenance = Provenance("0.1.0", 0, {}, 1, 1, scores={"reward_r2": value})
    model = LatentModel(maxout_model.encoder, maxout_model.reward, maxout_model.noise, None, provenance)
    with pytest.raises(ModelFileError, match="provenance"):
        model.save(saved)
    assert_same(LatentModel.load(saved), oracle_model)


# What a crash leaves behind


class Crash(BaseException):
    """Not even an Exception: as little can be done about it as about a power cut."""


def crash_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> list[tuple[Any, ...]]:
    """Let call `number` of a function crash; return what counts the calls."""
    original, calls = getattr(owner, name), []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise Crash
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, wrapped)
    return calls


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (Path, "open")])
@pytest.mark.parametrize("number", [1, 2])
def test_a_save_that_dies_half_way_leaves_the_old_model(
    oracle_model: LatentModel, maxout_model: LatentModel, saved: Path, owner: Any, name: str, number: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, owner, name, number)
        with pytest.raises(Crash):
            maxout_model.save(saved)
    assert_same(LatentModel.load(saved), oracle_model)
    assert not list(saved.glob("*.draft"))
    maxout_model.save(saved)
    assert_same(LatentModel.load(saved), maxout_model)
    assert len(list(saved.iterdir())) == 2


def test_a_save_that_dies_while_tidying_leaves_the_new_model(maxout_model: LatentModel, saved: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, Path, "unlink", 1)
        with pytest.raises(Crash):
            maxout_model.save(saved)
    assert_same(LatentModel.load(saved), maxout_model)


def test_a_save_that_is_killed_leaves_the_old_model(
    oracle_model: LatentModel, maxout_model: LatentModel, saved: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, os, "fsync", 2)
        patch.setattr(Path, "unlink", lambda *args, **kwargs: None)  # a killed process tidies nothing
        with pytest.raises(Crash):
            maxout_model.save(saved)
    assert list(saved.glob("*.draft"))
    assert_same(LatentModel.load(saved), oracle_model)


@pytest.mark.parametrize("number", [1, 2])
def test_a_first_save_that_dies_leaves_no_model_and_can_be_repeated(
    oracle_model: LatentModel, tmp_path: Path, number: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, os, "fsync", number)
        with pytest.raises(Crash):
            oracle_model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is not a saved model"):
        LatentModel.load(tmp_path / "model")
    oracle_model.save(tmp_path / "model")
    assert_same(LatentModel.load(tmp_path / "model"), oracle_model)


def test_contents_reach_the_disk_before_their_names(
    oracle_model: LatentModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    synced, moved = os.fsync, Path.replace

    def sync(handle: int) -> None:
        events.append("sync")
        synced(handle)

    def move(source: Path, to: Path) -> Path:
        events.append(to.name.split("-")[0].split(".")[0])
        return moved(source, to)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", move)
    oracle_model.save(tmp_path / "model")
    assert events.index("sync") < events.index("arrays") < events.index("manifest")
    assert "sync" in events[events.index("arrays") + 1 : events.index("manifest")]


# Compiled programs


def test_a_refitted_or_loaded_model_runs_in_the_program_compiled_before(
    maxout_model: LatentModel, tmp_path: Path
) -> None:
    traces = []

    @jax.jit
    def values(model: LatentModel, context: Array) -> Array:
        traces.append(context.shape)
        return model.reward(model.encoder(context))

    refitted = complete_model(maxout_encoder(2), recorded(2), Provenance("0.1.0", 8, {}, 1200, 40))
    refitted.save(tmp_path / "model")
    context = jnp.ones(DIM)
    outputs = [
        values(model.bare(), context) for model in (maxout_model, refitted, LatentModel.load(tmp_path / "model"))
    ]
    assert len(traces) == 1
    assert not np.allclose(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[1], outputs[2])


def test_a_bare_model_differs_in_labels_and_history_only(maxout_model: LatentModel) -> None:
    bare = maxout_model.bare()
    assert (bare.schema, bare.provenance) == (None, None)
    assert bare.encoder is maxout_model.encoder
    assert bare.reward is maxout_model.reward
    assert bare.noise is maxout_model.noise


def test_a_model_introduces_itself(maxout_model: LatentModel) -> None:
    assert repr(maxout_model) == "LatentModel(n=3, K=4, fitted on 1200 rows)"
    assert repr(maxout_model.bare()) == "LatentModel(n=3, K=4)"


def test_a_model_on_raw_contexts_scales_them_as_its_schema_does(maxout_model: LatentModel) -> None:
    rng = np.random.default_rng(1)
    raw = rng.normal([25.0, 0.1, -300.0], [3.0, 0.02, 40.0], size=(60, DIM))
    frame = pd.DataFrame(raw, columns=["mmse", "ratio", "offset"])
    frame = frame.assign(patient=np.repeat(np.arange(6), 10), drug=rng.integers(2, size=60), gain=rng.normal(size=60))
    logs = Logs.from_frame(frame, instance="patient", action="drug", reward="gain")
    model = LatentModel(maxout_model.encoder, maxout_model.reward, maxout_model.noise, logs.schema)
    on_raw = model.on_raw_contexts()
    expected = jax.vmap(model.encoder)(jnp.asarray(logs.context))
    np.testing.assert_allclose(jax.vmap(on_raw.encoder)(jnp.asarray(raw, jnp.float32)), expected, atol=1e-3)
    assert on_raw.schema is None
    assert on_raw.on_raw_contexts() is on_raw


def test_a_provenance_is_of_a_whole_training_unless_it_says_otherwise_and_can_not_be_changed() -> None:
    assert PROVENANCE.interrupted is False
    with pytest.raises(AttributeError):
        PROVENANCE.seed = 8  # type: ignore[misc]
