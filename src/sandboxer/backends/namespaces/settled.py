"""Waiting for something that must come to its end even when the waiter is cancelled: what a half-done step
has made could otherwise appear after it was cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; a cancellation is raised only after it has ended."""
    return await _settle(asyncio.ensure_future(work))


async def in_thread(executor: Executor, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`act` in a thread, which cannot be stopped: the same promise."""
    return await _settle(asyncio.get_running_loop().run_in_executor(executor, lambda: act(*args, **kwargs)))


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
