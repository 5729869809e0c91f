"""The service from start to end: `ilb serve` as a process, replay from the log, staging and promotion, the way back."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from ilb.cli import run
from ilb.errors import DecisionError, FileError
from ilb.logs import Logs
from ilb.serve.api import make_app
from ilb.serve.people import ServedModel
from ilb.serve.promotion import take_charge
from ilb.serve.replay import models_of, verify
from ilb.serve.service import Service
from ilb.serve.store import open_store
from ilb.serve.store.store import AbstractStore, Entry
from serving import POLICY, VISIT, clinic_model, open_client, running_postgres


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on disk: `old`, and `new`, which thinks differently of one drug."""
    folder = tmp_path_factory.mktemp("models")
    clinic_model().save(folder / "old")
    clinic_model(tilt=2.0).save(folder / "new")
    return folder


@pytest.fixture(scope="module")
def old(models: Path) -> ServedModel:
    return ServedModel.load(models / "old", POLICY)


@pytest.fixture
def serve(old: ServedModel) -> Iterator[Callable[[AbstractStore], tuple[Service, TestClient]]]:
    opened: list[Service] = []

    def serve_one(store: AbstractStore, served: ServedModel = old) -> tuple[Service, TestClient]:
        service = Service(store, served, served.names, deadline=30.0)
        service.record_model(served, "promoted")
        opened.append(service)
        return service, open_client(make_app(service), raise_server_exceptions=False)

    yield serve_one
    for service in opened:
        service.close()


def live_through(client: TestClient, people: int = 3, visits: int = 3, prefix: str = "v") -> None:
    """Some visits with everything that can happen to a decision."""
    for visit in range(visits):
        for person in range(people):
            body = {"context": {"pain": 0.3 * visit - person, "mobility": 0.1 * person}}
            modes: list[dict[str, Any]] = [{}, {"forbidden": ["A"]}, {"mode": "apprentice", "taken": "B"}]
            head = {"Idempotency-Key": f"{prefix}{visit}"}
            told = client.post(
                f"/v1/people/p{person}/decisions", json={**body, **modes[visit % 3]}, headers=head
            ).json()
            address = f"/v1/decisions/{told['decision_id']}"
            if person == 1 and visit == 1:
                client.post(f"{address}/void", json={})
                continue
            event = client.post(f"{address}/outcome", json={"reward": 0.5 * visit - person}).json()["event"]
            if person == 2 and visit == 0:
                client.put(f"{address}/outcome", json={"reward": 1.5, "supersedes": event, "why": "typo"})
    head = {"Idempotency-Key": f"{prefix}-seen"}
    client.post("/v1/people/p0/observations", json={"context": VISIT}, headers=head)
    client.post("/v1/people/p0/decisions", json={"context": VISIT}, headers={"Idempotency-Key": f"{prefix}-last"})


def test_every_decision_is_replayed_bit_for_bit_from_the_log_and_on_the_other_store(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]], old: ServedModel, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    _, client = serve(store)
    live_through(client)
    report = verify(store, {old.fingerprint: old})
    assert report.is_whole, list(report.lines())
    assert (report.replayed, report.people, report.states) == (10, 3, 3)
    with running_postgres() as server:
        if server is not None:
            other = open_store(server.address)
            for event in store.log():
                assert other.append([Entry(event)]) == [True]
            again = verify(other, {old.fingerprint: old})
            assert (again.replayed, again.wrong) == (10, [])
            other.close()
    store.close()


def test_verification_notices_what_is_not_as_the_log_says(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]], old: ServedModel, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    service, client = serve(store)
    live_through(client, people=2, visits=2)
    saved = store.states(["p0"])["p0"]
    store.save_states({"p0": saved._replace(text=saved.text.replace('"waiting"', '"waiting" '))})
    report = verify(store, {old.fingerprint: old})
    assert report.wrong_states == ["p0"]
    assert store.states(["p0", "p1"]) == {}  # thrown away, and made again from the log
    assert verify(store, {old.fingerprint: old}).is_whole
    client.post("/v1/people/p0/decisions", json={"context": VISIT}, headers={"Idempotency-Key": "x"})
    assert verify(store, {old.fingerprint: old}).is_whole
    service.close()
    changes = [
        ("UPDATE counts SET value = value + 1 WHERE name = 'decisions'", "the counts"),
        ("UPDATE events SET body = replace(body, '\"pain\":-1', '\"pain\":-1.5')", "comes out differently"),
        ("DELETE FROM events WHERE person = 'p1' AND number = 2", "not numbered"),
        ("DELETE FROM events WHERE kind = 'decision' AND person = 'p0' AND number = 1", "a decision that is not there"),
    ]
    for change, words in changes:
        with store._transaction() as writer:  # type: ignore[attr-defined]
            assert writer.execute(change).rowcount
        found = verify(store, {old.fingerprint: old})
        assert any(words in line for line in found.wrong), (words, found.wrong)
    store.close()


def test_a_model_is_staged_played_in_shadow_and_promoted_and_knows_everybody_from_the_events(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]], models: Path, old: ServedModel, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    service, client = serve(store)
    live_through(client)
    assert client.post("/v1/model/promote").status_code == 409
    assert client.post("/v1/model", json={"path": str(tmp_path / "nowhere")}).status_code == 422
    staged = client.post("/v1/model", json={"path": str(models / "new"), "policy": POLICY})
    assert staged.status_code == 201
    live_through(client, prefix="w")
    deadline = time.monotonic() + 20
    while client.get("/v1/model").json()["staged"]["compared"] < 10 and time.monotonic() < deadline:
        time.sleep(0.05)
    played = client.get("/v1/model").json()["staged"]
    assert (played["compared"], played["failed"]) == (10, 0)
    assert 0 <= played["agreed"] < 10
    before = client.get("/v1/model").json()["fingerprint"]
    assert client.post("/v1/model/promote").json()["fingerprint"] == played["fingerprint"] != before
    told = client.post("/v1/people/p0/decisions", json={"context": VISIT}, headers={"Idempotency-Key": "n"}).json()
    assert told["model"] == played["fingerprint"]
    new = ServedModel.load(models / "new", POLICY)
    known = new.bandit.start("p0")  # told the same history in the plain way
    for event in store.events_of("p0")[:-1]:
        if event.kind == "decision":
            made = known.decide(event.body["request"]["context"], forbidden=event.body["request"].get("forbidden"))
        elif event.kind == "outcome":
            known.learn(made, event.body["reward"], action=event.body["action"])
        else:
            known.observe(event.body["request"]["context"])
    assert told["expected_reward"] == pytest.approx(dict(known.decide(VISIT).expected_reward), rel=1e-8)
    both = models_of(store, None)
    assert set(both) == {old.fingerprint, new.fingerprint}
    report = verify(store, both)
    assert report.is_whole, list(report.lines())
    assert report.replayed == 21
    service.close()
    store.close()


def decide(client: TestClient, key: str, person: str = "p0", **asked: Any) -> Any:
    head = {"Idempotency-Key": key}
    return client.post(f"/v1/people/{person}/decisions", json={"context": VISIT, **asked}, headers=head)


def test_the_log_names_the_model_that_decided_though_another_was_promoted_meanwhile(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]],
    models: Path,
    old: ServedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    service, client = serve(store)
    decide(client, "v0")
    service.stage(new := ServedModel.load(models / "new", POLICY))
    submit, submitted = service.submit, threading.Event()

    def submit_and_tell(operation: Any) -> Any:
        answer = submit(operation)
        submitted.set()
        return answer

    monkeypatch.setattr(service, "submit", submit_and_tell)
    with ThreadPoolExecutor(1) as pool:
        with service._turn:
            asked = pool.submit(decide, client, "v1")
            assert submitted.wait(20)
            service._put_in_charge(new)
            service._write_model(new, "promoted")
        told = asked.result(30).json()
    assert told["model"] == new.fingerprint
    report = verify(store, {old.fingerprint: old, new.fingerprint: new})
    assert report.is_whole, list(report.lines())
    service.close()
    store.close()


def test_a_model_may_be_promoted_that_lacks_an_action_of_the_one_before(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]], old: ServedModel, tmp_path: Path
) -> None:
    clinic_model(drugs="AB").save(tmp_path / "fewer")
    store = open_store(str(tmp_path / "ilb.db"))
    service, client = serve(store)
    asked: dict[str, dict[str, Any]] = {"v0": {"forbidden": ["C"]}, "v1": {"allowed": ["C"]}, "v2": {}}
    before = {key: decide(client, key, **given) for key, given in asked.items()}
    address = {key: f"/v1/decisions/{one.json()['decision_id']}/outcome" for key, one in before.items()}
    client.post(address["v0"], json={"reward": 0.5})
    assert client.post(address["v1"], json={"reward": 1.0}).json()["action"] == "C"
    service.stage(fewer := ServedModel.load(tmp_path / "fewer", POLICY))
    service.declared = "C"
    refused = client.post("/v1/model/promote")
    assert (refused.status_code, "declared fallback" in refused.json()["detail"]) == (409, True)
    assert service.desk.model == old.fingerprint
    service.declared = "B"
    assert client.post("/v1/model/promote").status_code == 200
    for key, given in asked.items():  # the same bytes, though the one in charge would not know what to make of it
        again = decide(client, key, **given)
        assert (again.status_code, again.content) == (200, before[key].content)
    for status in (201, 200):
        assert client.post(address["v2"], json={"reward": 2.0, "action": "C"}).status_code == status
    assert client.post(address["v0"], json={"reward": 0.5, "action": "Z"}).status_code == 409
    assert decide(client, "v3", allowed=["C"]).status_code == 422
    known = fewer.bandit.start("p0")
    first = known.decide(VISIT)
    for lost in [known.decide(VISIT) for _ in range(2)]:
        known.forget(lost)
    known.learn(first, 0.5, action=before["v0"].json()["action"])
    told = decide(client, "v3", forbidden=["C"]).json()
    assert told["fallback"] is None
    assert told["expected_reward"] == pytest.approx(dict(known.decide(VISIT).expected_reward), rel=1e-8)
    made = {"action": "C", "cause": "away", "decided_at": "2026-01-02T03:04:05Z", "propensity": 0.25}
    assert decide(client, "v4", made=made, allowed=["C"]).json()["propensity"] == 0.25
    drugs = [json.loads(line)["drug"] for line in client.get("/v1/log").text.splitlines()]
    assert drugs == [before["v0"].json()["action"], "C", "C", told["action"], "C"]
    table = pq.read_table(BytesIO(client.get("/v1/log?format=parquet").content))
    assert table["drug"].to_pylist() == drugs
    report = verify(store, {old.fingerprint: old, fewer.fingerprint: fewer})
    assert report.is_whole, list(report.lines())
    service.close()
    again, client = serve(store, fewer)  # type: ignore[call-arg]
    late = decide(client, "v5").json()["decision_id"]
    assert client.post(f"/v1/decisions/{late}/outcome", json={"reward": 2.0, "action": "Z"}).status_code == 422
    assert client.post(f"/v1/decisions/{late}/outcome", json={"reward": 2.0, "action": "C"}).status_code == 201
    again.close()
    store.close()


def test_a_promotion_that_could_not_be_followed_is_followed_later(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]],
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ilb.serve.promotion.AGAIN", 0.0)
    store = open_store(str(tmp_path / "ilb.db"))
    (one, _), (other, client) = serve(store), serve(store)
    with monkeypatch.context() as away:
        away.setattr("ilb.serve.service.load_again", lambda described: None)
        one.stage(ServedModel.load(models / "new", POLICY))
        promoted = one.promote()
        other.stage(ServedModel.load(models / "old", POLICY))  # what it writes itself hides nothing from it
        decide(client, "v0")
        deadline = time.monotonic() + 20
        while not other.failures["model"] and time.monotonic() < deadline:
            time.sleep(0.02)
    assert "can't be read here" in other.last_failure["model"]
    number = 0
    while other.desk.model != promoted.fingerprint and time.monotonic() < deadline:
        number += 1
        decide(client, f"w{number}")
        time.sleep(0.05)
    assert other.desk.model == promoted.fingerprint
    one.close()
    other.close()
    store.close()


@pytest.mark.parametrize("method", ["states", "heads", "events_of"])
def test_what_is_stored_while_a_person_is_verified_is_no_finding(
    serve: Callable[[AbstractStore], tuple[Service, TestClient]],
    old: ServedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    service, client = serve(store)
    live_through(client, people=1)
    plain = getattr(store, method)

    def meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(store, method, plain)
        assert decide(client, "meanwhile").status_code == 201
        return plain(*given)

    monkeypatch.setattr(store, method, meanwhile)
    report = verify(store, {old.fingerprint: old}, ["p0"])
    assert report.is_whole, list(report.lines())
    assert report.replayed >= 4
    service.close()
    store.close()


def test_who_is_in_charge_after_a_restart(models: Path, old: ServedModel, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    with pytest.raises((DecisionError, FileError, ValueError, OSError)):
        take_charge(store, tmp_path / "nowhere", POLICY, 0)
    first = take_charge(store, models / "old", POLICY, 0)
    assert first.is_new
    service = Service(store, old, old.names)
    service.record_model(old, "promoted")
    service.record_model(ServedModel.load(models / "new", POLICY), "staged")
    assert not take_charge(store, models / "old", POLICY, 0).is_new
    other = take_charge(store, models / "new", POLICY, 0)
    assert other.served is not None
    assert other.served.fingerprint == old.fingerprint  # what was promoted stays
    assert "--promote" in other.notes[0]
    assert take_charge(store, models / "new", POLICY, 0, promote=True).is_new
    gone = take_charge(store, tmp_path / "nowhere", POLICY, 0)
    assert gone.served is not None
    (models / "old").rename(models / "moved")
    nothing = take_charge(store, tmp_path / "nowhere", POLICY, 0)
    (models / "moved").rename(models / "old")
    assert nothing.served is None
    assert nothing.names.all == ["A", "B", "C"]
    service.close()
    store.close()


def test_two_servers_on_one_database_lose_and_double_nothing(old: ServedModel, models: Path) -> None:
    with running_postgres() as server:
        if server is None:
            pytest.skip("there is no PostgreSQL (initdb, pg_ctl)")
        stores = [open_store(server.address) for _ in range(2)]
        services = [Service(store, old, old.names, deadline=30.0) for store in stores]
        services[0].record_model(old, "promoted")
        clients = [open_client(make_app(service), raise_server_exceptions=False) for service in services]
        told = []

        def visit(number: int) -> Any:
            head = {"Idempotency-Key": f"k{number // 2}"}  # each key goes to both servers at once
            return clients[number % 2].post(
                f"/v1/people/p{number % 4 // 2}/decisions", json={"context": VISIT}, headers=head
            )

        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(visit, range(40)))
        assert sorted({answer.status_code for answer in told}) == [200, 201], {answer.text for answer in told}
        assert all(told[n].content == told[n + 1].content for n in range(0, 40, 2))
        assert stores[0].counts()["decisions"] == 20
        report = verify(stores[1], {old.fingerprint: old})
        assert report.is_whole, list(report.lines())
        assert report.replayed == 20
        services[0].stage(ServedModel.load(models / "new", POLICY))
        promoted = services[0].promote()
        deadline = time.monotonic() + 20
        while services[1].engine.served is not promoted and time.monotonic() < deadline:
            clients[1].post("/v1/people/p9/decisions", json={"context": VISIT}, headers={"Idempotency-Key": "q"})
            served = services[1].engine.served
            if served is not None and served.fingerprint == promoted.fingerprint:
                break
            time.sleep(0.05)
        assert services[1].desk.model == promoted.fingerprint
        for service in services:
            service.close()
        for store in stores:
            store.close()


def ilb(*words: str) -> int:
    before = sys.argv
    sys.argv = ["ilb", *words]
    try:
        return run()
    finally:
        sys.argv = before


def test_the_program_answers_its_own_curl_line_survives_kill_9_and_leaves_a_table(
    models: Path, old: ServedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = f"sqlite:///{tmp_path / 'ilb.db'}"
    command = ["serve", str(models / "old"), "--store", store, "--policy", POLICY, "--port", "0", "--fallback", "B"]
    process = subprocess.Popen([sys.executable, "-m", "ilb", *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        words = shlex.split(lines[1])
        address = next(word for word in words if word.startswith("http"))
        dry = _post(address, json.loads(words[words.index("-d") + 1]), {})
        assert dry["action"] in ("A", "B", "C")
        acknowledged = [
            _post(address, {"context": VISIT}, {"Idempotency-Key": f"k{n}"})["decision_id"] for n in range(5)
        ]
        base = re.match(r"http://[^/]+", address)
        assert base is not None
        for n, name in enumerate(acknowledged[:4]):
            _post(f"{base[0]}/v1/decisions/{name}/outcome", {"reward": 0.5 * n}, {})
        assert ilb(*command) == 2  # one file, one server
        assert "another server writes to" in capsys.readouterr().err
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert ilb(*command, "--verify") == 0
    assert "5 decisions replayed bit for bit" in capsys.readouterr().out
    out = tmp_path / "log.parquet"
    assert ilb("export", store, "--out", str(out)) == 0
    logs = Logs.from_frame(out, schema=old.schema)
    assert (logs.rows, int((logs.reward == logs.reward).sum())) == (5, 4)
    assert all(0 < one <= 1 for one in pq.read_table(out)["propensity"].to_pylist())


def _post(address: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    sent = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(address, json.dumps(body).encode(), sent)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_what_cannot_be_served_is_said_before_anything_starts(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "ilb.db"), "--port", "0"]
    for words, said in [
        (["--host", "0.0.0.0"], "keys are needed"),
        (["--fallback", "Z"], "no action goes by 'Z'"),
        (["--keys", str(tmp_path / "none")], "can't read the keys"),
        (["--policy", "Best"], "Best"),
    ]:
        assert ilb("serve", str(models / "old"), *store, *words) == 2
        assert said in capsys.readouterr().err
    file = tmp_path / "keys"
    assert ilb("key", "decide", "the app", "--file", str(file)) == 0
    key = capsys.readouterr().out.strip()
    assert key.startswith("ilb_")
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert ilb("key", "everything", "x", "--file", str(file)) == 2
    assert ilb("export", str(tmp_path / "nowhere.db"), "--out", str(tmp_path / "log.csv")) == 2
