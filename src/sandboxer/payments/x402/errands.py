"""Purchases in tasks that the platform owns: a caller that vanishes does not take its payment along."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from sandboxer.kernel.tasks import TaskOwner

T = TypeVar("T")


class Errands:
    def __init__(self, tasks: TaskOwner) -> None:
        self._tasks = tasks

    async def finish(self, work: Coroutine[Any, Any, T], *, name: str) -> T:
        """Its result. Cancelling this wait leaves the work alone."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Nobody may be left to look at it.
        result.add_done_callback(lambda done: None if done.cancelled() else done.exception())

        async def run() -> None:
            try:
                outcome = await work
            except asyncio.CancelledError:
                result.cancel()
                raise
            except BaseException as error:
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(outcome)

        self._tasks.start(run(), name=name)
        return await asyncio.shield(result)
