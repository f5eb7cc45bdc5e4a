from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import insert

from sandboxer.accounts import audit, records
from sandboxer.accounts.records import Kind, Status
from sandboxer.identity.keys import keys
from sandboxer.store import migrate as migrations
from sandboxer.store.databases import open_database
from tests.accounts.conftest import NOW


def test_accounts_that_had_only_a_key_get_their_record(empty_database_url: str) -> None:
    database = open_database(empty_database_url)
    with database.writing.begin() as conn:
        config = Config()
        config.set_main_option("script_location", str(migrations._SCRIPTS).replace("%", "%%"))
        config.attributes["connection"] = conn
        command.upgrade(config, "0004")
        for number, account in enumerate(("owner", "search-team", "search-team")):
            row = {
                "public_key": f"pk{number}",
                "account": account,
                "name": "",
                "sealed_secret": b"",
                "is_owner": account == "owner",
                "accepts_v1": False,
                "created_at": NOW,
            }
            conn.execute(insert(keys).values(row))
    migrations.migrate(database)
    with database.writing.begin() as conn:
        found = {account.id: account for account in records.page(conn)}
        assert {id: account.kind for id, account in found.items()} == {
            "owner": Kind.OWNER,
            "search-team": Kind.CUSTOMER,
        }
        assert found["search-team"].status is Status.ACTIVE
        assert found["owner"].public_id != found["search-team"].public_id
        assert audit.verify(conn).is_whole
    database.dispose()
