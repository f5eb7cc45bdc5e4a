"""A working `sudo` for sandboxes whose profile asks for it.

Setuid programs do nothing inside (no-new-privileges), so that nobody becomes root by running one. Instead a
server that is root already runs in the sandbox, and the program `sudo` asks it to start a command
(`guest/sudo`). Both are one program, which is placed and started whenever processes of a sandbox begin. The
server is a process of the sandbox like any other, behind the same walls and limits; root of a sandbox is
nobody outside.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from weakref import WeakValueDictionary

from sandboxer.backends.contract import Order
from sandboxer.backends.guest import Command, Exit, FirstFile, Guest, whole
from sandboxer.kernel.errors import GuestRefused
from sandboxer.sandboxes.dependencies import OpenGuest
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.warm import Rest

PLACE = "/usr/local/bin/sudo"
log = logging.getLogger(__name__)


class _Placed:
    """The program is in the disk of a new sandbox."""


class SudoHook:
    def __init__(self, program: Path) -> None:
        self._file = program
        self._placed: WeakValueDictionary[str, _Placed] = WeakValueDictionary()

    @cached_property
    def _program(self) -> bytes:
        return self._file.read_bytes()

    async def check(self, requested: Sandbox, secret_refs: Sequence[str]) -> None:
        """Nothing is refused for the want of it."""

    def env(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {}

    def bring(self, order: Order) -> tuple[Sequence[FirstFile], object]:
        placed = self._placed[order.sandbox_id] = _Placed()
        return [FirstFile(path=PLACE, source=str(self._file))], placed

    async def on_start(self, sandbox: Sandbox, open_guest: OpenGuest) -> None:
        """Places and starts it. A sandbox without the user, or whose disk is full, starts all the same: its
        `sudo` says that nobody answers.
        """
        # A volume is root's when it is new, and here nobody is root without asking.
        folders = [volume.path for volume in sandbox.volumes if not volume.is_read_only]
        await self._serve(sandbox.id, open_guest, folders)

    async def prepare(self, order: Order, open_guest: OpenGuest) -> Rest:
        """Does all of it: a spare has no volumes."""
        await self._serve(order.sandbox_id, open_guest, ())
        return _nothing_more

    async def _serve(self, sandbox_id: str, open_guest: OpenGuest, folders: Sequence[str]) -> None:
        try:
            guest = await open_guest()
            # It may start again later, on another disk.
            if self._placed.pop(sandbox_id, None) is None:
                await guest.files.write(PLACE, whole(self._program), mode=0o755)
            code = await _run(guest, (PLACE, "--serve", *folders))
        except (GuestRefused, OSError) as error:
            log.warning("%s has no sudo: %s", sandbox_id, error)
        else:
            if code:
                log.warning("%s has no sudo: its server ended with %s", sandbox_id, code)


async def _nothing_more(sandbox: Sandbox) -> None:
    """Is what is left to do in a spare."""


async def _run(guest: Guest, argv: Sequence[str]) -> int:
    """Returns the exit code of a command that goes to the background by itself."""
    async with await guest.run(Command(argv=argv, keep=False)) as process:
        async for item in process.output():
            if isinstance(item, Exit):
                return item.code
    return 1
