"""Create: checked before anything is made, recorded step by step, and nothing left when it fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sandboxer.backends.contract import Trust, Wall
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NoCapacity,
    NotAvailable,
    ProvisionFailed,
)
from sandboxer.kernel.values import new_id
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import creation, disks, inspection, pause
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform


async def test_a_created_sandbox_is_ready_and_says_how_long_each_step_took(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        request = CreateRequest(
            name="first", labels={"team": "a"}, env={"A": "1"}, inputs={"repo-ref": {"x": 1}}
        )
        sandbox = await creation.create(platform.sandboxes, request, ALICE)
        assert sandbox.state is State.READY
        assert sandbox.profile == "profile.agent-dev"
        assert sandbox.account == "alice"
        assert sandbox.ready_at is not None
        assert sandbox.expires_at == sandbox.ready_at + timedelta(hours=4)
        assert {"record", "provision", "total"} <= set(sandbox.timings_ms)
        assert sandbox.environment() == {
            "SANDBOXER_SANDBOX_ID": sandbox.id,
            "SANDBOXER_INPUT_REPO_REF": '{"x": 1}',
            "A": "1",
        }
        assert await platform.sandboxes.visible(sandbox.id, ALICE) == sandbox


async def test_each_step_of_a_create_is_an_event_with_actor_and_reason(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(consumer={"actor": "agt"}), ALICE)
        events = await platform.events.page(sandbox.id)
        assert [(e.kind, e.actor, e.reason) for e in events] == [
            ("sandbox.requested", ALICE.public_key, "requested"),
            ("sandbox.provisioning", ALICE.public_key, "placed"),
            ("sandbox.ready", ALICE.public_key, "probe_passed"),
        ]
        assert events[0].data["consumer"] == {"actor": "agt"}


async def test_what_was_recorded_is_what_is_read_back(open_one: OpenPlatform) -> None:
    request = CreateRequest(
        name="all of it",
        ttl="90s",
        idle_timeout="45s",
        resources=WantedResources(vcpus=0.5, memory_mb=64, disk_mb=128, pids=32),
        env={"BAD": "\udcff\n"},
        labels={"k": "v"},
        inputs={"n": None, "list": [1, "two"]},
        consumer={"session_id": "s"},
    )
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, request, ALICE)
        page = await inspection.list_sandboxes(platform.sandboxes, ALICE)
        assert list(page.records) == [sandbox]


async def test_the_canary_reports_on_its_host(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(
            platform.sandboxes, CreateRequest(profile="profile.sandbox-canary"), OWNER
        )
        assert sandbox.report is not None
        assert sandbox.report["kernel"] == "scripted"
        assert "setup" in sandbox.timings_ms


async def test_the_build_profile_prepares_its_workspace(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(profile="profile.build"), OWNER)
        assert backend.boxes[sandbox.id].disk.info("/workspace")
        assert sandbox.idle_timeout == timedelta(minutes=30)


async def test_who_may_not_make_images_gets_no_sandbox_that_nests(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    builder = CreateRequest(profile="profile.builder", image="base")
    async with open_one() as platform:
        made = await creation.create(platform.sandboxes, builder, OWNER)
        assert backend.boxes[made.id].order.nests
        plain = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert not backend.boxes[plain.id].order.nests
        with pytest.raises(Forbidden) as refusal:
            await creation.create(platform.sandboxes, builder, ALICE)
        assert refusal.value.facts["reason"] == "image_makers"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (CreateRequest(profile="profile.agent-dve"), "profile"),
        (CreateRequest(ttl="1000d"), "ttl"),
        (CreateRequest(ttl="soon"), "ttl"),
        (CreateRequest(idle_timeout="0s"), "idle_timeout"),
        (CreateRequest(resources=WantedResources(memory_mb=10**9)), "resources.memory_mb"),
        (CreateRequest(resources=WantedResources(vcpus=0)), "resources.vcpus"),
        (CreateRequest(resources=WantedResources(pids=-5)), "resources.pids"),
        (CreateRequest(trust="full"), "trust"),
        (CreateRequest(image="no-such-image"), "image"),
    ],
)
async def test_an_impossible_request_is_refused_by_field_before_anything_happens(
    open_one: OpenPlatform, backend: Scripted, request_: CreateRequest, field: str
) -> None:
    async with open_one() as platform:
        with pytest.raises(InvalidRequest) as refused:
            await creation.create(platform.sandboxes, request_, ALICE)
        assert refused.value.facts["field"] == field
        assert (await inspection.list_sandboxes(platform.sandboxes, OWNER)).records == []
        assert not backend.boxes


async def test_an_unknown_profile_is_answered_with_the_nearest_name(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        with pytest.raises(InvalidRequest, match=r"did you mean profile\.agent-dev\?"):
            await creation.create(platform.sandboxes, CreateRequest(profile="profile.agent-dve"), ALICE)


async def test_the_trust_level_asked_for_is_the_one_it_has_and_stays(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        made = await creation.create(platform.sandboxes, CreateRequest(trust="semi"), ALICE)
        assert (made.trust, (await creation.create(platform.sandboxes, CreateRequest(), ALICE)).trust) == (
            Trust.SEMI,
            Trust.ZERO,
        )
        with pytest.raises(InvalidRequest, match="neither zero nor semi"):
            await creation.create(platform.sandboxes, CreateRequest(trust="full"), ALICE)


async def test_a_backend_without_a_wall_that_the_profile_demands_is_not_used(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    weak = Scripted(name="ext.namespaces", clock=clock, walls=frozenset(Wall) - {Wall.SYSCALLS})
    async with open_one(on=weak) as platform:
        with pytest.raises(NotAvailable, match="syscalls"):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)


async def test_a_full_host_refuses_with_a_reason_and_the_next_try_succeeds(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    full = NoCapacity(resource="memory", why="512 MiB asked, 100 free")
    backend = Scripted(name="ext.namespaces", clock=clock, fail_on={"provision": [full, None]})
    async with open_one(on=backend) as platform:
        with pytest.raises(NoCapacity) as refused:
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        failed = await platform.sandboxes.visible(str(refused.value.facts["sandbox_id"]), ALICE)
        assert (failed.state, failed.reason) == (State.FAILED, "no_capacity")
        assert not backend.boxes
        assert (await creation.create(platform.sandboxes, CreateRequest(), ALICE)).state is State.READY


async def test_a_sandbox_that_does_not_boot_leaves_nothing(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    broken = ProvisionFailed(step="boot", why="no answer")
    backend = Scripted(name="ext.namespaces", clock=clock, fail_on={"boot": [broken]})
    async with open_one(on=backend) as platform:
        with pytest.raises(ProvisionFailed):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert not backend.boxes
        assert {s: n for s, n in (await platform.sandboxes.repository.counts()).items() if n} == {"failed": 1}


@pytest.mark.parametrize("printed", [b"no json", b'{"a": NaN}', rb'{"a": "\ud800"}'])
async def test_a_failing_setup_command_undoes_the_sandbox(
    open_one: OpenPlatform, clock: ManualClock, printed: bytes
) -> None:
    backend = Scripted(name="ext.namespaces", clock=clock, answers={"python3 - <<'REPORT'": printed})
    async with open_one(on=backend) as platform:
        with pytest.raises(ProvisionFailed, match="JSON"):
            await creation.create(platform.sandboxes, CreateRequest(profile="profile.sandbox-canary"), ALICE)
        assert not backend.boxes


async def test_a_caller_that_does_not_wait_gets_it_while_it_is_provisioning(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    backend = Scripted(name="ext.namespaces", clock=clock, boot_takes=timedelta(seconds=2))
    async with open_one(on=backend) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE, wait=False)
        assert sandbox.state is State.PROVISIONING
        with pytest.raises(Conflict, match="create is under way"):
            await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        await eventually(lambda: backend.boxes)
        clock.advance(timedelta(seconds=2))
        dependencies = platform.sandboxes
        await eventually(lambda: dependencies.repository.peek(sandbox.id).state is State.READY)  # type: ignore[union-attr]


async def test_a_caller_that_vanishes_leaves_its_create_running(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    backend = Scripted(name="ext.namespaces", clock=clock, boot_takes=timedelta(seconds=2))
    async with open_one(on=backend) as platform:
        asked = asyncio.ensure_future(creation.create(platform.sandboxes, CreateRequest(), ALICE))
        await eventually(lambda: backend.boxes)
        asked.cancel()
        await asyncio.wait([asked])
        clock.advance(timedelta(seconds=2))
        repository = platform.sandboxes.repository
        await eventually(lambda: [s.state for s in repository.living()] == [State.READY])


async def test_many_creates_at_once_all_become_ready(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one() as platform:
        async with asyncio.TaskGroup() as group:
            made = [
                group.create_task(creation.create(platform.sandboxes, CreateRequest(), ALICE))
                for _ in range(40)
            ]
        assert {task.result().state for task in made} == {State.READY}
        assert len(backend.boxes) == 40


async def test_an_operation_that_the_server_s_end_interrupts_leaves_nothing_half_made(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    backend = Scripted(name="ext.namespaces", clock=clock, boot_takes=timedelta(hours=1))
    async with open_one(on=backend) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE, wait=False)
        await eventually(lambda: backend.boxes)
    assert not backend.boxes
    async with open_one(on=backend) as platform:
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.FAILED


async def test_of_those_who_ask_for_a_name_at_once_one_gets_it(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one() as platform:
        wanted = CreateRequest(name="dev")
        asked = [creation.create(platform.sandboxes, wanted, ALICE) for _ in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        (made,) = [one for one in answers if not isinstance(one, BaseException)]
        refused = [one.facts.get("reason") for one in answers if isinstance(one, Conflict)]
        assert refused == ["name_taken"] * 4
        assert set(backend.boxes) == {made.id}
        # Names are an account's own; and one that came to nothing has none.
        assert (await creation.create(platform.sandboxes, wanted, OWNER)).name == "dev"
        backend.fail_next("provision", ProvisionFailed(step="boot", why="no"))
        with pytest.raises(ProvisionFailed) as failed:
            await creation.create(platform.sandboxes, CreateRequest(name="again"), ALICE)
        again = await creation.create(platform.sandboxes, CreateRequest(name="again"), ALICE)
        with pytest.raises(Conflict, match=again.id):
            await disks.recreate(platform.sandboxes, str(failed.value.facts["sandbox_id"]), ALICE)


async def test_the_database_refuses_a_name_whoever_asks(open_one: OpenPlatform) -> None:
    async with open_one() as platform:
        repository = platform.sandboxes.repository
        first, second = [
            await creation.create(platform.sandboxes, CreateRequest(name=name), ALICE) for name in ("a", "b")
        ]
        with pytest.raises(Conflict, match="you have a sandbox a already"):
            await repository.create(replace(first, id=new_id("sbx"), version=0))
        with pytest.raises(Conflict, match="you have a sandbox a already"):
            await repository.amend(
                second.id, kind="sandbox.changed", actor="x", reason="x", decide=lambda _: {"name": "a"}
            )
