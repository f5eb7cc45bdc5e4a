"""After a restart: what runs goes on, what was half done is settled, what has no record stays."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection, func, select

from sandboxer.backends.contract import Order, Presence, Resources, Trust
from sandboxer.backends.guest import Command
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.values import new_id
from sandboxer.sandboxes.lifecycle import LIVE, Signal, State
from sandboxer.sandboxes.reconciler import Verdict, judge
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, inspection, pause
from sandboxer.sandboxes.use_cases.access import open_line
from sandboxer.store import idempotency
from tests.support.charging import paying, settled
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform

ORDER = Order(
    sandbox_id="",
    image="base",
    resources=Resources(vcpus=1, memory_mb=64, disk_mb=64, pids=16),
    trust=Trust.ZERO,
)


@pytest.mark.parametrize(("state", "presence"), tuple(itertools.product(State, Presence)))
def test_there_is_a_verdict_for_every_state_and_sight(state: State, presence: Presence) -> None:
    verdict = judge(state, presence)
    if presence is Presence.GONE and state in LIVE | {State.STOPPED, State.REAPED}:
        assert verdict is Verdict.ENDED


async def test_a_living_sandbox_goes_on_over_a_restart_with_its_processes(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        async with (
            open_line(platform.sandboxes, sandbox.id, ALICE, activity="processes") as guest,
            await guest.run(Command(argv=("sleep", "1000")), process_id="prc_1"),
        ):
            pass
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.READY
        async with open_line(platform.sandboxes, sandbox.id, ALICE, activity="processes") as guest:
            assert [(p.process_id, p.exit) for p in await guest.processes()] == [("prc_1", None)]


async def test_after_a_reboot_sandboxes_are_stopped_for_that_reason_and_can_be_resumed(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    backend.reboot()
    async with open_one() as platform:
        found = await platform.sandboxes.visible(sandbox.id, ALICE)
        assert (found.state, found.reason) == (State.STOPPED, "host_rebooted")
        assert (await pause.resume(platform.sandboxes, sandbox.id, ALICE)).state is State.READY


async def test_a_sandbox_that_is_gone_is_failed(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    await backend.teardown(sandbox.id)
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.FAILED


@pytest.mark.parametrize("signals", [(), (Signal.DESTROY,), (Signal.PROBE_PASSED, Signal.EXPIRE)])
async def test_what_was_half_made_or_half_removed_is_gone_after_a_start(
    open_one: OpenPlatform, backend: Scripted, signals: tuple[Signal, ...]
) -> None:
    """As a crash leaves it: the record in the middle, the backend with a box."""
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        move = platform.sandboxes.repository.move
        await move(sandbox.id, Step(signal=Signal.RECREATE, actor="test", reason="test"))
        if signals:
            await move(sandbox.id, *(Step(signal=s, actor="test", reason="test") for s in signals))
    async with open_one() as platform:
        found = await platform.sandboxes.visible(sandbox.id, ALICE)
        if signals:
            assert found.state is State.DESTROYED
        else:
            assert (found.state, found.reason) == (State.FAILED, "server_restarted")
        assert not backend.boxes


async def test_a_freeze_whose_record_a_crash_prevented_is_written_down(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    assert sandbox.handle is not None
    await backend.freeze(sandbox.handle)
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.FROZEN
    await backend.thaw(sandbox.handle)
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.READY


async def test_a_boost_whose_record_a_crash_prevented_is_taken_back(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
    box = backend.boxes[sandbox.id]
    box.order = replace(box.order, resources=replace(sandbox.resources, vcpus=4.0))
    async with open_one():
        assert box.order.resources == sandbox.resources


async def test_a_resume_whose_record_a_crash_prevented_is_taken_back(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        stopped = await pause.stop(platform.sandboxes, sandbox.id, ALICE)
    assert stopped.handle is not None
    await backend.resume(stopped.handle, stopped.order())
    async with open_one() as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.STOPPED
    assert backend.boxes[sandbox.id].presence is Presence.STOPPED


async def test_stale_things_are_shown_and_then_reaped(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one(warm_pool={"profile.agent-dev": 1}) as platform:
        await eventually(lambda: len(backend.boxes) == 1)
        await creation.create(platform.sandboxes, CreateRequest(profile="profile.build"), ALICE)
        stray = new_id("sbx")
        await backend.provision(
            Order(**{**{f: getattr(ORDER, f) for f in ORDER.__slots__}, "sandbox_id": stray})
        )
        assert [item.unknown.id for item in await inspection.find_stale(platform.sandboxes, OWNER)] == [stray]
        assert [item.unknown.id for item in await inspection.reap_stale(platform.sandboxes, OWNER)] == [stray]
        assert await inspection.find_stale(platform.sandboxes, OWNER) == []
        assert len(backend.boxes) == 2


async def test_a_death_is_written_down_with_its_reason(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        repository = platform.sandboxes.repository
        kept = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        lost = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        backend.die(kept.id, reason="oom_killed")
        backend.die(lost.id, keeps_disk=False)
        await eventually(lambda: repository.peek(kept.id).state is State.STOPPED)  # type: ignore[union-attr]
        await eventually(lambda: repository.peek(lost.id).state is State.FAILED)  # type: ignore[union-attr]
        assert (await platform.sandboxes.visible(kept.id, ALICE)).reason == "oom_killed"
        assert (await pause.resume(platform.sandboxes, kept.id, ALICE)).state is State.READY


async def test_a_death_during_the_create_is_written_down_after_it(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    backend = Scripted(name="ext.namespaces", clock=clock, boot_takes=timedelta(hours=1))
    async with open_one(on=backend) as platform:
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE, wait=False)
        await eventually(lambda: made.id in backend.boxes)
        backend.die(made.id, reason="oom_killed")
        clock.advance(timedelta(hours=1))
        repository = platform.sandboxes.repository
        await eventually(lambda: (seen := repository.peek(made.id)) and seen.state is State.STOPPED)
        assert (await platform.sandboxes.visible(made.id, ALICE)).reason == "oom_killed"


async def test_a_sandbox_past_its_ttl_when_the_server_starts_is_ended(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with open_one() as platform:
        await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
    clock.advance(timedelta(hours=1))
    async with open_one() as platform:
        await eventually(lambda: not backend.boxes)
        await eventually(lambda: not list(platform.sandboxes.repository.living()))


async def test_a_sandbox_that_expired_while_no_server_ran_says_when_it_expired(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    async with open_one() as platform:
        made = await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
    clock.advance(timedelta(hours=1))
    async with open_one() as platform:
        await eventually(lambda: not backend.boxes)
        (expired,) = [e for e in await platform.events.page(made.id) if e.kind == "sandbox.expired"]
        assert made.ready_at is not None
        assert expired.at == made.ready_at + timedelta(seconds=30)


async def test_an_outage_longer_than_a_ttl_tells_nobody_that_the_sats_ran_out(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted
) -> None:
    """Two that ran for half a minute each are paid for; the whole outage could not be paid."""
    async with paying(open_one, sats=1300) as platform:
        for _ in range(2):
            await creation.create(platform.sandboxes, CreateRequest(ttl="30s"), ALICE)
    clock.advance(timedelta(hours=1))
    async with paying(open_one) as platform:
        await eventually(lambda: not backend.boxes)
        await eventually(lambda: not list(platform.sandboxes.repository.living()))
        assert (await settled(platform)).posted == 1300 - 60
        told = {event.kind for event in await platform.events.page("alice")}
        assert not told & {"account.dry", "account.reaped", "account.funded"}


async def test_a_request_that_a_crash_interrupted_may_be_repeated_at_once_and_old_keys_are_removed(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    def begin(conn: Connection) -> idempotency.Begun:
        return idempotency.begin(conn, scope="alice", key="k", request_hash="h", now=clock.now())

    async with open_one() as platform:
        assert isinstance(await platform.store.write(begin), idempotency.Fresh)
    async with open_one() as platform:
        fresh = await platform.store.write(begin)
        assert isinstance(fresh, idempotency.Fresh)
        await platform.store.write(lambda conn: idempotency.spend(conn, fresh))
    clock.advance(idempotency.KEPT_FOR)
    async with open_one() as platform, asyncio.timeout(10):
        left = select(func.count()).select_from(idempotency.idempotency)
        while await platform.store.read(lambda conn: conn.execute(left).scalar()):  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_two_servers_cannot_share_a_state_folder(open_one: OpenPlatform) -> None:
    async with open_one():
        with pytest.raises(Conflict, match="another sandboxer"):
            async with open_one():
                pass


async def test_trouble_with_one_sandbox_does_not_keep_the_server_from_starting(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        made = [(await creation.create(platform.sandboxes, CreateRequest(), ALICE)).id for _ in range(3)]
    backend.fail_next("recover", OSError("no space left on device"))
    async with open_one() as platform:
        for sandbox_id in made:
            assert (await platform.sandboxes.visible(sandbox_id, ALICE)).state is State.READY
