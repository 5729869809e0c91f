"""The door: what every request passes before anything reads it. Hosts, keys, sizes; and nothing of it is written down.

Paths hold labels of people and bodies their contexts, so neither goes into any log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ilb.serve.keys import Keys, Role
from ilb.serve.metrics import Metrics
from ilb.serve.problems import ProblemError

LARGEST_BODY = 256 * 1024
LONGEST_PATH = 2048

OPEN = re.compile(r"/(livez|readyz|problems)?|/favicon\.ico|/static/.*|/(people|decisions|try|sign-in|sign-out)(/.*)?")
"""What answers without a key: whether it lives, what problems mean, and the pages, which ask browsers to sign in."""

LOOPBACK = {"localhost", "127.0.0.1", "::1"}

FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""What proxies add; behind one, every request seems to come from this machine."""

READING = {"GET", "HEAD", "OPTIONS"}

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
]


class Door:
    """Lets requests in that carry a key, if keys are needed, and are of bearable size; `state` is the application's."""

    def __init__(self, app: ASGIApp, *, keys: Keys | None, metrics: Metrics, state: State) -> None:
        self.state = state
        self._app = app
        self._keys = keys
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The first of each name, as Starlette has it; looked at many times, so read once.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in HEADERS if one[0] not in present)]
            await send(message)

        try:
            scope.setdefault("state", {})["role"] = self._role(scope, headers)
            _require_size(scope, headers)
        except ProblemError as problem:
            await send_problem(problem, send_with_headers)
            return
        body = await _whole_body(receive)
        if body is None:
            await send_problem(_too_large(), send_with_headers)
            return
        began = time.perf_counter()
        await self._app(scope, replay(body, receive), send_with_headers)
        # The template of the route, for the path itself names people.
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.seconds.labels(route).observe(time.perf_counter() - began)

    def _role(self, scope: Scope, headers: Mapping[str, str]) -> Role | None:
        if self._keys is None:
            _require_this_machine(scope["method"], headers)
            return Role.ADMIN
        kind, _, presented = headers.get("authorization", "").partition(" ")
        role = self._keys.role_of(presented.strip()) if kind.lower() == "bearer" else None
        if role is None and not OPEN.fullmatch(scope["path"]):
            raise ProblemError(401, "key-needed", "Send a known key: `Authorization: Bearer KEY`. An admin makes one.")
        return role


def _require_this_machine(method: str, headers: Mapping[str, str]) -> None:
    """Without keys only this machine may ask: no proxy for others, and no web page that a browser happens to show."""
    if _host(headers.get("host", "")) not in LOOPBACK:
        raise ProblemError(
            403, "wrong-host", "Without keys this server answers on loopback only. Ask 127.0.0.1, or set keys."
        )
    if any(name in headers for name in FORWARDED):
        raise ProblemError(
            403,
            "forwarded",
            "This came through a proxy, and without keys anybody could ask through it. Make a key with `ilb key` and "
            "start the server with --keys.",
        )
    if method not in READING and _is_foreign(headers):
        raise ProblemError(
            403,
            "foreign-page",
            "This came from a page of another site, and without keys such pages may not change anything here. Make a "
            "key with `ilb key` and start the server with --keys.",
        )


def _is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that another site's page sends this; programs say neither, and are not meant."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return True
    if origin is None or (origin == "null" and site == "same-origin"):  # so the pages here are told to send it
        return False
    return origin.partition("://")[2].lower() != headers.get("host", "").lower()


def _host(value: str) -> str:
    return value[1:].partition("]")[0] if value.startswith("[") else value.partition(":")[0].lower()


def _require_size(scope: Scope, headers: Mapping[str, str]) -> None:
    if len(scope["path"]) + len(scope.get("query_string", b"")) > LONGEST_PATH:
        raise ProblemError(414, "too-long", f"The address is longer than {LONGEST_PATH} characters. Shorten the label.")
    length = headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 12 or int(length) > LARGEST_BODY):
        raise _too_large()


def _too_large() -> ProblemError:
    return ProblemError(413, "too-large", f"The body is larger than {LARGEST_BODY} bytes. Send fewer columns or tags.")


async def _whole_body(receive: Receive) -> bytes | None:
    """Read the body, however it comes; None if it grows too large, or nobody is there any more."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """Give a body that was read already as if it came now."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def send_problem(problem: ProblemError, send: Any) -> None:
    """Answer with a problem, without the machinery of the application."""
    text = problem.text().encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(text)).encode())]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
