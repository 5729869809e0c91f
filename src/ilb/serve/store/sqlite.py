"""The store in one SQLite file: in WAL mode, so that readers hold nobody up, and flushed to disk at every commit."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from ilb.errors import FileError
from ilb.files import reason
from ilb.serve.events import Event, Kind, tally, write_json
from ilb.serve.store.pool import Pool
from ilb.serve.store.store import (
    PAGE,
    AbstractStore,
    Entry,
    Head,
    PersonRow,
    SavedState,
    StoreUnavailableError,
    erased,
    pending_among,
)

if sys.platform != "win32":
    import fcntl

COLUMNS = "position, person, number, kind, at, decision, key, body"
VERSION = 1
MANY = 500
"""Values in one query; SQLite takes at least 999."""

PATIENCE = 0.1
"""Seconds for which an attempt to overwrite what was erased waits for those who read, and who writes waits for it."""


class SqliteStore(AbstractStore):
    """Events in a file. One process writes, told from others by a lock beside the file; any number may read."""

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        self.address = f"sqlite:///{file}"
        self._file = file
        self._read_only = read_only
        self._writing = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._readers = Pool(lambda: _connect(f"file:{_quoted(file)}?mode=ro"), _close)
        self._lock = None if read_only else _claim(file)
        try:
            if not read_only:
                self._connect_writer()
            with self._reading() as reader:
                _require_version(file, reader)
            if not read_only:
                self.scrub()  # a server that was killed may have left something
        except BaseException:
            self.close()
            raise

    def _connect_writer(self) -> None:
        with _in_words(self._file):
            writer = _connect(f"file:{_quoted(self._file)}?mode=rwc")
            self._writer = writer  # from here on `close` closes it
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("PRAGMA synchronous = FULL")
            writer.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten
            if writer.execute("PRAGMA user_version").fetchone()[0] == 0:
                script = Path(__file__).with_name("sqlite-001.sql").read_text(encoding="utf-8")
                writer.executescript(f"BEGIN IMMEDIATE;\n{script}\nCOMMIT;")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that can't write."""
        with _in_words(self._file), self._readers.lend() as reader:
            yield reader

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._writer is None:
            raise StoreUnavailableError(f"{self._file} was opened for reading only.")
        with self._writing, _in_words(self._file):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise

    def append(self, entries: Sequence[Entry]) -> list[bool]:
        stored = []
        counts: Counter[str] = Counter()
        with self._transaction() as writer:
            heads = _heads(writer, {entry.event.person for entry in entries})
            for entry in entries:
                fresh = entry.follows(heads.get(entry.event.person, Head())) and _insert(writer, entry)
                stored.append(fresh)
                if fresh:
                    counts.update(tally(entry.event))
                    if entry.state is not None:
                        _save(writer, entry.event.person, entry.state)
            _add_counts(writer, counts)
        return stored

    def erase(self, person: str, tombstone: str, at: str) -> int:
        with self._transaction() as writer:
            rows = writer.execute(f"SELECT {COLUMNS} FROM events WHERE person = ? ORDER BY number", (person,))
            events = [_event(row) for row in rows]
            for event in events:
                left = erased(event, tombstone)
                writer.execute(
                    "UPDATE events SET person = ?, key = NULL, body = ? WHERE position = ?",
                    (tombstone, write_json(left.body), event.position),
                )
            for table in ("people", "states"):
                writer.execute(f"DELETE FROM {table} WHERE person = ?", (person,))
            pending = pending_among(events)
            last = Event(tombstone, len(events) + 1, Kind.ERASURE, at, {"pending": pending, "events": len(events)})
            _insert(writer, Entry(last), listed=False)
            _add_counts(writer, tally(last))
        return len(events)

    def scrub(self) -> bool:
        # The log of changes holds the old pages until it starts anew, which who still reads them keeps it from. A
        # connection of its own, and little patience: who writes waits meanwhile.
        try:
            connection = _connect(f"file:{_quoted(self._file)}?mode=rw", timeout=PATIENCE)
            try:
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                connection.close()
        except sqlite3.Error:
            return False
        return not busy

    def heads(self, people: Collection[str]) -> dict[str, Head]:
        with self._reading() as reader:
            return _heads(reader, people)

    def states(self, people: Collection[str]) -> dict[str, SavedState]:
        with self._reading() as reader:
            rows = _for_each(reader, "SELECT person, events, bandit, state FROM states WHERE person IN", people)
        return {person: SavedState(events, bandit, text) for person, events, bandit, text in rows}

    def forget_states(self) -> int:
        with self._transaction() as writer:
            return writer.execute("DELETE FROM states").rowcount

    def save_states(self, states: Mapping[str, SavedState], began: Mapping[str, str] | None = None) -> None:
        with self._transaction() as writer:
            heads = _heads(writer, states)
            for person, state in states.items():
                head = heads.get(person)
                if head is not None and (began is None or began[person] == head.began):
                    _save(writer, person, state)

    def events_of(self, person: str, after: int = 0) -> list[Event]:
        query = f"SELECT {COLUMNS} FROM events WHERE person = ? AND number > ? ORDER BY number"
        with self._reading() as reader:
            return [_event(row) for row in reader.execute(query, (person, after))]

    def about(self, decisions: Collection[str]) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        with self._reading() as reader:
            rows = _for_each(reader, f"SELECT {COLUMNS} FROM events WHERE decision IN", decisions)
        for event in sorted((_event(row) for row in rows), key=lambda event: event.position):
            found.setdefault(str(event.decision), []).append(event)
        return found

    def whose(self, decisions: Collection[str]) -> dict[str, str]:
        query = "SELECT decision, person FROM events WHERE kind = 'decision' AND decision IN"
        with self._reading() as reader:
            return dict(_for_each(reader, query, decisions))

    def with_keys(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Event]:
        found = {}
        with self._reading() as reader:
            for pair in keys:
                query = f"SELECT {COLUMNS} FROM events WHERE person = ? AND key = ?"
                for row in reader.execute(query, pair):
                    found[pair] = _event(row)
        return found

    def page(self, after: int = 0, limit: int = PAGE, kinds: Collection[str] = ()) -> list[Event]:
        return self._events("position > ?", (after,), kinds, "position LIMIT ?", limit)

    def newest(self, limit: int, kinds: Collection[str] = ()) -> list[Event]:
        return self._events("1", (), kinds, "position DESC LIMIT ?", limit)

    def _events(
        self, where: str, values: tuple[Any, ...], kinds: Collection[str], order: str, limit: int
    ) -> list[Event]:
        chosen = f"{where} AND kind IN ({_marks(kinds)})" if kinds else where
        query = f"SELECT {COLUMNS} FROM events WHERE {chosen} ORDER BY {order}"
        with self._reading() as reader:
            return [_event(row) for row in reader.execute(query, (*values, *kinds, limit))]

    def people(self, after: str = "", limit: int = 100) -> list[PersonRow]:
        query = (
            "SELECT person, events, decisions, first_at, last_at FROM people WHERE person > ? ORDER BY person LIMIT ?"
        )
        with self._reading() as reader:
            return [PersonRow(*row) for row in reader.execute(query, (after, limit))]

    def counts(self) -> dict[str, int]:
        with self._reading() as reader:
            counts = {name: value for name, value in reader.execute("SELECT name, value FROM counts") if value}
            (people,) = reader.execute("SELECT COUNT(*) FROM people WHERE person > ''").fetchone()
        return {**counts, "people": people}

    def check(self) -> None:
        with self._transaction() as writer:
            _add_counts(writer, Counter({"checks": 0}))

    def close(self) -> None:
        self._readers.close()
        if self._writer is not None:
            _close(self._writer)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _connect(uri: str, timeout: float = 10.0) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=timeout)


def _close(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        connection.close()


def _for_each(reader: sqlite3.Connection, query: str, values: Iterable[str]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    remaining = iter(values)
    while some := list(islice(remaining, MANY)):
        rows += reader.execute(f"{query} ({_marks(some)})", some).fetchall()
    return rows


def _heads(reader: sqlite3.Connection, people: Iterable[str]) -> dict[str, Head]:
    rows = _for_each(reader, "SELECT person, events, decisions, first_at FROM people WHERE person IN", people)
    return {person: Head(*head) for person, *head in rows}


def _insert(writer: sqlite3.Connection, entry: Entry, *, listed: bool = True) -> bool:
    event = entry.event
    values = (event.person, event.number, event.kind, event.at, event.decision, event.key, entry.written_body())
    fresh = writer.execute(
        "INSERT INTO events (person, number, kind, at, decision, key, body) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        values,
    ).rowcount
    if fresh and listed:
        decisions = int(event.kind == Kind.DECISION)
        writer.execute(
            "INSERT INTO people (person, events, decisions, first_at, last_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (person) DO UPDATE SET events = excluded.events, decisions = decisions + excluded.decisions, "
            "last_at = excluded.last_at",
            (event.person, event.number, decisions, event.at, event.at),
        )
    return bool(fresh)


def _save(writer: sqlite3.Connection, person: str, state: SavedState) -> None:
    writer.execute(
        "INSERT INTO states (person, events, bandit, state) VALUES (?, ?, ?, ?) ON CONFLICT (person) DO UPDATE SET "
        "events = excluded.events, bandit = excluded.bandit, state = excluded.state WHERE events <= excluded.events",
        (person, state.events, state.bandit, state.text),
    )


def _add_counts(writer: sqlite3.Connection, counts: Counter[str]) -> None:
    writer.executemany(
        "INSERT INTO counts (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        sorted(counts.items()),
    )


def _event(row: tuple[Any, ...]) -> Event:
    position, person, number, kind, at, decision, key, body = row
    return Event(person, number, kind, at, json.loads(body), decision, key, position)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _quoted(file: Path) -> str:
    from urllib.parse import quote

    return quote(str(file))


@contextmanager
def _in_words(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        said = " ".join(str(error).split())
        raise StoreUnavailableError(f"the store {file} can't be used now: {said}.") from error


def _require_version(file: Path, reader: sqlite3.Connection) -> None:
    version = reader.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise FileError(
            f"{file} is no store of this version of identifiable-latent-bandits (its number is {version}; expected "
            f"{VERSION}). Give another file, or upgrade."
        )


def _claim(file: Path) -> int | None:
    """Make sure that no other process writes to this file; the claim ends with the process, however that ends."""
    beside = file.with_name(f"{file.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(f"can't open the store {file}: {reason(error)}. Choose another --store.") from error
    if sys.platform == "win32":
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise FileError(
            f"another server writes to {file}, and one SQLite file takes one. Stop that one, give another --store, or "
            "use a PostgreSQL database, which takes many."
        ) from error
    return handle
