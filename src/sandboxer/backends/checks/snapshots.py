"""Checks kept disks: made, copied, restored and dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandboxer.backends.checks.suite import Bench, Box, Suite, expect, raises, until
from sandboxer.backends.contract import Capability, Freezes, Presence, Snapshots, Stops
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.ids import new_id

suite = Suite()


@asynccontextmanager
async def kept_copy(bench: Bench, box: Box) -> AsyncIterator[str]:
    """Keeps a copy of the sandbox's disk while inside."""
    backend, disk_id = bench.backend, new_id("snp")
    assert isinstance(backend, Snapshots)
    await backend.take(box.handle, disk_id)
    try:
        yield disk_id
    finally:
        await backend.drop(disk_id)


@asynccontextmanager
async def copy_of(bench: Bench, disk_id: str) -> AsyncIterator[Box]:
    order = replace(bench.make_order(), origin=disk_id)
    handle = await bench.backend.provision(order)
    try:
        yield Box(bench.backend, order, handle)
    finally:
        await bench.backend.teardown(order.sandbox_id)


async def text(box: Box, script: str) -> bytes:
    return (await box.run(script)).stdout


@suite.check("an agent forks what it has built", needs=Capability.SNAPSHOT)
async def a_copy_has_what_was_there_when_it_was_taken(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("mkdir -p /root/a; echo one > /root/a/one; echo one > /root/b")
        async with kept_copy(bench, box) as disk_id:
            await box.run("echo two > /root/a/one; rm /root/b")
            async with copy_of(bench, disk_id) as copy:
                expect(await text(copy, "cat /root/a/one /root/b") == b"one\none\n", "it is not as it was")
                await copy.run("echo three > /root/b")
                expect((await box.run("test -e /root/b")).exit.code == 1, "the copy wrote into its source")
            async with copy_of(bench, disk_id) as again:
                expect(await text(again, "cat /root/b") == b"one\n", "a copy wrote into what is kept")


@suite.check("clones must not pass for each other", needs=Capability.SNAPSHOT)
async def copies_are_new_machines(bench: Bench) -> None:
    async with (
        bench.box() as box,
        kept_copy(bench, box) as disk_id,
        copy_of(bench, disk_id) as one,
        copy_of(bench, disk_id) as other,
    ):
        ids = {await text(each, "cat /etc/machine-id") for each in (box, one, other)}
        expect(len(ids) == 3, f"machine ids are {ids}")


@suite.check("what is kept outlives its source", needs=Capability.SNAPSHOT)
async def a_kept_disk_outlives_the_sandbox_and_a_copy_outlives_both(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Snapshots)
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        async with kept_copy(bench, box) as disk_id:
            await bench.backend.teardown(box.order.sandbox_id)
            await backend.check_kept(disk_id)
            async with copy_of(bench, disk_id) as copy:
                await backend.drop(disk_id)
                expect(await text(copy, "cat /root/kept") == b"kept\n", "the copy lost its content")


@suite.check("an agent travels back in time", needs=Capability.SNAPSHOT)
async def restoring_brings_the_disk_back_and_ends_processes(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Snapshots)
    async with bench.box() as box:
        await box.run("echo old > /root/file")
        async with kept_copy(bench, box) as disk_id:
            await box.run("echo new > /root/file; echo more > /root/more")
            handle = await backend.restore(box.handle, box.order, disk_id, start=True)
            again = Box(bench.backend, box.order, handle)
            expect(await text(again, "cat /root/file") == b"old\n", "the file is not the old one")
            expect((await again.run("test -e /root/more")).exit.code == 1, "what came later is still there")
            running = [p for p in await (await again.guest()).processes() if p.exit is None]
            expect(not running, "something still runs")
            # A second time, from the same kept disk.
            await again.run("rm /root/file")
            handle = await backend.restore(handle, box.order, disk_id, start=True)
            expect(await text(Box(bench.backend, box.order, handle), "cat /root/file") == b"old\n", "lost")


@suite.check("what does not run stays so", needs=Capability.SNAPSHOT)
async def a_stopped_sandbox_is_taken_and_restored_without_running(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Snapshots)
    assert isinstance(backend, Stops)
    async with bench.box() as box:
        await box.run("echo old > /root/file")
        await backend.stop(box.handle)
        async with kept_copy(bench, box) as disk_id:
            handle = await backend.resume(box.handle, box.order)
            await Box(bench.backend, box.order, handle).run("rm /root/file")
            await backend.stop(handle)
            handle = await backend.restore(handle, box.order, disk_id, start=False)
            seen = await bench.backend.recover(handle)
            expect(seen.presence is Presence.STOPPED, f"it is {seen.presence}")
            handle = await backend.resume(handle, box.order)
            again = Box(bench.backend, box.order, handle)
            expect(await text(again, "cat /root/file") == b"old\n", "the disk is not the old one")


@suite.check("a frozen sandbox can be kept as it is", needs=Capability.SNAPSHOT)
async def a_frozen_sandbox_is_taken_and_stays_frozen(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Snapshots)
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        if isinstance(backend, Freezes):
            await backend.freeze(box.handle)
        async with kept_copy(bench, box) as disk_id:
            seen = await bench.backend.recover(box.handle)
            expect(seen.presence is not Presence.STOPPED, f"it is {seen.presence}")
            async with copy_of(bench, disk_id) as copy:
                expect(await text(copy, "cat /root/kept") == b"kept\n", "the copy lacks a file")


@suite.check("reconcile compares it with the records", needs=Capability.SNAPSHOT)
async def what_is_kept_is_listed_sized_and_dropped(bench: Bench) -> None:
    backend = bench.backend
    assert isinstance(backend, Snapshots)
    async with bench.box() as box:
        await box.run("seq 1 200000 > /root/numbers")
        async with kept_copy(bench, box) as disk_id:
            expect(disk_id in await backend.kept(), "it is not listed")
            sizes = await backend.sizes(disk_id)
            expect(sizes.referenced_bytes >= 1_000_000, f"sizes are {sizes}")
            await backend.drop(disk_id)
            await backend.drop(disk_id)
            expect(disk_id not in await backend.kept(), "a dropped one is listed")
            async with raises(NotFound):
                await backend.check_kept(disk_id)
            order = replace(bench.make_order(), origin=disk_id)
            async with raises(NotFound):
                await bench.backend.provision(order)
            expect(order.sandbox_id not in await bench.backend.inventory(), "something is left")
            async with raises(NotFound):
                await backend.restore(box.handle, box.order, disk_id, start=True)
            expect((await box.run("echo hi")).stdout == b"hi\n", "a refused restore touched the sandbox")


@suite.check("a hundred agents fork at once", needs=Capability.SNAPSHOT)
async def many_copies_can_be_made_at_once(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        async with kept_copy(bench, box) as disk_id:

            async def live() -> None:
                async with copy_of(bench, disk_id) as copy:
                    expect(await text(copy, "cat /root/kept") == b"kept\n", "a copy lacks a file")

            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(live())

    async def nothing_is_left() -> bool:
        kept = bench.backend
        assert isinstance(kept, Snapshots)
        return disk_id not in await kept.kept()

    await until(nothing_is_left, "the kept disk is still there")
