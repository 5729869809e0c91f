"""What the routes share: the service behind them, who may ask, and checks of what is asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import Header, Path, Request

from ilb.errors import IlbError
from ilb.live.slips import FAR
from ilb.serve import answers
from ilb.serve.bodies import LONGEST_LABEL
from ilb.serve.keys import Role
from ilb.serve.metrics import Metrics
from ilb.serve.problems import ProblemError
from ilb.serve.service import Service
from ilb.serve.status import Health

KEY = r"^[!-~]{1,200}$"
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.Problem, "description": words, "content": {"application/problem+json": {}}}
    for status, words in {
        400: "The request can't be read.",
        401: "A key is needed.",
        403: "The key is not good for this.",
        404: "There is no such thing.",
        409: "It contradicts what is stored.",
        410: "It was erased.",
        413: "The body is too large.",
        414: "The address is too long.",
        422: "The request does not make sense.",
        429: "Too many requests wait.",
        503: "Nothing can be stored now.",
    }.items()
}

Person = Annotated[
    str, Path(min_length=1, max_length=LONGEST_LABEL, description="The label of the person, without a slash.")
]
DecisionId = Annotated[str, Path(max_length=64, description="The `decision_id` of an answer.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=KEY,
        description="Names the request: if it comes again, it is answered, not done again.",
    ),
]


@dataclass
class Office:
    """All that the routes share; `label` is what a person's label becomes at the door."""

    service: Service
    metrics: Metrics
    health: Health
    label: Callable[[str], str]


def office_of(request: Request, *roles: Role) -> Office:
    """Give what the routes share to whom may have it: a key of one of these roles, or an admin's."""
    role = getattr(request.state, "role", None)
    if role is not Role.ADMIN and role not in roles:
        raise ProblemError(
            403, "role", f"This key is not good for that; it takes one for {' or '.join(roles) or 'admin'}."
        )
    office: Office = request.app.state.office
    return office


def label_of(office: Office, person: str) -> str:
    if CONTROLS.search(person) or not person.strip():
        raise ProblemError(422, "label", "A label of a person has 1 to 200 characters, and no control characters.")
    return office.label(person)


def key_of(key: str | None, *, needed: bool = True) -> str:
    if key is None and not needed:
        return ""
    if key is None:
        raise ProblemError(
            400,
            "idempotency-key",
            "Send a header `Idempotency-Key` of 1 to 200 visible ASCII characters: new for each new request, the same "
            "when it is repeated.",
        )
    return key


def with_names(office: Office, asked: dict[str, Any]) -> dict[str, Any]:
    """Replace the actions of a request by their names; raises for those that are not known."""
    names = office.service.names
    for field in ("allowed", "forbidden"):
        if asked.get(field) is not None:
            asked[field] = [names.name(names.label(one)) for one in asked[field]]
    for holder, field in ((asked, "taken"), (asked, "action"), (asked.get("made") or {}, "action")):
        if holder.get(field) is not None:
            holder[field] = names.name(names.label(holder[field]))
    return asked


def require_sense(office: Office, context: dict[str, Any]) -> None:
    """Raise if the model can't read a context: that is the sender's slip, and not a failure of the model."""
    served = office.service.engine.served
    if served is None:
        return
    try:
        row = served.schema.encode(context)
    except IlbError as error:
        raise ProblemError(422, "context", str(error)) from error
    if np.abs(row).max(initial=0.0) > FAR:
        office.metrics.far.inc()
