"""Layers as they lie in an archive: plain, or packed with gzip or zstd, in one piece or in many (as
`estargz` and `zstd:chunked` write them). Never more than one small piece is unpacked at a time: a small blob
may hold a very large layer.
"""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

from sandboxer.artifacts.images.oci.tar_reading import odd

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE = 1 << 20
# Of packed bytes: what is left of them is copied for every piece that ends among them.
FEED = 16 << 10
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# What may be skipped; sixteen of them, told apart by the first byte.
_ZSTD_NOTE = b"\x2a\x4d\x18"
# As much as `zstd -d` takes: 128 MB of memory for one layer.
_WINDOW_LOG = 27


class Packing(Protocol):
    @property
    def is_hungry(self) -> bool:
        """It gives nothing more until it is fed."""

    def unpack(self, fed: bytes, /) -> bytes:
        """At most PIECE bytes, perhaps none. Raises InvalidRequest for what is damaged."""

    def finish(self) -> None:
        """Raises InvalidRequest if it was cut short."""


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
