"""The store: outcomes on disk under the hash of their task, each written whole or not at all.

    results/<hash>.parquet     the table, with the task, its cost and its warnings in the metadata
    models/<hash>/<seed>/      fitted models, as `LatentModel.save` writes them

A table is put in place after the models that belong to it, so an outcome that can be seen is complete.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ilb.errors import IlbError, ModelFileError
from ilb.files import put_in_place
from ilb.models.storage import MANIFEST
from ilb_paper.learners import Fitted
from ilb_paper.tasks import AbstractTask, Outcome, content_of, hash_of

KEY = b"ilb"
UNREADABLE = (OSError, KeyError, TypeError, ValueError, pa.ArrowException)
Signature = tuple[tuple[Path, int, int], ...]
"""Files with the time and the size of each: as long as it is the same, they need no second look."""


class NotRunError(IlbError):
    """An outcome was asked for whose task was not run, at this size at least."""


class Store:
    """A directory of outcomes; many may read, one writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found_whole: dict[Path, Signature] = {}

    def _table_file(self, task: AbstractTask) -> Path:
        return self.path / "results" / f"{hash_of(task)}.parquet"

    def _models_directory(self, task: AbstractTask) -> Path:
        return self.path / "models" / hash_of(task)

    def __contains__(self, task: AbstractTask) -> bool:
        """Say whether the outcome is here and whole, by reading it once; what can't be read is computed anew."""
        file = self._table_file(task)
        if not file.is_file():
            return False
        try:
            signature = self._signature(task)
            if self._found_whole.get(file) != signature:
                self.about(task)
                _read_checked(file)
                if not all(map(_has_its_arrays, self._model_directories(task))):
                    return False
                self._found_whole[file] = signature
        except UNREADABLE:
            return False
        return True

    def _model_directories(self, task: AbstractTask) -> list[Path]:
        return [self._models_directory(task) / str(seed) for seed in task.model_seeds]

    def _signature(self, task: AbstractTask) -> Signature:
        models = [file for directory in self._model_directories(task) for file in sorted(directory.glob("*"))]
        states = [(file, file.stat()) for file in (self._table_file(task), *models)]
        return tuple((file, state.st_mtime_ns, state.st_size) for file, state in states)

    def put(self, task: AbstractTask, outcome: Outcome) -> None:
        """Keep an outcome: models first, then the table that vouches for them."""
        if outcome.models:
            shutil.rmtree(self._models_directory(task), ignore_errors=True)
            for directory, model in zip(self._model_directories(task), outcome.models, strict=True):
                model.save(directory)
        about = {"content": content_of(task), "cpu_seconds": outcome.cpu_seconds, "warnings": list(outcome.warnings)}
        table = outcome.table.replace_schema_metadata({KEY: json.dumps(about).encode()})
        file = self._table_file(task)
        with put_in_place(file) as (draft,):
            pq.write_table(table, draft, compression="zstd", write_page_checksum=True)

    def table(self, task: AbstractTask) -> pa.Table:
        """Read the table of a task that is done; one that was damaged meanwhile is an error that names the file."""
        file = self._table_file(task)
        try:
            return _read_checked(file)
        except FileNotFoundError:
            raise NotRunError(f"{task.title} was not run.") from None
        except UNREADABLE as error:
            raise _damaged(file, error) from error

    def about(self, task: AbstractTask) -> dict[str, Any]:
        """Read what the outcome says of itself, without its rows."""
        about: dict[str, Any] = json.loads(pq.read_schema(self._table_file(task)).metadata[KEY])
        return about

    def get(self, task: AbstractTask) -> Outcome:
        models = (_load_whole(task, directory) for directory in self._model_directories(task))
        return Outcome(self.table(task), tuple(models))


def _read_checked(file: Path) -> pa.Table:
    """Read all rows; pages that were written with a checksum must have it."""
    return pq.read_table(file, page_checksum_verification=True)


def _has_its_arrays(directory: Path) -> bool:
    """Say whether the arrays of a model are those that its manifest names, without building the model."""
    arrays = json.loads((directory / MANIFEST).read_text())["arrays"]
    return bool(hashlib.sha256((directory / arrays["file"]).read_bytes()).hexdigest() == arrays["sha256"])


def _load_whole(task: AbstractTask, directory: Path) -> Fitted:
    """Load a model; one that can't be loaded loses its manifest, without which it does not count as stored."""
    try:
        return task.load_model(directory)
    except (OSError, ModelFileError) as error:
        manifest = directory / MANIFEST
        if manifest.is_file():
            manifest.replace(manifest.with_name(f"{MANIFEST}.damaged"))
        raise _damaged(directory, error) from error


def _damaged(path: Path, error: Exception) -> IlbError:
    return IlbError(f"{path} can't be read ({error}). Run the same command again: it is computed anew.")
