"""What runs for suspended accounts is stopped, and nobody else's sandboxes are looked at for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from sandboxer.accounts import records
from sandboxer.accounts.records import Change
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.loops.suspension import SuspensionLoop
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, pause
from sandboxer.wiring import Platform
from tests.support.charging import until
from tests.support.sandboxes import ALICE, OpenPlatform


async def change(platform: Platform, account: str, how: Change) -> None:
    now = platform.clock.now()

    def write(conn):  # type: ignore[no-untyped-def]
        records.ensure(conn, account, actor="test", now=now)
        records.change_status(conn, account, how, actor="test", reason="test", now=now)

    await platform.store.write(write)


@contextmanager
def asked() -> Iterator[list[str]]:
    """What the database is asked, with the values."""
    said: list[str] = []

    def hear(conn: Any, cursor: Any, statement: str, values: object, *more: object) -> None:
        said.append(f"{statement} {values}")

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


async def test_an_event_asks_about_who_it_is_about_only(open_one: OpenPlatform) -> None:
    """It asked about the account of every sandbox there was: 50 ms for each event beside 10,000."""
    async with open_one(charging=False) as platform:
        others = [Caller(public_key=f"k-{n}", account=f"other-{n}") for n in range(5)]
        made = [await creation.create(platform.sandboxes, CreateRequest(), one) for one in others]
        await change(platform, "bad", Change.SUSPEND)
        loop = SuspensionLoop(platform.sandboxes)
        await loop._round()
        with asked() as said:
            loop._hear(frozenset({made[0].id, "money.due"}))
            await loop._round()
            loop._hear(frozenset({"other-0"}))
            await loop._round()
        assert any("other-0" in one for one in said)
        assert not any("other-1" in one for one in said)


async def test_what_was_thawed_for_a_suspended_account_is_stopped_and_for_a_reinstated_one_is_not(
    open_one: OpenPlatform,
) -> None:
    operator = Caller(public_key="k-owner", account="owner", is_owner=True)
    async with open_one(charging=False) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(), ALICE)
        await pause.freeze(platform.sandboxes, sandbox.id, ALICE)
        await change(platform, "alice", Change.SUSPEND)
        loop = SuspensionLoop(platform.sandboxes)
        await loop._round()
        assert platform.sandboxes.repository.known(sandbox.id).state is State.FROZEN
        await change(platform, "alice", Change.REINSTATE)
        await pause.thaw(platform.sandboxes, sandbox.id, operator)
        loop._hear(frozenset({"alice"}))
        await loop._round()
        assert platform.sandboxes.repository.known(sandbox.id).state is State.READY
        await change(platform, "alice", Change.SUSPEND)
        await until(platform, sandbox.id, State.STOPPED)
