"""Copies the database consistently while the server runs, and restores such a copy.

Only for SQLite: PostgreSQL brings better tools of its own, and the errors here name them.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import URL

from sandboxer.kernel.errors import Conflict, InvalidRequest, NotAvailable, NotFound
from sandboxer.store.databases import parse_url, sqlite_path
from sandboxer.store.migrations import refuse_unknown


def back_up(database: str, target: Path) -> None:
    """Writes a copy of one moment to `target`, a new file. Blocks; safe beside a running server."""
    url = parse_url(database)
    _refuse_postgres(url, f'pg_dump --format=custom --file={target} "$DATABASE_URL"')
    source = sqlite_path(url)
    if not source.exists():
        hint = "Name the state folder whose database it is: --state-dir DIR."
        raise NotFound(what="database", id=str(source), hint=hint)
    if target.exists():
        hint = "Name a file that is not there."
        raise Conflict(why=f"{target} exists, and a backup never overwrites another", hint=hint)
    _copy(source, target)


def restore(backup: Path, database: str) -> None:
    """Replaces the database by a backup. The server must be stopped: hold the lock of the state folder.

    The database that was there stays beside it as `….replaced`, the one before that is overwritten.
    """
    url = parse_url(database)
    _refuse_postgres(url, f'pg_restore --clean --if-exists --dbname="$DATABASE_URL" {backup}')
    if not backup.exists():
        raise NotFound(what="backup", id=str(backup), hint="Check the path: `sandboxer backup` printed it.")
    _check(backup)
    target = sqlite_path(url)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.exists():
        kept = target.with_name(target.name + ".replaced")
        kept.unlink(missing_ok=True)
        # Whole, with what is still in the write-ahead log.
        _copy(target, kept)
    fresh = target.with_name(target.name + ".restoring")
    fresh.unlink(missing_ok=True)
    _copy(backup, fresh)
    for leftover in ("-wal", "-shm"):
        # The old log must not be replayed into the new file.
        target.with_name(target.name + leftover).unlink(missing_ok=True)
    os.replace(fresh, target)


def installation_in(backup: Path) -> str:
    """Returns the id of the installation that a SQLite database belongs to; "" if it has none."""
    with closing(sqlite3.connect(f"file:{_quoted(backup)}?mode=ro", uri=True)) as conn:
        try:
            row = conn.execute("SELECT id FROM installation").fetchone()
        except sqlite3.DatabaseError:
            # From before installations had ids; whether it is a backup at all, `restore` has to say.
            return ""
    return "" if row is None else str(row[0])


def _copy(source: Path, target: Path) -> None:
    draft = target.with_name(f".{target.name}.part")
    draft.unlink(missing_ok=True)
    # Made here for its mode: the copy holds what the database holds.
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"file:{_quoted(source)}?mode=ro", uri=True)) as origin,
            closing(sqlite3.connect(draft)) as copy,
        ):
            # In one step: with pauses, each write of the server would make it begin again. Readers of a
            # database in WAL mode hold nobody up.
            origin.backup(copy, pages=-1)
            # One file without a log beside it, so that it can be moved about.
            copy.execute("PRAGMA journal_mode=DELETE")
        fd = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def _check(backup: Path) -> None:
    try:
        with closing(sqlite3.connect(f"file:{_quoted(backup)}?mode=ro", uri=True)) as conn:
            if conn.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise InvalidRequest(field="backup", why=f"{backup} is damaged")
            revision = conn.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        raise InvalidRequest(field="backup", why=f"{backup} is not a backup of sandboxer: {error}") from None
    refuse_unknown(None if revision is None else str(revision[0]))


def _quoted(path: Path) -> str:
    return path.resolve().as_posix().replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _refuse_postgres(url: URL, instead: str) -> None:
    if url.get_backend_name() != "sqlite":
        raise NotAvailable(what="a backup of PostgreSQL", why=f"use its own tools: {instead}")
