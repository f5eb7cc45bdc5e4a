"""Brings a database to the schema this program knows, by Alembic without an ini file. `env.py` runs inside
`migrate`, steps live in `versions/`.

The first step is a baseline: the schema as all steps before it left it, one file of statements for each kind
of database. Those steps are gone; a database that is older passes through a program that has them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, select, table
from sqlalchemy.exc import OperationalError

from sandboxer.kernel.errors import Conflict, Unavailable
from sandboxer.kernel.program import late
from sandboxer.store.databases import Database, sqlite_path

if TYPE_CHECKING:
    from alembic import command, config
else:
    # An ordinary start finds nothing to migrate.
    command, config = late("alembic.command"), late("alembic.config")

BASELINE = "0035"
# The last program that brings an older database to the baseline.
PASS_THROUGH = "of commit 314a709"
_SCRIPTS = Path(__file__).parent
# Where Alembic notes the revision of a database.
_NOTED = table("alembic_version", column("version_num"))


def statements(kind: str) -> list[str]:
    """Returns the statements that make the baseline in an empty database of this kind (`sqlite`,
    `postgresql`).
    """
    text = files(__name__).joinpath(f"baseline-{kind}.sql").read_text()
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("--")]
    return [one for one in "".join(lines).split(";\n") if one.strip()]


def migrate(database: Database) -> None:
    """Runs all missing steps in one transaction, which also keeps two programs from migrating at once.

    Refuses a database that a newer program has migrated, since guessing at its meaning could lose data, and
    one that is older than the first step here.
    """
    if database.kind == "sqlite":
        sqlite_path(database.url).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with database.writing.begin() as conn:
            _upgrade(conn)
    except OperationalError as error:
        raise Unavailable(why=f"the database cannot be opened: {error.orig}") from error


def known_head() -> str:
    """Returns the revision that a database of this program has."""
    return max(_revisions())


def revision_of(conn: Connection) -> str | None:
    """Returns the revision of a database; None if nothing was ever made in it."""
    if not conn.dialect.has_table(conn, _NOTED.name):
        return None
    found: str | None = conn.execute(select(_NOTED.c.version_num)).scalar()
    return found


def refuse_unknown(found: str | None) -> None:
    """Raises Conflict for a revision that is older than our first or newer than our last."""
    if found is None or found in _revisions():
        return
    if found < BASELINE:
        raise Conflict(
            why=f"the database is at revision {found}, which is older than this program can bring forward"
            f" (from {BASELINE})",
            hint=f"Start sandboxer {PASS_THROUGH} on it once, stop it, and start this one again.",
        )
    raise Conflict(
        why=f"the database is at revision {found}, which is newer than this program knows (up to"
        f" {known_head()})",
        hint="Start the newer sandboxer, or restore a backup made by this one (sandboxer restore).",
    )


@cache
def _revisions() -> frozenset[str]:
    """Returns all revisions that this program knows; the name of a step's file begins with its own."""
    return frozenset(path.name.partition("_")[0] for path in _SCRIPTS.glob("versions/[0-9]*_*.py"))


def _upgrade(conn: Connection) -> None:
    found = revision_of(conn)
    refuse_unknown(found)
    if found == known_head():
        return
    settings = config.Config()
    settings.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    settings.attributes["connection"] = conn
    command.upgrade(settings, "head")
