"""Destroy: from any state, by many at once, and never half."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sandboxer.backends.reports import CleanupReport
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import BackendLost, Conflict, IllegalTransition, NoCapacity, NotFound
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, inspection, lifetime
from sandboxer.sandboxes.use_cases.access import open_line
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ACTS, ALICE, BOB, OWNER, OpenPlatform


class Slow(Scripted):
    """Removes nothing before it may."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(name="ext.namespaces", clock=clock)
        self.may_remove = asyncio.Event()

    async def teardown_with_report(self, sandbox_id: str) -> CleanupReport:
        await self.may_remove.wait()
        return await super().teardown_with_report(sandbox_id)


@pytest.fixture
def slow(clock: ManualClock) -> Slow:
    return Slow(clock)


async def test_a_destroy_that_nobody_waits_for_is_certain_when_it_is_answered(
    open_one: OpenPlatform, slow: Slow
) -> None:
    async with open_one(on=slow) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        ending = await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE, wait=False)
        assert ending.state is State.DESTROYING
        with pytest.raises(IllegalTransition):
            async with open_line(platform.sandboxes, sandbox.id, ALICE, activity="exec"):
                pass
        slow.may_remove.set()
        gone = await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        assert gone.state is State.DESTROYED
        assert slow.calls.count(("teardown", sandbox.id)) == 1


async def test_a_create_waits_for_the_place_of_those_that_are_being_destroyed(
    open_one: OpenPlatform, slow: Slow
) -> None:
    async with open_one(on=slow) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE, wait=False)
        slow.fail_next("provision", NoCapacity(resource="memory", why="full"))
        making = asyncio.ensure_future(creation.create(platform.sandboxes, CreateRequest(), ALICE))
        await eventually(lambda: [method for method, _ in slow.calls].count("provision") == 2)
        slow.may_remove.set()
        assert (await making).state is State.READY


async def test_a_destroyed_sandbox_is_gone_and_its_record_stays(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(env={"TOKEN": "secret"}), ALICE)
        gone = await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        assert gone.state is State.DESTROYED
        assert gone.ended_at is not None
        assert gone.env == {}
        assert not backend.boxes
        assert await platform.sandboxes.visible(sandbox.id, ALICE) == gone
        assert (await inspection.list_sandboxes(platform.sandboxes, ALICE)).records == []
        assert (
            await inspection.list_sandboxes(platform.sandboxes, ALICE, states=(State.DESTROYED,))
        ).records == [gone]


async def test_destroying_again_is_success_and_writes_nothing(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        first = await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        before = await platform.events.last_id()
        assert await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE) == first
        assert await platform.events.last_id() == before


async def test_many_destroys_at_once_tear_down_once(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)) for _ in range(10)
            ]
        assert {task.result().state for task in asked} == {State.DESTROYED}
        assert backend.calls.count(("teardown", sandbox.id)) == 1


async def test_a_destroy_while_it_is_being_made_undoes_it(open_one: OpenPlatform, clock: ManualClock) -> None:
    backend = Scripted(name="ext.namespaces", clock=clock, boot_takes=timedelta(hours=1))
    async with open_one(on=backend) as platform:
        made = asyncio.ensure_future(creation.create(platform.sandboxes, CreateRequest(), ALICE))
        await eventually(lambda: backend.boxes)
        (sandbox_id,) = backend.boxes
        gone = await lifetime.destroy(platform.sandboxes, sandbox_id, ALICE)
        assert gone.state is State.DESTROYED
        assert not backend.boxes
        with pytest.raises(Conflict, match="cut short"):
            await made
        kinds = [event.kind for event in await platform.events.page(sandbox_id)]
        assert kinds == [
            "sandbox.requested",
            "sandbox.provisioning",
            "sandbox.destroying",
            "sandbox.destroyed",
        ]


@pytest.mark.parametrize("act", ["freeze", "stop"])
async def test_a_paused_sandbox_can_be_destroyed(open_one: OpenPlatform, backend: Scripted, act: str) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await ACTS[act](platform.sandboxes, sandbox.id, ALICE)
        assert (await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)).state is State.DESTROYED
        assert not backend.boxes


async def test_a_removal_that_fails_is_tried_again_by_the_timer(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    stuck = [BackendLost(why="device busy"), OSError("no space left on device")]
    backend = Scripted(name="ext.namespaces", clock=clock, fail_on={"teardown": stuck})
    async with open_one(on=backend) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        with pytest.raises(BackendLost):
            await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.DESTROYING

        def is_tried_thrice() -> bool:
            # Time goes on: the timer may not yet have planned its next try when the clock is moved.
            clock.advance(timedelta(seconds=31))
            return backend.calls.count(("teardown", sandbox.id)) == 3

        await eventually(is_tried_thrice)
        await eventually(lambda: platform.sandboxes.repository.peek(sandbox.id) is None)
        assert not backend.boxes


async def test_someone_else_s_sandbox_does_not_exist_for_you_and_the_owner_sees_all(
    open_one: OpenPlatform,
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        for act in (
            "visible",
            "destroy",
            "freeze",
            "thaw",
            "stop",
            "resume",
            "recreate",
            "usage",
            "reachability",
        ):
            with pytest.raises(NotFound):
                await ACTS[act](platform.sandboxes, sandbox.id, BOB)
        with pytest.raises(NotFound):
            await lifetime.change_ttl(platform.sandboxes, sandbox.id, "1h", BOB)
        with pytest.raises(NotFound):
            async with open_line(platform.sandboxes, sandbox.id, BOB, activity="exec"):
                pass
        assert (await lifetime.destroy(platform.sandboxes, sandbox.id, OWNER)).state is State.DESTROYED
