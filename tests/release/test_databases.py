"""Databases that an older version filled by every noun are opened, brought forward and read, row by row."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from sandboxer.accounts import audit
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.http.app import create_app
from sandboxer.money.verification import verify
from sandboxer.sandboxes.binding import allow_adoption
from sandboxer.settings import Settings
from sandboxer.store.claim import load_installation
from sandboxer.store.engine import Store
from sandboxer.store.metadata import metadata
from sandboxer.store.migrations import known_head, revision_of
from sandboxer.wire.operations.table import OPERATIONS
from sandboxer.wiring import open_platform
from tests.release.filled import FOLDER, counted, lists, unsealed
from tests.support.http.signed import EMPTY, Client, Credentials
from tests.support.schemas import PostgresDatabases, migrating_for_real

ARCHIVES = sorted(path.name for path in FOLDER.glob("*.tar.xz"))
# Sandboxes of runs that are under way: the start of a server ends what another one left of them.
MAY_BE_EMPTY = {"run_sandboxes"}
# Shows what lies on the host, and this is another one.
OF_THE_HOST = "/v1/host/stale"


class StillClock:
    """The moment at which it was left; nothing that waits ever goes on."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Then(Credentials):
    """Signs as of that moment."""

    moment: datetime

    def head(self, method: str, target: str, digest: str = EMPTY, **bent: str) -> dict[str, str]:
        return super().head(method, target, digest, timestamp=str(int(self.moment.timestamp())), **bent)


@dataclass
class Older:
    """A database of then, as its server left it."""

    state: Path
    database: str | None
    at: datetime
    # How many rows each table has, and what the lists show: to the owner, and to a customer.
    rows: dict[str, int]
    lists: dict[str, dict[str, list[str]]]

    @property
    def url(self) -> str:
        return self.database or f"sqlite:///{self.state}/sandboxer.db"

    def key_of(self, who: str) -> Then:
        known = json.loads((self.state / f"{who}.json").read_text())
        return Then(known["public_key"], known["secret_key"], self.at)


@pytest.fixture(params=ARCHIVES)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Older]:
    with tarfile.open(FOLDER / request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    listed = json.loads((tmp_path / "listed.json").read_text())
    at, reported = datetime.fromisoformat(listed["at"]), (listed["rows"], listed["lists"])
    dump = tmp_path / "dump.sql"
    if "sqlite" in request.param:
        with closing(sqlite3.connect(tmp_path / "sandboxer.db")) as conn:
            conn.executescript(dump.read_text())
        yield Older(tmp_path, None, at, *reported)
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    name = databases.make_empty()
    words = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={dump}", databases.url(name)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    yield Older(tmp_path, databases.url(name), at, *reported)
    databases.drop(name)


@pytest.fixture
async def store(older: Older) -> AsyncIterator[Store]:
    """Opened by the program of today."""
    with migrating_for_real():
        opened = await unsealed(older.url, older.state)
    yield opened
    await opened.close()


def test_there_is_one_of_each_kind_of_database() -> None:
    assert [name.partition("-")[2] for name in ARCHIVES] == ["postgresql.tar.xz", "sqlite.tar.xz"]


async def test_every_noun_is_in_it(older: Older) -> None:
    assert {name for name, rows in older.rows.items() if not rows} <= MAY_BE_EMPTY


async def test_every_row_is_there_and_can_be_read(store: Store, older: Older) -> None:
    assert await store.read(revision_of) == known_head()
    now = await store.read(counted)
    assert {name: now[name] for name in older.rows} == older.rows


async def test_it_has_the_shape_of_a_fresh_one(store: Store) -> None:
    def differences(conn: Any) -> list[Any]:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        found: list[Any] = compare_metadata(context, metadata)
        return found

    assert await store.read(differences) == []


async def test_its_ledger_and_its_audit_log_are_whole(store: Store) -> None:
    assert (await store.read(verify)).faults == []
    assert (await store.read(audit.verify)).is_whole


async def test_a_platform_opens_it_and_shows_what_is_there(older: Older, store: Store) -> None:
    """Every list shows what it showed, and what has a page of its own is found there by its id."""
    settings = Settings(
        state_dir=older.state, database=older.database, host="127.0.0.1", port=0, limit_address=10**6
    )
    backend = Scripted(name="ext.namespaces")
    # The disks did not come along: their records stay, and say so.
    known = await store.read(load_installation)
    assert known is not None
    allow_adoption(older.state, known.id)
    opening = open_platform(settings, clock=StillClock(older.at), backends={backend.name: backend})
    async with opening as platform:
        web = httpx.ASGITransport(create_app(platform))
        async with httpx.AsyncClient(transport=web, base_url="http://older") as http:
            for who, shown in older.lists.items():
                client = Client(http, older.key_of(who))
                # What happened at the start came on top.
                now = await lists(client, pages=2)
                lost = {path: set(ids) - set(now[path]) for path, ids in shown.items() if path != OF_THE_HOST}
                assert {path: ids for path, ids in lost.items() if ids} == {}
                for path in shown:
                    await _is_shown(client, path, shown[path])
            proof = await Client(http, older.key_of("owner")).get("/v1/ledger/verify")
            assert proof.json()["faults"] == []


async def _is_shown(client: Client, path: str, ids: list[str]) -> None:
    pages = [one.path for one in OPERATIONS if one.method == "GET"]
    if any(re.fullmatch(re.escape(path) + r"/{\w+}", page) for page in pages):
        for id in list(filter(None, ids))[:10]:
            answer = await client.get(f"{path}/{id}")
            assert answer.status_code == 200, (path, answer.text)
            assert id in answer.text, (path, answer.text)
