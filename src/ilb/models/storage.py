"""Models on disk: a directory with `manifest.json` and the arrays in a safetensors file that it names.

The arrays are put in place first, under a name made of their hash; then the manifest, in one atomic step. A save that
dies half-way therefore leaves the old manifest pointing at the old arrays, and what it had begun is swept by the next
save. Saves of one directory wait for each other, in whatever process or thread they are; a reader that meets one looks
again. Nothing is deleted but drafts and arrays that a manifest of this directory has named. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as pack_arrays

from ilb.errors import ModelFileError
from ilb.files import draft_beside, flush_to_disk, locked, reason
from ilb.logs import Schema
from ilb.logs.messages import brief, one_line
from ilb.models.latent import LatentModel, Provenance
from ilb.models.recurrent import RecurrentRegression
from ilb.models.soundness import require_sound
from ilb.networks import STORABLE

FORMATS: dict[type[eqx.Module], str] = {
    LatentModel: "ilb-latent-model",
    RecurrentRegression: "ilb-recurrent-regression",
}
"""What can be saved as a whole, and what its manifest calls itself."""

FORMAT_VERSION = 4
MANIFEST = "manifest.json"
ARRAYS = re.compile(r"arrays-[0-9a-f]{16}\.safetensors")
NAMED = re.compile(rb'"arrays":\s*\{\s*"file":\s*"(arrays-[0-9a-f]{16}\.safetensors)"')
DRAFTS = re.compile(r"(manifest\.json|arrays-[0-9a-f]{16}\.safetensors)\.[0-9a-f-]+\.draft")
OPENING = b'{\n "format": "FORMAT"'
"""How a manifest begins that `save_model` wrote."""

OPTIONAL = ("moment",)
"""Parts that a model may lack; their place in the manifest is null, or, before format 3, not there."""

Model = TypeVar("Model", LatentModel, RecurrentRegression)


def save_model(model: LatentModel | RecurrentRegression, path: Path) -> None:
    """Write a model into the directory `path`, replacing the one that is there."""
    require_sound(model)
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
        with locked(path):
            _refuse_foreign_directory(path, manifest["format"])
            _replace(path, manifest["arrays"]["file"], packed, text.encode())
    except (FileExistsError, NotADirectoryError) as error:
        raise ModelFileError(
            f"{path} is a file, or in one; a model is saved as a directory. Choose another name."
        ) from error
    except (OSError, ValueError) as error:
        if isinstance(error, ModelFileError):
            raise
        why = reason(error) if isinstance(error, OSError) else one_line(error)
        raise ModelFileError(f"can't save a model in {path}: {why}. A model that was there is still there.") from error


def _replace(path: Path, name: str, packed: bytes, text: bytes) -> None:
    """Put arrays and manifest in place, and delete what they replace; no one else is saving here now."""
    old = _swept(path)
    arrays, manifest = path / name, path / MANIFEST
    drafts = draft_beside(arrays), draft_beside(manifest)
    was_there, in_place = arrays.exists(), False
    try:
        # The manifest's draft names the arrays before they are in place: were we killed now, the next save could tell
        # that they are ours.
        for draft, content in zip(drafts, (packed, text), strict=True):
            with draft.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        drafts[0].replace(arrays)
        flush_to_disk(path)
        drafts[1].replace(manifest)
        in_place = True
        with suppress(OSError):
            flush_to_disk(path)
    finally:
        if not in_place:
            for left in drafts if was_there else (*drafts, arrays):
                left.unlink(missing_ok=True)
    for stale in old - {name}:
        (path / stale).unlink(missing_ok=True)


def _swept(path: Path) -> set[str]:
    """Remove what killed saves have left, and give the names of arrays that manifests here have named."""
    left = [file for file in path.iterdir() if DRAFTS.fullmatch(file.name)]
    manifests = [file for file in (path / MANIFEST, *left) if file.name.startswith(MANIFEST)]
    named = {name for file in manifests for name in _named_arrays(file)}
    for draft in left:
        draft.unlink(missing_ok=True)
    return named


def _named_arrays(file: Path) -> Iterator[str]:
    """Find the arrays that a manifest names; one that was cut short names them too, for they come early."""
    with suppress(OSError):
        if (found := NAMED.search(file.read_bytes())) is not None:
            yield found[1].decode()


def load_model(path: Path, kind: type[Model]) -> Model:
    """Read a model and check that it is whole and sound; anything wrong is a `ModelFileError` that says what to do."""
    try:
        manifest, packed = _read_files(path, FORMATS[kind])
        model = _assemble(manifest, packed, kind)
        require_sound(model)
    except ModelFileError:
        raise
    except OSError as error:
        raise ModelFileError(f"can't read a model from {path}: {reason(error)}. Check the path.") from error
    except Exception as error:  # a file may hold anything: nesting without end, huge numbers, zones that are paths
        said = one_line(error)
        raise ModelFileError(
            f"{path} is not a whole model ({type(error).__name__}: {said if len(said) < 200 else said[:200] + '…'}). "
            "Restore a copy or fit the model again."
        ) from error
    return model


def _read_files(path: Path, expected: str) -> tuple[dict[str, Any], bytes]:
    """Read manifest and arrays, again if a save came between the two."""
    while True:
        seen = _state_of(path)
        try:
            manifest = _read_manifest(path, expected)
            return manifest, _read_arrays(path, manifest["arrays"])
        except (ModelFileError, OSError):
            if _state_of(path) == seen:
                raise


def _state_of(path: Path) -> tuple[int, ...]:
    with suppress(OSError, ValueError):
        state = (path / MANIFEST).stat()
        return state.st_ino, state.st_mtime_ns, state.st_size
    return ()


def _read_arrays(path: Path, named: dict[str, Any]) -> bytes:
    file = path / str(named["file"])
    if file.parent != path or not file.is_file():
        raise ModelFileError(
            f"{path} names its arrays as {brief(file.name)}, which is not there. Copy the whole directory."
        )
    packed = file.read_bytes()
    if hashlib.sha256(packed).hexdigest() != named["sha256"]:
        raise ModelFileError(
            f"{file} is damaged: its {len(packed)} bytes do not have the hash that {MANIFEST} names. "
            "It was cut short or changed after it was saved; restore a copy or fit the model again."
        )
    return packed


def _assemble(manifest: dict[str, Any], packed: bytes, kind: type[Model]) -> Model:
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
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} is damaged: {error}. Restore a copy or fit the model again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != expected:
        kinds = {name: kind.__name__ for kind, name in FORMATS.items()}
        found = kinds.get(str(manifest.get("format"))) if isinstance(manifest, dict) else None
        raise ModelFileError(
            f"{file} is not the manifest of a {kinds[expected]}: its format is not {expected!r}."
            + (f" Load it with {found}.load." if found else "")
        )
    version = manifest.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {str(version)[:20]}; this ILB reads up to {FORMAT_VERSION}. "
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
        return jax.device_put(arrays[part["array"]])
    if part["module"] not in STORABLE:
        raise ModelFileError(
            f"{name} is a {brief(part['module'])}, which this ILB does not know. Upgrade identifiable-latent-bandits, "
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
    if file.is_file() or os.path.lexists(file):
        ours = file.is_file() and _is_ours(file.read_bytes(), expected)
    else:
        # A first save that was killed leaves drafts, and perhaps arrays.
        names = [one.name for one in path.iterdir()]
        ours = all(DRAFTS.fullmatch(name) or ARRAYS.fullmatch(name) for name in names)
    if not ours:
        raise ModelFileError(
            f"{path} holds other files and no ILB model of this kind. Choose an empty or new directory."
        )


def _is_ours(content: bytes, expected: str) -> bool:
    """Tell our manifest from others, for the name is a common one; ours, even if damaged, begins with our format."""
    if content[: len(OPENING) + 60].startswith(OPENING.replace(b"FORMAT", expected.encode())):
        return True
    with suppress(ValueError, RecursionError):
        manifest = json.loads(content)
        return isinstance(manifest, dict) and manifest.get("format") == expected and "content_hash" in manifest
    return False
