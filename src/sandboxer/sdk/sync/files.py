# Written by scripts/generate-sync from sdk/aio/files.py. Do not edit.
"""`sandbox.files`: files inside a sandbox, blocking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sandboxer.sdk.bodies import Content, Progress, body_of, paths_in, watched
from sandboxer.sdk.call import parse
from sandboxer.sdk.calls import files as calls
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.sync.line import Line, pages, pieces, saved, server_events
from sandboxer.sdk.sync.native import beside
from sandboxer.wire.files import FileEvent, FileInfo, TarUnpacked, WatchReady


class Files:
    """Paths are absolute, inside the sandbox. Large content is streamed, never held in memory."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    def list(self, path: str = "/", *, depth: int = 1) -> Iterator[FileInfo]:
        for page in pages(
            self._line, lambda cursor: calls.list_files(self._id, path=path, depth=depth, cursor=cursor)
        ):
            yield from page.files

    def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        return self._line.send(calls.stat_file(self._id, path=path, follow=follow))

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        part = None
        if offset or length is not None:
            part = f"bytes={offset}-" + ("" if length is None else str(offset + length - 1))
        return self._line.send(calls.read_file(self._id, path=path, range=part))

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yields the content piece by piece."""
        yield from pieces(self._line, calls.read_file(self._id, path=path))

    def download(self, path: str, to: Path, *, progress: Progress | None = None) -> int:
        """Writes a local file, which appears when it is complete; returns its size."""
        return saved(self.chunks(path), to, progress)

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
        body = watched(beside(body_of, content), progress)
        call = calls.write_file(self._id, body, path=path, mode=mode, parents=None if parents else False)
        return self._line.send(call)

    def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        (name,), encoding = paths_in(path)
        self._line.send(
            calls.make_directory(self._id, path=name, mode=mode, parents=parents, path_encoding=encoding)
        )

    def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        (old, new), encoding = paths_in(source, target)
        self._line.send(
            calls.move_file(self._id, source=old, target=new, overwrite=overwrite, path_encoding=encoding)
        )

    def remove(self, path: str, *, recursive: bool = False) -> None:
        (name,), encoding = paths_in(path)
        call = calls.remove_file(self._id, path=name, recursive=recursive, path_encoding=encoding)
        self._line.send(call)

    def watch(self, path: str, *, recursive: bool = False) -> Iterator[WatchReady | FileEvent]:
        """Yields a `WatchReady` first, and every change from then on."""
        call = calls.watch_files(self._id, path=path, recursive=recursive)
        for event in server_events(self._line, call):
            if event.name == "ready":
                yield parse(WatchReady, event.data)
            elif event.name == "change":
                yield parse(FileEvent, event.data)
            elif event.name == "error":
                raise SdkError(f"The watch broke: {event.data}", next_step="Watch again.")

    def tar_out(self, path: str) -> Iterator[bytes]:
        """Yields a folder's content as a tar."""
        yield from pieces(self._line, calls.pack_folder(self._id, path=path))

    def tar_in(self, path: str, content: Content, *, progress: Progress | None = None) -> TarUnpacked:
        """Unpack a tar into a folder of the sandbox."""
        body = watched(beside(body_of, content), progress)
        return self._line.send(calls.unpack_folder(self._id, body, path=path))
