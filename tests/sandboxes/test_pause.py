"""Stop and resume, freeze and thaw, recreate; and what a line allows meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sandboxer.backends.guest import Command, Exit
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import IllegalTransition, ProvisionFailed
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, disks, inspection, lifetime, pause
from sandboxer.sandboxes.use_cases.access import open_line
from sandboxer.wiring import Platform
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ACTS, ALICE, OpenPlatform


async def run(platform: Platform, sandbox_id: str, script: str) -> int:
    async with open_line(platform.sandboxes, sandbox_id, ALICE, activity="exec") as guest:
        process = await guest.run(Command(argv=("sh", "-c", script)))
        async with process:
            (code,) = [item.code async for item in process.output() if isinstance(item, Exit)]
            return code


async def test_a_frozen_sandbox_allows_files_but_no_commands_and_thaws(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await run(platform, sandbox.id, "echo hi > /tmp/a")
        assert (await pause.freeze(platform.sandboxes, sandbox.id, ALICE)).state is State.FROZEN
        async with open_line(platform.sandboxes, sandbox.id, ALICE, activity="files") as guest:
            assert (await guest.files.stat("/tmp/a")).size == 3
        with pytest.raises(IllegalTransition) as refused:
            await run(platform, sandbox.id, "true")
        assert refused.value.facts["state"] == "frozen"
        assert (await pause.thaw(platform.sandboxes, sandbox.id, ALICE)).state is State.READY
        assert await run(platform, sandbox.id, "test -f /tmp/a") == 0


async def test_a_stopped_sandbox_keeps_its_disk_and_its_ttl(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one(retention="30d") as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="2h"), ALICE)
        await run(platform, sandbox.id, "echo kept > /workspace/a")
        clock.advance(timedelta(hours=1))
        stopped = await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        assert stopped.state is State.STOPPED
        assert stopped.ttl_left == timedelta(hours=1)
        clock.advance(timedelta(days=10))
        resumed = await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        assert resumed.state is State.READY
        assert resumed.expires_at == clock.now() + timedelta(hours=1)
        assert await run(platform, sandbox.id, "test -f /workspace/a") == 0


async def test_asking_for_the_state_it_is_in_is_success(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        for act, state in (("freeze", State.FROZEN), ("thaw", State.READY), ("stop", State.STOPPED)):
            for _ in range(2):
                assert (await ACTS[act](platform.sandboxes, sandbox.id, ALICE)).state is state


async def test_a_step_that_the_table_forbids_is_refused_before_the_backend_is_asked(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        with pytest.raises(IllegalTransition):
            await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        assert ("freeze", sandbox.id) not in backend.calls


async def test_a_recreated_sandbox_has_the_same_id_and_an_empty_disk(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await run(platform, sandbox.id, "echo old > /workspace/a")
        again = await disks.recreate(platform.sandboxes, sandbox.id, ALICE)
        assert (again.id, again.state) == (sandbox.id, State.READY)
        assert await run(platform, sandbox.id, "test -f /workspace/a") == 1


async def test_a_recreate_that_fails_leaves_a_failed_sandbox_that_can_be_recreated(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    broken = ProvisionFailed(step="boot", why="no")
    backend = Scripted(name="ext.namespaces", clock=clock, fail_on={"boot": [None, broken]})
    async with open_one(on=backend) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        with pytest.raises(ProvisionFailed):
            await disks.recreate(platform.sandboxes, sandbox.id, ALICE)
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.FAILED
        assert (await disks.recreate(platform.sandboxes, sandbox.id, ALICE)).state is State.READY


async def test_operations_on_one_sandbox_happen_one_after_the_other(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(pause.freeze(platform.sandboxes, sandbox.id, ALICE))
                group.create_task(lifetime.change_ttl(platform.sandboxes, sandbox.id, "1m", ALICE))
        frozen = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert frozen.state is State.FROZEN
        assert frozen.ttl == timedelta(hours=4, minutes=5)


async def test_reachability_is_an_answer_from_inside(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        seen = await inspection.reachability(platform.sandboxes, sandbox.id, ALICE)
        assert seen.is_reachable
        assert seen.latency_ms is not None
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        assert not (await inspection.reachability(platform.sandboxes, sandbox.id, ALICE)).is_reachable


async def test_work_of_a_second_is_recorded_as_active_and_its_end_as_ready(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one() as platform:
        repository = platform.sandboxes.repository
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await asyncio.sleep(0.05)
        sleeping = clock.sleepers()
        async with open_line(platform.sandboxes, sandbox.id, ALICE, activity="terminal"):
            await eventually(lambda: clock.sleepers() > sleeping)
            clock.advance(timedelta(seconds=1))
            await eventually(lambda: repository.peek(sandbox.id).state is State.ACTIVE)  # type: ignore[union-attr]
        for _ in range(3):
            await asyncio.sleep(0.01)
            clock.advance(timedelta(seconds=1))
        await eventually(lambda: repository.peek(sandbox.id).state is State.READY)  # type: ignore[union-attr]


async def test_short_work_writes_nothing(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        before = await platform.events.last_id()
        for _ in range(20):
            await run(platform, sandbox.id, "true")
        for _ in range(3):
            await asyncio.sleep(0.01)
            clock.advance(timedelta(seconds=1))
        await eventually(lambda: not platform.sandboxes.activity.unsettled)
        assert await platform.events.last_id() == before


async def test_a_background_process_keeps_the_sandbox_active(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one() as platform:
        repository = platform.sandboxes.repository
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await asyncio.sleep(0.05)
        sleeping = clock.sleepers()
        async with (
            open_line(platform.sandboxes, sandbox.id, ALICE, activity="processes") as guest,
            await guest.run(Command(argv=("sleep", "40"))),
        ):
            pass
        # The program inside, and whoever will write down that it works.
        await eventually(lambda: clock.sleepers() >= sleeping + 2)
        clock.advance(timedelta(seconds=2))
        await eventually(lambda: repository.peek(sandbox.id).state is State.ACTIVE)  # type: ignore[union-attr]
        for _ in range(50):
            await asyncio.sleep(0.01)
            clock.advance(timedelta(seconds=2))
        await eventually(lambda: repository.peek(sandbox.id).state is State.READY)  # type: ignore[union-attr]
