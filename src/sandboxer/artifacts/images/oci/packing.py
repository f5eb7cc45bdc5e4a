"""Unpacks layers of an archive: plain, gzip or zstd, in one piece or in many (as `estargz` and `zstd:chunked`
write them). At most one small piece is unpacked at a time, since a small blob may hold a very large layer.

A whole archive may be packed too (`docker save … | gzip`). It is unpacked into a second file of ours, because
its parts are found by position, and packed data has none. It may become no larger than a plain archive may
be, and its memory and time are limited like a layer's.
"""

from __future__ import annotations

import shutil
import sys
import time
import zlib
from pathlib import Path
from typing import IO, Protocol

from sandboxer.artifacts.images.oci.tar import odd
from sandboxer.kernel.errors import NoCapacity, TooLarge

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE = 1 << 20
# How many packed bytes are fed at once; the rest of them is copied for every piece that ends among them.
FEED = 16 << 10
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# Frames that may be skipped; there are sixteen kinds, which differ in the first byte.
_ZSTD_NOTE = b"\x2a\x4d\x18"
# The limit of `zstd -d`: 128 MB of memory for one layer.
_WINDOW_LOG = 27
# This much stays free on the host, whatever is uploaded.
FREE_BYTES = 1 << 30
_START = 8


class Packing(Protocol):
    @property
    def is_hungry(self) -> bool:
        """It gives nothing more until it is fed."""

    def unpack(self, fed: bytes, /) -> bytes:
        """Returns at most PIECE bytes, perhaps none. Raises InvalidRequest for damaged data."""

    def finish(self) -> None:
        """Raises InvalidRequest if the data was cut short."""


def packing_of(start: bytes) -> Packing:
    if start.startswith(_GZIP):
        return Gzip()
    if start.startswith(_ZSTD) or (start[1:4] == _ZSTD_NOTE and start[0] & 0xF0 == 0x50):
        return Zstd()
    return Plain()


class Plain:
    is_hungry = True

    def unpack(self, fed: bytes, /) -> bytes:
        return fed

    def finish(self) -> None:
        pass


class Gzip:
    def __init__(self) -> None:
        self._one = zlib.decompressobj(wbits=31)
        self._left = b""
        self._is_between = False

    @property
    def is_hungry(self) -> bool:
        return not self._left

    def unpack(self, fed: bytes, /) -> bytes:
        if self._is_between:
            self._one = zlib.decompressobj(wbits=31)
        try:
            content = self._one.decompress(self._left + fed, PIECE)
        except zlib.error:
            raise odd("something packed in it is damaged") from None
        self._is_between = self._one.eof
        self._left = self._one.unused_data if self._one.eof else self._one.unconsumed_tail
        return content

    def finish(self) -> None:
        if not self._is_between:
            raise odd("something packed in it is cut short")


class Zstd:
    def __init__(self) -> None:
        self._one = _new_frame()
        self._left = b""

    @property
    def is_hungry(self) -> bool:
        return not self._left and (self._one.eof or self._one.needs_input)

    def unpack(self, fed: bytes, /) -> bytes:
        if self._one.eof:
            self._one = _new_frame()
        try:
            content = self._one.decompress(self._left + fed, PIECE)
        except zstd.ZstdError:
            needs = f"needs more than {1 << _WINDOW_LOG - 20} MB to be unpacked"
            raise odd(f"something packed in it is damaged, or {needs}") from None
        self._left = self._one.unused_data if self._one.eof else b""
        return content

    def finish(self) -> None:
        if not self._one.eof:
            raise odd("something packed in it is cut short")


def _new_frame() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


def is_packed(file: IO[bytes]) -> bool:
    file.seek(0)
    return not isinstance(packing_of(file.read(_START)), Plain)


def unpack_whole(packed: IO[bytes], plain: IO[bytes], *, room: Path, most_bytes: int, ends: float) -> None:
    """Unpacks a packed archive. Blocks. Raises InvalidRequest for damaged data, TooLarge, NoCapacity if
    `room` has none.

    `ends` is when, by the monotonic clock, reading stops.
    """
    packed.seek(0)
    packing, fed, size = packing_of(packed.read(_START)), b"", 0
    packed.seek(0)
    while True:
        if packing.is_hungry:
            fed = packed.read(FEED)
            if not fed:
                break
        # Empty pieces take as long as full ones, and the archive may consist of nothing else.
        if time.monotonic() > ends:
            raise TooLarge(what="archive", limit="the time there is to read it")
        content, fed = packing.unpack(fed), b""
        size += len(content)
        if size > most_bytes:
            raise TooLarge(what="archive", limit=f"{most_bytes >> 20} MB unpacked")
        if content:
            refuse_full(room, len(content))
            plain.write(content)
    packing.finish()
    plain.flush()


def refuse_full(room: Path, count: int) -> None:
    """Raises NoCapacity if `count` more bytes in `room` would leave the host too little."""
    if shutil.disk_usage(room).free < FREE_BYTES + count:
        raise NoCapacity(resource="disk", why="the host has no room to receive it")
