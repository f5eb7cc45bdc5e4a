"""A file that is being uploaded by SFTP. It replaces the old one when it is closed, completely or not at all.

Clients write from front to back; current ones open without truncating and set the size at the end. So the old
content before the first written byte, and after the last, is copied unless they do. Pieces that wait here,
ahead of a gap or for the sandbox, count against the account's budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine

from asyncssh import SFTPAttrs, SFTPFailure

from sandboxer.backends.guest import Guest
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import SandboxerError

# Clients send many pieces at once, and they may arrive out of order.
MAX_AHEAD = 16 * 1024 * 1024
# The most pieces, however small: each takes memory of its own.
MAX_PIECES = 1024
_QUEUED = 32
_SET_LATER = ("uid", "gid", "permissions", "mtime")

Begin = Callable[["Upload"], Coroutine[object, object, None]]


class Upload:
    def __init__(self, path: str, mode: int | None, begin: Begin, lease: Lease, *, old_size: int) -> None:
        """`begin` runs `carry` with a guest, beside the writes. `old_size` is the size of the old content
        that is kept.
        """
        self.path = path
        self.position = 0
        # Owner, mode and times that were set meanwhile; they are applied when the file exists.
        self.later = SFTPAttrs()
        self._mode = mode
        self._begin = begin
        self._lease = lease
        self._old_size = old_size
        self._first = 0
        self._ahead: dict[int, bytes] = {}
        self._ahead_bytes = 0
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED)
        self._order = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_whole = False

    async def carry(self, guest: Guest) -> None:
        await guest.files.write(self.path, self._pieces(guest), mode=self._mode, parents=False)

    async def write(self, offset: int, data: bytes) -> None:
        if self._task is None:
            if offset > self._old_size:
                raise SFTPFailure("a file with a hole cannot be written")
            self._first = self.position = offset
            self._start()
        if offset < self.position or offset in self._ahead or self._is_far_ahead():
            raise SFTPFailure("a file is written from its beginning to its end here")
        try:
            self._lease.grow_at_once(len(data))
        except SandboxerError as error:
            raise SFTPFailure(f"{error} {error.next_step}") from None
        self._ahead[offset] = data
        self._ahead_bytes += len(data)
        async with self._order:
            while (piece := self._ahead.pop(self.position, None)) is not None:
                self._ahead_bytes -= len(piece)
                self.position += len(piece)
                await self._put(piece)

    def set(self, attrs: SFTPAttrs) -> None:
        """Remembers attributes. Only the last value of each counts, however many are sent."""
        for name in _SET_LATER:
            if (value := getattr(attrs, name)) is not None:
                setattr(self.later, name, value)
        if attrs.size is not None:
            self.later.size = None if self._set_size(attrs.size) else attrs.size

    def _set_size(self, size: int) -> bool:
        """Returns True if the file will have this size anyway."""
        if size == self.position:
            self._old_size = 0 if self._task is None else min(self._old_size, size)
            return True
        return False

    async def close(self) -> None:
        """Finishes the upload. Raises what kept the file from being written."""
        self._is_whole = not self._ahead
        if self._task is None:
            self._start()
        await self._put(None)
        if self._task is not None:
            await self._task

    def abandon(self) -> None:
        """Gives up because the client is gone; the old file stays."""
        if self._task is not None:
            self._task.cancel()
        # Released now and not by the garbage collector, since task and upload refer to each other.
        self._ahead.clear()
        while not self._queue.empty():
            self._queue.get_nowait()
        self._lease.close()

    def _is_far_ahead(self) -> bool:
        return self._ahead_bytes > MAX_AHEAD or len(self._ahead) >= MAX_PIECES

    def _start(self) -> None:
        self._task = asyncio.create_task(self._begin(self), name=f"sftp {self.path}")

    async def _put(self, piece: bytes | None) -> None:
        """Waits with a limit, because whoever reads the queue may have failed."""
        putting = asyncio.ensure_future(self._queue.put(piece))
        waited = {putting} if self._task is None else {putting, self._task}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not putting.done():
            putting.cancel()
        if self._task is not None and self._task.done():
            self._task.result()

    async def _pieces(self, guest: Guest) -> AsyncIterator[bytes]:
        if self._first:
            async for piece in guest.files.read(self.path, length=self._first):
                yield piece
        while (queued := await self._queue.get()) is not None:
            yield queued
            self._lease.shrink(len(queued))
        if not self._is_whole:
            raise SFTPFailure("a part of the file was never sent")
        if self.position < self._old_size:
            async for piece in guest.files.read(self.path, offset=self.position):
                yield piece
