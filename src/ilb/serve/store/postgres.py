"""The store in a PostgreSQL database, for any number of servers.

Whoever writes holds one lock until the commit, so that the log grows in the order of its positions and a reader who has
seen a position has seen all before it. The number of an event tells two servers apart that meant the same person: the
second finds it taken, and looks again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ilb.errors import FileError
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

COLUMNS = "position, person, number, kind, at, decision, key, body"
VERSION = 1
WRITERS = 0x1_1B_5E_4E
"""The number of the lock that whoever writes holds."""

CONNECTING = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How soon a database that is not there is noticed; the address may say otherwise."""

SETTINGS = {
    "synchronous_commit": "on",
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "30s",
}
"""What holds for each connection: nobody waits for ever, and a server that stands still lets go of the lock."""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore(AbstractStore):
    """Events in a database. Connections are shared by all threads, and made anew when the database was away."""

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        self.address = _without_password(address)
        self._address = address
        self._read_only = read_only
        self._is_store = False
        self._pool = Pool(self._connect, _close)
        if not read_only:
            script = Path(__file__).with_name("postgres-001.sql").read_text(encoding="utf-8")
            with self._transaction() as writer:
                for statement in script.split(";"):
                    if statement.strip():
                        writer.execute(statement.encode())
        with self._reading() as reader:
            (version,) = reader.execute("SELECT MAX(number) FROM versions").fetchone() or (None,)
        if version != VERSION:
            raise FileError(f"the database is a store of version {version}; expected {VERSION}. Upgrade.")
        self._is_store = True

    def _connect(self) -> Connection:
        given: dict[str, Any] = {**CONNECTING, **conninfo_to_dict(self._address)}
        connection = psycopg.connect(autocommit=True, **given)
        for name, value in SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, FALSE)", (name, value))
        if self._read_only:
            connection.execute("SET default_transaction_read_only = on")
        return connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._pool.lend() as connection:
                yield connection
        except psycopg.Error as error:
            if isinstance(error, psycopg.errors.UndefinedTable) and not self._is_store:
                raise FileError(f"{self.address} is no store yet; `ilb serve` makes one.") from error
            self._pool.clear()  # if the database was away, so it was for all of them
            said = " ".join(str(error).split())[:200]
            raise StoreUnavailableError(f"the database can't be used now: {said}.") from error

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._read_only:
            raise StoreUnavailableError("the database was opened for reading only.")
        with self._reading() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (WRITERS,))
            yield connection

    def append(self, entries: Sequence[Entry]) -> list[bool]:
        counts: Counter[str] = Counter()
        with self._transaction() as writer:
            heads = _heads(writer, {entry.event.person for entry in entries})
            following = [entry for entry in entries if entry.follows(heads.get(entry.event.person, Head()))]
            fresh = _insert(writer, following)
            stored = [(entry.event.person, entry.event.number) in fresh for entry in entries]
            written = [entry for entry, new in zip(entries, stored, strict=True) if new]
            for entry in written:
                counts.update(tally(entry.event))
            _list_people(writer, [entry.event for entry in written])
            _save(writer, {entry.event.person: entry.state for entry in written if entry.state is not None})
            _add_counts(writer, counts)
        return stored

    def erase(self, person: str, tombstone: str, at: str) -> int:
        with self._transaction() as writer:
            events = [
                _event(row)
                for row in writer.execute(f"SELECT {COLUMNS} FROM events WHERE person = %s ORDER BY number", (person,))
            ]
            for event in events:
                left = erased(event, tombstone)
                writer.execute(
                    "UPDATE events SET person = %s, key = NULL, body = %s WHERE position = %s",
                    (tombstone, write_json(left.body), event.position),
                )
            for table in ("people", "states"):
                writer.execute(f"DELETE FROM {table} WHERE person = %s", (person,))
            body = {"pending": pending_among(events), "events": len(events)}
            last = Event(tombstone, len(events) + 1, Kind.ERASURE, at, body)
            _insert(writer, [Entry(last)])
            _add_counts(writer, tally(last))
        return len(events)

    def scrub(self) -> bool:
        try:
            with self._reading() as connection:
                connection.execute("SET statement_timeout = 0")
                connection.execute("VACUUM events, people, states")
                connection.execute(
                    "SELECT set_config('statement_timeout', %s, FALSE)", (SETTINGS["statement_timeout"],)
                )
        except StoreUnavailableError:
            return False
        return True

    def heads(self, people: Collection[str]) -> dict[str, Head]:
        with self._reading() as reader:
            return _heads(reader, people)

    def states(self, people: Collection[str]) -> dict[str, SavedState]:
        query = "SELECT person, events, bandit, state FROM states WHERE person = ANY(%s)"
        return {person: SavedState(*state) for person, *state in self._rows(query, (list(people),))}

    def forget_states(self) -> int:
        with self._transaction() as writer:
            return writer.execute("DELETE FROM states").rowcount

    def save_states(self, states: Mapping[str, SavedState], began: Mapping[str, str] | None = None) -> None:
        with self._transaction() as writer:
            heads = _heads(writer, states)
            known = {person for person, head in heads.items() if began is None or began[person] == head.began}
            _save(writer, {person: state for person, state in states.items() if person in known})

    def events_of(self, person: str, after: int = 0) -> list[Event]:
        query = f"SELECT {COLUMNS} FROM events WHERE person = %s AND number > %s ORDER BY number"
        return [_event(row) for row in self._rows(query, (person, after))]

    def about(self, decisions: Collection[str]) -> dict[str, list[Event]]:
        query = f"SELECT {COLUMNS} FROM events WHERE decision = ANY(%s) ORDER BY position"
        found: dict[str, list[Event]] = {}
        for row in self._rows(query, (list(decisions),)):
            event = _event(row)
            found.setdefault(str(event.decision), []).append(event)
        return found

    def whose(self, decisions: Collection[str]) -> dict[str, str]:
        query = "SELECT decision, person FROM events WHERE kind = 'decision' AND decision = ANY(%s)"
        return dict(self._rows(query, (list(decisions),)))

    def with_keys(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], Event]:
        query = (
            f"SELECT {COLUMNS} FROM events WHERE (person, key) IN "
            "(SELECT * FROM UNNEST(%s::text[], %s::text[]) AS pairs) AND key IS NOT NULL"
        )
        people, names = [person for person, _ in keys], [key for _, key in keys]
        events = (_event(row) for row in self._rows(query, (people, names)))
        return {(event.person, str(event.key)): event for event in events}

    def page(self, after: int = 0, limit: int = PAGE, kinds: Collection[str] = ()) -> list[Event]:
        return self._events("position > %s", (after,), kinds, "position LIMIT %s", limit)

    def newest(self, limit: int, kinds: Collection[str] = ()) -> list[Event]:
        return self._events("TRUE", (), kinds, "position DESC LIMIT %s", limit)

    def _events(
        self, where: str, values: tuple[Any, ...], kinds: Collection[str], order: str, limit: int
    ) -> list[Event]:
        chosen, more = (f"{where} AND kind = ANY(%s)", (list(map(str, kinds)),)) if kinds else (where, ())
        query = f"SELECT {COLUMNS} FROM events WHERE {chosen} ORDER BY {order}"
        return [_event(row) for row in self._rows(query, (*values, *more, limit))]

    def people(self, after: str = "", limit: int = 100) -> list[PersonRow]:
        query = (
            "SELECT person, events, decisions, first_at, last_at FROM people WHERE person > %s ORDER BY person LIMIT %s"
        )
        return [PersonRow(*row) for row in self._rows(query, (after, limit))]

    def counts(self) -> dict[str, int]:
        counts = {name: value for name, value in self._rows("SELECT name, value FROM counts", ()) if value}
        ((people,),) = self._rows("SELECT COUNT(*) FROM people WHERE person > ''", ())
        return {**counts, "people": people}

    def check(self) -> None:
        with self._transaction() as writer:
            _add_counts(writer, Counter({"checks": 0}))

    def close(self) -> None:
        self._pool.close()

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._reading() as reader:
            return reader.execute(query.encode(), values).fetchall()


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.close()


def _heads(reader: Connection, people: Collection[str]) -> dict[str, Head]:
    query = "SELECT person, events, decisions, first_at FROM people WHERE person = ANY(%s)"
    return {person: Head(*head) for person, *head in reader.execute(query, (list(people),)).fetchall()}


def _insert(writer: Connection, entries: Sequence[Entry]) -> set[tuple[str, int]]:
    """Insert events in one statement, and say which of them are new."""
    events = [entry.event for entry in entries]
    columns = [
        [event.person for event in events],
        [event.number for event in events],
        [str(event.kind) for event in events],
        [event.at for event in events],
        [event.decision for event in events],
        [event.key for event in events],
        [entry.written_body() for entry in entries],
    ]
    query = (
        "INSERT INTO events (person, number, kind, at, decision, key, body) "
        "SELECT * FROM UNNEST(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) "
        "ON CONFLICT DO NOTHING RETURNING person, number"
    )
    return {(person, number) for person, number in writer.execute(query, columns).fetchall()}


def _list_people(writer: Connection, events: Sequence[Event]) -> None:
    if not events:
        return
    columns = [
        [event.person for event in events],
        [event.number for event in events],
        [int(event.kind == Kind.DECISION) for event in events],
        [event.at for event in events],
    ]
    writer.execute(
        "INSERT INTO people (person, events, decisions, first_at, last_at) "
        "SELECT person, MAX(number), SUM(decided), MIN(at), MAX(at) "
        "FROM UNNEST(%s::text[], %s::bigint[], %s::bigint[], %s::text[]) AS new (person, number, decided, at) "
        "GROUP BY person ON CONFLICT (person) DO UPDATE SET events = excluded.events, "
        "decisions = people.decisions + excluded.decisions, last_at = excluded.last_at",
        columns,
    )


def _save(writer: Connection, states: dict[str, SavedState]) -> None:
    if not states:
        return
    columns = [list(states), *(list(column) for column in zip(*states.values(), strict=True))]
    writer.execute(
        "INSERT INTO states (person, events, bandit, state) "
        "SELECT * FROM UNNEST(%s::text[], %s::bigint[], %s::text[], %s::text[]) "
        "ON CONFLICT (person) DO UPDATE SET events = excluded.events, bandit = excluded.bandit, "
        "state = excluded.state WHERE states.events <= excluded.events",
        columns,
    )


def _add_counts(writer: Connection, counts: Counter[str]) -> None:
    columns = [list(counts), list(counts.values())]
    writer.execute(
        "INSERT INTO counts (name, value) SELECT * FROM UNNEST(%s::text[], %s::bigint[]) "
        "ON CONFLICT (name) DO UPDATE SET value = counts.value + excluded.value",
        columns,
    )


def _event(row: tuple[Any, ...]) -> Event:
    position, person, number, kind, at, decision, key, body = row
    return Event(person, number, kind, at, json.loads(body), decision, key, position)


def _without_password(address: str) -> str:
    """Give an address that may be shown."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
