"""A private PostgreSQL for tests: own cluster, own socket, no durability, gone when the tests end.

`postgres_url` gives each test an empty database of its own. Where PostgreSQL is not installed, the tests
that ask for it are skipped and say so.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "listen_addresses": "",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
_START_SECONDS = 60.0


class PostgresAbsent(Exception):
    """Why there is no PostgreSQL to test with."""


@dataclass
class Cluster:
    folder: Path
    programs: Path
    user: str
    _numbers: count[int] = field(default_factory=count)

    def fresh_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop(self, url: str) -> None:
        name = re.search(r"@/(\w+)\?", url)
        assert name is not None
        self.sql(f"DROP DATABASE {name[1]} WITH (FORCE)")

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{self.user}@/{database}?host={self.folder}"

    def sql(self, statement: str) -> None:
        command = [self.programs / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", self.user]
        subprocess.run([*command, "-d", "postgres", "-c", statement], check=True, capture_output=True)


def find_programs() -> Path:
    """The folder of the newest installed server, which Debian keeps out of PATH."""
    versions = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if versions:
        return max(versions, key=lambda p: float(p.parent.name))
    if (initdb := shutil.which("initdb")) is not None:
        return Path(initdb).resolve().parent
    raise PostgresAbsent("PostgreSQL is not installed (apt-get install postgresql)")


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    programs = find_programs()
    # PostgreSQL refuses to run as root; its Debian package brings a user for it.
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    become = (
        ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if os.geteuid() == 0 else ["setpriv"]
    )
    folder = Path(tempfile.mkdtemp(prefix="sbx-pg-", dir="/tmp"))  # short: a socket path holds 107 bytes
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user, user)
        data = folder / "data"
        initdb = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            user,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ]
        subprocess.run([*become, *initdb], check=True, capture_output=True, cwd="/")
        settings = [word for key, value in _FAST.items() for word in ("-c", f"{key}={value}")]
        server = [programs / "postgres", "-D", data, "-k", folder, *settings]
        with open(folder / "log", "wb") as log:
            # The death signal ends the server even when the test run is killed.
            process = subprocess.Popen(
                [*become, "--pdeathsig", "QUIT", "--", *server], stdout=log, stderr=log, cwd="/"
            )
        try:
            _wait_until_ready(process, programs, folder, user)
            yield Cluster(folder, programs, user)
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_ready(process: subprocess.Popen[bytes], programs: Path, folder: Path, user: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    ask = [programs / "pg_isready", "-q", "-h", folder, "-U", user]
    while subprocess.run(ask, check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
        time.sleep(0.02)


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Cluster]:
    try:
        find_programs()
    except PostgresAbsent as absent:
        pytest.skip(str(absent))
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres_cluster: Cluster) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards."""
    url = postgres_cluster.fresh_database()
    yield url
    postgres_cluster.drop(url)
