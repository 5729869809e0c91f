"""Models on disk: a directory with `manifest.json` and the arrays in a safetensors file that it names.

The arrays are written first, under a name made of their hash; then the manifest is put in place in one atomic step. A
save that dies half-way therefore leaves the old manifest pointing at the old arrays. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as pack_arrays

from ilb.errors import ModelFileError
from ilb.logs import Schema
from ilb.models.latent import LatentModel, Provenance
from ilb.models.recurrent import RecurrentRegression
from ilb.networks import STORABLE

FORMATS: dict[type[eqx.Module], str] = {
    LatentModel: "ilb-latent-model",
    RecurrentRegression: "ilb-recurrent-regression",
}
"""What can be saved as a whole, and what its manifest calls itself."""

FORMAT_VERSION = 3
MANIFEST = "manifest.json"
OPTIONAL = ("moment",)
"""Parts that a model may lack; their place in the manifest is null, or, before format 3, not there."""

Model = TypeVar("Model", LatentModel, RecurrentRegression)


def save_model(model: LatentModel | RecurrentRegression, path: Path) -> None:
    """Write a model into the directory `path`, replacing the one that is there."""
    arrays: dict[str, np.ndarray] = {}
    values = {part.name: getattr(model, part.name) for part in fields(model)}
    parts = {
        name: None if value is None and name in OPTIONAL else _take_apart(value, name, arrays)
        for name, value in values.items()
        if name not in ("schema", "provenance")
    }
    packed = pack_arrays(arrays)
    digest = hashlib.sha256(packed).hexdigest()
    manifest: dict[str, Any] = {
        "format": FORMATS[type(model)],
        "format_version": FORMAT_VERSION,
        "arrays": {"file": f"arrays-{digest[:16]}.safetensors", "sha256": digest},
        "model": parts,
        "schema": None if model.schema is None else model.schema.to_json(),
        "provenance": None if model.provenance is None else asdict(model.provenance),
    }
    try:
        manifest["content_hash"] = _content_hash(manifest)
        text = json.dumps(manifest, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the schema or the provenance holds a value that a manifest can't ({error}); "
            "expected text, finite numbers, lists and mappings."
        ) from error
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ModelFileError(
            f"{path} is a file, or in one; a model is saved as a directory. Choose another name."
        ) from error
    _refuse_foreign_directory(path, manifest["format"])
    _write_whole(path / manifest["arrays"]["file"], packed)
    _write_whole(path / MANIFEST, text.encode())
    for stale in path.glob("arrays-*.safetensors"):
        if stale.name != manifest["arrays"]["file"]:
            stale.unlink(missing_ok=True)


def load_model(path: Path, kind: type[Model]) -> Model:
    """Read a model and check that it is whole; anything wrong is a `ModelFileError` that says what to do."""
    manifest = _read_manifest(path, FORMATS[kind])
    try:
        return _assemble(manifest, path, kind)
    except ModelFileError:
        raise
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{path} is not a whole model ({error!r}). Restore a copy or fit the model again."
        ) from error


def _assemble(manifest: dict[str, Any], path: Path, kind: type[Model]) -> Model:
    file = path / str(manifest["arrays"]["file"])
    if file.parent != path or not file.is_file():
        raise ModelFileError(f"{path} names its arrays as {file.name!r}, which is not there. Copy the whole directory.")
    packed = file.read_bytes()
    if hashlib.sha256(packed).hexdigest() != manifest["arrays"]["sha256"]:
        raise ModelFileError(
            f"{file} is damaged: its {len(packed)} bytes do not have the hash that {MANIFEST} names. "
            "It was cut short or changed after it was saved; restore a copy or fit the model again."
        )
    arrays = parse_arrays(packed)
    parts: dict[str, Any] = {
        name: None if part is None and name in OPTIONAL else _put_together(part, name, arrays)
        for name, part in manifest["model"].items()
    }
    schema = None if manifest["schema"] is None else Schema.from_json(manifest["schema"])
    provenance = None if manifest["provenance"] is None else _provenance(manifest["provenance"])
    return kind(**parts, schema=schema, provenance=provenance)


def _read_manifest(path: Path, expected: str) -> dict[str, Any]:
    file = path / MANIFEST
    if not file.is_file():
        seen = (
            "no such directory" if not path.exists() else "it is a file" if path.is_file() else f"no {MANIFEST} in it"
        )
        raise ModelFileError(f"{path} is not a saved model ({seen}). Give the directory that `save` wrote.")
    try:
        manifest = json.loads(file.read_text())
    except ValueError as error:
        raise ModelFileError(f"{file} is damaged: {error}. Restore a copy or fit the model again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != expected:
        kinds = {name: kind.__name__ for kind, name in FORMATS.items()}
        found = kinds.get(str(manifest.get("format"))) if isinstance(manifest, dict) else None
        raise ModelFileError(
            f"{file} is not the manifest of a {kinds[expected]}: its format is not {expected!r}."
            + (f" Load it with {found}.load." if found else "")
        )
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version}; this ILB reads up to {FORMAT_VERSION}. "
            "Upgrade identifiable-latent-bandits, or save the model again with this version."
        )
    stated = manifest.pop("content_hash", None)
    if stated != _content_hash(manifest):
        raise ModelFileError(f"{file} was changed after it was saved: its content hash does not match. Restore a copy.")
    return manifest


def _take_apart(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Turn a module into JSON, putting its arrays into `arrays` under dotted names."""
    if isinstance(value, jax.Array | np.ndarray):
        arrays[name] = np.array(value, order="C")  # `ascontiguousarray` would turn scalars into vectors
        return {"array": name}
    if isinstance(value, tuple):
        return [_take_apart(item, f"{name}.{number}", arrays) for number, item in enumerate(value)]
    kind = type(value).__name__
    if STORABLE.get(kind) is type(value):
        inner = {
            part.name: _take_apart(getattr(value, part.name), f"{name}.{part.name}", arrays) for part in fields(value)
        }
        return {"module": kind, "fields": inner}
    raise ModelFileError(f"{name} is a {kind}, which ILB can't save. Mark the class with `ilb.storable`.")


def _put_together(part: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if part is None:
        raise ModelFileError(f"{name} is null: the model lacks it. Restore a copy or fit the model again.")
    if isinstance(part, list):
        return tuple(_put_together(item, f"{name}.{number}", arrays) for number, item in enumerate(part))
    if "array" in part:
        return jnp.asarray(arrays[part["array"]])
    if part["module"] not in STORABLE:
        raise ModelFileError(
            f"{name} is a {part['module']!r}, which this ILB does not know. Upgrade identifiable-latent-bandits, "
            "or import the module that marks it as `storable`."
        )
    inner = {field: _put_together(value, f"{name}.{field}", arrays) for field, value in part["fields"].items()}
    return STORABLE[part["module"]](**inner)


def _provenance(stored: dict[str, Any]) -> Provenance:
    notes = tuple(stored["notes"])
    # Format 1 told of an interruption in a note alone.
    interrupted = stored.get("interrupted", any("interrupted" in note for note in notes))
    lists = {name: tuple(stored.get(name, ())) for name in ("choice", "inflation")}
    return Provenance(**{**stored, "notes": notes, "interrupted": interrupted, **lists})


def _content_hash(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _refuse_foreign_directory(path: Path, expected: str) -> None:
    file = path / MANIFEST
    # `manifest.json` is a common name; ours, even if cut short, begins with our format.
    ours = expected.encode() in file.read_bytes() if file.is_file() else any(path.glob("arrays-*.safetensors*"))
    if any(path.iterdir()) and not ours:
        raise ModelFileError(
            f"{path} holds other files and no ILB model of this kind. Choose an empty or new directory."
        )


def _write_whole(file: Path, content: bytes) -> None:
    """Write beside, flush to disk, and move into place: readers see the old file or the new one, never a part."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
