"""Nonces that must outlive the process: two small files written in turn.

A record is of use for at most the window after it was written, since by then its timestamp is older than any
later start. So once a file has been written to for longer than the window, the other one holds only stale
records and is begun anew. No fsync: the page cache outlives the process, and after a power cut the next start
is in a later second. A wall clock that is set back changes nothing: time goes by the guarded clock.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

from sandboxer.kernel.errors import Unavailable

_RECORD = struct.Struct(">q16s")
_TURN_S = 310


class NonceJournal:
    def __init__(self, folder: Path) -> None:
        self._paths = (folder / "nonces.0", folder / "nonces.1")
        self._fd: int | None = None
        self._end = 0
        self._turn = 0
        self._turn_ends_s: int | None = None

    def take_over(self, *, after: int) -> list[tuple[int, bytes]]:
        """What the last process wrote with a timestamp above `after`, gathered into the file now in use."""
        found: list[tuple[int, bytes]] = []
        for path in self._paths:
            content = path.read_bytes() if path.exists() else b""
            # A record cut short by a crash belongs to a request that was never served.
            whole = len(content) - len(content) % _RECORD.size
            found += [entry for entry in _RECORD.iter_unpack(content[:whole]) if entry[0] > after]
        draft = self._paths[0].with_name("nonces.new")
        self._open(draft)
        for timestamp, digest in found:
            self._write(timestamp, digest)
        os.replace(draft, self._paths[0])
        self._paths[1].unlink(missing_ok=True)
        return found

    def append(self, timestamp: int, digest: bytes, now_s: int) -> None:
        """Kept when this returns. Raises Unavailable if it cannot be: the request must not be served then."""
        try:
            if self._turn_ends_s is None:
                self._turn_ends_s = now_s + _TURN_S
            if now_s >= self._turn_ends_s:
                self._turn = 1 - self._turn
                self._open(self._paths[self._turn])
                self._turn_ends_s = now_s + _TURN_S
            self._write(timestamp, digest)
        except OSError as error:
            raise Unavailable(
                why=f"the nonce of this request cannot be recorded: {error.strerror}"
            ) from error

    def check(self) -> None:
        """From any thread: is the file in its folder, and does the folder take writes? Raises Unavailable.

        By a file beside it: another thread must not write between the records.
        """
        beside = self._paths[0].with_name("nonces.probe")
        try:
            found, opened = (
                os.stat(self._paths[self._turn]),
                os.fstat(self._fd if self._fd is not None else -1),
            )
            if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
                raise OSError(errno.ESTALE, "the journal was taken from its folder")
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, bytes(_RECORD.size)) != _RECORD.size:
                    raise OSError(errno.ENOSPC, "short write")
            finally:
                os.close(fd)
                os.unlink(beside)
        except OSError as error:
            raise Unavailable(why=f"nonces cannot be recorded: {error.strerror}") from error

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.close()
        self._fd, self._end = fd, 0

    def _write(self, timestamp: int, digest: bytes) -> None:
        if self._fd is None:
            raise OSError(0, "the journal is closed")
        # At a known place: what a short write leaves is overwritten by the next, so records stay in step.
        if os.pwrite(self._fd, _RECORD.pack(timestamp, digest), self._end) != _RECORD.size:
            raise OSError(0, "short write")
        self._end += _RECORD.size
