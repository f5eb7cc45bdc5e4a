"""Puts a time limit on every call to a guest: one that never answers holds up no request and no loop.

Whatever the backend does by itself, this is the one place where the packages above are kept from waiting.
Only what may last by nature has none: the output of a process, its input, a watch, the bytes of a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandboxer.backends.guest import (
    Command,
    Connection,
    FileEvent,
    FileInfo,
    Files,
    Guest,
    ListingPage,
    Output,
    Process,
    ProcessInfo,
    TerminalSize,
)
from sandboxer.backends.guest import Exit as ProcessExit
from sandboxer.kernel.errors import BackendLost, host_exhausted


@dataclass(frozen=True, slots=True, kw_only=True)
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


class LimitedGuest:
    def __init__(self, guest: Guest, limits: CallLimits) -> None:
        self._guest = guest
        self._limits = limits

    @property
    def files(self) -> Files:
        inner = self._guest.files
        return _kind(LimitedFiles, type(inner), ("watching",))(inner, self._limits)  # type: ignore[no-any-return]

    async def run(self, command: Command, *, process_id: str | None = None) -> Process:
        async with within(self._limits.ask_s, "run"):
            return LimitedProcess(await self._guest.run(command, process_id=process_id), self._limits)

    async def attach(self, process_id: str) -> Process:
        async with within(self._limits.ask_s, "attach"):
            return LimitedProcess(await self._guest.attach(process_id), self._limits)

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        # As long as the process takes to read it: only the caller's patience ends that.
        await self._guest.feed(process_id, data, close=close, offset=offset)

    async def processes(self) -> Sequence[ProcessInfo]:
        async with within(self._limits.ask_s, "processes"):
            return await self._guest.processes()

    async def forget(self, process_id: str) -> None:
        async with within(self._limits.ask_s, "forget"):
            await self._guest.forget(process_id)

    async def connect(self, port: int) -> Connection:
        async with within(self._limits.connect_s, "connect"):
            return await self._guest.connect(port)

    async def ping(self) -> None:
        async with within(self._limits.ask_s, "ping"):
            await self._guest.ping()


class LimitedProcess:
    def __init__(self, process: Process, limits: CallLimits) -> None:
        self._process = process
        self._limits = limits

    @property
    def process_id(self) -> str:
        return self._process.process_id

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin_bytes(self) -> int | None:
        return self._process.stdin_bytes

    async def __aenter__(self) -> Process:
        await self._process.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._process.__aexit__(*exc)

    def output(self) -> AsyncIterator[Output | ProcessExit]:
        return self._process.output()

    async def write_stdin(self, data: bytes) -> None:
        await self._process.write_stdin(data)

    async def close_stdin(self) -> None:
        await self._process.close_stdin()

    async def resize(self, size: TerminalSize) -> None:
        async with within(self._limits.ask_s, "resize"):
            await self._process.resize(size)

    async def signal(self, number: int) -> None:
        async with within(self._limits.ask_s, "signal"):
            await self._process.signal(number)

    async def kill(self) -> None:
        async with within(self._limits.ask_s, "kill"):
            await self._process.kill()


class LimitedFiles:
    def __init__(self, files: Files, limits: CallLimits) -> None:
        self._files = files
        self._limits = limits

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        async with within(self._limits.ask_s, "stat"):
            return await self._files.stat(path, follow=follow)

    def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        return _pieces(self._files.list(path, depth=depth), self._limits.piece_s, "list")

    async def list_page(
        self, path: str, *, depth: int = 1, after: bytes | None = None, limit: int
    ) -> ListingPage:
        async with within(self._limits.piece_s, "list"):
            return await self._files.list_page(path, depth=depth, after=after, limit=limit)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        return _pieces(self._files.read(path, offset=offset, length=length), self._limits.piece_s, "read")

    async def write(
        self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None, parents: bool = True
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

            return await self._files.write(path, given(), mode=mode, parents=parents)

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        async with within(self._limits.ask_s, "mkdir"):
            await self._files.mkdir(path, mode=mode, parents=parents)

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        async with within(self._limits.tree_s, "move"):
            await self._files.move(source, target, overwrite=overwrite)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        async with within(self._limits.tree_s, "remove"):
            await self._files.remove(path, recursive=recursive)

    def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        return self._files.watch(path, recursive=recursive)


def limited(guest: Guest, limits: CallLimits | None = None) -> Guest:
    """Returns the guest with limits. It keeps its optional abilities (relays, unix sockets)."""
    kind = _kind(LimitedGuest, type(guest), ("listen", "unlisten", "connect_socket"))
    made: Guest = kind(guest, limits or LIMITS)
    return made


_kinds: dict[tuple[type, type], type] = {}


def _kind(plain: type, inner: type, optional: Sequence[str]) -> Any:
    """Returns a class of `plain` with those optional methods that `inner` has: callers ask for them by
    `isinstance`.
    """
    known = _kinds.get((plain, inner))
    if known is None:
        had = {name: _asked(name) for name in optional if hasattr(inner, name)}
        known = _kinds[plain, inner] = type(plain.__name__, (plain,), had)
    return known


def _asked(name: str) -> Callable[..., Any]:
    async def ask(self: Any, *given: Any, **more: Any) -> Any:
        inner = self._guest if isinstance(self, LimitedGuest) else self._files
        async with within(self._limits.connect_s, name):
            return await getattr(inner, name)(*given, **more)

    return ask


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
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()
