"""What the keepers of snapshots, images and volumes wait for and look at.

Sleeps until a record names a moment or something happened to an account that keeps some. It compares, and
never relies on having heard of a change, so a crash loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from sqlalchemy import Connection, select

from sandboxer.accounts.authority import KeyState
from sandboxer.accounts.tables import delegated_keys
from sandboxer.artifacts.capping import Capped, Keeping, read_capped
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NotFound
from sandboxer.money.buckets import load_bucket
from sandboxer.money.dryness import Standing
from sandboxer.sandboxes.capping import Reached
from sandboxer.sandboxes.loops.timer import wait_until
from sandboxer.store.engine import Store

RETRY = timedelta(seconds=30)
FAR = datetime.max.replace(tzinfo=UTC)
# The reason of what was spared once because it is locked, though nobody paid.
SPARED = "unpaid_and_locked"
_ENDING = (KeyState.ENDING.value, KeyState.ENDED.value)
K = TypeVar("K", bound=Keeping)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """Of an account that keeps something."""

    standing: Standing
    is_ending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance(Generic[K]):
    """Everything that is not over, and the money behind it, at one moment."""

    living: Sequence[K]
    purses: dict[str, Purse]
    capped: Capped
    now: datetime


class Vigil(Generic[K]):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        living: Callable[[], Awaitable[Sequence[K]]],
        is_usable: Callable[[K], bool],
    ) -> None:
        self._store = store
        self._clock = clock
        self._living = living
        self._is_usable = is_usable
        self._awake = asyncio.Event()
        self._accounts: frozenset[str] = frozenset()
        # When we last looked at caps; None: not since the start.
        self._looked_at: datetime | None = None

    def wake(self) -> None:
        self._awake.set()

    async def run(self, attend: Callable[[], Awaitable[datetime]]) -> None:
        """`attend` does what is due, and says when to look again although nothing happened."""
        leave: Callable[[], None] = self._store.on_commit(self._hear)
        try:
            while True:
                self._awake.clear()
                await wait_until(await attend(), self._awake, self._clock)
        finally:
            leave()

    async def look(self) -> Glance[K]:
        living = await self._living()
        self._accounts = frozenset(one.account for one in living)
        now, since = self._clock.now(), self._looked_at
        usable = [one for one in living if self._is_usable(one)]

        def read(conn: Connection) -> tuple[dict[str, Purse], Capped]:
            return read_purses(conn, self._accounts), read_capped(conn, usable, now=now, since=since)

        purses, capped = await self._store.read(read)
        self._looked_at = capped.seen_until
        return Glance(living=living, purses=purses, capped=capped, now=now)

    async def capped_meanwhile(self) -> Sequence[tuple[K, Reached]]:
        """At the start, before anyone can ask for anything: whose charge ended while nobody was there."""
        usable = [one for one in await self._living() if self._is_usable(one)]
        now = self._clock.now()
        capped = await self._store.read(lambda conn: read_capped(conn, usable, now=now))
        return [(one, capped.reached[one.id]) for one in usable if one.id in capped.reached]

    def _hear(self, topics: frozenset[str]) -> None:
        if topics & self._accounts:
            self._awake.set()


def read_purses(conn: Connection, accounts: Iterable[str]) -> dict[str, Purse]:
    ending = select(delegated_keys.c.account).where(
        delegated_keys.c.account.in_(list(accounts)), delegated_keys.c.state.in_(_ENDING)
    )
    over = {row.account for row in conn.execute(ending)}
    return {one: Purse(standing=_standing(conn, one), is_ending=one in over) for one in accounts}


def _standing(conn: Connection, account: str) -> Standing:
    try:
        return load_bucket(conn, account).health.standing
    except NotFound:
        return Standing.ALIVE
