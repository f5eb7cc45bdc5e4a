"""Terminals: a program on a pseudo terminal that survives its viewer, and can be attached to again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sandboxer.backends.guest import Process, ProcessInfo, TerminalSize
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.ids import new_id
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.work.commands import TERMINAL_TAG, Wanted, launch
from sandboxer.work.lines import Lines
from sandboxer.work.processes import end_process

TERMINAL_ENV = {"TERM": "xterm-256color"}


class Terminals:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    @asynccontextmanager
    async def open(
        self, sandbox_id: str, caller: Caller, wanted: Wanted, size: TerminalSize
    ) -> AsyncIterator[Process]:
        """Start a program on a new terminal. Leaving detaches; the program goes on."""
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
        """An existing one: what is kept of its output comes first."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.TERMINAL) as line:
            info = _pick(await line.guest.processes(), terminal_id)
            async with await line.guest.attach(terminal_id) as process:
                if size is not None and info.exit is None:
                    await process.resize(size)
                yield process

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[ProcessInfo]:
        async with self._lines.open(sandbox_id, caller, ActivityKind.PROCESSES) as line:
            infos = [i for i in await line.guest.processes() if i.tag == TERMINAL_TAG]
        return sorted(infos, key=lambda info: info.started_at)

    async def end(self, sandbox_id: str, caller: Caller, terminal_id: str) -> None:
        """Kill what runs in it and forget it."""
        async with self._lines.open(sandbox_id, caller, ActivityKind.TERMINAL) as line:
            await end_process(line.guest, _pick(await line.guest.processes(), terminal_id))


def _pick(infos: Sequence[ProcessInfo], terminal_id: str) -> ProcessInfo:
    for info in infos:
        if info.process_id == terminal_id and info.tag == TERMINAL_TAG:
            return info
    raise NotFound(what="terminal", id=terminal_id)
