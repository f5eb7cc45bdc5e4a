"""Watchers gather changes of a folder for clients that ask for them now and then, without holding a stream.

What nobody asks for is forgotten: a watcher ends when it was not asked for a while, with its sandbox, and
with the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from sandboxer.backends.guest import FileEvent
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotFound, SandboxerError, TooManyRequests
from sandboxer.kernel.tasks import TaskOwner
from sandboxer.kernel.values import new_id
from sandboxer.work.files import SandboxFiles

log = logging.getLogger(__name__)
MOST_OF_A_SANDBOX = 16
# The newest changes that one keeps.
MOST_EVENTS = 4096
FORGOTTEN_AFTER_S = 600.0


@dataclass(slots=True)
class _Watcher:
    sandbox_id: str
    account: str
    path: str
    task: asyncio.Task[None]
    asked_at: float
    events: deque[FileEvent] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))


class Watchers:
    def __init__(self, files: SandboxFiles) -> None:
        self._files = files
        self._tasks: TaskOwner | None = None
        self._open: dict[str, _Watcher] = {}

    def begin(self, tasks: TaskOwner) -> None:
        """Says who owns the tasks of watchers, and ends them."""
        self._tasks = tasks

    async def watch(self, sandbox_id: str, caller: Caller, path: str, *, recursive: bool) -> str:
        """Begins to gather changes; returns the id to ask for them by. Raises as a watch does."""
        self._forget_old()
        if sum(one.sandbox_id == sandbox_id for one in self._open.values()) >= MOST_OF_A_SANDBOX:
            raise TooManyRequests(retry_after_s=1, why=f"a sandbox has {MOST_OF_A_SANDBOX} watchers at most")
        source = self._files.watch(sandbox_id, caller, path, recursive=recursive)
        # From here on no change is missed.
        await anext(source)
        watcher_id = new_id("wtc")
        assert self._tasks is not None
        task = self._tasks.start(self._gather(watcher_id, source), name=f"watcher {watcher_id}")
        self._open[watcher_id] = _Watcher(sandbox_id, caller.account, path, task, time.monotonic())
        return watcher_id

    def events(self, sandbox_id: str, caller: Caller, watcher_id: str) -> tuple[str, Sequence[FileEvent]]:
        """Returns the folder, and what has changed in it since it was last asked. Raises NotFound."""
        found = self._find(sandbox_id, caller, watcher_id)
        found.asked_at = time.monotonic()
        events = list(found.events)
        found.events.clear()
        return found.path, events

    def end(self, sandbox_id: str, caller: Caller, watcher_id: str) -> None:
        """Ends a watcher. Raises NotFound."""
        self._find(sandbox_id, caller, watcher_id).task.cancel()
        del self._open[watcher_id]

    async def _gather(self, watcher_id: str, source: AsyncIterator[FileEvent | None]) -> None:
        try:
            async with aclosing(source) as changes:  # type: ignore[type-var]
                async for change in changes:
                    if change is not None:
                        self._open[watcher_id].events.append(change)
        except SandboxerError as error:
            log.info("a watcher ended with its sandbox: %s", error)
        except Exception:
            # An outermost loop: one watcher that breaks must not end what is beside it.
            log.exception("a watcher broke")
        self._open.pop(watcher_id, None)

    def _find(self, sandbox_id: str, caller: Caller, watcher_id: str) -> _Watcher:
        found = self._open.get(watcher_id)
        is_theirs = found is not None and (caller.is_owner or found.account == caller.account)
        if found is None or found.sandbox_id != sandbox_id or not is_theirs:
            raise NotFound(what="watcher", id=watcher_id)
        return found

    def _forget_old(self) -> None:
        now = time.monotonic()
        for watcher_id, one in list(self._open.items()):
            if now - one.asked_at > FORGOTTEN_AFTER_S:
                one.task.cancel()
                del self._open[watcher_id]
