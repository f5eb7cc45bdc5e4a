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
from sandboxer.agents.inception.relays import AGAIN_S, LONGEST_S, PATIENCE_S, each
from sandboxer.agents.inception.use_cases import Inception
from sandboxer.agents.inside.description import Place, facts_of, files_of
from sandboxer.backends.contract import Handle
from sandboxer.backends.guest import INSIDE, INSIDE_SOCKET, Described
from sandboxer.kernel.errors import NotAvailable, SandboxerError
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE
from sandboxer.sandboxes.records import Sandbox
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
_PLACES_KEPT = 10_000


class Descriptions:
    def __init__(
        self, sandboxes: SandboxDependencies, store: Store, inception: Inception, tasks: TaskOwner
    ) -> None:
        self._sandboxes = sandboxes
        self._tasks = tasks
        # Those that did not answer and are asked again, with the handle of the processes that did not.
        self._untold: dict[str, Handle] = {}
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
        """Tells a sandbox what its record says now. Never raises. One that does not answer is told once it
        does, and keeps nobody waiting again until then.
        """
        if sandbox.handle is not None and self._untold.get(sandbox.id) == sandbox.handle:
            return
        if await self._is_told(sandbox) or sandbox.handle is None:
            return
        is_asked_already = sandbox.id in self._untold
        self._untold[sandbox.id] = sandbox.handle
        if not is_asked_already:
            self._tasks.start(self._tell_later(sandbox.id), name=f"description of {sandbox.id}")

    async def _tell_later(self, sandbox_id: str) -> None:
        try:
            pause_s, is_told = AGAIN_S, False
            while not is_told:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_S)
                sandbox = self._sandboxes.repository.peek(sandbox_id)
                is_told = sandbox is None or await self._is_told(sandbox)
        except Exception:
            # A fault in telling one sandbox must not end the server for all others.
            log.exception("%s is not told where it is", sandbox_id)
        finally:
            del self._untold[sandbox_id]

    async def _is_told(self, sandbox: Sandbox) -> bool:
        """Tells it, and returns whether that needs no other try."""
        if sandbox.state not in LIVE or sandbox.handle is None:
            self._told.pop(sandbox.id, None)
            return True
        try:
            async with asyncio.timeout(PATIENCE_S), self._lock(sandbox.id):
                await self._tell(self._sandboxes.repository.peek(sandbox.id) or sandbox)
        except NotAvailable as error:
            log.debug("%s is not told where it is: %s", sandbox.id, error)
        except TimeoutError:
            log.warning("%s does not answer, and was not told where it is yet", sandbox.id)
            self._told.pop(sandbox.id, None)
            return False
        except (SandboxerError, OSError) as error:
            log.warning("%s was not told where it is: %s", sandbox.id, error)
        return True

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
        await each(list(self._sandboxes.repository.living()), self.tell)

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
    async with own_tasks() as tasks:
        descriptions = Descriptions(sandboxes, store, inception, tasks)
        sandboxes.repository.after_change(descriptions.follow)
        tasks.start(descriptions.tell_all(), name="descriptions of sandboxes that run already")
        yield descriptions
