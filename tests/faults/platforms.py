"""`sandboxer up` as a process of its own, with sandboxes in memory or real, on any database and folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.forking import forking
from tests.support.platforms import IMAGES, ROOT, Process, Up, free_port

READY_WITHIN_S = 120


@dataclass
class Served:
    up: Up
    process: Process
    log: Path

    def stop(self, within_s: float) -> float:
        """Seconds until it obeyed; raises if it did not."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(within_s)
        return time.monotonic() - began

    def health(self, timeout: float = 10) -> httpx.Response:
        return httpx.get(f"{self.up.url}/health", timeout=timeout, trust_env=False)

    def wait_for(self, status: int, *, within_s: float = 30) -> dict[str, object]:
        """Until /health answers so; what it says then."""
        deadline = time.monotonic() + within_s
        while True:
            answer = self.health()
            if answer.status_code == status:
                found: dict[str, object] = answer.json()
                return found
            assert time.monotonic() < deadline, (answer.text, self.log.read_text()[-4000:])
            time.sleep(0.1)


@contextmanager
def served(
    state_dir: Path,
    *,
    log: Path,
    more: Mapping[str, str] | None = None,
    is_real: bool = False,
    source: Path | None = None,
) -> Iterator[Served]:
    """`source`: another checkout whose platform it is, run by this interpreter."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    environment |= {"SANDBOXER_IMAGES_DIR": str(IMAGES), "SANDBOXER_PROXY_LISTEN": "none", **(more or {})}
    environment |= {} if source is None else {"PYTHONPATH": str(source / "src")}
    program = "sandboxer.edges.cli.main" if is_real else "tests.faults.scripted_server"
    words = ["up", "--state-dir", str(state_dir), "--port", str(port)]
    process: Process
    with log.open("ab") as file:
        if source is None:
            streams = {"stdout": file.fileno(), "stderr": file.fileno()}
            process = forking().start(words, environment, program=program, **streams)
        else:
            words = [sys.executable, "-m", program, *words]
            process = subprocess.Popen(words, env=environment, cwd=ROOT, stdout=file, stderr=file)
    found = Served(Up(f"http://127.0.0.1:{port}", state_dir), process, log)
    try:
        _wait_until_ready(found)
        yield found
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_until_ready(found: Served) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        assert found.process.poll() is None, found.log.read_text()
        try:
            if httpx.get(f"{found.up.url}/readyz", timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, found.log.read_text()
        time.sleep(0.05)
