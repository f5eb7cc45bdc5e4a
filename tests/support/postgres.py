"""A private PostgreSQL for tests: own cluster, own loopback port, no durability, gone when the tests end.

`postgres_url` gives each test an empty database of its own. Where PostgreSQL is not installed, the tests
that ask for it are skipped and say so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
# As an operator runs it: every commit flushed before it is answered.
DURABLE = FAST | {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "128MB",
}
_START_SECONDS = 60.0


def why_no_postgres() -> str | None:
    """The reason why there is no PostgreSQL to test with, if so."""
    if _programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    return None


@contextmanager
def running_postgres(settings: Mapping[str, str] = FAST, *, within: str = "/tmp") -> Iterator[str]:
    """Start a server; its URL names the `postgres` database, in which others can be created."""
    programs = _programs()
    assert programs is not None, why_no_postgres()
    # PostgreSQL refuses to run as root; its Debian package brings a user for it.
    is_root = os.geteuid() == 0
    user = "postgres" if is_root else pwd.getpwuid(os.geteuid()).pw_name
    become = ["setpriv", *(["--reuid", user, "--regid", user, "--init-groups"] if is_root else [])]
    folder = Path(tempfile.mkdtemp(prefix="sbx-pg-", dir=within))  # short: a socket path holds 107 bytes
    try:
        if is_root:
            shutil.chown(folder, user, user)
        data = folder / "data"
        initdb = [programs / "initdb", "-D", data, "-U", user, "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run([*become, *initdb, "--no-sync"], check=True, capture_output=True, cwd="/")
        with _server(programs, become, data, folder, port := _free_port(), settings) as process:
            _wait_until_ready(process, programs, folder, port)
            yield f"postgresql://{user}@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _server(
    programs: Path, become: list[str], data: Path, folder: Path, port: int, settings: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    command = [programs / "postgres", "-D", data, "-k", folder, "-p", str(port), *words]
    with open(folder / "log", "wb") as log:
        # The death signal ends the server even when the test run is killed.
        process = subprocess.Popen(
            [*become, "--pdeathsig", "QUIT", "--", *command], stdout=log, stderr=log, cwd="/"
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(30)


def _wait_until_ready(process: subprocess.Popen[bytes], programs: Path, folder: Path, port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    ask = [programs / "pg_isready", "-q", "-h", folder, "-p", str(port)]
    while subprocess.run(ask, check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
        time.sleep(0.02)


def _programs() -> Path | None:
    """The folder of the newest installed server, which Debian keeps out of PATH."""
    versions = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if versions:
        return max(versions, key=lambda p: float(p.parent.name))
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_numbers = count()


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[str]:
    """One server for the whole run; the URL of its `postgres` database."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running_postgres() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_cluster: str) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards whoever is still connected."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres_cluster, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield postgres_cluster.rpartition("/")[0] + "/" + name
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
