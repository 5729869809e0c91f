"""What the routes share: the service behind them, who may ask, and checks of what is asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Header, Path, Request

from ilb.serve import answers
from ilb.serve.bodies import LONGEST_LABEL
from ilb.serve.keys import Role
from ilb.serve.metrics import Metrics
from ilb.serve.postbox import Postbox
from ilb.serve.problems import ProblemError, unknown_decision
from ilb.serve.service import Service
from ilb.serve.status import Health

LONGEST_ID = 64

KEY = r"^[!-~]{1,200}$"
ID = re.compile("[0-9a-f]{24}")
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
DecisionId = Annotated[str, Path(max_length=LONGEST_ID, description="The `decision_id` of an answer.")]
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
    postbox: Postbox


def is_good_for(role: Role | None, *roles: Role) -> bool:
    """Whether a key of this role opens what takes one of these; an admin's opens everything."""
    return role is Role.ADMIN or role in roles


def office_of(request: Request, *roles: Role) -> Office:
    """Give what the routes share to whom may have it: a key of one of these roles, or an admin's."""
    if not is_good_for(getattr(request.state, "role", None), *roles):
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


def id_of(decision: str) -> str:
    """Give an id as it came, if it can be one; the store is not asked for anything else."""
    if not ID.fullmatch(decision):
        raise unknown_decision()
    return decision
