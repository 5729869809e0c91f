"""Express: requests in good order that decide or learn, carried out without the machinery of the framework.

To find a route, solve what it depends on and wrap the answer takes FastAPI longer than the decision takes the model.
Here only what is in good order is carried out. Everything else (another content type, a body that does not fit, a key
of another role) goes on to the framework, so that requests are refused in one place, and in its words.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from ilb.serve import counter
from ilb.serve.bodies import (
    LONGEST_LABEL,
    Body,
    CorrectionBody,
    DecisionBody,
    ObservationBody,
    OutcomeBody,
    VoidBody,
)
from ilb.serve.door import replay
from ilb.serve.keys import Role
from ilb.serve.office import LONGEST_ID, Office, is_good_for
from ilb.serve.operations import Answer
from ilb.serve.problems import ProblemError
from ilb.serve.refusals import refusal
from ilb.serve.strict import read_strictly

KEY = re.compile(rb"[!-~]{1,200}")
JSON = (b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8")


class Lane(NamedTuple):
    """One kind of request: where it is asked (`path` is the template), what of, and by whom it is carried out."""

    path: str
    before: str
    longest: int
    body: type[Body]
    carry_out: Callable[[Office, str, Any, str | None], Awaitable[Answer]]


def _of_people(last: str, body: type[Body], carry_out: Callable[..., Awaitable[Answer]]) -> Lane:
    return Lane(f"/v1/people/{{person}}/{last}", "/v1/people/", LONGEST_LABEL, body, carry_out)


def _of_decisions(last: str, body: type[Body], carry_out: Callable[..., Awaitable[Answer]]) -> Lane:
    return Lane(f"/v1/decisions/{{decision}}/{last}", "/v1/decisions/", LONGEST_ID, body, carry_out)


LANES = {
    ("POST", "decisions"): _of_people("decisions", DecisionBody, counter.decide),
    ("POST", "observations"): _of_people("observations", ObservationBody, counter.observe),
    ("POST", "outcome"): _of_decisions("outcome", OutcomeBody, counter.learn),
    ("PUT", "outcome"): _of_decisions("outcome", CorrectionBody, counter.correct),
    ("POST", "void"): _of_decisions("void", VoidBody, counter.void),
}
"""By method and by what an address ends with."""


class Express:
    """Carries out what is in good order; `app` gets the rest."""

    def __init__(self, app: ASGIApp, *, office: Office) -> None:
        self._app = app
        self._office = office

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = _lane_of(scope)
        if lane is None:
            await self._app(scope, receive, send)
            return
        about, headers = scope["path"][len(lane.before) :].partition("/")[0], scope["headers"]
        content = (await receive())["body"]
        body, keys = _read(lane, content, headers), [value for name, value in headers if name == b"idempotency-key"]
        if body is None or len(keys) > 1 or not all(map(KEY.fullmatch, keys)):
            await self._app(scope, replay(content, receive), send)
            return
        scope["route"] = lane
        try:
            answer = await lane.carry_out(self._office, about, body, keys[0].decode() if keys else None)
        except ProblemError as problem:
            await refusal(problem, self._office.metrics)(scope, receive, send)
            return
        text = answer.text.encode()
        length = (b"content-length", str(len(text)).encode())
        told = [length, (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": answer.status, "headers": told})
        await send({"type": "http.response.body", "body": text})


def _lane_of(scope: Scope) -> Lane | None:
    """Find what a request is about, if it is one of these and its key is good for it."""
    if scope["type"] != "http" or scope.get("root_path"):
        return None
    rest, _, last = scope["path"].rpartition("/")
    lane = LANES.get((scope["method"], last))
    if lane is None or not rest.startswith(lane.before) or not is_good_for(scope["state"]["role"], Role.DECIDE):
        return None
    about = rest[len(lane.before) :]
    return lane if 0 < len(about) <= lane.longest and "/" not in about else None


def _read(lane: Lane, content: bytes, headers: list[tuple[bytes, bytes]]) -> Body | None:
    """Read a body; None if it does not fit."""
    kinds = [value for name, value in headers if name == b"content-type"]
    if len(kinds) != 1 or kinds[0].lower() not in JSON:
        return None
    try:
        return lane.body.model_validate(read_strictly(content))
    except ValueError:  # it is no JSON, or pydantic says so
        return None
