"""Reads and writes files inside a sandbox over its supervisor: one line per operation, closed when it ends.

A `PageOfEntries` is one page of a folder inside, chosen from what its guest says. A guest of protocol version
2 sends the page and nothing else. An older one sends the whole folder: of each entry only the path is looked
at, and of those that are kept the rest at the end.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from sandboxer.backends.guest import FileChange, FileEvent, FileInfo, FileKind, Files, ListingPage
from sandboxer.backends.supervisor.codec import (
    HEADER,
    MAX_PAYLOAD,
    TLV,
    Fields,
    Flag,
    Frame,
    Tag,
    field,
    fields,
    frame,
    refusal,
    text,
    u32,
    u64,
)
from sandboxer.backends.supervisor.line import Line, Peer
from sandboxer.kernel.errors import GuestMisbehaved, InvalidRequest

# A question that is one system call inside, and work that may take a while (a large tree, a slow disk).
ANSWER_S = 10.0
WORK_S = 600.0
PIECE_S = 60.0
# Entries of a listing that are read before others get their turn: about a millisecond.
AT_A_TIME = 50
_KINDS = {1: FileKind.FILE, 2: FileKind.DIRECTORY, 3: FileKind.SYMLINK, 4: FileKind.OTHER}
_CHANGES = {
    1: FileChange.CREATED,
    2: FileChange.MODIFIED,
    3: FileChange.REMOVED,
    4: FileChange.MOVED,
    5: FileChange.OVERFLOW,
}
MAX_PATH = 32 * 1024


def _path(tag: Tag, path: str) -> bytes:
    if not path.startswith("/"):
        raise InvalidRequest(field="path", why="must be absolute")
    if "\0" in path:
        raise InvalidRequest(field="path", why="holds a NUL byte")
    return text(tag, path)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _file_info(payload: bytes) -> FileInfo:
    answer = Fields(payload)
    if (kind := _KINDS.get(answer.u32(Tag.KIND))) is None:
        raise GuestMisbehaved(why="an unknown kind of file")
    return FileInfo(
        path=answer.text(Tag.PATH),
        kind=kind,
        size=answer.u64(Tag.SIZE, most=(1 << 63) - 1),
        mode=answer.u32(Tag.MODE, most=0o7777),
        uid=answer.u32(Tag.UID),
        gid=answer.u32(Tag.GID),
        modified_at=_signed(answer.u64(Tag.MTIME)) / 1e9,
        link_target=answer.text(Tag.LINK) if Tag.LINK in answer else None,
        attributes=dict(_attributes(payload)) if Tag.ATTRIBUTE in answer else {},
    )


def _attributes(payload: bytes) -> Iterator[tuple[str, bytes]]:
    for tag, value in fields(payload):
        if tag == Tag.ATTRIBUTE:
            name, _, content = value.partition(b"=")
            yield os.fsdecode(name), content


class _Exchange:
    """Holds a line with one request on it, and what the request was about."""

    __slots__ = ("_line", "_subject", "_target", "_user")

    def __init__(self, line: Line, subject: str, target: str, user: str = "") -> None:
        self._line = line
        self._subject = subject
        self._target = target
        self._user = user

    async def answer(self, *expected: Frame, limit_s: float | None) -> tuple[int, bytes]:
        kind, payload = await self._line.next(limit_s)
        if kind == Frame.ERROR:
            raise refusal(payload, subject=self._subject, target=self._target, user=self._user)
        if kind not in expected:
            raise GuestMisbehaved(why=f"frame {kind:#x} in an answer about files")
        return kind, payload


class SupervisorFiles(Files):
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._piece_s = min(PIECE_S, peer.work_s)

    @contextmanager
    def _closing(self, line: Line, subject: str, target: str = "", user: str = "") -> Iterator[_Exchange]:
        try:
            yield _Exchange(line, subject, target, user)
        finally:
            line.close()

    async def _dial(self, kind: Frame, payload: bytes) -> Line:
        return await self._peer.dial(frame(kind, payload))

    async def _do(self, kind: Frame, payload: bytes, subject: str, target: str = "", user: str = "") -> None:
        with self._closing(await self._dial(kind, payload), subject, target, user) as exchange:
            await exchange.answer(Frame.DONE, limit_s=self._peer.work_s)

    async def stat(self, path: str, *, follow: bool = True, attributes: str = "") -> FileInfo:
        payload = _path(Tag.PATH, path) + u32(Tag.FLAGS, Flag.FOLLOW if follow else 0)
        payload += text(Tag.ATTRIBUTES, attributes)
        with self._closing(await self._dial(Frame.STAT, payload), path) as exchange:
            _, answer = await exchange.answer(Frame.FILE, limit_s=self._peer.answer_s)
            return _file_info(answer)

    async def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        payload = _path(Tag.PATH, path) + u32(Tag.DEPTH, max(1, min(depth, 100)))
        with self._closing(await self._dial(Frame.LISTDIR, payload), path) as exchange:
            while True:
                kind, answer = await exchange.answer(Frame.ENTRIES, Frame.DONE, limit_s=self._piece_s)
                if kind == Frame.DONE:
                    return
                for tag, entry in fields(answer):
                    if tag == Tag.ENTRY:
                        yield _file_info(entry)
                # What has come already does not make us wait: others must get their turn all the same.
                await asyncio.sleep(0)

    async def list_page(
        self, path: str, *, depth: int = 1, after: bytes | None = None, limit: int, attributes: str = ""
    ) -> ListingPage:
        payload = _path(Tag.PATH, path) + u32(Tag.DEPTH, max(1, min(depth, 100))) + u32(Tag.LIMIT, limit)
        payload += text(Tag.ATTRIBUTES, attributes)
        if after is not None:
            payload += field(Tag.AFTER, after)
        async with self._peer.gate.listing if self._peer.gate else nullcontext():
            return await self._page(path, payload, PageOfEntries(after, limit))

    async def _page(self, path: str, payload: bytes, page: PageOfEntries) -> ListingPage:
        with self._closing(await self._dial(Frame.LISTDIR, payload), path) as exchange:
            while True:
                kind, answer = await exchange.answer(Frame.ENTRIES, Frame.DONE, limit_s=self._piece_s)
                if kind == Frame.DONE:
                    break
                page.take(answer)
                await asyncio.sleep(0)
        files: list[FileInfo] = []
        for number, entry in enumerate(page.entries(), 1):
            files.append(_file_info(entry))
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        return ListingPage(files=files, next_after=page.next_after(answer))

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        payload = _path(Tag.PATH, path) + u64(Tag.OFFSET, offset)
        if length is not None:
            payload += u64(Tag.LENGTH, length)
        with self._closing(await self._dial(Frame.READ, payload), path) as exchange:
            await exchange.answer(Frame.FILE, limit_s=self._peer.answer_s)
            left = length
            while True:
                kind, piece = await exchange.answer(Frame.DATA, Frame.DONE, limit_s=self._piece_s)
                if kind == Frame.DONE:
                    return
                if left is not None:
                    left -= len(piece)
                    if left < 0:
                        raise GuestMisbehaved(why="more bytes than were asked for")
                yield piece

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        parents: bool = True,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        payload = _path(Tag.PATH, path) + u32(Tag.FLAGS, Flag.PARENTS if parents else 0)
        if mode is not None:
            payload += u32(Tag.MODE, mode)
        if owner is not None:
            payload += text(Tag.USER, owner)
        for name, value in (attributes or {}).items():
            payload += text(Tag.ATTRIBUTE, f"{name}={value}")
        line = await self._dial(Frame.WRITE, payload)
        with self._closing(line, path, user=owner or "") as exchange:
            async for chunk in chunks:
                view = memoryview(chunk)
                for at in range(0, len(view), MAX_PAYLOAD):
                    piece = view[at : at + MAX_PAYLOAD]
                    line.send(HEADER.pack(len(piece), Frame.DATA), piece)
                    await line.drain(self._piece_s)
                if line.refused:
                    break
            if not line.refused:
                line.send(frame(Frame.COMMIT))
            _, answer = await exchange.answer(Frame.FILE, limit_s=self._peer.work_s)
            return _file_info(answer)

    async def mkdir(
        self, path: str, *, mode: int = 0o755, parents: bool = True, owner: str | None = None
    ) -> None:
        payload = _path(Tag.PATH, path) + u32(Tag.MODE, mode) + u32(Tag.FLAGS, Flag.PARENTS if parents else 0)
        if owner is not None:
            payload += text(Tag.USER, owner)
        await self._do(Frame.MKDIR, payload, path, user=owner or "")

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        flags = u32(Tag.FLAGS, Flag.OVERWRITE if overwrite else 0)
        payload = _path(Tag.PATH, source) + _path(Tag.TARGET, target) + flags
        await self._do(Frame.MOVE, payload, source, target)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        payload = _path(Tag.PATH, path) + u32(Tag.FLAGS, Flag.RECURSIVE if recursive else 0)
        await self._do(Frame.REMOVE, payload, path)

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        async for event in await self.watching(path, recursive=recursive):
            yield event

    async def watching(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Returns once the watch is in place; what it returns yields the changes since."""
        payload = _path(Tag.PATH, path) + u32(Tag.FLAGS, Flag.RECURSIVE if recursive else 0)
        line = await self._dial(Frame.WATCH, payload)
        try:
            await _Exchange(line, path, "").answer(Frame.DONE, limit_s=self._peer.work_s)
        except BaseException:
            line.close()
            raise
        return self._events(line, path)

    async def _events(self, line: Line, path: str) -> AsyncIterator[FileEvent]:
        with self._closing(line, path) as exchange:
            while True:
                _, answer = await exchange.answer(Frame.EVENTS, limit_s=None)
                for tag, entry in fields(answer):
                    if tag == Tag.ENTRY:
                        yield _file_event(Fields(entry))


def _file_event(entry: Fields) -> FileEvent:
    if (change := _CHANGES.get(entry.u32(Tag.CHANGE))) is None:
        raise GuestMisbehaved(why="an unknown kind of change")
    return FileEvent(path=entry.text(Tag.PATH), change=change)


class _Backwards:
    """Orders a heap largest first, so that the largest of the kept ones is the one to drop."""

    __slots__ = ("entry", "path")

    def __init__(self, path: bytes, entry: bytes) -> None:
        self.path = path
        self.entry = entry

    def __lt__(self, other: _Backwards) -> bool:
        return self.path > other.path


class PageOfEntries:
    """Keeps the `limit` smallest entries above `after` of all that are given to it."""

    def __init__(self, after: bytes | None, limit: int) -> None:
        self._after = after or b""
        self._limit = limit
        self._heap: list[_Backwards] = []
        self._dropped = False

    def take(self, payload: bytes) -> None:
        """Adds the ENTRIES of one frame."""
        heap, after, limit = self._heap, self._after, self._limit
        for tag, entry in fields(payload):
            if tag != Tag.ENTRY:
                continue
            if (path := _path_of(entry)) <= after:
                continue
            if len(heap) < limit:
                heap.append(_Backwards(path, entry))
                continue
            if not self._dropped:
                # Of a guest that makes pages itself nothing is ever dropped here, and nothing to be ordered.
                heapq.heapify(heap)
            self._dropped = True
            if path < heap[0].path:
                heapq.heapreplace(heap, _Backwards(path, entry))

    def entries(self) -> list[bytes]:
        return [one.entry for one in sorted(self._heap, key=lambda one: one.path)]

    def next_after(self, done: bytes) -> bytes | None:
        """Returns where the next page begins, by what the guest says at the end, or by what we dropped
        ourselves.
        """
        reply = Fields(done)
        if Tag.AFTER in reply:
            after = reply.raw(Tag.AFTER)
            if not self._after < after or len(after) > MAX_PATH:
                raise GuestMisbehaved(why="a page that begins before its end")
            return after
        return max(one.path for one in self._heap) if self._dropped and self._heap else None


def _path_of(entry: bytes) -> bytes:
    """Returns the path of an entry, which every guest names first."""
    if len(entry) < TLV.size:
        raise GuestMisbehaved(why="a field is cut off")
    tag, length = TLV.unpack_from(entry)
    if tag != Tag.PATH or length > min(MAX_PATH, len(entry) - TLV.size):
        raise GuestMisbehaved(why="an entry that does not begin with its path")
    return entry[TLV.size : TLV.size + length]
