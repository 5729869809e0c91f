"""Pool: connections that are lent to whoever needs one and used again, so that threads which end leave none behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from ilb.serve.store.store import StoreUnavailableError

IDLE = 8
"""Connections that are kept open while nobody uses them."""

T = TypeVar("T")


class Pool(Generic[T]):
    """Lends connections, each to one at a time; as many are open as are in use, and `IDLE` more at most."""

    def __init__(self, connect: Callable[[], T], close: Callable[[T], None]) -> None:
        self._connect = connect
        self._close = close
        self._idle: list[T] = []
        self._guard = threading.Lock()
        self._is_closed = False

    @contextmanager
    def lend(self) -> Iterator[T]:
        """Lend a connection; one that something went wrong with is not used again."""
        connection = self._take()
        try:
            yield connection
        except BaseException:
            self._close(connection)
            raise
        self._give_back(connection)

    def clear(self) -> None:
        """Close what nobody uses."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            self._close(connection)

    def close(self) -> None:
        """Lend nothing any more; what is in use is closed when it comes back."""
        with self._guard:
            self._is_closed = True
        self.clear()

    def _take(self) -> T:
        with self._guard:
            if self._is_closed:
                raise StoreUnavailableError("the store was closed.")
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, connection: T) -> None:
        with self._guard:
            keep = not self._is_closed and len(self._idle) < IDLE
            if keep:
                self._idle.append(connection)
        if not keep:
            self._close(connection)
