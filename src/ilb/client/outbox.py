"""The outbox: what could not be delivered yet, in a small file that survives a crash.

Every change is a line at the end, flushed to disk before anybody relies on it. A line that a crash has torn was never
relied on, and is cut off at the next start. Once nothing waits, the file is written anew without what is settled.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ilb.errors import FileError
from ilb.files import reason, write_whole

if sys.platform != "win32":
    import fcntl

LONGEST = 1000
"""Lines from which on the file is written anew when nothing waits."""


@dataclass(frozen=True)
class Letter:
    """A request that waits. `first` is the decision that it is about, where that has no id yet: it is sent before."""

    number: int
    person: str
    method: str
    path: str
    body: dict[str, Any]
    key: str | None = None
    first: dict[str, Any] | None = None


class Outbox:
    """Letters in the order in which they are to be delivered, and what must be remembered beside them.

    `declared` is what the server last said of its fallback; `told` has actions that the client chose and told while the
    server, unheard, had stored another one, by person and idempotency key.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.declared: dict[str, Any] | None = None
        self.told: dict[tuple[str, str], Any] = {}
        self._waiting: dict[int, Letter] = {}
        self._last = self._lines = 0
        self._guard = threading.RLock()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _claim(file)
            self._read()
            self._handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"can't use the outbox {file}: {reason(error)}. Choose another one.") from error

    @property
    def waiting(self) -> list[Letter]:
        """All letters that wait, in order."""
        with self._guard:
            return list(self._waiting.values())

    def waiting_for(self, people: set[str]) -> list[Letter]:
        return [letter for letter in self.waiting if letter.person in people]

    def find(self, person: str, key: str) -> Letter | None:
        """The letter that waits for this person under this key."""
        return next((one for one in self.waiting_for({person}) if one.key == key), None)

    def put(self, **given: Any) -> Letter:
        """Add a letter; when this returns, it is on disk."""
        with self._guard:
            self._last += 1
            letter = Letter(number=self._last, **given)
            self._write({"letter": asdict(letter)})
            self._waiting[letter.number] = letter
            return letter

    def settle(self, letter: Letter) -> None:
        """Forget a letter that was delivered, or refused."""
        with self._guard:
            if self._waiting.pop(letter.number, None) is not None:
                self._write({"settled": letter.number})
            if not self._waiting and self._lines > LONGEST:
                self._write_anew()

    def remember_declared(self, declared: dict[str, Any]) -> None:
        with self._guard:
            if declared != self.declared:
                self._write({"declared": declared})
                self.declared = declared

    def remember_told(self, person: str, key: str, action: Any) -> None:
        with self._guard:
            self._write({"told": [person, key, action]})
            self.told[person, key] = action

    def set_aside(self, letter: Letter, why: str) -> Path:
        """Write a letter that was refused into a file of its own, for somebody to look at, and forget it here."""
        beside = self.file.with_name(f"{self.file.name}.refused")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _append(handle, {"why": why, "letter": asdict(letter)})
        finally:
            os.close(handle)
        self.settle(letter)
        return beside

    def close(self) -> None:
        with self._guard:
            if self._handle >= 0:
                os.close(self._handle)
                os.close(self._lock)
            self._handle = self._lock = -1

    def _write(self, line: dict[str, Any]) -> None:
        try:
            _append(self._handle, line)
        except OSError as error:
            raise FileError(f"can't write the outbox {self.file}: {reason(error)}.") from error
        self._lines += 1

    def _read(self) -> None:
        if not self.file.exists():
            return
        data = self.file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self.file, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                ((what, value),) = json.loads(line).items()
                self._kinds[what](self, value)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise FileError(
                    f"line {number} of {self.file} is no line of an outbox. Choose another file."
                ) from error
            self._lines += 1

    def _read_letter(self, value: dict[str, Any]) -> None:
        letter = Letter(**value)
        self._waiting[letter.number] = letter
        self._last = max(self._last, letter.number)

    def _read_settled(self, number: int) -> None:
        self._waiting.pop(number, None)

    def _read_declared(self, declared: dict[str, Any]) -> None:
        self.declared = declared

    def _read_told(self, told: list[Any]) -> None:
        person, key, action = told
        self.told[person, key] = action

    def _write_anew(self) -> None:
        kept: list[dict[str, Any]] = [{"told": [*pair, action]} for pair, action in self.told.items()]
        if self.declared is not None:
            kept.append({"declared": self.declared})
        write_whole(self.file, "".join(f"{json.dumps(line)}\n" for line in kept))
        os.close(self._handle)
        self._handle = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines = len(kept)

    _kinds: dict[str, Callable[[Outbox, Any], None]] = {  # noqa: RUF012
        "letter": _read_letter,
        "settled": _read_settled,
        "declared": _read_declared,
        "told": _read_told,
    }


def _append(handle: int, line: dict[str, Any]) -> None:
    """Write a line and wait until it would survive a power cut; if that fails, nothing of it is left."""
    before = os.fstat(handle).st_size
    data = f"{json.dumps(line)}\n".encode()
    try:
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, before)
        raise


def _claim(file: Path) -> int:
    """Make sure that no other client writes to this file; the claim ends with the process, however that ends."""
    handle = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform == "win32":
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise FileError(f"another client uses the outbox {file}. Give each one a file of its own.") from error
    return handle
