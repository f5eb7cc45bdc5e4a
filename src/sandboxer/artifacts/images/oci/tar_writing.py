"""A tar as a stream of bytes that is the same every time: its digest is known before it is sent."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from typing import TypedDict

_BLOCK = 512
END = b"\0" * (2 * _BLOCK)


class Facts(TypedDict):
    mode: int
    uid: int
    gid: int
    mtime: int


def header(
    path: bytes,
    *,
    kind: bytes,
    mode: int,
    size: int = 0,
    uid: int = 0,
    gid: int = 0,
    mtime: int = 0,
    target: bytes = b"",
) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(path))
    info.type, info.mode, info.size = kind, stat.S_IMODE(mode), size
    info.uid, info.gid, info.mtime = uid, gid, max(0, mtime)
    info.linkname = os.fsdecode(target)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)


def file(path: str, content: bytes) -> Iterator[bytes]:
    yield header(path.encode(), kind=tarfile.REGTYPE, mode=0o644, size=len(content))
    yield content + padding(len(content))


def length_of(path: str, size: int) -> int:
    """Of the whole entry."""
    head = header(path.encode(), kind=tarfile.REGTYPE, mode=0o644, size=size)
    return len(head) + size + len(padding(size))


def in_pieces(chunks: Iterable[bytes], least: int = 256 * 1024) -> Iterator[bytes]:
    """Fewer and larger ones: each costs a turn of whoever sends it."""
    held: list[bytes] = []
    count = 0
    for chunk in chunks:
        held.append(chunk)
        count += len(chunk)
        if count >= least:
            yield b"".join(held)
            held, count = [], 0
    if held:
        yield b"".join(held)
