"""Reads uploads as they arrive: files of a form, one after the other, and compressed bodies.

Nothing is held but what is needed to find the next boundary, so that a file of any size only passes through.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import brief_value_class

_BOUNDARY = re.compile(r'multipart/form-data;.*\bboundary="?([^";,]{1,200})"?', re.IGNORECASE)
_FILENAME = re.compile(rb'filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_MOST_HEAD = 16 * 1024
_PIECE = 64 * 1024


@brief_value_class
class Part:
    # None for a field that is no file.
    filename: str | None
    content: AsyncIterator[bytes]


def boundary_of(content_type: str) -> bytes | None:
    """Returns what separates the parts of a form; None if the body is no form."""
    found = _BOUNDARY.match(content_type)
    return None if found is None else found[1].encode("latin-1")


async def parts(chunks: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Part]:
    """Yields the parts of a form; each has to be read to its end before the next. Raises InvalidRequest."""
    form = _Form(chunks, b"\r\n--" + boundary)
    # What comes before the first boundary is not meant for anybody; there usually is nothing.
    async for _ in form.content():
        pass
    while not await form.is_over():
        yield Part(_filename(await form.head()), form.content())


class _Form:
    def __init__(self, chunks: AsyncIterator[bytes], mark: bytes) -> None:
        self._chunks = chunks
        self._mark = mark
        # As if a line ended before the first boundary.
        self._held = b"\r\n"

    async def content(self) -> AsyncIterator[bytes]:
        """Yields everything before the next boundary, and reads that too."""
        while (at := self._held.find(self._mark)) < 0:
            # The end of what is held may be the beginning of a boundary.
            sure = len(self._held) - len(self._mark)
            if sure > 0:
                piece, self._held = self._held[:sure], self._held[sure:]
                yield piece
            await self._more()
        piece, self._held = self._held[:at], self._held[at + len(self._mark) :]
        if piece:
            yield piece

    async def is_over(self) -> bool:
        """Tells whether the boundary that was read was the last one."""
        while len(self._held) < 2:
            await self._more()
        return self._held[:2] == b"--"

    async def head(self) -> bytes:
        while (at := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _MOST_HEAD:
                raise InvalidRequest(field="body", why="the head of a part is too long")
            await self._more()
        head, self._held = self._held[:at], self._held[at + 4 :]
        return head

    async def _more(self) -> None:
        chunk = await anext(self._chunks, None)
        if chunk is None:
            raise InvalidRequest(field="body", why="the form ends before its last boundary")
        self._held += chunk


def _filename(head: bytes) -> str | None:
    found = _FILENAME.search(head)
    if found is None:
        return None
    # As browsers and HTTP libraries write it: %22, or a backslash, before what would end it.
    text = found[1].replace(b'\\"', b'"').replace(b"%22", b'"').replace(b"%0D", b"\r").replace(b"%0A", b"\n")
    return text.decode("utf-8", "surrogateescape")


async def unpacked(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields what gzip has packed, in small pieces however well it was packed. Raises InvalidRequest."""
    stream = zlib.decompressobj(wbits=31)
    try:
        async for chunk in chunks:
            while chunk:
                if stream.eof:
                    # It would be kept, all of it, as what was not used.
                    raise InvalidRequest(field="body", why="it goes on after its end")
                if piece := stream.decompress(chunk, _PIECE):
                    yield piece
                chunk = stream.unconsumed_tail or stream.unused_data
    except zlib.error:
        raise InvalidRequest(field="body", why="it is not what gzip makes") from None
    if not stream.eof:
        raise InvalidRequest(field="body", why="it ends before its end")
