"""What differs by nature between asyncio and threads. Written by hand in both clients; the rest of the
blocking client is generated (`scripts/generate-sync`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

P = ParamSpec("P")
R = TypeVar("R")


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def beside(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Work that would hold up the loop: files, hashing."""
    return await asyncio.to_thread(work, *args, **kwargs)


async def feed(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Local file reads in the loop: at most one megabyte at a time, from the page cache we just hashed."""
    for chunk in chunks:
        yield chunk


async def received(connection: ClientConnection, timeout_s: float | None) -> str | bytes:
    """The next frame. Nothing is lost by a timeout."""
    async with asyncio.timeout(timeout_s):
        return await connection.recv()
