"""Noticing that the client went away, so that what was done for it alone can stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


@asynccontextmanager
async def until_client_goes(receive: Receive) -> AsyncIterator[None]:
    """Runs the body; if the client goes away meanwhile, cancels it and raises ClientGone.

    Use it only after the request's body was read to its end.
    """
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_watch(receive))
            yield
            watching.cancel()
    except BaseExceptionGroup as found:
        raise single(found) from None


async def _watch(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone


def single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """A body fails with one error; the group around it would hide its type."""
    first = group.exceptions[0]
    return single(first) if isinstance(first, BaseExceptionGroup) else first
