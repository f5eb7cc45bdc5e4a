"""What the supervisor costs. Figures are printed (pytest -s); the bars leave room for a busy machine."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.backends.guest import Command
from tests.support.guest import Box

pytestmark = pytest.mark.alone
SIZE = 100 * 1024 * 1024


async def test_an_idle_supervisor_is_tiny(box: Box, supervisor: Path) -> None:
    await box.guest.ping()
    own, mapped = box.memory_kb("Anonymous"), box.memory_kb("Rss")
    status = Path(f"/proc/{box.pid}/status").read_text()
    tables = next(line for line in status.splitlines() if line.startswith("VmPTE"))
    print(f"\nidle: {own} kB of its own, {mapped} kB with the shared program, {' '.join(tables.split())}")
    print(f"program: {supervisor.stat().st_size} bytes")
    assert own < 256
    assert supervisor.stat().st_size < 1 << 20
    for _ in range(50):
        await box.run("echo", "x")
    print(f"after 50 commands: {box.memory_kb('Anonymous')} kB")
    assert box.memory_kb("Anonymous") < 1024


async def test_a_short_command_takes_little_more_than_fork_and_exec(box: Box) -> None:
    times = []
    for _ in range(200):
        started = time.perf_counter()
        async with await box.guest.run(Command(argv=["/bin/true"]), forget=True) as process:
            async for _item in process.output():
                pass
        times.append((time.perf_counter() - started) * 1000)
    pings = []
    for _ in range(200):
        started = time.perf_counter()
        await box.guest.ping()
        pings.append((time.perf_counter() - started) * 1000)
    print(f"\nexec /bin/true: {statistics.median(times):.2f} ms, p95 {sorted(times)[190]:.2f} ms; ", end="")
    print(f"ping {statistics.median(pings):.2f} ms")
    assert statistics.median(times) < 20


async def test_a_hundred_megabytes_go_in_and_out_fast(box: Box) -> None:
    piece = os.urandom(256 * 1024)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(SIZE // len(piece)):
            yield piece

    started = time.perf_counter()
    await box.guest.files.write("/tmp/big", pieces())
    inward = SIZE / (time.perf_counter() - started) / 1e6
    started = time.perf_counter()
    received = 0
    async for part in box.guest.files.read("/tmp/big"):
        received += len(part)
    outward = SIZE / (time.perf_counter() - started) / 1e6
    assert received == SIZE
    started = time.perf_counter()
    async with await box.guest.run(Command(argv=["head", "-c", str(SIZE), "/dev/zero"])) as process:
        async for _item in process.output():
            pass
    printed = SIZE / (time.perf_counter() - started) / 1e6
    print(
        f"\n100 MB: in {inward:.0f} MB/s, out {outward:.0f} MB/s, as output of a command {printed:.0f} MB/s"
    )
    assert min(inward, outward, printed) > 50
