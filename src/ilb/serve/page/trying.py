"""The form that asks what would be decided: its fields from the model's schema, and what was typed as a context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ilb.errors import IlbError
from ilb.serve.names import ActionNames
from ilb.serve.people import ServedModel
from ilb.serve.problems import ProblemError

MOST_BOXES = 60
"""Actions that are listed to be ruled out."""


class Field(NamedTuple):
    """A field: the name that it has in the form, the column, what may be chosen, and what stands in it."""

    name: str
    column: str
    choices: list[str]
    value: str


def fields_of(served: ServedModel, typed: Mapping[str, str]) -> list[Field]:
    """Give a field for each column, with what was typed, or a usual value."""
    usual = served.usual_context
    fields = []
    for place, column in enumerate(served.schema.context):
        name, value = f"column-{place}", usual[column.name]
        shown = typed.get(name, "" if value is None else str(value))
        fields.append(Field(name, column.name, [str(label) for label in column.labels], shown))
    return fields


def context_of(served: ServedModel, typed: Mapping[str, str]) -> dict[str, Any]:
    """Read what was typed; an empty field is a missing value. Raises `ProblemError` where it makes no sense."""
    context: dict[str, Any] = {}
    for place, column in enumerate(served.schema.context):
        text = typed.get(f"column-{place}", "").strip()
        labels = {str(label): label for label in column.labels}
        context[column.name] = None if not text else labels.get(text, text) if labels else _number(text)
    try:
        served.schema.encode(context)
    except IlbError as error:
        raise ProblemError(422, "context", str(error)) from error
    return context


def forbidden_of(names: ActionNames, ticked: list[str]) -> list[Any]:
    return [names.name(names.label(text)) for text in ticked]


def _number(text: str) -> float | str:
    """Read a number; anything else stays as it is: dates for the clock, and slips, which the schema refuses."""
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return text
