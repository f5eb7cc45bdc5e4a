"""Request bodies that know their hash before they are sent.

Signature v2 names the body's sha256 in the head, so a file on disk is read twice (hash, then send) and a
stream of unknown length is spooled to a temporary file first. A body can be opened again for a retry.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sandboxer.sdk.signing import EMPTY_SHA256

CHUNK = 1 << 20
# Streams smaller than this never touch the disk.
SPOOL_IN_MEMORY = 4 << 20

Content = bytes | str | Path | IO[bytes] | Iterable[bytes]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes to send: their hash, their length and a way to read them from the start."""

    sha256: str
    length: int
    open: Callable[[], Iterator[bytes]]


def _nothing() -> Iterator[bytes]:
    return iter(())


NO_BODY = Body(sha256=EMPTY_SHA256, length=0, open=_nothing)


def body_of(content: Content) -> Body:
    """A `str` is text to send, a `Path` names a file to send."""
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        data = bytes(content)
        return Body(hashlib.sha256(data).hexdigest(), len(data), lambda: iter((data,) if data else ()))
    if isinstance(content, Path):
        return _file_body(content)
    return _spooled_body(content)


def watched(body: Body, progress: Progress | None) -> Body:
    """The same body, telling `progress` about every chunk that is sent."""
    if progress is None:
        return body

    def read() -> Iterator[bytes]:
        for chunk in body.open():
            yield chunk
            progress(len(chunk))

    return Body(body.sha256, body.length, read)


def _file_body(path: Path) -> Body:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        length = file.tell()

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            # Never more than was hashed: a file that grows meanwhile would break the length we announced.
            left = length
            while left and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    return Body(digest, length, read)


def _spooled_body(stream: IO[bytes] | Iterable[bytes]) -> Body:
    # Lives as long as the Body that refers to it; the file has no name, so nothing can be left behind.
    spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY)  # noqa: SIM115
    digest = hashlib.sha256()
    length = 0
    for chunk in _chunks(stream):
        digest.update(chunk)
        length += len(chunk)
        spool.write(chunk)

    def read() -> Iterator[bytes]:
        spool.seek(0)
        while chunk := spool.read(CHUNK):
            yield chunk

    return Body(digest.hexdigest(), length, read)


def _chunks(stream: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    read = getattr(stream, "read", None)
    if read is None:
        yield from stream
        return
    while chunk := read(CHUNK):
        yield chunk
