"""Reaches what runs behind gVisor, whose kernel is a process of its own, by that process's control socket.

No socket of the host can be held inside: a saved sandbox could not be restored with it. So the supervisor
listens on a port of the kernel that gVisor is, and every line to it is a socket whose other end is handed to
gVisor with the request to lead it there. Whoever runs inside can dial that port too; what they lack is the
secret.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.guest import Command, Connection, Process, ProcessInfo
from sandboxer.backends.launch import Limits, LimitsOf
from sandboxer.backends.oci.bundle import DOOR_PORT
from sandboxer.backends.oci.lines import Lines, RejoinedProcess
from sandboxer.backends.oci.starter import OciSettings
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.backends.supervisor.ends import LimitedGuest
from sandboxer.backends.supervisor.line import Gate
from sandboxer.backends.supervisor.marked import marked, unmarked
from sandboxer.kernel.errors import BackendLost, Unavailable

DIAL_TIMEOUT_S = 10.0


class GvisorReach:
    # Its supervisor stands still with all the rest.
    answers_frozen = False

    def __init__(self, settings: OciSettings, limits: LimitsOf, *, streams: int) -> None:
        self._settings = settings
        self._limits = limits
        self._streams = streams
        self._lines: dict[str, Lines] = {}

    def lines(self, sandbox_id: str) -> Lines:
        return self._lines.setdefault(sandbox_id, Lines())

    def forget(self, sandbox_id: str) -> None:
        self._lines.pop(sandbox_id, None)

    def door(self, sandbox_id: str) -> Callable[[], Awaitable[socket.socket]]:
        async def enter() -> socket.socket:
            lines = self.lines(sandbox_id)
            await lines.open.wait()
            if self.is_frozen(sandbox_id):
                raise Unavailable(why="the sandbox is frozen, and its supervisor with it: thaw it first")
            try:
                secret = (self._settings.bundle(sandbox_id) / "secret").read_bytes()
            except FileNotFoundError:
                raise BackendLost(why="the sandbox is not running") from None
            return await dial_port(self._settings.control(sandbox_id), sandbox_id, secret, note=lines.note)

        return enter

    def guest(self, sandbox_id: str) -> GvisorGuest:
        line = SupervisorGuest(self.door(sandbox_id), gate=Gate(self._streams))
        return GvisorGuest(line, self._limits(sandbox_id), self.lines(sandbox_id))

    def set_frozen(self, sandbox_id: str, frozen: bool, timeout_s: float) -> bool:
        if self.is_frozen(sandbox_id) == frozen:
            return True
        mark = self._frozen(sandbox_id)
        if frozen:
            # First: nobody waits for an answer that does not come.
            mark.touch()
        argv = [*self._settings.argv(sandbox_id), "pause" if frozen else "resume", sandbox_id]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            done = None
        is_done = done is not None and done.returncode == 0
        if frozen != is_done:
            mark.unlink(missing_ok=True)
        return is_done

    def let_go_on(self, sandbox_id: str, timeout_s: float) -> bool:
        """Lets go on what a killed server was freezing, or had frozen: nobody knows which. Blocks."""
        argv = [*self._settings.argv(sandbox_id), "pause", sandbox_id]
        # It fails for one that is paused already.
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s)
        self._frozen(sandbox_id).touch()
        return self.set_frozen(sandbox_id, False, timeout_s)

    def is_frozen(self, sandbox_id: str) -> bool:
        return self._frozen(sandbox_id).exists()

    def _frozen(self, sandbox_id: str) -> Path:
        return self._settings.bundle(sandbox_id) / "frozen"


async def dial_port(
    control: Path, container: str, secret: bytes, *, note: Callable[[socket.socket, socket.socket], None]
) -> socket.socket:
    """Returns a socket that gVisor leads to the supervisor's port, the secret sent. `note` is told of both
    its ends. Raises BackendLost.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with theirs:
            ours.setblocking(False)
            note(ours, theirs)
            ours.send(secret)
            call = {
                "method": "containerManager.PortForward",
                "arg": {"ContainerID": container, "Port": DOOR_PORT},
            }
            await _tell(control, json.dumps(call).encode(), theirs.fileno())
    except BaseException:
        ours.close()
        raise
    return ours


async def _tell(control: Path, call: bytes, fd: int) -> None:
    """Sends a call with a descriptor. What it answers is not waited for: a line that leads nowhere ends."""
    folder = os.open(control.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as line:
            deadline = time.monotonic() + DIAL_TIMEOUT_S
            while True:
                try:
                    line.connect(f"/proc/self/fd/{folder}/{control.name}")
                except BlockingIOError:
                    # Its queue is full. The kernel offers nothing to wait on.
                    if time.monotonic() > deadline:
                        raise BackendLost(why="gVisor does not take calls") from None
                    await asyncio.sleep(0.005)
                else:
                    break
            socket.send_fds(line, [call], [fd])
    finally:
        os.close(folder)


class GvisorGuest(LimitedGuest):
    """A supervisor that keeps a group for each command itself: gVisor's processes are none of the host's."""

    def __init__(self, line: SupervisorGuest, limits: Limits, lines: Lines) -> None:
        super().__init__(line, limits)
        self._lines = lines

    async def _attached(self, process_id: str) -> Process:
        async def join() -> Process:
            cuts = self._lines.cuts
            return RejoinedProcess(await self._line.attach(process_id), self._line, self._lines, cuts)

        return await self._lines.through(join)

    async def run(self, command: Command, *, process_id: str | None = None) -> Process:
        before, tagged = self._limits.counters(), replace(command, tag=marked(command))
        async with self._lines.brief():
            cuts = self._lines.cuts
            process = await self._line.run(tagged, process_id=process_id, forget=not command.keep)
        rejoined = RejoinedProcess(process, self._line, self._lines, cuts)
        return self._begun(rejoined, before, is_kept=command.keep)

    async def processes(self) -> Sequence[ProcessInfo]:
        return [unmarked(info) for info in await self._lines.through(super().processes)]

    async def forget(self, process_id: str) -> None:
        await self._lines.through(lambda: self._forget(process_id))

    async def _forget(self, process_id: str) -> None:
        await super().forget(process_id)

    async def connect(self, port: int) -> Connection:
        return await self._lines.through(lambda: self._line.connect(port))

    async def ping(self) -> None:
        await self._lines.through(self._line.ping)
