"""One tenant does its worst; what another one notices of it, and what the server holds meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.client import Wire
from bench.figures import Bar, Row, Samples
from bench.platform import Running
from bench.scenarios.life import ECHO, timed
from sandboxer.sdk.signing import Credentials
from sandboxer.settings import Settings

SATS = 1_000_000_000
# Rate limits would end the abuse after two seconds; what is measured is what holds without them.
UNCOUNTED = {"limit_bucket_only": "1000000", "limit_address": "1000000"}
# What the interpreter and all rooms take before anybody asks for anything is not the tenants' doing.
OVER_BUDGET = 1.1


def fairness(running: Running, rounds: int) -> Iterator[Row | Samples]:
    count = max(rounds * 10, 100)
    abuser, neighbour = _account(running, "abuser"), _account(running, "neighbour")
    wire = Wire("127.0.0.1", running.port, neighbour)
    target = f"/v1/sandboxes/{wire.ask('POST', '/v1/sandboxes', {}).json()['id']}"
    _execs(wire, target, 20)
    quiet = _execs(wire, target, count)
    empty_mb = _rss_mb(running.process.pid)
    with _abused(running, abuser), _watched(running.process.pid) as memory:
        loud = _execs(wire, target, count)
    wire.ask("DELETE", target).json()
    wire.close()
    yield Row(
        figure="a neighbour's exec, p99, under abuse",
        subject=Samples("under abuse", "ms", (_p99(loud),)),
        baseline=Samples("quiet", "ms", (_p99(quiet),)),
        bar=Bar(text="≤ 3 × its quiet p99", limit=3.0),
        note=f"{count} each; medians {_median(quiet):.1f} and {_median(loud):.1f} ms",
    )
    budget = Settings().budget_mb
    yield Row(
        figure="server's memory beyond an idle one's",
        subject=Samples("under abuse", "MB", (max(memory) - empty_mb,)),
        baseline=Samples("the budget", "MB", (float(budget),)),
        bar=Bar(text=f"≤ {OVER_BUDGET:g} × the budget", limit=OVER_BUDGET),
    )
    yield Samples("exec, quiet", "ms", tuple(quiet))
    yield Samples("exec, under abuse", "ms", tuple(loud))


def _account(running: Running, name: str) -> Credentials:
    owner = running.wire()
    made = owner.ask("POST", "/v1/keys", {"name": name, "account": name}).json()
    paid = {"sats": SATS, "id": f"bench-{name}", "reason": "bench"}
    owner.ask("POST", f"/v1/accounts/{name}/adjust", paid).json()
    owner.close()
    return Credentials(made["public_key"], made["secret_key"], running.key.url)


def _execs(wire: Wire, target: str, count: int) -> list[float]:
    return [timed(lambda: wire.ask("POST", f"{target}/exec", ECHO).json())[0] for _ in range(count)]


@contextmanager
def _abused(running: Running, key: Credentials) -> Iterator[None]:
    words = [sys.executable, "-m", "bench.abuse"]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        told = {"port": running.port, "public_key": key.public_key, "secret_key": key.secret_key}
        process.stdin.write(json.dumps(told).encode() + b"\n")
        process.stdin.flush()
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the abuser could not begin")
        time.sleep(2.0)  # until all of its acts are under way
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """The server's memory, five times a second."""
    seen, over = [_rss_mb(pid)], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            seen.append(_rss_mb(pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
