"""The bar: with thousands of silent connections a signed create takes at most twice its quiet time."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.client import BadAnswer, Wire
from sandboxer.sdk.signing import Credentials
from tests.http.test_real import IMAGES, why_not
from tests.servers.caddy import free_port

ROUNDS = 15
PATIENCE = 3


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[tuple[int, Credentials]]:
    """A real one, in a process of its own."""
    if why := why_not():
        pytest.skip(why)
    state, port = tmp_path / "state", free_port()
    environment = os.environ | {
        "SANDBOXER_IMAGES_DIR": str(IMAGES),
        "SANDBOXER_POOL_SIZE_MB": "1200",
        "SANDBOXER_PROXY_LISTEN": "none",
        "SANDBOXER_LOG_LEVEL": "warning",
    }
    words = [sys.executable, "-m", "sandboxer.edges.cli.main", "up", "--state-dir", str(state)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*words, "--port", str(port)], env=environment, stdout=log, stderr=log)
    try:
        yield port, _owner(state, port)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
        if os.path.ismount(state / "pool"):
            subprocess.run(["umount", str(state / "pool")], check=True)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(("count", "addresses"), [(10_000, 1), (1_000, 1_000)])
def test_a_create_is_answered_in_at_most_twice_its_quiet_time(
    platform: tuple[int, Credentials], count: int, addresses: int
) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < count + 100:
        pytest.skip(f"this host allows fewer than {count} descriptors")
    port, owner = platform
    _create_times(port, owner)
    for left in reversed(range(PATIENCE)):
        quiet = _create_times(port, owner)
        with _crowd(port, count, addresses) as words:
            _settle(port, owner)
            loud = _create_times(port, owner)
        ratio = statistics.median(loud) / statistics.median(quiet)
        print(
            f"{words}: create {statistics.median(quiet):.1f} ms quiet, "
            f"{statistics.median(loud):.1f} ms meanwhile, ratio {ratio:.2f}"
        )
        # Others use this machine too: the best of a few is what the server can do.
        if ratio <= 2.0 or not left:
            break
    assert ratio <= 2.0


def _create_times(port: int, owner: Credentials) -> list[float]:
    """Milliseconds, each over a connection of its own: who is locked out cannot connect."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        wire = Wire("127.0.0.1", port, owner)
        made = wire.ask("POST", "/v1/sandboxes", {"resources": {"disk_mb": 64}}).json()
        times.append((time.perf_counter() - begin) * 1000)
        wire.ask("DELETE", f"/v1/sandboxes/{made['id']}")
        wire.close()
    return times


def _settle(port: int, owner: Credentials) -> None:
    """Until all of them were accepted: thousands that come at once wait in one queue with ours."""
    deadline, quick = time.monotonic() + 60, 0
    while quick < 5:
        assert time.monotonic() < deadline, "the server never came to rest"
        begin = time.perf_counter()
        wire = Wire("127.0.0.1", port, owner)
        wire.ask("GET", "/v1/sandboxes")
        wire.close()
        quick = quick + 1 if time.perf_counter() - begin < 0.05 else 0


@contextmanager
def _crowd(port: int, count: int, addresses: int) -> Iterator[str]:
    words = [sys.executable, "-m", "tests.access.front.crowd", str(port), str(count), str(addresses)]
    attacker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert attacker.stdout is not None
        yield attacker.stdout.readline().strip()
    finally:
        assert attacker.stdin is not None
        attacker.stdin.close()
        attacker.wait(30)


def _owner(state: Path, port: int) -> Credentials:
    deadline = time.monotonic() + 60
    while True:
        try:
            known = json.loads((state / "owner.json").read_text())
            owner = Credentials(known["public_key"], known["secret_key"], f"http://127.0.0.1:{port}")
            wire = Wire("127.0.0.1", port, owner)
            wire.ask("GET", "/v1/sandboxes")
            wire.close()
            return owner
        except (OSError, ValueError, BadAnswer):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
