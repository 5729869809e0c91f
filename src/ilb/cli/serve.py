"""`ilb serve`, `ilb export` and `ilb key`: the service as a program."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import hmac
import ipaddress
import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ilb.cli.console import say, tell
from ilb.errors import DecisionError, FileError, IlbError, IlbWarning
from ilb.files import flush_to_disk, reason

if TYPE_CHECKING:
    from ilb.serve.door import Door
    from ilb.serve.keys import Keys
    from ilb.serve.names import ActionNames, Scalar
    from ilb.serve.people import ServedModel
    from ilb.serve.promotion import InCharge
    from ilb.serve.service import Service
    from ilb.serve.store.store import AbstractStore

SWITCH = 0.0005
"""Seconds until a thread lets others go on: with Python's 0.005, the one that answers waits for those that compute."""

COLLECTING = (20_000, 20, 20)
"""How many new objects make Python look for cycles, which hardly any request leaves; 700 by default."""

EXTRA = ("fastapi", "jinja2", "prometheus_client", "uvicorn")
"""What serving needs besides the library."""

RECENT = 20
"""People whose saved states are compared with the log at every start."""


@dataclass(frozen=True)
class Options:
    """What `ilb serve` was asked for."""

    model: Path
    store: str
    policy: str | None
    fallback: str
    keys: Path | None
    host: str
    port: int
    deadline: float
    seed: int
    hash_people: Path | None
    promote: bool


class House:
    """All that is opened to serve: the store, the model, and the service on them. Opening takes seconds."""

    def __init__(self, options: Options, keys: Keys | None, label: Callable[[str], str]) -> None:
        self._options, self._keys, self._label = options, keys, label
        self._stores: list[AbstractStore] = []
        self._service: Service | None = None
        self.served: ServedModel | None = None

    def open(self) -> Door:
        """Open everything, and begin to compile what decisions need."""
        from ilb.serve.api import make_app
        from ilb.serve.service import Service
        from ilb.serve.store import open_store

        options = self._options
        store = open_store(options.store)
        self._stores.append(store)
        reader = open_store(options.store, read_only=True)  # what people look at can't write, or wait for a writer
        self._stores.append(reader)
        charge = _take_charge(store, options)
        declared = _declared(options.fallback, charge.names)
        warnings.filterwarnings("ignore", category=IlbWarning)  # they name people; /v1/status and metrics count instead
        service = Service(store, charge.served, charge.names, declared=declared, deadline=options.deadline)
        self._service, self.served = service, charge.served
        if charge.served is not None and charge.is_new:
            service.record_model(charge.served, "promoted")
        compiling = service.engine.warm_up()
        if compiling is not None and charge.served is not None:
            look = partial(_compare_recent, store, charge.served)
            compiling.add_done_callback(lambda _: threading.Thread(target=look, daemon=True).start())
        return make_app(service, keys=self._keys, label=self._label, reader=reader)

    def close(self) -> None:
        """Carry out what waits, and let go of everything."""
        if self._service is not None:
            self._service.close()
        for store in reversed(self._stores):
            store.close()


def run_server(options: Options) -> None:
    """Serve until a signal says otherwise."""
    began = time.perf_counter()
    _require_extra()
    if options.keys is None and not _is_loopback(options.host):
        raise IlbError(f"{options.host} can be reached from other machines, so keys are needed: `ilb key decide NAME`.")
    _keep_programs()
    sys.setswitchinterval(SWITCH)
    from ilb.serve.keys import Keys

    keys = None if options.keys is None else Keys.read(options.keys)
    house = House(options, keys, label_hasher(options.hash_people))
    listener = _listen(options.host, options.port)
    port = listener.getsockname()[1]
    try:
        with suppress(KeyboardInterrupt):  # the server has ended in good order before it raises this
            asyncio.run(_serve(house, listener, lambda: _announce(house.served, options, port, began)))
    finally:
        listener.close()
        house.close()
    tell("Stopped; everything that was answered is stored.")


def check(options: Options) -> int:
    """Compute everything again from the log and compare; 0 if all is as the log says."""
    _require_extra()
    _keep_programs()
    from ilb.serve.replay import models_of, verify
    from ilb.serve.store import open_store

    store = open_store(options.store)
    try:
        warnings.filterwarnings("ignore", category=IlbWarning)
        report = verify(store, models_of(store, _take_charge(store, options).served))
    finally:
        store.close()
    for line in report.lines():
        say(line)
    say("All is as the log says." if report.is_whole else "Not all is as the log says.")
    return 0 if report.is_whole else 1


def export_log(address: str, out: Path) -> None:
    """Write the decisions of a store as a table."""
    _require_extra()
    from ilb.logs.tables import require_writable_suffix, write_table
    from ilb.serve.log import as_table, stored_schema, table_rows
    from ilb.serve.store import SQLITE, open_store

    require_writable_suffix(out)
    if "://" not in address.removeprefix(SQLITE) and not Path(address.removeprefix(SQLITE)).is_file():
        raise FileError(f"there is no store {address}. Name the file that `ilb serve` writes, or postgresql://…")
    store = open_store(address, read_only=True)
    try:
        schema = stored_schema(store)
        if schema is None:
            raise IlbError(f"{address} names no model yet, so its columns have no names. Serve one first.")
        table = as_table(table_rows(store, schema), schema)
    finally:
        store.close()
    write_table(table, out)
    context = " ".join(f"--context {shlex.quote(column.name)}" for column in schema.context)
    say(f"wrote {table.num_rows} decisions to {out}, with their propensities")
    roles = (("instance", schema.instance), ("action", schema.action), ("reward", schema.reward))
    named = " ".join(f"--{role} {shlex.quote(name)}" for role, name in roles)
    say(f"ilb fit {shlex.quote(str(out))} {named} --time {schema.time or schema.free_time_name} {context} --out MODEL")


def add_key(role: str, name: str, file: Path) -> None:
    """Make a key, show it, and add its hash to a file."""
    from ilb.serve.keys import Role, new_key

    if role not in list(Role):
        raise IlbError(f"a key is good for decide, read or admin; got {role!r}.")
    made, line = new_key(Role(role), name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as out:
            out.write(f"{line}\n")
        flush_to_disk(file)
    except OSError as error:
        raise FileError(f"can't write {file}: {reason(error)}.") from error
    say(made)
    tell(f"Its hash is in {file}; the key itself is shown only here. A running server reads the file when it starts.")


def _require_extra() -> None:
    for name in EXTRA:  # to import them all takes a second
        if find_spec(name) is None:
            raise IlbError(
                f"serving needs {name}, which comes with the extra: pip install 'identifiable-latent-bandits[serve]'."
            )


def _keep_programs() -> None:
    """Keep compiled programs between starts: compiling takes longer than everything else at a start."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ilb" / "compiled"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def label_hasher(secret: Path | None) -> Callable[[str], str]:
    """Give what hashes labels of people with a secret; without one they stay as they are."""
    if secret is None:
        return lambda label: label
    try:
        key = secret.read_bytes().strip()
    except OSError as error:
        raise FileError(f"can't read the secret in {secret}: {reason(error)}.") from error
    if len(key) < 16:
        raise IlbError(f"the secret in {secret} has {len(key)} bytes; expected at least 16.")
    return lambda label: hmac.new(key, label.encode(), hashlib.sha256).hexdigest()[:32]


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise IlbError(f"can't listen on {host}:{port}: {reason(error)}. Choose another --port.") from error


def _take_charge(store: AbstractStore, options: Options) -> InCharge:
    from ilb.serve.promotion import take_charge

    charge = take_charge(store, options.model, options.policy, options.seed, promote=options.promote)
    for note in charge.notes:
        tell(note, "Note", "yellow")
    return charge


def _declared(fallback: str, names: ActionNames) -> Scalar | None:
    from ilb.serve.fallback import UNIFORM

    found = names.find(fallback)
    if found is not None:
        return names.name(found)
    if fallback != UNIFORM:
        shown = ", ".join(map(str, names.all[:10]))
        raise DecisionError(f"no action goes by {fallback!r}; --fallback takes uniform or one of {shown}.")
    return None


def _compare_recent(store: AbstractStore, served: ServedModel) -> None:
    """Compare the newest people's states and decisions with the log, and tell of what differs."""
    from ilb.serve.events import SERVICE
    from ilb.serve.replay import verify

    people = {event.person for event in store.newest(RECENT)} - {SERVICE}
    known = list(store.heads(people))
    # Another server may write between two glances; what is wrong twice is wrong.
    if not any(verify(store, {served.fingerprint: served}, known).is_whole for _ in range(2)):
        tell("the newest states or decisions are not what the log says; run with --verify.", "Warning", "yellow")


async def _serve(house: House, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Listen at once, open the house meanwhile, and serve until a signal says otherwise."""
    import uvicorn

    from ilb.serve.front import Front

    front = Front()
    config = uvicorn.Config(
        front,
        log_config=None,  # its own would close every handler of this process, and some of them their stream
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=10,
        server_header=False,
    )
    server = uvicorn.Server(config)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the server raises what it caught again when it has ended
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        front.open(await asyncio.to_thread(house.open))
    finally:
        front.give_up()
        if not front.is_open:
            server.should_exit = True
            await serving
    if not serving.done():
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTING)
        announce()
    await serving
    signal.signal(signal.SIGTERM, before)


def _announce(served: ServedModel | None, options: Options, port: int, began: float) -> None:
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{port}"
    what = "the fallback alone" if served is None else f"{served.policy} on {options.model}"
    say(f"{what} answers at {address} (after {time.perf_counter() - began:.1f} s); events are kept in {options.store}")
    if served is not None:
        key = "" if options.keys is None else " -H 'Authorization: Bearer KEY'"
        body = shlex.quote(json.dumps({"context": served.usual_context, "dry_run": True}, ensure_ascii=False))
        say(f"curl -s {address}/v1/people/anna/decisions{key} -H 'Content-Type: application/json' -d {body}")
    say(f"{address} shows it in a browser; {address}/openapi.json says what can be asked. Ctrl-C stops.")
