"""Tells sandboxes where they are: whenever their processes begin anew, and whenever the record changes in
something that they were told.

The host writes, through the supervisor, after the transaction of the change and before whoever asked for it
is answered. A sandbox that cannot be told is none the worse for it: one with an older supervisor has no
description until it is started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from weakref import WeakValueDictionary

from sandboxer.accounts.delegation import accounts_above
from sandboxer.agents.inception.use_cases import Inception
from sandboxer.agents.inside.description import Place, facts_of, files_of
from sandboxer.backends.contract import Handle
from sandboxer.backends.guest import INSIDE, INSIDE_SOCKET, Described
from sandboxer.kernel.errors import NotAvailable, SandboxerError
from sandboxer.kernel.tasks import own_tasks
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.records import Sandbox
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
# Nobody waits longer for a sandbox that does not answer.
PATIENCE_S = 2.0
_PLACES_KEPT = 10_000


class Descriptions:
    def __init__(self, sandboxes: SandboxDependencies, store: Store, inception: Inception) -> None:
        self._sandboxes = sandboxes
        self._inception = inception
        self._store = store
        # What each was told last, and the handle of the processes that were.
        self._told: dict[str, tuple[Handle, dict[str, str]]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # An account stays where it is for good.
        self._places: OrderedDict[str, Place] = OrderedDict()

    async def follow(self, sandbox: Sandbox) -> None:
        await self._inception.follow(sandbox)
        # Told last: what a sandbox reads of is there by then.
        await self.tell(sandbox)

    async def tell(self, sandbox: Sandbox) -> None:
        """Tells a sandbox what its record says now. Never raises."""
        if sandbox.state not in LIVE or sandbox.handle is None:
            self._told.pop(sandbox.id, None)
            return
        try:
            async with asyncio.timeout(PATIENCE_S), self._lock(sandbox.id):
                await self._tell(self._sandboxes.repository.peek(sandbox.id) or sandbox)
        except NotAvailable as error:
            log.debug("%s is not told where it is: %s", sandbox.id, error)
        except (SandboxerError, TimeoutError, OSError) as error:
            log.warning("%s was not told where it is: %s", sandbox.id, error)

    async def _tell(self, sandbox: Sandbox) -> None:
        if sandbox.handle is None:
            return
        place = await self._place(sandbox.account)
        if self._inception.relays.leads(sandbox.id):
            place = replace(place, socket=f"{INSIDE}/{INSIDE_SOCKET}")
        files = files_of(facts_of(sandbox, place))
        wanted = (sandbox.handle, files)
        if self._told.get(sandbox.id) == wanted:
            return
        guest = await self._sandboxes.backend_of(sandbox).guest(sandbox.handle)
        # Remembered even if it fails: a sandbox that cannot be told is not asked again with every change.
        self._told[sandbox.id] = wanted
        if isinstance(guest, Described):
            await guest.describe(files)

    async def tell_all(self) -> None:
        """Tells those that run already: the last server may have ended before it could."""
        for sandbox in self._sandboxes.repository.living():
            await self.tell(sandbox)

    def _lock(self, sandbox_id: str) -> asyncio.Lock:
        """An earlier text must not replace a later one."""
        return self._locks.setdefault(sandbox_id, asyncio.Lock())

    async def _place(self, account: str) -> Place:
        if (known := self._places.get(account)) is None:
            above = await self._store.read(lambda conn: accounts_above(conn, [account]))
            known = self._places[account] = Place(depth=len(above.get(account, ())))
            if len(self._places) > _PLACES_KEPT:
                self._places.popitem(last=False)
        return known


@asynccontextmanager
async def open_descriptions(
    sandboxes: SandboxDependencies, store: Store, inception: Inception
) -> AsyncIterator[Descriptions]:
    descriptions = Descriptions(sandboxes, store, inception)
    sandboxes.repository.after_change(descriptions.follow)
    async with own_tasks() as tasks:
        tasks.start(descriptions.tell_all(), name="descriptions of sandboxes that run already")
        yield descriptions
