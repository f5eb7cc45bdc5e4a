"""Where nothing is charged nobody becomes indebted; who pays later pays from then on only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from sandboxer.accounts import records
from sandboxer.backends.scripted import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Forbidden, InsufficientCredit
from sandboxer.money.statements import actuals
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import boosts, creation, disks, lifetime, locks, pause
from sandboxer.settings import Settings, load_settings
from sandboxer.wiring import Platform
from tests.support.charging import RATES, fund, go_dry, paying, settled, until
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import ALICE, OpenPlatform

PRICES = {"rates": RATES}
# One sat a second while it runs, ten for its disk while it is stopped.
KEPT = {**RATES, "stored_disk_gb_msats": 10_000}


@pytest.mark.parametrize(
    ("words", "is_charged", "is_by_invitation"),
    [
        ({}, False, True),
        ({"SANDBOXER_CHARGING": "auto"}, False, True),
        ({"SANDBOXER_FIXED_RATES": '{"BTC": "100000"}', "SANDBOXER_GRACE_WINDOW": "5m"}, False, True),
        ({"SANDBOXER_PRICING": '{"rates": {"running_msats": 10}}'}, True, False),
        ({"SANDBOXER_FREE_PROFILES": "profile.canary"}, True, False),
        ({"SANDBOXER_GIFT_CARDS": '{"max_cents": 500}'}, True, False),
        ({"SANDBOXER_CHARGING": "true"}, True, False),
        ({"SANDBOXER_CHARGING": "false"}, False, False),
        ({"SANDBOXER_CHARGING": "0", "SANDBOXER_FREE_PROFILES": "profile.canary"}, False, False),
    ],
)
def test_auto_charges_once_prices_or_a_way_to_be_paid_are_set(
    words: dict[str, str], is_charged: bool, is_by_invitation: bool
) -> None:
    settings = load_settings(words)
    assert (settings.is_charged, settings.is_by_invitation) == (is_charged, is_by_invitation)


def test_every_rail_alone_turns_charging_on() -> None:
    network = {"networks": [{"network": "eip155:8453", "pay_to": "0x" + "1" * 40}]}
    assert Settings(x402=network).is_charged
    assert Settings(chains={"LTC": {"rpc": "http://127.0.0.1:9332"}}).is_charged


async def has(platform: Platform) -> tuple[int, int]:
    bucket = await settled(platform)
    return bucket.posted, bucket.debt


async def test_what_began_while_nothing_was_charged_pays_from_its_next_start(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one(charging=False) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
        clock.advance(timedelta(hours=6))
    async with paying(open_one, sats=1000) as platform:
        clock.advance(timedelta(hours=1))
        assert await has(platform) == (1000, 0)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=7))
        assert await has(platform) == (993, 0)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)


async def extend(sandboxes: SandboxDependencies, id: str) -> None:
    await lifetime.change_ttl(sandboxes, id, "1h", ALICE)


async def live_longer(sandboxes: SandboxDependencies, id: str) -> None:
    await lifetime.set_left(sandboxes, id, timedelta(hours=3), ALICE)


async def enlarge(sandboxes: SandboxDependencies, id: str) -> None:
    await boosts.boost(sandboxes, id, ALICE, vcpus=2)


async def recreate(sandboxes: SandboxDependencies, id: str) -> None:
    await disks.recreate(sandboxes, id, ALICE)


async def thaw(sandboxes: SandboxDependencies, id: str) -> None:
    await pause.freeze(sandboxes, id, ALICE)
    await pause.thaw(sandboxes, id, ALICE)


@pytest.mark.parametrize("more", [extend, live_longer, enlarge, recreate, thaw])
async def test_what_began_for_nothing_gets_nothing_more_for_nothing(
    open_one: OpenPlatform, clock: ManualClock, more: Callable[[SandboxDependencies, str], Awaitable[None]]
) -> None:
    async with open_one(charging=False) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="2h"), ALICE)
    async with paying(open_one) as platform:
        with pytest.raises(InsufficientCredit):
            await more(platform.sandboxes, sandbox.id)
    async with paying(open_one, sats=1000) as platform:
        if more is thaw:
            await pause.thaw(platform.sandboxes, sandbox.id, ALICE)
        else:
            await more(platform.sandboxes, sandbox.id)
        clock.advance(timedelta(seconds=7))
        assert await has(platform) == (993, 0)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)


@pytest.mark.parametrize("is_frozen", [False, True])
async def test_what_was_out_of_sats_goes_on_where_nothing_is_charged_any_more(
    open_one: OpenPlatform, clock: ManualClock, is_frozen: bool
) -> None:
    rates = {**RATES, "frozen_memory_gb_msats": 10_000}
    async with paying(open_one, sats=1000, rates=rates, grace_window="10m", grace_cap="10m") as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
        if is_frozen:
            await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        await go_dry(platform, clock, timedelta(seconds=201 if is_frozen else 1001))
        await until(platform, sandbox.id, State.GRACE)
    async with open_one(charging=False) as platform:
        wanted = State.FROZEN if is_frozen else State.READY
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is wanted
        if is_frozen:
            await pause.thaw(platform.sandboxes, sandbox.id, ALICE)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)


@pytest.mark.parametrize("is_destroyed_meanwhile", [False, True])
async def test_what_pays_stops_paying_when_charging_ends_and_owes_nothing_for_the_time_between(
    open_one: OpenPlatform, clock: ManualClock, is_destroyed_meanwhile: bool
) -> None:
    async with paying(open_one, sats=1000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
        clock.advance(timedelta(seconds=10))
        assert await has(platform) == (990, 0)
    async with open_one(charging=False) as platform:
        clock.advance(timedelta(hours=6))
        assert await has(platform) == (990, 0)
        assert (await settled(platform)).flow.rate == 0
        if is_destroyed_meanwhile:
            await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
    async with paying(open_one) as platform:
        assert await has(platform) == (990, 0)
        if not is_destroyed_meanwhile:
            await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
            await pause.thaw(platform.sandboxes, sandbox.id, ALICE)
            clock.advance(timedelta(seconds=5))
            assert await has(platform) == (985, 0)
            await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)


@pytest.mark.parametrize("is_dead", [False, True])
async def test_nothing_is_paid_for_the_time_before_charging_ended_that_nobody_witnessed(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, is_dead: bool
) -> None:
    """What died unseen would have paid until it was found, and nobody gave it back."""
    async with paying(open_one, sats=1000) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
        clock.advance(timedelta(seconds=10))
    if is_dead:
        del backend.boxes[sandbox.id]
    clock.advance(timedelta(seconds=44))
    async with open_one(charging=False) as platform:
        assert await has(platform) == (990, 0)
    async with paying(open_one) as platform:
        assert await has(platform) == (990, 0)


@pytest.mark.parametrize("is_entitled", [False, True])
async def test_time_in_which_nothing_is_charged_is_not_metered(
    open_one: OpenPlatform, clock: ManualClock, is_entitled: bool
) -> None:
    """Of two, one is destroyed meanwhile: it was told to outside billing as running for ever."""
    async with paying(open_one, sats=1000) as platform:
        if is_entitled:
            await entitle(platform)
        gone, stays = [
            await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE) for _ in range(2)
        ]
        clock.advance(timedelta(seconds=10))
    async with open_one(charging=False) as platform:
        clock.advance(timedelta(hours=1))
        await lifetime.destroy(platform.sandboxes, gone.id, ALICE)
    for seconds in (5, 10):
        async with paying(open_one) as platform:
            clock.advance(timedelta(seconds=5))
            assert await used_s(platform, gone.id) == 10
            assert await used_s(platform, stays.id) == 10 + seconds


async def entitle(platform: Platform) -> None:
    now = platform.clock.now()

    def write(conn):  # type: ignore[no-untyped-def]
        records.ensure(conn, "alice", actor="test", now=now)
        until = now + timedelta(days=30)
        records.entitle(conn, "alice", tier=2, until=until, actor="test", reason="bought", now=now)

    await platform.store.write(write)


async def used_s(platform: Platform, sandbox_id: str) -> float:
    now = platform.clock.now()
    lines = await platform.store.read(lambda conn: actuals(conn, "alice", sandbox_id, now=now))
    return sum(line.seconds_us for line in lines) / 1_000_000


async def test_what_paid_before_charging_ended_pays_from_when_it_begins_again(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    """An extension is no step that would take its meter up: it was extended for nothing, for ever."""
    async with paying(open_one, sats=1_000_000, rates=KEPT) as platform:
        runs, stopped = [
            await creation.create(platform.sandboxes, CreateRequest(ttl="1h"), ALICE) for _ in range(2)
        ]
        await pause.stop(platform.sandboxes, stopped.id, ALICE)
    async with open_one(charging=False):
        clock.advance(timedelta(minutes=10))
    for seconds in (7, 14):
        async with paying(open_one, rates=KEPT) as platform:
            await lifetime.change_ttl(platform.sandboxes, runs.id, "1h", ALICE)
            clock.advance(timedelta(seconds=7))
            assert await has(platform) == (1_000_000 - seconds * 11, 0)
            assert (await platform.sandboxes.visible(runs.id, ALICE)).terms == runs.terms


@pytest.mark.parametrize("sats", [0, 1_000_000])
async def test_a_locked_disk_of_when_nothing_was_charged_is_paid_for_or_gone_after_its_time(
    open_one: OpenPlatform, clock: ManualClock, sats: int
) -> None:
    async with open_one(charging=False) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(days=100))
        if sats:
            await fund(platform, sats, id="first")
    async with paying(open_one, rates=KEPT) as platform:
        if sats:
            clock.advance(timedelta(seconds=7))
            assert await has(platform) == (sats - 70, 0)
            clock.advance(timedelta(hours=1))
        else:
            # It is not gone at once: its time begins when somebody should have paid.
            await eventually(lambda: platform.sandboxes.repository.known(sandbox.id).terms.keeps_free)
            assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.STOPPED
            clock.advance(timedelta(days=31))
            await gone(platform, sandbox.id)


async def gone(platform: Platform, sandbox_id: str) -> None:
    await eventually(lambda: platform.sandboxes.repository.peek(sandbox_id) is None)


async def test_a_lock_keeps_no_disk_that_nobody_pays_for(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, sats=1000, rates=KEPT) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        await go_dry(platform, clock, timedelta(minutes=10))
        repository = platform.sandboxes.repository
        await eventually(lambda: repository.known(sandbox.id).terms.keeps_free)
        until_when = repository.known(sandbox.id).expires_at
        # Neither unlocking nor locking again buys more time.
        await locks.unlock(platform.sandboxes, sandbox.id, ALICE)
        await locks.lock(platform.sandboxes, sandbox.id, ALICE)
        assert repository.known(sandbox.id).expires_at == until_when
        # Who pays in time keeps it.
        await fund(platform, 100_000, id="second")
        await eventually(lambda: not repository.known(sandbox.id).terms.keeps_free)
        await go_dry(platform, clock, timedelta(days=40))
        await eventually(lambda: repository.known(sandbox.id).terms.keeps_free)
        clock.advance(timedelta(days=31))
        await gone(platform, sandbox.id)


async def test_a_debt_of_before_is_neither_forgotten_nor_larger_when_charging_begins_again(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with paying(open_one, sats=1000, grace_window="10m", grace_cap="10m") as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
        await go_dry(platform, clock, timedelta(seconds=1050))
        await until(platform, sandbox.id, State.GRACE)
        before = await has(platform)
        assert before == (0, 50)
    async with open_one(charging=False) as platform:
        # It may do what everybody may here, and owes what it owed.
        await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
        assert (await platform.sandboxes.visible(sandbox.id, ALICE)).state is State.READY
        clock.advance(timedelta(hours=3))
        assert await has(platform) == before
    async with paying(open_one, grace_window="10m", grace_cap="10m") as platform:
        with pytest.raises(InsufficientCredit):
            await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await go_dry(platform, clock, timedelta(hours=1))
        await until(platform, sandbox.id, State.REAPED)
        # Grace is credit, and it had that: who owes gets no more of it.
        assert await has(platform) == before
        await fund(platform, 1000, id="second")
        assert (await has(platform))[1] == 0


async def test_charging_that_ends_twice_ends_once(open_one: OpenPlatform, clock: ManualClock) -> None:
    async with paying(open_one, sats=100) as platform:
        await creation.create(platform.sandboxes, CreateRequest(ttl="1d"), ALICE)
    for _ in range(2):
        async with open_one(charging=False) as platform:
            clock.advance(timedelta(hours=6))
            assert await has(platform) == (100, 0)


async def invite(platform: Platform, account: str) -> None:
    now = platform.clock.now()

    def write(conn):  # type: ignore[no-untyped-def]
        records.ensure(conn, account, actor="test", now=now)
        records.invite(conn, account, actor="test", reason="test", now=now)

    await platform.store.write(write)


async def test_only_invited_accounts_run_anything_while_nothing_is_for_sale(open_one: OpenPlatform) -> None:
    stranger = Caller(public_key="eip155:1:0xabc", account="acc_stranger")
    async with open_one(charging="auto") as platform:
        await invite(platform, "alice")
        await platform.authorities.of(stranger)
        made = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        assert made.state is State.READY
        with pytest.raises(Forbidden, match="operator opened") as refused:
            await creation.create(platform.sandboxes, CreateRequest(), stranger)
        assert refused.value.facts["reason"] == "not_invited"
        await lifetime.destroy(platform.sandboxes, made.id, ALICE)


async def test_what_a_stranger_left_does_not_wake_for_nothing(
    open_one: OpenPlatform, clock: ManualClock
) -> None:
    async with open_one(charging="auto", pricing=PRICES, storage_deposit="1s") as platform:
        await fund(platform, 1000, id="paid")
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await pause.stop(platform.sandboxes, sandbox.id, ALICE)
        await platform.authorities.of(ALICE)
    async with open_one(charging="auto") as platform:
        with pytest.raises(Forbidden, match="operator opened"):
            await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        await invite(platform, "alice")
        await pause.resume(platform.sandboxes, sandbox.id, ALICE)
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
