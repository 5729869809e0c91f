"""The store: outcomes on disk under the hash of their task, each written whole or not at all.

    results/<hash>.parquet     the table, with the task, its cost and its warnings in the metadata
    models/<hash>/<seed>/      fitted models, as `LatentModel.save` writes them

A table is put in place after the models that belong to it, so an outcome that can be seen is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ilb.experiments.learners import Fitted
from ilb.experiments.tasks import FitTask, Outcome, Task, content_of, hash_of
from ilb.model import LatentModel
from ilb.recurrent import RecurrentRegression
from ilb.storage import MANIFEST

KEY = b"ilb"


class Store:
    """A directory of outcomes; many may read, one writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _table_file(self, task: Task) -> Path:
        return self.path / "results" / f"{hash_of(task)}.parquet"

    def _models_directory(self, task: Task) -> Path:
        return self.path / "models" / hash_of(task)

    def __contains__(self, task: Task) -> bool:
        """Say whether the outcome is here and whole; what can't be read is computed anew."""
        if not self._table_file(task).is_file():
            return False
        try:
            self.about(task)
        except (OSError, KeyError, ValueError, pa.ArrowInvalid):
            return False
        seeds = task.seeds if isinstance(task, FitTask) else ()
        return all((self._models_directory(task) / str(seed) / MANIFEST).is_file() for seed in seeds)

    def put(self, task: Task, outcome: Outcome) -> None:
        """Keep an outcome: models first, then the table that vouches for them."""
        if outcome.models and isinstance(task, FitTask):
            directory = self._models_directory(task)
            shutil.rmtree(directory, ignore_errors=True)
            for seed, model in zip(task.seeds, outcome.models, strict=True):
                model.save(directory / str(seed))
        about = {"content": content_of(task), "cpu_seconds": outcome.cpu_seconds, "warnings": list(outcome.warnings)}
        table = outcome.table.replace_schema_metadata({KEY: json.dumps(about).encode()})
        file = self._table_file(task)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.draft")
        pq.write_table(table, draft, compression="zstd")
        draft.replace(file)

    def table(self, task: Task) -> pa.Table:
        """Read the table of a task that is done."""
        return pq.read_table(self._table_file(task))

    def about(self, task: Task) -> dict[str, Any]:
        """Read what the outcome says of itself, without its rows."""
        about: dict[str, Any] = json.loads(pq.read_schema(self._table_file(task)).metadata[KEY])
        return about

    def get(self, task: Task) -> Outcome:
        """Read an outcome with its models, to start another task from."""
        models: tuple[Fitted, ...] = ()
        if isinstance(task, FitTask):
            directory = self._models_directory(task)
            kind = RecurrentRegression if task.learner == "Regression" else LatentModel
            models = tuple(kind.load(directory / str(seed)) for seed in task.seeds)
        return Outcome(self.table(task), models)
