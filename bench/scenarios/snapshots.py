"""Snapshot, restore and clone with 1 MB and with 1 GB on disk; a hundred clones against a hundred creates."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from bench.platform import Running
from bench.scenarios.crowd import SMALL, destroy_all
from bench.scenarios.life import Measured, timed

MB_SMALL, MB_LARGE = 1, 1024
DISK = {"resources": {"vcpus": 1, "memory_mb": 512, "disk_mb": 1400, "pids": 64}}
CLONE = {"resources": {"disk_mb": 64, "memory_mb": 128}}
FRESH_ROUNDS = 3


def snapshots(
    running: Running, rounds: int, *, count: int = 100, large_mb: int = MB_LARGE
) -> Iterator[Row | Samples]:
    yield from _sizes(running, rounds, large_mb)
    yield from _fresh(running, min(rounds, FRESH_ROUNDS), large_mb)
    yield from _crowd(running, rounds, count)


def _sizes(running: Running, rounds: int, large_mb: int) -> Iterator[Row | Samples]:
    wire, measured = running.wire(), Measured()
    boxes = {name: _filled(wire, mb) for name, mb in (("1 MB", MB_SMALL), (f"{large_mb} MB", large_mb))}
    for number in range(rounds + 1):
        if number == 1:
            measured.clear()
        for name, sandbox_id in boxes.items():
            _one_round(wire, measured, name, sandbox_id)
    for sandbox_id in boxes.values():
        wire.ask("DELETE", f"/v1/sandboxes/{sandbox_id}").json()
    wire.close()
    for act in ("snapshot", "restore", "clone"):
        yield Row(
            figure=f"{act} with {large_mb} MB on disk",
            subject=measured.samples(f"{act} {large_mb} MB"),
            baseline=measured.samples(f"{act} 1 MB"),
            bar=Bar(text="≤ 2 × the same with 1 MB", limit=2.0),
        )


def _one_round(wire: Wire, measured: Measured, name: str, sandbox_id: str) -> None:
    took, made = timed(lambda: wire.ask("POST", f"/v1/sandboxes/{sandbox_id}/snapshots", {}).json())
    measured.add(f"snapshot {name}", took)
    where = f"/v1/snapshots/{made['id']}"
    took, clones = timed(lambda: wire.ask("POST", f"{where}/clone", CLONE).json())
    measured.add(f"clone {name}", took)
    wire.ask("DELETE", f"/v1/sandboxes/{clones['sandboxes'][0]['id']}").json()
    measured.add(f"restore {name}", timed(lambda: wire.ask("POST", f"{where}/restore").json())[0])
    wire.ask("DELETE", where).json()


def _fresh(running: Running, rounds: int, large_mb: int) -> Iterator[Row | Samples]:
    """Written a moment before: a snapshot waits until that has reached the disk, as `sync` does."""
    wire, measured = running.wire(), Measured()
    for _ in range(rounds):
        for name in ("snapshot", "sync"):
            sandbox_id = wire.ask("POST", "/v1/sandboxes", DISK).json()["id"]
            _write(wire, sandbox_id, large_mb)
            start = time.perf_counter()
            if name == "sync":
                _run(wire, sandbox_id, "sync")
            else:
                made = wire.ask("POST", f"/v1/sandboxes/{sandbox_id}/snapshots", {}).json()
            measured.add(name, (time.perf_counter() - start) * 1000)
            if name == "snapshot":
                wire.ask("DELETE", f"/v1/snapshots/{made['id']}").json()
            wire.ask("DELETE", f"/v1/sandboxes/{sandbox_id}").json()
    wire.close()
    yield Row(
        figure=f"snapshot with {large_mb} MB written a moment before",
        subject=measured.samples("snapshot"),
        baseline=measured.samples("sync"),
        bar=Bar(text="≤ 2 × sync of the same data", limit=2.0),
    )


def _crowd(running: Running, rounds: int, count: int) -> Iterator[Row | Samples]:
    wire, wires = running.wire(), [running.wire() for _ in range(count)]
    source = wire.ask("POST", "/v1/sandboxes", SMALL).json()["id"]
    _write(wire, source, 4)
    snapshot = wire.ask("POST", f"/v1/sandboxes/{source}/snapshots", {}).json()["id"]
    clones: list[float] = []
    creates: list[float] = []
    disk: list[float] = []
    for _ in range(max(3, rounds // 5)):
        start = time.perf_counter()
        for each in wires:
            each.send("POST", "/v1/sandboxes", SMALL)
        made = [each.receive().json() for each in wires]
        creates.append((time.perf_counter() - start) * 1000)
        destroy_all(wires, [sandbox["id"] for sandbox in made])
        before = _used_mb(running.state_dir)
        took, batch = timed(
            lambda: wire.ask("POST", f"/v1/snapshots/{snapshot}/clone", {"count": count}).json()
        )
        _all_made(batch, count)
        clones.append(took)
        disk.append((_used_mb(running.state_dir) - before) / count)
        destroy_all(wires, [sandbox["id"] for sandbox in batch["sandboxes"]])
    wire.ask("DELETE", f"/v1/snapshots/{snapshot}").json()
    wire.ask("DELETE", f"/v1/sandboxes/{source}").json()
    for each in (wire, *wires):
        each.close()
    yield Row(
        figure=f"{count} clones of one snapshot",
        subject=Samples(f"{count} clones, all ready", "ms", tuple(clones)),
        baseline=Samples(f"{count} creates at once", "ms", tuple(creates)),
        bar=Bar(text="no slower than as many cold creates", limit=1.0),
    )
    yield Row(
        figure="new disk of a clone",
        subject=Samples("pool used by each clone", "MB", tuple(disk)),
        baseline=None,
        bar=Bar(text="≤ 2 MB", limit=2.0),
    )


def _filled(wire: Wire, megabytes: int) -> str:
    """A sandbox with so much on its disk, all of it written out."""
    sandbox_id: str = wire.ask("POST", "/v1/sandboxes", DISK).json()["id"]
    _write(wire, sandbox_id, megabytes)
    _run(wire, sandbox_id, "sync")
    return sandbox_id


def _write(wire: Wire, sandbox_id: str, megabytes: int) -> None:
    files = max(1, megabytes // 16)
    each = megabytes // files
    script = (
        f"mkdir -p /root/data; for i in $(seq {files}); do"
        f" dd if=/dev/zero of=/root/data/$i bs=1M count={each} 2>/dev/null || exit 1; done"
    )
    _run(wire, sandbox_id, script)


def _run(wire: Wire, sandbox_id: str, script: str) -> None:
    body = {"argv": ["/bin/sh", "-c", script], "timeout_s": 120}
    said = wire.ask("POST", f"/v1/sandboxes/{sandbox_id}/exec", body).json()
    if said["exit_code"] != 0:
        raise RuntimeError(f"{script!r} said {said!r}")


def _all_made(batch: dict[str, Any], count: int) -> None:
    if len(batch["sandboxes"]) != count:
        raise RuntimeError(f"not all clones were made: {batch['failed'][:1]}")


def _used_mb(state_dir: Path) -> float:
    os.sync()
    seen = os.statvfs(state_dir / "pool")
    return (seen.f_blocks - seen.f_bfree) * seen.f_frsize / 2**20
