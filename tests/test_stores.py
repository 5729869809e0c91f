"""Every store of events keeps the same promises: one suite over SQLite and a real PostgreSQL."""

import random
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilb.errors import FileError
from ilb.serve.events import Event, Kind, tally_all
from ilb.serve.store import open_store
from ilb.serve.store.store import AbstractStore, Entry, Head, SavedState, StoreUnavailableError
from serving import Postgres, open_handles, running_postgres

AT = "2026-01-02T03:04:05.000000Z"
LATER = "2026-01-02T03:04:06.000000Z"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres | None]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, postgres: Postgres | None) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ilb.db'}"
    if postgres is None:
        warnings.warn("NO PostgreSQL ON THIS MACHINE: half of the stores is NOT tested", UserWarning, stacklevel=1)
        pytest.skip("there is no PostgreSQL (initdb, pg_ctl)")
    import psycopg

    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres.address


@pytest.fixture
def store(address: str) -> Iterator[AbstractStore]:
    store = open_store(address)
    yield store
    store.close()


def decision(person: str, number: int, name: str, key: str | None = None, **answer: Any) -> Event:
    told = {"mode": "live", "fallback": None, "would": "A", "action": "A", "number": 0, **answer}
    body = {"request": {"context": {"pain": 0.1}}, "answer": told}
    return Event(person, number, Kind.DECISION, AT, body, name, key)


def outcome(person: str, number: int, name: str) -> Event:
    return Event(person, number, Kind.OUTCOME, AT, {"reward": 1.5, "action": "A", "answer": {}}, name)


def test_what_is_appended_is_read_back_as_it_was_and_in_order(store: AbstractStore) -> None:
    events = [decision("anna", 1, "d1", "k1"), decision("bo ' \" ; <b>é", 1, "d2", "k1"), outcome("anna", 2, "d1")]
    assert store.append([Entry(event) for event in events[:2]]) == [True, True]
    assert store.append([Entry(events[2])]) == [True]
    assert list(store.log()) == events
    assert store.events_of("anna") == [events[0], events[2]]
    assert store.events_of("anna", after=1) == [events[2]]
    assert store.about(["d1", "d2", "no"]) == {"d1": [events[0], events[2]], "d2": [events[1]]}
    assert store.whose(["d1", "d2", "no"]) == {"d1": "anna", "d2": "bo ' \" ; <b>é"}
    assert store.with_keys([("anna", "k1"), ("anna", "k2")]) == {("anna", "k1"): events[0]}
    assert store.heads(["anna", "nobody"]) == {"anna": Head(2, 1, AT)}
    assert [row.person for row in store.people()] == ["anna", "bo ' \" ; <b>é"]
    assert store.people(after="anna")[0].decisions == 1
    assert store.newest(1) == [events[2]]
    assert store.newest(5, [Kind.DECISION]) == [events[1], events[0]]
    assert store.page(0, 1, [Kind.OUTCOME]) == [events[2]]


def test_bytes_of_answers_survive(store: AbstractStore) -> None:
    answer = {"b": 0.1, "a": 1e-300, "text": "\u0000 \\ é 𝄞", "mode": "live", "fallback": None, "would": None}
    body = {"answer": answer}
    store.append([Entry(Event("anna", 1, Kind.DECISION, AT, body, "d1"))])
    assert list(store.events_of("anna")[0].body["answer"].items()) == list(answer.items())


@pytest.mark.parametrize(
    "second",
    [decision("anna", 1, "other", "k2"), decision("anna", 2, "other", "k1"), decision("bo", 1, "d1", "k3")],
    ids=["number", "key", "decision"],
)
def test_who_comes_second_leaves_nothing_and_does_not_disturb_the_others(store: AbstractStore, second: Event) -> None:
    store.append([Entry(decision("anna", 1, "d1", "k1"))])
    before = store.counts()
    third = decision("cleo", 1, "d3", "k1")
    assert store.append([Entry(second, SavedState(9, "m", "s")), Entry(third)]) == [False, True]
    assert len(list(store.log())) == 2
    assert store.states(["anna", "bo"]) == {}
    assert store.counts() == {**before, "decisions": 2, "decisions:live": 2, "pending": 2, "people": 2}
    assert store.heads(["anna"]) == {"anna": Head(1, 1, AT)}


def test_counts_are_the_sum_over_the_log(store: AbstractStore) -> None:
    shadow = decision("bo", 1, "d2", mode="shadow", would="B")
    apprentice = decision("bo", 2, "d3", mode="apprentice", would="B", fallback={"severity": "red", "cause": "x"})
    apprentice.body["taken"] = "B"
    told = Event(
        "bo", 3, Kind.OUTCOME, AT, {"reward": 0.0, "action": "A", "told": {"agrees": False}, "answer": {}}, "d2"
    )
    void = Event("bo", 4, Kind.VOID, AT, {"why": "not_shown", "answer": {}}, "d3")
    for event in (decision("anna", 1, "d1"), shadow, apprentice, told, void, outcome("anna", 2, "d1")):
        store.append([Entry(event)])
    people = store.counts().pop("people")
    counted = {name: value for name, value in store.counts().items() if name != "people"}
    assert people == 2
    assert counted == tally_all(store.log())
    assert counted["compared:shadow"] == 1
    assert counted["agreed:apprentice"] == 1
    assert "agreed:shadow" not in counted
    assert "pending" not in counted


def test_an_older_state_does_not_replace_a_newer_one(store: AbstractStore) -> None:
    store.append([Entry(decision("anna", 1, "d1"), SavedState(1, "m", "first"))])
    store.save_states({"anna": SavedState(4, "m", "fourth")})
    store.save_states({"anna": SavedState(3, "m", "third")})
    assert store.states(["anna"]) == {"anna": SavedState(4, "m", "fourth")}
    assert store.forget_states() == 1
    assert store.states(["anna"]) == {}


def test_erasure_leaves_counts_and_nothing_else(store: AbstractStore, address: str) -> None:
    secret = decision("anna-the-secret", 1, "d1", "key-the-secret")
    secret.body["request"]["context"]["pain"] = "context-the-secret"
    store.append([Entry(secret, SavedState(1, "m", "state-the-secret")), Entry(decision("bo", 1, "d2"))])
    store.append([Entry(decision("anna-the-secret", 2, "d3"))])
    store.append([Entry(outcome("anna-the-secret", 3, "d3"))])
    assert store.erase("anna-the-secret", "erased-1", AT) == 3
    assert store.scrub()
    left = "".join(str(event.as_json()) for event in store.log())
    assert "the-secret" not in left
    assert "1.5" not in left
    assert store.heads(["anna-the-secret"]) == {} == store.states(["anna-the-secret"])
    counted = {name: value for name, value in store.counts().items() if name != "people"}
    assert counted == tally_all(store.log())
    assert counted["decisions"] == 3
    assert counted["pending"] == 1
    assert [row.person for row in store.people()] == ["bo"]
    kept = {"erased": True, "agrees": None, "answer": {"mode": "live", "fallback": None}}
    assert [event.body for event in store.events_of("erased-1")[:2]] == [kept, kept]
    if address.startswith("sqlite"):
        folder = Path(address.removeprefix("sqlite:///")).parent
        assert all(b"the-secret" not in file.read_bytes() for file in folder.iterdir())
    assert store.append([Entry(decision("anna-the-secret", 1, "d9"))]) == [True]


def test_who_was_erased_meanwhile_is_not_brought_back(store: AbstractStore) -> None:
    store.append([Entry(decision("anna", 1, "d1"))])
    began = store.heads(["anna"])["anna"].began
    late = Entry(decision("anna", 2, "d2"), SavedState(2, "m", "secret"), began)
    store.erase("anna", "erased-1", AT)
    assert store.append([late]) == [False]
    assert store.append([Entry(decision("anna", 2, "d2"))]) == [False]
    store.save_states({"anna": SavedState(1, "m", "secret")})
    assert store.heads(["anna"]) == {} == store.states(["anna"])
    again = replace(decision("anna", 1, "d3"), at=LATER)
    assert store.append([Entry(again, SavedState(1, "m", "new"))]) == [True]
    assert store.append([late]) == [False]  # of the right number, but of who was here before
    store.save_states({"anna": SavedState(1, "m", "secret")}, {"anna": began})
    assert store.states(["anna"]) == {"anna": SavedState(1, "m", "new")}
    assert store.append([Entry(decision("anna", 2, "d4"), None, LATER)]) == [True]
    counted = {name: value for name, value in store.counts().items() if name != "people"}
    assert counted == tally_all(store.log())


def test_nobody_skips_a_number(store: AbstractStore) -> None:
    assert store.append([Entry(decision("anna", 2, "d2"))]) == [False]
    assert list(store.log()) == []


def test_threads_that_end_leave_no_connections_behind(store: AbstractStore) -> None:
    store.counts()
    before = open_handles()
    for _ in range(40):
        thread = threading.Thread(target=store.counts)
        thread.start()
        thread.join()
    assert open_handles() - before <= 8


def test_what_somebody_still_reads_is_overwritten_later(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    store.append([Entry(decision("anna-the-secret", 1, "d1"))])
    with store._reading() as reader:  # type: ignore[attr-defined]
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM events").fetchone()
        store.erase("anna-the-secret", "erased-1", AT)
        assert not store.scrub()
        assert store.append([Entry(decision("bo", 1, "d2"))]) == [True]
        reader.execute("COMMIT")
    assert store.scrub()
    assert all(b"the-secret" not in file.read_bytes() for file in tmp_path.iterdir())
    store.close()


def test_nobody_waits_for_ever_for_a_server_that_stands_still(
    postgres: Postgres | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if postgres is None:
        pytest.skip("there is no PostgreSQL (initdb, pg_ctl)")
    import psycopg

    from ilb.serve.store import postgres as module

    monkeypatch.setitem(module.SETTINGS, "lock_timeout", "200ms")
    store = open_store(postgres.address)
    with psycopg.connect(postgres.address) as frozen:
        frozen.execute("SELECT pg_advisory_xact_lock(%s)", (module.WRITERS,))
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            store.check()
    store.check()
    with store._reading() as connection:  # type: ignore[attr-defined]
        told = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in module.SETTINGS}
    assert told["idle_in_transaction_session_timeout"] == "30s"
    assert told["statement_timeout"] == "30s"
    store.close()


def test_a_reader_sees_what_is_committed_and_writes_nothing(store: AbstractStore, address: str) -> None:
    store.append([Entry(decision("anna", 1, "d1"))])
    reader = open_store(address, read_only=True)
    try:
        assert len(list(reader.log())) == 1
        with pytest.raises(StoreUnavailableError):
            reader.append([Entry(decision("anna", 2, "d2"))])
        with pytest.raises(StoreUnavailableError), reader._reading() as connection:  # type: ignore[attr-defined]
            connection.execute("DELETE FROM counts")
        store.append([Entry(decision("anna", 2, "d2"))])
        assert len(list(reader.log())) == 2
    finally:
        reader.close()


def test_a_second_server_on_one_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "ilb.db"
    first = open_store(str(file))
    code = f"from ilb.serve.store import open_store; open_store({str(file)!r})"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another server writes to" in second.stderr
    first.close()
    open_store(str(file)).close()


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    foreign, text = tmp_path / "foreign.db", tmp_path / "notes.txt"
    with sqlite3.connect(foreign) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    text.write_text("Dear diary, " * 100)
    with pytest.raises(FileError, match="no store of this version"):
        open_store(str(foreign))
    with pytest.raises(StoreUnavailableError, match="not a database"):
        open_store(str(text))
    assert text.read_text().startswith("Dear diary")
    with pytest.raises(FileError, match="no store is known by"):
        open_store("mysql://here/there")


def test_a_full_disk_is_told_and_nothing_of_it_is_there(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    store.append([Entry(decision("anna", 1, "d1"))])
    with store._transaction() as writer:  # type: ignore[attr-defined]
        pass
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages}")
    large = decision("bo", 1, "d2")
    large.body["padding"] = "x" * 100_000
    with pytest.raises(StoreUnavailableError, match="full"):
        store.append([Entry(decision("anna", 2, "d3")), Entry(large)])
    assert [event.decision for event in store.log()] == ["d1"]
    writer.execute(f"PRAGMA max_page_count = {pages + 100}")
    assert store.append([Entry(large)]) == [True]
    store.close()


def test_however_the_end_of_the_file_is_torn_what_is_left_is_a_whole_beginning(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    for number in range(1, 9):
        store.append([Entry(decision("anna", number, f"d{number}")), Entry(decision(f"p{number}", 1, f"e{number}"))])
    folder = tmp_path / "torn"
    folder.mkdir()
    main, log = ((tmp_path / name).read_bytes() for name in ("ilb.db", "ilb.db-wal"))
    store.close()
    lengths = set()
    rng = random.Random(0)
    for case in range(40):
        torn = bytearray(log[: rng.randrange(len(log))] if case % 2 else log)
        if not case % 2:  # a sector that holds something else
            place = rng.randrange(len(torn) - 512)
            torn[place : place + 512] = rng.randbytes(512)
        (folder / "ilb.db").write_bytes(main)
        (folder / "ilb.db-wal").write_bytes(torn)
        (folder / "ilb.db-shm").unlink(missing_ok=True)
        try:
            left = open_store(str(folder / "ilb.db"))
        except FileError:  # torn before the tables were made
            continue
        numbers = [event.number for event in left.events_of("anna")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(list(left.log())) == 2 * len(numbers)  # of a transaction all is there, or nothing
        assert left.counts().get("decisions", 0) == 2 * len(numbers)
        lengths.add(len(numbers))
        left.close()
    assert len(lengths) > 3


def test_a_database_that_comes_back_is_used_again(postgres: Postgres | None) -> None:
    if postgres is None:
        pytest.skip("there is no PostgreSQL (initdb, pg_ctl)")
    store = open_store(postgres.address)
    before = len(list(store.log()))
    postgres.stop()
    with pytest.raises(StoreUnavailableError, match="can't be used now"):
        store.append([Entry(decision("zoe", 1, "z1"))])
    postgres.start()
    assert store.append([Entry(decision("zoe", 1, "z1"))]) == [True]
    assert len(list(store.log())) == before + 1
    store.close()


def test_a_database_whose_tables_are_taken_away_cannot_be_used_now(postgres: Postgres | None) -> None:
    if postgres is None:
        pytest.skip("there is no PostgreSQL (initdb, pg_ctl)")
    import psycopg

    store = open_store(postgres.address)
    with psycopg.connect(postgres.address, autocommit=True) as other:
        other.execute("ALTER TABLE people RENAME TO elsewhere")
        try:
            with pytest.raises(StoreUnavailableError, match="can't be used now"):
                store.heads(["anna"])
        finally:
            other.execute("ALTER TABLE elsewhere RENAME TO people")
    assert store.heads(["nobody"]) == {}
    store.close()
