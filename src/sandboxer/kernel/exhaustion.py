"""Which errors of the operating system say that the host has run out of something: nobody's bug, and nothing
that the caller could mend. Pure.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from sandboxer.kernel.errors import Unavailable

_REASONS: Mapping[int, tuple[str, str]] = {
    errno.EMFILE: ("descriptors_exhausted", "the server has no file descriptors left"),
    errno.ENFILE: ("descriptors_exhausted", "the host has no file descriptors left"),
    errno.ENOSPC: ("disk_full", "a disk of the host is full"),
    errno.EDQUOT: ("disk_full", "a disk quota of the host is used up"),
    errno.EROFS: ("disk_read_only", "a disk of the host cannot be written to any more"),
    errno.EIO: ("disk_failing", "a disk of the host fails"),
    errno.ENOMEM: ("memory_exhausted", "the host has no memory left"),
    errno.ENOBUFS: ("memory_exhausted", "the host has no memory left for its network"),
}
EXHAUSTED = frozenset(_REASONS)
_NO_THREAD = "can't start new thread"


def host_exhausted(error: BaseException) -> Unavailable | None:
    """The error in words for the caller; None if it means something else. Paths are not for the caller."""
    if isinstance(error, OSError) and (found := _REASONS.get(error.errno or 0)):
        reason, why = found
        return Unavailable(why=why, reason=reason)
    if isinstance(error, MemoryError):
        return Unavailable(why="the server has no memory left", reason="memory_exhausted")
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        return Unavailable(why="the host takes no more threads", reason="threads_exhausted")
    return None
