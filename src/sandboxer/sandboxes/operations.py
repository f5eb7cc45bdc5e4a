"""Each sandbox has one operation at a time, which runs in a task of the platform.

An operation goes on when its caller disconnects: freezing half a sandbox would be worse than finishing. Only
a destroy may end an operation early, and only one that makes a sandbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sandboxer.kernel.errors import Conflict, SandboxerError, Unavailable, host_exhausted
from sandboxer.kernel.fairness import HostWork
from sandboxer.kernel.tasks import TaskOwner

log = logging.getLogger(__name__)
T = TypeVar("T")

# These take as long as the sandbox takes to start; a second operation is refused and not kept waiting.
LONG = frozenset({"create", "recreate"})
# These end the processes first, and the record follows a moment later.
ENDING = frozenset({"money", "death", "stop", "destroy"})


@dataclass(eq=False)
class Operation:
    name: str
    result: asyncio.Future[Any]
    task: asyncio.Task[None] | None = None
    # Set when it has ended and the sandbox is free.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Operations:
    def __init__(self, tasks: TaskOwner, work: HostWork | None = None) -> None:
        self._tasks = tasks
        self.work = work or HostWork()
        self._running: dict[str, Operation] = {}

    def running(self, sandbox_id: str) -> str | None:
        """Return the name of the operation under way, for messages."""
        operation = self._running.get(sandbox_id)
        return None if operation is None else operation.name

    async def quiet(self, names: frozenset[str]) -> None:
        """Wait until no operation of these names is under way."""
        while busy := [operation for operation in self._running.values() if operation.name in names]:
            await busy[0].over.wait()

    async def settled(self, name: str, *, within_s: float) -> bool:
        """Wait until the operations of this name that are under way now are over. False: there are none."""
        busy = [operation for operation in self._running.values() if operation.name == name]
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for operation in busy:
                    await operation.over.wait()
        return bool(busy)

    async def free(self, sandbox_id: str) -> None:
        """Wait until nothing is under way on this sandbox."""
        while (operation := self._running.get(sandbox_id)) is not None:
            await operation.over.wait()

    async def ended(self, sandbox_id: str) -> None:
        """Wait until nothing is under way that ends this sandbox's processes; its record then says why."""
        while (operation := self._running.get(sandbox_id)) is not None and operation.name in ENDING:
            await operation.over.wait()

    async def perform(self, sandbox_id: str, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """Run `act` alone on this sandbox and wait for it. Raises Conflict while a long one is under way."""
        while (other := self._running.get(sandbox_id)) is not None:
            if other.name in LONG:
                raise _busy(sandbox_id, other.name)
            await other.over.wait()
        result: T = await self.outcome(self.start(sandbox_id, name, act))
        return result

    def start(self, sandbox_id: str, name: str, act: Callable[[], Awaitable[T]]) -> Operation:
        """Start an operation without waiting for it; the sandbox must be free."""
        if sandbox_id in self._running:
            raise _busy(sandbox_id, self._running[sandbox_id].name)
        operation = Operation(name, asyncio.get_running_loop().create_future())
        # Whoever waits sees the error; an unobserved one was logged in _run.
        operation.result.add_done_callback(_retrieve)
        self._running[sandbox_id] = operation
        operation.task = self._tasks.start(self._run(sandbox_id, operation, act), name=f"{name} {sandbox_id}")
        # Not in `_run`: a task that is cancelled before its first step runs none of it.
        operation.task.add_done_callback(lambda _: self._end(sandbox_id, operation))
        return operation

    async def outcome(self, operation: Operation) -> Any:
        """Return the result of an operation. Cancelling this wait does not cancel the operation."""
        return await asyncio.shield(operation.result)

    async def preempt(self, sandbox_id: str, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """Like `perform`, but cancel a long operation, and join one of the same name."""
        while (other := self._running.get(sandbox_id)) is not None:
            if other.name == name:
                joined: T = await self.outcome(other)
                return joined
            if other.name in LONG and other.task is not None:
                other.task.cancel()
            await other.over.wait()
        result: T = await self.outcome(self.start(sandbox_id, name, act))
        return result

    async def _run(self, sandbox_id: str, operation: Operation, act: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with self.work.turn():
                result = await act()
        except SandboxerError as error:
            log.info("%s of %s failed: %s", operation.name, sandbox_id, error)
            _settle(operation.result, error=error)
        except OSError as error:
            # The host's trouble (a full disk, no descriptors left), not a bug of ours.
            log.exception("%s of %s met the host's limits", operation.name, sandbox_id)
            problem = host_exhausted(error) or Unavailable(
                why=f"the host could not do it: {error.strerror or error}", operation=operation.name
            )
            _settle(operation.result, error=problem)
        except Exception as error:
            # One of the outermost loops: a bug in one operation must not end the platform.
            log.exception("%s of %s broke", operation.name, sandbox_id)
            _settle(operation.result, error=error)
        else:
            if not operation.result.done():
                operation.result.set_result(result)

    def _end(self, sandbox_id: str, operation: Operation) -> None:
        if not operation.result.done():
            why = f"{operation.name} of {sandbox_id} was cut short"
            hint = f"See how it is now (GET /v1/sandboxes/{sandbox_id}), and ask for it again."
            operation.result.set_exception(Conflict(why=why, operation=operation.name, hint=hint))
        del self._running[sandbox_id]
        operation.over.set()


def _settle(result: asyncio.Future[Any], *, error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


def _retrieve(result: asyncio.Future[Any]) -> None:
    if not result.cancelled():
        result.exception()


def _busy(sandbox_id: str, name: str) -> Conflict:
    return Conflict(
        why=f"{sandbox_id} is busy: {name} is under way",
        operation=name,
        hint=f"Try again when that is done; GET /v1/sandboxes/{sandbox_id} says how it is.",
    )
