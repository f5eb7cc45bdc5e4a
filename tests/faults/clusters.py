"""A PostgreSQL server that can be killed, started again, paused and let go on."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support import postgres


class Cluster:
    """On one data folder and one port, through several lives."""

    def __init__(self, folder: Path) -> None:
        programs = postgres._programs()
        assert programs is not None, postgres.why_no_postgres()
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        is_root = os.geteuid() == 0
        self._user = "postgres" if is_root else os.environ["USER"]
        self._become = [
            "setpriv",
            *(["--reuid", "postgres", "--regid", "postgres", "--init-groups"] * is_root),
        ]
        self._port = postgres._free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if is_root:
            os.chown(folder, *_ids("postgres"))
        words = [programs / "initdb", "-D", self._data, "-U", self._user, "-A", "trust", "-E", "UTF8"]
        initdb = [*self._become, *words, "--locale=C", "--no-sync"]
        subprocess.run(initdb, check=True, capture_output=True, cwd="/")

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        # Commits are to outlive a kill; a power cut is another test's.
        fast = postgres.FAST | {"synchronous_commit": "on"}
        settings = [word for pair in fast.items() for word in ("-c", "=".join(pair))]
        command = [self._programs / "postgres", "-D", self._data, "-k", self._folder, "-p", str(self._port)]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._become, "--pdeathsig", "QUIT", "--", *command, *settings],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        postgres._wait_until_ready(self._process, self._programs, self._folder, self._port)

    def kill(self) -> None:
        """All of it at once, as a power cut would."""
        assert self._process is not None
        for pid in self.pids():
            _send(pid, signal.SIGKILL)
        self._process.wait(30)
        self._process = None

    def pause(self) -> None:
        for pid in self.pids():
            _send(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for pid in self.pids():
            _send(pid, signal.SIGCONT)

    def pids(self) -> list[int]:
        if self._process is None:
            return []
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    # Short: a socket path holds 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sbx-pg-", dir="/tmp"))
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = Cluster(folder)
        ending.callback(lambda: cluster.pids() and cluster.kill())
        cluster.start()
        yield cluster


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _ids(user: str) -> tuple[int, int]:
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid
