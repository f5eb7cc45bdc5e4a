"""Bytes outwards are paid for once, by their sum, however often they are counted; and rules that could not be
read are read again by who counts.
"""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, func, select

from sandboxer.access.egress import records
from sandboxer.access.egress.policy import Ask, Deny
from sandboxer.access.egress.rules import Action, Policy, Rule
from sandboxer.accounts.caps import Caps
from sandboxer.kernel.errors import Unavailable
from sandboxer.money.policy import Use
from sandboxer.money.tables import meter_segments
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.wiring import Platform
from tests.support.charging import RATES, cap, paying, settled, until
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform

# A third of a thousandth of a sat for each byte: sums that do not come out even.
PRICE = {**RATES, "egress_gb_msats": (1 << 30) // 3}


def charged(conn: Connection) -> tuple[int, int]:
    own = meter_segments.c.kind == Use.EGRESS.value
    found = conn.execute(select(func.count(), func.coalesce(func.sum(meter_segments.c.msats), 0)).where(own))
    count, msats = found.one()
    return int(count), int(msats)


async def move(platform: Platform, sandbox_id: str, count: int) -> None:
    outlets = platform.access.egress.outlets
    outlet = outlets.outlet(sandbox_id)
    assert outlet is not None
    outlet.count_sent(count)
    outlet.count_received(10 * count)
    await outlets.flush()


async def test_what_goes_out_is_charged_once_and_what_comes_in_is_not(open_one: OpenPlatform) -> None:
    async with paying(open_one, sats=100_000, rates=PRICE) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(trust="semi"), ALICE)
        before = (await settled(platform)).available
        for count in (1, 1, 1, 3_000_000):
            await move(platform, sandbox.id, count)
        await platform.access.egress.outlets.flush()
        count, msats = await platform.store.read(charged)
        # Rounded up once, not four times: 3,000,003 bytes at a third of a msat.
        assert msats == 1_000_001
        assert count <= 3
        assert before - (await settled(platform)).available == 1000
        await move(platform, sandbox.id, 300)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        await platform.access.egress.outlets.flush()
        assert (await platform.store.read(charged))[1] == 1_000_101
        shown = await platform.access.egress.outlets.kept(sandbox.id)
        assert shown is not None
        assert (shown.sent, shown.received, shown.sealed_key) == (3_000_303, 30_003_030, b"")


async def test_the_owner_pays_nothing_for_bytes(open_one: OpenPlatform) -> None:
    async with paying(open_one, rates=PRICE) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(trust="semi"), OWNER)
        await move(platform, sandbox.id, 5_000)
        assert await platform.store.read(charged) == (0, 0)


async def test_a_cap_stops_one_whose_time_is_free_and_whose_bytes_are_not(open_one: OpenPlatform) -> None:
    rates = {**PRICE, "running_msats": 0}
    async with paying(open_one, sats=10_000, rates=rates) as platform:
        await cap(platform, Caps(per_sandbox_sats=100))
        sandbox = await creation.create(platform.sandboxes, CreateRequest(trust="semi"), ALICE)
        assert not sandbox.terms.is_free
        await move(platform, sandbox.id, 299_000)
        assert (await settled(platform)).posted == 9901
        await move(platform, sandbox.id, 1_000)
        await until(platform, sandbox.id, State.REAPED)
        assert (await settled(platform)).posted == 9900


async def test_free_time_without_a_way_out_stays_free(open_one: OpenPlatform) -> None:
    async with paying(open_one, rates={**PRICE, "running_msats": 0}) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert sandbox.terms.is_free


async def test_rules_that_were_written_and_could_not_be_read_hold_a_moment_later(
    open_one: OpenPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failures = records.wider_policies, [Unavailable(why="the database went away")]

    def fail_once(conn: Connection, account: str) -> list[Policy]:
        if failures:
            raise failures.pop()
        return read(conn, account)

    async with open_one() as platform:
        egress = platform.access.egress
        made = await creation.create(platform.sandboxes, CreateRequest(network="open"), ALICE)
        deny = Rule(action=Action.DENY, host="denied.com")
        monkeypatch.setattr(records, "wider_policies", fail_once)
        with pytest.raises(Unavailable):
            await egress.account.change(ALICE, lambda rules: (deny,), version=None)
        await egress.outlets.flush()
        outlet = egress.outlets.outlet(made.id)
        assert outlet is not None
        assert isinstance(outlet.decide(Ask("denied.com", 443, is_tls=True)), Deny)
