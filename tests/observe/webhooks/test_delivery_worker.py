"""The outbox and its postman on both databases: nothing is lost, nobody waits for another's dead receiver."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, func, select

from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock, SystemClock
from sandboxer.observe.events import record
from sandboxer.observe.webhooks import delivery_worker, outbox
from sandboxer.observe.webhooks.delivery_worker import AT_ONCE_PER_ACCOUNT
from sandboxer.observe.webhooks.endpoints import find as find_endpoint
from sandboxer.observe.webhooks.lifecycle import DELAYS, DeliveryState
from sandboxer.observe.webhooks.outbox import EventFeed
from sandboxer.observe.webhooks.tables import webhook_attempts, webhook_deliveries
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.store.engine import Store
from tests.observe.webhooks.receivers import GOOD, receiver, status
from tests.support.clock import ManualClock, eventually

SEAL = Seal(b"k" * 32)


class Hurried(SystemClock):
    """Real time, a thousandfold: a day of retries takes a minute and a half."""

    def __init__(self, factor: int = 2000) -> None:
        self._factor = factor
        self._began = datetime.now(UTC)

    def now(self) -> datetime:
        real = super().now()
        return self._began + (real - self._began) * self._factor

    async def sleep(self, delay: timedelta) -> None:
        await super().sleep(delay / self._factor)


def owners(conn: Connection, subjects: object) -> dict[str, str]:
    return {subject: str(subject).partition("-")[0] for subject in subjects}  # type: ignore[attr-defined]


def above(conn: Connection, accounts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Whose names are `parent/child`."""
    return {account: (account.partition("/")[0],) for account in accounts if "/" in account}


@asynccontextmanager
async def opened(store: Store, clock: Clock | None = None) -> AsyncIterator[Webhooks]:
    feeds = [EventFeed(owners)]
    async with Webhooks(
        store, clock or SystemClock(), SEAL, feeds, allow_private=True, above=above
    ).delivering() as webhooks:
        yield webhooks


async def happen(store: Store, subject: str, kind: str = "thing.done", number: int = 1) -> None:
    def write(conn: Connection) -> None:
        for _ in range(number):
            record(conn, subject=subject, kind=kind, actor="t", reason="r", at=datetime.now(UTC))

    await store.write(write)


async def all_deliveries(store: Store) -> list[outbox.Delivery]:
    query = select(webhook_deliveries).order_by(webhook_deliveries.c.seq)
    return await store.read(lambda conn: [outbox._delivery(row) for row in conn.execute(query)])


async def test_a_working_receiver_hears_everything_once_and_in_order(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as there:
        await happen(store, "a-1", number=5)
        await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")
        for number in range(30):
            await happen(store, f"a-{number}")
            await happen(store, "b-1")
        await eventually(lambda: len(there.got) == 30, within_s=20)
        # What was heard is written down a moment later.
        delivered = {DeliveryState.DELIVERED}
        async with asyncio.timeout(20):
            while {one.state for one in await all_deliveries(store)} != delivered:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        # From when it was made, its own only, in order.
        assert len(there.got) == 30
        assert there.ids == sorted(there.ids, key=lambda id: int(id[4:]))


async def test_dead_and_slow_receivers_delay_nobody_else(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as good, receiver(lambda n: None) as mute:
        for _ in range(10):
            await webhooks.create("evil", mute.url, kinds=["thing.*"], hears_all=False, actor="t")
        await webhooks.create("evil", "http://127.0.0.1:1/", kinds=["*"], hears_all=False, actor="t")
        await webhooks.create("a", good.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "evil-1", number=20)
        await happen(store, "a-1", number=20)
        began = asyncio.get_running_loop().time()
        await eventually(lambda: len(good.got) == 20, within_s=10)
        assert asyncio.get_running_loop().time() - began < 10
        # One account keeps a few places busy, however many webhooks it has.
        assert len(mute.got) <= 6


async def test_many_accounts_that_let_us_wait_leave_places_to_those_who_do_not(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as good, receiver(lambda n: None) as mute:
        await webhooks.create("a", good.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "a-1")
        await eventually(lambda: len(good.got) == 1, within_s=10)
        for account in range(9):
            for _ in range(6):
                await webhooks.create(f"evil{account}", mute.url, kinds=["*"], hears_all=False, actor="t")
        for account in range(9):
            await happen(store, f"evil{account}-1")
        await eventually(lambda: len(mute.got) >= 32, within_s=10)
        began = asyncio.get_running_loop().time()
        await happen(store, "a-1", number=5)
        await eventually(lambda: len(good.got) == 6, within_s=14)
        assert asyncio.get_running_loop().time() - began < 5, "it waited for somebody else's receiver"


async def test_keys_cut_from_an_account_have_no_places_of_their_own(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as good, receiver(lambda n: None) as mute:
        for child in range(8):
            for _ in range(6):
                await webhooks.create(f"evil/{child}", mute.url, kinds=["*"], hears_all=False, actor="t")
            await happen(store, f"evil/{child}-1")
        await eventually(lambda: len(mute.got) == AT_ONCE_PER_ACCOUNT, within_s=10)
        await webhooks.create("new", good.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "new-1")
        await eventually(lambda: len(good.got) == 1, within_s=10)
        assert len(mute.got) == AT_ONCE_PER_ACCOUNT


async def test_who_was_never_sent_to_comes_before_a_crowd_that_lets_us_wait(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that takes its time with each message has a place for one, and then others have theirs."""
    monkeypatch.setattr(delivery_worker, "QUICK_MS", 200)
    async with opened(store) as webhooks, receiver() as good, receiver() as slow:
        slow.pause_s = 0.5
        for account in range(12):
            for _ in range(4):
                await webhooks.create(f"evil{account}", slow.url, kinds=["*"], hears_all=False, actor="t")
            await happen(store, f"evil{account}-1", number=30)
        await eventually(lambda: len(slow.got) >= delivery_worker.UNPROVEN, within_s=10)
        began = asyncio.get_running_loop().time()
        await webhooks.create("new", good.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "new-1")
        await eventually(lambda: len(good.got) == 1, within_s=14)
        assert asyncio.get_running_loop().time() - began < 5, "it waited for all messages of somebody else"


async def test_news_without_end_do_not_keep_messages_from_being_sent(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as there:
        await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")

        async def babble() -> None:
            while True:
                await happen(store, "a-1")

        babbling = asyncio.create_task(babble())
        await eventually(lambda: len(there.got) >= 30, within_s=20)
        babbling.cancel()


async def test_a_failing_receiver_is_tried_for_a_day_and_then_given_up_with_reasons(store: Store) -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with opened(store, clock) as webhooks, receiver(lambda n: status(500)) as there:
        await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "a-1")
        for tries in range(1, len(DELAYS) + 2):
            await _until(lambda wanted=tries: len(there.got) >= wanted, clock)
        await eventually(lambda: len(there.got) == len(DELAYS) + 1)
        (dead,) = await _settled(store, DeliveryState.DEAD)
        assert (dead.reason, dead.due_at) == ("answered 500", None)
        tries = await store.read(lambda conn: outbox.attempts_of(conn, [dead.id]))
        assert len(tries[dead.id]) == len(DELAYS) + 1
        assert timedelta(hours=13) < clock.now() - datetime(2026, 1, 1, tzinfo=UTC) < timedelta(hours=36)
        assert len(set(there.ids)) == 1


async def _until(is_so, clock: ManualClock) -> None:
    """Let the clock go in steps until it is so; each step waits for what it woke."""
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.02)
        clock.advance(timedelta(minutes=10))
    raise AssertionError("it never came about")


async def _settled(store: Store, state: DeliveryState) -> list[outbox.Delivery]:
    for _ in range(500):
        found = await all_deliveries(store)
        if all(one.state is state for one in found):
            return found
        await asyncio.sleep(0.01)
    raise AssertionError([one.state for one in found])


async def test_gone_switches_the_webhook_off(store: Store) -> None:
    async with opened(store) as webhooks, receiver(lambda n: status(410)) as there:
        made, _ = await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "a-1", number=3)
        found = await _settled(store, DeliveryState.DEAD) if await _any(store) else []
        assert len(found) == 3
        assert len(there.got) == 1
        endpoint = await store.read(lambda conn: find_endpoint(conn, made.id))
        assert endpoint is not None
        assert (endpoint.enabled, endpoint.disabled_reason) == (False, "answered 410 Gone")


async def _any(store: Store) -> bool:
    for _ in range(500):
        if await all_deliveries(store):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_switched_off_it_hears_nothing_and_on_again_only_what_is_new(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as there:
        made, _ = await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")
        await webhooks.change("a", made.id, actor="t", enabled=False)
        await happen(store, "a-1", number=3)
        await webhooks.change("a", made.id, actor="t", enabled=True)
        await happen(store, "a-new")
        await eventually(lambda: bool(there.got))
        await asyncio.sleep(0.05)
        assert [b"a-new" in one.body for one in there.got] == [True]


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_receivers_do_and_whenever_we_stop_all_is_told_at_least_once(
    store: Store, seed: int
) -> None:
    """Random tempers, and the webhooks are closed and opened again and again in the midst of it."""
    chance = random.Random(seed)
    tempers = [GOOD, GOOD, GOOD, status(500), status(302), b"", b"garbage\r\n\r\n"]
    clock = Hurried()
    reported: set[str] = set()

    async with receiver() as there:

        def answer(number: int) -> bytes:
            said = chance.choice(tempers)
            if said == GOOD:
                reported.add(there.ids[number])
            return said

        there.answer = answer
        async with opened(store, clock) as webhooks:
            for _ in range(2):
                await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")
        for _ in range(6):
            async with opened(store, clock):
                for _ in range(5):
                    await happen(store, f"a-{chance.random()}")
                    await asyncio.sleep(chance.random() * 0.02)
        async with opened(store, clock):
            deadline = asyncio.get_running_loop().time() + 60
            while not await _is_quiet(store):
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.05)
    found = await all_deliveries(store)
    assert len(found) == 60
    delivered = {one.message for one in found if one.state is DeliveryState.DELIVERED}
    # What is called delivered was accepted; what was never accepted is called dead.
    assert delivered <= reported
    assert {one.message for one in found} == set(there.ids)
    count = await store.read(lambda conn: conn.execute(select(func.count(webhook_attempts.c.seq))).scalar())
    assert 60 <= (count or 0) <= len(there.got)


async def _is_quiet(store: Store) -> bool:
    found = await all_deliveries(store)
    return len(found) == 60 and all(one.due_at is None for one in found)


async def test_what_ended_long_ago_is_forgotten(store: Store) -> None:
    async with opened(store) as webhooks, receiver() as there:
        await webhooks.create("a", there.url, kinds=["thing.*"], hears_all=False, actor="t")
        await happen(store, "a-1", number=3)
        await eventually(lambda: len(there.got) == 3)
        await _settled(store, DeliveryState.DELIVERED)
        later = datetime.now(UTC) + outbox.KEPT + timedelta(minutes=1)
        await store.write(lambda conn: outbox.prune(conn, now=later))
        assert await all_deliveries(store) == []


async def test_what_piles_up_behind_a_dead_receiver_is_given_up_in_the_end(store: Store) -> None:
    """It is sent one message every few minutes at best: without an end the outbox would grow for ever."""
    began = datetime.now(UTC)

    def pile_up(conn: Connection) -> None:
        for number in range(3):
            lane, message = outbox.lane_of("a", "whk_dead"), f"m{number}"
            outbox.put(
                conn,
                endpoint="whk_dead",
                account="a",
                lane=lane,
                message=message,
                kind="thing.done",
                body="{}",
                now=began,
            )

    await store.write(pile_up)
    await store.write(lambda conn: outbox.prune(conn, now=began + outbox.WAITS))
    assert {one.state for one in await all_deliveries(store)} == {DeliveryState.PENDING}
    late = began + outbox.WAITS + timedelta(minutes=1)
    await store.write(lambda conn: outbox.prune(conn, now=late))
    assert {(one.state, one.due_at) for one in await all_deliveries(store)} == {(DeliveryState.DEAD, None)}
    await store.write(lambda conn: outbox.prune(conn, now=late + outbox.KEPT + timedelta(minutes=1)))
    assert await all_deliveries(store) == []


async def test_those_above_an_account_hear_of_it_and_those_beside_it_do_not(store: Store) -> None:
    def above(conn: Connection, accounts: object) -> dict[str, tuple[str, ...]]:
        return {"child": ("root", "parent")}

    async with receiver() as there:
        feeds = [EventFeed(owners)]
        async with Webhooks(
            store, SystemClock(), SEAL, feeds, allow_private=True, above=above
        ).delivering() as webhooks:
            for account in ("root", "parent", "child", "sibling"):
                await webhooks.create(account, there.url, kinds=["thing.*"], hears_all=False, actor="t")
            await happen(store, "child-1")
            await happen(store, "root-1")
            deadline = asyncio.get_running_loop().time() + 10
            while len(await all_deliveries(store)) < 4:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.01)
    reported = [(one.account, one.message) for one in await all_deliveries(store)]
    first, second = sorted({message for _, message in reported}, key=lambda id: int(id.partition("_")[2]))
    assert sorted(account for account, message in reported if message == first) == ["child", "parent", "root"]
    assert [account for account, message in reported if message == second] == ["root"]
