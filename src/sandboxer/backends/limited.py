"""Puts a time limit on every call to a guest: one that never answers holds up no request and no loop.

Whatever the backend does by itself, this is the one place where the packages above are kept from waiting.
Only what may last by nature has none: the output of a process, its input, a watch, the bytes of a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from sandboxer.backends.guest import (
    Command,
    FileEvent,
    FileInfo,
    Files,
    Guest,
    PassedOnProcess,
    Process,
)
from sandboxer.kernel.errors import BackendLost, host_exhausted
from sandboxer.kernel.values import value_class


@value_class
class CallLimits:
    # A question and its answer: list, look, signal, forget, attach, start.
    ask_s: float = 30.0
    # A connection to a port; the guest itself waits 10 s for it.
    connect_s: float = 30.0
    # The next piece of a file or a listing.
    piece_s: float = 60.0
    # What may go through a whole tree, or wait for the disk: remove, move, the end of a write.
    tree_s: float = 600.0


LIMITS = CallLimits()
M = TypeVar("M", bound=Callable[..., Any])


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[asyncio.Timeout]:
    """Limits the time of a block. Raises BackendLost when it is over, Unavailable when the host has run
    out of something.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            yield limit
    except TimeoutError:
        if not limit.expired():
            raise
        raise BackendLost(why=f"the sandbox gave no answer to {what} within {seconds:g} s") from None
    except OSError as error:
        if reported := host_exhausted(error):
            raise reported from error
        raise


def _asked(name: str, limit: str, what: str = "") -> Callable[..., Any]:
    """Returns a method that passes a call on to the `_inner` one of that name, with one of the limits."""

    async def ask(self: Any, *given: Any, **more: Any) -> Any:
        async with within(getattr(self._limits, limit), what or name):
            return await getattr(self._inner, name)(*given, **more)

    return ask


def _limited(method: M, limit: str, what: str = "") -> M:
    """Does the same for a method of a protocol, and has its type."""
    return cast(M, _asked(method.__name__, limit, what))


class LimitedProcess(PassedOnProcess):
    def __init__(self, process: Process, limits: CallLimits) -> None:
        super().__init__(process)
        self._limits = limits

    resize = _limited(PassedOnProcess.resize, "ask_s")
    signal = _limited(PassedOnProcess.signal, "ask_s")
    kill = _limited(PassedOnProcess.kill, "ask_s")


class LimitedFiles:
    def __init__(self, files: Files, limits: CallLimits) -> None:
        self._inner = files
        self._limits = limits

    stat = _limited(Files.stat, "ask_s")
    list_page = _limited(Files.list_page, "piece_s", "list")
    mkdir = _limited(Files.mkdir, "ask_s")
    move = _limited(Files.move, "tree_s")
    remove = _limited(Files.remove, "tree_s")

    def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        return _pieces(self._inner.list(path, depth=depth), self._limits.piece_s, "list")

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        return _pieces(self._inner.read(path, offset=offset, length=length), self._limits.piece_s, "read")

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        parents: bool = True,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        """The time that whoever gives the chunks takes is not the guest's."""
        loop = asyncio.get_running_loop()
        async with within(self._limits.piece_s, "write") as limit:

            async def given() -> AsyncIterator[bytes]:
                limit.reschedule(None)
                async for chunk in chunks:
                    limit.reschedule(loop.time() + self._limits.piece_s)
                    yield chunk
                    limit.reschedule(None)
                limit.reschedule(loop.time() + self._limits.tree_s)

            return await self._inner.write(
                path, given(), mode=mode, parents=parents, owner=owner, attributes=attributes
            )

    def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        return self._inner.watch(path, recursive=recursive)


class LimitedGuest:
    def __init__(self, guest: Guest, limits: CallLimits) -> None:
        self._inner = guest
        self._limits = limits

    processes = _limited(Guest.processes, "ask_s")
    forget = _limited(Guest.forget, "ask_s")
    connect = _limited(Guest.connect, "connect_s")
    ping = _limited(Guest.ping, "ask_s")

    @property
    def files(self) -> Files:
        inner = self._inner.files
        return _kind(LimitedFiles, type(inner), ("watching",))(inner, self._limits)  # type: ignore[no-any-return]

    async def run(self, command: Command, *, process_id: str | None = None) -> Process:
        async with within(self._limits.ask_s, "run"):
            return LimitedProcess(await self._inner.run(command, process_id=process_id), self._limits)

    async def attach(self, process_id: str) -> Process:
        async with within(self._limits.ask_s, "attach"):
            return LimitedProcess(await self._inner.attach(process_id), self._limits)

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        # As long as the process takes to read it: only the caller's patience ends that.
        await self._inner.feed(process_id, data, close=close, offset=offset)


_OPTIONAL = ("listen", "unlisten", "listen_inside", "unlisten_inside", "connect_socket", "describe")


def limited(guest: Guest, limits: CallLimits | None = None) -> Guest:
    """Returns the guest with limits. It keeps its optional abilities (relays, unix sockets)."""
    kind = _kind(LimitedGuest, type(guest), _OPTIONAL)
    made: Guest = kind(guest, limits or LIMITS)
    return made


_kinds: dict[tuple[type, type], type] = {}


def _kind(plain: type, inner: type, optional: Sequence[str]) -> Any:
    """Returns a class of `plain` with those optional methods that `inner` has: callers ask for them by
    `isinstance`.
    """
    if (known := _kinds.get((plain, inner))) is None:
        had = {name: _asked(name, "connect_s") for name in optional if hasattr(inner, name)}
        known = _kinds[plain, inner] = type(plain.__name__, (plain,), had)
    return known


async def _pieces(source: AsyncIterator[Any], seconds: float, what: str) -> AsyncIterator[Any]:
    try:
        while True:
            async with within(seconds, what):
                try:
                    piece = await anext(source)
                except StopAsyncIteration:
                    return
            yield piece
    finally:
        if (close := getattr(source, "aclose", None)) is not None:
            await close()
