"""The wire: one request and its answer, repeated with growing pauses as long as there is patience.

Repeating is safe, because the server takes every request once.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ilb.errors import IlbError

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two attempts, doubled from the first to the longest, and cut by chance so that clients spread."""

DOWN = 5.0
"""Seconds after a failure in which nobody waits: each request is tried once."""

LATER = {408, 425, 429}
"""Refusals that say nothing of the request: it may come again."""


class UnreachableError(IlbError, ConnectionError):
    """No server answers, or it can't store anything now."""


class RefusedError(IlbError, ValueError):
    """The server has refused a request, and would again. `status` and `kind` name the problem for programs."""

    def __init__(self, status: int, kind: str, detail: str) -> None:
        self.status = status
        self.kind = kind
        super().__init__(f"{detail} ({status}, {kind})")


IDLE = 32
"""Connections that are kept open while nobody uses them."""


class Wire:
    """Connections to one server, each used by one thread at a time."""

    def __init__(self, address: str, key: str | None, *, timeout: float, patience: float) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise IlbError(f"{address!r} is no address of a server; expected something like http://127.0.0.1:8000.")
        self.address = address
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout, self._patience = timeout, patience
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._failed = float("-inf")

    def send(self, method: str, path: str, body: dict[str, Any] | None = None, key: str | None = None) -> Any:
        """Send a request until it is answered; raises `RefusedError`, or `UnreachableError` when patience ends."""
        now = time.monotonic()
        deadline = now if now < self._failed + DOWN else now + self._patience
        pause = FIRST_PAUSE
        while True:
            try:
                answer = self._send_once(method, path, body, key)
            except UnreachableError:
                wait = pause * random.uniform(0.5, 1.0)
                if time.monotonic() + wait > deadline:
                    self._failed = time.monotonic()
                    raise
                time.sleep(wait)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self._failed = float("-inf")
                return answer

    def close(self) -> None:
        while self._idle:
            with suppress(OSError, IndexError):
                self._idle.pop().close()

    def _send_once(self, method: str, path: str, body: dict[str, Any] | None, key: str | None) -> Any:
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        sent = None if body is None else json.dumps(body, allow_nan=False).encode()
        try:
            status, text = self._exchange(method, self._prefix + path, sent, headers)
        except (OSError, http.client.HTTPException) as error:
            said = " ".join(str(error).split()) or "no answer"
            raise UnreachableError(f"{self.address} does not answer: {type(error).__name__}, {said}.") from error
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if 200 <= status < 300 and isinstance(told, dict):
            return told
        problem = told if isinstance(told, dict) else {}
        detail = str(problem.get("detail", "It answers, but not as `ilb serve` does."))
        if 400 <= status < 500 and status not in LATER and "type" in problem:
            raise RefusedError(status, str(problem["type"]).rpartition("#")[2], detail)
        raise UnreachableError(f"{self.address} answers with {status}: {detail}")

    def _exchange(self, method: str, path: str, sent: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = self._connection()
        may_be_stale = connection.sock is not None
        while True:
            try:
                connection.request(method, path, sent, headers)
                answer = connection.getresponse()
                told = answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()  # what is still on its way would be taken for the next answer
                if not may_be_stale or isinstance(error, TimeoutError):
                    raise
                may_be_stale = False  # the server was started anew since the last request: that is no failure
            else:
                self._keep(connection)
                return told

    def _connection(self) -> http.client.HTTPConnection:
        with suppress(IndexError):
            return self._idle.pop()
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        if len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()
