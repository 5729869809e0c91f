"""The service as a program meets it: over HTTP, with a real store and a real model."""

import asyncio
import hmac
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import ilb.serve.problems
from ilb.cli.serve import label_hasher
from ilb.errors import IlbError
from ilb.live.bandit import LiveBandit
from ilb.logs import Logs
from ilb.serve.api import make_app
from ilb.serve.deciding import Decide
from ilb.serve.desk import Desk, Look
from ilb.serve.events import tally_all
from ilb.serve.explained import EXPLAINED
from ilb.serve.front import Front
from ilb.serve.keys import Key, Keys, Role, new_key
from ilb.serve.operations import Answer
from ilb.serve.people import ServedModel, catch_up, fold
from ilb.serve.postbox import Postbox
from ilb.serve.problems import ProblemError
from ilb.serve.service import Service
from ilb.serve.store import open_store
from ilb.serve.store.store import AbstractStore, Entry, StoreUnavailableError
from serving import POLICY, VISIT, clinic_model, open_client


@pytest.fixture(scope="module")
def served() -> ServedModel:
    return ServedModel(
        LiveBandit.on(clinic_model(), POLICY, seed=3), POLICY, "by hand", {"A": 0.25, "B": 0.25, "C": 0.25}
    )


class Interrupted:
    """A store in which something else happens just before one call of a method, as another server would do it."""

    def __init__(self, store: AbstractStore, method: str, meanwhile: Callable[[], Any], calls: int = 1) -> None:
        self._store, self._method, self._meanwhile, self._left = store, method, meanwhile, calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._method:
            return method

        def interrupted(*given: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
            return method(*given)

        return interrupted


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def open_service(served: ServedModel, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    opened: list[Service] = []

    def open_one(**options: Any) -> Service:
        store = open_store(str(tmp_path / "ilb.db"))
        given = {"clock": Clock(), "deadline": 30.0, "served": served, **options}
        service = Service(store, names=served.names, **given)
        service.record_model(served, "promoted")
        opened.append(service)
        return service

    yield open_one
    for service in opened:
        service.close()
        service.store.close()


@pytest.fixture
def service(open_service: Callable[..., Service]) -> Service:
    return open_service()


@pytest.fixture
def client(service: Service) -> TestClient:
    return open_client(make_app(service), raise_server_exceptions=False)


def ask(client: TestClient, person: str = "anna", key: str = "k1", **body: Any) -> Any:
    asked = {"context": VISIT, **body}
    return client.post(f"/v1/people/{person}/decisions", json=asked, headers={"Idempotency-Key": key})


def tell(client: TestClient, decision: str, **body: Any) -> Any:
    return client.post(f"/v1/decisions/{decision}/outcome", json=body)


def test_a_decision_is_that_of_a_live_instance_with_all_its_numbers(client: TestClient, served: ServedModel) -> None:
    anna = served.bandit.start("anna")
    for number in range(3):
        answer = ask(client, key=f"k{number}", forbidden=["B"])
        made = anna.decide(VISIT, forbidden=["B"])
        told = answer.json()
        assert answer.status_code == 201
        assert (told["number"], told["action"], told["reason"]) == (number, made.action, made.reason)
        assert told["propensity"] == pytest.approx(made.propensity, rel=1e-8)
        assert told["expected_reward"] == pytest.approx(dict(made.expected_reward), rel=1e-8)
        assert told["propensities"]["B"] == 0
        assert told["fallback"] is None
        assert tell(client, told["decision_id"], reward=0.5 * number).status_code == 201
        anna.learn(made, 0.5 * number)


def test_a_repeat_gets_the_same_bytes_and_another_body_is_refused(client: TestClient, service: Service) -> None:
    first = ask(client)
    again = ask(client)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.content == again.content
    assert ask(client, context={"mobility": -0.3, "pain": 1.4}).content == first.content  # the order means nothing
    other = ask(client, context={**VISIT, "pain": 2})
    assert other.status_code == 422
    assert other.json()["type"].endswith("key-reused")
    assert other.headers["content-type"] == "application/problem+json"
    assert ask(client, person="bo").content != first.content
    assert service.store.counts()["decisions"] == 2


def test_outcomes_are_taken_once_contradictions_refused_and_corrections_kept(
    client: TestClient, service: Service
) -> None:
    decided = ask(client).json()
    first = tell(client, decided["decision_id"], reward=1.5)
    again = tell(client, decided["decision_id"], reward=1.5)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.content == again.content
    assert tell(client, decided["decision_id"], reward=1.6).status_code == 409
    address = f"/v1/decisions/{decided['decision_id']}/outcome"
    corrected = client.put(address, json={"reward": 1.6, "supersedes": first.json()["event"], "why": "typo"})
    assert corrected.status_code == 201
    same = client.put(address, json={"reward": 1.6, "supersedes": first.json()["event"], "why": "typo"})
    assert (same.status_code, same.content) == (200, corrected.content)
    assert client.put(address, json={"reward": 1.7, "supersedes": first.json()["event"], "why": "x"}).status_code == 409
    assert tell(client, decided["decision_id"], reward=1.5).content == first.content  # a late repeat of the first
    story = client.get(f"/v1/decisions/{decided['decision_id']}").json()
    assert story["outcome"]["reward"] == 1.6
    assert story["corrections"] == 1
    assert tell(client, "0123", reward=1.0).status_code == 404
    assert service.store.counts()["outcomes"] == 1


def test_a_corrected_reward_counts_as_if_it_had_been_told_at_first(client: TestClient, served: ServedModel) -> None:
    anna = served.bandit.start("anna")
    for number, (wrong, right) in enumerate([(9.0, 1.0), (0.5, 0.5)]):
        decided = ask(client, key=f"k{number}").json()
        event = tell(client, decided["decision_id"], reward=wrong).json()["event"]
        if wrong != right:
            body = {"reward": right, "supersedes": event, "why": "typo"}
            client.put(f"/v1/decisions/{decided['decision_id']}/outcome", json=body)
        anna.learn(anna.decide(VISIT), right, action=decided["action"])
    assert ask(client, key="k9").json()["expected_reward"] == pytest.approx(
        dict(anna.decide(VISIT).expected_reward), rel=1e-8
    )


def test_a_voided_decision_waits_for_nothing_and_an_observation_is_taken_in(
    client: TestClient, service: Service, served: ServedModel
) -> None:
    decided = ask(client).json()
    void = client.post(f"/v1/decisions/{decided['decision_id']}/void", json={"why": "not_shown"})
    again = client.post(f"/v1/decisions/{decided['decision_id']}/void", json={"why": "not_shown"})
    assert (void.status_code, again.status_code, void.content) == (201, 200, again.content)
    assert tell(client, decided["decision_id"], reward=1.0).status_code == 409
    seen = {"context": {"pain": 0.0, "mobility": 1.0}}
    for status in (201, 200):
        head = {"Idempotency-Key": "o1"}
        assert client.post("/v1/people/anna/observations", json=seen, headers=head).status_code == status
    anna = served.bandit.start("anna")
    anna.forget(anna.decide(VISIT))
    anna.observe({"pain": 0.0, "mobility": 1.0})
    assert ask(client, key="k2").json()["expected_reward"] == pytest.approx(
        dict(anna.decide(VISIT).expected_reward), rel=1e-8
    )
    assert "pending" not in {name for name, value in service.store.counts().items() if value == 0}
    done = ask(client, key="k3").json()["decision_id"]
    tell(client, done, reward=0.1)
    assert client.post(f"/v1/decisions/{done}/void", json={}).status_code == 409


def test_an_apprentice_does_what_is_done_and_a_shadow_is_told_later(client: TestClient) -> None:
    apprentice = ask(client, mode="apprentice", taken="B").json()
    assert (apprentice["action"], apprentice["propensity"]) == ("B", None)
    shadow = ask(client, key="k2", mode="shadow").json()
    assert shadow["action"] == shadow["would"]
    untold = tell(client, shadow["decision_id"], reward=0.3)
    assert untold.status_code == 422
    assert "action" in untold.json()["detail"]
    assert tell(client, shadow["decision_id"], reward=0.3, action="C").status_code == 201
    agreement = client.get("/v1/status").json()["agreement"]
    assert agreement["apprentice"] == {"compared": 1, "rate": float(apprentice["would"] == "B")}
    assert agreement["shadow"] == {"compared": 1, "rate": float(shadow["would"] == "C")}
    assert ask(client, key="k3", mode="apprentice").status_code == 422
    assert ask(client, key="k3", taken="B").status_code == 422


def test_a_dry_run_says_what_would_be_decided_and_leaves_nothing(client: TestClient, service: Service) -> None:
    dry = client.post("/v1/people/anna/decisions", json={"context": VISIT, "dry_run": True})
    assert dry.status_code == 200
    assert service.store.counts()["people"] == 0
    told = ask(client).json()
    assert {**dry.json(), "decision_id": "", "decided_at": ""} == {**told, "decision_id": "", "decided_at": ""}


def test_without_a_model_the_declared_fallback_decides_with_its_propensity(
    open_service: Callable[..., Service],
) -> None:
    service = open_service(served=None)
    client = open_client(make_app(service))
    drawn = [ask(client, key=f"k{i}", forbidden=["B"]).json() for i in range(40)]
    assert {one["propensity"] for one in drawn} == {0.5}
    shares = [one["action"] for one in drawn].count("A") / 40
    assert abs(shares - 0.5) < 4 * math.sqrt(0.25 / 40)
    assert drawn[0]["fallback"] == {"severity": "red", "cause": "no model is loaded"}
    assert client.get("/v1/status").json()["severity"] == "red"
    assert client.get("/readyz").status_code == 200
    assert tell(client, drawn[0]["decision_id"], reward=1.0).status_code == 201
    service.declared = "C"
    fixed = ask(client, key="fixed").json()
    assert (fixed["action"], fixed["propensity"]) == ("C", 1.0)
    assert ask(client, key="ruled-out", forbidden=["C"]).json()["propensity"] == 0.5


def test_a_model_that_fails_or_hangs_is_replaced_by_the_fallback_and_its_state_is_whole_afterwards(
    client: TestClient, service: Service, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ilb.serve.engine as engine

    ask(client, key="k0")
    with monkeypatch.context() as broken:
        broken.setattr(engine, "catch_up", lambda *given: 1 / 0)
        failed = ask(client, key="k1")
    assert failed.status_code == 201
    assert failed.json()["fallback"] == {"severity": "red", "cause": "the model failed with ZeroDivisionError"}
    with monkeypatch.context() as slow:
        slow.setattr(service.engine, "_deadline", 0.0)
        late = ask(client, key="k2").json()
    assert late["fallback"]["severity"] == "yellow"
    assert tell(client, late["decision_id"], reward=0.7).status_code == 201
    anna = served.bandit.start("anna")
    for _ in range(2):
        anna.decide(VISIT)
    anna.learn(anna.decide(VISIT), 0.7, action=late["action"])
    now = ask(client, key="k3").json()
    assert now["fallback"] is None
    assert now["expected_reward"] == pytest.approx(dict(anna.decide(VISIT).expected_reward), rel=1e-8)


def test_while_programs_are_compiled_decisions_wait_for_the_model_instead_of_falling_back(
    open_service: Callable[..., Service], served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service(deadline=1.0)
    client = open_client(make_app(service))
    finish = threading.Event()
    with monkeypatch.context() as compiling:
        compiling.setattr(served, "warm_up", lambda: finish.wait(30))
        service.engine.warm_up()
    assert client.get("/readyz").json()["status"] == "compiling"
    threading.Timer(1.5, finish.set).start()
    assert ask(client).json()["fallback"] is None
    assert client.get("/readyz").status_code == 200


def test_an_unreadable_state_is_computed_again_from_the_events(
    client: TestClient, service: Service, served: ServedModel
) -> None:
    for number in range(3):
        tell(client, ask(client, key=f"k{number}").json()["decision_id"], reward=1.0)
    saved = service.store.states(["anna"])["anna"]
    dry = ask(client, key="dry", dry_run=True).json()["expected_reward"]
    for text in ("{", "{}", '{"began":"","waiting":{},"live":"nonsense"}', saved.text.replace("1", "2")):
        service.store.save_states({"anna": saved._replace(text=text)})
        service.engine.forget("anna")
        assert ask(client, key="dry", dry_run=True).json()["expected_reward"] == dry
    whole = fold(served, "anna", service.store.events_of("anna"))
    assert whole.events == 6


def test_a_store_that_cannot_write_answers_503_and_nothing_is_done(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = ask(client).json()

    def fail(entries: list[Entry]) -> list[bool]:
        raise StoreUnavailableError("the disk is full.")

    with monkeypatch.context() as full:
        full.setattr(service.store, "append", fail)
        refused = ask(client, key="k2")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert tell(client, decided["decision_id"], reward=1.0).status_code == 503
        assert ask(client).status_code == 200  # what is stored is still told
    assert ask(client, key="k2").status_code == 201
    assert tell(client, decided["decision_id"], reward=1.0).status_code == 201
    assert service.store.counts()["decisions"] == 2


def test_what_the_client_decided_alone_is_taken_in_with_the_propensity_of_the_fallback(client: TestClient) -> None:
    from ilb.serve.fallback import draw

    drawn = draw(None, ["A", "B", "C"], "anna", "k1")
    made = {"action": drawn.action, "cause": "connection refused", "decided_at": "2026-01-01T00:00:00Z"}
    told = ask(client, made=made).json()
    assert (told["action"], told["propensity"]) == (drawn.action, pytest.approx(1 / 3))
    assert told["fallback"]["cause"] == "decided by the client: connection refused"
    assert told["decided_at"] == "2026-01-01T00:00:00.000000Z"
    assert ask(client, made=made).json() == told
    assert ask(client, key="k2", made={**made, "action": "B"}).json()["propensity"] in (None, pytest.approx(1 / 3))
    known = {**made, "action": "B", "propensity": 0.5, "fallback": "uniform"}  # of what the client knew, not the server
    for key in ("k3", "k4", "k5"):
        assert ask(client, key=key, made=known).json()["propensity"] == 0.5
    for wrong in (0, 1.5, "half"):
        assert ask(client, key="k6", made={**known, "propensity": wrong}).status_code == 422


def test_nobody_is_lost_or_doubled_when_many_ask_at_once(client: TestClient, service: Service) -> None:
    def one_client(number: int) -> list[tuple[str, str]]:
        told = []
        for visit in range(4):
            person = f"p{(number + visit) % 5}"
            first = ask(client, person=person, key=f"{number}-{visit}")
            again = ask(client, person=person, key=f"{number}-{visit}")
            assert first.content == again.content
            tell(client, first.json()["decision_id"], reward=float(visit))
            told.append((person, first.json()["decision_id"]))
        return told

    with ThreadPoolExecutor(8) as pool:
        told = [pair for pairs in pool.map(one_client, range(8)) for pair in pairs]
    events = list(service.store.log())
    decided = [(event.person, event.decision) for event in events if event.kind == "decision"]
    assert sorted(decided) == sorted(told)
    assert len(set(told)) == 32
    counted = service.store.counts()
    assert (counted["decisions"], counted["outcomes"], counted.get("pending", 0)) == (32, 32, 0)
    assert {**tally_all(events), "people": 5} == counted
    for person in {person for person, _ in told}:
        mine = [event for event in events if event.person == person]
        assert [event.number for event in mine] == list(range(1, len(mine) + 1))


def test_an_erased_person_begins_anew(client: TestClient, service: Service) -> None:
    first = ask(client)
    tell(client, first.json()["decision_id"], reward=2.0)
    assert client.delete("/v1/people/anna").json() == {"erased_events": 2, "overwritten": True}
    assert client.get("/v1/people/anna").status_code == 404
    assert client.delete("/v1/people/anna").status_code == 404
    assert client.get(f"/v1/decisions/{first.json()['decision_id']}").status_code == 410
    assert tell(client, first.json()["decision_id"], reward=2.0).status_code == 410
    anew = ask(client).json()
    assert anew["number"] == 0
    assert anew["expected_reward"] == first.json()["expected_reward"]
    assert service.store.counts()["decisions"] == 2
    assert "anna" not in client.get("/v1/status").text


@pytest.mark.parametrize(("method", "calls"), [("whose", 1), ("heads", 1), ("about", 1), ("append", 1)])
def test_of_two_servers_that_are_told_different_outcomes_one_refuses(
    client: TestClient, service: Service, served: ServedModel, method: str, calls: int
) -> None:
    decided = ask(client).json()["decision_id"]
    told: list[int] = []
    other = Service(service.store, served, served.names, deadline=30.0)
    second, meanwhile = open_client(make_app(other)), partial(tell, client, decided, reward=1.0)
    other.store = Interrupted(service.store, method, lambda: told.append(meanwhile().status_code), calls)  # type: ignore[assignment]
    told.append(tell(second, decided, reward=2.0).status_code)
    other.close()
    assert told == [201, 409]
    assert [event.kind for event in service.store.events_of("anna")] == ["decision", "outcome"]


@pytest.mark.parametrize("method", ["with_keys", "append"])
def test_who_is_erased_by_another_server_meanwhile_is_not_brought_back(
    client: TestClient, service: Service, served: ServedModel, method: str
) -> None:
    ask(client)
    other = Service(service.store, served, served.names, deadline=30.0)
    second, erase = open_client(make_app(other)), partial(client.delete, "/v1/people/anna")
    other.store = Interrupted(service.store, method, erase)  # type: ignore[assignment]
    late = ask(second, key="k2")
    other.close()
    assert (late.status_code, late.json()["type"]) == (410, "/problems#erased")
    assert "anna" not in "".join(str(event.as_json()) for event in service.store.log())
    assert service.store.heads(["anna"]) == {} == service.store.states(["anna"])
    assert ask(client, key="k2").json()["number"] == 0


def test_a_staged_model_forgets_who_is_erased(client: TestClient, service: Service, served: ServedModel) -> None:
    service.stage(served)
    assert service.staged is not None
    ask(client)
    ask(client, person="bo")
    client.delete("/v1/people/anna")
    service.staged._thread.submit(int).result(20)  # all before it is done
    assert list(service.staged._states._known) == ["bo"]


def test_what_is_erased_while_somebody_reads_is_overwritten_later_and_nobody_waits(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ilb.serve.scrubbing.PATIENCE", 0.1)
    monkeypatch.setattr("ilb.serve.scrubbing.AGAIN", 0.1)
    ask(client, person="anna-the-secret")
    folder = Path(service.store.address.removeprefix("sqlite:///")).parent
    with service.store._reading() as reader:  # type: ignore[attr-defined]
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM events").fetchone()
        assert client.delete("/v1/people/anna-the-secret").json() == {"erased_events": 1, "overwritten": False}
        assert ask(client, person="bo").status_code == 201
        found = client.get("/v1/status").json()
        assert (found["severity"], "still hold what was erased" in found["findings"][0]["cause"]) == ("yellow", True)
        reader.execute("COMMIT")
    deadline = time.monotonic() + 10
    while service.scrubber.is_late and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not service.scrubber.is_late
    assert all(b"the-secret" not in file.read_bytes() for file in folder.iterdir())


def test_what_was_refused_with_its_turn_is_not_done_in_the_next_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = service.store.heads

    def fail(people: Any) -> Any:
        monkeypatch.setattr(service.store, "heads", heads)
        raise StoreUnavailableError("the database is away.")

    def decide(person: str, key: str) -> Any:
        return service.submit(Decide(person, key, {"context": VISIT}))

    with service._turn:
        first = decide("bo", "k1")
        while service.waiting:  # until it is taken, and waits for the turn
            time.sleep(0.005)
        refused = [decide("anna", "k1"), decide("anna", "k2")]  # the second one is put off
        others = [decide(f"p{number}", "k1") for number in range(3)]
        monkeypatch.setattr(service.store, "heads", lambda people: fail(people) if "anna" in people else heads(people))
    assert first.result(20).status == 201
    for one in (*refused, *others):
        with pytest.raises(ProblemError, match="the database is away"):
            one.result(20)
    assert [decide(f"p{number}", "k2").result(20).status for number in range(3)] == [201] * 3
    assert service.store.heads(["anna"]) == {}
    assert "service" not in service.failures


def test_a_mistake_about_one_request_is_not_another_ones(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(client, "anna", "k0")
    look_at = Desk.look_at

    def stumble(desk: Desk, person: str, context: dict[str, Any]) -> Look:
        if person == "anna":
            raise KeyError(person)
        return look_at(desk, person, context)

    monkeypatch.setattr(Desk, "look_at", stumble)
    with service._turn:  # the first begins a turn and waits here; the others are of the next one
        service.submit(Decide("cleo", "k1", {"context": VISIT}))
        time.sleep(0.1)
        asked = [service.submit(Decide(person, "k1", {"context": VISIT})) for person in ("anna", "bo")]
    with pytest.raises(ProblemError, match="KeyError"):
        asked[0].result(30)
    assert asked[1].result(30).status == 201


def test_what_is_stored_is_answered_though_counting_it_fails(client: TestClient, service: Service) -> None:
    def fail(found: Any, event: Any) -> None:
        raise ZeroDivisionError

    service.watch = fail
    with service._turn:
        futures = [service.submit(Decide(f"p{number}", "k", {"context": VISIT})) for number in range(4)]
    assert [one.result(20).status for one in futures] == [201] * 4
    assert service.store.counts()["decisions"] == 4
    assert "ZeroDivisionError" in client.get("/v1/status").json()["failures"]["service"]


def test_a_key_belongs_to_one_kind_of_request(client: TestClient) -> None:
    seen: dict[str, Any] = {"json": {"context": VISIT}, "headers": {"Idempotency-Key": "k1"}}
    assert client.post("/v1/people/anna/observations", **seen).status_code == 201
    refused = ask(client)
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems#key-reused")
    assert ask(client, key="k2").status_code == 201
    seen["headers"] = {"Idempotency-Key": "k2"}
    assert client.post("/v1/people/anna/observations", **seen).status_code == 422


def test_the_log_is_a_table_that_logs_read_with_propensities(client: TestClient, served: ServedModel) -> None:
    for number in range(3):
        tell(client, ask(client, key=f"k{number}").json()["decision_id"], reward=float(number))
    late = ask(client, person="bo").json()
    tell(client, late["decision_id"], reward=7.0, action="A" if late["action"] != "A" else "B")
    ask(client, person="cleo", mode="apprentice", taken="B")
    ask(client, person="dora", mode="shadow")
    voided = ask(client, person="emil").json()["decision_id"]
    client.post(f"/v1/decisions/{voided}/void", json={})
    table = pq.read_table(BytesIO(client.get("/v1/log?format=parquet").content))
    logs = Logs.from_frame(table, schema=served.schema)
    assert logs.instance_labels == ("anna", "bo", "cleo")
    assert logs.reward[:4].tolist() == [0, 1, 2, 7]
    assert logs.context[0].tolist() == pytest.approx(served.schema.encode(VISIT).tolist())
    propensities = table["propensity"].to_pylist()
    assert all(0 < one <= 1 for one in propensities[:3])
    assert propensities[3:] == [None, None]  # somebody else chose these
    lines = [json.loads(line) for line in client.get("/v1/log").text.splitlines()]
    assert [line["propensity"] for line in lines] == propensities
    events = [json.loads(line) for line in client.get("/v1/log?format=events").text.splitlines()]
    assert [event["position"] for event in events] == sorted(event["position"] for event in events)
    behind = client.get(f"/v1/log?since={events[-3]['position']}").text.splitlines()
    assert len(behind) == 0


def test_roles_open_what_is_theirs_and_no_more(service: Service) -> None:
    made = {role: new_key(role, "test") for role in Role}
    file = Path(str(service.store.address).removeprefix("sqlite:///")).with_name("keys")
    file.write_text("# keys\n" + "\n".join(line for _, line in made.values()))
    client = open_client(make_app(service, keys=Keys.read(file)), raise_server_exceptions=False)

    def status(role: Role | None, method: str, address: str, **sent: Any) -> int:
        headers = {} if role is None else {"Authorization": f"Bearer {made[role][0]}"}
        return client.request(method, address, headers={**headers, "Idempotency-Key": "k"}, **sent).status_code

    asked = {"json": {"context": VISIT}}
    assert [status(role, "POST", "/v1/people/anna/decisions", **asked) for role in (None, *Role)] == [
        401,
        201,
        403,
        200,
    ]
    assert [status(role, "GET", "/v1/log") for role in (None, *Role)] == [401, 403, 200, 200]
    assert [status(role, "DELETE", "/v1/people/anna") for role in (None, *Role)] == [401, 403, 403, 200]
    assert [status(role, "GET", "/metrics") for role in (None, *Role)] == [401, 403, 200, 200]
    assert status(None, "GET", "/livez") == 200
    assert client.get("/v1/log", headers={"Authorization": "Bearer ilb_stolen"}).status_code == 401
    assert made[Role.READ][0] not in file.read_text()


def test_without_keys_only_this_machine_is_answered(client: TestClient) -> None:
    assert client.get("/livez", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/livez", headers={"host": "testserver"}).status_code == 403
    assert client.get("/livez", headers={"host": "[::1]:8000"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-Forwarded-For": "203.0.113.7"}, 403),
        ({"Forwarded": "for=203.0.113.7"}, 403),
    ],
)
def test_without_keys_no_foreign_page_and_no_proxy_may_change_anything(
    client: TestClient, service: Service, headers: dict[str, str], status: int
) -> None:
    sent = {"Idempotency-Key": "k", **headers}
    answer = client.post("/v1/people/anna/decisions", json={"context": VISIT}, headers=sent)
    assert answer.status_code == status
    if status == 403:
        assert "`ilb key`" in answer.json()["detail"]
        assert service.store.counts()["people"] == 0
        assert client.delete("/v1/people/anna", headers=headers).status_code == 403


def test_with_keys_a_proxy_may_stand_in_front(service: Service, tmp_path: Path) -> None:
    key, line = new_key(Role.READ, "nurse")
    (tmp_path / "keys").write_text(line)
    client = open_client(make_app(service, keys=Keys.read(tmp_path / "keys")))
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": "203.0.113.7", "Host": "study.example"}
    assert client.get("/v1/log", headers=headers).status_code == 200


def test_ids_that_no_decision_can_have_are_unknown_without_asking_the_store(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(ids: Any) -> Any:
        raise AssertionError(ids)

    monkeypatch.setattr(service.store, "about", fail)
    for name in ("%00", "a%00b", "0123", "x" * 24, "0" * 25):
        assert tell(client, name, reward=1.0).status_code == 404
        assert (
            client.put(f"/v1/decisions/{name}/outcome", json={"reward": 1, "supersedes": 1, "why": ""}).status_code
            == 404
        )
        assert client.post(f"/v1/decisions/{name}/void", json={}).status_code == 404
        assert client.get(f"/v1/decisions/{name}").status_code == 404
        assert client.get(f"/decisions/{name}").status_code == 404
    assert client.get("/people/a%00b").status_code == 404
    assert client.get("/people?label=%00&after=%00").status_code == 200


HOSTILE: list[tuple[int, Any]] = [
    (422, {}),
    (422, []),
    (422, {"context": None}),
    (422, {"context": {"pain": 1}}),
    (422, {"context": {"pain": "much", "mobility": 0}}),
    (422, {"context": {"pain": 1e308, "mobility": 0}}),
    (422, {"context": {"pain": {"deep": 1}, "mobility": 0}}),
    (422, {"context": VISIT, "allowed": []}),
    (422, {"context": VISIT, "allowed": ["D"]}),
    (422, {"context": VISIT, "forbidden": ["A", "B", "C"]}),
    (422, {"context": VISIT, "mode": "lively"}),
    (422, {"context": VISIT, "unknown": 1}),
    (422, {"context": VISIT, "tags": {str(i): "x" for i in range(100)}}),
    (422, {"context": VISIT, "tags": {"a": "x" * 1000}}),
    (422, {"context": VISIT, "dry_run": "yes"}),
    (422, {"context": {f"c{i}": 0 for i in range(3000)}}),
    (422, {"context": {**VISIT, "note": "\ud800"}}),
    (422, {"context": VISIT, "made": {"action": "A", "cause": "x", "decided_at": "yesterday"}}),
]


@pytest.mark.parametrize(("status", "body"), HOSTILE)
def test_hostile_bodies_are_refused_in_words(client: TestClient, service: Service, status: int, body: Any) -> None:
    text = json.dumps(body)
    answer = client.post(
        "/v1/people/anna/decisions",
        content=text,
        headers={"Idempotency-Key": "k", "Content-Type": "application/json"},
    )
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.json()["detail"]) > 20
    assert service.store.counts()["people"] == 0


ODD: list[dict[str, Any]] = [
    {"json": {"context": VISIT}},
    {"json": {"context": VISIT}, "headers": {"Idempotency-Key": "with space"}},
    {"json": {"context": VISIT}, "headers": [("Idempotency-Key", "b c"), ("Idempotency-Key", "a")]},
    {"json": {"context": VISIT}, "headers": {"Idempotency-Key": "k", "Content-Type": "text/plain"}},
    {"content": b'{"context": {}}', "headers": {"Idempotency-Key": "k"}},
    {"content": b'{"context": ' + b"9" * 5000 + b"}", "headers": {"Content-Type": "application/json"}},
    {"json": {"context": {"pain": 1}}, "headers": {"Idempotency-Key": "k"}},
    {"json": {"context": VISIT, "mode": "apprentice"}, "headers": {"Idempotency-Key": "k"}},
    {"json": {"reward": 1, "unknown": 2}},
    {"json": {"reward": "much"}},
    {"json": {"reward": 1, "supersedes": 2, "why": "typo"}},
    {"json": {"why": "bored"}},
]


@pytest.mark.parametrize("asked", ODD)
@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("POST", "/v1/people/anna/decisions"),
        ("POST", "/v1/people//decisions"),
        ("POST", f"/v1/people/{'x' * 201}/decisions"),
        ("POST", "/v1/people/a%00b/observations"),
        ("POST", f"/v1/decisions/{'0' * 24}/outcome"),
        ("PUT", f"/v1/decisions/{'0' * 24}/outcome"),
        ("POST", f"/v1/decisions/{'0' * 65}/void"),
        ("DELETE", f"/v1/decisions/{'0' * 24}/outcome"),
    ],
)
def test_what_is_refused_is_refused_alike_whether_or_not_the_framework_is_passed_by(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, method: str, address: str, asked: dict[str, Any]
) -> None:
    quick = client.request(method, address, **asked)
    monkeypatch.setattr("ilb.serve.express.LANES", {})
    slow = client.request(method, address, **asked)
    assert quick.status_code >= 400
    assert (quick.status_code, quick.content) == (slow.status_code, slow.content)
    assert quick.headers == slow.headers


def test_what_is_in_order_is_answered_alike_whether_or_not_the_framework_is_passed_by(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live_through(person: str) -> list[Any]:
        decided = ask(client, person, allowed=["A", "B"], tags={"ward": "3"})
        name = decided.json()["decision_id"]
        told = tell(client, name, reward=1.5, observed_at="2026-01-02T03:04:05+01:00")
        correction = {"reward": 1, "supersedes": told.json()["event"], "why": "typo"}
        corrected = client.put(f"/v1/decisions/{name}/outcome", json=correction)
        voided = client.post(f"/v1/decisions/{ask(client, person, 'k2').json()['decision_id']}/void", json={})
        seen = client.post(
            f"/v1/people/{person}/observations", json={"context": VISIT}, headers={"Idempotency-Key": "k3"}
        )
        answers = [decided, told, corrected, voided, seen, ask(client, person, dry_run=True, key="k4")]
        fixed = ("decision_id", "decided_at", "recorded_at", "propensities", "propensity", "action", "would", "reason")
        return [
            (
                answer.status_code,
                list(answer.headers),
                list(answer.json()),
                {name: value for name, value in answer.json().items() if name not in fixed},
            )
            for answer in answers
        ]

    quick = live_through("anna")
    monkeypatch.setattr("ilb.serve.express.LANES", {})
    assert quick == live_through("bo")


def test_all_fields_that_are_missing_or_not_known_are_named_at_once(client: TestClient) -> None:
    answer = client.put(f"/v1/decisions/{'0' * 24}/outcome", json={"reword": 1, "wy": "typo"})
    for field in ("body.reward", "body.supersedes", "body.why", "body.reword", "body.wy"):
        assert field in answer.json()["detail"]


def test_every_kind_of_problem_is_explained_where_its_type_points_to(service: Service) -> None:
    source = Path(ilb.serve.problems.__file__).parent
    said = "".join(path.read_text() for path in source.rglob("*.py"))
    kinds = set(re.findall(r'ProblemError\(\s*[^",]*,\s*"([a-z-]+)"', said)) | set(
        re.findall(r"/problems#([a-z-]+)", said)
    )
    assert len(kinds) > 25
    assert kinds == set(EXPLAINED)
    _, line = new_key(Role.READ, "nurse")
    keys = Keys([Key(Role.READ, line.split()[1], "nurse")])
    page = open_client(make_app(service, keys=keys)).get("/problems")
    assert page.status_code == 200
    assert all(f'id="{kind}"' in page.text for kind in kinds)
    assert "http://" not in page.text.replace("http://127.0.0.1", "")


def test_an_answer_that_is_there_before_it_is_awaited_is_not_waited_for() -> None:
    postbox, ready, refused = Postbox(), Future[Answer](), Future[Answer]()
    ready.set_result(Answer(201, "{}"))
    refused.set_exception(ProblemError(409, "voided", "no"))
    assert asyncio.run(postbox.answer(ready)) == Answer(201, "{}")
    with pytest.raises(ProblemError):
        asyncio.run(postbox.answer(refused))
    postbox.empty()  # both loops have ended, and nobody is disturbed by it


def test_answers_of_a_turn_are_brought_when_it_is_over() -> None:
    postbox, waiting = Postbox(), [Future[Answer]() for _ in range(3)]

    def turn() -> None:
        for number, one in enumerate(waiting):
            one.set_result(Answer(201, str(number)))
        postbox.empty()

    async def await_all() -> list[Answer]:
        asyncio.get_running_loop().call_later(0.05, threading.Thread(target=turn).start)
        return await asyncio.gather(*map(postbox.answer, waiting))

    assert [answer.text for answer in asyncio.run(await_all())] == ["0", "1", "2"]


def test_the_front_says_that_it_lives_and_lets_others_wait_until_all_is_loaded(client: TestClient) -> None:
    async def ask_front(front: Front, path: str) -> tuple[int, bytes]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        host = [(b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "GET", "path": path, "headers": host, "query_string": b"", "state": {}}
        await front(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    async def start() -> None:
        front = Front()
        assert (await ask_front(front, "/livez"))[0] == 200
        assert (await ask_front(front, "/readyz"))[0] == 503
        waiting = asyncio.create_task(ask_front(front, "/v1/status"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        front.open(client.app)
        status, text = await waiting
        assert (status, json.loads(text)["status"]) == (200, "ok")

    async def fail() -> None:
        front = Front()
        waiting = asyncio.create_task(ask_front(front, "/v1/status"))
        await asyncio.sleep(0)
        front.give_up()
        status, text = await waiting
        assert (status, json.loads(text)["type"]) == (503, "/problems#not-started")

    asyncio.run(start())
    asyncio.run(fail())


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (422, b""),
        (422, b'{"context": {"pain": NaN, "mobility": 0}}'),
        (422, b'{"context": {"pain": 1e999, "mobility": 0}}'),
        (422, b"{" * 100_000),
        (422, b'{"context":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        (422, b"\xff\xfe"),
        (413, b" " * 300_000),
    ],
)
def test_bodies_that_are_no_json_are_refused(client: TestClient, status: int, content: bytes) -> None:
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = client.post("/v1/people/anna/decisions", content=content, headers=headers)
    assert answer.status_code == status, answer.text


def test_odd_labels_and_keys_are_taken_as_they_are_or_refused(client: TestClient) -> None:
    for label in ("'; DROP TABLE events; --", "<script>alert(1)</script>", "Łukasz 𝄞", ".."):
        assert ask(client, person=quote(label, safe="") if label != ".." else "%2E%2E").status_code in (201, 404)
    assert ask(client, person="a%00b").status_code == 422
    assert ask(client, person="x" * 201).status_code == 422
    assert ask(client, person="x" * 3000).status_code == 414
    assert ask(client, key="").status_code == 422
    assert ask(client, key="two words").status_code == 422
    assert client.post("/v1/people/anna/decisions", json={"context": VISIT}).status_code == 400
    form = client.post("/v1/people/anna/decisions", data={"context": "x"}, headers={"Idempotency-Key": "k"})
    assert form.status_code == 422  # what a foreign page can send without asking is no request here
    assert client.get("/nowhere").json()["status"] == 404
    assert client.request("PATCH", "/v1/status").json()["status"] == 405
    assert client.request("PATCH", "/v1/people/anna").headers["allow"] == "DELETE, GET"


def test_metrics_count_what_happened_and_name_nobody(client: TestClient) -> None:
    decided = ask(client, person="anna-the-secret").json()
    tell(client, decided["decision_id"], reward=0.5)
    tell(client, decided["decision_id"], reward=0.5)
    tell(client, decided["decision_id"], reward=0.6)
    tell(client, "unknown", reward=0.6)
    text = client.get("/metrics").text
    assert f'ilb_decisions_total{{action="{decided["action"]}",fallback="none",mode="live"}} 1.0' in text
    for kind in ("new", "repeat", "conflict", "unknown"):
        assert f'ilb_outcomes_total{{kind="{kind}"}} 1.0' in text
    assert "ilb_surprise_count 1.0" in text
    assert "secret" not in text
    squared = (0.5 - decided["expected_reward"][decided["action"]]) ** 2
    variance = decided["reward_std"][decided["action"]] ** 2 + 0.25
    found = next(line for line in text.splitlines() if line.startswith("ilb_surprise_sum"))
    assert float(found.split()[1]) == pytest.approx(squared / variance)


def test_no_number_in_json_is_said_to_be_the_trouble(client: TestClient) -> None:
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answer = client.post("/v1/people/anna/decisions", content=b'{"context": {"pain": NaN}}', headers=headers)
    assert "NaN is no number in JSON" in answer.json()["detail"]


def test_a_clock_that_was_set_back_is_noticed(client: TestClient, service: Service) -> None:
    ask(client)
    service.clock.now -= timedelta(hours=1)  # type: ignore[attr-defined]
    found = client.get("/v1/status").json()
    assert (found["severity"], found["status"]) == ("yellow", "degraded")
    assert "behind the newest event" in found["findings"][0]["cause"]
    second = ask(client, key="k2").json()
    assert second["number"] == 1


def test_the_document_describes_every_route_with_examples(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method in methods.values():
            assert method["summary"], path
    assert "examples" in document["components"]["schemas"]["DecisionBody"]


def test_a_long_history_is_saved_as_soon_as_it_is_computed(
    client: TestClient, service: Service, served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ilb.serve.people.LONG", 3)
    for number in range(4):
        ask(client, key=f"k{number}")
    service.store.forget_states()
    head = service.store.heads(["anna"])["anna"]
    catch_up(served, service.store, "anna", head, None)  # and no decision: there was no time for one
    assert service.store.states(["anna"])["anna"].events == 4


def test_labels_can_be_hashed_at_the_door_and_are_then_nowhere(service: Service, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sixteen bytes or more")
    client = open_client(make_app(service, label=label_hasher(secret)))
    first = ask(client, person="anna-the-secret").json()
    assert ask(client, person="anna-the-secret", key="k2").json()["number"] == 1
    story = client.get(f"/v1/decisions/{first['decision_id']}").json()
    expected = hmac.new(b"sixteen bytes or more", b"anna-the-secret", "sha256").hexdigest()[:32]
    assert story["person"] == expected
    assert "the-secret" not in client.get("/v1/log?format=events").text
    assert client.get("/v1/people/anna-the-secret").json()["events"] == 2
    secret.write_text("short")
    with pytest.raises(IlbError, match="at least 16"):
        label_hasher(secret)


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")
def test_a_context_far_from_the_logs_is_decided_for_and_counted(client: TestClient) -> None:
    told = ask(client, context={"pain": 1000.0, "mobility": 0.0}).json()
    assert told["fallback"] is None
    [warning] = told["warnings"]
    assert warning.startswith("column 'pain' of 'anna' is ")
    assert "ilb_far_contexts_total 1.0" in client.get("/metrics").text


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")
def test_what_is_odd_about_a_context_is_told_to_whoever_sent_it(client: TestClient) -> None:
    assert ask(client).json()["warnings"] == []
    told = ask(client, "ben", context={**VISIT, "pian": 3.0})
    assert "keys that the model does not know: 'pian'" in told.json()["warnings"][0]
    assert ask(client, "ben", context={**VISIT, "pian": 3.0}).content == told.content
