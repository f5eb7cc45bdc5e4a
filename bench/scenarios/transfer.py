"""100 MB in and out of a sandbox, against a bare Starlette handler that writes to the same disk.

The body's hash is known before the clock starts, as for any file a client sends twice; hashing on our side of
the wire is the server's and is timed. The file in the sandbox and the bare handler's lie in the same pool.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from bench.platform import Running, free_port
from bench.scenarios.life import Measured, timed

MB = 1 << 20
SIZE_MB = 100


def transfer(running: Running, rounds: int) -> Iterator[Row | Samples]:
    chunk = os.urandom(MB)
    digest = hashlib.sha256()
    for _ in range(SIZE_MB):
        digest.update(chunk)
    measured = Measured()
    wire = running.wire()
    wanted = {"resources": {"disk_mb": 1024, "memory_mb": 512}}
    sandbox_id = wire.ask("POST", "/v1/sandboxes", wanted).json()["id"]
    content = f"/v1/sandboxes/{sandbox_id}/files/content?path=/big"
    with bare_server(running) as port:
        bare = Wire("127.0.0.1", port, running.key)
        for _ in range(rounds):
            for name, line, target in (("bare", bare, "/content"), ("sandbox", wire, content)):
                _round(measured, name, line, target, chunk, digest.hexdigest())
    wire.ask("DELETE", f"/v1/sandboxes/{sandbox_id}")
    for direction in ("in", "out"):
        yield Row(
            figure=f"{SIZE_MB} MB {direction}",
            subject=measured.samples(f"sandbox, {direction}"),
            baseline=measured.samples(f"bare, {direction}"),
            bar=Bar(text="≥ 0.5 × a bare handler's speed", limit=0.5, at_least=True),
            is_inverse=True,
        )


def _round(measured: Measured, name: str, line: Wire, target: str, chunk: bytes, digest: str) -> None:
    took, reply = timed(lambda: line.put(target, (chunk for _ in range(SIZE_MB)), digest, SIZE_MB * MB))
    reply.json()
    measured.add(f"{name}, in", took)
    took, seen = timed(lambda: line.drain(target))
    if seen != SIZE_MB * MB:
        raise RuntimeError(f"{name} sent {seen} bytes back")
    measured.add(f"{name}, out", took)


@contextmanager
def bare_server(running: Running) -> Iterator[int]:
    """Yields the port of the floor, which keeps files on the disk where sandboxes are."""
    pool = running.state_dir / "pool"
    folder = (pool if pool.is_dir() else running.state_dir) / ".bench"
    folder.mkdir(exist_ok=True)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bare", str(port), str(folder)], cwd=Path(__file__).parents[2]
    )
    try:
        _wait_until_it_listens(port)
        yield port
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 20.0
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
