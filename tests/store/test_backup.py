from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from sandboxer.kernel.errors import Conflict, InvalidRequest, NotAvailable, NotFound
from sandboxer.store.backup import back_up, restore
from sandboxer.store.engine import open_store
from tests.support.store import a_record, count


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state/sandboxer.db"


async def test_a_backup_taken_under_writes_holds_whole_transactions_and_comes_back(
    url: str, tmp_path: Path
) -> None:
    store = open_store(url)
    stop = asyncio.Event()

    def pair(conn):
        a_record(conn)
        a_record(conn)

    async def keep_writing() -> None:
        while not stop.is_set():
            await store.write(pair)

    async with asyncio.TaskGroup() as group:
        group.create_task(keep_writing())
        for number in range(5):
            await asyncio.to_thread(back_up, url, tmp_path / f"copy{number}")
        stop.set()
    after = await store.read(count)
    await store.close()
    for number in range(5):
        copy = tmp_path / f"copy{number}"
        with sqlite3.connect(copy) as conn:
            held = count_of(conn)
        conn.close()
        assert held % 2 == 0
        assert held <= after
        assert copy.stat().st_mode & 0o777 == 0o600

    restore(tmp_path / "copy4", url)
    again = open_store(url)
    assert await again.read(count) == held
    await again.write(a_record)
    await again.close()
    with sqlite3.connect(tmp_path / "state" / "sandboxer.db.replaced") as conn:
        assert count_of(conn) == after
    conn.close()
    assert not list(tmp_path.rglob("*.part"))


async def test_a_backup_never_overwrites_and_needs_a_database(url: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        back_up(url, tmp_path / "copy")
    await open_store(url).close()
    (tmp_path / "copy").write_text("precious")
    with pytest.raises(Conflict):
        back_up(url, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "precious"


async def test_what_is_no_backup_of_ours_is_not_restored(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    await store.write(a_record)
    await store.close()
    garbage, foreign = tmp_path / "garbage", tmp_path / "foreign"
    newer, older = tmp_path / "newer", tmp_path / "older"
    garbage.write_bytes(b"not a database" * 1000)
    with sqlite3.connect(foreign) as conn:
        conn.execute("CREATE TABLE x (y)")
    conn.close()
    for other, revision in ((newer, "9999"), (older, "0001")):
        back_up(url, other)
        with sqlite3.connect(other) as conn:
            conn.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        conn.close()
    refused = {garbage: InvalidRequest, foreign: InvalidRequest, newer: Conflict, older: Conflict}
    for wrong, error in refused.items():
        with pytest.raises(error):
            restore(wrong, url)
    with pytest.raises(NotFound):
        restore(tmp_path / "absent", url)
    store = open_store(url)
    assert await store.read(count) == 1
    await store.close()


def test_postgresql_is_sent_to_its_own_tools(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="pg_dump"):
        back_up("postgresql://x@127.0.0.1/y", tmp_path / "copy")
    with pytest.raises(NotAvailable, match="pg_restore"):
        restore(tmp_path / "copy", "postgresql://x@127.0.0.1/y")


def count_of(conn: sqlite3.Connection) -> int:
    return conn.execute("SELECT count(*) FROM events").fetchone()[0]
