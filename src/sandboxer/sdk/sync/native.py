"""What differs by nature between asyncio and threads. Written by hand in both clients; the rest of the
blocking client is generated (`scripts/generate-sync`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

P = ParamSpec("P")
R = TypeVar("R")


def pause(seconds: float) -> None:
    time.sleep(seconds)


def beside(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Here and now."""
    return work(*args, **kwargs)


def feed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    return chunks


def received(connection: ClientConnection, timeout_s: float | None) -> str | bytes:
    """The next frame. Nothing is lost by a timeout."""
    return connection.recv(timeout=timeout_s)
