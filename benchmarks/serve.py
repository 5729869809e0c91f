"""The service under load and under fire, with real processes: rounds a second, and whether anything is lost or doubled.

    python -m benchmarks.serve load --seconds 60          # 32 clients on SQLite; --store postgres for PostgreSQL
    python -m benchmarks.serve kills --runs 100           # kill -9 under load at random moments, restart, --verify
    python -m benchmarks.serve many --people 100000       # start-up, latency and memory with a large store
    python -m benchmarks.serve full                       # the disk takes no more, and then does again
    python -m benchmarks.serve faults --runs 10           # flushing fails, writes stop half way (needs cc)
    python -m benchmarks.serve fuzz                       # requests made up from the OpenAPI document, by Schemathesis
    python -m benchmarks.serve peer                       # MABWiser behind FastAPI, with the same clients
    python -m benchmarks.serve load --record              # and write docs/results/serve.json

A round is a decision and its outcome, both acknowledged. Every client keeps what it was told, and in the end that is
compared with the log: each acknowledged event must be there once, as it was told. Clients are in a process of their own
beside the server, on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from serving import free_port, running_postgres  # noqa: E402

RECORD = ROOT / "docs" / "results" / "serve.json"
COLUMNS = 5
ACTIONS = 20


class Told(NamedTuple):
    """What a client was told: of a decision, and of its outcome if that was acknowledged."""

    person: str
    key: str
    decision: bytes
    reward: float | None


def make_model(folder: Path) -> Path:
    """Complete a true encoder from simulated logs: five columns, twenty actions, as in the demo."""
    import jax.random as jr

    from ilb.environments import UniformLogging, draw_world, record
    from ilb.offline.fit import complete_model

    world = draw_world(jr.key(0), latent_dim=COLUMNS, actions=ACTIONS)
    logs = record(jr.key(1), world, UniformLogging(ACTIONS), instances=40, length=50).logs
    complete_model(world.oracle().encoder, logs).save(folder / "model")
    return folder / "model"


class Server:
    """`ilb serve` as a process."""

    def __init__(
        self,
        model: Path,
        store: str,
        *options: str,
        largest_file: int | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.port = free_port()
        self.command = [sys.executable, "-m", "ilb", "serve", str(model), "--store", store, "--port", str(self.port)]
        began = time.monotonic()

        self.process = subprocess.Popen(
            [*self.command, *options], stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        if largest_file is not None:
            self.limit_files(largest_file)
        while not self._answers("/livez") and self.process.poll() is None:
            time.sleep(0.02)
        self.answered_after = time.monotonic() - began
        assert self.process.stdout is not None
        said = [self.process.stdout.readline() for _ in range(3)]
        assert "answers at" in said[0], f"the server said {said}"
        self.started_after = time.monotonic() - began
        self.start_cpu, _ = self.usage()
        while not self._answers("/readyz"):  # all is compiled; it listens before that, and then decisions wait
            time.sleep(0.05)
        self.ready_after, (self.ready_cpu, _) = time.monotonic() - began, self.usage()

    def _answers(self, path: str) -> bool:
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30).status == 200)
        except OSError:  # it says no, or does not listen yet
            return False

    def limit_files(self, largest: int) -> None:
        """Let the files of the process grow no further than this, in bytes; Python sees to it that it survives."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))

    def usage(self) -> tuple[float, float]:
        """Seconds of CPU and megabytes of memory that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        memory = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(memory.split()[1]) / 1024

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def verify(self) -> str:
        """Run `ilb serve --verify` on the store; raises unless all is as the log says."""
        done = subprocess.run([*self.command, "--verify"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


class Client:
    """One program that asks: a connection, rounds one after the other, and a memory of all that it was told."""

    def __init__(self, port: int, name: str, people: int, seed: int) -> None:
        self._port, self._name, self._people = port, name, people
        self._rng = random.Random(seed)
        self.told: list[Told] = []
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def play(self, until: float) -> None:
        """Go on until the time is over, or the server is gone."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
            number = 0
            while time.monotonic() < until:
                await self._round(number)
                number += 1
            self._writer.close()

    async def _round(self, number: int) -> None:
        person, key = f"p{self._rng.randrange(self._people)}", f"{self._name}-{number}"
        context = {f"x{column + 1}": round(self._rng.gauss(0, 1), 3) for column in range(COLUMNS)}
        status, decided = await self._post(f"/v1/people/{person}/decisions", {"context": context}, key)
        if status != 201:
            return
        self.told.append(Told(person, key, decided, None))
        reward = round(self._rng.gauss(0, 1), 3)
        address = f"/v1/decisions/{json.loads(decided)['decision_id']}/outcome"
        status, _ = await self._post(address, {"reward": reward}, None)
        if status == 201:
            self.told[-1] = self.told[-1]._replace(reward=reward)

    async def _post(self, path: str, body: dict[str, Any], key: str | None) -> tuple[int, bytes]:
        text = json.dumps(body).encode()
        named = f"Idempotency-Key: {key}\r\n" if key else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{named}"
            f"Content-Length: {len(text)}\r\n\r\n"
        )
        began = time.perf_counter()
        self._writer.write(head.encode() + text)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        told = await self._reader.readexactly(int(length.split(b":")[1]))
        self.seconds.append(time.perf_counter() - began)
        status = int(answer[9:12])
        self.statuses[status] += 1
        return status, told


async def play_all(clients: list[Client], seconds: float) -> None:
    until = time.monotonic() + seconds
    await asyncio.gather(*(client.play(until) for client in clients))


def compare_with_log(address: str, clients: list[Client], *, in_doubt: int = 0) -> dict[str, int]:
    """Raise unless every acknowledged event is in the log once, as told; `in_doubt` others may be there besides."""
    from ilb.serve.events import write_json
    from ilb.serve.store import open_store

    told = [one for client in clients for one in client.told]
    store = open_store(address, read_only=True)
    decided, rewards = {}, {}
    for event in store.log():
        if event.kind == "decision":
            assert event.key not in decided, "a decision is there twice"
            decided[event.key] = (event.person, write_json(event.body["answer"]).encode(), event.decision)
        elif event.kind == "outcome":
            assert event.decision not in rewards, "an outcome is there twice"
            rewards[event.decision] = event.body["reward"]
    store.close()
    for one in told:
        assert one.key in decided, "an acknowledged decision is lost"
        person, answer, name = decided[one.key]
        assert (person, answer) == (one.person, one.decision), "a decision is not as it was told"
        assert one.reward is None or rewards.get(name) == one.reward, "an acknowledged outcome is lost"
    outcomes = sum(one.reward is not None for one in told)
    unasked = len(decided) - len(told) + len(rewards) - outcomes
    assert 0 <= unasked <= in_doubt, f"{unasked} events are in the log that nobody was told of"
    return {"decisions": len(told), "outcomes": outcomes, "in_log_unacknowledged": unasked}


@contextmanager
def store_address(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'ilb.db'}"
        return
    with running_postgres() as server:
        if server is None:
            raise SystemExit("there is no PostgreSQL (initdb, pg_ctl) on this machine")
        yield server.address


def load(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure rounds a second, and hold what clients were told against the log."""
    with store_address(chosen.store, folder) as address:
        server = Server(model, address, *chosen.option)
        before, _ = server.usage()
        clients = [Client(server.port, f"c{n}", chosen.people, n) for n in range(chosen.clients)]
        began, own = time.monotonic(), time.process_time()
        asyncio.run(play_all(clients, chosen.seconds))
        seconds, own = time.monotonic() - began, time.process_time() - own
        used, memory = server.usage()
        server.stop()
        statuses = sum((client.statuses for client in clients), Counter[int]())
        counted = compare_with_log(address, clients)
        if not chosen.quick:
            print(server.verify())
    latencies = np.array([one for client in clients for one in client.seconds])
    return {
        "store": chosen.store,
        "clients": chosen.clients,
        "seconds": round(seconds, 1),
        "rounds_a_second": round(counted["outcomes"] / seconds, 1),
        "p50_ms": round(1e3 * float(np.quantile(latencies, 0.5)), 1),
        "p99_ms": round(1e3 * float(np.quantile(latencies, 0.99)), 1),
        "statuses": {str(status): number for status, number in sorted(statuses.items())},
        "lost_or_doubled": 0,
        **counted,
        "server_cpu_ms_a_round": round(1e3 * (used - before) / max(1, counted["outcomes"]), 2),
        "clients_cpu_ms_a_round": round(1e3 * own / max(1, counted["outcomes"]), 2),
        "server_memory_mb": round(memory),
        "answered_after_s": round(server.answered_after, 1),
        "started_after_s": round(server.started_after, 1),
        "start_cpu_s": round(server.start_cpu, 1),
        "ready_after_s": round(server.ready_after, 1),
        "ready_cpu_s": round(server.ready_cpu, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def kills(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Kill the server under load at random moments; what was acknowledged must be there, and nothing half."""
    rng = random.Random(0)
    clients: list[Client] = []
    with store_address(chosen.store, folder) as address:
        for run in range(chosen.runs):
            server = Server(model, address)
            fresh = [Client(server.port, f"r{run}c{n}", chosen.people, 1000 * run + n) for n in range(chosen.clients)]
            moment = rng.uniform(0.05, 1.0)

            async def until_killed(
                fresh: list[Client] = fresh, server: Server = server, moment: float = moment
            ) -> None:
                playing = asyncio.create_task(play_all(fresh, 30))
                await asyncio.sleep(moment)
                server.kill()
                await playing

            asyncio.run(until_killed())
            clients += fresh
            counted = compare_with_log(address, clients, in_doubt=chosen.clients * (run + 1))
            if run % chosen.verify_every == chosen.verify_every - 1 or run == chosen.runs - 1:
                server.verify()
            print(f"run {run + 1}: {counted}", flush=True)
    return {"store": chosen.store, "kills": chosen.runs, "lost_or_doubled": 0, **counted}


def full(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Let the files grow no more: 503 and nothing lost; let them grow again, and it goes on without a restart."""
    address = f"sqlite:///{folder / 'ilb.db'}"
    server = Server(model, address, largest_file=2_000_000)
    clients = [Client(server.port, f"c{n}", chosen.people, n) for n in range(chosen.clients)]
    asyncio.run(play_all(clients, chosen.seconds))
    refused = sum(client.statuses[503] for client in clients)
    assert refused, "the disk was never full"
    server.limit_files(resource.RLIM_INFINITY)
    after = [Client(server.port, f"a{n}", chosen.people, n) for n in range(chosen.clients)]
    asyncio.run(play_all(after, 2.0))
    assert not sum(client.statuses[503] for client in after), "it did not go on"
    server.stop()
    counted = compare_with_log(address, clients + after)
    server.verify()
    return {"refused_with_503": refused, "lost_or_doubled": 0, **counted}


def faults(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Let flushing fail for a while, and writes stop half way; what was acknowledged must be there in the end."""
    shim, order, address = folder / "faulty.so", folder / "order", f"sqlite:///{folder / 'ilb.db'}"
    source = Path(__file__).with_name("faulty_disk.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    faulty = {"LD_PRELOAD": str(shim), "ILB_FAULT": str(order)}
    clients: list[Client] = []
    refused = torn = 0
    for run in range(chosen.runs):
        server = Server(model, address, environment=faulty)
        first, second = (
            [Client(server.port, f"{part}{run}c{n}", chosen.people, 100 * run + n) for n in range(chosen.clients)]
            for part in "fs"
        )

        async def disturbed(first: list[Client] = first, second: list[Client] = second) -> None:
            playing = asyncio.create_task(play_all(first, 3.0))
            await asyncio.sleep(1.0)
            order.write_text("fsync")
            await asyncio.sleep(1.0)
            order.unlink()
            await playing
            playing = asyncio.create_task(play_all(second, 30.0))
            await asyncio.sleep(0.5)
            order.write_text("torn")
            await playing

        asyncio.run(disturbed())
        torn += server.process.wait(30) == -signal.SIGKILL  # by its own hand, half way through a write
        order.unlink()
        clients += [*first, *second]
        refused += sum(client.statuses[503] for client in first)
        counted = compare_with_log(address, clients, in_doubt=2 * chosen.clients * (run + 1))
        server.verify()
        print(f"run {run + 1}: {counted}, {refused} refused", flush=True)
    assert refused, "flushing never failed"
    return {"runs": chosen.runs, "refused_with_503": refused, "torn_writes": torn, "lost_or_doubled": 0, **counted}


def many(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Fill a store with people, then start on it."""
    address = f"sqlite:///{folder / 'ilb.db'}"
    began = time.monotonic()
    fill(model, address, chosen.people)
    print(f"filled after {time.monotonic() - began:.0f} s", flush=True)
    server = Server(model, address)
    before, _ = server.usage()
    clients = [Client(server.port, f"c{n}", chosen.people, n) for n in range(chosen.clients)]
    asyncio.run(play_all(clients, chosen.seconds))
    used, memory = server.usage()
    server.stop()
    rounds = sum(len(client.told) for client in clients)
    latencies = np.array([one for client in clients for one in client.seconds])
    return {
        "people": chosen.people,
        "events_each": 20,
        "file_mb": round((folder / "ilb.db").stat().st_size / 1e6),
        "answered_after_s": round(server.answered_after, 1),
        "started_after_s": round(server.started_after, 1),
        "start_cpu_s": round(server.start_cpu, 1),
        "ready_after_s": round(server.ready_after, 1),
        "ready_cpu_s": round(server.ready_cpu, 1),
        "p50_ms": round(1e3 * float(np.quantile(latencies, 0.5)), 1),
        "rounds_a_second": round(rounds / chosen.seconds, 1),
        "server_cpu_ms_a_round": round(1e3 * (used - before) / max(1, rounds), 2),
        "server_memory_mb": round(memory),
        "load_average": round(os.getloadavg()[0], 1),
    }


def fuzz(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Let Schemathesis make up requests: no answer may be a 5xx, or one that the document does not name."""
    server = Server(model, f"sqlite:///{folder / 'ilb.db'}")
    program = ROOT / ".venv-fuzz" / "bin" / "schemathesis"
    address = f"http://127.0.0.1:{server.port}/openapi.json"
    # What a request means (which columns there are, whose decision it is) is not in the document, so what fits it may
    # be refused all the same.
    command = [
        str(program),
        "run",
        address,
        "--max-examples",
        str(chosen.runs),
        "--exclude-checks",
        "positive_data_acceptance",
    ]
    code = subprocess.run(command, cwd=folder, check=False).returncode
    server.stop()
    assert code == 0, "see above"
    return {"examples_each": chosen.runs, "failures": 0}


def peer(model: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure the plain service of `serve_peer.py` with the same clients, committing as durably."""
    del model
    port = free_port()
    process = subprocess.Popen(
        [ROOT / ".venv-fuzz" / "bin" / "uvicorn", "serve_peer:app", "--port", str(port), "--log-level", "error"],
        cwd=Path(__file__).parent,
        env={**os.environ, "PEER_STORE": str(folder / "peer.db")},
    )
    began = time.monotonic()
    while time.monotonic() < began + 60:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.1)
    clients = [Client(port, f"c{n}", chosen.people, n) for n in range(chosen.clients)]
    asyncio.run(play_all(clients, chosen.seconds))
    process.terminate()
    process.wait(30)
    rounds = sum(one.reward is not None for client in clients for one in client.told)
    latencies = np.array([one for client in clients for one in client.seconds])
    return {
        "rounds_a_second": round(rounds / chosen.seconds, 1),
        "p50_ms": round(1e3 * float(np.quantile(latencies, 0.5)), 1),
        "p99_ms": round(1e3 * float(np.quantile(latencies, 0.99)), 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def fill(model: Path, address: str, people: int) -> None:
    """Write ten decisions with outcomes for each person, as the service would have stored them."""
    from ilb.serve.deciding import numbers_of
    from ilb.serve.events import Event, Kind, written
    from ilb.serve.people import Known, ServedModel
    from ilb.serve.store import open_store
    from ilb.serve.store.store import Entry

    served = ServedModel.load(model)
    rng = np.random.default_rng(0)
    store = open_store(address)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    # Two hundred histories are lived through; the others are copies of them under other labels.
    histories = []
    for person in range(min(people, 200)):
        known, events = Known(served.bandit.start(f"p{person}"), written(start)), []
        for visit in range(10):
            context = {f"x{column + 1}": round(float(rng.normal()), 3) for column in range(COLUMNS)}
            decision = known.decide("d", context, None, None)
            numbers = numbers_of(decision, served.names)
            events.append((context, numbers, round(float(rng.normal()), 3)))
            known.live.learn(decision, events[-1][2])
            del visit
        known.waiting.clear()
        known.events = 20
        histories.append((events, known))
    for first in range(0, people, 2000):
        rounds: list[list[Entry]] = [[] for _ in range(20)]  # a person's events are appended one by one
        for person in range(first, min(people, first + 2000)):
            at = written(start + timedelta(seconds=person))
            events, known = histories[person % len(histories)]
            for visit, (context, numbers, reward) in enumerate(events):
                name = f"{person:012x}{visit:012x}"
                told = {
                    "decision_id": name,
                    "number": visit,
                    "mode": "live",
                    **numbers,
                    "fallback": None,
                    "model": served.fingerprint,
                    "policy": served.policy,
                    "tags": {},
                    "decided_at": at,
                }
                decided = {"request": {"context": context}, "taken": None, "live_number": visit, "answer": told}
                asked = Event(f"p{person}", 2 * visit + 1, Kind.DECISION, at, decided, name, f"f{visit}")
                rounds[2 * visit].append(Entry(asked))
                answer = {"decision_id": name, "event": 2 * visit + 2, "reward": reward, "action": numbers["action"]}
                body: dict[str, Any] = {"reward": reward, "action": numbers["action"], "told": None, "answer": answer}
                rounds[2 * visit + 1].append(Entry(Event(f"p{person}", 2 * visit + 2, Kind.OUTCOME, at, body, name)))
            known.live.label, known.began = f"p{person}", at
            rounds[-1][-1] = rounds[-1][-1]._replace(state=known.saved(served))
        for entries in rounds:
            assert all(store.append(entries))
    store.close()


MEASUREMENTS = {"load": load, "kills": kills, "full": full, "many": many, "fuzz": fuzz, "faults": faults, "peer": peer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--verify-every", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="without --verify in the end")
    parser.add_argument("--model", type=Path, help="a model with columns x1 to x5 (default: made here)")
    parser.add_argument("--option", action="append", default=[], help="passed on to `ilb serve`; repeat it")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.relative_to(ROOT)}")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ilb-bench-serve-") as place:
        folder = Path(place)
        found = MEASUREMENTS[chosen.what](chosen.model or make_model(folder), folder, chosen)
    print(json.dumps(found, indent=1))
    if chosen.record:
        recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        name = chosen.what if chosen.store == "sqlite" else f"{chosen.what}-{chosen.store}"
        RECORD.write_text(json.dumps({**recorded, name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
