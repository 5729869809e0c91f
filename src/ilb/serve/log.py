"""The log as a table: a row for each decision, which `Logs.from_frame` and evaluations read, propensities included."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ilb.logs import Schema
from ilb.serve.events import SERVICE, Event, Kind, Mode
from ilb.serve.names import ActionNames
from ilb.serve.store.store import AbstractStore

OWN = ("decision", "number", "mode", "propensity", "model", "policy", "fallback", "decided_at", "observed_at")
"""Columns beside those of the schema; one that a context has, too, gets `ilb_` before its name."""


def stored_schema(store: AbstractStore) -> Schema | None:
    """The schema of the model that was last in charge, as the log has it."""
    for event in reversed(store.events_of(SERVICE)):
        if event.body.get("what") == "promoted":
            return Schema.from_json(event.body["schema"])
    return None


def decisions_with_outcomes(store: AbstractStore, after: int = 0) -> Iterator[tuple[Event, Event | None]]:
    """Go through all decisions behind a position, each with the outcome in force; erased ones are left out.

    Voided decisions come without: what was not done has no outcome.
    """
    kinds = [Kind.DECISION]
    position = after
    while decided := store.page(position, kinds=kinds):
        position = decided[-1].position
        about = store.about([str(event.decision) for event in decided])
        for event in decided:
            told = [one for one in about[str(event.decision)] if one.kind in (Kind.OUTCOME, Kind.CORRECTION)]
            voided = any(one.kind == Kind.VOID for one in about[str(event.decision)])
            if not event.body.get("erased") and not voided:
                yield event, told[-1] if told else None


def table_rows(store: AbstractStore, schema: Schema, after: int = 0) -> Iterator[dict[str, Any]]:
    """Give a row for each decision of which is known what was done, under the names that the schema has for columns.

    The reward is missing as long as it has not come. The propensity is that of what was done, and missing where
    somebody else chose it: in shadow and apprentice mode, and where something else was done than decided.
    """
    names = ActionNames.of(schema)
    contexts = [column.name for column in schema.context]
    named = _own_names(schema)
    time = schema.time or schema.free_time_name
    for event, told in decisions_with_outcomes(store, after):
        answer, context = event.body["answer"], event.body["request"]["context"]
        done = told.body["action"] if told is not None else _done(event)
        if done is None:
            continue
        ours = answer["mode"] == Mode.LIVE and done == answer["action"]
        own = {
            "decision": event.decision,
            "number": answer["number"],
            "mode": answer["mode"],
            "propensity": answer["propensity"] if ours else None,
            "model": answer["model"],
            "policy": answer["policy"],
            "fallback": None if answer["fallback"] is None else answer["fallback"]["cause"],
            "decided_at": answer["decided_at"],
            "observed_at": None if told is None else told.body["answer"].get("observed_at", told.at),
        }
        yield {
            schema.instance: event.person,
            time: context.get(time, answer["number"]),
            **{name: context.get(name) for name in contexts if name != time},
            schema.action: done if (label := names.find(done)) is None else label,  # of a model before this one
            schema.reward: None if told is None else float(told.body["reward"]),
            **{named[name]: value for name, value in own.items()},
        }


def as_table(rows: Iterator[dict[str, Any]], schema: Schema) -> pa.Table:
    """Put rows in an Arrow table; a column that holds more than one kind of value becomes text."""
    listed = list(rows)
    time = schema.time or schema.free_time_name
    contexts = [column.name for column in schema.context if column.name != time]
    columns = [schema.instance, time, *contexts, schema.action, schema.reward, *_own_names(schema).values()]
    return pa.table({name: _column([row[name] for row in listed]) for name in columns})


def parquet_bytes(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _column(values: list[Any]) -> pa.Array:
    attempts: tuple[Callable[[Any], Any], ...] = (lambda value: value, float, str)
    for attempt in attempts:
        try:
            return pa.array([None if value is None else attempt(value) for value in values])
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError):
            continue
    return pa.nulls(len(values))


def _done(event: Event) -> Any:
    """What was done, as far as the decision tells."""
    answer = event.body["answer"]
    return answer["action"] if answer["mode"] == Mode.LIVE else event.body.get("taken")


def _own_names(schema: Schema) -> dict[str, str]:
    taken = {schema.instance, schema.time, schema.action, schema.reward, *(column.name for column in schema.context)}
    return {name: f"ilb_{name}" if name in taken else name for name in OWN}
