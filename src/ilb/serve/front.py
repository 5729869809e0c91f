"""The front: answers from the first second on that the process lives; who asks for more waits until all is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Application = Callable[[Any, Any, Any], Awaitable[None]]

ANSWERS = {
    "/livez": (200, "application/json", b'{"status":"ok"}'),
    "/readyz": (503, "application/json", b'{"status":"starting","severity":"green"}'),
}
"""What can be said before anything is loaded."""

NOT_STARTED = (
    503,
    "application/problem+json",
    b'{"type":"/problems#not-started","title":"Not started","status":503,"detail":"The server could not start, or was '
    b'stopped before it had. Nothing was done: ask again when it runs."}',
)


class Front:
    """An application in front of one that is not there yet."""

    def __init__(self) -> None:
        self._app: Application | None = None
        self._decided = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the application is there."""
        return self._app is not None

    def open(self, app: Application) -> None:
        """Let everybody in who waits."""
        self._app = app
        self._decided.set()

    def give_up(self) -> None:
        """Send everybody away who waits; after `open` this changes nothing."""
        self._decided.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            answer = ANSWERS.get(scope["path"])
            if answer is None:
                await self._decided.wait()
                answer = NOT_STARTED
            if self._app is None:
                await _tell(send, *answer)
                return
        await self._app(scope, receive, send)


async def _tell(send: Any, status: int, kind: str, text: bytes) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(text)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
