"""deploy/Caddyfile served by a real Caddy on loopback, with a certificate authority of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

CADDYFILE = Path(__file__).parents[2] / "deploy" / "Caddyfile"


@dataclass(frozen=True)
class Site:
    address: str  # localhost:port
    authority: Path

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))


def why_no_caddy() -> str | None:
    return None if shutil.which("caddy") else "Caddy is not installed (apt-get install caddy)"


@contextmanager
def running_caddy(folder: Path, upstream: str) -> Iterator[Site]:
    port = free_port()
    # Only what a test must change: no system trust store, no port 80, no admin port, own storage.
    folder.joinpath("Caddyfile").write_text(
        "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n"
        f"\tstorage file_system {folder}/store\n}}\nimport {CADDYFILE}\n"
    )
    environment = os.environ | {
        "SANDBOXER_SITE": f"localhost:{port}",
        "SANDBOXER_UPSTREAM": upstream,
        "HOME": str(folder),
    }
    with open(folder / "log", "wb") as log:
        command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    site = Site(f"localhost:{port}", folder / "store/pki/authorities/local/root.crt")
    try:
        _wait_until_served(site, folder / "log")
        yield site
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_served(site: Site, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if httpx.get(f"https://{site.address}/health", verify=site.trust(), trust_env=False).is_success:
                return
        except (httpx.HTTPError, OSError):
            pass
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
