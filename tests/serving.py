"""What tests of the service share: a clinic's model made by hand, a service on it, and a real PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import uvicorn
from starlette.testclient import TestClient

from ilb.logs import NumericColumn, Schema
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels
from ilb.networks import IdentityEncoder

POLICY = "Calibrated-TS"
VISIT = {"pain": 1.4, "mobility": -0.3}


def clinic_model(tilt: float = 0.0, drugs: str = "ABC") -> LatentModel:
    """Two measurements and three drugs, or fewer; nothing is fitted, so that it takes no time."""
    columns = tuple(NumericColumn(name, mean=0.5, std=2.0, fill=0.5, flagged=False) for name in ("pain", "mobility"))
    schema = Schema("patient", "visit", "drug", "relief", columns, tuple(drugs))
    theta = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, tilt]])[: len(drugs)]
    noise = NoiseLevels(0.5 * jnp.eye(2), jnp.zeros(2), jnp.eye(2), 0.25 * jnp.ones(len(drugs)), jnp.array(0.01))
    known = LinearReward.known(theta, jnp.array([0.1, 0.0, 0.2])[: len(drugs)])
    return LatentModel(IdentityEncoder(), known, noise, schema=schema)


def open_client(app: Any, **options: Any) -> TestClient:
    """A client of an application, on this machine: others are answered only with keys."""
    return TestClient(app, base_url="http://127.0.0.1:8000", **options)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def open_handles() -> int:
    """How many files and connections this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def find_postgres() -> Path | None:
    """The directory of PostgreSQL's programs."""
    found = shutil.which("pg_ctl")
    places = [
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *([Path(found).parent] if found else []),
    ]
    return next((place for place in places if (place / "initdb").exists()), None)


def unprivileged() -> str | None:
    """Whom PostgreSQL is run as: it refuses to be run by root."""
    if os.getuid() != 0:
        return None
    return next(name for name in ("postgres", "nobody") if name in {user.pw_name for user in pwd.getpwall()})


class Postgres:
    """A PostgreSQL of one's own, in a temporary directory; it can be stopped and started."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.programs, self.home, self.port = programs, home, free_port()
        self._user = unprivileged()
        if self._user is not None:
            shutil.chown(home, self._user)
        self.address = f"postgresql://ilb@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-D", str(home / "data"), "-U", "ilb", "-A", "trust", "-N")
        self._options = f"-p {self.port} -k {home} -c listen_addresses=127.0.0.1"

    def start(self) -> None:
        log = str(self.home / "log")
        self._run("pg_ctl", "-D", str(self.home / "data"), "-o", self._options, "-w", "-l", log, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.home / "data"), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *options: str) -> None:
        command = [str(self.programs / program), *options]
        with (self.home / "said").open("w+") as said:  # a pipe would stay open as long as the server lives
            done = subprocess.run(command, stdout=said, stderr=said, user=self._user, cwd=self.home, check=False)
            said.seek(0)
            assert done.returncode == 0, said.read()


@contextmanager
def running_postgres() -> Iterator[Postgres | None]:
    """Start a PostgreSQL; None where there is none."""
    programs = find_postgres()
    if programs is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ilb-postgres-") as home:
        server = Postgres(programs, Path(home))
        server.start()
        try:
            yield server
        finally:
            with suppress(AssertionError):
                server.stop()


class ServerThread:
    """A server in a thread of this process, on a port that stays the same; it can be stopped and started."""

    def __init__(self, app: Any, port: int | None = None) -> None:
        self.app, self.port = app, port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        config = uvicorn.Config(
            self.app,
            port=self.port,
            log_config=None,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
        self._server = self._thread = None
