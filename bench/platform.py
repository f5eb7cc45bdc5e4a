"""A platform of the bench's own: its own folder, port and pool, gone afterwards with everything it made."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.census import Census, remove_cgroups, take_census
from bench.client import BadAnswer, Wire
from sandboxer.sdk.credentials import Credentials

# Disk quotas are never promised twice, so the pool must hold the largest crowd's.
POOL_MB = 9_500
STOP_S = 30.0


@dataclass(slots=True)
class Running:
    """The server under test."""

    state_dir: Path
    images_dir: Path
    port: int
    process: subprocess.Popen[bytes]
    key: Credentials

    def wire(self) -> Wire:
        return Wire("127.0.0.1", self.port, self.key)

    def census(self) -> Census:
        return take_census(self.state_dir)

    @property
    def owner_file(self) -> Path:
        return self.state_dir / "owner.json"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def own_folder() -> Iterator[Path]:
    """A state folder under /var/lib: on the disk where a platform would live, not in a tmpfs.

    Whoever ends the bench by a signal finds neither the folder nor sandboxes afterwards.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="sandboxer-bench-", dir="/var/lib"))
    try:
        yield folder
    finally:
        _unmount_below(folder)
        remove_cgroups(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_platform(
    state_dir: Path,
    images_dir: Path,
    *,
    warm_pool: int = 0,
    source: Path | None = None,
    pool_mb: int = POOL_MB,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """`source`: another checkout whose platform it is, run by this interpreter. `settings` by their names."""
    port = free_port()
    words = [sys.executable, "-m", "sandboxer.edges.cli.main", "up", "--state-dir", str(state_dir)]
    words += ["--port", str(port)]
    words += ["--warm-pool", str(warm_pool)] if warm_pool else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    environment |= {"SANDBOXER_IMAGES_DIR": str(images_dir), "SANDBOXER_POOL_SIZE_MB": str(pool_mb)}
    environment |= {"SANDBOXER_LOG_LEVEL": "warning"}
    environment |= {"PYTHONPATH": str(source / "src")} if source is not None else {}
    environment |= {f"SANDBOXER_{name.upper()}": value for name, value in (settings or {}).items()}
    log = (state_dir / "server.log").open("ab")
    # A bench that is ended from outside must not leave its server running.
    words = ["setpriv", "--pdeathsig", "TERM", "--", *words]
    process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        key = _wait_until_ready(state_dir, port, process)
        running = Running(state_dir, images_dir, port, process, key)
        try:
            yield running
        finally:
            # Sandboxes outlive their server, by design; the bench's must not.
            destroy_everything(running)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def destroy_everything(running: Running) -> None:
    wire = running.wire()
    while found := wire.ask("GET", "/v1/sandboxes?limit=100").json()["sandboxes"]:
        for sandbox in found:
            wire.ask("DELETE", f"/v1/sandboxes/{sandbox['id']}")
    wire.close()


def _wait_until_ready(state_dir: Path, port: int, process: subprocess.Popen[bytes]) -> Credentials:
    deadline = time.monotonic() + 60.0
    while True:
        if process.poll() is not None:
            said = (state_dir / "server.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the platform ended with {process.returncode}:\n{said}")
        try:
            content = json.loads((state_dir / "owner.json").read_text())
            key = Credentials(content["public_key"], content["secret_key"], f"http://127.0.0.1:{port}")
            wire = Wire("127.0.0.1", port, key, timeout_s=5.0)
            wire.ask("GET", "/v1/sandboxes?limit=1").json()
            wire.close()
            return key
        except (OSError, ValueError, BadAnswer):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _unmount_below(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        target = line.split(" ")[4]
        if target.startswith(f"{folder}/"):
            subprocess.run(["umount", "-d", target], check=False)
