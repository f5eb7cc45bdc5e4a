"""Watchers gather changes of a folder for clients that ask for them now and then, without holding a stream.

What nobody asks for is forgotten: a watcher ends when it was not asked for a while, with its sandbox, and
with the server. What it keeps counts for the account, and the oldest goes first.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import cast

from sandboxer.backends.guest import FileEvent
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Budget, Lease
from sandboxer.kernel.errors import NoCapacity, NotFound, OverBudget, SandboxerError, TooManyRequests
from sandboxer.kernel.fairness import BEHALF
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.kernel.values import new_id
from sandboxer.work.files import SandboxFiles

log = logging.getLogger(__name__)
MOST_OF_A_SANDBOX = 16
# The newest changes that one keeps, and what they may take in memory: a path may be 4 KB long.
MOST_EVENTS = 4096
MOST_BYTES = 256 * 1024
FORGOTTEN_AFTER_S = 600.0
# A change in memory, beside its path.
_EVENT = 160


@dataclass(slots=True)
class _Watcher:
    sandbox_id: str
    account: str
    path: str
    lease: Lease
    # When it is forgotten, unless it is asked for before.
    ending: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(FORGOTTEN_AFTER_S))
    events: deque[FileEvent] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None

    def keep(self, event: FileEvent) -> None:
        while self.events and (
            len(self.events) >= MOST_EVENTS or self.lease.wanted + _cost(event) > MOST_BYTES
        ):
            self.lease.shrink(_cost(self.events.popleft()))
        try:
            self.lease.grow_at_once(_cost(event))
        except (OverBudget, NoCapacity):
            # Its account, or all together, hold as much as they may: what is new is missed.
            return
        self.events.append(event)

    def take(self) -> Sequence[FileEvent]:
        events = list(self.events)
        self.events.clear()
        self.lease.shrink(self.lease.wanted)
        return events


def _cost(event: FileEvent) -> int:
    return _EVENT + sys.getsizeof(event.path)


class Watchers:
    def __init__(self, files: SandboxFiles, budget: Budget) -> None:
        self._files = files
        self._budget = budget
        self._tasks: TaskOwner | None = None
        self._open: dict[str, _Watcher] = {}

    def begin(self, tasks: TaskOwner) -> None:
        """Says who owns the tasks of watchers, and ends them."""
        self._tasks = tasks

    async def watch(self, sandbox_id: str, caller: Caller, path: str, *, recursive: bool) -> str:
        """Begins to gather changes; returns the id to ask for them by. Raises as a watch does."""
        self._demand_room(sandbox_id)
        source = self._files.watch(sandbox_id, caller, path, recursive=recursive)
        # From here on no change is missed.
        await anext(source)
        try:
            # Others may have begun meanwhile.
            self._demand_room(sandbox_id)
        except TooManyRequests:
            await cast(AsyncGenerator[FileEvent | None], source).aclose()
            raise
        watcher_id, behalf = new_id("wtc"), BEHALF.get()
        lease = self._budget.lease(caller.account if behalf is None else behalf.account)
        watcher = self._open[watcher_id] = _Watcher(sandbox_id, caller.account, path, lease)
        assert self._tasks is not None
        watcher.task = self._tasks.start(
            self._gather(watcher_id, watcher, source), name=f"watcher {watcher_id}"
        )
        return watcher_id

    async def events(
        self, sandbox_id: str, caller: Caller, watcher_id: str
    ) -> tuple[str, Sequence[FileEvent]]:
        """Returns the folder, and what has changed in it since it was last asked. Raises NotFound."""
        found = self._find(sandbox_id, caller, watcher_id)
        if not found.ending.expired():
            found.ending.reschedule(asyncio.get_running_loop().time() + FORGOTTEN_AFTER_S)
        # Whoever changes a file and asks at once would be too early: changes come by a line of their own, and
        # by the time that another question was answered from inside, they have come.
        with suppress(SandboxerError):
            await self._files.stat(sandbox_id, caller, found.path)
        return found.path, found.take()

    def end(self, sandbox_id: str, caller: Caller, watcher_id: str) -> None:
        """Ends a watcher. Raises NotFound."""
        found = self._find(sandbox_id, caller, watcher_id)
        del self._open[watcher_id]
        if found.task is not None:
            found.task.cancel()

    async def _gather(
        self, watcher_id: str, watcher: _Watcher, source: AsyncIterator[FileEvent | None]
    ) -> None:
        try:
            async with watcher.ending, aclosing(cast(AsyncGenerator[FileEvent | None], source)) as changes:
                async for change in changes:
                    if change is not None:
                        watcher.keep(change)
        except TimeoutError:
            log.info("a watcher ended: nobody asked for what it saw")
        except SandboxerError as error:
            log.info("a watcher ended with its sandbox: %s", error)
        except Exception:
            # An outermost loop: one watcher that breaks must not end what is beside it.
            log.exception("a watcher broke")
        finally:
            watcher.lease.close()
            self._open.pop(watcher_id, None)

    def _demand_room(self, sandbox_id: str) -> None:
        if sum(one.sandbox_id == sandbox_id for one in self._open.values()) >= MOST_OF_A_SANDBOX:
            raise TooManyRequests(retry_after_s=1, why=f"a sandbox has {MOST_OF_A_SANDBOX} watchers at most")

    def _find(self, sandbox_id: str, caller: Caller, watcher_id: str) -> _Watcher:
        found = self._open.get(watcher_id)
        is_theirs = found is not None and (caller.is_owner or found.account == caller.account)
        if found is None or found.sandbox_id != sandbox_id or not is_theirs:
            raise NotFound(what="watcher", id=watcher_id, hint="Watch the folder again.")
        return found
