"""One server per state folder, and one per database.

Two would reconcile each other's sandboxes away, and followers of events are woken only by commits of their
own process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from sandboxer.kernel.errors import Conflict
from sandboxer.store.databases import open_database, parse_url, sqlite_path

_POSTGRES_SERVER_LOCK = int.from_bytes(b"sandboxs")


@contextmanager
def hold_state_dir(state_dir: Path) -> Iterator[None]:
    """Hold `STATE/lock` while inside; Conflict if another process does. A crash lets go of it by itself.

    The file stays: removing it would let two processes lock two files of the same name.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    refusal = f"uses {state_dir}; stop it, or choose another --state-dir"
    with _hold_file(state_dir / "lock", refusal):
        yield


@contextmanager
def hold_database(database: str) -> Iterator[None]:
    """Be the only server on this database while inside, wherever the others keep their state."""
    url = parse_url(database)
    refusal = "uses this database; stop it, or choose another --database"
    if url.get_backend_name() == "sqlite":
        path = sqlite_path(url)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _hold_file(path.with_name(path.name + ".lock"), refusal):
            yield
        return
    opened = open_database(database)
    try:
        # The lock ends with its connection, so with the process. Autocommit: no transaction is left open.
        with opened.reading.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            query = text("SELECT pg_try_advisory_lock(:lock)")
            if not conn.execute(query, {"lock": _POSTGRES_SERVER_LOCK}).scalar():
                raise Conflict(why=f"another sandboxer {refusal}")
            yield
    finally:
        opened.dispose()


@contextmanager
def _hold_file(path: Path, refusal: str) -> Iterator[None]:
    # Close-on-exec: a sandbox that outlives the server must not inherit the lock.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise Conflict(why=f"another sandboxer (process {holder}) {refusal}") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
