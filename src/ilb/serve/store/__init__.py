"""Where events are kept: SQLite by default, PostgreSQL by its address. One interface, one conformance suite."""

from __future__ import annotations

from pathlib import Path

from ilb.errors import FileError
from ilb.serve.store.store import AbstractStore

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def open_store(address: str, *, read_only: bool = False) -> AbstractStore:
    """Open the store at an address: `sqlite:///file`, `postgresql://…`, or the name of a SQLite file.

    Only one process may write to a SQLite file; any number may read it.
    """
    if address.startswith(POSTGRES):
        from ilb.serve.store.postgres import PostgresStore

        return PostgresStore(address, read_only=read_only)
    if "://" in address and not address.startswith(SQLITE):
        kind = address.split("://", maxsplit=1)[0]
        raise FileError(f"no store is known by {kind}://; expected sqlite:///FILE, a file, or postgresql://HOST/NAME.")
    from ilb.serve.store.sqlite import SqliteStore

    return SqliteStore(Path(address.removeprefix(SQLITE)), read_only=read_only)
