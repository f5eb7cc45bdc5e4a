"""`sandbox.files`: files inside a sandbox, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from sandboxer.sdk.aio.line import AsyncLine, pages, pieces, saved, server_events
from sandboxer.sdk.aio.native import beside
from sandboxer.sdk.bodies import Content, Progress, body_of, paths_in, watched
from sandboxer.sdk.call import parse
from sandboxer.sdk.calls import files as calls
from sandboxer.sdk.errors import SdkError
from sandboxer.wire.files import FileEvent, FileInfo, TarUnpacked, WatchReady


class AsyncFiles:
    """Paths are absolute, inside the sandbox. Large content is streamed, never held in memory."""

    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    async def list(self, path: str = "/", *, depth: int = 1) -> AsyncIterator[FileInfo]:
        async for page in pages(
            self._line, lambda cursor: calls.list_files(self._id, path=path, depth=depth, cursor=cursor)
        ):
            for found in page.files:
                yield found

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return await self._line.send(calls.stat_file(self._id, path=path, follow=follow))

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        part = None
        if offset or length is not None:
            part = f"bytes={offset}-" + ("" if length is None else str(offset + length - 1))
        return await self._line.send(calls.read_file(self._id, path=path, range=part))

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return (await self.read(path)).decode(encoding)

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        """Yields the content piece by piece."""
        async for chunk in pieces(self._line, calls.read_file(self._id, path=path)):
            yield chunk

    async def download(self, path: str, to: Path, *, progress: Progress | None = None) -> int:
        """Writes a local file, which appears when it is complete; returns its size."""
        return await saved(self.chunks(path), to, progress)

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
        body = watched(await beside(body_of, content), progress)
        call = calls.write_file(self._id, body, path=path, mode=mode, parents=None if parents else False)
        return await self._line.send(call)

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        (name,), encoding = paths_in(path)
        await self._line.send(
            calls.make_directory(self._id, path=name, mode=mode, parents=parents, path_encoding=encoding)
        )

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        (old, new), encoding = paths_in(source, target)
        await self._line.send(
            calls.move_file(self._id, source=old, target=new, overwrite=overwrite, path_encoding=encoding)
        )

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        (name,), encoding = paths_in(path)
        call = calls.remove_file(self._id, path=name, recursive=recursive, path_encoding=encoding)
        await self._line.send(call)

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[WatchReady | FileEvent]:
        """Yields a `WatchReady` first, and every change from then on."""
        call = calls.watch_files(self._id, path=path, recursive=recursive)
        async for event in server_events(self._line, call):
            if event.name == "ready":
                yield parse(WatchReady, event.data)
            elif event.name == "change":
                yield parse(FileEvent, event.data)
            elif event.name == "error":
                raise SdkError(f"The watch broke: {event.data}", next_step="Watch again.")

    async def tar_out(self, path: str) -> AsyncIterator[bytes]:
        """Yields a folder's content as a tar."""
        async for chunk in pieces(self._line, calls.pack_folder(self._id, path=path)):
            yield chunk

    async def tar_in(self, path: str, content: Content, *, progress: Progress | None = None) -> TarUnpacked:
        """Unpack a tar into a folder of the sandbox."""
        body = watched(await beside(body_of, content), progress)
        return await self._line.send(calls.unpack_folder(self._id, body, path=path))
