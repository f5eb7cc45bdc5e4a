"""What must be true of everything that is kept, right after a start, whatever happened before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from sandboxer.artifacts.images.published import records as images
from sandboxer.artifacts.records import State
from sandboxer.artifacts.records import State as VolumeState
from sandboxer.artifacts.snapshots import records as snapshots
from sandboxer.artifacts.volumes import records as volumes
from sandboxer.backends.contract import Snapshots, Volumes
from sandboxer.backends.namespaces.holdings import MARK
from sandboxer.money.tables import ledger_pendings, meter_segments, meters
from sandboxer.money.verification import verify
from sandboxer.wiring import Platform
from tests.crash.audit import EMPTY, UNSETTLED, chain_complaints, everything, history, life_complaints

NAME = "ext.namespaces"


async def audit_kept(platform: Platform, state: Path, name: str = NAME) -> list[str]:
    """Complaints; none if all is well. `state`: the folder of the backend of this name."""
    sandboxes = await everything(platform)
    complaints = [f"{one.id} is still {one.state}" for one in sandboxes if one.state in UNSETTLED]
    for one in sandboxes:
        complaints += chain_complaints(one, await history(platform, one.id))
        complaints += await life_complaints(platform, one)
    living = {one.id for one in sandboxes if one.state not in EMPTY}
    complaints += _differ("sandbox", living, set(await platform.backends[name].inventory()))
    kept, more = await _kept(platform, name)
    complaints += more + left_on_host(state, living, kept)
    dead = {one.id for one in sandboxes if one.ready_at is None}
    return complaints + await platform.store.read(lambda conn: _money(conn, living | kept, dead))


async def _kept(platform: Platform, name: str) -> tuple[set[str], list[str]]:
    backend = platform.backends[name]
    assert isinstance(backend, Snapshots)
    assert isinstance(backend, Volumes)
    disks: list[Any] = [
        *await platform.store.read(snapshots.rows.living),
        *await platform.store.read(images.rows.living),
    ]
    named = await platform.store.read(volumes.rows.living)
    complaints = [f"{one.id} is still {one.state}" for one in disks if one.state is not State.KEPT]
    complaints += [f"{one.id} is still {one.state}" for one in named if one.state is not VolumeState.READY]
    complaints += _differ("kept disk", {one.id for one in disks}, set(await backend.kept()))
    complaints += _differ("volume", {one.id for one in named}, set(await backend.volumes()))
    for one in disks:
        await backend.check_kept(one.id)
    return {one.id for one in disks} | {one.id for one in named}, complaints


def _differ(what: str, recorded: set[str], there: set[str]) -> list[str]:
    return [f"{what} {id_} is there without a record" for id_ in sorted(there - recorded)] + [
        f"{what} {id_} is recorded and not there" for id_ in sorted(recorded - there)
    ]


def left_on_host(state: Path, living: set[str], kept: set[str]) -> list[str]:
    """Seen from outside: the pool, the notes beside it, mounts and loop devices."""
    known = living | kept
    found = [f"{name} in the pool" for name in os.listdir(state / "pool") if name not in {*known, MARK}]
    notes = os.listdir(state / "kept") if (state / "kept").is_dir() else []
    found += [f"note {name}" for name in notes if name.removesuffix(".json") not in known]
    boxes = [path for path in (state / "run").rglob("*") if ".new" in path.name or path.name.startswith(".s")]
    found += [f"left in run: {path}" for path in boxes]
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found += [f"mount {at}" for at in mounts if at.startswith(f"{state}/") and at != f"{state}/pool"]
    loops = subprocess.run(
        ["losetup", "-j", str(state / "pool.btrfs")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return found if len(loops) == 1 else [*found, f"loops: {loops}"]


def _money(conn: Connection, costly: set[str], never_ready: set[str]) -> list[str]:
    """Nothing is lost or left open, and what came to nothing cost nothing."""
    complaints = [f"the ledger: {fault}" for fault in verify(conn).faults]
    running = select(meters.c.subject).where(meters.c.closed_at.is_(None), meters.c.rate_msats > 0)
    complaints += [f"{who} is charged for" for who in conn.execute(running).scalars() if who not in costly]
    holds = conn.execute(select(ledger_pendings.c.id)).scalars()
    complaints += [f"{hold} is open" for hold in holds if hold.split(":")[1] not in costly]
    failed = never_ready | set(
        conn.execute(
            select(snapshots.snapshots.c.id).where(snapshots.snapshots.c.state == State.FAILED.value)
        ).scalars()
    )
    charged = conn.execute(select(meter_segments.c.subject).where(meter_segments.c.rate_msats > 0)).scalars()
    return complaints + [f"{who} came to nothing and was charged" for who in set(charged) & failed]
