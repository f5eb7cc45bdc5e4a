"""The lines to the supervisor of a sandbox that is being saved. gVisor cannot save itself while one of them
is open, so they are cut, nobody dials until it is saved, and whoever read what a process says reads on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sandboxer.backends.guest import Exit, Output, PassedOnProcess, Process, Stream
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import BackendLost

# How long requests may take to end, and gVisor to let go of lines that were cut.
CUT_S = 5.0
T = TypeVar("T")


class Lines:
    """The lines to one sandbox."""

    def __init__(self) -> None:
        # Cleared while it is being saved: nobody dials.
        self.open = asyncio.Event()
        # The same, and before: no request begins.
        self._admits = asyncio.Event()
        self.open.set()
        self._admits.set()
        # How often they were cut.
        self.cuts = 0
        self._under_way = 0
        self._done = asyncio.Event()
        # By our end: what the kernel calls the end that gVisor has.
        self._ends: weakref.WeakKeyDictionary[socket.socket, int] = weakref.WeakKeyDictionary()

    def note(self, ours: socket.socket, theirs: socket.socket) -> None:
        self._ends[ours] = os.fstat(theirs.fileno()).st_ino

    @asynccontextmanager
    async def cut(self) -> AsyncIterator[None]:
        """Ends every line once no short request is under way, and yields when gVisor has none of them; until
        it is left, nobody dials.
        """
        self._admits.clear()
        try:
            await self._quiet()
            self.open.clear()
            self.cuts += 1
            ends = dict(self._ends)
            for ours in ends:
                with suppress(OSError):
                    ours.shutdown(socket.SHUT_RDWR)
            await _gone(frozenset(ends.values()))
            yield
        finally:
            self.open.set()
            self._admits.set()

    @asynccontextmanager
    async def brief(self) -> AsyncIterator[None]:
        """Keeps lines from being cut, for a short request."""
        while not self._admits.is_set():
            await self._admits.wait()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._done.set()

    async def through(self, act: Callable[[], Awaitable[T]]) -> T:
        """Does what may be done twice, and once more for each time that it took too long and was cut off."""
        while True:
            cuts = self.cuts
            try:
                async with self.brief():
                    return await act()
            except BackendLost:
                if cuts == self.cuts:
                    raise

    async def _quiet(self) -> None:
        """Waits until no short request is under way; one that hangs is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CUT_S):
                while self._under_way:
                    self._done.clear()
                    await self._done.wait()


async def _gone(inodes: frozenset[int]) -> None:
    """Waits until nobody holds these sockets any more. The kernel offers nothing to wait on."""
    deadline = time.monotonic() + CUT_S
    while True:
        if not inodes & await asyncio.to_thread(_living) or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.002)


def _living() -> set[int]:
    """Returns the number of every Unix socket of this host."""
    lines = Path("/proc/self/net/unix").read_bytes().splitlines()[1:]
    return {int(line.split()[6]) for line in lines}


class RejoinedProcess(PassedOnProcess):
    """A process that is read on, and written to, when its line was cut because its sandbox was saved."""

    def __init__(self, process: Process, line: SupervisorGuest, lines: Lines, cuts: int) -> None:
        """`cuts`: how often lines had been cut when it was dialled."""
        super().__init__(process)
        self._line = line
        self._lines = lines
        self._cuts = cuts
        self._taken = process.stdin_bytes or 0

    async def output(self) -> AsyncIterator[Output | Exit]:
        had = {Stream.STDOUT: 0, Stream.STDERR: 0}
        while True:
            try:
                async for item in self._inner.output():
                    if isinstance(item, Output):
                        had[item.stream] += len(item.data) + item.dropped
                    yield item
                return
            except BackendLost:
                if self._cuts == self._lines.cuts:
                    raise
            await self._inner.__aexit__(None, None, None)
            await self._lines.through(lambda: self._rejoin(had[Stream.STDOUT], had[Stream.STDERR]))

    async def write_stdin(self, data: bytes) -> None:
        try:
            if self._cuts != self._lines.cuts:
                raise BackendLost(why="its line was cut")
            await self._inner.write_stdin(data)
        except BackendLost:
            if self._cuts == self._lines.cuts:
                raise
            # What of it was taken before is not taken again.
            await self._lines.through(lambda: self._line.feed(self.process_id, data, offset=self._taken))
        self._taken += len(data)

    async def _rejoin(self, stdout_from: int, stderr_from: int) -> None:
        cuts = self._lines.cuts
        self._inner = await self._line.attach(
            self.process_id, stdout_from=stdout_from, stderr_from=stderr_from
        )
        self._cuts = cuts
