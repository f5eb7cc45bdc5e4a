"""One server per state folder. Two would reconcile each other's sandboxes away."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandboxer.kernel.errors import Conflict


@contextmanager
def hold_state_dir(state_dir: Path) -> Iterator[None]:
    """Hold `STATE/lock` while inside; Conflict if another process does. A crash lets go of it by itself.

    The file stays: removing it would let two processes lock two files of the same name.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Close-on-exec: a sandbox that outlives the server must not inherit the lock.
    fd = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise Conflict(
                why=f"another sandboxer (process {holder}) uses {state_dir}; stop it,"
                " or choose another --state-dir"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
