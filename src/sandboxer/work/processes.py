"""Background processes run on after the request that started them and keep their last output. A terminal is
one of them.

A time limit given at the start is stored beside the sandbox, so it holds across restarts of the server
(`Overdue` enforces it).
"""

from __future__ import annotations

import asyncio
import signal as signals
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from sandboxer.backends.guest import (
    EndReason,
    Exit,
    Guest,
    Output,
    Process,
    ProcessInfo,
    Stream,
    TerminalSize,
)
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import BackendLost, InvalidRequest, or_not_found
from sandboxer.kernel.values import new_id, value_class
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.exec import Overdue, Started, kill_quietly
from sandboxer.work.lines import EXEC_TAG, TERMINAL_TAG, Lines, Wanted, launch

# The guest keeps 256 KiB of each stream; one that never pauses is left after that.
MOST_KEPT_BYTES = 2 * 256 * 1024


@value_class
class Piece:
    """Some output and the positions of both streams after it. Passing the positions back continues from
    there.
    """

    output: Output
    stdout_at: int
    stderr_at: int


class Processes:
    def __init__(self, lines: Lines, clock: Clock, overdue: Overdue) -> None:
        self._lines = lines
        self._clock = clock
        self._overdue = overdue

    async def start(
        self,
        sandbox_id: str,
        caller: Caller,
        wanted: Wanted,
        *,
        tag: str = "",
        has_stdin: bool = False,
        timeout_s: float | None = None,
    ) -> ProcessInfo:
        started = self._launched(
            sandbox_id, caller, wanted, tag=tag, has_stdin=has_stdin, timeout_s=timeout_s
        )
        async with started as (guest, process):
            return await self._find(guest, process.process_id)

    async def run(
        self,
        sandbox_id: str,
        caller: Caller,
        wanted: Wanted,
        *,
        tag: str = "",
        has_stdin: bool = False,
        terminal: TerminalSize | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Started | Output | Exit]:
        """Does the same as `start` and `output` in one: yields Started, what it prints, and its Exit. If
        nobody reads any more, the process goes on.
        """
        started = self._launched(
            sandbox_id,
            caller,
            wanted,
            tag=tag,
            has_stdin=has_stdin,
            terminal=terminal,
            timeout_s=timeout_s,
        )
        async with started as (_, process):
            yield Started(process_id=process.process_id, pid=process.pid)
            async for item in process.output():
                if isinstance(item, Exit):
                    yield self._ended(process.process_id, item)
                    return
                yield item
        raise BackendLost(why="the process's output ended without its exit")

    @asynccontextmanager
    async def _launched(
        self,
        sandbox_id: str,
        caller: Caller,
        wanted: Wanted,
        *,
        tag: str,
        has_stdin: bool,
        terminal: TerminalSize | None = None,
        timeout_s: float | None,
    ) -> AsyncIterator[tuple[Guest, Process]]:
        """Starts a process, with its time limit, and stays connected to it for a while."""
        deadline = None if timeout_s is None else self._clock.now().timestamp() + timeout_s
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            process = await launch(
                line.guest,
                wanted,
                line.env,
                tag=tag,
                has_stdin=has_stdin,
                terminal=terminal,
                deadline=deadline,
                process_id=new_id("prc"),
            )
            async with process:
                if deadline is not None:
                    self._overdue.watch(sandbox_id, process.process_id, deadline)
                yield line.guest, process

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[ProcessInfo]:
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            shown = [self._shown(info) for info in await _background(line.guest)]
        return sorted(shown, key=lambda info: info.started_at)

    async def get(self, sandbox_id: str, caller: Caller, process_id: str) -> ProcessInfo:
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            return await self._find(line.guest, process_id)

    async def output(
        self,
        sandbox_id: str,
        caller: Caller,
        process_id: str,
        *,
        stdout_from: int = 0,
        stderr_from: int = 0,
        follow: bool = True,
    ) -> AsyncIterator[Piece | Exit]:
        """Yields what is still kept of the output from the given positions on, then what follows, then its
        Exit. Without `follow` it ends after what is kept.
        """
        at = {Stream.STDOUT: 0, Stream.STDERR: 0}
        start = {Stream.STDOUT: stdout_from, Stream.STDERR: stderr_from}
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            await self._find(line.guest, process_id)
            async with await line.guest.attach(process_id) as process:
                async for item in process.output() if follow else _kept(process, line.guest):
                    if isinstance(item, Exit):
                        yield self._ended(process_id, item)
                        return
                    fresh = _after(item, at[item.stream], start[item.stream])
                    at[item.stream] += item.dropped + len(item.data)
                    if fresh is not None:
                        yield Piece(output=fresh, stdout_at=at[Stream.STDOUT], stderr_at=at[Stream.STDERR])
        if follow:
            raise BackendLost(why="the process's output ended without its exit")

    async def write_stdin(
        self,
        sandbox_id: str,
        caller: Caller,
        process_id: str,
        data: bytes,
        *,
        close: bool = False,
        offset: int | None = None,
    ) -> None:
        """Returns when the process's stdin has accepted everything; waits while it does not read.

        Raises StdinNotTaken if it ended, or closed its stdin, before that.
        """
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            await self._find(line.guest, process_id)
            await line.guest.feed(process_id, data, close=close, offset=offset)

    async def signal(
        self, sandbox_id: str, caller: Caller, process_id: str, name: str, *, tree: bool = False
    ) -> None:
        """Sends a signal. A process that has ended already counts as success."""
        if tree and name != "KILL":
            raise InvalidRequest(field="tree", why="only KILL can be sent to everything a process started")
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            if (await self._find(line.guest, process_id)).exit is not None:
                return
            async with await line.guest.attach(process_id) as process:
                if tree:
                    await process.kill()
                else:
                    await process.signal(signals.Signals[f"SIG{name}"])

    async def resize(self, sandbox_id: str, caller: Caller, process_id: str, size: TerminalSize) -> None:
        """Resizes the terminal of a process that has one."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            if not (await self._find(line.guest, process_id)).has_terminal:
                raise InvalidRequest(field="pty", why="this process has no terminal")
            async with await line.guest.attach(process_id) as process:
                await process.resize(size)

    async def wait(
        self, sandbox_id: str, caller: Caller, process_id: str, *, timeout_s: float
    ) -> ProcessInfo:
        """Returns the state of the process once it has ended, or after `timeout_s`, whichever comes first."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            info = await self._find(line.guest, process_id)
            if info.exit is not None or timeout_s <= 0:
                return info
            try:
                async with asyncio.timeout(timeout_s), await line.guest.attach(process_id) as process:
                    async for item in process.output():
                        if isinstance(item, Exit):
                            return replace(info, exit=self._ended(process_id, item))
            except TimeoutError:
                return info
        raise BackendLost(why="the process's output ended without its exit")

    async def end(self, sandbox_id: str, caller: Caller, process_id: str) -> None:
        """Kills everything the process started, and deletes its output."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            info = await self._find(line.guest, process_id)
            await end_process(line.guest, info)

    async def _find(self, guest: Guest, process_id: str) -> ProcessInfo:
        return self._shown(_pick(await _background(guest), process_id, "process"))

    def _shown(self, info: ProcessInfo) -> ProcessInfo:
        return info if info.exit is None else replace(info, exit=self._ended(info.process_id, info.exit))

    def _ended(self, process_id: str, exit_: Exit) -> Exit:
        timed_out = exit_.signal is not None and self._overdue.killed(process_id)
        return replace(exit_, reason=EndReason.TIMED_OUT) if timed_out else exit_


async def _background(guest: Guest) -> list[ProcessInfo]:
    return [info for info in await guest.processes() if info.tag not in (EXEC_TAG, TERMINAL_TAG)]


async def _terminals(guest: Guest) -> list[ProcessInfo]:
    return [info for info in await guest.processes() if info.tag == TERMINAL_TAG]


def _pick(infos: Sequence[ProcessInfo], process_id: str, what: str) -> ProcessInfo:
    return or_not_found(
        next((info for info in infos if info.process_id == process_id), None), what=what, id=process_id
    )


async def end_process(guest: Guest, info: ProcessInfo) -> None:
    if info.exit is None:
        async with await guest.attach(info.process_id) as process:
            await kill_quietly(process)
            async for item in process.output():
                if isinstance(item, Exit):
                    break
    await guest.forget(info.process_id)


async def _kept(process: Process, guest: Guest) -> AsyncIterator[Output | Exit]:
    """Yields what is kept of the output. The guest has sent all of it when it answers a question that was
    asked after the last piece, twice: one answer may overtake a piece on its way.
    """
    output, answers, size = aiter(process.output()), 0, 0
    coming: asyncio.Future[Output | Exit] = asyncio.ensure_future(anext(output))
    try:
        while answers < 2 and size < MOST_KEPT_BYTES:
            await guest.ping()
            # What has arrived is read in the next turn of the loop.
            await asyncio.sleep(0)
            answers += 1
            if not coming.done():
                continue
            item = coming.result()
            yield item
            if isinstance(item, Exit):
                return
            answers, size = 0, size + len(item.data)
            coming = asyncio.ensure_future(anext(output))
    finally:
        coming.cancel()
        await asyncio.wait([coming])


def _after(output: Output, at: int, start: int) -> Output | None:
    """Returns the part of `output` (which begins at `at`) that lies after `start`."""
    if (begin := at + output.dropped) >= start:
        return Output(output.stream, output.data, begin - max(at, start))
    fresh = output.data[start - begin :]
    return Output(output.stream, fresh) if fresh else None


TERMINAL_ENV = {"TERM": "xterm-256color"}


class Terminals:
    """A terminal is a program on a pseudo terminal that survives its viewer and can be attached to again."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    @asynccontextmanager
    async def open(
        self, sandbox_id: str, caller: Caller, wanted: Wanted, size: TerminalSize
    ) -> AsyncIterator[Process]:
        """Starts a program on a new terminal. Leaving detaches; the program goes on."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.TERMINAL) as line:
            process = await launch(
                line.guest,
                wanted,
                {**TERMINAL_ENV, **line.env},
                tag=TERMINAL_TAG,
                has_stdin=True,
                terminal=size,
                process_id=new_id("trm"),
            )
            async with process:
                yield process

    @asynccontextmanager
    async def attach(
        self, sandbox_id: str, caller: Caller, terminal_id: str, size: TerminalSize | None
    ) -> AsyncIterator[Process]:
        """Attaches to an existing terminal; what is kept of its output comes first."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.TERMINAL) as line:
            info = _pick(await _terminals(line.guest), terminal_id, "terminal")
            async with await line.guest.attach(terminal_id) as process:
                if size is not None and info.exit is None:
                    await process.resize(size)
                yield process

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[ProcessInfo]:
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            return sorted(await _terminals(line.guest), key=lambda info: info.started_at)

    async def end(self, sandbox_id: str, caller: Caller, terminal_id: str) -> None:
        """Kills what runs in the terminal and deletes its output."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.TERMINAL) as line:
            await end_process(line.guest, _pick(await _terminals(line.guest), terminal_id, "terminal"))
