"""Checks of volumes: disks that outlive sandboxes, written by one or read by many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandboxer.backends.checks.suite import Bench, Box, Suite, expect, raises
from sandboxer.backends.contract import Capability, Order, Snapshots, Stops, VolumeMount, Volumes
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.ids import new_id

suite = Suite()
SIZE_MB = 32
PATH = "/srv/data"


@asynccontextmanager
async def volume(bench: Bench, *, origin: str | None = None) -> AsyncIterator[str]:
    backend, volume_id = bench.backend, new_id("vol")
    assert isinstance(backend, Volumes)
    await backend.make_volume(volume_id, size_mb=SIZE_MB, origin=origin)
    try:
        yield volume_id
    finally:
        await backend.drop_volume(volume_id)


def wants(bench: Bench, volume_id: str, *, read_only: bool = False, path: str = PATH) -> Order:
    mount = VolumeMount(volume_id=volume_id, path=path, is_read_only=read_only)
    return replace(bench.make_order(), volumes=(mount,))


@asynccontextmanager
async def having(bench: Bench, volume_id: str, *, read_only: bool = False) -> AsyncIterator[Box]:
    order = wants(bench, volume_id, read_only=read_only)
    handle = await bench.backend.provision(order)
    try:
        yield Box(bench.backend, order, handle)
    finally:
        await bench.backend.teardown(order.sandbox_id)


async def text(box: Box, script: str) -> bytes:
    return (await box.run(script)).stdout


@suite.check("data outlives the machine it was written on", needs=Capability.VOLUMES)
async def a_volume_outlives_its_sandbox(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        async with having(bench, volume_id) as box:
            await box.run(f"mkdir {PATH}/a; echo one > {PATH}/a/one")
        async with having(bench, volume_id) as again:
            expect(await text(again, f"cat {PATH}/a/one") == b"one\n", "what was written is gone")


@suite.check("a stop is not a detach", needs=Capability.VOLUMES)
async def a_volume_is_there_again_after_a_stop(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Stops)
    async with volume(bench) as volume_id, having(bench, volume_id) as box:
        await box.run(f"echo one > {PATH}/one")
        await backend.stop(box.handle)
        handle = await backend.resume(box.handle, box.order)
        again = Box(bench.backend, box.order, handle)
        expect(await text(again, f"cat {PATH}/one") == b"one\n", "it is not there after the resume")


@suite.check("two writers would ruin it", needs=Capability.VOLUMES)
async def one_writes_or_many_read(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        async with having(bench, volume_id) as box:
            await box.run(f"echo one > {PATH}/one")
            for read_only in (False, True):
                async with raises(Conflict):
                    await bench.backend.provision(wants(bench, volume_id, read_only=read_only))
        async with (
            having(bench, volume_id, read_only=True) as first,
            having(bench, volume_id, read_only=True) as second,
        ):
            for reader in (first, second):
                expect(await text(reader, f"cat {PATH}/one") == b"one\n", "a reader does not see it")
                ran = await reader.run(f"echo two > {PATH}/one")
                expect(ran.exit.code != 0, "a reader wrote into it")
            expect(await text(second, f"cat {PATH}/one") == b"one\n", "it was changed")
            async with raises(Conflict):
                await bench.backend.provision(wants(bench, volume_id))


@suite.check("a copy of data is a copy", needs=Capability.VOLUMES)
async def a_volume_is_copied_by_way_of_a_kept_disk(bench: Bench) -> None:
    backend, disk_id = bench.backend, new_id("snp")
    assert isinstance(backend, Volumes)
    assert isinstance(backend, Snapshots)
    async with volume(bench) as volume_id, having(bench, volume_id) as box:
        await box.run(f"echo one > {PATH}/one")
        await backend.take_volume(volume_id, disk_id)
        try:
            await box.run(f"echo two > {PATH}/one")
            async with volume(bench, origin=disk_id) as copy_id, having(bench, copy_id) as copy:
                expect(await text(copy, f"cat {PATH}/one") == b"one\n", "the copy is not as it was")
                await copy.run(f"echo three > {PATH}/one")
            expect(await text(box, f"cat {PATH}/one") == b"two\n", "the copy wrote into its source")
            async with raises(InvalidRequest):
                # It has no system to start.
                await bench.backend.provision(replace(bench.make_order(), origin=disk_id))
        finally:
            await backend.drop(disk_id)


@suite.check("a mistake can be taken back", needs=Capability.VOLUMES)
async def a_volume_is_put_back_to_a_kept_disk_while_nothing_runs_on_it(bench: Bench) -> None:
    backend, disk_id = bench.backend, new_id("snp")
    assert isinstance(backend, Volumes)
    assert isinstance(backend, Snapshots)
    assert isinstance(backend, Stops)
    async with volume(bench) as volume_id, having(bench, volume_id) as box:
        await box.run(f"echo one > {PATH}/one")
        await backend.take_volume(volume_id, disk_id)
        try:
            await box.run(f"echo two > {PATH}/one; echo more > {PATH}/more")
            async with raises(Conflict):
                await backend.restore_volume(volume_id, disk_id)
            await backend.stop(box.handle)
            await backend.restore_volume(volume_id, disk_id)
            usage = await backend.volume_usage(volume_id)
            expect(usage.limit_bytes in (0, SIZE_MB << 20), f"its size became {usage}")
            again = Box(bench.backend, box.order, await backend.resume(box.handle, box.order))
            expect(await text(again, f"cat {PATH}/one") == b"one\n", "it was not put back")
            expect((await again.run(f"cat {PATH}/more")).exit.code != 0, "what came later is still there")
            expect((await again.run(f"echo two > {PATH}/one")).exit.code == 0, "it cannot be written to")
        finally:
            await backend.drop(disk_id)
        async with raises(NotFound):
            await backend.restore_volume(volume_id, disk_id)


@suite.check("a tenant gets what it pays for", needs=Capability.VOLUMES)
async def a_volume_has_a_size_that_can_be_changed(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Volumes)
    async with volume(bench) as volume_id:
        usage = await backend.volume_usage(volume_id)
        expect(usage.limit_bytes in (0, SIZE_MB << 20), f"its size is {usage}")
        await backend.resize_volume(volume_id, size_mb=SIZE_MB * 2)
        usage = await backend.volume_usage(volume_id)
        expect(usage.limit_bytes in (0, SIZE_MB << 21), f"after the resize {usage}")


@suite.check("reconcile compares it with the records", needs=Capability.VOLUMES)
async def volumes_are_listed_and_dropped_but_not_while_attached(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Volumes)
    async with volume(bench) as volume_id:
        expect(volume_id in await backend.volumes(), "it is not listed")
        async with having(bench, volume_id), raises(Conflict):
            await backend.drop_volume(volume_id)
        await backend.drop_volume(volume_id)
        await backend.drop_volume(volume_id)
        expect(volume_id not in await backend.volumes(), "a dropped one is listed")
        order = wants(bench, volume_id)
        async with raises(NotFound):
            await bench.backend.provision(order)
        expect(order.sandbox_id not in await bench.backend.inventory(), "something is left")


@suite.check("what makes a sandbox one is its own", needs=Capability.VOLUMES)
async def a_volume_is_not_laid_over_what_is_reserved(bench: Bench) -> None:
    async with volume(bench) as volume_id:
        for path in ("/", "/proc", "/dev/shm", "/sys", "/etc/ssh", "/run", "/usr", "data", "/a/../etc"):
            async with raises(InvalidRequest):
                await bench.backend.provision(wants(bench, volume_id, path=path))
