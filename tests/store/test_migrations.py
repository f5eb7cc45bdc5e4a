from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError

import sandboxer
from sandboxer.kernel.errors import Conflict, InvalidRequest, Unavailable
from sandboxer.sandboxes.records import sandboxes
from sandboxer.store import migrations
from sandboxer.store.databases import open_database
from sandboxer.store.engine import Store, open_store
from sandboxer.store.metadata import metadata
from sandboxer.store.migrations import known_head, migrate, revision_of
from tests.support.schemas import migrating_for_real

# Account and state of sandboxes of one name, the oldest first.
SHARED = (("a", "failed"), ("a", "stopped"), ("a", "destroyed"), ("a", "ready"), ("b", "ready"))


@pytest.fixture
def database_url(empty_database_url: str) -> Iterator[str]:
    with migrating_for_real():
        yield empty_database_url


def declare_all_tables() -> None:
    """Tables are declared by the packages; whoever uses the metadata must have met them all."""
    names = ("store", "observe", "identity", "money", "accounts", "payments", "sandboxes")
    for name in (*names, "work", "artifacts", "access"):
        package = importlib.import_module(f"sandboxer.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{sandboxer.__name__}.{name}."):
            # Drivers run inside a sandbox, from their first line on.
            if ".migrations" not in module.name and ".drivers." not in module.name:
                importlib.import_module(module.name)


async def test_the_migrated_schema_is_what_the_packages_declare(store: Store) -> None:
    declare_all_tables()

    def differences(conn):
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        return compare_metadata(context, metadata)

    assert await store.read(differences) == []


async def test_opening_again_changes_nothing(store: Store, database_url: str) -> None:
    await store.write(lambda conn: conn.execute(text("CREATE TABLE mine (x INTEGER)")))
    await store.close()
    again = open_store(database_url)
    try:
        assert await again.read(revision_of) == known_head()
        assert await again.read(lambda conn: conn.execute(text("SELECT count(*) FROM mine")).scalar()) == 0
    finally:
        await again.close()


async def test_a_database_of_a_newer_program_is_refused_and_left_alone(
    store: Store, database_url: str
) -> None:
    await store.write(lambda conn: conn.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    with pytest.raises(Conflict, match=r"9999.*newer than this program"):
        open_store(database_url)
    assert await store.read(revision_of) == "9999"


def test_a_step_that_fails_leaves_the_database_as_it_was(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(database_url)
    whole = migrations.statements(database.kind)
    monkeypatch.setattr(migrations, "statements", lambda _: [*whole, "DROP TABLE nowhere"])
    with pytest.raises((DBAPIError, Unavailable), match="nowhere"):
        migrate(database)
    monkeypatch.undo()
    with database.writing.connect() as conn:
        assert revision_of(conn) is None
        assert not database.writing.dialect.get_table_names(conn)
    migrate(database)
    database.dispose()


async def test_sandboxes_that_shared_a_name_get_names_of_their_own(store: Store, database_url: str) -> None:
    def share_names(conn):
        conn.execute(text("DROP INDEX ix_sandboxes_account_name"))
        for number, (account, state) in enumerate(SHARED):
            words = ("created_by", "reason", "profile", "profile_version", "backend", "image", "trust")
            values = ("resources", "env", "labels", "inputs", "consumer", "timings_ms")
            row: dict[str, object] = dict.fromkeys(words, "x") | {name: {} for name in values}
            row |= {
                "id": f"sbx_{number:026}",
                "version": 0,
                "account": account,
                "state": state,
                "name": "dev",
            }
            at = datetime(2026, 1, number + 1, tzinfo=UTC)
            conn.execute(
                insert(sandboxes), row | {"created_at": at, "state_since": at, "ttl_s": 1, "ttl_max_s": 1}
            )
        # What came later is not there yet.
        later = [("sandboxes", "at_end"), ("published_images", "tags"), ("previews", "host")]
        later += [("sandboxes", column) for column in ("inception", "promises", "route")]
        for table, column in later:
            conn.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        conn.execute(text("UPDATE alembic_version SET version_num = '0040'"))

    await store.write(share_names)
    await store.close()
    again = open_store(database_url)
    try:
        query = select(sandboxes.c.name).order_by(sandboxes.c.id)
        found = await again.read(lambda conn: conn.execute(query).scalars().all())
    finally:
        await again.close()
    assert found == ["dev", "dev-00000001", "dev", "dev", "dev"]


@pytest.mark.parametrize("revision", ["0001", "0034"])
async def test_an_older_database_is_refused_as_older_and_told_what_to_pass_through(
    store: Store, database_url: str, revision: str
) -> None:
    change = text("UPDATE alembic_version SET version_num = :revision")
    await store.write(lambda conn: conn.execute(change, {"revision": revision}))
    with pytest.raises(Conflict, match=rf"{revision}.*older") as refused:
        open_store(database_url)
    assert f"Start sandboxer {migrations.PASS_THROUGH} on it" in str(refused.value.facts["hint"])
    assert await store.read(revision_of) == revision


def test_the_ledgers_numbers_are_counted_by_themselves(database_url: str) -> None:
    """No AUTOINCREMENT: it is a page more in every commit."""
    database = open_database(database_url)
    add = text(
        "INSERT INTO ledger_transfers (id, debit, credit, amount, asset, kind, phase, reason, at, digest)"
        " VALUES (:id, 'a', 'b', 1, 'sats', 'test', 'single', '', '2026-01-01 00:00:00.000000', 1)"
    )
    migrate(database)
    with database.writing.begin() as conn:
        for id in ("x", "y", "z"):
            conn.execute(add, {"id": id})
        found = conn.execute(text("SELECT seq, id FROM ledger_transfers ORDER BY seq")).all()
        assert [tuple(row) for row in found] == [(1, "x"), (2, "y"), (3, "z")]
        if database.kind == "sqlite":
            counted = conn.exec_driver_sql("SELECT name FROM sqlite_sequence").scalars().all()
            assert "ledger_transfers" not in counted
    database.dispose()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://x/y", "mysql"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("no url", "not a database URL"),
        ("", "not a database URL"),
    ],
)
def test_other_databases_are_refused_by_name(url: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        open_store(url)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(Unavailable) as caught:
        open_store("postgresql://someone:hunter2@127.0.0.1:1/none")
    assert "hunter2" not in str(caught.value)
