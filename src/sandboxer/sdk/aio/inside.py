"""`sandbox.files` and `sandbox.processes`: files and background processes inside a sandbox, with asyncio."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxer.sdk.aio.line import AsyncNounInside, items, pieces, saved, server_events, told
from sandboxer.sdk.aio.native import beside
from sandboxer.sdk.bodies import Content, Progress, body_of, paths_in, watched
from sandboxer.sdk.call import found_at, new_idempotency_key, parse
from sandboxer.sdk.calls import files, processes
from sandboxer.sdk.commands import MARGIN_S, Piece, What, named, piece
from sandboxer.sdk.errors import SdkError

if TYPE_CHECKING:
    from sandboxer.sdk import models


class AsyncFiles(AsyncNounInside):
    """Paths are absolute, inside the sandbox. Large content is streamed, never held in memory."""

    def list(self, path: str = "/", *, depth: int = 1) -> AsyncIterator[models.FileInfo]:
        """Yields what is in a folder, and below it as deep as `depth` says."""
        return items(
            self._line,
            lambda cursor: files.list_files(self._id, path=path, depth=depth, cursor=cursor),
            lambda page: page.files,
        )

    async def stat(self, path: str, *, follow: bool = True) -> models.FileInfo:
        """Says kind, size, owner and mode of a path; with `follow=False`, of a link itself."""
        return await self._line.send(files.stat_file(self._id, path=path, follow=follow))

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Returns the content, or `length` bytes from `offset` on."""
        part = None
        if offset or length is not None:
            part = f"bytes={offset}-" + ("" if length is None else str(offset + length - 1))
        return await self._line.send(files.read_file(self._id, path=path, range=part))

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """Returns the content as text."""
        return (await self.read(path)).decode(encoding)

    async def chunks(self, path: str) -> AsyncIterator[bytes]:
        """Yields the content piece by piece."""
        async for chunk in pieces(self._line, files.read_file(self._id, path=path)):
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
    ) -> models.FileInfo:
        """Writes a file; a `Path` names a local one to send. The old one stays until all has arrived.

        Examples:
            >>> await sandbox.files.write("/workspace/main.py", "print(6 * 7)")
            >>> await sandbox.files.write("/workspace/data.csv", Path("data.csv"))
        """
        body = watched(await beside(body_of, content), progress)
        return await self._line.send(
            files.write_file(self._id, body, path=path, mode=mode, parents=None if parents else False)
        )

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = True) -> None:
        """Makes a folder, and those above it unless `parents` is False."""
        (name,), encoding = paths_in(path)
        await self._line.send(
            files.make_directory(self._id, path=name, mode=mode, parents=parents, path_encoding=encoding)
        )

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Renames a path; an existing target is refused unless `overwrite` is True."""
        (old, new), encoding = paths_in(source, target)
        await self._line.send(
            files.move_file(self._id, source=old, target=new, overwrite=overwrite, path_encoding=encoding)
        )

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Deletes a file, or with `recursive` a folder and all in it."""
        (name,), encoding = paths_in(path)
        await self._line.send(
            files.remove_file(self._id, path=name, recursive=recursive, path_encoding=encoding)
        )

    async def watch(
        self, path: str, *, recursive: bool = False
    ) -> AsyncIterator[models.WatchReady | models.FileEvent]:
        """Yields a `WatchReady` first, and every change from then on."""
        call = files.watch_files(self._id, path=path, recursive=recursive)
        async for event in server_events(self._line, call):
            if event.name == "ready":
                yield parse(found_at("sandboxer.wire.files:WatchReady"), event.data)
            elif event.name == "change":
                yield parse(found_at("sandboxer.wire.files:FileEvent"), event.data)
            elif event.name == "error":
                raise SdkError(f"The watch broke: {event.data}", next_step="Watch again.")

    async def tar_out(self, path: str) -> AsyncIterator[bytes]:
        """Yields a folder's content as a tar."""
        async for chunk in pieces(self._line, files.pack_folder(self._id, path=path)):
            yield chunk

    async def tar_in(
        self, path: str, content: Content, *, progress: Progress | None = None
    ) -> models.TarUnpacked:
        """Unpacks a tar into a folder of the sandbox."""
        body = watched(await beside(body_of, content), progress)
        return await self._line.send(files.unpack_folder(self._id, body, path=path))


class AsyncProcesses(AsyncNounInside):
    """A background process is started by one request, looked after by others, and lives between them."""

    async def start(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        has_stdin: bool = False,
        tag: str = "",
    ) -> models.Process:
        """Starts a process that outlives this request; a `str` goes to a shell, a list of words does not.

        Examples:
            >>> process = await sandbox.processes.start("python3 -m http.server 8000")
            >>> await sandbox.processes.signal(process.process_id, "TERM")
        """
        return await self._line.send(
            processes.start_process(
                self._id,
                **named(what),
                cwd=cwd,
                env=env or None,
                user=user,
                timeout_s=timeout_s,
                has_stdin=has_stdin or None,
                tag=tag or None,
                idempotency_key=new_idempotency_key(),
            )
        )

    async def list(self) -> Sequence[models.Process]:
        """Returns the processes that were started here and not forgotten yet."""
        return (await self._line.send(processes.list_processes(self._id))).processes

    async def get(self, process_id: str) -> models.Process:
        """Says how one process stands."""
        return await self._line.send(processes.get_process(self._id, process_id))

    def output(
        self, process_id: str, *, after: str | None = None, follow: bool = True
    ) -> AsyncIterator[Piece]:
        """Yields what is kept of its output, then what follows, then its exit.

        With `follow=False` it ends after what is kept.
        """
        call = processes.attach_process(self._id, process_id, after=after, follow=follow, encoding="base64")
        return told(self._line, call, piece)

    async def write_stdin(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        """Returns when its stdin took all of it. `offset`: bytes written before; it can then be repeated."""
        text = base64.b64encode(data).decode()
        call = processes.write_stdin(
            self._id, process_id, data=text, encoding="base64", close=close, offset=offset
        )
        # What was taken already is not taken twice where its place is known.
        await self._line.send(call.repeatable(offset is not None))

    async def close_stdin(self, process_id: str) -> None:
        """Ends its input, as Ctrl-D would."""
        await self._line.send(processes.close_stdin(self._id, process_id))

    async def signal(self, process_id: str, name: str, *, tree: bool = False) -> None:
        """Sends a signal, named without SIG, as in `TERM`."""
        await self._line.send(processes.signal_process(self._id, process_id, signal=name, tree=tree))

    async def wait(self, process_id: str, *, timeout_s: float = 60.0) -> models.Process:
        """Returns at its end, or when the time is over with its present state."""
        call = processes.wait_process(self._id, process_id, timeout_s=timeout_s)
        return await self._line.send(call.within(timeout_s + MARGIN_S))

    async def end(self, process_id: str) -> None:
        """Kills everything it started, and forgets it."""
        await self._line.send(processes.end_process(self._id, process_id))
