"""Keys of programs that may ask: each with a role, kept as hashes, compared in constant time.

A file of keys has a line for each: role, SHA-256 of the key, a name. Keys have 256 random bits, so a plain hash hides
them; `new_key` makes one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from ilb.errors import FileError
from ilb.files import reason

LINE = re.compile(r"(?P<role>decide|read|admin)\s+(?P<digest>[0-9a-f]{64})\s+(?P<name>\S.*)")


class Role(StrEnum):
    """What a key is good for. An admin may do everything; who may decide may not read the log, and the reverse."""

    DECIDE = "decide"
    READ = "read"
    ADMIN = "admin"


class Key(NamedTuple):
    """A key as it is kept."""

    role: Role
    digest: str
    name: str


class Keys:
    """All keys that are known."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = tuple(keys)

    @classmethod
    def read(cls, file: Path) -> Keys:
        """Read a file of keys."""
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            said = reason(error) if isinstance(error, OSError) else "it is no text"
            raise FileError(f"can't read the keys in {file}: {said}.") from error
        keys = []
        for number, line in enumerate(lines, 1):
            found = LINE.fullmatch(line.strip())
            if found:
                keys.append(Key(Role(found["role"]), found["digest"], found["name"]))
            elif line.strip() and not line.lstrip().startswith("#"):
                raise FileError(
                    f"line {number} of {file} is no key; expected a role (decide, read or admin), 64 hexadecimal "
                    "digits and a name. `ilb key ROLE NAME` makes one."
                )
        if not keys:
            raise FileError(f"{file} has no keys. `ilb key ROLE NAME` makes one.")
        return cls(keys)

    def role_of(self, presented: str) -> Role | None:
        """Say what a key is good for, None if it is unknown; as slow for a near miss as for any other."""
        digest = digest_of(presented)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key.role
        return found


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def new_key(role: Role, name: str) -> tuple[str, str]:
    """Make a key: itself, to be shown once, and its line in a file of keys."""
    key = f"ilb_{secrets.token_urlsafe(32)}"
    return key, f"{role} {digest_of(key)} {' '.join(name.split()) or 'unnamed'}"
