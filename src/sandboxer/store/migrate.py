"""Brings a database to the schema this program knows, by Alembic without an ini file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from sandboxer.kernel.errors import Conflict, Unavailable
from sandboxer.store.databases import Database, sqlite_path

_SCRIPTS = Path(__file__).parent / "migrations"


def migrate(database: Database) -> None:
    """All steps in one transaction, which also keeps two programs from migrating at once.

    Refuses a database that a newer program has migrated: guessing at its meaning could lose data.
    """
    if database.kind == "sqlite":
        sqlite_path(database.url).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with database.writing.begin() as conn:
            _upgrade(conn)
    except OperationalError as error:
        raise Unavailable(why=f"the database cannot be opened: {error.orig}") from error


def known_head() -> str | None:
    """The revision a database of this program has."""
    return _scripts()[0]


def revision_of(conn: Connection) -> str | None:
    return MigrationContext.configure(conn).get_current_revision()


def refuse_newer(found: str | None) -> None:
    if found is not None and found not in _scripts()[1]:
        raise Conflict(
            why=f"the database is at revision {found}, which is newer than this program knows (up to"
            f" {known_head()}); start the newer sandboxer, or restore a backup made by this one"
        )


@cache
def _scripts() -> tuple[str | None, frozenset[str]]:
    """The newest revision and all of them, read once: they are part of this program."""
    scripts = ScriptDirectory(str(_SCRIPTS))
    return scripts.get_current_head(), frozenset(script.revision for script in scripts.walk_revisions())


def _upgrade(conn: Connection) -> None:
    found = revision_of(conn)
    refuse_newer(found)
    if found == known_head():
        return
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
