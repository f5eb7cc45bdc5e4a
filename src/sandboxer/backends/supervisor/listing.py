"""One page of a folder inside, chosen from what its guest says.

A guest of protocol version 2 sends the page and nothing else. An older one sends the whole folder: of each
entry only the path is looked at, and of those that are kept the rest at the end.
"""

from __future__ import annotations

import heapq

from sandboxer.backends.supervisor.codec import TLV, Fields, Tag, fields
from sandboxer.kernel.errors import GuestMisbehaved

MAX_PATH = 32 * 1024


class _Backwards:
    """Orders a heap largest first, so that the largest of the kept ones is the one to drop."""

    __slots__ = ("entry", "path")

    def __init__(self, path: bytes, entry: bytes) -> None:
        self.path = path
        self.entry = entry

    def __lt__(self, other: _Backwards) -> bool:
        return self.path > other.path


class PageOfEntries:
    """The `limit` smallest entries above `after` of all that are taken."""

    def __init__(self, after: bytes | None, limit: int) -> None:
        self._after = after or b""
        self._limit = limit
        self._heap: list[_Backwards] = []
        self._dropped = False

    def take(self, payload: bytes) -> None:
        """The ENTRIES of one frame."""
        heap, after, limit = self._heap, self._after, self._limit
        for tag, entry in fields(payload):
            if tag != Tag.ENTRY:
                continue
            path = _path_of(entry)
            if path <= after:
                continue
            if len(heap) < limit:
                heapq.heappush(heap, _Backwards(path, entry))
                continue
            self._dropped = True
            if path < heap[0].path:
                heapq.heapreplace(heap, _Backwards(path, entry))

    def entries(self) -> list[bytes]:
        return [one.entry for one in sorted(self._heap, key=lambda one: one.path)]

    def next_after(self, done: bytes) -> bytes | None:
        """Where the next page begins, by what the guest says at the end, or by what we dropped ourselves."""
        told = Fields(done)
        if Tag.AFTER in told:
            after = told.raw(Tag.AFTER)
            if not self._after < after or len(after) > MAX_PATH:
                raise GuestMisbehaved(why="a page that begins before its end")
            return after
        return max(one.path for one in self._heap) if self._dropped and self._heap else None


def _path_of(entry: bytes) -> bytes:
    """Every guest names the path first."""
    if len(entry) < TLV.size:
        raise GuestMisbehaved(why="a field is cut off")
    tag, length = TLV.unpack_from(entry)
    if tag != Tag.PATH or length > min(MAX_PATH, len(entry) - TLV.size):
        raise GuestMisbehaved(why="an entry that does not begin with its path")
    return entry[TLV.size : TLV.size + length]
