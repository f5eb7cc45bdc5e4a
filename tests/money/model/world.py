"""A platform that lives, dies and comes back, on a host whose clocks lie: the real packages, nothing mocked.

Only `World.advance` moves time, and it tells the oracle first: what ran, at which rate, for how long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from sandboxer.accounts.authority import load_authority
from sandboxer.accounts.caps import NO_CAPS
from sandboxer.accounts.revocation import ending
from sandboxer.artifacts.charges import read_capped
from sandboxer.artifacts.records import PAID
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import Unavailable
from sandboxer.money.heartbeat import BEAT, read_beat
from sandboxer.money.reconciler import attend_due
from sandboxer.sandboxes.charging import rate_now
from sandboxer.sandboxes.demands import is_kept, read_condition, wanted
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.records import Sandbox
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.faults.lying_host import LyingHost

T = TypeVar("T")
log = logging.getLogger(__name__)
# Odd on purpose: fractions of a sat are left over everywhere.
PRICES = {
    "rates": {
        "running_msats": 1237,
        "vcpu_msats": 401,
        "memory_gb_msats": 59,
        "disk_gb_msats": 0,
        "frozen_memory_gb_msats": 311,
        "stored_disk_gb_msats": 13,
    }
}
# A server gives its sign of life more often than this, so it was there all the time.
CHUNK = timedelta(seconds=10)
NUDGE = timedelta(seconds=1)
# A server that has nothing to do until a second later is given so long, and so many looks: on a busy machine
# these take longer, and it gets its turns between them.
PATIENCE_S = 0.25
LOOKS = 40
TRIES = 120


class World:
    def __init__(self, folder: Path, database: str | None, settings: dict[str, Any]) -> None:
        self.host = LyingHost()
        self.backend = Scripted(name="ext.namespaces", clock=self.host.truth)
        self._folder = folder
        self._settings = {
            "durability": "normal",
            "pricing": PRICES,
            "retention": "30d",
            "unpaid_kept": "30d",
            **settings,
        }
        if database is not None:
            self._settings["database"] = database
        self._stop = asyncio.Event()
        self._server: asyncio.Task[None]
        self._is_dead = False
        # So many writes more, and the server dies in the middle of whatever it does.
        self.fuse: int | None = None
        self.platform: Platform
        # Told how much time is about to pass, and whether anything on this host can live through it.
        self.before_time: Callable[[timedelta, bool], Awaitable[None]] = _nothing

    def also(self, settings: dict[str, Any]) -> None:
        self._settings.update(settings)

    async def open(self) -> None:
        self._is_dead, self.fuse = False, None
        chosen = Settings(state_dir=self._folder, **self._settings)
        self._stop = asyncio.Event()
        ready: asyncio.Future[Platform] = asyncio.get_running_loop().create_future()
        # A task of its own: what ends a dying server must not end the driver.
        self._server = asyncio.create_task(self._serve(chosen, ready, self._stop))
        await asyncio.wait((ready, self._server), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await self._server
        self.platform = ready.result()
        self._arm(self.platform)

    async def _serve(self, chosen: Settings, ready: asyncio.Future[Platform], stop: asyncio.Event) -> None:
        backends = {self.backend.name: self.backend}
        async with open_platform(chosen, time_source=self.host, backends=backends) as platform:
            ready.set_result(platform)
            await stop.wait()

    def _arm(self, platform: Platform) -> None:
        real = platform.store.write

        async def write(fn: Callable[[Connection], T]) -> T:
            if self.fuse is not None:
                self.fuse -= 1
                self._is_dead |= self.fuse < 0
            if self._is_dead:
                raise Unavailable(why="the server was killed")
            return await real(fn)

        platform.store.write = write  # type: ignore[method-assign]

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    async def kill(self) -> None:
        """Nothing that it would still like to write is written: no last sign of life, no tidying up."""
        self._is_dead = True
        self._stop.set()
        try:
            await asyncio.wait_for(self._server, 20)
        except (Exception, asyncio.CancelledError) as error:
            # Whatever a dying server stumbles over.
            log.debug("a killed server said: %s", error)

    async def close(self) -> None:
        """As an operator stops it."""
        self._stop.set()
        await self._server
        self._is_dead = True

    async def write(self, act: Callable[[Connection], T]) -> T:
        return await self.platform.store.write(act)

    async def read(self, act: Callable[[Connection], T]) -> T:
        return await self.platform.store.read(act)

    async def advance(self, delay: timedelta, *, is_host_up: bool = True) -> None:
        """Time passes at once, and whatever of the server is there sees only its end."""
        await self.before_time(delay, is_host_up)
        self.host.pass_time(delay)

    async def live(self, delay: timedelta, *, is_obeyed: bool = True) -> None:
        """Time passes while the server does its work. `is_obeyed`: and whatever it does comes to an end."""
        while delay > timedelta(0):
            await self.advance(min(delay, CHUNK))
            await self._wait(self._restless if is_obeyed else self._silent)
            delay -= CHUNK

    async def reboot(self, takes: timedelta) -> None:
        """Of a host on which no server runs any more."""
        await self.before_time(takes, False)
        self.backend.reboot()
        self.host.reboot(takes=takes)

    async def calm(self) -> None:
        """Until money demands nothing more of anything, and no ending key has anything left."""
        await self._wait(self._restless)

    async def until_capped(self) -> None:
        """Until nothing pays beyond a cap, whether or not it could be stopped."""
        await self._wait(self._overcharged)

    async def _wait(self, restless: Callable[[Connection], str]) -> None:
        """Until nothing is said to be left to do."""
        for _ in range(TRIES):
            assert self._is_dead or not self._server.done(), "the server ended by itself"
            if await self._settles(restless):
                return
            # A loop that read the clock before it moved and slept after: it wakes with the next second.
            await self.advance(NUDGE)
        raise AssertionError("it never became calm: " + await self.read(restless))

    async def _settles(self, restless: Callable[[Connection], str]) -> bool:
        """Whether nothing is left within moments. No look is left in the middle, however long it takes."""
        store, looks, ends = self.platform.store, 0, time.monotonic() + PATIENCE_S
        while looks < LOOKS or time.monotonic() < ends:
            while await store.write(partial(attend_due, now=self.platform.clock.now())):
                pass
            if not await store.read(restless):
                return True
            looks += 1
            await asyncio.sleep(0.002)
        return False

    def _silent(self, conn: Connection) -> str:
        beat = read_beat(conn)
        is_heard = beat is not None and beat.moment >= self.platform.clock.now() - BEAT
        return "" if is_heard else "no sign of life"

    def _restless(self, conn: Connection) -> str:
        dependencies, now = self.platform.sandboxes, self.platform.clock.now()
        living = list(dependencies.repository.living())
        if why := self._silent(conn):
            return why
        if any(dependencies.operations.running(one.id) for one in living):
            return "something is under way"
        if ending(conn):
            return "a key is ending"
        if any(one.expires_at is not None and one.expires_at <= now for one in living):
            return "a sandbox has expired"
        # Money demands nothing of what does not run, and to know a cap's moment takes many questions.
        running = [one for one in living if one.state in LIVE]
        for account in {one.account for one in running}:
            mine = [one for one in running if one.account == account]
            condition = read_condition(conn, account, mine, now=now)
            for one in mine:
                if (demand := wanted(one, condition)) is not None:
                    return f"{one.id} is {one.state.value} and should: {demand}"
        return self._past_a_cap(conn, [one for one in living if is_kept(one)], now)

    def _overcharged(self, conn: Connection) -> str:
        living = list(self.platform.sandboxes.repository.living())
        return self._silent(conn) or self._past_a_cap(conn, living, self.platform.clock.now())

    def _past_a_cap(self, conn: Connection, sandboxes: list[Sandbox], now: datetime) -> str:
        """Nothing costs anything from its cap on, though nobody was there then, or its wall is deaf."""
        for one in sandboxes:
            if not rate_now(one) or load_authority(conn, one.account).caps == NO_CAPS:
                continue
            if one.id in read_condition(conn, one.account, [one], now=now).reached:
                return f"{one.id} is {one.state.value} beyond a cap, and pays"
        paying = [
            one for one in self.platform.artifacts.volumes.repository.rows.living(conn) if one.state in PAID
        ]
        beyond = sorted(read_capped(conn, paying, now=now).reached)
        return f"{beyond} are kept beyond a cap, and pay" if beyond else ""


async def _nothing(_: timedelta, __: bool) -> None:
    return None
