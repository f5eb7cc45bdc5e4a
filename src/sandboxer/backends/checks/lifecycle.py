"""Checks of a sandbox's life: made, found, frozen, stopped, given other limits, and removed; and of its
ports."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from decimal import Decimal
from typing import cast

from sandboxer.backends.checks.commands import BEAT
from sandboxer.backends.checks.suite import Bench, Box, FullBackend, Suite, at_once, expect, refused, until
from sandboxer.backends.contract import Capability, Handle, Presence, Wall
from sandboxer.backends.guest import Command, Output
from sandboxer.backends.reports import estimate_of, torn_down
from sandboxer.kernel.errors import BackendLost, GuestRefused, InvalidRequest, NoCapacity, SandboxerError

# The comment is for backends whose sandboxes have no Python: it says what the program does.
ECHO_SERVER = """
# scripted: echo-server 4242
import socket
listener = socket.create_server(("127.0.0.1", 4242))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
"""
MB = 1024 * 1024
suite = Suite()


@suite.check("routing trusts the fingerprint")
async def a_fingerprint_says_whether_this_host_is_fit(bench: Bench) -> None:
    seen = await bench.backend.fingerprint()
    expect(seen.healthy, f"not healthy: {seen.lacks}")
    expect(seen.walls <= frozenset(Wall), "it names walls that do not exist")


@suite.check("ready means that the supervisor answers")
async def a_provisioned_sandbox_answers_at_once(bench: Bench) -> None:
    async with bench.box() as box:
        await box.ping()
        expect((await box.run("echo hi")).stdout == b"hi\n", "echo did not echo")


@suite.check("the reaper and reconcile compare it with the records")
async def the_inventory_lists_what_exists(bench: Bench) -> None:
    async with bench.box() as box:
        expect(box.order.sandbox_id in await bench.backend.inventory(), "a living sandbox is not listed")
    expect(box.order.sandbox_id not in await bench.backend.inventory(), "a removed sandbox is listed")


@suite.check("destroy must leave nothing")
async def a_removed_sandbox_is_gone(bench: Bench) -> None:
    async with bench.guest() as (box, guest):
        await bench.backend.teardown(box.order.sandbox_id)
        await box.demand(Presence.GONE)
        await refused(box.ping(), BackendLost)
        await refused(guest.ping(), BackendLost)


@suite.check("a destroy is repeated after a crash")
async def removing_what_is_gone_or_never_was_is_success(bench: Bench) -> None:
    async with bench.box() as box:
        await bench.backend.teardown(box.order.sandbox_id)
        await bench.backend.teardown(box.order.sandbox_id)
    await bench.backend.teardown(bench.make_order().sandbox_id)


@suite.check("what is left costs somebody")
async def what_it_says_of_removing_is_that_it_is_gone(bench: Bench) -> None:
    async with bench.box() as box:
        report = await torn_down(bench.backend, box.order.sandbox_id)
        await box.demand(Presence.GONE)
        if report is not None:
            expect(report.removed, "it removed a sandbox and does not say what of it")
            again = await torn_down(bench.backend, box.order.sandbox_id)
            expect(again is not None and not again.removed, f"gone already, it removed {again}")


@suite.check("a price is known before anything is made")
async def an_estimate_grows_with_time_and_makes_nothing(bench: Bench) -> None:
    order = bench.make_order()
    hour, day = [await estimate_of(bench.backend, order, hours=Decimal(hours)) for hours in (1, 24)]
    if hour is not None and day is not None:
        expect(0 <= hour.amount <= day.amount, f"an hour costs {hour.amount}, a day {day.amount}")
        expect(hour.unit == day.unit != "", f"the units are {hour.unit!r} and {day.unit!r}")
    expect(order.sandbox_id not in await bench.backend.inventory(), "an estimate made something")


@suite.check("many callers may destroy the same sandbox")
async def removing_twice_at_once_is_success(bench: Bench) -> None:
    async with bench.box() as box:
        await at_once(bench.backend.teardown(box.order.sandbox_id) for _ in range(3))


@suite.check("a record may outlive what it tells of")
async def looking_for_what_never_was_finds_it_gone(bench: Bench) -> None:
    order = bench.make_order()
    handle = Handle(sandbox_id=order.sandbox_id, backend=bench.backend.name, version=1)
    await Box(bench.backend, order, handle).demand(Presence.GONE)


@suite.check("handles are kept in a database")
async def a_handle_still_works_after_being_written_as_json(bench: Bench) -> None:
    async with bench.box() as box:
        data = json.loads(json.dumps(dict(box.handle.data)))
        again = replace(box, handle=replace(box.handle, data=data))
        await again.demand(Presence.RUNNING)
        await again.ping()


@suite.check("sandboxes outlive the server")
async def a_backend_that_is_opened_again_finds_its_sandboxes(bench: Bench) -> None:
    async with bench.guest() as (box, guest):
        async with await guest.run(Command(argv=("sleep", "1000")), process_id="prc_outlives"):
            pass
        # Without a way to reopen, the same backend stands in.
        reopened = bench.reopen() if bench.reopen else contextlib.nullcontext(bench.backend)
        async with reopened as other:
            again = replace(box, backend=cast(FullBackend, other))
            await again.demand(Presence.RUNNING)
            expect(box.order.sandbox_id in await other.inventory(), "it is not listed")
            running = await again.running()
            expect(running == {"prc_outlives"}, f"its processes are {running}")


@suite.check("recreate makes a new sandbox under the same id")
async def an_id_can_be_used_again_with_a_new_disk(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo old > /root/old")
        await bench.backend.teardown(box.order.sandbox_id)
        handle = await bench.backend.provision(box.order)
        again = replace(box, handle=handle)
        expect((await again.run("test -e /root/old")).exit.code == 1, "the old disk is still there")


@suite.check("an impatient caller must not leak half a sandbox")
async def a_cancelled_provision_leaves_nothing(bench: Bench) -> None:
    for delay_s in (0.0, 0.001, 0.003, 0.006):
        order = bench.make_order()
        making = asyncio.ensure_future(bench.backend.provision(order))
        await asyncio.sleep(delay_s)
        making.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await making
            await bench.backend.teardown(order.sandbox_id)

        async def is_gone(sandbox_id: str = order.sandbox_id) -> bool:
            return sandbox_id not in await bench.backend.inventory()

        await until(is_gone, f"a provision cancelled after {delay_s} s left something")


@suite.check("a full or broken host must not leak either")
async def an_image_that_does_not_exist_is_refused_and_leaves_nothing(bench: Bench) -> None:
    await bench.refuse_order(replace(bench.make_order(), image="no-such-image"), SandboxerError)


@suite.check("a hundred agents arrive at once")
async def many_can_be_made_at_once(bench: Bench) -> None:
    async def live() -> None:
        async with bench.box() as box:
            expect((await box.run("echo hi")).stdout == b"hi\n", "echo did not echo")

    await at_once(live() for _ in range(10))


@suite.check("usage is billed and shown")
async def usage_is_within_its_limits(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("seq 1 100000")
        used = await bench.backend.usage(box.handle)
        limits = box.order.resources
        expect(used.cpu_s >= 0, f"cpu {used.cpu_s}")
        expect(0 <= used.memory_bytes <= used.memory_limit_bytes, f"memory {used.memory_bytes}")
        expect(used.memory_limit_bytes == limits.memory_mb * 2**20, f"memory limit {used.memory_limit_bytes}")
        expect(0 <= used.disk_bytes <= used.disk_limit_bytes, f"disk {used.disk_bytes}")
        expect(1 <= used.processes <= used.processes_limit, f"processes {used.processes}")


@suite.check("tenants must not meet")
async def two_sandboxes_share_nothing(bench: Bench) -> None:
    async with bench.box() as one, bench.box() as other:
        await one.run("echo mine > /root/secret; echo mine > /tmp/secret")
        seen = await other.run("test -e /root/secret || test -e /tmp/secret")
        expect(seen.exit.code == 1, "a file of one sandbox is in the other")
        async with await (await one.guest()).run(Command(argv=("sleep", "1000"))):
            listed = await (await other.guest()).processes()
            expect(not listed, f"the other lists {listed}")


async def beat(box: Box) -> bytes:
    return b"".join([part async for part in (await box.guest()).files.read("/tmp/beat")])


async def begin_to_beat(box: Box) -> None:
    argv = ("/bin/sh", "-c", BEAT)
    async with await (await box.guest()).run(Command(argv=argv, env={"PATH": "/usr/bin:/bin"})):
        pass

    await box.wait_for_file("/tmp/beat", "the loop never began")


async def still(box: Box) -> bool:
    before = await beat(box)
    await asyncio.sleep(0.3)
    return before == await beat(box)


@suite.check("a frozen sandbox costs no CPU, and its files can be fetched", needs=Capability.FREEZE)
async def freezing_stops_every_process_and_leaves_files_readable(bench: Bench) -> None:
    async with bench.box() as box:
        await begin_to_beat(box)
        await bench.backend.freeze(box.handle)
        await box.demand(Presence.FROZEN)
        expect(await still(box), "something still runs")
        await box.ping()
        await bench.backend.thaw(box.handle)

        async def moves() -> bool:
            return not await still(box)

        await until(moves, "nothing runs after the thaw")


@suite.check("requests are repeated", needs=Capability.FREEZE)
async def freezing_and_thawing_twice_is_success(bench: Bench) -> None:
    async with bench.box() as box:
        for act in (bench.backend.freeze, bench.backend.freeze, bench.backend.thaw, bench.backend.thaw):
            await act(box.handle)
        expect((await box.run("echo hi")).stdout == b"hi\n", "it does not work after the thaw")


@suite.check("TTL ends frozen sandboxes too", needs=Capability.FREEZE)
async def a_frozen_sandbox_can_be_removed(bench: Bench) -> None:
    async with bench.box() as box:
        await begin_to_beat(box)
        await bench.backend.freeze(box.handle)
        await bench.backend.teardown(box.order.sandbox_id)
        await box.demand(Presence.GONE)


@suite.check("stopped means: costs a disk and nothing else", needs=Capability.STOP)
async def stopping_ends_processes_and_resuming_finds_the_disk(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo kept > /root/kept")
        await begin_to_beat(box)
        await bench.backend.stop(box.handle)
        await bench.backend.stop(box.handle)
        await box.demand(Presence.STOPPED)
        expect(box.order.sandbox_id in await bench.backend.inventory(), "a stopped sandbox is not listed")
        await refused(box.ping(), BackendLost)
        again = await box.resumed()
        expect(await again.text("cat /root/kept") == b"kept\n", "the disk is not the old one")
        expect(not await again.running(), "something still runs")
        await again.demand(Presence.RUNNING)


@suite.check("what is kept is removed in the end", needs=Capability.STOP)
async def a_stopped_sandbox_can_be_removed(bench: Bench) -> None:
    async with bench.box() as box:
        await bench.backend.stop(box.handle)
        await bench.backend.teardown(box.order.sandbox_id)
        await box.demand(Presence.GONE)


@suite.check("services inside are reached through the host")
async def a_port_inside_can_be_talked_to(bench: Bench) -> None:
    async with bench.guest() as (_, guest):
        argv = ("python3", "-c", ECHO_SERVER)
        command = Command(argv=argv, env={"PATH": "/usr/local/bin:/usr/bin:/bin"})
        async with await guest.run(command) as process:
            async for item in process.output():
                expect(isinstance(item, Output) and b"listening" in item.data, f"the server said {item}")
                break
            connection = await guest.connect(4242)
            await connection.write(b"over the wall")
            await connection.close_write()
            received = b""
            while part := await connection.read():
                received += part
            await connection.close()
            expect(received == b"over the wall", f"the echo was {received!r}")
            await process.kill()


@suite.check("a service may be down")
async def a_port_where_nobody_listens_is_refused(bench: Bench) -> None:
    async with bench.guest() as (_, guest):
        await refused(guest.connect(4243), GuestRefused)


async def demand_memory(box: Box, size_mb: int) -> None:
    limit = (await box.backend.usage(box.handle)).memory_limit_bytes
    expect(limit == size_mb * MB, f"the limit is {limit}")


@suite.check("an agent's build needs more for a minute", needs=Capability.RESIZE)
async def resizing_changes_the_limits_of_what_runs(bench: Bench) -> None:
    async with bench.box(bench.sized_order(memory_mb=64)) as box:
        had = box.order.resources
        await box.run("echo here > /tmp/kept")
        await bench.backend.resize(box.handle, replace(had, memory_mb=128, pids=had.pids + 8))
        await demand_memory(box, 128)
        usage = await bench.backend.usage(box.handle)
        expect(usage.processes_limit == had.pids + 8, f"the limit is {usage.processes_limit}")
        expect((await box.run("cat /tmp/kept")).stdout == b"here\n", "what ran or was kept is gone")
        await bench.backend.resize(box.handle, had)
        await demand_memory(box, 64)


@suite.check("a host promises only what it has", needs=Capability.RESIZE)
async def resizing_beyond_the_host_is_refused_and_changes_nothing(bench: Bench) -> None:
    async with bench.box(bench.sized_order(memory_mb=64)) as box:
        had = box.order.resources
        await refused(
            bench.backend.resize(box.handle, replace(had, memory_mb=2**34)), NoCapacity, InvalidRequest
        )
        await demand_memory(box, 64)
