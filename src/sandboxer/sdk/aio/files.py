"""`sandbox.files`: files inside a sandbox, with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.streams import server_events
from sandboxer.sdk.bodies import CHUNK, Content, Progress, body_of, watched
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.local_files import appearing
from sandboxer.sdk.routes import files as routes
from sandboxer.sdk.routes.reading import parse
from sandboxer.wire.files import FileEvent, FileInfo, TarUnpacked, WatchReady


class AsyncFiles:
    """Paths are absolute, inside the sandbox. Large content is streamed, never held in memory."""

    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    async def list(self, path: str = "/", *, depth: int = 1) -> AsyncIterator[FileInfo]:
        cursor: str | None = None
        while True:
            page = await self._line.do(routes.page(self._id, path, depth=depth, cursor=cursor))
            for found in page.files:
                yield found
            cursor = page.next_cursor
            if cursor is None:
                return

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return await self._line.do(routes.stat(self._id, path, follow=follow))

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return await self._line.do(routes.read(self._id, path, offset=offset, length=length))

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return (await self.read(path)).decode(encoding)

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        """The content piece by piece."""
        async with self._line.open(routes.read(self._id, path)) as response:
            async for chunk in response.aiter_raw(CHUNK):
                yield chunk

    async def download(self, path: str, to: Path, *, progress: Progress | None = None) -> int:
        """Into a local file; returns its size. The file appears when it is complete."""
        size = 0
        with appearing(to) as file:
            async for chunk in self.chunks(path):
                file.write(chunk)
                size += len(chunk)
                if progress:
                    progress(len(chunk))
        return size

    async def write(
        self,
        path: str,
        content: Content,
        *,
        mode: int | None = None,
        parents: bool = True,
        progress: Progress | None = None,
    ) -> FileInfo:
        """A `Path` names a local file to send. The old file stays until all of the new one has arrived."""
        body = watched(await asyncio.to_thread(body_of, content), progress)
        return await self._line.do(routes.write(self._id, path, body, mode=mode, parents=parents))

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        await self._line.do(routes.mkdir(self._id, path, mode=mode, parents=parents))

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        await self._line.do(routes.move(self._id, source, target, overwrite=overwrite))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await self._line.do(routes.remove(self._id, path, recursive=recursive))

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[WatchReady | FileEvent]:
        """First a `WatchReady`; from then on every change."""
        async for event in server_events(self._line, routes.watch(self._id, path, recursive=recursive)):
            if event.name == "ready":
                yield parse(WatchReady, event.data)
            elif event.name == "change":
                yield parse(FileEvent, event.data)
            elif event.name == "error":
                raise SdkError(f"The watch broke: {event.data}", next_step="Watch again.")

    async def tar_out(self, path: str) -> AsyncIterator[bytes]:
        """A folder's content as a tar stream."""
        async with self._line.open(routes.tar_out(self._id, path)) as response:
            async for chunk in response.aiter_raw(CHUNK):
                yield chunk

    async def tar_in(self, path: str, content: Content, *, progress: Progress | None = None) -> TarUnpacked:
        """Unpack a tar into a folder of the sandbox."""
        body = watched(await asyncio.to_thread(body_of, content), progress)
        return await self._line.do(routes.tar_in(self._id, path, body))
