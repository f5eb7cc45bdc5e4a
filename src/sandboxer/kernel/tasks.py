"""Gives tasks an owner: everything started here ends when the owner's block ends.

Also waits for work that must finish even when the waiter is cancelled: what a half-done step has made could
otherwise appear after it was cleaned up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from sandboxer.kernel.fairness import counted

T = TypeVar("T")
P = ParamSpec("P")


class TaskOwner:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Runs `work` beside the owner. If it raises, the owner's block ends with that error."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()


@asynccontextmanager
async def own_tasks() -> AsyncIterator[TaskOwner]:
    """Yields an owner of tasks. On leaving, what still runs is cancelled and awaited. An error of the
    block is raised as it is.
    """
    error: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        owner = TaskOwner(group)
        try:
            yield owner
        except BaseException as raised:
            # Kept from the group, which would wrap it; raised below.
            error = raised
        finally:
            owner.cancel_all()
    if error is not None:
        raise error


class Changes:
    """Wakes those who wait until something is so. Things are told apart by name."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def tell(self, name: str) -> None:
        """Says that the thing of this name has changed."""
        for changed in self._waiting.get(name, ()):
            changed.set()

    async def until(self, name: str, is_so: Callable[[], Awaitable[bool]], *, timeout_s: float) -> None:
        """Returns when it is so, which is asked again after every change, or when the time is over."""
        changed = asyncio.Event()
        self._waiting.setdefault(name, set()).add(changed)
        try:
            async with asyncio.timeout(timeout_s):
                while not await is_so():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return
        finally:
            self._waiting[name].discard(changed)
            if not self._waiting[name]:
                del self._waiting[name]


async def beside(act: Callable[[], None]) -> None:
    """Runs `act` in a thread that nobody waits for at the end: it may hang in the kernel for ever."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            act()
        except BaseException as error:
            _tell(loop, done, error)
        else:
            _tell(loop, done, None)

    threading.Thread(target=run, name="beside", daemon=True).start()
    await done


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], error: BaseException | None) -> None:
    def settle() -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    # The loop may be closed by now.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. A cancellation is raised only after it has ended."""
    return await _settle(asyncio.ensure_future(work))


async def together(*works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Runs all of them beside each other and returns their results. If one raises, the others are cancelled
    and awaited, and its error is raised as it is.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def in_thread(executor: Executor, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `act` in a thread, which cannot be stopped. A cancellation is raised only after it has ended."""
    run = counted(lambda: act(*args, **kwargs))
    return await _settle(asyncio.get_running_loop().run_in_executor(executor, run))


async def _settle(future: asyncio.Future[T]) -> T:
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Its own failure is of no interest to someone who is leaving.
        if not future.cancelled():
            future.exception()
        raise cancelled
    return future.result()
