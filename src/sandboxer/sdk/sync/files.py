"""`sandbox.files`: files inside a sandbox, blocking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sandboxer.sdk.bodies import CHUNK, Content, Progress, body_of, watched
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.local_files import appearing
from sandboxer.sdk.routes import files as routes
from sandboxer.sdk.routes.reading import parse
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.streams import server_events
from sandboxer.wire.files import FileEvent, FileInfo, TarUnpacked, WatchReady


class Files:
    """Paths are absolute, inside the sandbox. Large content is streamed, never held in memory."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    def list(self, path: str = "/", *, depth: int = 1) -> Iterator[FileInfo]:
        cursor: str | None = None
        while True:
            page = self._line.do(routes.page(self._id, path, depth=depth, cursor=cursor))
            yield from page.files
            cursor = page.next_cursor
            if cursor is None:
                return

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return self._line.do(routes.stat(self._id, path, follow=follow))

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._line.do(routes.read(self._id, path, offset=offset, length=length))

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content piece by piece."""
        with self._line.open(routes.read(self._id, path)) as response:
            yield from response.iter_raw(CHUNK)

    def download(self, path: str, to: Path, *, progress: Progress | None = None) -> int:
        """Into a local file; returns its size. The file appears when it is complete."""
        size = 0
        with appearing(to) as file:
            for chunk in self.chunks(path):
                file.write(chunk)
                size += len(chunk)
                if progress:
                    progress(len(chunk))
        return size

    def write(
        self,
        path: str,
        content: Content,
        *,
        mode: int | None = None,
        parents: bool = True,
        progress: Progress | None = None,
    ) -> FileInfo:
        """A `Path` names a local file to send. The old file stays until all of the new one has arrived."""
        body = watched(body_of(content), progress)
        return self._line.do(routes.write(self._id, path, body, mode=mode, parents=parents))

    def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        self._line.do(routes.mkdir(self._id, path, mode=mode, parents=parents))

    def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        self._line.do(routes.move(self._id, source, target, overwrite=overwrite))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._line.do(routes.remove(self._id, path, recursive=recursive))

    def watch(self, path: str, *, recursive: bool = False) -> Iterator[WatchReady | FileEvent]:
        """First a `WatchReady`; from then on every change."""
        for event in server_events(self._line, routes.watch(self._id, path, recursive=recursive)):
            if event.name == "ready":
                yield parse(WatchReady, event.data)
            elif event.name == "change":
                yield parse(FileEvent, event.data)
            elif event.name == "error":
                raise SdkError(f"The watch broke: {event.data}", next_step="Watch again.")

    def tar_out(self, path: str) -> Iterator[bytes]:
        """A folder's content as a tar stream."""
        with self._line.open(routes.tar_out(self._id, path)) as response:
            yield from response.iter_raw(CHUNK)

    def tar_in(self, path: str, content: Content, *, progress: Progress | None = None) -> TarUnpacked:
        """Unpack a tar into a folder of the sandbox."""
        return self._line.do(routes.tar_in(self._id, path, watched(body_of(content), progress)))
