"""Finds where a body ends: by counted bytes, or by chunks. Chunks are decoded and never passed on as they
came.
"""

from __future__ import annotations

import re
from typing import Protocol

MAX_SIZE_LINE = 512
MAX_TRAILERS = 8 * 1024
# Chunks beyond 2^60 are refused: sixteen digits could overflow the next reader.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
LAST_CHUNK = b"0\r\n\r\n"


class BadChunk(Exception):
    """The chunks of a body are malformed."""


class Body(Protocol):
    """Finds the end of a body as its bytes arrive, and says how they are passed on."""

    @property
    def is_over(self) -> bool: ...

    @property
    def rest(self) -> bytes:
        """Returns what followed the body."""

    def feed(self, data: bytes) -> bytes:
        """Returns what of these bytes is passed on. Raises BadChunk."""


class Counted:
    """A body whose length was announced."""

    __slots__ = ("_left", "is_over", "rest")

    def __init__(self, length: int) -> None:
        self._left = length
        self.is_over = not length
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        left = self._left = self._left - len(data)
        if left > 0:
            return data
        self.is_over = True
        if left:
            data, self.rest = data[:left], data[left:]
            self._left = 0
        return data


class Endless:
    """A body that ends with its connection."""

    __slots__ = ()
    is_over = False
    rest = b""

    def feed(self, data: bytes) -> bytes:
        return data


class Chunks:
    """Decodes a chunked body. Extensions and trailers are dropped."""

    __slots__ = ("_buffer", "_left", "_trailers", "is_over", "rest")

    def __init__(self) -> None:
        self._buffer = b""
        # Bytes left of this chunk, including its line end; 0 if a size line is next; -1 in the trailers.
        self._left = 0
        self._trailers = 0
        self.is_over = False
        # What followed the body.
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Returns the payload in `data`. Raises BadChunk."""
        buffer = self._buffer + data if self._buffer else data
        found: list[bytes] = []
        at, end = 0, len(buffer)
        while at < end and not self.is_over:
            if self._left > 2:
                piece = buffer[at : at + self._left - 2]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
            elif self._left > 0:
                if end - at < 2:
                    break
                if buffer[at : at + 2] != b"\r\n":
                    raise BadChunk("a chunk is longer than it said")
                at += 2
                self._left = 0
            else:
                if (stop := buffer.find(b"\r\n", at)) < 0:
                    break
                self._line(buffer[at:stop])
                at = stop + 2
        self._keep(buffer, at)
        return found[0] if len(found) == 1 else b"".join(found)

    def _line(self, line: bytes) -> None:
        if self._left == 0:
            if (match := _SIZE.fullmatch(line)) is None or len(line) > MAX_SIZE_LINE:
                raise BadChunk("the size of a chunk is malformed")
            size = int(match[1], 16)
            self._left = size + 2 if size else -1
        elif not line:
            self.is_over = True
        else:
            self._trailers += len(line) + 2
            if self._trailers > MAX_TRAILERS or _TRAILER.fullmatch(line) is None:
                raise BadChunk("the trailers are malformed or too long")

    def _keep(self, buffer: bytes, at: int) -> None:
        if self.is_over:
            self.rest, self._buffer = buffer[at:], b""
            return
        self._buffer = buffer[at:]
        if self._left <= 0 and len(self._buffer) > (MAX_SIZE_LINE if self._left == 0 else MAX_TRAILERS):
            raise BadChunk("a line between chunks is too long")


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class Rechunked(Chunks):
    """A chunked body that is passed on in chunks of our own."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        payload = super().feed(data)
        framed = chunk(payload) if payload else b""
        return framed + LAST_CHUNK if self.is_over else framed
