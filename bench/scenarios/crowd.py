"""A hundred at once, and five hundred that only sit there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from bench import bwrap
from bench.census import cgroup_roots
from bench.client import Wire
from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running

# Five hundred of them stay within what a small host may promise.
SMALL = {"resources": {"vcpus": 0.25, "memory_mb": 64, "disk_mb": 16, "pids": 64}}
SETTLE_S = 5.0
TICKS = os.sysconf("SC_CLK_TCK")


def burst(running: Running, image: Path, rounds: int, *, count: int = 100) -> Iterator[Row | Samples]:
    """All requests are sent before the first answer is read; over when the last sandbox is ready."""
    floor = bwrap.argv(image)
    wires = [running.wire() for _ in range(count)]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        theirs.append(bwrap.crowd_ms(floor, count))
        start = time.perf_counter()
        for wire in wires:
            wire.send("POST", "/v1/sandboxes", SMALL)
        made = [wire.receive().json() for wire in wires]
        ours.append((time.perf_counter() - start) * 1000)
        if not all(sandbox["state"] in ("ready", "active") for sandbox in made):
            raise RuntimeError("not all sandboxes became ready")
        destroy_all(wires, [sandbox["id"] for sandbox in made])
    for wire in wires:
        wire.close()
    yield Row(
        figure=f"{count} creates at once",
        subject=Samples(f"{count} creates, all ready", "ms", tuple(ours)),
        baseline=Samples(f"{count} bwraps", "ms", tuple(theirs)),
        bar=Bar(text="≤ 3 × bwraps at once", limit=3.0),
    )


def destroy_all(wires: list[Wire], ids: list[str]) -> None:
    for start in range(0, len(ids), len(wires)):
        batch = list(zip(wires, ids[start : start + len(wires)], strict=False))
        for wire, sandbox_id in batch:
            wire.send("DELETE", f"/v1/sandboxes/{sandbox_id}")
        for wire, _ in batch:
            wire.receive().json()


def idle(running: Running, *, count: int = 500, watch_s: float = 30.0) -> Iterator[Row | Samples | Skipped]:
    wires = [running.wire() for _ in range(8)]
    _settle()
    before = available_mb()
    ids: list[str] = []
    while len(ids) < count:
        batch = wires[: count - len(ids)]
        for wire in batch:
            wire.send("POST", "/v1/sandboxes", SMALL | {"ttl": "1h"})
        ids += [wire.receive().json()["id"] for wire in batch]
    _settle()
    fall = (before - available_mb()) / count
    charged = cgroup_memory_mb(running.state_dir) / count
    used = cpu_s(running.process.pid)
    time.sleep(watch_s)
    share = (cpu_s(running.process.pid) - used) / watch_s * 100
    with_all = available_mb()
    destroy_all(wires, ids)
    _settle()
    rise = (available_mb() - with_all) / count
    yield from _memory_row(fall, rise, charged, count)
    yield Row(
        figure=f"server's CPU with {count} idle sandboxes",
        subject=Samples("CPU of the server", "%", (share,)),
        baseline=None,
        bar=Bar(text="< 1 %", limit=1.0),
    )
    yield Samples("memory each, as charged to the sandboxes' cgroups", "MB", (charged,))


def _memory_row(fall: float, rise: float, charged: float, count: int) -> Iterator[Row | Skipped]:
    """MemAvailable falls while they are made and rises once they are gone: alike on a quiet machine."""
    figure = f"memory of each of {count} idle sandboxes"
    text = f"MemAvailable fell by {fall:.2f} and rose again by {rise:.2f} MB each, {charged:.2f} are charged"
    if min(fall, rise) < charged or max(fall, rise) > 3 * min(fall, rise):
        # They cannot weigh less than what is charged to them: others took or let go memory meanwhile.
        yield Skipped(figure, f"{text}: the machine is too busy")
        return
    yield Row(
        figure=figure,
        subject=Samples("memory each", "MB", (fall, rise)),
        baseline=None,
        bar=Bar(text="≤ 2 MB (fall of MemAvailable)", limit=2.0),
        note=text,
    )


def cgroup_memory_mb(state_dir: Path) -> float:
    """What the kernel charges to all sandboxes of this platform together."""
    total = 0
    for root in cgroup_roots(state_dir):
        for name in ("memory.usage_in_bytes", "memory.current"):
            total += sum(int(file.read_text()) for file in root.glob(f"sbx_*/{name}"))
    return total / (1 << 20)


def available_mb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no MemAvailable on this kernel")


def cpu_s(pid: int) -> float:
    """Of the server and the processes it started and that are still its children (its launcher)."""
    total = 0
    for process in [pid, *_children(pid)]:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _settle() -> None:
    os.sync()
    time.sleep(SETTLE_S)
