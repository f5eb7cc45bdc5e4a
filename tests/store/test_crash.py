from __future__ import annotations

import asyncio
import subprocess
import sys

from sqlalchemy import Connection, text

from sandboxer.store.engine import open_store

_WRITE = """
import asyncio, sys
from datetime import UTC, datetime
from sandboxer.observe.events import record
from sandboxer.store.engine import open_store

async def main():
    store = open_store(sys.argv[1])
    for number in range(100_000):
        def pair(conn):
            for half in "ab":
                record(conn, subject=str(number), kind=half, actor="t", reason="r", at=datetime.now(UTC))
        await store.write(pair)
        print(number, flush=True)

asyncio.run(main())
"""


def written_until_killed(database_url: str, wanted: int) -> set[str]:
    """What the writer was told is committed, before it was killed somewhere after the `wanted`th."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITE, database_url], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        seen = {writer.stdout.readline().strip() for _ in range(wanted)}
        writer.kill()
        # A last line cut short by the kill would name another number.
        rest = writer.stdout.read()
    return seen | set(rest[: rest.rfind("\n") + 1].split())


def events_by_subject(conn: Connection) -> dict[str, int]:
    query = text("SELECT subject, count(*) FROM events GROUP BY subject")
    return dict(conn.execute(query).all())


async def test_killed_at_any_point_nothing_answered_is_lost_and_nothing_is_half(database_url: str) -> None:
    for wanted in (1, 7, 40, 120):
        answered = await asyncio.to_thread(written_until_killed, database_url, wanted)
        store = open_store(database_url)
        found = await store.read(events_by_subject)
        await store.write(lambda conn: conn.execute(text("DELETE FROM events")))
        await store.close()
        assert set(found.values()) == {2}
        assert answered <= found.keys()
        assert len(answered) >= wanted
