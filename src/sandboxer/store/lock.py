"""Allows one server per state folder, and one per database.

Two would reconcile each other's sandboxes away, and followers of events are woken only by commits of their
own process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sandboxer.kernel.errors import Conflict, Unavailable
from sandboxer.store.claim import POSTGRES_SERVER_LOCK, Claim
from sandboxer.store.databases import Database, open_database, parse_url, sqlite_path

log = logging.getLogger(__name__)


@contextmanager
def hold_state_dir(state_dir: Path) -> Iterator[None]:
    """Holds `STATE/lock` while inside. Raises Conflict if another process holds it. A crash releases it.

    The file stays: removing it would let two processes lock two files of the same name.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private(state_dir)
    hint = f"Stop it (sandboxer down --state-dir {state_dir}), or choose another --state-dir."
    with _hold_file(state_dir / "lock", (f"uses {state_dir}", hint)):
        yield


def make_private(folder: Path) -> None:
    """Closes the folder to other users, whoever made it: keys, the database and every disk lie below."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        # An image may have been built there before the first start: nobody's secrets lie in it yet.
        if any(one.name != "images" for one in folder.iterdir()):
            log.warning("%s was open to others (%o); it is now for its owner alone", folder, mode)
        folder.chmod(0o700)


def is_held(state_dir: Path) -> bool:
    """Says whether a server uses this folder. Changes nothing."""
    return _words_of_holder(state_dir) is not None


def open_holder(state_dir: Path) -> tuple[int, int] | None:
    """Returns the server of this folder: its process id, and a descriptor of that very process, by which it
    can be signalled and waited for. None: no server uses the folder.

    Raises Conflict if the server is none of this machine's processes (it runs in a container).
    """
    if (words := _words_of_holder(state_dir)) is None:
        return None
    try:
        pid, started = (int(word) for word in words.split())
        descriptor = os.pidfd_open(pid)
    except (ValueError, OSError):
        pid, descriptor = 0, -1
    # The id may be another process's by now; none that began at the same tick has it.
    if descriptor < 0 or _started(str(pid)) != started:
        if descriptor >= 0:
            os.close(descriptor)
        if not is_held(state_dir):
            return None
        raise Conflict(
            why=f"a server uses {state_dir}, but it is no process that can be seen from here",
            hint="Stop it where it runs: in its container, or on the machine that shares this folder.",
        )
    return pid, descriptor


def _words_of_holder(state_dir: Path) -> str | None:
    try:
        fd = os.open(state_dir / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 64, 0).decode("ascii", "replace")
    finally:
        os.close(fd)
    return None


def _started(process: str) -> int | None:
    """Returns the tick at which a process began (`proc(5)`, field 22). Its name may hold any character."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def hold_database(database: str) -> Iterator[Claim]:
    """Keeps other servers off this database while inside, wherever they keep their state.

    Open the store with the claim: its writer then holds the lock, and every write is fenced by it.
    """
    url = parse_url(database)
    if url.get_backend_name() == "sqlite":
        path = sqlite_path(url)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _hold_file(path.with_name(path.name + ".lock"), _REFUSAL):
            yield Claim()
    else:
        with _hold_postgres(database) as claim:
            yield claim


# How long the last server's session may take to end.
LET_GO_S = 3.0
_REFUSAL = "uses this database", "Stop it (sandboxer down), or choose another --database."


@contextmanager
def _hold_postgres(database: str) -> Iterator[Claim]:
    """Holds the lock by a connection of its own until a store's writer takes it over. The lock ends with
    either.
    """
    claim = Claim()
    opened = open_database(database, claim=claim)
    try:
        with _connected(opened) as conn:
            driver: Any = conn.connection.driver_connection
            if not _acquired(driver):
                raise Conflict(why=f"another sandboxer {_REFUSAL[0]}", hint=_REFUSAL[1])

            def let_go() -> None:
                driver.execute(f"SELECT pg_advisory_unlock({POSTGRES_SERVER_LOCK})")
                conn.close()

            claim.hold_by(let_go)
            yield claim
    finally:
        opened.dispose()


def _acquired(driver: Any) -> bool:
    """Tries to get the lock. A server that has just ended may still have its session for a moment."""
    deadline = time.monotonic() + LET_GO_S
    while not driver.execute(f"SELECT pg_try_advisory_lock({POSTGRES_SERVER_LOCK})").fetchone()[0]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _connected(opened: Database) -> Connection:
    try:
        return opened.writing.connect()
    except OperationalError as error:
        raise Unavailable(why=f"the database cannot be opened: {error.orig}") from error


@contextmanager
def _hold_file(path: Path, refusal: tuple[str, str]) -> Iterator[None]:
    # Close-on-exec: a sandbox that outlives the server must not inherit the lock.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 64, 0).decode("ascii", "replace").partition(" ")[0].strip() or "unknown"
            why, hint = refusal
            raise Conflict(why=f"another sandboxer (process {holder}) {why}", hint=hint) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {_started('self')}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
