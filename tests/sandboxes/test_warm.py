"""The warm pool: sandboxes without a record, claimed in one transaction, refilled, and never left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import pytest
from sqlalchemy import Connection

from sandboxer.access.egress.authority import BUNDLE
from sandboxer.access.egress.policy import Ask, Deny
from sandboxer.access.egress.rules import Action, Rule
from sandboxer.backends.contract import Handle, Order, Resources, Trust
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import BackendLost, Conflict
from sandboxer.sandboxes.dependencies import OpenGuest
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.profiles import Sudo
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import creation
from sandboxer.sandboxes.warm import Kind, Rests, WarmPool
from tests.support.clock import eventually
from tests.support.sandboxes import ALICE, BOB, OpenPlatform

POOL = {"warm_pool": {"profile.agent-dev": 2}}


async def test_a_fitting_create_takes_a_warm_sandbox_and_another_is_made(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        waiting = set(backend.boxes)
        sandbox = await creation.create(
            platform.sandboxes, CreateRequest(env={"A": "1"}, labels={"a": "b"}), ALICE
        )
        assert sandbox.id in waiting
        assert sandbox.state is State.READY
        assert "claim" in sandbox.timings_ms
        assert [event.kind for event in await platform.events.page(sandbox.id)] == [
            "sandbox.requested",
            "sandbox.provisioning",
            "sandbox.ready",
        ]
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        assert len(backend.boxes) == 3


async def test_a_create_that_asks_for_something_else_is_made_to_order(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        waiting = set(backend.boxes)
        wanted = CreateRequest(resources=WantedResources(memory_mb=99))
        assert (await creation.create(platform.sandboxes, wanted, ALICE)).id not in waiting


async def test_a_name_that_is_taken_costs_no_warm_sandbox(open_one: OpenPlatform, backend: Scripted) -> None:
    async with open_one(**POOL) as platform:
        wanted = CreateRequest(name="dev")
        await creation.create(platform.sandboxes, wanted, ALICE)
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        waiting = set(backend.boxes)
        with pytest.raises(Conflict):
            await creation.create(platform.sandboxes, wanted, ALICE)
        assert set(backend.boxes) == waiting


async def test_a_warm_sandbox_that_was_refused_to_somebody_is_given_to_the_next(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    wanted = CreateRequest(profile="profile.e2b")

    def refuse(conn: Connection, sandbox_id: str) -> None:
        raise Conflict(why="not now")

    async with open_one(warm_pool={"profile.e2b": 2}) as platform:
        warm, outlets = platform.sandboxes.warm, platform.access.egress.outlets
        await eventually(lambda: warm.count() == 2)
        waiting, over = set(backend.boxes), asyncio.Event()
        # Nothing is made for the pool as long as somebody's create is under way.
        platform.sandboxes.operations.start("sbx_another", "create", over.wait)
        with pytest.raises(Conflict):
            await creation.create(platform.sandboxes, wanted, ALICE, also=refuse)
        over.set()
        assert set(backend.boxes) == waiting
        assert not any(map(outlets.outlet, waiting))
        assert warm.count() == 2
        made = await creation.create(platform.sandboxes, wanted, BOB)
        assert made.id in waiting
        outlet = outlets.outlet(made.id)
        assert outlet is not None
        assert outlet.account == BOB.account


async def test_a_warm_sandbox_whose_way_out_does_not_open_fails_and_leaves_nothing(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    wanted = CreateRequest(profile="profile.e2b")
    async with open_one(warm_pool={"profile.e2b": 1}) as platform:
        warm, outlets = platform.sandboxes.warm, platform.access.egress.outlets
        await eventually(lambda: warm.count() == 1)
        first = await creation.create(platform.sandboxes, wanted, ALICE)
        await eventually(lambda: warm.count() == 1)
        (spare,) = set(backend.boxes) - {first.id}
        backend.die(spare)
        with pytest.raises(BackendLost):
            await creation.create(platform.sandboxes, wanted, ALICE)
        assert spare not in backend.boxes
        record = await platform.sandboxes.repository.find(spare)
        assert record is not None
        assert record.state is State.FAILED
        await outlets.flush()
        assert outlets.outlet(spare) is None


async def test_the_pool_is_emptied_when_the_server_ends_and_others_stay(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 2)
        sandbox = await creation.create(platform.sandboxes, CreateRequest(profile="profile.build"), ALICE)
    assert set(backend.boxes) == {sandbox.id}


async def test_a_warm_sandbox_that_dies_is_replaced_and_its_remains_removed(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(**POOL) as platform:
        warm = platform.sandboxes.warm
        await eventually(lambda: warm.count() == 2)
        dead = next(iter(backend.boxes))
        backend.die(dead)
        await eventually(lambda: dead not in backend.boxes and warm.count() == 2)


async def test_what_every_owner_gets_is_in_a_warm_sandbox_before_anybody_has_it(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    wanted = CreateRequest(profile="profile.e2b")
    async with open_one(warm_pool={"profile.e2b": 1}) as platform:
        warm = platform.sandboxes.warm
        await eventually(lambda: warm.count() == 1)
        # The first may have been made while the platform opened, before there was anything to put in.
        first = await creation.create(platform.sandboxes, wanted, ALICE)
        await eventually(lambda: warm.count() == 1)
        (spare,) = set(backend.boxes) - {first.id}
        trusted = bytes(backend.boxes[spare].disk.find(BUNDLE)[1].data)
        assert warm.claim(first, Sudo.NONE) is None
        made = await creation.create(platform.sandboxes, wanted, ALICE)
        assert made.id == spare
        outlet = platform.access.egress.outlets.outlet(made.id)
        assert outlet is not None
        assert outlet.authority is not None
        assert outlet.authority.certificate_pem in trusted
        assert bytes(backend.boxes[spare].disk.find(BUNDLE)[1].data) == trusted
    async with open_one() as again:
        outlet = again.access.egress.outlets.outlet(spare)
        assert outlet is not None
        assert outlet.authority is not None
        assert outlet.authority.certificate_pem in trusted


class Between:
    """A start hook that comes after the others, before a claimed spare is answered for."""

    def __init__(self, act: Callable[[], Awaitable[object]]) -> None:
        self._act = act

    async def check(self, requested: Sandbox, secret_refs: Sequence[str]) -> None:
        """It refuses nothing."""

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        await self._act()


async def test_a_rule_that_the_account_makes_while_a_warm_sandbox_is_claimed_holds_in_it(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async with open_one(warm_pool={"profile.e2b": 1}) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 1)
        egress, spare = platform.access.egress, set(backend.boxes)
        deny = Rule(action=Action.DENY, host="denied.com")
        change = partial(egress.account.change, ALICE, lambda rules: (deny,), version=None)
        platform.sandboxes.start_hooks.append(Between(change))
        made = await creation.create(platform.sandboxes, CreateRequest(profile="profile.e2b"), ALICE)
        assert {made.id} == spare
        outlet = egress.outlets.outlet(made.id)
        assert outlet is not None
        assert isinstance(outlet.decide(Ask("denied.com", 443, is_tls=True)), Deny)


async def test_a_claim_that_comes_to_nothing_leaves_no_way_out_behind(
    open_one: OpenPlatform, backend: Scripted
) -> None:
    async def refuse() -> None:
        raise Conflict(why="somebody was faster")

    async with open_one(warm_pool={"profile.e2b": 1}) as platform:
        await eventually(lambda: platform.sandboxes.warm.count() == 1)
        outlets, (spare,) = platform.access.egress.outlets, set(backend.boxes)
        platform.sandboxes.start_hooks.append(Between(refuse))
        with pytest.raises(Conflict):
            await creation.create(platform.sandboxes, CreateRequest(profile="profile.e2b"), ALICE)
        await outlets.flush()
        assert outlets.outlet(spare) is None


async def test_a_warm_sandbox_that_could_not_be_prepared_is_removed(backend: Scripted) -> None:
    kind = Kind(backend.name, "base", Resources(vcpus=1, memory_mb=64, disk_mb=64, pids=16), Trust.ZERO)
    pool = WarmPool({backend.name: backend}, {kind: 1})

    async def prepare(order: Order, handle: Handle, sudo: Sudo) -> Rests:
        raise BackendLost(why="it died")

    with pytest.raises(BackendLost):
        await pool.make(kind, prepare)
    assert not backend.boxes
    assert pool.count() == 0
