"""Sandboxes that cost sats, on a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from sandboxer.accounts import records as accounts
from sandboxer.accounts.caps import Caps
from sandboxer.money.buckets import credit, open_bucket, settle_account
from sandboxer.money.reconciler import attend_due
from sandboxer.money.records import Bucket
from sandboxer.money.verification import verify
from sandboxer.sandboxes.lifecycle import State
from sandboxer.wiring import Platform
from tests.support.clock import ManualClock, eventually
from tests.support.sandboxes import OpenPlatform

# One sat a second while it runs, whatever its size: sums that can be read.
RATES = {
    "running_msats": 1000,
    "vcpu_msats": 0,
    "memory_gb_msats": 0,
    "disk_gb_msats": 0,
    "frozen_memory_gb_msats": 0,
    "stored_disk_gb_msats": 0,
}


@asynccontextmanager
async def paying(
    open_one: OpenPlatform, *, sats: int = 0, rates: dict[str, int] = RATES, **settings: object
) -> AsyncIterator[Platform]:
    """A platform where Alice pays; its books are whole at the end."""
    # Prices here are a thousand times what they are: what is kept is asked for a second's deposit.
    common: dict[str, object] = {"retention": "30d", "storage_deposit": "1s", "unpaid_kept": "30d"}
    async with open_one(charging=True, pricing={"rates": rates}, **{**common, **settings}) as platform:
        if sats:
            await fund(platform, sats, id="first")
        yield platform
        proof = await platform.store.read(verify)
        assert proof.is_whole, proof


async def fund(platform: Platform, sats: int, *, id: str, account: str = "alice") -> None:
    now = platform.clock.now()

    def write(conn):  # type: ignore[no-untyped-def]
        open_bucket(conn, account, now=now)
        return credit(conn, account, sats, id=f"{account}:{id}", reason="test", now=now)

    await platform.store.write(write)


async def settled(platform: Platform, account: str = "alice") -> Bucket:
    now = platform.clock.now()
    return await platform.store.write(lambda conn: settle_account(conn, account, now=now))


async def until(platform: Platform, sandbox_id: str, state: State) -> None:
    repository = platform.sandboxes.repository
    await eventually(lambda: (found := repository.peek(sandbox_id)) is not None and found.state is state)


async def go_dry(platform: Platform, clock: ManualClock, delay: timedelta) -> None:
    """Time passes and the timer of the buckets notices it, as it would by itself."""
    clock.advance(delay)
    await settled(platform)


async def cap(platform: Platform, caps: Caps, account: str = "alice") -> None:
    now = platform.clock.now()

    def write(conn):  # type: ignore[no-untyped-def]
        accounts.ensure(conn, account, actor="test", now=now)
        return accounts.set_caps(conn, account, caps, actor="test", reason="test", now=now)

    await platform.store.write(write)


async def due_times(platform: Platform) -> None:
    """What the timer of the buckets does by itself when its moment has come."""
    now = platform.clock.now()
    while await platform.store.write(lambda conn: attend_due(conn, now=now)):
        pass
