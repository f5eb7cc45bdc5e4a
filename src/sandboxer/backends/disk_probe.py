"""Tries whether a folder can be written to. Blocks, and may hang with its disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sandboxer.kernel.errors import Unavailable

# A folder with less room than this refuses the next request, or the one after it.
NEEDED_BYTES = 16 * 2**20
_WORDS = b"written to see whether it can be\n" * 128


def write_there(folder: Path, *, needed_bytes: int = NEEDED_BYTES) -> None:
    """Writes a file to the disk and removes it. Raises Unavailable saying what is wrong."""
    path = folder / f".probe-{os.getpid()}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, _WORDS) != len(_WORDS):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)
            os.unlink(path)
        seen = os.statvfs(folder)
    except OSError as error:
        raise Unavailable(why=f"{folder} cannot be written to: {error.strerror}") from error
    free = seen.f_bavail * seen.f_frsize
    if free < needed_bytes:
        raise Unavailable(why=f"{folder} has {free >> 20} MB left; {needed_bytes >> 20} MB are needed")
