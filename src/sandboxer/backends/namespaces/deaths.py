"""Hearing of a sandbox's end from the kernel, through an fd of its first process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator


class DeathWatch:
    def __init__(self) -> None:
        self._fds: dict[str, int] = {}
        self._ended: asyncio.Queue[str] = asyncio.Queue()

    def watch(self, sandbox_id: str, pidfd: int) -> None:
        """Takes the fd over."""
        self.forget(sandbox_id)
        self._fds[sandbox_id] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._hear, sandbox_id, pidfd)

    def forget(self, sandbox_id: str) -> None:
        """Before one is ended on purpose: nobody is told of that."""
        fd = self._fds.pop(sandbox_id, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def watches(self, sandbox_id: str) -> bool:
        return sandbox_id in self._fds

    async def ended(self) -> AsyncIterator[str]:
        while True:
            yield await self._ended.get()

    def close(self) -> None:
        for sandbox_id in list(self._fds):
            self.forget(sandbox_id)

    def _hear(self, sandbox_id: str, pidfd: int) -> None:
        if self._fds.get(sandbox_id) == pidfd:
            self.forget(sandbox_id)
            self._ended.put_nowait(sandbox_id)
