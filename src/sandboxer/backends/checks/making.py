"""Checks of making, finding and removing sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json

from sandboxer.backends.checks.suite import Bench, Suite, expect, raises, until
from sandboxer.backends.contract import Handle, Presence, Wall
from sandboxer.backends.guest import Command
from sandboxer.kernel.errors import BackendLost, SandboxerError

suite = Suite()


@suite.check("routing trusts the fingerprint")
async def a_fingerprint_says_whether_this_host_is_fit(bench: Bench) -> None:
    seen = await bench.backend.fingerprint()
    expect(seen.healthy, f"not healthy: {seen.lacks}")
    expect(seen.walls <= frozenset(Wall), "it names walls that do not exist")


@suite.check("ready means that the supervisor answers")
async def a_provisioned_sandbox_answers_at_once(bench: Bench) -> None:
    async with bench.box() as box:
        await (await box.guest()).ping()
        expect((await box.run("echo hi")).stdout == b"hi\n", "echo did not echo")


@suite.check("the reaper and reconcile compare it with the records")
async def the_inventory_lists_what_exists(bench: Bench) -> None:
    async with bench.box() as box:
        expect(box.order.sandbox_id in await bench.backend.inventory(), "a living sandbox is not listed")
    expect(box.order.sandbox_id not in await bench.backend.inventory(), "a removed sandbox is listed")


@suite.check("destroy must leave nothing")
async def a_removed_sandbox_is_gone(bench: Bench) -> None:
    async with bench.box() as box:
        guest = await box.guest()
        await bench.backend.teardown(box.order.sandbox_id)
        seen = await bench.backend.recover(box.handle)
        expect(seen.presence is Presence.GONE, f"it is {seen.presence}")
        async with raises(BackendLost):
            await (await bench.backend.guest(box.handle)).ping()
        async with raises(BackendLost):
            await guest.ping()


@suite.check("a destroy is repeated after a crash")
async def removing_what_is_gone_or_never_was_is_success(bench: Bench) -> None:
    async with bench.box() as box:
        await bench.backend.teardown(box.order.sandbox_id)
        await bench.backend.teardown(box.order.sandbox_id)
    await bench.backend.teardown(bench.make_order().sandbox_id)


@suite.check("many callers may destroy the same sandbox")
async def removing_twice_at_once_is_success(bench: Bench) -> None:
    async with bench.box() as box, asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(bench.backend.teardown(box.order.sandbox_id))


@suite.check("a record may outlive what it tells of")
async def looking_for_what_never_was_finds_it_gone(bench: Bench) -> None:
    order = bench.make_order()
    handle = Handle(sandbox_id=order.sandbox_id, backend=bench.backend.name, version=1)
    seen = await bench.backend.recover(handle)
    expect(seen.presence is Presence.GONE, f"it is {seen.presence}")


@suite.check("handles are kept in a database")
async def a_handle_still_works_after_being_written_as_json(bench: Bench) -> None:
    async with bench.box() as box:
        data = json.loads(json.dumps(dict(box.handle.data)))
        again = Handle(
            sandbox_id=box.handle.sandbox_id,
            backend=box.handle.backend,
            version=box.handle.version,
            data=data,
        )
        seen = await bench.backend.recover(again)
        expect(seen.presence is Presence.RUNNING, f"it is {seen.presence}")
        await (await bench.backend.guest(again)).ping()


@suite.check("sandboxes outlive the server")
async def a_backend_that_is_opened_again_finds_its_sandboxes(bench: Bench) -> None:
    async with bench.box() as box:
        guest = await box.guest()
        async with await guest.run(Command(argv=("sleep", "1000")), process_id="prc_outlives"):
            pass
        # Without a way to reopen, the same backend stands in.
        reopened = bench.reopen() if bench.reopen else contextlib.nullcontext(bench.backend)
        async with reopened as other:
            seen = await other.recover(box.handle)
            expect(seen.presence is Presence.RUNNING, f"it is {seen.presence}")
            expect(box.order.sandbox_id in await other.inventory(), "it is not listed")
            running = {
                p.process_id for p in await (await other.guest(box.handle)).processes() if p.exit is None
            }
            expect(running == {"prc_outlives"}, f"its processes are {running}")


@suite.check("recreate makes a new sandbox under the same id")
async def an_id_can_be_used_again_with_a_new_disk(bench: Bench) -> None:
    async with bench.box() as box:
        await box.run("echo old > /root/old")
        await bench.backend.teardown(box.order.sandbox_id)
        handle = await bench.backend.provision(box.order)
        again = type(box)(bench.backend, box.order, handle)
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
    order = bench.make_order()
    wrong = type(order)(
        sandbox_id=order.sandbox_id,
        image="no-such-image",
        resources=order.resources,
        trust=order.trust,
    )
    async with raises(SandboxerError):
        await bench.backend.provision(wrong)
    expect(order.sandbox_id not in await bench.backend.inventory(), "something is left")


@suite.check("a hundred agents arrive at once")
async def many_can_be_made_at_once(bench: Bench) -> None:
    async def live() -> None:
        async with bench.box() as box:
            expect((await box.run("echo hi")).stdout == b"hi\n", "echo did not echo")

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(live())


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
