"""Scrubber: sees to it that no file of the store holds what was erased, now or as soon as nobody reads it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ilb.serve.store.store import AbstractStore

PATIENCE = 2.0
"""Seconds for which whoever erases waits until what was erased is overwritten everywhere."""

PAUSE = 0.05
"""Seconds between two attempts while somebody waits for it."""

AGAIN = 5.0
"""Seconds between two attempts while nobody does."""


class Scrubber:
    """Tries to overwrite what was erased until it could be done; no decision waits for it."""

    def __init__(self, store: AbstractStore, note: Callable[[str, str], None]) -> None:
        self._store = store
        self._note = note
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self.is_late = False
        """Whether files still hold what was erased."""

    def scrub(self) -> bool:
        """Overwrite what was erased; False if that could not be done yet."""
        until = time.monotonic() + PATIENCE
        while not self._store.scrub():
            if time.monotonic() > until:
                self._note("erasure", "somebody reads files that hold what was erased; it is tried again")
                self._go_on()
                return False
            time.sleep(PAUSE)
        return True

    def close(self) -> None:
        self._ending.set()

    def _go_on(self) -> None:
        with self._guard:
            if not self.is_late:
                self.is_late = True
                threading.Thread(target=self._try_again, name="ilb-scrub", daemon=True).start()

    def _try_again(self) -> None:
        while not self._ending.wait(AGAIN):
            with self._guard:
                if self._store.scrub():
                    self.is_late = False
                    return
