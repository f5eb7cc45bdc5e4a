"""`sandboxer up` with charges, on a host that outlives it; made to be killed, or to kill itself at a step.

Run with `python -m`, it has everything loaded and forks itself for each server, one after the other: a round
then costs what opening the platform costs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import httpx
from sqlalchemy import event
from sqlalchemy.engine import Engine

from sandboxer.backends import registry
from sandboxer.edges.cli import up
from sandboxer.edges.cli.main import root_command, run
from sandboxer.money import heartbeat
from tests.crash.lasting_host import LastingHost
from tests.crash.scripted_clocks import ScriptedClocks
from tests.support.trust import shared_trust

ROOT = Path(__file__).resolve().parents[2]
# Sums that grow while one looks.
RATES = {
    "running_msats": 20_000,
    "vcpu_msats": 0,
    "memory_gb_msats": 0,
    "disk_gb_msats": 0,
    "frozen_memory_gb_msats": 2_000,
    "stored_disk_gb_msats": 1_000,
}
SETTINGS = {
    "PRICING": json.dumps({"rates": RATES}),
    "FIXED_RATES": json.dumps({"BTC": "100000"}),
    "STORAGE_DEPOSIT": "1s",
    "RETENTION": "30d",
    "UNPAID_KEPT": "30d",
    "PROXY_LISTEN": "none",
    "LIMIT_ADDRESS": "1000000",
    "LIMIT_AUTH": "1000000",
    "LIMIT_BUCKET_ONLY": "1000000",
}


@dataclass(frozen=True)
class Round:
    state_dir: str
    host_file: str
    port: int
    database: str | None = None
    # It kills itself at this step: before or after a commit, or a change of the host. None: never.
    dies_at: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    # Where the test sets the clocks of this host (`scripted_clocks`). None: they are those of the machine.
    clocks_file: str | None = None

    @property
    def log_file(self) -> Path:
        return Path(f"{self.state_dir}.log")


class Server:
    """One that was forked."""

    def __init__(self, forking: subprocess.Popen[str]) -> None:
        assert forking.stdout is not None
        self._lines = forking.stdout
        self._pid = int(self._lines.readline())
        # As the kernel says; None: it lives.
        self.ended: int | None = None

    def is_alive(self) -> bool:
        return not self.wait(0)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        if self.ended is None and select.select([self._lines], [], [], seconds)[0]:
            self.ended = int(self._lines.readline())
        return self.ended is not None

    def kill(self) -> None:
        # It may die by itself at this very moment.
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def is_ready(self, plan: Round) -> bool:
        """Once it answers. False: it died before."""
        deadline = time.monotonic() + 60
        while self.is_alive():
            assert time.monotonic() < deadline, tail(plan)
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", plan.port, timeout=2)) as line:
                    line.request("GET", "/readyz")
                    if line.getresponse().status == 200:
                        return True
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
        return False


def tail(plan: Round) -> str:
    return plan.log_file.read_text()[-4000:] if plan.log_file.exists() else "no log"


class Servers:
    def __init__(self, forking: subprocess.Popen[str]) -> None:
        self._forking = forking

    def start(self, plan: Round) -> Server:
        """The one before it must have ended."""
        assert self._forking.stdin is not None
        self._forking.stdin.write(json.dumps(asdict(plan)) + "\n")
        self._forking.stdin.flush()
        return Server(self._forking)

    @contextmanager
    def serving(self, plan: Round) -> Iterator[Server]:
        """One that is killed on leaving, if it has not died before."""
        Path(plan.state_dir).mkdir(exist_ok=True)
        process = self.start(plan)
        try:
            yield process
        finally:
            process.kill()
            assert process.wait(30), "it does not die"
        assert process.ended == -signal.SIGKILL, (process.ended, tail(plan))


@contextmanager
def forking_servers() -> Iterator[Servers]:
    # The death signal ends it even when the test run is killed.
    words = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "tests.crash.charged_server"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=ROOT, bufsize=1, **pipes) as forking:  # type: ignore[call-overload]
        try:
            yield Servers(forking)
        finally:
            forking.kill()


class Steps:
    def __init__(self, last: int | None) -> None:
        self._left = last

    def take(self, *_: object) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


_plan: Round | None = None
_steps = Steps(None)


def serve(plan: Round) -> None:
    global _plan, _steps
    _plan, _steps = plan, Steps(plan.dies_at)
    event.listen(Engine, "commit", _steps.take)
    event.listen(Engine, "begin", _steps.take)
    log = os.open(plan.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # What it leaves there goes with the test's folder.
    tempfile.tempdir = str(Path(plan.state_dir).parent)
    for name in [name for name in os.environ if name.startswith("SANDBOXER_")]:
        del os.environ[name]
    chosen = {**SETTINGS, **plan.settings}
    if plan.database is not None:
        chosen["DATABASE"] = plan.database
    os.environ |= {f"SANDBOXER_{name}": value for name, value in chosen.items()}
    if plan.clocks_file is not None:
        heartbeat.HostTime = partial(ScriptedClocks, Path(plan.clocks_file))  # type: ignore[misc,assignment]
    registry.SHIPPED = {"ext.namespaces": f"{__name__}:open_backend"}
    os._exit(run(["up", "--state-dir", plan.state_dir, "--port", str(plan.port)]))


@asynccontextmanager
async def open_backend(_: object) -> AsyncIterator[LastingHost]:
    assert _plan is not None
    yield LastingHost(Path(_plan.host_file), name="ext.namespaces", at_step=_steps.take)


def main() -> None:
    """A line is a plan; the answers are the number of the process, and how it ended."""
    # Before the fork: what takes longer to load than a platform to open, the public authorities among it.
    assert up.http_server.run
    assert root_command()
    with shared_trust():
        httpx.Client().close()
        _fork_for_each_line()


def _fork_for_each_line() -> None:
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            serve(Round(**json.loads(line)))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
