"""One operation per sandbox at a time, each in a task that the platform owns.

A caller that vanishes does not take its operation along: freezing half a sandbox because a socket closed
would be worse than finishing. Only a destroy may cut an operation short, and only those that make a sandbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sandboxer.kernel.errors import Conflict, SandboxerError, Unavailable, host_exhausted
from sandboxer.kernel.tasks import TaskOwner

log = logging.getLogger(__name__)
T = TypeVar("T")

# They take as long as the sandbox takes to start; a second operation is refused instead of kept waiting.
LONG = frozenset({"create", "recreate"})
# They end the processes first; what is recorded follows in a moment.
ENDING = frozenset({"money", "death", "stop", "destroy"})


@dataclass(eq=False)
class Operation:
    name: str
    result: asyncio.Future[Any]
    task: asyncio.Task[None] | None = None
    # Set when it has ended and the sandbox is free.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Operations:
    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks
        self._running: dict[str, Operation] = {}

    def running(self, sandbox_id: str) -> str | None:
        """Name of the operation under way, for messages."""
        operation = self._running.get(sandbox_id)
        return None if operation is None else operation.name

    async def quiet(self, names: frozenset[str]) -> None:
        """Returns when no operation of these names is under way."""
        while busy := [operation for operation in self._running.values() if operation.name in names]:
            await busy[0].over.wait()

    async def free(self, sandbox_id: str) -> None:
        """Returns when nothing is under way on this sandbox."""
        while (operation := self._running.get(sandbox_id)) is not None:
            await operation.over.wait()

    async def ended(self, sandbox_id: str) -> None:
        """Returns when nothing is under way that ends this sandbox's processes: its record then says why."""
        while (operation := self._running.get(sandbox_id)) is not None and operation.name in ENDING:
            await operation.over.wait()

    async def perform(self, sandbox_id: str, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """Run `act` alone on this sandbox and wait for it. Raises Conflict while a long one is under way."""
        while (other := self._running.get(sandbox_id)) is not None:
            if other.name in LONG:
                raise Conflict(why=f"{sandbox_id} is busy: {other.name} is under way", operation=other.name)
            await other.over.wait()
        result: T = await self.outcome(self.start(sandbox_id, name, act))
        return result

    def start(self, sandbox_id: str, name: str, act: Callable[[], Awaitable[T]]) -> Operation:
        """Begin at once; the sandbox must be free. For a caller that does not wait."""
        if sandbox_id in self._running:
            raise Conflict(why=f"{sandbox_id} is busy: {self.running(sandbox_id)} is under way")
        operation = Operation(name, asyncio.get_running_loop().create_future())
        # Whoever waits sees the error; an unobserved one was logged in _run.
        operation.result.add_done_callback(_retrieve)
        self._running[sandbox_id] = operation
        operation.task = self._tasks.start(self._run(sandbox_id, operation, act), name=f"{name} {sandbox_id}")
        # Not in `_run`: a task that is cancelled before its first step runs none of it.
        operation.task.add_done_callback(lambda _: self._end(sandbox_id, operation))
        return operation

    async def outcome(self, operation: Operation) -> Any:
        """Its result. Cancelling this wait leaves the operation alone."""
        return await asyncio.shield(operation.result)

    async def preempt(self, sandbox_id: str, name: str, act: Callable[[], Awaitable[T]]) -> T:
        """As `perform`, but cuts a long operation short, and joins one of the same name."""
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
            operation.result.set_exception(Conflict(why=why, operation=operation.name))
        del self._running[sandbox_id]
        operation.over.set()


def _settle(result: asyncio.Future[Any], *, error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


def _retrieve(result: asyncio.Future[Any]) -> None:
    if not result.cancelled():
        result.exception()
