"""What is kept pays until it was last seen, if a start finds that it is gone; and is used no longer."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select

from sandboxer.accounts import records as accounts
from sandboxer.artifacts.images.published.use_cases import Wanted as WantedImage
from sandboxer.artifacts.snapshots.use_cases import Wanted as WantedSnapshot
from sandboxer.artifacts.volumes.use_cases import Wanted as WantedVolume
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.statements import actuals
from sandboxer.money.tables import meter_segments, meters
from sandboxer.money.usage_feed import segments_page
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime, pause
from sandboxer.wiring import Platform
from tests.support.charging import RATES, paying, settled
from tests.support.clock import ManualClock
from tests.support.sandboxes import ALICE, OpenPlatform

# A sat a second for every mebibyte.
RATES_OF_KEPT = {**RATES, "stored_disk_gb_msats": 1_024_000}
MIB = 1 << 20


async def keep(platform: Platform, backend: Scripted, kind: str) -> str:
    """The id under which it is charged."""
    if kind == "volume":
        volume = await platform.artifacts.volumes.create(WantedVolume(name="v", size_mb=16), ALICE)
        return volume.id
    if kind == "free sandbox":
        await give_a_slot(platform)
    sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    backend.boxes[sandbox.id].disk.write("/root/file", b"x" * 4 * MIB)
    if kind in ("sandbox", "free sandbox"):
        return sandbox.id
    if kind == "stopped disk":
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        return sandbox.id
    kept = await platform.artifacts.snapshots.take(sandbox.id, WantedSnapshot(), ALICE)
    if kind == "image":
        image = await platform.artifacts.images.publish_snapshot(kept.id, WantedImage(name="i"), ALICE)
        await platform.artifacts.snapshots.drop(kept.id, ALICE)
    await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
    return image.id if kind == "image" else kept.id


async def give_a_slot(platform: Platform) -> None:
    """Of a tier, in which a sandbox costs nothing."""
    now = platform.clock.now()

    def entitle(conn: Connection) -> None:
        accounts.ensure(conn, "alice", actor="test", now=now)
        until = now + timedelta(days=1)
        accounts.entitle(conn, "alice", tier=1, until=until, actor="test", reason="bought", now=now)

    await platform.store.write(entitle)


def lose_everything(backend: Scripted) -> None:
    backend.boxes.clear()
    backend.kept_disks.clear()
    backend._volumes.disks.clear()


def charged_until(conn: Connection, subject: str) -> datetime | None:
    """None: it is charged still."""
    runs = select(meters.c.id).where(meters.c.subject == subject, meters.c.rate_msats != 0)
    if conn.execute(runs).first() is not None:
        return None
    ended = select(func.max(meter_segments.c.ended_at)).where(meter_segments.c.subject == subject)
    found: datetime | None = conn.execute(ended).scalar()
    return found


@pytest.mark.parametrize("kind", ["volume", "snapshot", "image", "stopped disk"])
async def test_what_is_kept_and_found_missing_pays_until_it_was_last_witnessed(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, kind: str
) -> None:
    async with paying(open_one, sats=1_000_000, rates=RATES_OF_KEPT) as platform:
        subject = await keep(platform, backend, kind)
        clock.advance(timedelta(seconds=8))
        paid = (await settled(platform)).posted
    last_seen = clock.now()
    lose_everything(backend)
    clock.advance(timedelta(seconds=44))
    async with paying(open_one, rates=RATES_OF_KEPT) as platform:
        assert await platform.store.read(lambda conn: charged_until(conn, subject)) == last_seen
        clock.advance(timedelta(seconds=44))
        assert (await settled(platform)).posted == paid


@pytest.mark.parametrize("kind", ["volume", "snapshot", "image", "stopped disk", "sandbox"])
async def test_a_start_that_came_to_nothing_has_witnessed_nothing(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, kind: str, tmp_path: Path
) -> None:
    """A server that is started again and again, and does not open: a broken profile, or a kill."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "broken.yaml").write_text("[")
    async with paying(open_one, sats=1_000_000, rates=RATES_OF_KEPT) as platform:
        subject = await keep(platform, backend, kind)
        clock.advance(timedelta(seconds=8))
    last_seen = clock.now()
    lose_everything(backend)
    for _ in range(3):
        clock.advance(timedelta(seconds=44))
        with pytest.raises(InvalidRequest):
            async with open_one(profiles_dir=tmp_path / "profiles"):
                pass
    clock.advance(timedelta(seconds=44))
    async with paying(open_one, rates=RATES_OF_KEPT) as platform:
        assert await platform.store.read(lambda conn: charged_until(conn, subject)) == last_seen


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("kind", ["volume", "snapshot", "image", "stopped disk", "sandbox", "free sandbox"])
async def test_nothing_is_used_after_it_was_last_witnessed(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, kind: str, is_removed: bool
) -> None:
    """A failed sandbox was told to outside billing as running until its record was removed, for nothing."""
    async with paying(open_one, sats=1_000_000, rates=RATES_OF_KEPT) as platform:
        subject = await keep(platform, backend, kind)
        clock.advance(timedelta(seconds=8))
    last_seen = clock.now()
    lose_everything(backend)
    clock.advance(timedelta(seconds=44))
    async with paying(open_one, rates=RATES_OF_KEPT) as platform:
        clock.advance(timedelta(hours=1))
        if is_removed and subject.startswith("sbx_"):
            await lifetime.destroy(platform.sandboxes, subject, ALICE)
        clock.advance(timedelta(hours=1))
        now = clock.now()
        lines = await platform.store.read(lambda conn: actuals(conn, "alice", subject, now=now))
        told = await platform.store.read(lambda conn: segments_page(conn, owner="alice"))
    assert (sum(one.seconds_us for one in lines), max(one.ended_at for one in lines)) == (
        8_000_000,
        last_seen,
    )
    assert sum(one.seconds_us for one in told if one.subject == subject) == 8_000_000
