"""A start on a database that knows nothing of the disks, or not all: nothing is lost, and it says so."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.artifacts.volumes.use_cases import Wanted as WantedVolume
from sandboxer.backends.guest import Command
from sandboxer.edges.cli.main import run
from sandboxer.kernel.errors import Conflict
from sandboxer.sandboxes.binding import ADOPTION, Finding, Mark, Records, judge
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import creation, inspection, lifetime
from sandboxer.sandboxes.use_cases.access import open_line
from sandboxer.settings import Settings
from sandboxer.store.claim import Installation
from sandboxer.wiring import Platform, open_platform
from tests.support.crash import kill_everything
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR, require_walls, state_folder
from tests.support.sandboxes import OWNER

OURS = Installation("ins_a", 5)
NONE, SOME = Records(is_empty=True, disks=0), Records(is_empty=False, disks=3)


@pytest.mark.parametrize(
    ("known", "mark", "has_disks", "records", "finding"),
    [
        # First start, upgrade, restart.
        (None, None, False, NONE, Finding.BELONGS),
        (None, None, True, SOME, Finding.BELONGS),
        (OURS, Mark("ins_a", 5), True, SOME, Finding.BELONGS),
        (OURS, Mark("ins_a", 4), True, SOME, Finding.BELONGS),
        # An upgrade that was killed between database and pool, and a pool that was too full to be marked.
        (OURS, None, True, SOME, Finding.BELONGS),
        # Nothing there that could be lost.
        (None, Mark("ins_a", 5), False, NONE, Finding.BELONGS),
        (OURS, Mark("ins_b", 5), False, SOME, Finding.BELONGS),
        # A mistyped URL, a deleted file.
        (None, Mark("ins_a", 5), True, NONE, Finding.NEW_DATABASE),
        (None, None, True, NONE, Finding.NEW_DATABASE),
        # A dump from before there were ids; another platform's database.
        (None, Mark("ins_a", 5), True, SOME, Finding.NEW_DATABASE),
        (OURS, Mark("ins_b", 1), True, SOME, Finding.FOREIGN),
        # A disk of the host that is not mounted.
        (OURS, None, False, SOME, Finding.DISKS_GONE),
        (OURS, None, False, NONE, Finding.BELONGS),
        # An older dump.
        (OURS, Mark("ins_a", 6), True, SOME, Finding.OLDER),
    ],
)
def test_a_start_is_refused_only_where_disks_and_database_do_not_belong_together(
    known: Installation | None, mark: Mark | None, has_disks: bool, records: Records, finding: Finding
) -> None:
    assert judge(known, mark, has_disks=has_disks, records=records) is finding


def settings_in(state: Path, database: str = "sandboxer.db") -> Settings:
    return Settings.model_validate(
        {
            "state_dir": state,
            "images_dir": IMAGES_DIR,
            "guest_dir": GUEST_DIR,
            "pool_size_mb": 600,
            "database": f"sqlite:///{state}/{database}",
            "charging": False,
        }
    )


@asynccontextmanager
async def platform_in(state: Path, database: str = "sandboxer.db") -> AsyncIterator[Platform]:
    async with open_platform(settings_in(state, database)) as platform:
        yield platform


async def on_start(platform: Platform) -> dict[str, str]:
    """A sandbox with a file, a snapshot of it and a volume, by kind."""
    wanted = CreateRequest(resources=WantedResources(disk_mb=64, memory_mb=64))
    sandbox = await creation.create(platform.sandboxes, wanted, OWNER)
    async with (
        open_line(platform.sandboxes, sandbox.id, OWNER, activity="processes") as guest,
        await guest.run(Command(argv=("/bin/sh", "-c", "echo precious > /root/file"))) as process,
    ):
        async for _ in process.output():
            pass
    snapshot = await platform.artifacts.snapshots.take(sandbox.id, Wanted(), OWNER)
    volume = await platform.artifacts.volumes.create(
        WantedVolume(name=f"v{sandbox.id[-6:]}", size_mb=16), OWNER
    )
    return {"sandbox": sandbox.id, "snapshot": snapshot.id, "volume": volume.id}


async def is_whole(platform: Platform, made: dict[str, str]) -> bool:
    sandbox = await platform.sandboxes.visible(made["sandbox"], OWNER)
    assert sandbox.state in (State.READY, State.ACTIVE)
    async with (
        open_line(platform.sandboxes, sandbox.id, OWNER, activity="processes") as guest,
        await guest.run(Command(argv=("/bin/cat", "/root/file"))) as process,
    ):
        said = b"".join([getattr(item, "data", b"") async for item in process.output()])
    kept = await platform.artifacts.snapshots.get(made["snapshot"], OWNER)
    volume = await platform.artifacts.volumes.get(made["volume"], OWNER)
    return said == b"precious\n" and (kept.state, volume.state) == ("kept", "ready")


async def cli(*words: str) -> None:
    assert await asyncio.to_thread(run, list(words)) == 0


def in_pool(state: Path) -> set[str]:
    return {name for name in os.listdir(state / "pool") if "_" in name}


async def test_a_start_on_another_database_is_refused_and_the_disks_stay() -> None:
    require_walls()
    with state_folder() as state:
        try:
            async with platform_in(state) as platform:
                made = await on_start(platform)
            with pytest.raises(Conflict) as refused:
                async with platform_in(state, "mistyped.db"):
                    pass
            assert refused.value.facts["reason"] == "installation_mismatch"
            assert "adopt-pool" in str(refused.value.facts["hint"])
            assert in_pool(state) == set(made.values())
            async with platform_in(state) as platform:
                assert await is_whole(platform, made)
                assert await inspection.find_stale(platform.sandboxes, OWNER) == []
            # An installation from before there were ids: its disks are not marked.
            (state / "pool" / ".installation").unlink()
            with pytest.raises(Conflict):
                async with platform_in(state, "another.db"):
                    pass
            async with platform_in(state) as platform:
                assert await is_whole(platform, made)
        finally:
            kill_everything(state)


async def test_an_adopted_pool_keeps_every_disk_apart_until_it_is_reaped() -> None:
    require_walls()
    with state_folder() as state:
        try:
            async with platform_in(state) as platform:
                made = await on_start(platform)
            await cli("adopt-pool", "--state-dir", str(state), "--database", f"sqlite:///{state}/new.db")
            async with platform_in(state, "new.db") as platform:
                held = await inspection.find_stale(platform.sandboxes, OWNER)
                assert {one.unknown.kind.value: one.unknown.id for one in held} == made
                assert in_pool(state) == set(made.values())
                assert not (state / ADOPTION).exists(), "it is for one start"
            # Nothing changes by starting once more; the old database is refused now.
            async with platform_in(state, "new.db") as platform:
                again = await inspection.find_stale(platform.sandboxes, OWNER)
                assert {one.sighting.first_seen for one in again} == {one.sighting.first_seen for one in held}
            with pytest.raises(Conflict):
                async with platform_in(state):
                    pass
            assert in_pool(state) == set(made.values())
            async with platform_in(state, "new.db") as platform:
                removed = await inspection.reap_stale(platform.sandboxes, OWNER)
                assert {one.unknown.id for one in removed} == set(made.values())
                assert await inspection.find_stale(platform.sandboxes, OWNER) == []
            assert in_pool(state) == set()
        finally:
            kill_everything(state)


async def test_an_older_dump_is_noticed_and_what_was_half_made_in_it_is_not_removed() -> None:
    """In the dump the sandbox is still being made; it was used for a while since."""
    require_walls()
    with state_folder() as state:
        try:
            async with platform_in(state) as platform:
                made = await on_start(platform)
            shutil.copy(state / "sandboxer.db", state / "dump")
            with closing(sqlite3.connect(state / "dump")) as conn, conn:
                conn.execute("UPDATE sandboxes SET state = 'provisioning', handle = NULL")
                conn.execute("UPDATE snapshots SET state = 'taking'")
                conn.execute("UPDATE volumes SET state = 'making'")
            for _ in range(2):
                async with platform_in(state) as platform:
                    pass
            shutil.move(state / "dump", state / "sandboxer.db")
            with pytest.raises(Conflict, match="older"):
                async with platform_in(state):
                    pass
            await cli("adopt-pool", "--state-dir", str(state))
            async with platform_in(state) as platform:
                held = await inspection.find_stale(platform.sandboxes, OWNER)
                assert {one.unknown.id for one in held} == set(made.values())
            assert in_pool(state) == set(made.values())
        finally:
            kill_everything(state)


@pytest.mark.slow
async def test_backup_and_restore_in_place_carry_the_installation_over() -> None:
    require_walls()
    with state_folder() as state:
        try:
            async with platform_in(state) as platform:
                made = await on_start(platform)
            await cli("backup", str(state / "b.tar.gz"), "--state-dir", str(state))
            for _ in range(2):
                async with platform_in(state) as platform:
                    later = await on_start(platform)
                    await lifetime.destroy(platform.sandboxes, later.pop("sandbox"), OWNER)
            for name in ("sandboxer.db", "sandboxer.db-wal", "sandboxer.db-shm", "owner.json", "master.key"):
                (state / name).unlink(missing_ok=True)
            await cli("restore", str(state / "b.tar.gz"), "--state-dir", str(state))
            async with platform_in(state) as platform:
                assert await is_whole(platform, made)
                held = {one.unknown.id for one in await inspection.find_stale(platform.sandboxes, OWNER)}
                assert set(later.values()) <= held
                assert not held & set(made.values())
        finally:
            kill_everything(state)
