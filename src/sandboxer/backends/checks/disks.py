"""Checks kept disks (made, copied, restored and dropped) and volumes: disks that outlive sandboxes, written
by one or read by many.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from sandboxer.backends.checks.files import chunks
from sandboxer.backends.checks.suite import Bench, Box, Suite, at_once, expect, refused, until
from sandboxer.backends.contract import Capability, Freezes, Order, Presence, VolumeMount, Wall
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.values import new_id

suite = Suite()
SIZE_MB = 32
PATH = "/srv/data"


@asynccontextmanager
async def kept_copy(bench: Bench, box: Box) -> AsyncIterator[str]:
    """Keeps a copy of the sandbox's disk while inside."""
    disk_id = new_id("snp")
    await bench.backend.take(box.handle, disk_id)
    try:
        yield disk_id
    finally:
        await bench.backend.drop(disk_id)


def copy_of(bench: Bench, disk_id: str) -> AbstractAsyncContextManager[Box]:
    return bench.box(replace(bench.make_order(), origin=disk_id))


async def restored(box: Box, disk_id: str, *, start: bool) -> Box:
    return replace(box, handle=await box.backend.restore(box.handle, box.order, disk_id, start=start))


@suite.check("an agent forks what it has built", needs=Capability.SNAPSHOT)
async def a_copy_has_what_was_there_when_it_was_taken(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("mkdir -p /root/a; echo one > /root/a/one; echo one > /root/b")
        async with kept_copy(bench, box) as disk_id:
            await box.run("echo two > /root/a/one; rm /root/b")
            async with copy_of(bench, disk_id) as copy:
                expect(await copy.text("cat /root/a/one /root/b") == b"one\none\n", "it is not as it was")
                await copy.run("echo three > /root/b")
                expect((await box.run("test -e /root/b")).exit.code == 1, "the copy wrote into its source")
            async with copy_of(bench, disk_id) as again:
                expect(await again.text("cat /root/b") == b"one\n", "a copy wrote into what is kept")


@suite.check("a fork of a fork fills what others were promised", needs=Capability.SNAPSHOT)
async def a_copy_does_not_hold_more_than_its_disk(bench: Bench) -> None:
    if Wall.DISK not in (await bench.backend.fingerprint()).walls:
        return
    async with bench.box() as box:
        await (await box.guest()).files.write("/root/large", chunks(*[bytes(2**20)] * 24))
        async with kept_copy(bench, box) as disk_id, bench.box(bench.sized_order(disk_mb=16)) as other:
            await bench.refuse_order(replace(bench.sized_order(disk_mb=16), origin=disk_id), InvalidRequest)
            await refused(restored(other, disk_id, start=False), InvalidRequest)


@suite.check("clones must not pass for each other", needs=Capability.SNAPSHOT)
async def copies_are_new_machines(bench: Bench) -> None:
    async with (
        bench.box() as box,
        kept_copy(bench, box) as disk_id,
        copy_of(bench, disk_id) as one,
        copy_of(bench, disk_id) as other,
    ):
        ids = {await each.text("cat /etc/machine-id") for each in (box, one, other)}
        expect(len(ids) == 3, f"machine ids are {ids}")


@suite.check("what is kept outlives its source", needs=Capability.SNAPSHOT)
async def a_kept_disk_outlives_the_sandbox_and_a_copy_outlives_both(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        async with kept_copy(bench, box) as disk_id:
            await bench.backend.teardown(box.order.sandbox_id)
            await bench.backend.check_kept(disk_id)
            async with copy_of(bench, disk_id) as copy:
                await bench.backend.drop(disk_id)
                expect(await copy.text("cat /root/kept") == b"kept\n", "the copy lost its content")


@suite.check("an agent travels back in time", needs=Capability.SNAPSHOT)
async def restoring_brings_the_disk_back_and_ends_processes(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo old > /root/file")
        async with kept_copy(bench, box) as disk_id:
            await box.run("echo new > /root/file; echo more > /root/more")
            again = await restored(box, disk_id, start=True)
            expect(await again.text("cat /root/file") == b"old\n", "the file is not the old one")
            expect((await again.run("test -e /root/more")).exit.code == 1, "what came later is still there")
            expect(not await again.running(), "something still runs")
            # A second time, from the same kept disk.
            await again.run("rm /root/file")
            again = await restored(again, disk_id, start=True)
            expect(await again.text("cat /root/file") == b"old\n", "lost")


@suite.check("what does not run stays so", needs=Capability.SNAPSHOT)
async def a_stopped_sandbox_is_taken_and_restored_without_running(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo old > /root/file")
        await bench.backend.stop(box.handle)
        async with kept_copy(bench, box) as disk_id:
            again = await box.resumed()
            await again.run("rm /root/file")
            await bench.backend.stop(again.handle)
            again = await restored(again, disk_id, start=False)
            await again.demand(Presence.STOPPED)
            again = await again.resumed()
            expect(await again.text("cat /root/file") == b"old\n", "the disk is not the old one")


@suite.check("a frozen sandbox can be kept as it is", needs=Capability.SNAPSHOT)
async def a_frozen_sandbox_is_taken_and_stays_frozen(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        if isinstance(bench.backend, Freezes):
            await bench.backend.freeze(box.handle)
        async with kept_copy(bench, box) as disk_id:
            seen = await bench.backend.recover(box.handle)
            expect(seen.presence is not Presence.STOPPED, f"it is {seen.presence}")
            async with copy_of(bench, disk_id) as copy:
                expect(await copy.text("cat /root/kept") == b"kept\n", "the copy lacks a file")


@suite.check("reconcile compares it with the records", needs=Capability.SNAPSHOT)
async def what_is_kept_is_listed_sized_and_dropped(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("seq 1 200000 > /root/numbers")
        async with kept_copy(bench, box) as disk_id:
            expect(disk_id in await bench.backend.kept(), "it is not listed")
            sizes = await bench.backend.sizes(disk_id)
            expect(sizes.referenced_bytes >= 1_000_000, f"sizes are {sizes}")
            await bench.backend.drop(disk_id)
            await bench.backend.drop(disk_id)
            expect(disk_id not in await bench.backend.kept(), "a dropped one is listed")
            await refused(bench.backend.check_kept(disk_id), NotFound)
            await bench.refuse_order(replace(bench.make_order(), origin=disk_id), NotFound)
            await refused(restored(box, disk_id, start=True), NotFound)
            expect(await box.text("echo hi") == b"hi\n", "a refused restore touched the sandbox")


@suite.check("a hundred agents fork at once", needs=Capability.SNAPSHOT)
async def many_copies_can_be_made_at_once(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        async with kept_copy(bench, box) as disk_id:

            async def live() -> None:
                async with copy_of(bench, disk_id) as copy:
                    expect(await copy.text("cat /root/kept") == b"kept\n", "a copy lacks a file")

            await at_once(live() for _ in range(10))

    async def nothing_is_left() -> bool:
        return disk_id not in await bench.backend.kept()

    await until(nothing_is_left, "the kept disk is still there")


@asynccontextmanager
async def volume(bench: Bench, *, origin: str | None = None) -> AsyncIterator[str]:
    volume_id = new_id("vol")
    await bench.backend.make_volume(volume_id, size_mb=SIZE_MB, origin=origin)
    try:
        yield volume_id
    finally:
        await bench.backend.drop_volume(volume_id)


def wants(bench: Bench, volume_id: str, *, read_only: bool = False, path: str = PATH) -> Order:
    mount = VolumeMount(volume_id=volume_id, path=path, is_read_only=read_only)
    return replace(bench.make_order(), volumes=(mount,))


def having(bench: Bench, volume_id: str, *, read_only: bool = False) -> AbstractAsyncContextManager[Box]:
    return bench.box(wants(bench, volume_id, read_only=read_only))


@asynccontextmanager
async def taken(bench: Bench, volume_id: str) -> AsyncIterator[str]:
    """Keeps a copy of a volume while inside."""
    disk_id = new_id("snp")
    await bench.backend.take_volume(volume_id, disk_id)
    try:
        yield disk_id
    finally:
        await bench.backend.drop(disk_id)


async def demand_size(bench: Bench, volume_id: str, size_mb: int) -> None:
    usage = await bench.backend.volume_usage(volume_id)
    expect(usage.limit_bytes in (0, size_mb << 20), f"its size is {usage}")


@suite.check("data outlives the machine it was written on", needs=Capability.VOLUMES)
async def a_volume_outlives_its_sandbox(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        async with having(bench, volume_id) as box:
            await box.run(f"mkdir {PATH}/a; echo one > {PATH}/a/one")
        async with having(bench, volume_id) as again:
            expect(await again.text(f"cat {PATH}/a/one") == b"one\n", "what was written is gone")


@suite.check("a stop is not a detach", needs=Capability.VOLUMES)
async def a_volume_is_there_again_after_a_stop(bench: Bench) -> None:
    async with volume(bench) as volume_id, having(bench, volume_id) as box:
        await box.run(f"echo one > {PATH}/one")
        await bench.backend.stop(box.handle)
        again = await box.resumed()
        expect(await again.text(f"cat {PATH}/one") == b"one\n", "it is not there after the resume")


@suite.check("two writers would ruin it", needs=Capability.VOLUMES)
async def one_writes_or_many_read(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        async with having(bench, volume_id) as box:
            await box.run(f"echo one > {PATH}/one")
            for read_only in (False, True):
                await bench.refuse_order(wants(bench, volume_id, read_only=read_only), Conflict)
        async with (
            having(bench, volume_id, read_only=True) as first,
            having(bench, volume_id, read_only=True) as second,
        ):
            for reader in (first, second):
                expect(await reader.text(f"cat {PATH}/one") == b"one\n", "a reader does not see it")
                ran = await reader.run(f"echo two > {PATH}/one")
                expect(ran.exit.code != 0, "a reader wrote into it")
            expect(await second.text(f"cat {PATH}/one") == b"one\n", "it was changed")
            await bench.refuse_order(wants(bench, volume_id), Conflict)


@suite.check("a copy of data is a copy", needs=Capability.VOLUMES)
async def a_volume_is_copied_by_way_of_a_kept_disk(bench: Bench) -> None:
    async with volume(bench) as volume_id, having(bench, volume_id) as box:
        await box.run(f"echo one > {PATH}/one")
        async with taken(bench, volume_id) as disk_id:
            await box.run(f"echo two > {PATH}/one")
            async with volume(bench, origin=disk_id) as copy_id, having(bench, copy_id) as copy:
                expect(await copy.text(f"cat {PATH}/one") == b"one\n", "the copy is not as it was")
                await copy.run(f"echo three > {PATH}/one")
            expect(await box.text(f"cat {PATH}/one") == b"two\n", "the copy wrote into its source")
            # It has no system to start.
            await bench.refuse_order(replace(bench.make_order(), origin=disk_id), InvalidRequest)


@suite.check("a mistake can be taken back", needs=Capability.VOLUMES)
async def a_volume_is_put_back_to_a_kept_disk_while_nothing_runs_on_it(bench: Bench) -> None:
    async with volume(bench) as volume_id, having(bench, volume_id) as box:
        await box.run(f"echo one > {PATH}/one")
        async with taken(bench, volume_id) as disk_id:
            await box.run(f"echo two > {PATH}/one; echo more > {PATH}/more")
            await refused(bench.backend.restore_volume(volume_id, disk_id), Conflict)
            await bench.backend.stop(box.handle)
            await bench.backend.restore_volume(volume_id, disk_id)
            await demand_size(bench, volume_id, SIZE_MB)
            again = await box.resumed()
            expect(await again.text(f"cat {PATH}/one") == b"one\n", "it was not put back")
            expect((await again.run(f"cat {PATH}/more")).exit.code != 0, "what came later is still there")
            expect((await again.run(f"echo two > {PATH}/one")).exit.code == 0, "it cannot be written to")
        await refused(bench.backend.restore_volume(volume_id, disk_id), NotFound)


@suite.check("a tenant gets what it pays for", needs=Capability.VOLUMES)
async def a_volume_has_a_size_that_can_be_changed(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        await demand_size(bench, volume_id, SIZE_MB)
        await bench.backend.resize_volume(volume_id, size_mb=SIZE_MB * 2)
        await demand_size(bench, volume_id, SIZE_MB * 2)


@suite.check("reconcile compares it with the records", needs=Capability.VOLUMES)
async def volumes_are_listed_and_dropped_but_not_while_attached(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        expect(volume_id in await bench.backend.volumes(), "it is not listed")
        async with having(bench, volume_id):
            await refused(bench.backend.drop_volume(volume_id), Conflict)
        await bench.backend.drop_volume(volume_id)
        await bench.backend.drop_volume(volume_id)
        expect(volume_id not in await bench.backend.volumes(), "a dropped one is listed")
        await bench.refuse_order(wants(bench, volume_id), NotFound)


@suite.check("what makes a sandbox one is its own", needs=Capability.VOLUMES)
async def a_volume_is_not_laid_over_what_is_reserved(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        for path in ("/", "/proc", "/dev/shm", "/sys", "/etc/ssh", "/run", "/usr", "data", "/a/../etc"):
            await bench.refuse_order(wants(bench, volume_id, path=path), InvalidRequest)
