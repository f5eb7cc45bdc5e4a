"""What it costs to prove who is calling: the same route, signed, and past the layer that asks.

Both doors are of one process and one platform (`bench/doors.py`), asked in turn over kept-alive connections
on loopback, one request after another. What a client computes before it sends (its signature) is prepared
before the clock starts: the server is timed. A cheap route makes the proof weigh the most.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from sandboxer.sdk.credentials import Credentials

# Requests in a round: long enough to time, short enough that both sides meet the same load.
A_ROUND = 50
BAR = Bar(text="≤ 1.3 × the same route unsigned", limit=1.3)


def signed(folder: Path, rounds: int) -> Iterator[Row | Samples]:
    state_dir = folder / "doors"
    state_dir.mkdir()
    with doors(state_dir) as (port, open_port):
        content = json.loads((state_dir / "owner.json").read_text())
        owner = Credentials(content["public_key"], content["secret_key"], f"http://127.0.0.1:{port}")
        wire, bare = Wire("127.0.0.1", port, owner), Wire("127.0.0.1", open_port, owner)
        made = wire.ask("POST", "/v1/sandboxes", {"profile": "profile.agent-dev"}).json()
        made_key = wire.ask("POST", "/v1/keys", {"account": "tenant", "name": "bench"}).json()
        tenant = Credentials(made_key["public_key"], made_key["secret_key"], owner.url)
        other = Wire("127.0.0.1", port, tenant)
        one = f"/v1/sandboxes/{made['id']}"
        yield from _compare("signed GET of a sandbox", wire, bare, ("GET", one), rounds)
        command = {"command": "true"}
        yield from _compare("signed exec", wire, bare, ("POST", f"{one}/exec", command), rounds)
        yield from _compare(
            "signed GET by an account that is counted", other, bare, ("GET", "/v1/profiles"), rounds
        )
        for line in (wire, bare, other):
            line.close()


def _compare(
    figure: str, wire: Wire, bare: Wire, request: tuple[object, ...], rounds: int
) -> Iterator[Row | Samples]:
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        for line, times in ((bare, theirs), (wire, ours)):
            times.append(_timed(line, request))
    subject, baseline = Samples("signed", "ms", tuple(ours)), Samples("unsigned", "ms", tuple(theirs))
    yield Row(figure=figure, subject=subject, baseline=baseline, bar=BAR)


def _timed(wire: Wire, request: tuple[object, ...]) -> float:
    """Milliseconds each."""
    prepared = [wire.prepare(*request) for _ in range(A_ROUND)]  # type: ignore[arg-type]
    start = time.perf_counter()
    for message in prepared:
        wire.send_prepared(message)
        reply = wire.receive()
        if reply.status >= 300:
            reply.json()
            raise RuntimeError(f"answered {reply.status}")
    return (time.perf_counter() - start) / A_ROUND * 1000


@contextmanager
def doors(state_dir: Path) -> Iterator[tuple[int, int]]:
    words = [sys.executable, "-m", "bench.doors", str(state_dir)]
    with (state_dir / "doors.log").open("ab") as log:
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise RuntimeError((state_dir / "doors.log").read_text(errors="replace")[-3000:])
        port, open_port = json.loads(line)
        yield port, open_port
    finally:
        assert server.stdin is not None
        server.stdin.close()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
