"""`Files` over the disk in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from sandboxer.backends.guest import FileEvent, FileInfo, FileKind, ListingPage
from sandboxer.backends.scripted.disk import Disk
from sandboxer.kernel.errors import IsADirectory, NotARegularFile

CHUNK = 64 * 1024


class ScriptedFiles:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return self._disk.info(path, follow=follow)

    async def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        for info in self._disk.below(path, depth):
            yield info

    async def list_page(
        self, path: str, *, depth: int = 1, after: bytes | None = None, limit: int
    ) -> ListingPage:
        found = {os.fsencode(info.path): info for info in self._disk.below(path, depth)}
        names = sorted(name for name in found if after is None or name > after)
        kept = names[:limit]
        more = len(names) > len(kept)
        return ListingPage(
            files=[found[name] for name in kept], next_after=kept[-1] if more and kept else None
        )

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        _, node = self._disk.find(path)
        if node.kind is FileKind.DIRECTORY:
            raise IsADirectory(path=path, errno_name="EISDIR")
        if node.kind is not FileKind.FILE:
            raise NotARegularFile(path=path, errno_name="EINVAL")
        data = node.data[offset:] if length is None else node.data[offset : offset + length]
        for start in range(0, len(data), CHUNK):
            yield data[start : start + CHUNK]

    async def write(
        self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None, parents: bool = True
    ) -> FileInfo:
        whole = bytearray()
        async for chunk in chunks:
            whole += chunk
        return self._disk.write(path, bytes(whole), mode=mode, parents=parents)

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        self._disk.mkdir(path, mode, parents=parents)

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        self._disk.move(source, target, overwrite=overwrite)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        self._disk.remove(path, recursive=recursive)

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        real, _ = self._disk.find(path)
        heard: asyncio.Queue[FileEvent] = asyncio.Queue()
        prefix = real.rstrip("/") + "/"

        def listen(event: FileEvent) -> None:
            below = event.path.removeprefix(prefix)
            is_below = event.path.startswith(prefix) and (recursive or "/" not in below)
            if is_below or event.path == real:
                heard.put_nowait(event)

        leave = self._disk.listen(listen)
        try:
            while True:
                yield await heard.get()
        finally:
            leave()
