"""A pool that begins small, grows ahead of its writers, gives space back, and is promised more than once."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.backends.contract import Presence
from sandboxer.backends.namespaces import (
    NamespacesBackend,
    NamespacesSettings,
    btrfs,
    growth,
    open_backend,
)
from sandboxer.backends.namespaces import pool as pools
from sandboxer.backends.namespaces.growth import SLACK_FOR_S, Growth, Room
from sandboxer.backends.namespaces.metadata import MetadataGuard, greediest
from sandboxer.backends.namespaces.pool import FIRST_MB, MB, open_pool
from sandboxer.backends.namespaces.settings import Overcommit
from sandboxer.kernel.errors import BackendLost, InvalidRequest, NoCapacity
from sandboxer.kernel.tasks import in_thread
from sandboxer.kernel.values import new_id
from tests.support.walls import Sandbox, order_for

ON_THE_LOOP = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def grown(
    settings: NamespacesSettings, most_mb: int, *, disk: float = 4.0
) -> AsyncIterator[NamespacesBackend]:
    state = Path(tempfile.mkdtemp(prefix="walls-growth-", dir="/var/tmp"))
    own = replace(settings, state_dir=state, pool_size_mb=most_mb, overcommit=Overcommit(disk=disk))
    try:
        async with open_backend(own) as backend:
            try:
                yield backend
            finally:
                for sandbox_id in await backend.inventory():
                    await backend.teardown(sandbox_id)
    finally:
        await asyncio.to_thread(subprocess.run, ["umount", str(own.pool_dir)], check=False)
        shutil.rmtree(state)


async def make(backend: NamespacesBackend, disk_mb: int) -> Sandbox:
    order = order_for(disk_mb=disk_mb)
    return Sandbox(backend, await backend.provision(order), order)


def taken_mb(backend: NamespacesBackend) -> tuple[int, int]:
    """What the pool's file takes of the disk, and what it says its length is."""
    seen = backend.dependencies.settings.pool_file.stat()
    return seen.st_blocks * 512 // MB, seen.st_size // MB


def room(**of: int) -> Room:
    usual = {"size": 1024, "used": 100, "most": 8192, "unused_promises": 0, "unallocated": 900, "idle": 0}
    return Room(**{**usual, "for_metadata": 1000, **of})


def test_nobody_is_promised_much_so_nothing_more_is_taken() -> None:
    assert growth.larger(room()) is None
    assert growth.larger(room(unused_promises=600)) is None
    assert growth.rest_s(room()) == growth.RARELY_S


def test_it_is_looked_at_the_sooner_the_less_is_left_for_the_quickest_writer() -> None:
    rests = [growth.rest_s(room(size=4096, used=used, unused_promises=50_000)) for used in (96, 2048, 4000)]
    assert rests == [pytest.approx(4000 / 1024 / 4), 0.5, growth.SOON_S]


def test_it_grows_by_whole_steps_before_writers_come_to_its_end() -> None:
    assert growth.larger(room(unused_promises=50_000)) == 3 * 1024
    assert growth.larger(room(used=900)) == 2048
    assert growth.rest_s(room(used=700, unused_promises=50_000)) == growth.SOON_S


def test_a_promise_is_urgent_only_where_the_pool_must_follow_it() -> None:
    assert growth.is_urgent(room(unused_promises=50_000), growth.SOON_S)
    assert growth.is_urgent(room(unused_promises=600), growth.RARELY_S)
    # A look is due in a moment anyway, or there is far more than was promised.
    assert not growth.is_urgent(room(unused_promises=600), growth.SOON_S)
    assert not growth.is_urgent(room(size=8000, unallocated=7000, unused_promises=600), growth.RARELY_S)


def test_it_grows_no_further_than_it_may() -> None:
    assert growth.larger(room(size=7000, used=6900, unused_promises=50_000)) == 8192
    assert growth.larger(room(size=8192, used=8180, unused_promises=50_000)) is None
    # The host's disk has filled meanwhile, or goes up and down a little.
    assert growth.larger(room(size=4096, used=4000, most=4096)) is None
    assert growth.larger(room(size=4096, used=4000, most=4100)) is None
    assert growth.rest_s(room(size=4096, used=4000, most=4100)) == growth.RARELY_S


def test_it_grows_where_data_has_taken_all_that_metadata_could_have() -> None:
    assert growth.larger(room(unallocated=100)) == 1280


def test_data_is_gathered_only_where_metadata_has_nothing_and_the_pool_cannot_grow() -> None:
    tight = room(size=8192, used=900, unallocated=10, idle=7000)
    assert growth.is_scattered(tight)
    assert growth.rest_s(tight) == growth.SOON_S
    assert not growth.is_scattered(replace(tight, idle=100))
    assert not growth.is_scattered(replace(tight, unallocated=300))
    assert not growth.is_scattered(replace(tight, most=9000))


def test_it_shrinks_only_where_most_of_it_is_not_needed() -> None:
    assert growth.smaller(room(size=6144)) is None
    assert growth.smaller(room(size=20_000, used=9000)) is None
    assert growth.smaller(room(size=20_000, used=900)) == 3072


@ON_THE_LOOP
async def test_a_gigabyte_is_taken_first_and_writers_never_come_to_the_end(
    settings: NamespacesSettings,
) -> None:
    async with grown(settings, 6000) as backend:
        assert taken_mb(backend) == (FIRST_MB, FIRST_MB)
        box = await make(backend, 4000)
        ran = await box.sh(
            "head -c 2500000000 /dev/zero > /root/zeros && sync && wc -c < /root/zeros", timeout_s=300
        )
        assert (ran.stdout, ran.exit.code) == ("2500000000\n", 0)
        taken, length = taken_mb(backend)
        assert taken >= length >= 2500
        assert backend.dependencies.pool.size_mb == length


@ON_THE_LOOP
@pytest.mark.slow
async def test_what_nobody_needs_goes_back_and_what_is_kept_stays_whole(settings: NamespacesSettings) -> None:
    async with grown(settings, 12_000) as backend:
        kept, large = await make(backend, 2000), await make(backend, 9000)
        # In turn, so that what stays lies far out as well.
        for n in range(4):
            await large.sh(f"head -c 1800000000 /dev/zero > /root/{n}; sync", timeout_s=300)
            await kept.sh(f"head -c 20000000 /dev/urandom > /root/{n}; sync", timeout_s=300)
        before = (await kept.sh("cd /root && cat 0 1 2 3 | sha256sum")).stdout
        assert taken_mb(backend)[0] > 7000
        await backend.teardown(large.id)
        watched = Growth(backend.dependencies)
        deadline, now = time.monotonic() + 120, 0.0
        while taken_mb(backend)[0] > 4096:
            assert time.monotonic() < deadline, watched._room()
            now += SLACK_FOR_S
            await in_thread(backend.dependencies.threads, watched.look, now)
        taken, length = taken_mb(backend)
        assert taken == length == backend.dependencies.pool.size_mb
        assert (await kept.sh("cd /root && cat 0 1 2 3 | sha256sum")).stdout == before
        # And out again.
        ran = await kept.sh("head -c 1500000000 /dev/zero > /root/z; sync; wc -c < /root/z", timeout_s=300)
        assert ran.stdout == "1500000000\n"


@ON_THE_LOOP
async def test_a_pool_promised_more_than_once_fails_its_writers_and_nobody_else(
    settings: NamespacesSettings,
) -> None:
    async with grown(settings, 1500) as backend:
        greedy, neighbour = await make(backend, 1200), await make(backend, 1200)
        await neighbour.sh("echo kept > /root/kept; sync")
        # In steps that reach the disk: what is only in memory counts for more than it will take.
        await greedy.sh(
            "for n in $(seq 110); do head -c 10000000 /dev/zero >> /root/a && sync || break; done",
            timeout_s=300,
        )
        written = (await greedy.sh("wc -c < /root/a")).stdout
        assert int(written) > 1_000_000_000
        await in_thread(backend.dependencies.threads, Growth(backend.dependencies).look, 0.0)
        # Long before the end nobody new is let in.
        with pytest.raises(NoCapacity, match="storage pool"):
            await make(backend, 100)
        full = await neighbour.sh("head -c 1000000000 /dev/urandom > /root/b; echo $?", timeout_s=300)
        assert "No space left" in full.stderr or "quota" in full.stderr.lower()
        # Nobody's disk is read-only, and everything that is there can be read, run and removed.
        assert (await greedy.sh("wc -c < /root/a")).stdout == written
        assert (await neighbour.sh("rm /root/b && sync && cat /root/kept")).stdout == "kept\n"
        await backend.teardown(greedy.id)
        deadline = time.monotonic() + 60
        while (ran := await neighbour.sh("head -c 300000000 /dev/zero > /root/b && sync")).exit.code:
            assert time.monotonic() < deadline, ran.stderr


@ON_THE_LOOP
async def test_a_pool_beyond_its_limit_can_be_emptied(settings: NamespacesSettings) -> None:
    """The entry of a disk counts towards the limit of all: at the limit nothing could be removed."""
    async with grown(settings, 1500) as backend:
        pool, full, later = backend.dependencies.pool, await make(backend, 500), await make(backend, 500)
        await full.sh("head -c 200000000 /dev/zero > /root/a; sync")
        # And at the limit another one can be set, by this start or by the next.
        for limit_mb in (50, 100):
            await asyncio.to_thread(pool.limit_all, limit_mb, is_first=False)
        again = await asyncio.to_thread(open_pool, backend.dependencies.settings)
        await asyncio.to_thread(again.limit_all, 100, is_first=True)
        again.close()
        await backend.teardown(full.id)
        assert not pool.has_disk(full.id)
        # The limit holds again.
        ran = await later.sh("head -c 200000000 /dev/zero > /root/a; sync")
        assert "quota" in ran.stderr.lower()


@ON_THE_LOOP
async def test_a_disk_that_goes_while_a_start_gathers_all_keeps_nobody_from_starting(
    settings: NamespacesSettings,
) -> None:
    """The kernel removes the groups of removed disks when it gets to it; a killed server has left many."""
    async with grown(settings, 1500) as backend:
        pool_fd = os.open(backend.dependencies.pool.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            gone = btrfs.subvolume_id(pool_fd) + 10_000
            await asyncio.to_thread(btrfs.gather_all, pool_fd, [gone])
        finally:
            os.close(pool_fd)


@ON_THE_LOOP
async def test_a_full_disk_can_be_enlarged(settings: NamespacesSettings) -> None:
    """Asked for through the disk itself, the change was charged to it, and it had nothing left."""
    async with grown(settings, 1500) as backend:
        pool, box = backend.dependencies.pool, await make(backend, 100)
        for size in (1_000_000, 10_000):
            await box.sh(f"while head -c {size} /dev/zero >> /root/a && sync; do :; done")
        # In the middle of what a change of the disk's own tree would take.
        await asyncio.to_thread(pool.set_limit, box.id, pool.usage(box.id).used_bytes // MB)
        await asyncio.to_thread(pool.set_limit, box.id, 200)
        assert (await box.sh("head -c 50000000 /dev/zero >> /root/a && sync")).exit.code == 0


@ON_THE_LOOP
async def test_what_lies_over_an_unmounted_pool_is_not_taken_for_it(settings: NamespacesSettings) -> None:
    async with grown(settings, 1500) as backend:
        path, before = str(backend.dependencies.pool.path), backend.dependencies.host.disk_mb
        await asyncio.to_thread(subprocess.run, ["mount", "-t", "tmpfs", "none", path], check=True)
        try:
            watched = Growth(backend.dependencies)
            for look in (watched.look, watched.guard):
                with pytest.raises(FileNotFoundError, match="not mounted"):
                    await in_thread(backend.dependencies.threads, look, 0.0)
        finally:
            await asyncio.to_thread(subprocess.run, ["umount", path], check=True)
        assert backend.dependencies.host.disk_mb == before


@ON_THE_LOOP
async def test_a_shrink_that_the_file_system_refuses_cuts_nothing_off(settings: NamespacesSettings) -> None:
    """While another change of the file system is under way, or was left half done, it is told by a positive
    number, which looked like success: the file was cut, and whatever lay beyond was lost.
    """
    async with grown(settings, 3072) as backend:
        pool, file = backend.dependencies.pool, backend.dependencies.settings.pool_file
        await asyncio.to_thread(growth.resize, pool, file, 3072)
        box = await make(backend, 2000)
        fill = "head -c 900000000 /dev/urandom > /root/a; sync; sha256sum /root/a"
        before = (await box.sh(fill, timeout_s=300)).stdout
        await asyncio.to_thread(pause_a_balance, str(pool.path))
        try:
            with pytest.raises(OSError, match="under way"):
                await asyncio.to_thread(growth.resize, pool, file, 2048)
        finally:
            cancelled = ["btrfs", "balance", "cancel", str(pool.path)]
            await asyncio.to_thread(subprocess.run, cancelled, check=True, capture_output=True)
        assert taken_mb(backend)[1] == pool.size_mb == 3072
        # From the disk, not from memory.
        await asyncio.to_thread(Path("/proc/sys/vm/drop_caches").write_text, "1")
        assert (await box.sh("sha256sum /root/a", timeout_s=300)).stdout == before
        await asyncio.to_thread(growth.resize, pool, file, 2048)
        assert taken_mb(backend)[1] == pool.size_mb == 2048
        await asyncio.to_thread(Path("/proc/sys/vm/drop_caches").write_text, "1")
        assert (await box.sh("sha256sum /root/a", timeout_s=300)).stdout == before


def pause_a_balance(path: str) -> None:
    for _ in range(20):
        moving = subprocess.Popen(
            ["btrfs", "balance", "start", "-d", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while moving.poll() is None:
            if subprocess.run(["btrfs", "balance", "pause", path], capture_output=True).returncode == 0:
                moving.wait()
                return
    raise AssertionError("each balance ended before it could be paused")


@ON_THE_LOOP
async def test_what_a_killed_server_had_allocated_is_used_first(
    settings: NamespacesSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with grown(settings, 6000) as backend:
        file = backend.dependencies.settings.pool_file
        await asyncio.to_thread(subprocess.run, ["fallocate", "-l", "3G", str(file)], check=True)
        # Meanwhile the host's disk has become full.
        monkeypatch.setattr(pools, "_free_mb", lambda folder: 0)
        backend.dependencies.promised = backend.dependencies.promised.with_disk(4000)
        await in_thread(backend.dependencies.threads, Growth(backend.dependencies).look, 0.0)
        backend.dependencies.promised = backend.dependencies.promised.with_disk(-4000)
        assert backend.dependencies.pool.size_mb == 3072


@ON_THE_LOOP
async def test_space_goes_back_step_by_step_and_writers_come_first(settings: NamespacesSettings) -> None:
    """In one go, whoever wrote more than what is kept ahead met the end of a pool that could have grown."""
    async with grown(settings, 9000) as backend:
        dependencies = backend.dependencies
        await asyncio.to_thread(growth.resize, dependencies.pool, dependencies.settings.pool_file, 8192)
        watched, sizes = Growth(dependencies), []
        for now in (0.0, SLACK_FOR_S, SLACK_FOR_S + 1, SLACK_FOR_S + 2):
            await in_thread(dependencies.threads, watched.look, now)
            sizes.append(dependencies.pool.size_mb)
        assert sizes == [8192, 7168, 6144, 5120]
        box = await make(backend, 6000)
        ran = await box.sh("head -c 3000000000 /dev/zero > /root/z && sync && echo done", timeout_s=300)
        assert ran.stdout == "done\n", ran.stderr
        await in_thread(dependencies.threads, watched.look, SLACK_FOR_S + 3)
        assert dependencies.pool.size_mb >= 5120


PINNED = """
import os
os.makedirs("/root/d"), os.makedirs("/root/m")
blob = os.urandom(1 << 20)
def until_full(count, make):
    for n in range(count):
        try:
            make(n)
        except OSError as error:
            return print(n, error.strerror)
def data(n):
    with open(f"/root/d/{n}", "wb") as file:
        file.write(blob)
def metadata(n):
    os.symlink("x" * 3900, f"/root/m/{n}")
    if not n % 8000:
        os.sync()
until_full(1150, data)
os.sync()
for n in range(1150):
    if n % 40 and os.path.exists(f"/root/d/{n}"):
        os.unlink(f"/root/d/{n}")
os.sync()
until_full(90000, metadata)
"""


@ON_THE_LOOP
@pytest.mark.slow
async def test_little_data_spread_far_keeps_nobody_from_making_files(settings: NamespacesSettings) -> None:
    """A megabyte in each chunk keeps all chunks data's; a tenth of a disk's worth of metadata then stopped
    everybody.
    """
    async with grown(settings, 1500) as backend:
        evil, neighbour = await make(backend, 1200), await make(backend, 100)
        with suppress(BackendLost):
            # It is ended where it is quicker than data can be moved.
            await evil.run("python3", "-c", PINNED, timeout_s=600)
        made = await neighbour.sh(
            "for n in $(seq 200); do echo x > /root/$n || exit 1; done; sync; echo done"
        )
        assert made.stdout == "done\n", made.stderr


def test_a_pool_is_tight_only_where_it_cannot_grow() -> None:
    full = room(size=8192, for_metadata=150)
    assert (full.is_tight, full.is_out) == (True, False)
    assert replace(full, for_metadata=100).is_out
    assert growth.rest_s(full) == growth.SOON_S
    assert not replace(full, for_metadata=300).is_tight
    assert not replace(full, most=9000).is_tight


def test_who_grew_most_is_ended_and_who_did_not_stays() -> None:
    before = {"a": 10 * MB, "b": 500 * MB, "c": 0, "d": 0}
    assert greediest(before, {"a": 40 * MB, "b": 500 * MB, "c": 30 * MB, "d": 5 * MB, "new": 90 * MB}) == [
        "a",
        "c",
    ]
    assert greediest(before, {"a": 10 * MB + 5000, "b": 400 * MB}) == []


SMALL_FILES = """
import os
os.makedirs("/root/m")
for n in range(200000):
    try:
        os.symlink("x" * 3900, f"/root/m/{n}")
    except OSError as error:
        print(n, error.strerror)
        break
    if not n % 8000:
        os.sync()
os.sync()
"""
# Each leaf of the tree is written anew, since the copy holds the old one.
EVERY_FOURTH = """
import os
for n in range(0, 200000, 4):
    if os.path.lexists(f"/root/m/{n}"):
        os.unlink(f"/root/m/{n}")
    if not n % 8000:
        os.sync()
"""


@ON_THE_LOOP
@pytest.mark.slow
async def test_removing_files_of_a_kept_disk_makes_no_pool_read_only(settings: NamespacesSettings) -> None:
    """Removing is limited by nobody, and with a copy each removal writes metadata: it took all that there
    was, the pool turned read-only for everybody, and no server could be started on it.
    """
    async with grown(settings, 800) as backend:
        evil, neighbour = await make(backend, 520), await make(backend, 50)
        await evil.run("python3", "-c", SMALL_FILES, timeout_s=600)
        with suppress(NoCapacity):
            await backend.take(evil.handle, new_id("snp"))
        with suppress(BackendLost):
            await evil.run("python3", "-c", EVERY_FOURTH, timeout_s=600)
        pool = backend.dependencies.pool
        assert pool.space().for_metadata > 4
        for disk_id in await backend.kept():
            await backend.drop(disk_id)
        await backend.teardown(evil.id)
        deadline = time.monotonic() + 60
        while (ran := await neighbour.sh("head -c 30000000 /dev/zero > /root/b && sync")).exit.code:
            assert time.monotonic() < deadline, ran.stderr


@ON_THE_LOOP
async def test_a_pool_is_opened_without_a_change_of_it(settings: NamespacesSettings) -> None:
    """One that has not a block left takes none, and no server could be started to enlarge it."""
    async with grown(settings, 600) as backend:
        own = backend.dependencies.settings
        before = own.pool_dir.stat().st_ctime_ns
        (await asyncio.to_thread(open_pool, own)).close()
        assert own.pool_dir.stat().st_ctime_ns == before


@ON_THE_LOOP
async def test_a_promise_beyond_all_overcommit_is_refused(settings: NamespacesSettings) -> None:
    async with grown(settings, 1500, disk=1.0) as backend:
        await make(backend, 1200)
        with pytest.raises(NoCapacity, match="promised in all"):
            await make(backend, 1200)


@ON_THE_LOOP
async def test_who_is_ended_for_the_last_of_the_pool_is_told_so(settings: NamespacesSettings) -> None:
    async with grown(settings, 800) as backend:
        evil, neighbour = await make(backend, 100), await make(backend, 100)
        guard = MetadataGuard(backend.dependencies)
        await asyncio.to_thread(guard.look, is_tight=True, is_out=False)
        assert (await evil.sh("head -c 20000000 /dev/urandom > /root/a && sync")).exit.code == 0
        await asyncio.to_thread(guard.look, is_tight=True, is_out=True)
        deadline = time.monotonic() + 30
        while (seen := await backend.recover(evil.handle)).presence is Presence.RUNNING:
            assert time.monotonic() < deadline
        assert seen.reason == "pool_metadata"
        assert (await backend.recover(neighbour.handle)).presence is Presence.RUNNING


@ON_THE_LOOP
async def test_a_small_disk_does_not_hold_a_large_image_that_somebody_brought(
    settings: NamespacesSettings,
) -> None:
    """It was kept for the price of the small disk, once the image was dropped."""

    def fill(root: int) -> None:
        for name in ("dev", "etc", "proc", "root", "run", "sys", "tmp"):
            os.mkdir(name, dir_fd=root)
        file = os.open("large", os.O_WRONLY | os.O_CREAT, dir_fd=root)
        for _ in range(24):
            os.write(file, os.urandom(MB))
        os.close(file)

    async with grown(settings, 800) as backend:
        image = new_id("img")
        await backend.fill_kept(image, fill, limit_mb=64)
        with pytest.raises(InvalidRequest, match="holds"):
            await backend.provision(replace(order_for(disk_mb=16), origin=image))
        order = replace(order_for(disk_mb=32), origin=image)
        await backend.provision(order)
        await backend.drop(image)
