"""Who is signed in: a browser shows a key once and then carries a random word, in a cookie no script can read."""

from __future__ import annotations

import secrets
import threading
import time

from ilb.serve.keys import Role, digest_of

COOKIE = "ilb_session"
LASTS = 8 * 3600
"""Seconds until a browser has to show a key again."""

MOST = 1000


class Sessions:
    """Sessions of this process; they end with it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: dict[str, tuple[Role, float]] = {}

    def begin(self, role: Role) -> str:
        """Give a word for a role; only its hash is kept."""
        word = secrets.token_urlsafe(32)
        with self._guard:
            now = time.monotonic()
            self._open = {name: one for name, one in self._open.items() if one[1] > now}
            while len(self._open) >= MOST:
                del self._open[next(iter(self._open))]
            self._open[digest_of(word)] = (role, now + LASTS)
        return word

    def role_of(self, word: str | None) -> Role | None:
        with self._guard:
            role, until = self._open.get(digest_of(word or ""), (None, 0.0))
        return role if time.monotonic() < until else None

    def end(self, word: str | None) -> None:
        with self._guard:
            self._open.pop(digest_of(word or ""), None)
