"""The bundled client against a real server: repeats, servers that go and come back, and what is delivered later."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilb.client import AsyncClient, Client, RefusedError, UnreachableError
from ilb.client.outbox import Outbox
from ilb.client.wire import Wire
from ilb.errors import DecisionError, FileError, IlbError, IlbWarning
from ilb.live.bandit import LiveBandit
from ilb.serve.api import make_app
from ilb.serve.fallback import draw
from ilb.serve.keys import Keys, Role, new_key
from ilb.serve.people import ServedModel
from ilb.serve.service import Service
from ilb.serve.store import open_store
from ilb.serve.store.store import StoreUnavailableError
from serving import POLICY, VISIT, ServerThread, clinic_model, open_handles


@pytest.fixture(scope="module")
def served() -> ServedModel:
    made = ServedModel(LiveBandit.on(clinic_model(), POLICY, seed=3), POLICY, "by hand")
    made.warm_up()  # clients do not wait for compilers
    return made


@pytest.fixture
def server(served: ServedModel, tmp_path: Path) -> Iterator[ServerThread]:
    store = open_store(str(tmp_path / "ilb.db"))
    service = Service(store, served, served.names, deadline=30.0)
    service.record_model(served, "promoted")
    thread = ServerThread(make_app(service))
    thread.start()
    yield thread
    thread.stop()
    service.close()
    store.close()


@pytest.fixture
def connect(server: ServerThread, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    opened: list[Client] = []

    def connect_one(**options: Any) -> Client:
        given = {"outbox": tmp_path / "outbox.jsonl", "patience": 0.05, **options}
        opened.append(Client(server.address, **given))
        return opened[-1]

    yield connect_one
    for client in opened:
        client.close()


def store_of(server: ServerThread) -> Any:
    return server.app.state.office.service.store


def wake(client: Client) -> None:
    """Let a client that has seen a failure be patient again at once."""
    client._wire._failed = float("-inf")


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")  # a missing value is sent as such
def test_decisions_and_outcomes_are_those_of_the_server(server: ServerThread, connect: Callable[..., Client]) -> None:
    client = connect()
    decision = client.decide("an na ü?", {"pain": np.float32(1.5), "mobility": float("nan")}, key="v1", forbidden=["B"])
    assert decision == client.decide("an na ü?", {"pain": 1.5, "mobility": None}, key="v1", forbidden=("B",))
    assert not decision.made_here
    (event,) = store_of(server).events_of("an na ü?")
    assert event.body["answer"] == decision.answer
    assert event.body["request"]["context"] == {"pain": 1.5, "mobility": None}
    told = client.learn(decision, np.float64(1.5))
    assert told.is_stored
    assert client.learn(str(decision.decision_id), 1.5) == told
    with pytest.raises(RefusedError, match="contradiction"):
        client.learn(decision, 2.0)
    assert told.answer is not None
    assert client.correct(decision, 2.0, supersedes=told.answer["event"], why="typo").is_stored
    second = client.decide("an na ü?", VISIT)
    assert client.void(second, "withdrawn").is_stored
    assert client.observe("an na ü?", VISIT, key="v3") == client.observe("an na ü?", VISIT, key="v3")
    assert client.preview("an na ü?", VISIT)["decision_id"] is None
    assert client.status()["counts"]["decisions"] == 2
    with pytest.raises(RefusedError, match="pain") as refused:
        client.decide("bo", {"pain": "a lot", "mobility": 1.0})
    assert refused.value.status == 422
    with pytest.raises(DecisionError, match="slash"):
        client.decide("an/na", VISIT)
    assert client.waiting == 0


def test_without_a_server_the_declared_fallback_is_drawn_and_delivered_once(
    server: ServerThread, connect: Callable[..., Client]
) -> None:
    client = connect()
    client.decide("anna", VISIT, key="v0")
    server.stop()
    decisions = [client.decide("anna", VISIT, key=f"w{n}", forbidden=["C"]) for n in range(6)]
    assert [one.action for one in decisions] == [draw(None, ["A", "B"], "anna", f"w{n}").action for n in range(6)]
    assert {one.action for one in decisions} == {"A", "B"}
    assert {(one.propensity, one.made_here, one.decision_id) for one in decisions} == {(0.5, True, None)}
    assert client.decide("anna", VISIT, key="w0", forbidden=["C"]).action == decisions[0].action  # asked again
    with pytest.raises(DecisionError, match="another request"):
        client.decide("anna", VISIT, key="w0")
    assert not client.learn(decisions[0], 1.5).is_stored
    assert not client.void(decisions[1]).is_stored
    assert not client.observe("anna", VISIT).is_stored
    assert client.waiting == 9
    client.close()
    later = connect()  # the program was started again meanwhile; all is in the file
    assert later.waiting == 9
    assert later.decide("anna", VISIT, key="w6").action == draw(None, ["A", "B", "C"], "anna", "w6").action
    server.start()
    wake(later)
    new = later.decide("anna", VISIT, key="v1")  # first what waits, in order, then this
    assert new.answer["number"] == 8
    assert later.waiting == 0
    assert later.learn(decisions[2], -1.0).is_stored  # its id is found by asking again
    events = store_of(server).events_of("anna")
    kinds = ["decision"] * 7 + ["outcome", "void", "observation", "decision", "decision", "outcome"]
    assert [event.kind for event in events] == kinds
    for n, event in enumerate(events[1:7]):
        answer = event.body["answer"]
        assert (answer["action"], answer["propensity"]) == (decisions[n].action, 0.5)
        assert answer["fallback"]["cause"].startswith("decided by the client")
    assert events[7].decision == events[1].decision
    assert events[-1].decision == events[3].decision
    assert later.deliver() == 0
    assert len(store_of(server).events_of("anna")) == 13


def test_a_decision_that_was_stored_though_its_answer_was_lost_stays_what_was_told(
    server: ServerThread, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect()
    client.decide("anna", VISIT, key="v0")
    send = Wire._send_once

    def lose_answer(self: Wire, *given: Any) -> Any:
        send(self, *given)
        raise UnreachableError("the answer was lost.")

    monkeypatch.setattr(Wire, "_send_once", lose_answer)
    told = [client.decide("anna", VISIT, key=f"v{n}") for n in range(1, 7)]
    monkeypatch.setattr(Wire, "_send_once", send)
    wake(client)
    assert client.deliver() == 0
    stored = [event.body["answer"]["action"] for event in store_of(server).events_of("anna")[1:]]
    assert len(stored) == 6  # each once
    differs = [n for n in range(6) if stored[n] != told[n].action]
    assert differs  # else this test says nothing
    for n in range(6):
        again = client.decide("anna", VISIT, key=f"v{n + 1}")
        assert again.action == told[n].action
        assert client.learn(again if n % 2 else told[n], 1.0).is_stored
    outcomes = [event for event in store_of(server).events_of("anna") if event.kind == "outcome"]
    assert [event.body["action"] for event in outcomes] == [one.action for one in told]


def test_a_store_that_cannot_write_is_met_like_a_server_that_is_not_there(
    server: ServerThread, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(patience=1.0)
    before = client.decide("anna", VISIT, key="v0")
    store, attempts = store_of(server), []

    def full(entries: Any) -> list[bool]:
        attempts.append(time.monotonic())
        raise StoreUnavailableError("the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "append", full)
        decision = client.decide("anna", VISIT, key="v1")
        pauses = np.diff(attempts)
        assert len(attempts) > 2  # with growing pauses
        assert pauses[-1] > pauses[0]
        assert decision.made_here
        assert decision.fallback is not None
        assert "503" in decision.fallback["cause"]
        tried = len(attempts)
        assert not client.learn(before, 1.0).is_stored
        assert len(attempts) == tried + 1  # known to be down: nobody waits
    wake(client)
    assert client.learn(decision, 1.0).is_stored
    assert [event.kind for event in store.events_of("anna")] == ["decision", "decision", "outcome", "outcome"]


def test_what_is_refused_when_it_is_delivered_is_set_aside_and_the_rest_goes_on(
    server: ServerThread, connect: Callable[..., Client], tmp_path: Path
) -> None:
    client = connect(actions=["A", "B", "C"], fallback="B")
    server.stop()
    assert client.decide("anna", {"pain": "a lot"}, key="v0").action == "B"
    assert client.decide("bo", VISIT, key="v0", mode="apprentice", taken="A").action == "A"
    server.start()
    wake(client)
    with pytest.warns(IlbWarning, match="refused"):
        assert client.deliver() == 0
    (line,) = (tmp_path / "outbox.jsonl.refused").read_text().splitlines()
    assert json.loads(line)["letter"]["person"] == "anna"
    (event,) = store_of(server).events_of("bo")
    assert (event.body["answer"]["mode"], event.body["answer"]["action"]) == ("apprentice", "A")
    assert event.body["answer"]["would"] is not None


def test_the_propensity_of_what_the_client_drew_is_the_one_in_the_log(
    server: ServerThread, connect: Callable[..., Client]
) -> None:
    client = connect(actions=["A", "B"], fallback="uniform")  # of an earlier model; the server knows three by now
    server.stop()
    made = [client.decide("anna", VISIT, key=f"v{n}") for n in range(4)]
    assert {one.propensity for one in made} == {0.5}
    server.start()
    wake(client)
    assert client.deliver() == 0
    events = store_of(server).events_of("anna")
    assert [event.body["answer"]["propensity"] for event in events] == [0.5] * 4
    assert [event.body["answer"]["action"] for event in events] == [one.action for one in made]
    assert events[0].body["made"]["fallback"] == "uniform"


def test_threads_that_end_leave_no_connections_behind(server: ServerThread, connect: Callable[..., Client]) -> None:
    client = connect()
    client.status()
    before = open_handles()
    for _ in range(10):
        thread = threading.Thread(target=client.status)
        thread.start()
        thread.join()
    assert open_handles() <= before + 4


def test_a_key_that_is_not_known_loses_nothing(served: ServedModel, tmp_path: Path) -> None:
    key, line = new_key(Role.DECIDE, "app")
    (tmp_path / "keys").write_text(line)
    store = open_store(str(tmp_path / "ilb.db"))
    service = Service(store, served, served.names, deadline=30.0)
    server = ServerThread(make_app(service, keys=Keys.read(tmp_path / "keys")))
    outbox = tmp_path / "outbox.jsonl"
    with Client(server.address, outbox=outbox, actions=["A", "B"], fallback="A", patience=0.0) as client:
        client.decide("anna", VISIT, key="v0")
    server.start()
    with Client(server.address, outbox=outbox, key="ilb_wrong") as client:
        with pytest.raises(RefusedError, match="401"):
            client.deliver()
        assert client.waiting == 1
    with Client(server.address, outbox=outbox, key=key) as client:
        assert client.deliver() == 0
    assert store.counts()["decisions"] == 1
    server.stop()
    service.close()
    store.close()


def test_the_asynchronous_client_does_the_same(server: ServerThread, tmp_path: Path) -> None:
    async def visit() -> list[Any]:
        async with AsyncClient(server.address, outbox=tmp_path / "outbox.jsonl", patience=0.05) as client:
            made = await asyncio.gather(*(client.decide(f"p{n}", VISIT, key="v0") for n in range(8)))
            await asyncio.gather(*(client.learn(one, 1.0) for one in made))
            server.stop()
            late = await client.decide("p0", VISIT, key="v1")
            assert (late.made_here, client.waiting) == (True, 1)
            server.start()
            await asyncio.gather(*(client.learn(late, 1.0), client.deliver(), client.observe("p1", VISIT, key="o")))
            await client.void(await client.decide("p2", VISIT))
            assert await client.deliver() == 0
            assert (await client.preview("p2", VISIT))["number"] == 2
            return [await client.status()]

    (status,) = asyncio.run(visit())
    assert status["counts"] == {
        "decisions": 10, "decisions:live": 10, "fallbacks": 1, "outcomes": 9, "observations": 1, "voids": 1,
        "models:promoted": 1, "people": 8,
    }  # fmt: skip


def test_a_torn_line_is_cut_off_and_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "outbox.jsonl"
    outbox = Outbox(file)
    letters = [outbox.put(person="anna", method="POST", path="/x", body={"n": n}) for n in range(3)]
    outbox.settle(letters[1])
    with pytest.raises(FileError, match="another client"):
        Outbox(file)
    outbox.close()
    whole = file.read_bytes()
    for cut in range(len(whole) - 14, len(whole)):
        file.write_bytes(whole[:cut])
        again = Outbox(file)
        assert [letter.body["n"] for letter in again.waiting] == [0, 1, 2]
        assert again.put(person="bo", method="POST", path="/x", body={"n": 3}).number == 4
        again.close()
        again = Outbox(file)
        assert [letter.body["n"] for letter in again.waiting] == [0, 1, 2, 3]
        again.close()
    (tmp_path / "notes.txt").write_text("dear diary\n")
    with pytest.raises(FileError, match="line 1"):
        Outbox(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "dear diary\n"


def test_an_outbox_that_is_empty_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ilb.client.outbox.LONGEST", 10)
    outbox = Outbox(tmp_path / "outbox.jsonl")
    outbox.remember_told("anna", "v1", "B")
    outbox.remember_declared({"actions": ["A", "B"], "fallback": "uniform", "model": "x"})
    for n in range(30):
        outbox.settle(outbox.put(person="anna", method="POST", path="/x", body={"n": n}))
    assert len((tmp_path / "outbox.jsonl").read_text().splitlines()) < 12
    outbox.close()
    again = Outbox(tmp_path / "outbox.jsonl")
    assert (again.told, again.waiting) == ({("anna", "v1"): "B"}, [])
    assert again.declared == outbox.declared
    again.close()


def test_a_client_that_never_reached_a_server_says_what_it_lacks(tmp_path: Path) -> None:
    with Client("http://127.0.0.1:9", outbox=tmp_path / "outbox.jsonl", patience=0.0) as client:
        with pytest.raises(UnreachableError, match="give `actions` and `fallback`"):
            client.decide("anna", VISIT)
        assert client.waiting == 0
    with pytest.raises(IlbError, match="no address"):
        Client("clinic", outbox=tmp_path / "outbox.jsonl")


def test_the_client_is_there_without_jax_and_at_once() -> None:
    code = (
        "import sys, time; began = time.process_time(); import ilb.client; "
        "print(time.process_time() - began, {'jax', 'numpy', 'fastapi', 'pydantic'} & set(sys.modules))"
    )
    seconds, heavy = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert heavy == "set()"
    assert float(seconds) < 0.3
